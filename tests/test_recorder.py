"""Records on their way: every row once at the master, whatever is lost or repeated in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gevent
import pytest

from loadgen import recorder
from loadgen.recorder import RecordKeeper, RecordSender
from runlog.folder import read_gaps, read_requests
from runlog.record import RequestRecord


def record(arrival: int, worker: int = 0) -> RequestRecord:
    return RequestRecord(
        arrival=arrival, request_id=f"r-{arrival}", worker=worker, outcome="succeeded", gap_count=1
    )


def sender_to(deliver: Any) -> RecordSender:
    return RecordSender(deliver, lambda: {"fired": 0, "in_flight": 0})


def test_what_is_sent_is_written_once(tmp_path: Path) -> None:
    keeper = RecordKeeper(tmp_path, planned=5)
    batches: list[dict[str, Any]] = []
    sender = sender_to(batches.append)
    for k in range(4):
        sender.add(record(k), b"\0\0\0?")
    closing = gevent.spawn(sender.close, 10.0)
    gevent.sleep(0.01)
    (batch,) = batches
    assert keeper.take(0, batch)
    assert not keeper.take(0, batch)
    sender.acknowledged(batch["batch"])
    assert closing.get(timeout=10)
    keeper.close()
    assert [one.arrival for one in read_requests(tmp_path)] == [0, 1, 2, 3]
    assert [list(read_gaps(tmp_path, one)) for one in read_requests(tmp_path)] == [[0.5]] * 4
    assert list(keeper.missing()) == [4]
    assert keeper.kept_by_worker[0] == 4


def test_an_unacknowledged_batch_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "RESEND_AFTER_S", 0.0)
    batches: list[dict[str, Any]] = []
    sender = sender_to(batches.append)
    sender.add(record(0))
    closing = gevent.spawn(sender.close, 10.0)
    with gevent.Timeout(10):
        while len(batches) < 2:
            gevent.sleep(0.05)
    assert batches[0] == batches[1]
    sender.acknowledged(batches[0]["batch"])
    assert closing.get(timeout=10)


def test_closing_gives_up_after_its_limit() -> None:
    sender = sender_to(lambda batch: None)
    sender.add(record(0))
    assert not sender.close(0.0)


def test_two_workers_may_number_their_batches_alike(tmp_path: Path) -> None:
    keeper = RecordKeeper(tmp_path, planned=2)
    for worker in (0, 1):
        batches: list[dict[str, Any]] = []
        sender = sender_to(batches.append)
        sender.add(record(worker, worker))
        sender.close(0.0)
        assert keeper.take(worker, batches[0])
    keeper.close()
    assert keeper.kept.tolist() == [1, 1]
    assert keeper.counts == {"succeeded": 2}
