"""Records on their way: from a worker in numbered batches to the master, which writes them and acknowledges.

A batch stays with the worker until it is acknowledged and is sent again if that takes too long; the master
takes each batch once and each arrival once. So a slow or reconnecting link loses nothing and counts nothing
twice. Before that every record goes into the worker's journal, a file of its own, which outlives the master.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import gevent
import numpy as np
from gevent.event import Event

from client import clock
from runlog.folder import RecordWriter
from runlog.journal import JournalWriter
from runlog.record import COLUMNS, OUTSIDE_THE_LOAD, RequestRecord, to_row

BATCH_EVERY_S = 0.5
BATCH_ROWS = 500
RESEND_AFTER_S = 5.0

_ARRIVAL = COLUMNS.index("arrival")
_NAME = COLUMNS.index("name")
_OUTCOME = COLUMNS.index("outcome")
_REQUEST_ID = COLUMNS.index("request_id")
_WORKER = COLUMNS.index("worker")


class RecordSender:
    """A worker's end. `send` ships one batch message; `status` adds the worker's counters to it.

    A batch without rows is a sign of life. `silent_s` tells how long the master has acknowledged nothing.
    """

    def __init__(
        self,
        send: Callable[[dict[str, Any]], None],
        status: Callable[[], dict[str, Any]],
        journal: Path,
        run_id: str,
        worker: int,
    ) -> None:
        self._send = send
        self._status = status
        self.journal = journal
        self._journal = JournalWriter(journal, run_id, worker)
        self._rows: list[list[str]] = []
        self._gaps: list[bytes] = []
        self._flush_due = False
        self._batch = 0
        self._unacknowledged: dict[int, tuple[dict[str, Any], int]] = {}
        self._all_safe = Event()
        self._heard_ns = clock.monotonic_ns()
        self._loop = gevent.spawn(self._send_regularly)

    @property
    def silent_s(self) -> float:
        """Seconds since the master last acknowledged anything."""
        return (clock.monotonic_ns() - self._heard_ns) / 1e9

    def add(self, record: RequestRecord, gaps_f32: bytes = b"") -> None:
        """Write one record with its chunk gaps into the journal and queue it for the master."""
        row = to_row(record)
        self._journal.append_row(row, gaps_f32)
        if not self._flush_due:
            self._flush_due = True
            gevent.get_hub().loop.run_callback(self._flush)
        self._rows.append(row)
        self._gaps.append(gaps_f32)
        if len(self._rows) >= BATCH_ROWS:
            self._send_batch()

    def _flush(self) -> None:
        """Once for all that ended in the same pass of the loop."""
        if self._flush_due:
            self._flush_due = False
            self._journal.flush()

    def acknowledged(self, batch: int) -> None:
        """The master has written `batch`."""
        self._heard_ns = clock.monotonic_ns()
        self._unacknowledged.pop(batch, None)
        if not self._unacknowledged and not self._rows:
            self._all_safe.set()

    def close(self, limit_s: float) -> bool:
        """Send what is left and wait until all is acknowledged; then the journal has served and is removed.

        False when the limit passed first: the journal stays.
        """
        self._loop.kill()
        self._flush()
        self._all_safe.clear()
        if self._rows:
            self._send_batch()
        deadline_ns = clock.monotonic_ns() + round(limit_s * 1e9)
        while self._unacknowledged and clock.monotonic_ns() <= deadline_ns:
            self._all_safe.wait(0.5)
            self._resend_old()
        all_safe = not self._unacknowledged
        self._journal.close()
        if all_safe:
            self.journal.unlink(missing_ok=True)
            with suppress(OSError):  # other workers' journals are still there
                self.journal.parent.rmdir()
        return all_safe

    def _send_regularly(self) -> None:
        while True:
            gevent.sleep(BATCH_EVERY_S)
            self._send_batch()
            self._resend_old()

    def _send_batch(self) -> None:
        batch = {"batch": self._batch, "rows": self._rows, "gaps": self._gaps, **self._status()}
        self._rows, self._gaps = [], []
        self._unacknowledged[self._batch] = (batch, clock.monotonic_ns())
        self._batch += 1
        self._send(batch)

    def _resend_old(self) -> None:
        now_ns = clock.monotonic_ns()
        for number, (batch, sent_ns) in list(self._unacknowledged.items()):
            if now_ns - sent_ns > RESEND_AFTER_S * 1e9:
                self._unacknowledged[number] = (batch, now_ns)
                self._send(batch)


class _Taken:
    """The numbers of one worker's batches that are written: all below `_next`, and some above."""

    def __init__(self) -> None:
        self._next = 0
        self._above: set[int] = set()

    def __contains__(self, number: int) -> bool:
        return number < self._next or number in self._above

    def add(self, number: int) -> None:
        self._above.add(number)
        while self._next in self._above:
            self._above.remove(self._next)
            self._next += 1


class RecordKeeper:
    """The master's end: writes every row once and knows which arrivals are still without a record.

    `kept[k]` tells whether arrival k has a record; `counts` counts the load's records by outcome; `dropped`
    counts second records of a request: of an arrival that two workers sent (one was thought lost).
    """

    def __init__(self, folder: Path, planned: int) -> None:
        self._writer = RecordWriter(folder)
        self._taken: dict[int, _Taken] = {}
        self._unscheduled: set[str] = set()
        self.kept = np.zeros(planned, dtype=np.bool_)
        self.kept_by_worker: Counter[int] = Counter()
        self.counts: Counter[str] = Counter()
        self.dropped = 0

    def take(self, worker: int, batch: dict[str, Any]) -> bool:
        """Write one batch; False when it came before. Raises OSError when it cannot be written."""
        taken = self._taken.setdefault(worker, _Taken())
        if batch["batch"] in taken:
            return False
        for row, gaps in zip(batch["rows"], batch["gaps"], strict=True):
            self.add_row(row, gaps)
        self._writer.flush()
        taken.add(batch["batch"])
        return True

    def add(self, record: RequestRecord) -> None:
        """Write a record that the master makes itself: an arrival that was never sent."""
        self.add_row(to_row(record))

    def add_row(self, row: list[str], gaps_f32: bytes = b"") -> bool:
        """Write one row; False when its arrival (or, where it has none, its request id) has one already."""
        if self._has_record(row):
            self.dropped += 1
            return False
        self._writer.append_row(row, gaps_f32)
        self._note_record(row)
        if row[_NAME] not in OUTSIDE_THE_LOAD:
            self.counts[row[_OUTCOME]] += 1
            if row[_WORKER]:
                self.kept_by_worker[int(row[_WORKER])] += 1
        return True

    def _has_record(self, row: list[str]) -> bool:
        if row[_ARRIVAL]:
            return bool(self.kept[int(row[_ARRIVAL])])
        return row[_REQUEST_ID] in self._unscheduled

    def _note_record(self, row: list[str]) -> None:
        if row[_ARRIVAL]:
            self.kept[int(row[_ARRIVAL])] = True
        else:
            self._unscheduled.add(row[_REQUEST_ID])

    def missing(self) -> Iterator[int]:
        """The arrivals that have no record."""
        return (int(k) for k in np.flatnonzero(~self.kept))

    def close(self) -> None:
        self._writer.close()
