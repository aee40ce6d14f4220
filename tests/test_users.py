"""Closed loop: users wanted against requests in flight, the checks that rest on it, and what is shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.load import Run, load_run
from analysis.summary import summarize
from analysis.table import check_lines, side_by_side
from analysis.users import Occupancy, Steps, pausing, spans, wanted
from runlog.folder import WorkerInfo
from runlog.record import RequestRecord
from tests.run_folders import answered, failed, write_run

PULSES: list[list[float]] = [[0, 2], [4, 10], [6, 2], [12, 10], [14, 2], [20, 0]]
BURSTS = [[4.0, 6.0], [12.0, 14.0]]


def user(
    number: int, from_s: float, until_s: float, e2e_s: float = 0.4, turn_s: float = 0.001
) -> list[RequestRecord]:
    """One activation of a user: requests of `e2e_s` one after the other, the last begun before `until_s`."""
    records = []
    at_s = from_s
    while at_s < until_s:
        first = not records
        records.append(
            answered(
                None,
                at_s,
                ttft_s=0.1,
                tpot_s=(e2e_s - 0.1) / 10,
                lag_s=0.0,
                request_id=f"u{number}-{at_s:.3f}",
                session=str(number),
                scheduled_at_s=at_s if first else None,
            )
        )
        at_s += e2e_s + turn_s
    return records


def pulsed(peak: int = 10, late_s: float = 0.0) -> list[RequestRecord]:
    """Two users all the time and `peak` in the bursts, those `late_s` after the bursts' start."""
    records = [one for number in range(2) for one in user(number, 0.0, 20.0)]
    for start_s, end_s in BURSTS:
        for number in range(2, peak):
            records += user(number, start_s + late_s, end_s)
    return records


def closed(folder: Path, records: Sequence[RequestRecord], **info: Any) -> Run:
    given_: dict[str, Any] = {
        "load": "closed", "users_curve": PULSES, "bursts": BURSTS, "shape": "pulse", "arrivals": "",
        "mean_rate_rps": None, "slo": "ttft<1s",
    }  # fmt: skip
    return load_run(write_run(folder, records, **(given_ | info)))


def test_steps_by_hand() -> None:
    steps = spans(np.array([1.0, 2.0, np.nan, 3.0]), np.array([4.0, 2.5, 9.0, np.nan]))
    assert list(zip(steps.at_s, steps.value, strict=True)) == [(1, 1), (2, 2), (2.5, 1), (3, 2), (4, 1)]
    assert steps.mean((0.0, 4.0)) == pytest.approx((1 + 0.5 * 2 + 0.5 * 1 + 2) / 4)
    assert (steps.peak((0.0, 1.5)), steps.peak((2.5, 3.0)), steps.peak((2.0, 2.0))) == (1, 1, None)
    assert steps.mean((8.0, 10.0)) == 1.0
    assert wanted([[5, 0], [0, 3]]).mean((0.0, 10.0)) == 1.5
    assert wanted([]).mean((0.0, 10.0)) == 0.0


def test_a_request_that_begins_as_another_ends_is_no_peak() -> None:
    assert spans(np.array([0.0, 1.0]), np.array([1.0, 2.0])).peak((0.0, 3.0)) == 1


@given(st.lists(st.tuples(st.floats(0, 90), st.floats(0, 10)), max_size=30))
def test_the_area_in_flight_is_the_sum_of_the_durations(rows: list[tuple[float, float]]) -> None:
    starts = np.array([start for start, _ in rows])
    lengths = np.array([length for _, length in rows])
    mean = spans(starts, starts + lengths).mean((0.0, 100.0))
    assert mean == pytest.approx(lengths.sum() / 100, abs=1e-6)


def test_what_is_too_much_later_does_not_make_up_for_what_was_missing() -> None:
    users, flying = Steps(np.array([0.0]), np.array([2.0])), spans(np.array([5.0] * 4), np.array([10.0] * 4))
    assert flying.mean((0.0, 10.0)) == users.mean((0.0, 10.0)) == 2.0
    assert flying.joined(users, np.minimum).mean((0.0, 10.0)) == 1.0


