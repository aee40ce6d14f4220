"""All that serves one run on one worker: what sends, what records, what watches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import gevent
from gevent.event import Event

from client import clock
from client.completion import Finished
from loadgen.arrival import Arrival
from loadgen.assignment import Assignment
from loadgen.closed_loop import ClosedLoop
from loadgen.dispatch import Dispatcher
from loadgen.probes import probe_arrivals
from loadgen.recorder import RecordSender
from loadgen.sender import StreamSender
from loadgen.user_requests import user_requests
from loadgen.warmup import shifted, warm_up, warmup_line, warmup_requests
from loadgen.watch import SelfWatch


class Shift:
    """One run on one worker. The load is a dispatcher's (open) or users' (closed); worker 0 sends the probes.

    `make_sender(keep)` and `make_recorder(status)` bring the two ends; `on_finished` sees every request.
    """

    def __init__(
        self,
        assignment: Assignment,
        make_sender: Callable[[Callable[[Finished], None]], StreamSender],
        make_recorder: Callable[[Callable[[], dict[str, Any]]], RecordSender],
        on_finished: Callable[[Finished], None],
    ) -> None:
        self.assignment = assignment
        self.left: str | None = None
        self._on_finished = on_finished
        self._sender = make_sender(self._keep)  # may take a while, others run meanwhile
        self._watch = SelfWatch(lambda: self._load.in_flight)
        self._start_ns: int | None = None
        self._started = Event()
        self._dispatcher = Dispatcher(self._sender, assignment.duration_s, assignment.drain_s)
        self._load: Dispatcher | ClosedLoop = self._dispatcher
        if assignment.load == "closed":
            self._load = self._users()
        self.recorder = make_recorder(self._status)
        self._probes = self._probing()
        self._warmed: list[Finished] = []
        self._warmed_from_ns = 0

    def _users(self) -> ClosedLoop:
        assignment = self.assignment
        return ClosedLoop(
            self._sender,
            [(at_s, int(users)) for at_s, users in assignment.users],
            user_requests(assignment.seed, assignment.input_lengths, assignment.output_lengths),
            worker=assignment.worker,
            workers=assignment.workers,
            duration_s=assignment.duration_s,
            drain_s=assignment.drain_s,
        )

    def _probing(self) -> Dispatcher | None:
        assignment = self.assignment
        if assignment.probes_rps is None or assignment.worker != 0:
            return None
        probes = Dispatcher(self._sender, assignment.duration_s, assignment.drain_s)
        probes.add(probe_arrivals(assignment.probes_rps, assignment.duration_s, assignment.seed), last=True)
        return probes

    # --- what the master says --------------------------------------------------------------------

    def warm_up(self) -> str:
        """Send the warm-up requests and wait for them; returns what came of it, "" when there were none."""
        assignment = self.assignment
        if not assignment.warmup:
            return ""
        requests = warmup_requests(
            assignment.warmup,
            assignment.worker,
            assignment.seed,
            assignment.input_lengths,
            assignment.output_lengths,
        )
        self._sender.start_ns = self._warmed_from_ns = clock.monotonic_ns()
        self._warmed = warm_up(self._sender.ask, requests, stopped=self._started.is_set)
        return warmup_line([end.record for end in self._warmed])

    def add(self, arrivals: Iterable[Arrival], *, last: bool) -> None:
        """Take one slice of the schedule."""
        self._dispatcher.add(arrivals, last=last)

    def start(self, start_ns: int) -> None:
        """Set the start moment; the records of the warm-up are kept now that it is known."""
        self._sender.start_ns = self._start_ns = start_ns
        by_s = (self._warmed_from_ns - start_ns) / 1e9
        for end in self._warmed:
            self._keep(replace(end, record=shifted(end.record, by_s)))
        self._started.set()
        for loop in self._loops():
            loop.start(start_ns)

    def stop(self, reason: str) -> None:
        """Send no more; what is in flight may end within the drain limit."""
        self._started.set()
        for loop in self._loops():
            loop.stop(reason)

    # --- the work --------------------------------------------------------------------------------

    def run(self) -> None:
        """Send the load; returns when every request has ended."""
        self._started.wait()
        if self._start_ns is not None:
            self._watch.start(self._start_ns)
        try:
            running = [gevent.spawn(loop.run) for loop in self._loops()]
            for ended in gevent.iwait(running):
                if ended.exception is not None:
                    self.stop("run_stopped")
            gevent.joinall(running, raise_error=True)
        finally:
            self._watch.stop()
            self._sender.close()

    def own_error(self) -> dict[str, Any]:
        """How busy and how late this process was: over the run, and in the seconds not told yet."""
        return {**self._watch.totals(), "seconds": self._watch.take()}

    def _loops(self) -> list[Dispatcher | ClosedLoop]:
        return [self._load, *([self._probes] if self._probes else [])]

    def _keep(self, finished: Finished) -> None:
        self.recorder.add(finished.record, finished.gaps_f32 if self.assignment.gaps == "all" else b"")
        self._on_finished(finished)

    def _status(self) -> dict[str, Any]:
        """What goes with a batch of records; each second of the watch goes with one batch only."""
        return {
            "fired": self._load.fired,
            "in_flight": self._load.in_flight,
            "seconds": self._watch.take(),
        }
