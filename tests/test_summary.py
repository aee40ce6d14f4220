"""summary.json: strict JSON, counts that add up, and a full summary of runs in which little happened."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.load import load_run
from analysis.metrics import METRICS
from analysis.slo import SloError
from analysis.summary import plain, summarize, write_summary
from analysis.table import WIDTH, check_lines, quantile_text, recovery_text, side_by_side
from runlog.exit_codes import ExitCode
from runlog.record import RequestRecord
from tests.run_folders import answered, cancelled, failed, not_sent, write_run

DOCS = Path(__file__).parent.parent / "docs" / "run_folder.md"

LITTLE: dict[str, list[RequestRecord]] = {
    "no request": [],
    "one success": [answered(0, 1.0)],
    "one success of one token": [answered(0, 1.0, tokens=1)],
    "one failure": [failed(0, 1.0)],
    "all failed": [failed(k, 0.1 * k) for k in range(150)],
    "all rejected": [failed(k, 0.1 * k, outcome="rejected", failure_class="http_429") for k in range(5)],
    "all cancelled": [cancelled(k, 0.1 * k, age_s=3.0) for k in range(5)],
    "none sent": [not_sent(k, 0.1 * k) for k in range(5)],
    "no token seen": [answered(0, 1.0, first_token_at_s=None, last_token_at_s=None, output_tokens=None)],
    "one constant rate": [answered(k, 0.1 * k) for k in range(150)],
    "only probes": [answered(None, 1.0, name="probe")],
}


def summary_of(
    folder: Path, records: Sequence[RequestRecord], slo: str | None = None, **info: Any
) -> dict[str, Any]:
    return summarize(load_run(write_run(folder, records, **info)), slo)


def numbers_in(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for item in value.values():
            yield from numbers_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from numbers_in(item)
    elif isinstance(value, float):
        yield value


@pytest.mark.parametrize("kind", LITTLE)
@pytest.mark.parametrize("bursts", [[], [[2.0, 4.0], [8.0, 8.0]]])
def test_a_full_summary_whatever_happened(tmp_path: Path, kind: str, bursts: list[list[float]]) -> None:
    full = summary_of(tmp_path / "full", [answered(k, 0.1 * k) for k in range(150)], slo="ttft<1s,tpot<50ms")
    found = summary_of(
        tmp_path / "run", LITTLE[kind], slo="ttft<1s,tpot<50ms@99%,p95(ttft)<1s", bursts=bursts
    )
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert all(math.isfinite(number) for number in numbers_in(found))
    assert found.keys() == full.keys()
    for part in ("counts", "throughput", "metrics", "slo", "recovery", "tokens", "own_error"):
        assert found[part].keys() == full[part].keys(), part
    for metric in METRICS:
        row = found["metrics"][metric.key]
        assert row.keys() == full["metrics"][metric.key].keys()
        if row["max"] is not None:
            assert all(row[name]["value"] <= row["max"] for name in ("p50", "p90", "p95", "p99", "p99_9"))
    succeeded = any(record.outcome == "succeeded" and record.arrival is not None for record in LITTLE[kind])
    assert (found["verdict"] == "INVALID") == (not succeeded or kind == "none sent")
    assert (found["exit_code"] == ExitCode.NOT_VALID) == (found["verdict"] == "INVALID")
    closed = {"load": "closed", "users_curve": [[0, 3], [5, 0]], "bursts": bursts}
    users = summary_of(tmp_path / "closed", [replace(r, arrival=None) for r in LITTLE[kind]], **closed)
    assert users.keys() == full.keys()
    assert json.loads(json.dumps(users, allow_nan=False)) == users
    table = side_by_side([found, full, users])
    assert max(map(len, table.splitlines())) <= WIDTH
    assert "nan" not in table + check_lines(found)


def test_counts_add_up(tmp_path: Path) -> None:
    records = [
        *(answered(k, 0.1 * k) for k in range(10)),
        failed(10, 2.0),
        failed(11, 2.1, outcome="rejected", failure_class="http_429"),
        cancelled(12, 2.2, age_s=1.0),
        not_sent(13, 2.3, "sent_too_late"),
        answered(14, 19.9, ttft_s=0.5),
        answered(None, 0.0, name="probe"),
        answered(None, -3.0, name="warmup", ttft_s=9.0),
    ]
    found = summary_of(tmp_path, records, schedule_s=[0.1 * k for k in range(16)])
    counts = found["counts"]
    assert counts == {
        "scheduled": 16,
        "sent": 14,
        "succeeded": 11,
        "failed": 1,
        "rejected": 1,
        "cancelled": 1,
        "not_sent": 1,
        "missing": 1,
        "twice": 0,
        "outside_load": 2,
        "probes": 1,
        "warmups": 1,
        "finished_in_window": 10,
        "finished_in_drain": 1,
    }
    assert counts["scheduled"] == counts["sent"] + counts["not_sent"] + counts["missing"] - counts["twice"]
    assert counts["sent"] == sum(counts[name] for name in ("succeeded", "failed", "rejected", "cancelled"))
    assert found["error_ratio"] == pytest.approx(2 / 13)
    assert sum(found["phases"].values()) == 15


def test_throughput_over_the_window_by_hand(tmp_path: Path) -> None:
    """Ten answers of 11 tokens end in the 20 s, one after: 10/20 req/s and 110/20 tokens/s."""
    records = [answered(k, 1.0 * k) for k in range(10)] + [answered(10, 19.95)]
    rates = summary_of(tmp_path, records)["throughput"]
    assert rates == {
        "scheduled_per_s": 0.55,
        "sent_per_s": 0.55,
        "requests_per_s": 0.5,
        "output_tokens_per_s": 5.5,
        "input_tokens_per_s": 50.0,
    }


def test_the_main_figures_by_the_snippet_of_the_docs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(5)
    times = np.sort(rng.uniform(0, 20, 400))
    records = [
        answered(k, float(at_s), ttft_s=float(rng.gamma(2, 0.3)), tpot_s=float(rng.gamma(20, 0.002)))
        if k % 20
        else failed(k, float(at_s))
        for k, at_s in enumerate(times)
    ]
    found = summary_of(tmp_path, records, slo="ttft<1s,tpot<50ms")
    snippet = DOCS.read_text(encoding="utf-8").split("```python")[1].split("```")[0]
    by_hand: dict[str, Any] = {}
    exec(snippet.replace("runs/RUN", str(tmp_path)), by_hand)
    assert found["metrics"]["ttft_s"]["p95"]["value"] == pytest.approx(by_hand["ttft_s"].quantile(0.95))
    assert found["metrics"]["tpot_s"]["mean"] == pytest.approx(by_hand["tpot_s"].mean())
    assert 0.5 < found["slo"]["attainment"]["whole"]["ratio"] < 0.9
    assert found["slo"]["attainment"]["whole"]["ratio"] == pytest.approx(by_hand["met"].sum() / 400)
    assert found["slo"]["goodput_rps"] == pytest.approx(by_hand["met"].sum() / 20)
    assert [float(line) for line in capsys.readouterr().out.splitlines()[-2:]] == pytest.approx(
        [found["error_ratio"], found["slo"]["attainment"]["whole"]["ratio"]]
    )


def test_attainment_inside_and_outside_bursts(tmp_path: Path) -> None:
    """Baseline 0.1 s; the burst's own 20 requests take 2 s, the 10 after it 0.9 s, then all is well."""

    def ttft_s(at_s: float) -> float:
        return 2.0 if 20 <= at_s < 22 else 0.9 if 22 <= at_s < 23 else 0.1

    times = [k / 10 for k in range(400)]
    records = [answered(k, at_s, ttft_s=ttft_s(at_s)) for k, at_s in enumerate(times)]
    found = summary_of(tmp_path, records, slo="ttft<1s", bursts=[[20.0, 22.0]], duration_s=40.0)
    parts = found["slo"]["attainment"]
    assert {name: (part["met"], part["decided"]) for name, part in parts.items()} == {
        "whole": (380, 400),
        "burst": (0, 20),
        "recovery": (20, 20),
        "quiet": (360, 360),
    }
    assert found["slo"]["goodput_rps"] == 380 / 40
    assert found["slo"]["goodput_in_bursts_rps"] == 0.0
    burst = found["bursts"][0]
    assert (burst["requests"], burst["recovery_s"], burst["peak_ttft_s"]) == (20, 2.0, 2.0)
    assert burst["attainment"]["decided"] == 20
    assert found["recovery"]["median_s"] == 2.0
    assert found["recovery"]["range_s"] == [2.0, 2.0]
    assert found["phases"] == {"burst": 20, "recovery": 20, "quiet": 360}


