"""compare: what differs between runs on one schedule, burst by burst; unlike runs are refused, each kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.alike import UNLIKE, Side, unlike
from analysis.blocks import blocks, pair
from analysis.compare import Comparison, UnlikeRuns, compare, strict_json
from analysis.compare_page import comparison_page
from analysis.compare_words import sentence, text
from analysis.load import load_run
from analysis.summary import summarize
from runlog.record import RequestRecord
from tests.run_folders import answered, failed, write_run

PERIOD_S, LEAD_S, WIDTH_S = 20.0, 10.0, 2.0
OPTIONS = {"endpoint": "chat", "engine": "direct", "input_tokens": "100", "output_tokens": "11"}
Change = Callable[[int, float], dict[str, Any]]


def arrivals(bursts: int) -> list[tuple[int, float]]:
    """(burst, at_s): ten requests a second in each burst of 2 s, one a second otherwise."""
    times = [(-1, 0.5 + second) for second in range(int(LEAD_S))]
    for burst in range(bursts):
        start_s = LEAD_S + burst * PERIOD_S
        times += [(burst, start_s + 0.1 * k) for k in range(20)]
        times += [(-1, start_s + WIDTH_S + 0.5 + k) for k in range(int(PERIOD_S - WIDTH_S))]
    return times


def side(
    folder: Path,
    name: str,
    bursts: int = 10,
    burst_ttft_s: Callable[[int, int], float] = lambda burst, arrival: 0.5,
    record: Callable[[int, float, int], RequestRecord] | None = None,
    **info: Any,
) -> Side:
    """A run of that many bursts; `burst_ttft_s` (burst, arrival) is the TTFT inside them, 0.1 s elsewhere."""
    records = []
    for arrival, (burst, at_s) in enumerate(arrivals(bursts)):
        if record is not None and burst >= 0:
            records.append(record(arrival, at_s, burst))
        else:
            records.append(answered(arrival, at_s, burst_ttft_s(burst, arrival) if burst >= 0 else 0.1))
    starts = [LEAD_S + burst * PERIOD_S for burst in range(bursts)]
    values: dict[str, Any] = {
        "name": name,
        "run_id": name,
        "shape": "pulse",
        "duration_s": LEAD_S + bursts * PERIOD_S,
        "bursts": [[start_s, start_s + WIDTH_S] for start_s in starts],
        "schedule_sha256": f"{bursts} bursts",
        "options": OPTIONS,
        "slo": "ttft<1s",
        "counts": {"planned": len(records)},
    }
    run = load_run(write_run(folder / name, records, **(values | info)))
    return Side(run, summarize(run) | {"verdict": "VALID", "verdict_reasons": []})


def rows(found: Comparison) -> dict[str, Any]:
    return {row.key: row for row in found.rows}


def test_a_block_reaches_from_a_burst_to_the_next() -> None:
    cut = blocks([[10.0, 12.0], [30.0, 32.0]], 45.0)
    assert [(block.window, block.burst) for block in cut] == [
        ((10.0, 30.0), (10.0, 12.0)),
        ((30.0, 45.0), (30.0, 32.0)),
    ]


def test_a_load_without_bursts_is_cut_into_stretches_of_20_s() -> None:
    assert [block.window for block in blocks([], 50.0)] == [(0.0, 20.0), (20.0, 40.0), (40.0, 50.0)]
    assert [block.window for block in blocks([], 49.0)] == [(0.0, 20.0), (20.0, 40.0)]


def test_every_request_due_in_a_block_is_in_it_once(tmp_path: Path) -> None:
    base, other = side(tmp_path, "a", 3), side(tmp_path, "b", 3)
    pairs = pair(base, other)
    assert [len(one.base) for one in pairs] == [38, 38, 38]
    assert [int(one.candidate["in_burst"].sum()) for one in pairs] == [20, 20, 20]


def test_a_slower_candidate_is_worse_by_the_shift_that_was_put_in(tmp_path: Path) -> None:
    base = side(tmp_path, "base", burst_ttft_s=lambda burst, arrival: 0.5 + 0.01 * burst)
    slow = side(tmp_path, "slow", burst_ttft_s=lambda burst, arrival: 0.6 + 0.011 * burst)
    (found,) = compare(base, [slow])
    ttft = rows(found)["ttft_p50"]
    assert ttft.finding == "worse"
    assert ttft.shift.shift == pytest.approx(0.1 + 0.001 * 4.5, abs=1e-6)
    assert ttft.shift.p == 2 / 2**10
    # Figures that differ in no burst (TPOT, success ...) are shown and not tested.
    tested = [row for row in found.rows if row.p_holm is not None]
    assert rows(found)["tpot_p50"].finding == "equal"
    assert ttft.p_holm == pytest.approx(len(tested) * 2 / 2**10)
    assert found.regressed
    assert sentence(found).startswith("slow is worse than base: TTFT p50 in a burst +10")


def test_the_faster_is_better_and_no_regression(tmp_path: Path) -> None:
    (found,) = compare(side(tmp_path, "base"), [side(tmp_path, "fast", burst_ttft_s=lambda b, a: 0.3)])
    assert rows(found)["ttft_p90"].finding == "better"
    assert not found.regressed


def test_equal_runs_are_equal(tmp_path: Path) -> None:
    (found,) = compare(side(tmp_path, "one"), [side(tmp_path, "two")])
    assert {row.finding for row in found.rows} == {"equal"}
    assert "same figures" in sentence(found)


def test_a_significant_shift_below_the_least_change_is_small(tmp_path: Path) -> None:
    base, other = side(tmp_path, "base"), side(tmp_path, "other", burst_ttft_s=lambda b, a: 0.505)
    (found,) = compare(base, [other])
    assert rows(found)["ttft_p50"].finding == "small"
    assert not found.regressed
    (strict,) = compare(base, [other], least_change=0.005)
    assert rows(strict)["ttft_p50"].finding == "worse"


def test_too_few_bursts_are_said_and_how_many_more_are_needed(tmp_path: Path) -> None:
    base = side(tmp_path, "base", 4)
    slow = side(tmp_path, "slow", 4, burst_ttft_s=lambda b, a: 0.8)
    (found,) = compare(base, [slow])
    row = rows(found)["ttft_p50"]
    assert row.finding == "n too small"
    tests = found.tests
    assert row.more_bursts == {2: 7, 3: 7, 4: 8}[tests] - 4
    assert "too few" in sentence(found)


def test_scatter_without_shift_is_not_significant(tmp_path: Path) -> None:
    other = side(
        tmp_path, "other", burst_ttft_s=lambda burst, arrival: 0.5 + (0.1 + burst / 100) * (-1) ** burst
    )
    (found,) = compare(side(tmp_path, "base"), [other])
    row = rows(found)["ttft_p50"]
    assert row.finding == "not significant"
    assert "from chance" in sentence(found)


def test_failures_are_infinitely_slow_and_lower_success(tmp_path: Path) -> None:
    base = side(tmp_path, "base")
    failing = side(
        tmp_path,
        "failing",
        record=lambda arrival, at_s, burst: (
            failed(arrival, at_s) if arrival % 2 else answered(arrival, at_s, 0.5)
        ),
    )
    (found,) = compare(base, [failing])
    by_key = rows(found)
    assert by_key["ttft_p90"].finding == "worse"
    assert by_key["ttft_p90"].shift.shift == float("inf")
    assert by_key["success"].finding == "worse"
    assert by_key["success"].shift.shift == pytest.approx(-10 / 38)
    assert "+failures" in text([found])
    assert json.loads(json.dumps(strict_json([found]), allow_nan=False))[0]["regressed"] is True


def test_two_candidates_share_one_correction(tmp_path: Path) -> None:
    base = side(tmp_path, "base")
    slow = side(tmp_path, "slow", burst_ttft_s=lambda b, a: 0.6)
    (alone,) = compare(base, [slow])
    both = compare(base, [slow, side(tmp_path, "slower", burst_ttft_s=lambda b, a: 0.7)])
    assert rows(both[0])["ttft_p50"].p_holm == pytest.approx(2 * rows(alone)["ttft_p50"].p_holm)


UNLIKE_RUNS: dict[str, dict[str, Any]] = {
    "verdict": {"verdict": "INVALID"},
    "amended": {"segments": [{"id": 0, "start_s": 0.0, "end_s": 20.0, "author": "web"}]},
    "schedule": {"schedule_sha256": "another", "seed": 8},
    "settings": {"options": OPTIONS | {"endpoint": "completions"}},
    "model": {"model": "another-llm"},
    "lengths": {"tokens": 9},
    "cached": {"cached": 50},
}


def test_every_row_of_unlike_has_a_case() -> None:
    assert {row.key for row in UNLIKE} == set(UNLIKE_RUNS)


@pytest.mark.parametrize("key", UNLIKE_RUNS)
def test_an_unlike_pair_is_refused_with_its_reason_and_only_that(tmp_path: Path, key: str) -> None:
    changes = dict(UNLIKE_RUNS[key])
    tokens, cached = changes.pop("tokens", 11), changes.pop("cached", None)
    verdict = changes.pop("verdict", None)
    base = side(tmp_path, "base")
    other = side(
        tmp_path,
        "other",
        record=lambda arrival, at_s, burst: answered(
            arrival, at_s, 0.5, tokens=tokens, asked_output_tokens=11, cached_tokens=cached
        ),
        **changes,
    )
    if verdict:
        other = Side(other.run, {**other.summary, "verdict": verdict, "verdict_reasons": ["records: 3 lost"]})
    assert set(unlike(base, other)) == {key}
    with pytest.raises(UnlikeRuns, match=rf"base and other cannot be compared \[{key}\]: .+"):
        compare(base, [other])
    (found,) = compare(base, [other], allow=[key])
    assert set(found.allowed) == {key}
    assert f"[{key}]" in text([found])


def test_an_open_and_a_closed_load_are_unlike(tmp_path: Path) -> None:
    closed = side(tmp_path, "closed", load="closed", users_curve=[[0.0, 5]])
    assert "one load is open, the other closed" in unlike(side(tmp_path, "open"), closed)["schedule"]


def test_closed_loops_are_paired_by_burst_alone(tmp_path: Path) -> None:
    def users(name: str, ttft_s: float, shift: int) -> Side:
        def record(arrival: int, at_s: float, burst: int) -> RequestRecord:
            return answered(None, at_s, ttft_s, request_id=f"{name}-{arrival + shift}", scheduled_at_s=None)

        closed = {"load": "closed", "users_curve": [[0.0, 5]], "schedule_sha256": None}
        return side(tmp_path, name, burst_ttft_s=lambda b, a: ttft_s, record=record, **closed)

    (found,) = compare(users("base", 0.5, 0), [users("slow", 0.7, 100)])
    assert found.paired_by == "block"
    assert rows(found)["ttft_p50"].finding == "worse"


def test_the_command_writes_a_page_and_exits_1_on_a_regression(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = '"></script><script>alert(1)</script>'
    side(tmp_path, "base")
    side(tmp_path, "slow", burst_ttft_s=lambda b, a: 0.9)
    side(tmp_path, "named", burst_ttft_s=lambda b, a: 0.9, model=hostile)
    folders = [str(tmp_path / name) for name in ("base", "slow", "named")]
    page = tmp_path / "page.html"
    assert main(["compare", *folders, "--allow", "verdict,model", "--out", str(page)]) == 1
    assert "slow is worse than base" in capsys.readouterr().out
    html = page.read_text()
    assert "slow is worse than base" in html
    assert hostile not in html
    assert main(["compare", *folders[:2], "--allow", "verdict", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["candidate"] == "slow"


def test_the_command_refuses_with_its_own_exit_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    side(tmp_path, "base")
    side(tmp_path, "other", model="another-llm")
    assert main(["compare", str(tmp_path / "base"), str(tmp_path / "other")]) == 3
    assert "[model]: model is 'test-llm' against 'another-llm'" in capsys.readouterr().err
    assert main(["compare", str(tmp_path / "base")]) == 3
    assert "at least one candidate" in capsys.readouterr().err


def test_the_page_is_built_for_many_and_for_few_bursts(tmp_path: Path) -> None:
    for bursts in (1, 12):
        base, other = (
            side(tmp_path / str(bursts), "base", bursts),
            side(tmp_path / str(bursts), "other", bursts),
        )
        assert "<h1>Comparison with base</h1>" in comparison_page(base, [other], compare(base, [other]))
