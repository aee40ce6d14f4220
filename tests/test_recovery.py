"""Recovery time on queues whose truth is known, and on hand-made windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.load import load_run
from analysis.recovery import Recoveries, Recovery, first_held_window, median_recovery_s, recoveries
from analysis.waits import Waits, windowed_medians
from runlog.record import RequestRecord
from tests.run_folders import answered, cancelled, failed, write_run

BASE_TTFT_S = 0.05


def arrivals(
    base_rps: float, peak_rps: float, bursts: Sequence[tuple[float, float]], end_s: float
) -> np.ndarray:
    """Evenly spaced arrivals, faster inside the bursts: the inverse of the integrated rate."""
    grid = np.linspace(0, end_s, 20_001)
    rate = np.full(len(grid) - 1, base_rps)
    for start_s, stop_s in bursts:
        rate[(grid[:-1] >= start_s) & (grid[:-1] < stop_s)] = peak_rps
    expected = np.concatenate([[0], np.cumsum(rate * np.diff(grid))])
    return np.interp(np.arange(0.5, expected[-1]), expected, grid)


def queue_waits(at_s: np.ndarray, served_per_s: float) -> np.ndarray:
    """Waiting times before one first-come first-served server of constant service time (Lindley)."""
    waits = np.zeros(len(at_s))
    for k in range(1, len(at_s)):
        waits[k] = max(0.0, waits[k - 1] + 1 / served_per_s - (at_s[k] - at_s[k - 1]))
    return waits


def judge(
    folder: Path,
    records: Sequence[RequestRecord],
    bursts: Sequence[tuple[float, float]],
    end_s: float,
    slo_ttft_s: float | None = None,
) -> Recoveries:
    load = load_run(write_run(folder, records, duration_s=end_s)).load
    return recoveries(load, bursts, end_s, slo_ttft_s)


def queue_run(
    base_rps: float, peak_rps: float, served_per_s: float, bursts: Sequence[tuple[float, float]], end_s: float
) -> list[RequestRecord]:
    at_s = arrivals(base_rps, peak_rps, bursts, end_s)
    waits = queue_waits(at_s, served_per_s)
    return [
        answered(k, float(moment), ttft_s=BASE_TTFT_S + float(wait), tokens=2)
        for k, (moment, wait) in enumerate(zip(at_s, waits, strict=True))
    ]


def test_fluid_queue_hand_worked(tmp_path: Path) -> None:
    """5/s, served 10/s, 40/s for 2 s: 60 wait at the burst's end and drain at 5/s, so 12 s; the wait is back
    within 0.2 s when 2 are left, after 11.6 s. Window [10, 12) has a median wait of (60 - 55)/10 = 0.5 s."""
    bursts = [(20.0, 22.0), (60.0, 62.0)]
    found = judge(tmp_path, queue_run(5, 40, 10, bursts, 100.0), bursts, 100.0)
    assert found.baseline_ttft_s == pytest.approx(BASE_TTFT_S)
    for burst in found.bursts:
        assert burst.method == "baseline"
        assert burst.threshold_s == pytest.approx(0.25)
        assert burst.recovery_s == 12.0
        assert not burst.censored
        assert burst.requests == pytest.approx(80, abs=1)
        # the worst 2 s are the first after the burst: median wait (60 - 5)/10 s
        assert burst.peak_ttft_s == pytest.approx(5.55, abs=0.15)
        assert burst.overshoot_s == pytest.approx(5.5, abs=0.15)


@settings(deadline=None, max_examples=30)
@given(
    base_rps=st.floats(min_value=3, max_value=8),
    spare=st.floats(min_value=1.2, max_value=2.0),
    peak_ratio=st.floats(min_value=3, max_value=10),
    width_s=st.floats(min_value=1, max_value=5),
)
def test_recovery_is_within_a_window_of_the_true_drain(
    tmp_path_factory: pytest.TempPathFactory, base_rps: float, spare: float, peak_ratio: float, width_s: float
) -> None:
    served_per_s = base_rps * spare
    backlog = (base_rps * peak_ratio - served_per_s) * width_s
    # waiting times are back under 0.2 s when this many are left
    true_s = max(0.0, (backlog - 0.2 * served_per_s) / (served_per_s - base_rps))
    end_s = 15 + width_s + true_s + 20
    bursts = [(15.0, 15.0 + width_s)]
    records = queue_run(base_rps, base_rps * peak_ratio, served_per_s, bursts, end_s)
    burst = judge(tmp_path_factory.mktemp("queue"), records, bursts, end_s).bursts[0]
    assert burst.recovery_s is not None
    assert abs(burst.recovery_s - true_s) <= 2.0 + 1 / base_rps


def test_a_run_that_ends_too_soon_is_censored_with_what_is_known(tmp_path: Path) -> None:
    bursts = [(20.0, 22.0)]
    records = queue_run(5, 40, 10, bursts, 30.0)  # 8 s after the burst, 12 are needed
    burst = judge(tmp_path, records, bursts, 30.0).bursts[0]
    assert burst.censored
    assert burst.recovery_s is None
    assert burst.at_least_s == burst.observed_s == 8.0
    assert burst.affected_until_s == 30.0


def test_a_hold_cut_short_by_the_next_burst_proves_nothing(tmp_path: Path) -> None:
    """12 s to drain, the next burst 18 s after: back from 12 s on, but seen for only 6 of the 10 s."""
    bursts = [(20.0, 22.0), (40.0, 42.0)]
    first, second = judge(tmp_path, queue_run(5, 40, 10, bursts, 90.0), bursts, 90.0).bursts
    assert (first.recovery_s, first.at_least_s, first.observed_s) == (None, 12.0, 18.0)
    assert second.recovery_s == 12.0


def test_a_server_that_never_recovers_does_not_become_its_own_baseline(tmp_path: Path) -> None:
    lead = [answered(k, k / 5, ttft_s=0.05) for k in range(100)]
    ever_after = [answered(100 + k, 20 + k / 5, ttft_s=4.0) for k in range(400)]
    bursts = [(20.0, 22.0), (60.0, 62.0)]
    found = judge(tmp_path, lead + ever_after, bursts, 100.0)
    assert found.baseline_ttft_s == pytest.approx(0.05)
    assert [burst.censored for burst in found.bursts] == [True, True]


def test_without_a_lead_the_quiet_gaps_give_the_baseline(tmp_path: Path) -> None:
    bursts = [(0.0, 2.0), (40.0, 42.0)]
    found = judge(tmp_path, queue_run(5, 40, 10, bursts, 80.0), bursts, 80.0)
    assert found.baseline_ttft_s == pytest.approx(BASE_TTFT_S)
    assert [burst.recovery_s for burst in found.bursts] == [12.0, 12.0]


def test_a_baseline_is_found_when_most_of_the_gaps_is_recovery(tmp_path: Path) -> None:
    """No lead, and after each burst 24 s at 4 s before the 14 s at 0.05 s that are the baseline."""

    def ttft_s(at_s: float) -> float:
        return 4.0 if at_s % 40 < 26 else 0.05

    records = [answered(k, k / 5, ttft_s=ttft_s(k / 5)) for k in range(400)]
    found = judge(tmp_path, records, [(0.0, 2.0), (40.0, 42.0)], 80.0)
    assert found.baseline_ttft_s == pytest.approx(0.05)
    assert [burst.recovery_s for burst in found.bursts] == [24.0, 24.0]


def test_failures_are_infinitely_slow(tmp_path: Path) -> None:
    def at(k: int) -> RequestRecord:
        moment = k / 5
        refused = 22 <= moment < 27
        return failed(k, moment, after_s=0.001) if refused else answered(k, moment, ttft_s=0.05)

    burst = judge(tmp_path, [at(k) for k in range(250)], [(20.0, 22.0)], 50.0).bursts[0]
    assert burst.recovery_s == 6.0, "windows [0, 2), [2, 4) failed whole and [4, 6) by half"
    assert burst.peak_failed
    assert burst.peak_ttft_s is None


def test_cancelled_requests_count_as_at_least_their_age(tmp_path: Path) -> None:
    lead = [answered(k, k / 5, ttft_s=0.05) for k in range(110)]
    cut_off = [cancelled(110 + k, 22 + k / 5, age_s=3.0) for k in range(50)]
    after = [answered(160 + k, 32 + k / 5, ttft_s=0.05) for k in range(90)]
    burst = judge(tmp_path, lead + cut_off + after, [(20.0, 22.0)], 50.0).bursts[0]
    assert burst.recovery_s == 10.0
    assert burst.peak_ttft_s == pytest.approx(3.0)


def test_salvos_without_a_base_load_have_a_drain_time(tmp_path: Path) -> None:
    """30 at 3 s, 60 at 8 s, one served each 0.1 s: the last first tokens come 3 s and 6 s later."""
    records = [answered(k, 3.0, ttft_s=0.1 * (k + 1), lag_s=0.0) for k in range(30)]
    records += [answered(30 + k, 8.0, ttft_s=0.1 * (k + 1), lag_s=0.0) for k in range(60)]
    found = judge(tmp_path, records, [(3.0, 3.0), (8.0, 8.0)], 8.0)
    assert found.baseline_ttft_s is None
    assert [(row.method, row.requests) for row in found.bursts] == [("drain", 30), ("drain", 60)]
    assert [row.recovery_s for row in found.bursts] == [pytest.approx(3.0), pytest.approx(6.0)]


def test_drain_time_is_censored_by_a_cancelled_request_and_unknown_without_answers(tmp_path: Path) -> None:
    records = [answered(0, 3.0, ttft_s=1.0), cancelled(1, 3.0, age_s=30.0)]
    burst = judge(tmp_path / "cut", records, [(3.0, 3.0)], 10.0).bursts[0]
    assert (burst.recovery_s, burst.at_least_s) == (None, pytest.approx(30.0))
    burst = judge(tmp_path / "failed", [failed(0, 3.0)], [(3.0, 3.0)], 10.0).bursts[0]
    assert (burst.recovery_s, burst.at_least_s, burst.requests) == (None, None, 1)


def test_probes_before_an_early_salvo_are_a_baseline(tmp_path: Path) -> None:
    """Salvos at 3 s and 5 s that keep the server busy to the end; two probes a second, 60 ms when idle."""
    salvos = [answered(k, 3.0 if k < 20 else 5.0, ttft_s=20.0) for k in range(60)]
    probes = [
        answered(None, k / 2, ttft_s=0.06 if k < 6 else 5.0, name="probe", request_id=f"p{k}")
        for k in range(60)
    ]
    run = load_run(write_run(tmp_path, [*salvos, *probes], duration_s=30.0))
    found = recoveries(run.load, [(3.0, 3.0), (5.0, 5.0)], 30.0, 1.0, run.probes)
    assert found.baseline_ttft_s == pytest.approx(0.06)
    assert [burst.method for burst in found.bursts] == ["probes", "probes"]
    assert [burst.recovery_s for burst in found.bursts] == [None, None]


def test_the_slo_stands_in_where_there_is_no_quiet_baseline(tmp_path: Path) -> None:
    """Bursts on a server that is slow all the time, from the first second on: nothing is quiet."""
    bursts = [(1.0, 3.0)]
    records = [answered(k, k / 5, ttft_s=3.0 if k < 4 * 5 else 0.9) for k in range(20 * 5)]
    records = [
        record for record in records if record.scheduled_at_s is not None and record.scheduled_at_s < 4.9
    ]
    found = judge(tmp_path / "slo", records, bursts, 20.0, slo_ttft_s=1.0).bursts[0]
    assert (found.method, found.threshold_s) == ("slo", 1.0)
    assert judge(tmp_path / "none", records, bursts, 20.0).bursts[0].method == "drain"


def probed_salvo(
    counts: dict[float, int], served_per_s: float, end_s: float, every_s: float = 1.0
) -> tuple[list[RequestRecord], list[RequestRecord]]:
    """Salvos over silence and a probe each second, all in one first-come first-served queue.

    A salvo of n makes a probe t seconds later wait n / served - t (and for the probes before it).
    """
    probes_at_s = np.arange(0.5, end_s, every_s)
    due = sorted(
        [(at_s, "chat") for at_s, n in counts.items() for _ in range(n)] + [(t, "probe") for t in probes_at_s]
    )
    waits = queue_waits(np.array([at_s for at_s, _ in due]), served_per_s)
    load, probes = [], []
    for (at_s, name), wait_s in zip(due, waits, strict=True):
        ttft_s = float(wait_s) + (BASE_TTFT_S if name == "probe" else 4 * BASE_TTFT_S)
        into = probes if name == "probe" else load
        arrival = None if name == "probe" else len(load)
        request_id = f"{name}-{len(into)}"
        into.append(
            answered(arrival, float(at_s), ttft_s, tokens=2, lag_s=0.0, name=name, request_id=request_id)
        )
    return load, probes


def judge_with_probes(
    folder: Path,
    load: list[RequestRecord],
    probes: list[RequestRecord],
    bursts: Sequence[tuple[float, float]],
    end_s: float,
) -> Recoveries:
    run = load_run(write_run(folder, [*load, *probes], duration_s=end_s))
    return recoveries(run.load, bursts, end_s, None, run.probes)


def test_probes_show_the_recovery_from_a_salvo_over_silence(tmp_path: Path) -> None:
    """60 at 20 s, served 10/s: empty after 6 s and a little more for the probes; 100 at 50 s: 10 s and more.

    Probes come at .5 s. Those of [4, 6) after the first salvo wait about 2 s and 1.1 s, those of [6, 8) 0.1 s
    and none: back within 0.2 s from 6 s on. After the second likewise from 10 s or 12 s on.
    """
    load, probes = probed_salvo({20.0: 60, 50.0: 100}, 10.0, 90.0)
    found = judge_with_probes(tmp_path, load, probes, [(20.0, 20.0), (50.0, 50.0)], 90.0)
    assert found.baseline_ttft_s == pytest.approx(BASE_TTFT_S)
    first, second = found.bursts
    assert (first.method, first.requests) == ("probes", 60)
    assert first.threshold_s == pytest.approx(BASE_TTFT_S + 0.2)
    assert first.recovery_s == pytest.approx(60 / 10 * 10 / 9, abs=2.0)
    assert second.recovery_s == pytest.approx(100 / 10 * 10 / 9, abs=2.0)
    assert first.peak_ttft_s == pytest.approx(4 * BASE_TTFT_S + 59 / 2 / 10), "the load's own median"
    without = judge(tmp_path / "without", load, [(20.0, 20.0), (50.0, 50.0)], 90.0)
    assert [row.method for row in without.bursts] == ["drain", "drain"]


@settings(deadline=None, max_examples=25)
@given(n=st.integers(20, 200), served_per_s=st.floats(5, 20))
def test_the_recovery_that_probes_show_is_within_a_window_of_the_truth(
    tmp_path_factory: pytest.TempPathFactory, n: int, served_per_s: float
) -> None:
    """With a probe a second on top, the backlog shrinks by (served - 1) each second."""
    true_s = max(0.0, n / served_per_s - 0.2) * served_per_s / (served_per_s - 1)
    end_s = 20 + true_s + 25
    load, probes = probed_salvo({20.0: n}, served_per_s, end_s)
    folder = tmp_path_factory.mktemp("probes")
    burst = judge_with_probes(folder, load, probes, [(20.0, 20.0)], end_s).bursts[0]
    assert burst.method == "probes"
    assert burst.recovery_s is not None
    assert abs(burst.recovery_s - true_s) <= 3.0


def test_failed_probes_are_infinitely_slow(tmp_path: Path) -> None:
    load, probes = probed_salvo({20.0: 5}, 10.0, 60.0)
    refused = [
        failed(None, row.scheduled_at_s or 0.0, name="probe", request_id=row.request_id)
        if 20 < (row.scheduled_at_s or 0.0) < 26
        else row
        for row in probes
    ]
    burst = judge_with_probes(tmp_path, load, refused, [(20.0, 20.0)], 60.0).bursts[0]
    assert burst.recovery_s == 6.0


def test_where_the_load_goes_on_probes_change_nothing(tmp_path: Path) -> None:
    bursts = [(20.0, 22.0), (60.0, 62.0)]
    load = queue_run(5, 40, 10, bursts, 100.0)
    slow = [answered(None, k + 0.5, ttft_s=9.0, name="probe", request_id=f"p{k}") for k in range(100)]
    run = load_run(write_run(tmp_path, [*load, *slow], duration_s=100.0))
    assert recoveries(run.load, bursts, 100.0, None, run.probes) == recoveries(run.load, bursts, 100.0)


def test_probes_go_on_after_the_last_salvo_of_a_short_load(tmp_path: Path) -> None:
    """The load ends 1 s after the salvo, the probes 20 s later."""
    load, probes = probed_salvo({20.0: 40}, 10.0, 41.0)
    burst = judge_with_probes(tmp_path, load, probes, [(20.0, 20.0)], 21.0).bursts[0]
    assert (burst.method, burst.recovery_s) == ("probes", 4.0)


def test_no_bursts_and_no_requests(tmp_path: Path) -> None:
    assert judge(tmp_path / "none", [answered(0, 1.0)], [], 10.0) == Recoveries((), None)
    burst = judge(tmp_path / "empty", [], [(3.0, 5.0)], 10.0).bursts[0]
    assert (burst.requests, burst.recovery_s, burst.at_least_s, burst.peak_ttft_s) == (0, None, None, None)


NAN = math.nan


@pytest.mark.parametrize(
    ("medians", "observed_s", "expected"),
    [
        ([0.1] * 5, 10.0, (0.0, 0.0)),
        ([9, 9, 0.1, 0.1, 0.1, 0.1, 0.1], 14.0, (4.0, 4.0)),
        ([9, 0.1, 9, 0.1, 0.1, 0.1, 0.1, 0.1], 16.0, (6.0, 6.0)),
        ([9, NAN, 0.1, NAN, NAN, NAN, 0.1], 14.0, (4.0, 4.0)),
        ([9, 0.1, 0.1, 0.1, 0.1], 10.0, (None, 2.0)),
        ([9, 0.1, 0.1, 9], 8.0, (None, 8.0)),
        ([NAN] * 5, 10.0, (None, 0.0)),
        ([math.inf, 0.1, 0.1, 0.1, 0.1, 0.1], 12.0, (2.0, 2.0)),
    ],
)
def test_first_held_window(
    medians: list[float], observed_s: float, expected: tuple[float | None, float]
) -> None:
    assert first_held_window(np.array(medians, dtype=float), 1.0, observed_s) == expected


def test_windows_start_at_the_bursts_end() -> None:
    at_s = np.array([21.9, 22.0, 23.9, 24.0, 27.0])
    waits = Waits(at_s, np.array([9.0, 1.0, 3.0, 5.0, math.nan]), np.zeros(5, dtype=bool))
    medians = windowed_medians(waits, 22.0, 29.0)
    np.testing.assert_array_equal(medians, [2.0, 5.0, math.nan, math.nan])


def row(recovery_s: float | None, at_least_s: float | None) -> Recovery:
    values: dict[str, Any] = dict.fromkeys(Recovery.__dataclass_fields__)
    return Recovery(
        **{**values, "recovery_s": recovery_s, "at_least_s": at_least_s, "observed_s": 20.0, "end_s": 0.0}
    )


def test_median_takes_censored_bursts_into_account() -> None:
    assert median_recovery_s([row(2.0, 2.0), row(4.0, 4.0), row(6.0, 6.0)]) == 4.0
    # Kaplan-Meier: at 2 s 3/4 survive, the one censored at 3 s leaves, at 4 s half of those: 3/8
    assert median_recovery_s([row(2.0, 2.0), row(None, 3.0), row(4.0, 4.0), row(6.0, 6.0)]) == 4.0
    # one censored before any recovery tells nothing: half of the other two had recovered by 2 s
    assert median_recovery_s([row(None, 1.0), row(2.0, 2.0), row(4.0, 4.0)]) == 2.0
    assert median_recovery_s([row(2.0, 2.0), row(None, 3.0), row(None, 3.0)]) is None
    assert median_recovery_s([row(None, None)]) is None
    assert median_recovery_s([]) is None
