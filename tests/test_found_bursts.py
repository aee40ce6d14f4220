"""Bursts found in arrivals that no plan explains."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from analysis.found_bursts import bursts_of, found_bursts, poisson_limit
from analysis.load import load_run
from analysis.report import write_report
from analysis.summary import summarize
from tests.run_folders import answered, write_run


def arrivals(rng: np.random.Generator, rates: np.ndarray) -> np.ndarray:
    """Poisson arrivals at `rates[s]` in second s."""
    counts = rng.poisson(rates)
    return np.sort(np.repeat(np.arange(len(rates)), counts) + rng.random(int(counts.sum())))


@pytest.mark.parametrize(("mean", "probability"), [(0.5, 1e-3), (3.0, 1e-5), (10.0, 3e-6), (400.0, 1e-6)])
def test_poisson_limit_by_its_definition(mean: float, probability: float) -> None:
    def tail(c: int) -> float:
        return 1 - sum(math.exp(-mean + k * math.log(mean) - math.lgamma(k + 1)) for k in range(c))

    c = poisson_limit(mean, probability)
    assert tail(c) <= probability * 1.001 < tail(c - 1)
    assert poisson_limit(0.0, 1e-3) == 1


@pytest.mark.parametrize("rate", [0.2, 2.0, 10.0, 300.0])
def test_poisson_arrivals_hold_no_bursts(rate: float) -> None:
    rng = np.random.default_rng(5)
    alarms = sum(bool(found_bursts(arrivals(rng, np.full(300, rate)), 300.0)) for _ in range(100))
    assert alarms <= 1


@pytest.mark.parametrize("base", [0.0, 1.0, 6.0, 40.0])
def test_pulses_are_found_to_a_second(base: float) -> None:
    """15 pulses of 5 times the mean level, 3 s long, every 20 s."""
    rng = np.random.default_rng(11)
    rates = np.full(300, base)
    starts = list(range(10, 300, 20))
    for start in starts:
        rates[start : start + 3] = 8 * max(base, 1.5)
    found = found_bursts(arrivals(rng, rates), 300.0)
    assert len(found) == len(starts)
    for (start_s, end_s), start in zip(found, starts, strict=True):
        assert abs(start_s - start) <= 1
        assert abs(end_s - start - 3) <= 1


def test_on_off_traffic_like_the_code_traces() -> None:
    """On for 15 s of 55 at 9 requests/s, off between: the on-times are the bursts."""
    rng = np.random.default_rng(2)
    rates = np.zeros(550)
    for start in range(20, 550, 55):
        rates[start : start + 15] = 9.1
    found = found_bursts(arrivals(rng, rates), 550.0)
    assert len(found) == 10
    assert np.mean([end_s - start_s for start_s, end_s in found]) == pytest.approx(15, abs=1)


def test_a_lone_salvo_is_a_burst_and_few_requests_or_a_new_level_are_none() -> None:
    quiet = np.arange(0.5, 60, 1.0)
    salvo = np.full(30, 20.2)
    assert found_bursts(np.sort(np.concatenate([quiet, salvo])), 60.0) == [(20.0, 21.0)]
    assert found_bursts(np.array([3.0, 3.1, 3.2, 40.0]), 60.0) == []
    assert found_bursts(np.array([]), 60.0) == []
    rng = np.random.default_rng(1)
    step = arrivals(rng, np.concatenate([np.full(30, 5.0), np.full(70, 50.0)]))
    assert found_bursts(step, 100.0) == []


def counted(counts: list[int]) -> np.ndarray:
    """`counts[s]` arrivals spread evenly over second s."""
    return np.concatenate([s + np.arange(n) / max(n, 1) for s, n in enumerate(counts)])


@pytest.mark.parametrize(
    ("gap_s", "expected"),
    [
        (1, [(20.0, 25.0)]),
        (2, [(20.0, 22.0), (24.0, 26.0)]),
        (3, [(20.0, 22.0), (25.0, 27.0)]),
    ],
)
def test_bursts_one_second_apart_are_one_and_others_are_two(
    gap_s: int, expected: list[tuple[float, float]]
) -> None:
    counts = [2] * 60
    for first in (20, 22 + gap_s):
        counts[first : first + 2] = [20, 20]
    assert found_bursts(counted(counts), 60.0) == expected


def test_a_gap_is_bridged_to_the_burst_before_it_however_often() -> None:
    counts = [2] * 60
    counts[20:27] = [20, 2, 20, 2, 20, 2, 20]
    counts[29] = 20
    assert found_bursts(counted(counts), 60.0) == [(20.0, 27.0), (29.0, 30.0)]


def test_at_high_rates_a_burst_has_twice_the_rate_and_lasts_to_one_and_a_half() -> None:
    """Of 100/s: 190 is far beyond chance and no burst; 160 beside 210 is part of one, 140 is not."""
    calm = [100] * 60
    assert found_bursts(counted([*calm[:20], 190, 190, *calm[22:]]), 60.0) == []
    found = found_bursts(counted([*calm[:20], 140, 160, 210, 160, 160, 160, 140, *calm[27:]]), 60.0)
    assert found == [(21.0, 26.0)]


def test_the_load_ends_where_it_ends() -> None:
    """A burst in the last half second ends with the load; what comes after that is none of it."""
    at_s = np.concatenate([counted([2] * 60), 60 + np.arange(20) / 40, np.full(50, 61.0)])
    assert found_bursts(at_s, 60.5) == [(60.0, 60.5)]


def test_a_run_without_planned_bursts_is_judged_by_those_found(tmp_path: Path) -> None:
    """1/s, and from 20 to 22 s 20/s whose TTFT is 2 s: found, marked, and in the report's words."""
    times = sorted([*(k + 0.5 for k in range(60)), *(20 + k / 20 for k in range(40))])
    records = [
        answered(number, at_s, ttft_s=2.0 if 20 <= at_s < 24 else 0.1) for number, at_s in enumerate(times)
    ]
    folder = write_run(tmp_path, records, duration_s=60.0)
    run = load_run(folder)
    summary = summarize(run, "ttft<1s")
    (burst,) = summary["bursts"]
    assert (burst["start_s"], burst["end_s"], burst["found"]) == (20.0, 22.0, True)
    assert burst["recovery_s"] == 2.0
    assert summary["recovery"]["found"] is True
    assert not any("burst" in reason for reason in summary["verdict_reasons"])
    assert "found in the arrivals" in write_report(run, summary).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "info",
    [
        {"bursts": [[5.0, 6.0]]},
        {"rate_curve": [[0, 1], [20, 1], [20, 20], [22, 20], [22, 1], [60, 1]]},
        {"segments": [{"id": 0, "start_s": 0.0, "end_s": 60.0, "author": "plan", "level": 5}]},
        {"load": "closed", "users_curve": [[0, 3]]},
    ],
)
def test_where_the_plan_says_how_the_load_changes_nothing_is_looked_for(
    tmp_path: Path, info: dict[str, object]
) -> None:
    times = sorted([*(k + 0.5 for k in range(60)), *(20 + k / 20 for k in range(40))])
    run = load_run(
        write_run(
            tmp_path, [answered(k, at_s) for k, at_s in enumerate(times)], **{"duration_s": 60.0, **info}
        )
    )
    found = bursts_of(run)
    assert not found.found
    assert found.windows == ([(5.0, 6.0)] if "bursts" in info else [])