@pytest.mark.parametrize(
    ("slo", "met", "code"),
    [
        ("ttft<150ms", None, ExitCode.OK),
        ("ttft<50ms", None, ExitCode.OK),
        ("ttft<50ms@1%", False, ExitCode.SLO_MISSED),
        ("ttft<150ms@100%", True, ExitCode.OK),
        ("ttft<150ms@100%,p95(e2e)<1s", True, ExitCode.OK),
        ("p95(e2e)<100ms,ttft<150ms@100%", False, ExitCode.SLO_MISSED),
    ],
)
def test_only_shares_and_percentiles_gate(tmp_path: Path, slo: str, met: bool | None, code: ExitCode) -> None:
    found = summary_of(tmp_path, [answered(k, 0.1 * k) for k in range(150)], slo=slo)
    assert found["verdict"] == "VALID"
    assert (found["slo"]["met"], found["exit_code"]) == (met, code)


def test_an_slo_of_percentiles_alone_is_attained_within_their_times(tmp_path: Path) -> None:
    records = [answered(k, 0.1 * k, ttft_s=0.1 if k % 4 else 2.0) for k in range(100)]
    found = summary_of(tmp_path, records, slo="p75(ttft)<1s")["slo"]
    assert found["limits"] == []
    assert found["attainment"]["whole"]["ratio"] == 0.75
    assert found["goodput_rps"] == 75 / 20


