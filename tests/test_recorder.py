"""Records on their way: every row once at the master, whatever is lost or repeated in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gevent
import pytest

from loadgen import recorder
from loadgen.recorder import RecordKeeper, RecordSender
from runlog.folder import read_gaps, read_requests
from runlog.journal import journal_path, read_journal
from runlog.record import OUTSIDE_THE_LOAD, RequestRecord, to_row


def record(arrival: int, worker: int = 0) -> RequestRecord:
    return RequestRecord(
        arrival=arrival, request_id=f"r-{arrival}", worker=worker, outcome="succeeded", gap_count=1
    )


def sender_to(deliver: Any, folder: Path, worker: int = 0) -> RecordSender:
    journal = journal_path(folder, worker, pid=1)
    return RecordSender(deliver, lambda: {"fired": 0, "in_flight": 0}, journal, "run", worker)


def test_what_is_sent_is_written_once(tmp_path: Path) -> None:
    keeper = RecordKeeper(tmp_path, planned=5)
    batches: list[dict[str, Any]] = []
    sender = sender_to(batches.append, tmp_path)
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


def test_an_unacknowledged_batch_is_sent_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(recorder, "RESEND_AFTER_S", 0.0)
    batches: list[dict[str, Any]] = []
    sender = sender_to(batches.append, tmp_path)
    sender.add(record(0))
    closing = gevent.spawn(sender.close, 10.0)
    with gevent.Timeout(10):
        while len(batches) < 2:
            gevent.sleep(0.05)
    assert batches[0] == batches[1]
    sender.acknowledged(batches[0]["batch"])
    assert closing.get(timeout=10)


def test_closing_gives_up_after_its_limit_and_leaves_the_journal(tmp_path: Path) -> None:
    sender = sender_to(lambda batch: None, tmp_path)
    sender.add(record(0), b"\0\0\0?")
    assert not sender.close(0.0)
    header, rows = read_journal(sender.journal)
    assert (header.run_id, header.worker) == ("run", 0)
    assert list(rows) == [(to_row(record(0)), b"\0\0\0?")]


def test_a_journal_that_has_served_is_removed(tmp_path: Path) -> None:
    batches: list[dict[str, Any]] = []
    sender = sender_to(batches.append, tmp_path)
    sender.add(record(0))
    closing = gevent.spawn(sender.close, 10.0)
    gevent.sleep(0.01)
    sender.acknowledged(batches[0]["batch"])
    assert closing.get(timeout=10)
    assert not sender.journal.parent.exists()


def test_the_silence_of_the_master_is_measured_from_its_last_word(tmp_path: Path) -> None:
    sender = sender_to(lambda batch: None, tmp_path)
    gevent.sleep(0.1)
    silent_s = sender.silent_s
    assert silent_s >= 0.1
    sender.acknowledged(0)
    assert sender.silent_s < silent_s
    sender.close(0.0)


def test_an_arrival_that_two_workers_sent_counts_once(tmp_path: Path) -> None:
    keeper = RecordKeeper(tmp_path, planned=1)
    assert keeper.add_row(to_row(record(0, worker=0)))
    assert not keeper.add_row(to_row(record(0, worker=1)))
    keeper.close()
    assert (keeper.dropped, dict(keeper.counts)) == (1, {"succeeded": 1})


def test_probes_and_warm_up_have_rows_but_count_in_nothing(tmp_path: Path) -> None:
    keeper = RecordKeeper(tmp_path, planned=0)
    for name in OUTSIDE_THE_LOAD:
        row = RequestRecord(arrival=None, request_id=name, worker=0, name=name, outcome="succeeded")
        keeper.add(row)
    keeper.close()
    assert [one.name for one in read_requests(tmp_path)] == list(OUTSIDE_THE_LOAD)
    assert keeper.counts.total() == 0


def test_two_workers_may_number_their_batches_alike(tmp_path: Path) -> None:
    keeper = RecordKeeper(tmp_path, planned=2)
    for worker in (0, 1):
        batches: list[dict[str, Any]] = []
        sender = sender_to(batches.append, tmp_path, worker)
        sender.add(record(worker, worker))
        sender.close(0.0)
        assert keeper.take(worker, batches[0])
    keeper.close()
    assert keeper.kept.tolist() == [True, True]
    assert keeper.counts == {"succeeded": 2}


def test_the_journal_is_on_disk_after_the_pass_in_which_requests_ended(tmp_path: Path) -> None:
    """Once for all of them: nothing before, everything after; a worker that is killed then loses none."""
    sender = sender_to(lambda _: None, tmp_path)
    for k in range(3):
        sender.add(record(k))
    assert list(read_journal(sender.journal)[1]) == []
    gevent.sleep(0)
    assert len(list(read_journal(sender.journal)[1])) == 3
    sender.close(0.0)