def test_requests_that_outlast_a_burst_do_not_count_for_other_times(tmp_path: Path) -> None:
    """Ten for 2 s are wanted and sent, but take 4 s; of the two wanted after it none sends until 8 s."""
    records = [
        answered(None, 0.0, 4.0, tokens=1, lag_s=0.0, session=f"{k}", request_id=f"{k}") for k in range(10)
    ]
    records += [one for number in range(2) for one in user(number, 8.0, 20.0)]
    run = closed(tmp_path, records, users_curve=[[0, 10], [2, 2], [20, 0]], bursts=[])
    seen = Occupancy(run).reached((0.0, 20.0))
    assert seen.users_mean == pytest.approx((20 + 36) / 20)
    assert seen.in_flight_mean == pytest.approx((40 + 24) / 20, rel=0.01)
    assert seen.ratio == pytest.approx((20 + 4 + 24) / 56, rel=0.01)


def test_every_pulse_reaches_its_users(tmp_path: Path) -> None:
    run = closed(tmp_path, pulsed())
    found = summarize(run)
    assert found["verdict"] == "VALID", check_lines(found)
    checks = {row["name"]: row for row in found["checks"]}
    assert checks["load reached"]["value"] > 0.98
    assert checks["load reached, worst burst"]["value"] > 0.98
    assert "of 10 at the peak" in checks["load reached, worst burst"]["detail"]
    for name in ("burstiness, 1 s", "burstiness, 10 s", "burstiness, CV"):
        assert checks[name]["passed"] is None
    assert [burst["in_flight"]["in_flight_peak"] for burst in found["bursts"]] == [10, 10]
    assert [burst["in_flight"]["users_mean"] for burst in found["bursts"]] == [pytest.approx(10)] * 2
    assert found["in_flight"]["users_mean"] == pytest.approx(3.6)
    assert found["in_flight"]["in_flight_mean"] == pytest.approx(3.6, abs=0.1)
    assert found["burstiness"]["asked"] is None
    assert found["burstiness"]["sent"]["n"] == len(run.load)
    assert found["counts"]["sent"] == found["counts"]["succeeded"] == len(run.load)
    assert (found["lead_ttft"], found["counts"]["scheduled"], found["counts"]["missing"]) == ("ttft_s", 0, 0)


def test_a_pulse_with_too_few_users_is_not_the_load_that_was_asked_for(tmp_path: Path) -> None:
    found = summarize(closed(tmp_path / "few", pulsed(peak=9)))
    checks = {row["name"]: row for row in found["checks"]}
    assert checks["load reached, worst burst"]["value"] == pytest.approx(0.9, abs=0.01)
    assert found["verdict"] == "INVALID"
    assert checks["load reached, worst burst"]["cause"] == ""
    settled = summarize(closed(tmp_path / "settling", pulsed(late_s=0.19)))
    assert settled["verdict"] == "VALID", "users may take a tenth of a burst to start"
    late = summarize(closed(tmp_path / "late", pulsed(late_s=0.5)))
    assert late["verdict"] == "INVALID"


def rejecting(pause_s: float, whose: str = "http_429") -> list[RequestRecord]:
    """Two users, turned away within 10 ms each time, `pause_s` until the next try; one success."""
    records = [answered(None, 0.0, request_id="good", session="2", lag_s=0.0)]
    for number in range(2):
        for k in range(int(20 / (pause_s + 0.01))):
            at_s = k * (pause_s + 0.01)
            one = failed(
                None, at_s, 0.01, sent_at_s=at_s, ended_at_s=at_s + 0.01, request_id=f"u{number}-{k}",
                session=str(number), outcome="rejected", failure_class=whose, status=429,
                scheduled_at_s=0.0 if k == 0 else None,
            )  # fmt: skip
            records.append(one)
    return records


