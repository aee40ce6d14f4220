"""The master's side without Locust: what it acknowledges, whom it gives up on, what it says is missing."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import gevent
import pytest

from loadgen import messages, run
from loadgen.crew import Worker
from loadgen.ledger import Ledger
from loadgen.muster import WorkersMissing
from loadgen.options import OPTIONS
from loadgen.plan import Plan, SlicePart, make_plan, unpack
from loadgen.run import Run
from loadgen.settings import read_settings
from runlog.client_load import CLIENT_LOAD_CSV
from runlog.folder import read_requests, read_run_info
from runlog.record import RequestRecord, to_row


def plan(**given: object) -> Plan:
    parsed = Namespace(**({option.name: option.default for option in OPTIONS} | {"model": "m"} | given))
    return make_plan(read_settings(parsed, "http://127.0.0.1:1"), "run", {}, ["locust"])


@dataclass
class FakeLink:
    """Remembers what was told to whom; `silent` workers are gone."""

    told: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)

    def tell(self, client_id: str, message: str, /, **data: Any) -> None:
        self.told.append((client_id, message, data))

    def gone(self, client_id: str) -> bool:
        return client_id in self.silent

    def messages(self, message: str) -> list[tuple[str, dict[str, Any]]]:
        return [(to, data) for to, told, data in self.told if told == message]


def begun(tmp_path: Path, workers: int, **given: object) -> tuple[Run, FakeLink]:
    drawn = plan(**({"run_time": 1, "rate": "20", "drain": "1s"} | given))
    crew = [Worker(f"w{index}", index) for index in range(workers)]
    link = FakeLink()
    return Run(drawn, Ledger(drawn, tmp_path), cast(Any, link), crew, "Chat"), link


def batch(number: int, *arrivals: int, worker: int = 0) -> dict[str, Any]:
    records = [
        RequestRecord(arrival=k, request_id=str(k), worker=worker, outcome="succeeded") for k in arrivals
    ]
    rows = [to_row(record) for record in records]
    return {"batch": number, "rows": rows, "gaps": [b""] * len(rows), "fired": len(rows), "in_flight": 0}


def test_records_are_acknowledged_until_the_folder_is_closed_and_not_after(tmp_path: Path) -> None:
    led, link = begun(tmp_path, 1)
    led.take_records(led.crew[0], batch(0, 0, 1))
    assert link.messages(messages.ACKNOWLEDGED) == [("w0", {"run_id": "run", "batch": 0})]
    led.ledger.close(led.crew, led._shares, None)
    led.take_records(led.crew[0], batch(1, 2))
    assert len(link.messages(messages.ACKNOWLEDGED)) == 1
    led.take_done(led.crew[0], {"left": "asked to leave"})  # too late to be noted down, and no crash


def test_what_never_reached_the_folder_is_our_loss_and_a_stop_is_not(tmp_path: Path) -> None:
    for stopped, failure_class in [(None, "record_lost"), ("interrupted", "run_stopped")]:
        led, _ = begun(tmp_path, 1)
        led.take_records(led.crew[0], batch(0, 0))
        led.ledger.close(led.crew, led._shares, stopped)
        found = Counter(record.failure_class for record in read_requests(led.ledger.folder))
        assert found == {None: 1, failure_class: len(led.plan.schedule) - 1}


def test_a_folder_that_cannot_be_written_stops_the_run_and_acknowledges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    led, link = begun(tmp_path, 1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(led.ledger._keeper._writer, "append_row", full)
    led.take_records(led.crew[0], batch(0, 0))
    assert link.messages(messages.ACKNOWLEDGED) == []
    assert led.stop_reason == "the run folder cannot be written: No space left on device"
    monkeypatch.undo()
    led.take_records(led.crew[0], batch(0, 0))  # sent again, it is taken
    assert link.messages(messages.ACKNOWLEDGED)
    assert led.ledger._keeper.kept[0]
    led.ledger.close(led.crew, led._shares, led.stop_reason)
    first = next(record for record in read_requests(led.ledger.folder) if record.arrival == 0)
    assert first.outcome == "succeeded"


def test_a_worker_that_leaves_before_the_start_ends_it_and_the_others_are_told(tmp_path: Path) -> None:
    led, link = begun(tmp_path, 2)
    link.silent.add("w1")
    with pytest.raises(WorkersMissing, match="left before the start: no load was sent"):
        led.lead()
    assert "w0" in [to for to, _ in link.messages(messages.STOP)]
    assert link.messages(messages.START) == []
    assert read_run_info(led.ledger.folder).state == "stopped"


def test_a_long_warm_up_is_no_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "READY_LIMIT_S", 0.5)
    led, link = begun(tmp_path, 1)
    leading = gevent.spawn(led.lead)
    for number in range(8):
        gevent.sleep(0.2)
        led.take_records(led.crew[0], batch(number))
    assert not leading.ready()
    led.take_ready(led.crew[0], {"note": ""})
    gevent.sleep(0.1)
    assert len(link.messages(messages.START)) == 1
    led.take_done(led.crew[0], {"left": None})
    leading.get(timeout=10)


def test_a_silent_worker_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "READY_LIMIT_S", 0.2)
    led, _ = begun(tmp_path, 1)
    with pytest.raises(WorkersMissing, match="was silent"):
        led.lead()


def test_a_worker_that_was_only_silent_is_welcome_back(tmp_path: Path) -> None:
    led, link = begun(tmp_path, 2, run_time=3)
    leading = gevent.spawn(led.lead)
    gevent.sleep(0.05)
    for worker in led.crew:
        led.take_ready(worker, {"note": ""})
    gevent.sleep(1.2)
    link.silent.add("w1")
    gevent.sleep(1.2)
    assert led.crew[1].lost_at_s is not None
    link.silent.clear()
    led.take_records(led.crew[1], batch(0, 1, worker=1))
    assert led.crew[1].lost_at_s is None
    for worker in led.crew:
        led.take_done(worker, {"left": None})
    leading.get(timeout=20)
    kinds = (led.ledger.folder / "events.csv").read_text()
    assert "worker_lost" in kinds
    assert "worker_back" in kinds
    sent_to_back = [data for to, data in link.messages(messages.SLICE) if to == "w1"]
    assert sent_to_back[-1]["last"]


def test_a_worker_that_seems_lost_still_gets_its_slices(tmp_path: Path) -> None:
    led, link = begun(tmp_path, 2, run_time=75)
    led._start()
    before = len(link.messages(messages.SLICE))
    led.crew[1].lost_at_s = 0.5
    led._start_ns -= 20 * 10**9
    led._send_slices()
    later = link.messages(messages.SLICE)[before:]
    assert {to for to, data in later if data["last"]} == {"w0", "w1"}
    led.ledger.close(led.crew, led._shares, None)


def test_slices_hold_each_arrival_once(tmp_path: Path) -> None:
    led, link = begun(tmp_path, 3, run_time=25)
    led._start()
    parts = [
        SlicePart(data["number"], data["packed"], data["sha256"]) for _, data in link.messages(messages.SLICE)
    ]
    sent = [arrival.index for part in parts for arrival in unpack(part) if arrival.index is not None]
    assert sorted(sent) == list(range(len(led.plan.schedule)))
    led.ledger.close(led.crew, led._shares, None)


def test_a_workers_seconds_are_written_once_however_often_they_come_and_its_last_with_its_end(
    tmp_path: Path,
) -> None:
    led, _ = begun(tmp_path, 2)
    first = batch(0, 0) | {"seconds": [[0, 0.25, 0.001, 0.002, 1]]}
    led.take_records(led.crew[1], first)
    led.take_records(led.crew[1], first)  # its acknowledgement was late
    led.take_records(led.crew[0], batch(0, 1))  # nothing to tell yet
    led.take_done(
        led.crew[1], {"left": None, "cpu_mean_ratio": 0.3, "seconds": [[1, 0.35, 0.0015, 0.003, 0]]}
    )
    led.ledger.close(led.crew, led._shares, None)
    assert (led.ledger.folder / CLIENT_LOAD_CSV).read_text().splitlines() == [
        "worker,second,cpu_ratio,loop_lag_p99_s,loop_lag_max_s,in_flight",
        "1,0,0.2500,0.001000,0.002000,1",
        "1,1,0.3500,0.001500,0.003000,0",
    ]
    assert read_run_info(led.ledger.folder).workers[1].cpu_mean_ratio == 0.3
