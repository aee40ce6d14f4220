"""The workers of a run as the master sees them: who they are, what their clocks say, what they reported.

A worker's clock is compared with the master's by request and reply: of several, the one with the shortest
round trip gives the offset, and half of that round trip is its uncertainty. Processes that booted with the
same kernel share one monotonic clock, so there both are zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gevent.event import Event

from client import clock
from runlog.folder import WorkerInfo

CLOCK_QUESTIONS = 8
CLOCK_LIMIT_S = 5.0


@dataclass
class Worker:
    """One worker: its Locust client id, its index in this run, and what it has said so far."""

    client_id: str
    index: int = -1
    identity: dict[str, Any] = field(default_factory=dict)
    busy_with: str | None = None
    clock_offset_ns: int = 0
    clock_uncertainty_ns: int | None = None
    ready: bool = False
    heard_ns: int = 0
    done: bool = False
    fired: int = 0
    in_flight: int = 0
    lost_at_s: float | None = None
    own_error: dict[str, Any] = field(default_factory=dict)
    clock_answer: Event = field(default_factory=Event)
    clock_number: int = -1
    clock_asked_ns: int = 0
    compared: bool = False

    @property
    def out(self) -> bool:
        """Nothing more will come from it: it is done or lost."""
        return self.done or self.lost_at_s is not None

    def __str__(self) -> str:
        name = f"worker {self.index}" if self.index >= 0 else "a worker"
        place = f"{self.identity['host']}, pid {self.identity['pid']}" if self.identity else self.client_id
        return f"{name} ({place})"

    def info(self, planned: int, kept: int) -> WorkerInfo:
        """What run.json says of this worker."""
        uncertainty_ns = self.clock_uncertainty_ns
        return WorkerInfo(
            index=self.index,
            host=self.identity.get("host", ""),
            pid=self.identity.get("pid", 0),
            clock_offset_s=self.clock_offset_ns / 1e9,
            clock_uncertainty_s=None if uncertainty_ns is None else uncertainty_ns / 1e9,
            cpu_peak_ratio=self.own_error.get("cpu_peak_ratio"),
            cpu_mean_ratio=self.own_error.get("cpu_mean_ratio"),
            loop_lag_p99_s=self.own_error.get("loop_lag_p99_s"),
            loop_lag_max_s=self.own_error.get("loop_lag_max_s"),
            planned=planned,
            kept=kept,
            lost_at_s=self.lost_at_s,
        )


def compare_clocks(worker: Worker, ask: Callable[[int], None]) -> None:
    """Ask a worker several times for its clock. `ask` sends one numbered question; no answer ends it."""
    for number in range(CLOCK_QUESTIONS):
        worker.clock_number = number
        worker.clock_answer.clear()
        worker.clock_asked_ns = clock.monotonic_ns()
        ask(number)
        if not worker.clock_answer.wait(CLOCK_LIMIT_S):
            return
        if worker.clock_uncertainty_ns == 0:
            break
    worker.compared = True


def take_clock_answer(worker: Worker, answer: dict[str, Any]) -> None:
    """Use one answer: who the worker is, and its offset if this round trip is the shortest so far."""
    if answer["number"] != worker.clock_number:
        return
    half_trip_ns = (clock.monotonic_ns() - worker.clock_asked_ns) // 2
    worker.identity, worker.busy_with = answer["identity"], answer["busy_with"]
    if worker.identity["boot_id"] == clock.BOOT_ID:
        worker.clock_offset_ns, worker.clock_uncertainty_ns = 0, 0
    elif worker.clock_uncertainty_ns is None or half_trip_ns < worker.clock_uncertainty_ns:
        worker.clock_offset_ns = answer["monotonic_ns"] - (worker.clock_asked_ns + half_trip_ns)
        worker.clock_uncertainty_ns = half_trip_ns
    worker.clock_answer.set()