def test_an_interrupted_run_keeps_its_own_exit_code(tmp_path: Path) -> None:
    records = [answered(0, 1.0), not_sent(1, 2.0)]
    found = summary_of(tmp_path, records, state="stopped", stop_reason="interrupted")
    assert found["verdict"] == "DEGRADED"
    assert found["exit_code"] == ExitCode.INTERRUPTED


@pytest.mark.parametrize(
    ("reason", "slo", "code"),
    [
        ("interrupted (SIGTERM)", "ttft<1ms@99%", ExitCode.INTERRUPTED),
        ("safety valve: 500 requests (--max-requests)", "ttft<1ms@99%", ExitCode.SAFETY_VALVE),
        ("the master was lost", "ttft<1ms@99%", ExitCode.NOT_VALID),
    ],
)
def test_how_a_run_was_stopped_comes_before_what_it_found(
    tmp_path: Path, reason: str, slo: str, code: ExitCode
) -> None:
    records = [answered(0, 1.0), not_sent(1, 2.0)]
    found = summary_of(tmp_path, records, slo=slo, state="stopped", stop_reason=reason)
    assert found["exit_code"] == code
    assert f"({reason})" in found["verdict_reasons"][0]


STEPS: dict[str, Any] = {
    "shape": "steps",
    "segments": [
        {"id": 1, "start_s": 10.0, "end_s": 20.0, "author": "plan", "level": 4},
        {"id": 0, "start_s": 0.0, "end_s": 10.0, "author": "plan", "level": 2},
    ],
}


def stepped() -> list[RequestRecord]:
    """2 req/s answered within 0.4 s; then 4 req/s that take 5 s, every fourth rejected."""
    slow = [
        answered(20 + k, 10 + k / 4, ttft_s=4.8) if k % 4 else failed(20 + k, 10 + k / 4, outcome="rejected")
        for k in range(40)
    ]
    return [answered(k, k / 2, ttft_s=0.2) for k in range(20)] + slow


def test_levels_by_hand(tmp_path: Path) -> None:
    found = summary_of(tmp_path, stepped(), slo="ttft<1s", **STEPS)
    first, second = found["levels"]
    assert (first["level"], first["requests"], first["requests_per_s"]) == (2, 20, 2.0)
    assert (first["ttft"]["p50"]["value"], first["tpot_s"]["p50"]["value"]) == (0.2, 0.02)
    assert (first["attainment"]["ratio"], first["error_ratio"]) == (1.0, 0.0)
    # of those due from 10 to 15 s, 15 of 20 are answered, those within 5.001 s before 20 s; the others drain
    assert (second["level"], second["requests"], second["requests_per_s"]) == (4, 40, 1.5)
    assert (second["attainment"]["met"], second["error_ratio"]) == (0, 0.25)
    assert summary_of(tmp_path / "none", [answered(0, 1.0)])["levels"] == []
    table = side_by_side([found])
    assert max(map(len, table.splitlines())) <= WIDTH
    block = table[table.index("levels in req/s") :].splitlines()
    assert block[1].split("  ")[0].strip() == "level"
    assert [line.split()[:2] for line in block[2:]] == [["2", "20"], ["4", "40"]]


