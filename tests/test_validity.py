"""The table of checks, row by row: a run that passes, a run that fails, one without data; and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.load import Run, load_run
from analysis.phases import burst_windows
from analysis.validity import CHECKS, CheckResult, run_checks, verdict, warnings
from runlog.folder import WorkerInfo
from runlog.record import RequestRecord
from tests.run_folders import answered, cancelled, failed, not_sent, write_run

MakeRun = Callable[..., Run]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    def make(records: Sequence[RequestRecord], **options: Any) -> Run:
        return load_run(write_run(tmp_path / f"run{len(list(tmp_path.iterdir()))}", records, **options))

    return make


def checked(run: Run) -> dict[str, CheckResult]:
    return {row.name: row for row in run_checks(run, burst_windows(run.info.bursts))}


def poisson_times(rate_rps: float = 20.0, duration_s: float = 20.0, seed: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.round(np.sort(rng.uniform(0, duration_s, rng.poisson(rate_rps * duration_s))), 6)


def good_records(**changes: Any) -> list[RequestRecord]:
    return [answered(k, float(at_s), **changes) for k, at_s in enumerate(poisson_times())]


def worker(index: int = 0, **values: Any) -> WorkerInfo:
    return WorkerInfo(index=index, host="here", pid=1, **values)


def test_names_are_unique_and_every_check_has_words() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert all(check.asks.endswith("?") and check.advice for check in CHECKS)


def test_a_good_run_is_valid(make_run: MakeRun) -> None:
    workers = [
        worker(k, clock_uncertainty_s=0.0003, cpu_peak_ratio=0.4, loop_lag_p99_s=0.001) for k in range(2)
    ]
    run = make_run(
        good_records(),
        workers=workers,
        bursts=[[5.0, 7.0]],
        rate_curve=[[0.0, 20.0]],
        counts={"planned": len(good_records())},
    )
    results = run_checks(run, [(5.0, 7.0)])
    unsaid = [row.name for row in results if row.passed is not True]
    assert unsaid == ["cached prompts"]  # this server says nothing of its cache
    assert verdict(results) == ("VALID", [])
    assert warnings(results) == []
    assert all(row.advice == "" for row in results)


def test_an_empty_run_is_invalid_and_nothing_else_is_made_up(make_run: MakeRun) -> None:
    results = run_checks(make_run([]), [])
    assert verdict(results)[0] == "INVALID"
    assert [row.name for row in results if row.passed is False] == ["success"]


def test_records_missing_twice_or_unasked(make_run: MakeRun) -> None:
    two = [answered(0, 1.0), answered(1, 2.0)]
    assert checked(make_run(two, schedule_s=[1.0, 2.0, 3.0]))["records"].value == 1
    assert checked(make_run([*two, answered(1, 2.0)]))["records"].value == 1
    assert checked(make_run(two, schedule_s=[1.0]))["records"].value == 1
    assert checked(make_run(two, counts={"planned": 5}))["records"].value == 3
    row = checked(make_run(two, schedule_s=[1.0, 2.0, 3.0]))["records"]
    assert row.passed is False
    assert row.severity == "invalid"
    assert "1 scheduled requests without a record" in row.detail


def test_no_success_is_invalid(make_run: MakeRun) -> None:
    records = [failed(k, float(at_s)) for k, at_s in enumerate(poisson_times())]
    results = run_checks(make_run(records), [])
    assert verdict(results) == ("INVALID", [f"success: 0 of {len(records)} requests succeeded"])


def test_load_reached_counts_late_sends_as_not_sent(make_run: MakeRun) -> None:
    records = [answered(k, k / 10, lag_s=0.050 if k % 10 else 0.0501) for k in range(100)]
    row = checked(make_run(records))["load reached"]
    assert (row.value, row.limit, row.passed) == (0.9, 0.95, False)
    on_the_limit = [answered(k, k / 10, lag_s=0.051 if k < 5 else 0.001) for k in range(100)]
    assert checked(make_run(on_the_limit))["load reached"].passed is True


def test_the_lag_limit_grows_with_the_pulse(make_run: MakeRun) -> None:
    records = [answered(k, k / 10, lag_s=0.19) for k in range(100)]
    assert checked(make_run(records, bursts=[[2.0, 4.0]]))["load reached"].value == 1.0
    assert checked(make_run(records, bursts=[[2.0, 3.5]]))["load reached"].value == 0.0
    assert checked(make_run(records, bursts=[[2.0, 2.0]]))["load reached"].value == 0.0


def test_the_worst_burst_is_found(make_run: MakeRun) -> None:
    late = dict.fromkeys(range(50, 54), 0.3)
    records = [answered(k, k / 10, lag_s=late.get(k, 0.001)) for k in range(200)]
    results = checked(make_run(records, bursts=[[2.0, 4.0], [5.0, 7.0]]))
    assert results["load reached"].passed is True
    row = results["load reached, worst burst"]
    assert row.value == pytest.approx(0.8)
    assert row.passed is False
    assert "burst 2" in row.detail
    assert checked(make_run(records))["load reached, worst burst"].passed is None


def test_a_request_that_the_server_refused_was_offered_in_time(make_run: MakeRun) -> None:
    refused = [
        failed(k, k / 10, sent_at_s=None, ended_at_s=k / 10, failure_class="refused", status=None)
        for k in range(100)
    ]
    assert checked(make_run(refused))["load reached"].value == 1.0
    own = [replace(record, failure_class="out_of_ports") for record in refused]
    assert checked(make_run(own))["load reached"].value == 0.0


def test_connecting_is_no_lag_of_ours(make_run: MakeRun) -> None:
    """A far server: each request opens a connection, which takes 300 ms, and begins to at its moment."""
    far = [answered(k, k / 10, lag_s=0.301, connection="new", connect_s=0.3) for k in range(100)]
    assert checked(make_run(far))["load reached"].value == 1.0
    slow = [replace(record, connect_s=0.2) for record in far]  # 101 ms of it were ours
    assert checked(make_run(slow))["load reached"].value == 0.0


def test_burstiness_does_not_fail_by_milliseconds_across_window_borders(make_run: MakeRun) -> None:
    """Constant arrivals have an IDC of 0, whatever lag of 9 ms takes some of them into the next window."""
    on_borders = [answered(k, 0.995 + k * 0.5, lag_s=0.009 if k % 3 else 0.0) for k in range(38)]
    results = checked(make_run(on_borders))
    assert results["burstiness, 1 s"].value == 0.0
    assert results["burstiness, 1 s"].passed is True
    assert results["burstiness, CV"].passed is True


def test_a_smoothed_salvo_fails_burstiness(make_run: MakeRun) -> None:
    asked = [0.5 + k for k in range(20)] + [10.2] * 40
    sent = sorted(asked[:20]) + [10.2 + 0.1 * k for k in range(40)]
    records = [
        answered(k, at_s, lag_s=sent_s - at_s)
        for k, (at_s, sent_s) in enumerate(zip(asked, sent, strict=True))
    ]
    results = checked(make_run(records, schedule_s=asked))
    assert results["burstiness, 1 s"].passed is False
    assert "asked" in results["burstiness, 1 s"].detail


def test_send_lag_warns_before_it_voids(make_run: MakeRun) -> None:
    late = run_checks(make_run(good_records(lag_s=0.020)), [])
    by_name = {row.name: row for row in late}
    assert by_name["send lag"].passed is False
    assert by_name["send lag, gross"].passed is True
    assert verdict(late) == ("VALID", [])
    assert len(warnings(late)) == 1
    gross = run_checks(make_run(good_records(lag_s=0.080)), [])
    assert verdict(gross)[0] == "INVALID"


@pytest.mark.parametrize(
    ("changes", "loop_lag_s", "passed"),
    [
        ({"read_lag_s": 0.020}, None, True),
        ({"read_lag_s": 0.0201}, None, False),
        ({"stamp": "user", "read_lag_s": None}, 0.019, True),
        ({"stamp": "user", "read_lag_s": None}, 0.021, False),
        ({"stamp": "user", "read_lag_s": None}, None, None),
        ({"gap_p50_s": 0.0, "read_lag_s": 0.019}, None, True),
        ({"gap_p50_s": 0.005, "read_lag_s": 0.019}, None, False),
        ({"gap_p50_s": None, "read_lag_s": 0.021}, None, False),
    ],
)
def test_read_lag_against_the_median_gap(
    make_run: MakeRun, changes: dict[str, Any], loop_lag_s: float | None, passed: bool | None
) -> None:
    run = make_run(good_records(**changes), workers=[worker(loop_lag_p99_s=loop_lag_s)])
    row = checked(run)["read lag"]
    assert row.passed is passed
    assert row.scope == "TTFT and TPOT"


def test_cpu_says_how_many_workers_are_needed(make_run: MakeRun) -> None:
    workers = [worker(0, cpu_peak_ratio=0.95), worker(1, cpu_peak_ratio=0.2)]
    row = checked(make_run(good_records(), workers=workers))["worker CPU"]
    assert (row.value, row.passed, row.severity) == (0.95, False, "warn")
    assert "at least 3 workers" in row.detail
    assert checked(make_run(good_records()))["worker CPU"].passed is None


def test_own_failures(make_run: MakeRun) -> None:
    def run(count: int) -> Run:
        own = [failed(k, k / 100, failure_class="out_of_files") for k in range(count)]
        return make_run(own + [answered(k, k / 100) for k in range(count, 1000)])

    assert checked(run(1))["own failures"].passed is True
    row = checked(run(2))["own failures"]
    assert (row.value, row.passed) == (0.002, False)
    assert "out_of_files" in row.detail
    lost = [failed(k, k / 100, failure_class="worker_lost") for k in range(50)]
    assert checked(make_run([*lost, answered(50, 1.0)]))["own failures"].value == 0.0


def test_clocks(make_run: MakeRun) -> None:
    def row(uncertainty_s: float, rate_rps: float) -> CheckResult:
        workers = [worker(k, clock_uncertainty_s=uncertainty_s) for k in range(2)]
        return checked(make_run(good_records(), workers=workers, rate_curve=[[0.0, rate_rps]]))["clocks"]

    assert row(0.001, 1000.0).passed is True
    assert row(0.0011, 1000.0).passed is False
    assert row(0.004, 25.0).passed is True
    assert row(0.0041, 25.0).passed is False
    assert (
        checked(make_run(good_records(), workers=[worker(clock_uncertainty_s=9.0)]))["clocks"].passed is None
    )


def test_a_lost_worker_degrades(make_run: MakeRun) -> None:
    at_s = poisson_times()
    lost = [not_sent(k, float(moment), "worker_lost") if moment > 10 and k % 2 else answered(k, float(moment))
            for k, moment in enumerate(at_s)]  # fmt: skip
    run = make_run(
        lost, workers=[worker(0), worker(1, lost_at_s=10.0)], events=[(10.0, "worker_lost", 1, "was lost")]
    )
    results = run_checks(run, [])
    assert {row.name: row for row in results}["load reached"].passed is False
    grade, reasons = verdict(results)
    assert grade == "DEGRADED"
    assert reasons[0] == "workers lost: ran with 1 of 2 workers from 10.0 s on (worker 1 was lost)"
    assert any(reason.startswith("load reached") for reason in reasons)
    by_events = make_run(good_records(), workers=[worker(0)], events=[(10.0, "worker_lost", 0, "was lost")])
    assert verdict(run_checks(by_events, []))[0] == "DEGRADED"


def test_a_cause_does_not_excuse_what_it_does_not_explain(make_run: MakeRun) -> None:
    records = good_records()
    run = make_run([*records, records[0]], workers=[worker(lost_at_s=10.0)])
    assert checked(run)["workers lost"].value == 1
    assert verdict(run_checks(run, []))[0] == "INVALID"


def test_a_stopped_run_is_degraded_and_without_a_cause_invalid(make_run: MakeRun) -> None:
    records = [
        answered(k, float(at_s)) if at_s < 12 else not_sent(k, float(at_s))
        for k, at_s in enumerate(poisson_times())
    ]
    stopped = run_checks(make_run(records, state="stopped", stop_reason="interrupted"), [])
    assert verdict(stopped)[0] == "DEGRADED"
    assert "(interrupted)" in verdict(stopped)[1][0]
    assert verdict(run_checks(make_run(records, state="running"), []))[0] == "DEGRADED"
    assert verdict(run_checks(make_run(records), []))[0] == "INVALID"


def test_an_amended_run_is_degraded(make_run: MakeRun) -> None:
    run = make_run(good_records(), events=[(8.0, "amendment", 0, "burst on demand")])
    grade, reasons = verdict(run_checks(run, []))
    assert grade == "DEGRADED"
    assert reasons == ["amended: the plan was amended once while the run went on: burst on demand at 8.0 s"]
    often = make_run(good_records(), events=[(float(k), "amendment", 0, "") for k in range(5)])
    assert "5 times while the run went on: at 0.0 s; at 1.0 s; at 2.0 s; and 2 more" in str(
        verdict(run_checks(often, []))[1]
    )


def test_workers_lost_one_after_the_other(make_run: MakeRun) -> None:
    workers = [worker(0), worker(1, lost_at_s=12.3), worker(2), worker(3, lost_at_s=7.0)]
    detail = checked(make_run(good_records(), workers=workers))["workers lost"].detail
    assert detail == (
        "ran with 3 of 4 workers from 7.0 s on (worker 3 was lost), "
        "2 of 4 workers from 12.3 s on (worker 1 was lost)"
    )


def test_notices_leave_the_verdict_alone(make_run: MakeRun) -> None:
    events = [(3.0, "duplicate", 1, "batch 7 came twice and was dropped"), (4.0, "notice", 0, "late worker")]
    assert verdict(run_checks(make_run(good_records(), events=events), [])) == ("VALID", [])


def test_a_cause_that_the_check_names_itself_makes_degraded(make_run: MakeRun) -> None:
    results = run_checks(make_run([answered(k, k / 10, lag_s=0.2) for k in range(100)]), [])
    assert verdict(results)[0] == "INVALID"
    named = [replace(row, cause="the server did it") if row.severity == "invalid" else row for row in results]
    grade, reasons = verdict(named)
    assert grade == "DEGRADED"
    assert all(reason.endswith("(the server did it)") for reason in reasons)


def test_more_than_one_percent_cut_off_is_a_warning(make_run: MakeRun) -> None:
    records = good_records()
    for k in range(5):
        records[k] = cancelled(k, float(poisson_times()[k]), age_s=30.0)
    results = run_checks(make_run(records), [])
    assert verdict(results)[0] == "VALID"
    assert [sentence.split(":")[0] for sentence in warnings(results)] == ["cut off"]


def test_each_failed_check_gives_advice(make_run: MakeRun) -> None:
    for row in run_checks(make_run(good_records(lag_s=1.0)), []):
        assert bool(row.advice) == (row.passed is False)