def test_a_server_that_rejects_at_once_is_a_cause_of_its_own(tmp_path: Path) -> None:
    curve = {"users_curve": [[0, 2]], "bursts": []}
    found = summarize(closed(tmp_path / "rejects", rejecting(1.0), **curve))
    assert found["verdict"] == "DEGRADED"
    reason = found["verdict_reasons"][0]
    assert reason.startswith("load reached: in the run the users wanted had a request in flight for 1.")
    assert "users paused after failures of the server for 9" in reason
    own = summarize(closed(tmp_path / "own", rejecting(1.0, "out_of_ports"), **curve))
    assert own["verdict"] == "INVALID"


def test_refused_requests_were_never_sent_but_their_users_paused(tmp_path: Path) -> None:
    unsent: dict[str, Any] = {
        "sent_at_s": None,
        "scheduled_at_s": None,
        "failure_class": "refused",
        "session": "1",
    }
    records = [failed(None, 0.0, ended_at_s=1.0 * k, request_id=f"r{k}", **unsent) for k in range(5)]
    run = closed(tmp_path, records)
    assert run.load["arrived_at_s"].tolist() == [0, 1, 2, 3, 4]
    assert pausing(run.load).mean((0.0, 5.0)) == 1.0


def test_a_parked_user_does_not_pause(tmp_path: Path) -> None:
    """Its next request is the first of an activation: it was not wanted in between."""
    first = failed(None, 0.0, 1.0, sent_at_s=0.0, ended_at_s=1.0, session="1", request_id="a")
    second = answered(None, 9.0, session="1", request_id="c", scheduled_at_s=9.0)
    assert pausing(closed(tmp_path / "alone", [first, second]).load).value.tolist() == []
    again = failed(None, 0.0, sent_at_s=2.0, ended_at_s=3.0, session="1", request_id="b", scheduled_at_s=None)
    pauses = pausing(closed(tmp_path / "pausing", [first, again, second]).load)
    assert list(zip(pauses.at_s, pauses.value, strict=True)) == [(1, 1), (2, 0), (3, 1), (4, 0)]


def test_a_lost_worker_explains_missing_users(tmp_path: Path) -> None:
    workers = [WorkerInfo(0, "here", 1), WorkerInfo(1, "here", 2, lost_at_s=8.0)]
    records = [*user(0, 0.0, 20.0), *user(1, 0.0, 8.0)]
    found = summarize(closed(tmp_path, records, workers=workers, users_curve=[[0, 2]], bursts=[]))
    assert found["verdict"] == "DEGRADED"
    assert (
        found["verdict_reasons"][0]
        == "workers lost: ran with 1 of 2 workers from 8.0 s on (worker 1 was lost)"
    )


def test_a_stopped_closed_loop_is_measured_until_it_stopped(tmp_path: Path) -> None:
    stop = {"state": "stopped", "stop_reason": "interrupted", "users_curve": [[0, 1]], "bursts": []}
    run = closed(tmp_path / "event", user(0, 0.0, 7.0), events=[(7.1, "stopped", 0, "ctrl-c")], **stop)
    assert run.window_s == 7.1
    bare = closed(tmp_path / "bare", user(0, 0.0, 7.0), **stop)
    assert 6.5 < bare.window_s < 7.0
    assert "load reached" not in str(summarize(bare)["verdict_reasons"])


def test_one_request_recorded_twice_is_found_without_arrivals(tmp_path: Path) -> None:
    records = user(0, 0.0, 20.0)
    found = summarize(closed(tmp_path, [*records, records[3]], users_curve=[[0, 1]], bursts=[]))
    assert found["counts"]["twice"] == 1
    assert found["verdict"] == "INVALID"


def test_the_table_says_closed_loop_and_users(tmp_path: Path) -> None:
    table = side_by_side([summarize(closed(tmp_path, pulsed()))])
    assert "pulse, closed loop" in table
    assert "of 3.6 users" in table
    assert "10 of 10 users" in table
    assert " of 0" not in table


def test_open_loop_has_no_users(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path, [answered(k, k / 10) for k in range(190)]))
    seen = Occupancy(run).reached((0.0, 19.0))
    assert (seen.users_mean, seen.ratio) == (None, None)
    assert seen.in_flight_mean == pytest.approx(10 * 0.3, rel=0.02)
