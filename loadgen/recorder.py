"""Records on their way: from a worker in numbered batches to the master, which writes them and acknowledges.

A batch stays with the worker until it is acknowledged and is sent again if that takes too long; the master
takes each batch once. So a slow or reconnecting link loses nothing and counts nothing twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gevent
import numpy as np
from gevent.event import Event

from client import clock
from runlog.folder import RecordWriter
from runlog.record import COLUMNS, RequestRecord, to_row

BATCH_EVERY_S = 0.5
BATCH_ROWS = 500
RESEND_AFTER_S = 5.0

_ARRIVAL = COLUMNS.index("arrival")
_OUTCOME = COLUMNS.index("outcome")
_WORKER = COLUMNS.index("worker")


class RecordSender:
    """A worker's end. `send` ships one batch message; `status` adds the worker's counters to it."""

    def __init__(self, send: Callable[[dict[str, Any]], None], status: Callable[[], dict[str, int]]) -> None:
        self._send = send
        self._status = status
        self._rows: list[list[str]] = []
        self._gaps: list[bytes] = []
        self._batch = 0
        self._unacknowledged: dict[int, tuple[dict[str, Any], int]] = {}
        self._all_safe = Event()
        self._loop = gevent.spawn(self._send_regularly)

    def add(self, record: RequestRecord, gaps_f32: bytes = b"") -> None:
        """Queue one record with its chunk gaps."""
        self._rows.append(to_row(record))
        self._gaps.append(gaps_f32)
        if len(self._rows) >= BATCH_ROWS:
            self._send_batch()

    def acknowledged(self, batch: int) -> None:
        """The master has written `batch`."""
        self._unacknowledged.pop(batch, None)
        if not self._unacknowledged and not self._rows:
            self._all_safe.set()

    def close(self, limit_s: float) -> bool:
        """Send what is left and wait until all is acknowledged; False when the limit passed first."""
        self._loop.kill()
        self._all_safe.clear()
        if self._rows:
            self._send_batch()
        deadline_ns = clock.monotonic_ns() + round(limit_s * 1e9)
        while self._unacknowledged:
            if clock.monotonic_ns() > deadline_ns:
                return False
            self._all_safe.wait(0.5)
            self._resend_old()
        return True

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


class RecordKeeper:
    """The master's end: writes every row once and knows which arrivals are still without a record.

    `kept[k]` counts the records of arrival k; `counts` counts records by outcome.
    """

    def __init__(self, folder: Path, planned: int) -> None:
        self._writer = RecordWriter(folder)
        self._batches: set[tuple[int, int]] = set()
        self.kept = np.zeros(planned, dtype=np.uint8)
        self.kept_by_worker: Counter[int] = Counter()
        self.counts: Counter[str] = Counter()

    def take(self, worker: int, batch: dict[str, Any]) -> bool:
        """Write one batch; False when it came before."""
        key = (worker, batch["batch"])
        if key in self._batches:
            return False
        self._batches.add(key)
        for row, gaps in zip(batch["rows"], batch["gaps"], strict=True):
            self._writer.append_row(row, gaps)
            self._count(row[_ARRIVAL], row[_OUTCOME], row[_WORKER])
        self._writer.flush()
        return True

    def add(self, record: RequestRecord) -> None:
        """Write a record that the master makes itself: an arrival that was never sent."""
        row = to_row(record)
        self._writer.append_row(row)
        self._count(row[_ARRIVAL], row[_OUTCOME], row[_WORKER])

    def _count(self, arrival: str, outcome: str, worker: str) -> None:
        self.counts[outcome] += 1
        if worker:
            self.kept_by_worker[int(worker)] += 1
        if arrival:
            self.kept[int(arrival)] += 1

    def missing(self) -> Iterator[int]:
        """The arrivals that have no record."""
        return (int(k) for k in np.flatnonzero(self.kept == 0))

    def close(self) -> None:
        self._writer.close()
