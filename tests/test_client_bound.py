"""When the load generator was the bottleneck, who made the lumps, and what its checks say, by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from analysis.client_bound import BoundWindow, bound_windows, told
from analysis.load import Run, load_run
from analysis.lumps import lumps
from analysis.own_error import burst_sending, worker_loads
from analysis.summary import summarize
from analysis.table import side_by_side
from analysis.table_client import bound
from analysis.trust import Evidence
from analysis.validity import CheckResult, run_checks
from runlog.client_load import CLIENT_LOAD_CSV
from runlog.folder import WorkerInfo
from runlog.record import RequestRecord
from tests.run_folders import answered, write_run

MakeRun = Callable[..., Run]
SEND_LIMIT_S = 0.05


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    def make(records: Sequence[RequestRecord], **options: Any) -> Run:
        return load_run(write_run(tmp_path / f"run{len(list(tmp_path.iterdir()))}", records, **options))

    return make


def second(number: int, cpu: float = 0.2, lag_s: float = 0.001) -> list[float]:
    return [number, cpu, lag_s, 2 * lag_s, 3]


def records(**changes: Any) -> list[RequestRecord]:
    """A request a second for 20 s, each with 11 tokens in 0.3 s."""
    return [answered(k, k + 0.1, **changes) for k in range(20)]


def check(run: Run, name: str) -> CheckResult:
    return next(row for row in run_checks(run, []) if row.name == name)


# --- windows -------------------------------------------------------------------------------------


def test_seconds_in_a_row_are_one_window_of_their_worker_with_the_largest_values(make_run: MakeRun) -> None:
    load = [
        (0, second(4, cpu=0.97)),
        (0, second(5, cpu=0.93, lag_s=0.045)),
        (0, second(7, lag_s=0.021)),
        (1, second(5, cpu=0.91)),
        (1, second(6, cpu=0.90, lag_s=0.020)),  # on both limits: passes
    ]
    run = make_run(records(), client_load=load)
    assert bound_windows(run, SEND_LIMIT_S) == [
        BoundWindow(4.0, 6.0, 0, cpu_ratio=0.97, loop_lag_p99_s=0.045),
        BoundWindow(5.0, 6.0, 1, cpu_ratio=0.91),
        BoundWindow(7.0, 8.0, 0, loop_lag_p99_s=0.021),
    ]
    assert bound_windows(run, SEND_LIMIT_S)[0].why == "CPU 97 %, loop lag p99 45 ms"


def test_seconds_of_two_workers_are_never_one_window(make_run: MakeRun) -> None:
    run = make_run(records(), client_load=[(0, second(3, cpu=0.95)), (1, second(4, cpu=0.95))])
    assert [(row.start_s, row.worker) for row in bound_windows(run, SEND_LIMIT_S)] == [(3.0, 0), (4.0, 1)]


def test_read_lag_counts_at_the_first_and_at_the_last_token(make_run: MakeRun) -> None:
    """The chunk gap is 20 ms. Request 3: first token at 3.201 s, last 100 gaps later at 5.201 s."""
    slow = answered(3, 3.1, tokens=101, read_lag_s=0.030)
    run = make_run([row for row in records() if row.arrival != 3] + [slow])
    windows = bound_windows(run, SEND_LIMIT_S)
    assert [(row.start_s, row.end_s, row.worker, row.read_lag_p99_s) for row in windows] == [
        (3.0, 4.0, 0, pytest.approx(0.030)),
        (5.0, 6.0, 0, pytest.approx(0.030, abs=0.001)),  # among two: position 0.99
    ]


def test_read_lag_without_kernel_stamps_tells_nothing(make_run: MakeRun) -> None:
    assert bound_windows(make_run(records(stamp="user", read_lag_s=0.5)), SEND_LIMIT_S) == []


def test_send_lag_counts_where_the_request_was_due(make_run: MakeRun) -> None:
    rows = [answered(k, k + 0.9, lag_s=0.2 if k == 6 else 0.001, worker=None) for k in range(20)]
    (window,) = bound_windows(make_run(rows), SEND_LIMIT_S)
    assert (window.start_s, window.end_s, window.worker) == (6.0, 7.0, None)
    assert window.send_lag_p99_s == pytest.approx(0.2)


def test_what_comes_after_the_last_request_is_no_concern(make_run: MakeRun) -> None:
    assert bound_windows(make_run(records(), client_load=[(0, second(21, cpu=1.0))]), SEND_LIMIT_S) == []


def test_the_sentence_counts_each_second_once() -> None:
    windows = [BoundWindow(4.0, 6.0, 0, cpu_ratio=0.97), BoundWindow(5.0, 7.0, 1, loop_lag_p99_s=0.03)]
    assert told(windows, 79.3) == (
        "the load generator was the bottleneck in 3 of 80 s: worker 0 at 4 – 6 s (CPU 97 %); "
        "worker 1 at 5 – 7 s (loop lag p99 30 ms); figures of these seconds are not the server's"
    )
    assert told([], 79.3) == "the load generator was the bottleneck in none of 80 s"
    assert "; and 2 more times;" in told([BoundWindow(2.0 * k, 2.0 * k + 1, 0, 0.95) for k in range(5)], 80.0)


# --- checks --------------------------------------------------------------------------------------


def test_the_check_warns_and_leaves_the_verdict(make_run: MakeRun) -> None:
    quiet = check(make_run(records(), client_load=[(0, second(4))]), "client-bound seconds")
    assert (quiet.value, quiet.passed) == (0, True)
    run = make_run(records(), client_load=[(0, second(4, cpu=0.97))])
    busy = check(run, "client-bound seconds")
    assert (busy.value, busy.passed, busy.severity) == (1, False, "warn")
    summary = summarize(run)
    assert any("1 of 20 s: worker 0 at 4 – 5 s (CPU 97 %)" in row for row in summary["warnings"])
    assert not any("client-bound" in row for row in summary["verdict_reasons"])
    assert "bottleneck in 1 of 20 s" in " ".join(side_by_side([summary]).split())


def test_a_folder_that_tells_nothing_of_the_client_is_not_judged(make_run: MakeRun) -> None:
    rows = [answered(k, float(k), read_lag_s=None, stamp=None, scheduled_at_s=None) for k in range(5)]
    assert check(make_run(rows, schedule_s=[]), "client-bound seconds").passed is None


def test_a_worker_that_never_reported_is_judged_by_its_seconds(make_run: MakeRun) -> None:
    workers = [WorkerInfo(0, "here", 1, cpu_peak_ratio=0.3), WorkerInfo(1, "here", 2, lost_at_s=8.0)]
    run = make_run(
        records(), workers=workers, client_load=[(1, second(2, cpu=0.5)), (1, second(3, cpu=0.96))]
    )
    first, lost = worker_loads(run, bound_windows(run, SEND_LIMIT_S))
    assert (first.cpu_peak_ratio, first.bound_s) == (0.3, 0)
    assert (lost.cpu_peak_ratio, lost.cpu_mean_ratio, lost.bound_s) == (0.96, pytest.approx(0.73), 1)
    assert "at least 3 workers instead of 2" in check(run, "worker CPU").detail


@pytest.mark.parametrize(("of_users", "passed"), [(0, True), (1, False)])
def test_where_some_stamps_are_ours_the_loops_lag_is_judged_too(
    make_run: MakeRun, of_users: int, passed: bool
) -> None:
    rows = [*records(), *(answered(20 + k, 19.5, stamp="user", read_lag_s=None) for k in range(of_users))]
    run = make_run(rows, workers=[WorkerInfo(0, "here", 1, loop_lag_p99_s=0.025)])
    assert check(run, "read lag").passed is passed


def test_a_folder_without_client_load_or_with_a_cut_line_can_be_read(
    make_run: MakeRun, tmp_path: Path
) -> None:
    assert len(make_run(records()).client_load) == 0
    folder = write_run(tmp_path / "cut", records(), client_load=[(0, second(4)), (0, second(5))])
    path = folder / CLIENT_LOAD_CSV
    path.write_bytes(path.read_bytes()[:-3])
    run = load_run(folder)
    assert list(run.client_load["second"]) == [4]
    assert any(CLIENT_LOAD_CSV in notice for notice in run.notices)


# --- lumps ---------------------------------------------------------------------------------------

LUMPED: dict[str, Any] = {"output_receives": 6, "crowded_receives": 5, "gap_zeros": 5}
"""Of 11 events: 5 receives of 2 and one of 1, so 5 of the 10 gaps are zero. The mean chunk gap is 20 ms."""


def found(run: Run) -> tuple[float | None, str | None, float | None]:
    seen = lumps(run, Evidence(run, []).bound)
    return seen.crowded_ratio, seen.made_by, seen.late_ratio


def test_lumps_that_a_punctual_client_saw_are_the_servers(make_run: MakeRun) -> None:
    run = make_run(records(**LUMPED))
    assert found(run) == (pytest.approx(5 / 6), "server", 0.0)
    seen = Evidence(run, []).lumps
    assert (seen.tiny_gap_ratio, seen.events_per_receive) == (0.5, pytest.approx(11 / 6))
    row = check(run, "lumped delivery")
    assert (row.passed, row.scope) == (False, "chunk gaps")
    assert row.detail == (
        "50 % of the chunk gaps are below 0.1 ms: the server or a proxy sends events together; "
        "a late client explains 0 % of the receives with several events only"
    )


def test_lumps_that_came_with_a_read_lag_of_a_gap_are_the_clients(make_run: MakeRun) -> None:
    late = [answered(k, k + 0.1, read_lag_s=0.03 if k < 12 else 0.001, **LUMPED) for k in range(20)]
    run = make_run(late)
    assert found(run) == (pytest.approx(5 / 6), "client", pytest.approx(12 / 20))
    assert "the client read late, which explains 60 %" in check(run, "lumped delivery").detail


def test_without_kernel_stamps_the_busy_seconds_tell(make_run: MakeRun) -> None:
    """Streams last 0.2 s from second k + 0.2 on; seconds 0 to 14 of worker 0 are busy."""
    rows = records(stamp="user", read_lag_s=None, **LUMPED)
    busy = [(0, second(k, cpu=0.99)) for k in range(15)]
    assert found(make_run(rows, client_load=busy))[1:] == ("client", pytest.approx(15 / 20))
    others = [(1, row) for _, row in busy]
    assert found(make_run(rows, client_load=others))[1:] == ("server", 0.0)
    assert found(make_run(rows))[1:] == (None, 0.0)


def test_events_apart_in_receives_of_their_own_but_at_once_are_the_servers(make_run: MakeRun) -> None:
    run = make_run(records(output_receives=11, crowded_receives=0, gap_zeros=5))
    assert found(run) == (0.0, "server", None)
    assert "each came in a receive of its own" in check(run, "lumped delivery").detail


@pytest.mark.parametrize(("zeros", "passed"), [(2, True), (3, False)])
def test_more_than_a_fifth_of_tiny_gaps_is_told(make_run: MakeRun, zeros: int, passed: bool) -> None:
    run = make_run(records(output_receives=9, crowded_receives=2, gap_zeros=zeros))
    assert check(run, "lumped delivery").passed is passed


def test_an_older_folder_does_not_say_who_made_the_lumps(make_run: MakeRun) -> None:
    run = make_run(records(gap_zeros=5))
    assert found(run) == (None, None, None)
    assert "do not say" in check(run, "lumped delivery").detail


# --- bursts at sending ---------------------------------------------------------------------------


def test_a_salvos_spread_at_sending(make_run: MakeRun) -> None:
    rows = [answered(k, 2.0, lag_s=0.001 * k) for k in range(5)] + [answered(5, 9.0)]
    seen = burst_sending(make_run(rows), (2.0, 2.0))
    assert seen == {
        "planned_spread_s": 0.0,
        "sent_spread_s": pytest.approx(0.004),
        "send_lag_p50_s": pytest.approx(0.002),
        "send_lag_max_s": pytest.approx(0.004),
    }
    assert set(burst_sending(make_run(rows), (5.0, 6.0)).values()) == {None}


def test_connections_tls_and_stamps_are_in_the_summary_and_the_table(make_run: MakeRun) -> None:
    fresh = [answered(k, k + 0.1, connection="new", connect_s=0.001 * (k + 1), lag_s=0.05) for k in range(19)]
    again = answered(19, 19.1, attempts=2, stamp="user", read_lag_s=0.0)
    summary = summarize(make_run([*fresh, again], target="https://host/v1"))
    own = summary["own_error"]
    assert own["connections"] == {"new": 19, "reused": 1}
    assert (own["sent_again"], own["tls"]) == (1, True)
    assert (own["connect_s"]["p50"], own["connect_s"]["max"]) == (pytest.approx(0.010), pytest.approx(0.019))
    assert own["read_lag_s"]["max"] == pytest.approx(0.0001)
    text = side_by_side([summary])
    assert "19 new, 1 reused, 1 sent again, TLS" in text
    assert "kernel 95 %, user 5 %" in text


def test_seconds_are_counted_once_and_told_alike(make_run: MakeRun) -> None:
    """A load of 20 s whose last answer ends in the 21st second: sentence and table say 21."""
    summary = summarize(make_run([*records(), answered(20, 20.0)]))
    assert "in none of 21 s" in summary["own_error"]["client_bound"]["told"]
    assert bound(summary) == "0 of 21 s"