def test_a_level_that_was_not_reached_has_no_figures(tmp_path: Path) -> None:
    records = [answered(k, k / 2) if k < 16 else not_sent(k, k / 2) for k in range(40)]
    found = summary_of(tmp_path, records, state="stopped", stop_reason="interrupted", **STEPS)
    first, second = found["levels"]
    assert first["requests_per_s"] == 16 / 8
    assert (second["requests_per_s"], second["ttft"]["p50"]["value"], second["error_ratio"]) == (
        None,
        None,
        None,
    )
    assert "nan" not in side_by_side([found])


def test_the_slo_of_the_run_another_and_a_broken_one(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "own", [answered(0, 1.0)], slo="ttft<1s"))
    assert summarize(run)["slo"]["text"] == "ttft<1s"
    assert summarize(run, "e2e<9s")["slo"]["text"] == "e2e<9s"
    with pytest.raises(SloError, match="unknown metric"):
        summarize(run, "speed<1s")
    broken = summary_of(tmp_path / "broken", [answered(0, 1.0)], slo=None)
    assert broken["slo"] is None
    run = load_run(write_run(tmp_path / "unreadable", [answered(0, 1.0)]))
    object.__setattr__(run.info, "slo", "as fast as you can")
    found = summarize(run)
    assert found["slo"] is None
    assert any("as fast as you can" in notice for notice in found["notices"])


def test_failures_are_grouped_with_one_example(tmp_path: Path) -> None:
    records = [
        answered(0, 0.0),
        failed(1, 1.0, error="x" * 500),
        failed(2, 2.0),
        failed(3, 3.0, failure_class="stall", error=None),
    ]
    first, second = summary_of(tmp_path, records)["failures"]
    assert (first["class"], first["whose"], first["count"], first["share"]) == ("http_503", "server", 2, 0.5)
    assert len(first["example"]) == 200
    assert (second["class"], second["example"]) == ("stall", None)


def test_tokens_asked_and_got(tmp_path: Path) -> None:
    """Asked 128, the server stops at 3 for half of the requests: the mean is 65.5 and half are off."""
    records = [answered(k, 0.1 * k, tokens=128 if k % 2 else 3, asked_output_tokens=128) for k in range(100)]
    records += [answered(100, 11.0, tokens=128, asked_output_tokens=128, tokens_from="events")]
    tokens = summary_of(tmp_path, records[:100])["tokens"]
    assert tokens["output_mean"] == 65.5
    assert tokens["off_by_more_than_5_percent_ratio"] == 0.5
    assert tokens["tokens_per_event"] == 1.0
    (tmp_path / "two").mkdir()
    assert summary_of(tmp_path / "two", records)["tokens"]["tokens_from"] == {"usage": 100, "events": 1}


def test_a_late_client_leads_with_the_scheduled_moment(tmp_path: Path) -> None:
    on_time = summary_of(tmp_path / "a", [answered(k, 0.1 * k) for k in range(100)])
    late = summary_of(tmp_path / "b", [answered(k, 0.1 * k, lag_s=0.02) for k in range(100)])
    assert (on_time["lead_ttft"], late["lead_ttft"]) == ("ttft_s", "ttft_from_schedule_s")
    assert late["metrics"]["ttft_from_schedule_s"]["p50"]["value"] == pytest.approx(0.12)
    assert "120 ms" in side_by_side([late])


def test_burstiness_of_asked_and_sent(tmp_path: Path) -> None:
    found = summary_of(tmp_path, [answered(k, 0.5 + k) for k in range(20)])["burstiness"]
    assert found["asked"]["cv"] == pytest.approx(0, abs=1e-9)
    assert found["asked"]["idc"] == {"1": 0.0, "10": None, "60": None}
    assert "longer than a quarter" in found["asked"]["unmeasured"]["10"]
    assert (found["sent"]["n"], found["first_byte"]["n"]) == (20, 20)


def test_write_summary_is_what_summarize_says(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path, [answered(0, 1.0)]))
    found = summarize(run)
    path = write_summary(run, found)
    assert path == tmp_path / "summary.json"
    assert json.loads(path.read_text(encoding="utf-8")) == found


