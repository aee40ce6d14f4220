"""Capacity: the rule of the search by hand, and the command on the simulated engine in virtual time."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.capacity import GROWTH, Bracket, Trial, bracket, next_rate, requests_needed, trial_of
from analysis.capacity_page import capacity_page
from analysis.capacity_words import capacity_line, price, tried
from analysis.load import load_run
from analysis.slo import wilson_interval
from analysis.summary import summarize
from experiments.capacity import Search
from runlog.folder import read_run_info
from tests.run_folders import answered, failed, write_run

ONE = Trial("uniform", 2.0, True, 1.0, 0.98, 0.3, None, 0, 0, 0.0, "run")


def trials(*held: tuple[float, bool | None]) -> list[Trial]:
    return [replace(ONE, rate_rps=rate, holds=holds) for rate, holds in held]


def test_it_goes_up_by_half_until_a_rate_does_not_hold_then_closes_in() -> None:
    assert next_rate([], 2.0, 0.05) == 2.0
    assert next_rate(trials((2.0, True)), 2.0, 0.05) == 3.0
    assert next_rate(trials((2.0, True), (3.0, False)), 2.0, 0.05) == pytest.approx(6**0.5)
    assert next_rate(trials((2.9, True), (3.0, False)), 2.0, 0.05) is None


def test_it_goes_down_when_the_start_is_too_high_and_gives_up_near_nothing() -> None:
    assert next_rate(trials((3.0, False)), 3.0, 0.05) == 2.0
    assert next_rate(trials((0.012, False)), 3.0, 0.05) is None


def test_it_stops_at_the_highest_rate_allowed() -> None:
    assert next_rate(trials((2.0, True)), 2.0, 0.05, most_rps=2.5) == 2.5
    assert next_rate(trials((2.0, True), (2.5, True)), 2.0, 0.05, most_rps=2.5) is None


def test_a_run_that_says_nothing_ends_the_search() -> None:
    assert next_rate(trials((2.0, True), (3.0, None)), 2.0, 0.05) is None


def test_a_run_spoilt_by_the_load_generator_is_repeated_twice() -> None:
    held, spoilt = trials((2.0, True))[0], replace(ONE, rate_rps=3.0, holds=None, repeat=True)
    assert next_rate([held, spoilt], 2.0, 0.05) == 3.0
    assert next_rate([held, spoilt, spoilt], 2.0, 0.05) == 3.0
    assert next_rate([held, spoilt, spoilt, spoilt], 2.0, 0.05) is None
    assert next_rate([held, spoilt, *trials((3.0, True))], 2.0, 0.05) == 4.5
    line = capacity_line("uniform", [held, replace(spoilt, why_not="INVALID")], "ttft<1s", 0.95)
    assert "at 2 req/s, and above that nothing was learned (INVALID)" in line


def test_a_rate_that_holds_above_one_that_does_not_is_luck() -> None:
    assert bracket(trials((2.0, True), (4.0, True), (3.0, False))) == Bracket(2.0, 3.0)


@given(st.floats(0.05, 900), st.floats(0.02, 500))
def test_the_search_ends_within_its_precision_of_the_truth(truth_rps: float, start_rps: float) -> None:
    found: list[Trial] = []
    while (rate_rps := next_rate(found, start_rps, 0.05)) is not None:
        # It may start beyond what the server can do, but never drives it further there than by one step.
        assert rate_rps <= max(truth_rps * GROWTH, start_rps) * (1 + 1e-9)
        found += trials((rate_rps, rate_rps <= truth_rps))
        assert len(found) < 40
    seen = bracket(found)
    assert seen.holds_rps is not None
    assert seen.fails_rps is not None
    assert seen.holds_rps <= truth_rps < seen.fails_rps
    assert seen.fails_rps / seen.holds_rps <= 1.05 + 1e-9


def test_a_trial_holds_by_the_lower_bound_not_by_the_share(tmp_path: Path) -> None:
    slow = [answered(k, 0.1 * k, 2.0 if k < 8 else 0.1) for k in range(200)]
    summary = summarize(load_run(write_run(tmp_path / "a", slow, slo="ttft<1s")))
    summary = {**summary, "verdict": "VALID"}
    # 192 of 200 = 96 %; Wilson's lower bound is 92.3 %.
    assert trial_of(summary, 10.0, 0.95).holds is False
    assert trial_of(summary, 10.0, 0.92).holds is True


def test_a_run_that_is_not_valid_says_nothing_but_one_without_success_does(tmp_path: Path) -> None:
    good = summarize(load_run(write_run(tmp_path / "a", [answered(0, 0.1)], slo="ttft<1s")))
    told = trial_of({**good, "verdict": "INVALID", "verdict_reasons": ["send lag p99"]}, 10.0, 0.5)
    assert told.holds is None
    assert told.repeat
    assert "send lag p99" in tried(told)
    dead = summarize(load_run(write_run(tmp_path / "b", [failed(0, 0.1)], slo="ttft<1s")))
    assert dead["verdict"] == "INVALID"
    assert trial_of(dead, 10.0, 0.5).holds is False


@given(st.floats(0.5, 0.999))
def test_no_run_with_fewer_requests_can_hold_and_a_perfect_one_with_as_many_does(share: float) -> None:
    needed = requests_needed(share)
    low, _ = wilson_interval(needed, needed)
    assert low is not None
    assert low >= share - 1e-12
    if needed > 1:
        fewer, _ = wilson_interval(needed - 1, needed - 1)
        assert fewer is not None
        assert fewer < share
    assert requests_needed(0.95) == 73


def test_too_few_requests_say_nothing_unless_they_certainly_miss_it(tmp_path: Path) -> None:
    def told(name: str, slow: int) -> Trial:
        rows = [answered(k, 0.1 * k, 2.0 if k < slow else 0.1) for k in range(50)]
        summary = summarize(load_run(write_run(tmp_path / name, rows, slo="ttft<1s")))
        return trial_of({**summary, "verdict": "VALID"}, 4.0, 0.95)

    perfect = told("perfect", 0)
    assert perfect.holds is None
    assert not perfect.repeat
    assert "50 requests are too few, 73 could tell" in tried(perfect)
    assert told("poor", 10).holds is False  # 80 %, at most 89 %
    line = capacity_line("pulse", [*trials((6.0, False)), perfect], "ttft<1s", 0.95)
    assert "does not hold for 95 % of the requests at 6 req/s, and below that nothing was learned (50" in line


def test_a_run_at_a_low_rate_takes_longer_by_whole_times() -> None:
    """95 % takes 73 requests, half more are 109.5: at 2 req/s 55 s, at 0.5 req/s 219 s."""
    search = Search("ttft<1s", 0.95, 2.0, 1000.0, 0.05, 12, 40.0)
    assert [search.times_longer(rate_rps) for rate_rps in (2.8, 2.7, 2.0, 0.5, 0.1)] == [1, 2, 2, 6, 10]
    assert replace(search, duration_s=None).times_longer(0.01) == 1


def test_the_price_is_what_bursts_take_of_the_capacity() -> None:
    even, bursty = trials((10.0, True), (10.5, False)), trials((4.0, True), (4.2, False))
    assert (
        price(even, bursty)
        == "Bursts cost 60 % of the capacity: 10 req/s spread evenly, 4 req/s in the shape uniform."
    )
    assert price(even, trials((4.0, True))) is None
    assert "no capacity that could be seen" in str(price(even, even))
    assert "the highest rate tried" in capacity_line("pulse", trials((4.0, True)), "ttft<1s", 0.95)
    assert "at no rate tried" in capacity_line("pulse", trials((4.0, False)), "ttft<1s", 0.95)
    assert "nothing was learned" in capacity_line("pulse", trials((4.0, None)), "ttft<1s", 0.95)


def test_the_page_is_built_without_any_figure() -> None:
    bare = replace(
        ONE, holds=None, attainment=None, low=None, ttft_p99_s=None, error_ratio=None, why_not="<b>"
    )
    html = capacity_page("Capacity", ["said"], "how", [bare], 0.95)
    assert "says nothing (&lt;b&gt;)" in html


def test_the_curve_has_the_runs_that_say_something_and_tells_a_missing_p99() -> None:
    def page(*rows: Trial) -> str:
        return capacity_page("Capacity", ["said"], "how", rows, 0.95)

    few = replace(ONE, rate_rps=7.25, ttft_p99_s=None)
    assert "n too small: a p99 takes" in page(few)
    assert "n too small: a p99 takes" not in page(few, replace(ONE, ttft_p99_s=0.3))
    assert '"x":[7.25]' in page(few)  # the figure's data
    assert '"x":[2.0,7.25]' in page(ONE, few)
    assert '"x":[2.0]' in page(ONE, replace(few, holds=None))


def command(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "experiments", "capacity", *options],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_finds_both_capacities_in_virtual_time(tmp_path: Path) -> None:
    load = ("--input-tokens", "700", "--output-tokens", "20", "--run-time", "60s", "--precision", "20")
    done = command("--virtual", "--preset", "a100-8b", "--rate", "6", "--runs-dir", str(tmp_path), *load)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = tmp_path.iterdir()
    found = json.loads((folder / "capacity.json").read_text())
    capacity = {shape: row["holds_rps"] for shape, row in found["capacity"].items()}
    assert 0 < capacity["pulse"] < capacity["uniform"]
    assert f"Bursts cost {1 - capacity['pulse'] / capacity['uniform']:.0%}".replace("%", " %") in done.stdout
    assert all((folder / trial["run"] / "requests.csv").exists() for trial in found["trials"])
    assert "Bursts cost" in (folder / "capacity.html").read_text()


def test_a_slow_server_has_a_capacity_too(tmp_path: Path) -> None:
    """At its rates a run of the asked length has fewer requests than could tell."""
    load = ("--input-tokens", "700", "--output-tokens", "20", "--run-time", "30s", "--precision", "40")
    slow = ("--preset", "2080ti-8b", "--slo", "ttft<3s,tpot<200ms@95%", "--rate", "1.5")
    done = command("--virtual", *slow, "--runs-dir", str(tmp_path), *load)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Bursts cost" in done.stdout
    (folder,) = tmp_path.iterdir()
    found = json.loads((folder / "capacity.json").read_text())
    for trial in found["trials"]:
        info = read_run_info(folder / trial["run"])
        assert trial["rate_rps"] * info.duration_s >= 1.5 * 73
        assert info.duration_s % 30 == 0
    assert all(capacity["holds_rps"] < 73 / 30 for capacity in found["capacity"].values())


def test_each_run_is_told_when_it_begins_and_a_refusal_keeps_its_code(tmp_path: Path) -> None:
    target = ("--host", "http://127.0.0.1:1", "--model", "m", "--runs-dir", str(tmp_path / "runs"))
    done = command(*target, "--duration", "20s")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "A run of 20s for each rate, 12 rates of each shape at most" in done.stdout
    assert "uniform at 2 req/s runs for 60s ..." in done.stdout
    assert done.stderr.startswith("the run uniform-2 did not begin:\n")
    assert "127.0.0.1:1" in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_wrong_options_are_one_line_and_exit_3(tmp_path: Path) -> None:
    for options, why in (
        ((), "either --host URL or --virtual"),
        (("--host", "http://127.0.0.1:1"), "--host needs --model"),
        (("--virtual", "--slo", "p95(ttft)<1s"), "limits per request"),
        (("--virtual", "--rate", "fast"), "could not convert"),
        (("--virtual", "--slo", "ttft<1s@100%"), "ask for less than 100 %"),
        (("--virtual", "--policy", "fcfs", "--policy-option", "x=1"), "x"),
    ):
        done = command(*options, "--runs-dir", str(tmp_path))
        assert done.returncode == 3, done.stderr
        assert why in done.stderr
        assert "Traceback" not in done.stderr