def test_plain_has_no_numpy_and_no_infinity() -> None:
    value = {
        1: np.float64(2.5),
        "a": [np.int64(3), math.nan, math.inf, pd.NA, np.bool_(True)],
        "b": (None, "x"),
    }
    assert plain(value) == {"1": 2.5, "a": [3, None, None, None, True], "b": [None, "x"]}


def test_every_key_is_documented(tmp_path: Path) -> None:
    docs = DOCS.read_text(encoding="utf-8")
    records = [answered(k, 0.1 * k) for k in range(150)] + [failed(150, 16.0)]
    found = summary_of(tmp_path, records, slo="ttft<1s,p95(ttft)<1s", bursts=[[2.0, 4.0]])
    keys = set(found)
    for part in (
        *("counts", "throughput", "slo", "recovery", "tokens", "own_error", "chunk_gaps", "fluidity"),
        *("diagnosis", "error_texts"),
    ):
        keys |= set(found[part])
    keys |= set(found["bursts"][0]) | set(found["checks"][0]) | set(found["failures"][0])
    keys |= set(found["diagnosis"]["findings"][0]) | set(found["error_texts"]["groups"][0])
    keys |= set(found["metrics"]["ttft_s"]) | set(found["metrics"]["ttft_s"]["p95"])
    keys |= set(found["slo"]["attainment"]["whole"]) | set(found["slo"]["percentiles"][0])
    keys |= set(found["burstiness"]["asked"]) | set(found["in_flight"])
    stepped_ = summary_of(tmp_path / "steps", stepped(), **STEPS)
    keys |= set(stepped_["levels"][0])
    keys |= set(found["slo"]["by_burst"]["burst"]) | set(found["slo"]["limits"][0])
    keys |= set(found["recovery"]["over_bursts"]) | set(found["recovery"]["over_bursts"]["drain_s"])
    pair = summary_of(tmp_path / "pair", [replace(r, tenant="ab"[k % 2]) for k, r in enumerate(records)])
    keys |= set(pair["groups"]) | set(pair["groups"]["tenant"][0]) | set(pair["tenants"][0])
    assert sorted(key for key in keys if f"`{key}`" not in docs) == []


def test_texts_of_the_table() -> None:
    base = {"value": 1.2, "low": 1.0, "high": 1.5, "n_too_small": False, "not_met": False}
    assert quantile_text(base) == "1.2 s (1 s to 1.5 s)"
    assert quantile_text({**base, "low": None}) == "1.2 s"
    assert quantile_text({**base, "n_too_small": True}) == "n too small"
    assert quantile_text({**base, "value": None}) == "n/a"
    assert quantile_text({**base, "value": None, "not_met": True}) == "not met"
    burst = {"method": "baseline", "recovery_s": 4.0, "at_least_s": 4.0, "watched_too_short": False}
    assert recovery_text(burst) == "4 s"
    assert recovery_text({**burst, "recovery_s": None}) == "≥ 4 s (censored)"
    assert recovery_text({**burst, "recovery_s": None, "at_least_s": None}) == "n/a"
    assert recovery_text({**burst, "method": "drain"}) == "drained in 4 s"


def test_the_table_shows_runs_side_by_side_and_wraps_by_run(tmp_path: Path) -> None:
    records = [answered(k, 0.02 * k) for k in range(900)]
    found = [
        summary_of(tmp_path / str(number), records, slo="ttft<1s", name=f"run {number}", bursts=bursts)
        for number, bursts in enumerate([[], [[10.0, 11.0]], [], [], []])
    ]
    pair = side_by_side(found[:2])
    assert pair.splitlines()[0].split() == ["run", "run", "0", "run", "1"]
    assert "burst 1" in pair
    five = side_by_side(found)
    assert max(map(len, five.splitlines())) <= WIDTH
    assert all(f"run {number}" in five for number in range(5))
    assert "burst" not in side_by_side([found[0], found[2]])
    twins = [{**found[0], "run_id": f"20260101-12000{k}-run-0"} for k in range(2)]
    both = side_by_side([*twins, found[1]])
    assert both.splitlines()[0].split() == ["run", *(twin["run_id"] for twin in twins)]
    assert "run 1" in both, "a name that is its own stays"
    assert "  -" not in both, "a block of runs without bursts has no row for one"
    many = [*([0.5 + k, 0.6 + k] for k in range(15))]
    crowded = side_by_side([summary_of(tmp_path / "many", records, bursts=many)])
    assert "burst 1" not in crowded
    assert "recovery" in crowded
