"""A worker's side of a run: takes an assignment, its slices and a start moment; sends; reports every request.

One `LoadWorker` lives in each process that sends load: a Locust worker, or the only process of a local run.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from gevent.event import Event
from locust.env import Environment

from client import clock
from client.completion import Finished
from loadgen import messages
from loadgen.assignment import Assignment
from loadgen.dispatch import Dispatcher
from loadgen.plan import SlicePart, unpack
from loadgen.recorder import RecordSender
from loadgen.sender import PromptOf, StreamSender
from loadgen.watch import SelfWatch

logger = logging.getLogger(__name__)

REPORT_LIMIT_S = 60.0
"""Longest wait for the master to acknowledge the last records."""


@dataclass
class _Shift:
    """The parts that serve one run on this worker."""

    assignment: Assignment
    sender: StreamSender
    dispatcher: Dispatcher
    recorder: RecordSender
    watch: SelfWatch


class LoadWorker:
    """Answers the master's messages and, called by the Locust user, sends the load of one run.

    `on_finished` is called with every `Finished` request, in this process: Locust's table is fed from it.
    """

    def __init__(self, environment: Environment, on_finished: Callable[[Finished], None]) -> None:
        self._environment = environment
        self._on_finished = on_finished
        self._shift: _Shift | None = None
        self._assigned = Event()
        assert environment.runner is not None
        for name, listener in {
            messages.CLOCK: self._read_clock,
            messages.ASSIGNMENT: self._take_assignment,
            messages.SLICE: self._take_slice,
            messages.START: self._start,
            messages.STOP: self._stop,
            messages.ACKNOWLEDGED: self._acknowledged,
        }.items():
            environment.runner.register_message(name, listener)

    def work(self, prompt_of: PromptOf, extra_body: Mapping[str, object]) -> None:
        """Send one run's load; returns when every arrival has a record that is safe at the master.

        `prompt_of` and `extra_body` say what is sent; they come from the Locust user.
        """
        self._assigned.wait()
        self._assigned.clear()
        shift = self._shift
        assert shift is not None
        shift.sender.prompt_of, shift.sender.extra_body = prompt_of, extra_body
        shift.watch.start()
        try:
            shift.dispatcher.run()
        finally:
            shift.watch.stop()
        shift.sender.close()
        all_safe = shift.recorder.close(REPORT_LIMIT_S)
        if not all_safe:
            logger.error("the master did not acknowledge the last records within %.0f s", REPORT_LIMIT_S)
        self._send(
            messages.DONE,
            run_id=shift.assignment.run_id,
            all_safe=all_safe,
            cpu_peak_ratio=shift.watch.cpu_peak_ratio,
            loop_lag_p99_s=shift.watch.loop_lag_p99_s,
        )

    def _take_assignment(self, environment: Environment, msg: Any, **_: object) -> None:
        assignment = Assignment(**msg.data)
        recorder = RecordSender(self._send_batch, self._status)
        sender = StreamSender(assignment, keep=self._keep)
        dispatcher = Dispatcher(sender, assignment.duration_s, assignment.drain_s)
        self._shift = _Shift(assignment, sender, dispatcher, recorder, SelfWatch())
        self._assigned.set()
        self._send(
            messages.READY,
            run_id=assignment.run_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            locust=version("locust"),
        )

    def _take_slice(self, environment: Environment, msg: Any, **_: object) -> None:
        if shift := self._shift_of(msg):
            part = SlicePart(msg.data["number"], msg.data["packed"], msg.data["sha256"])
            shift.dispatcher.add(unpack(part), last=msg.data["last"])

    def _start(self, environment: Environment, msg: Any, **_: object) -> None:
        if shift := self._shift_of(msg):
            shift.sender.start_ns = msg.data["start_ns"]
            shift.dispatcher.start(msg.data["start_ns"])

    def _stop(self, environment: Environment, msg: Any, **_: object) -> None:
        if shift := self._shift_of(msg):
            shift.dispatcher.stop(msg.data["reason"])

    def _acknowledged(self, environment: Environment, msg: Any, **_: object) -> None:
        if shift := self._shift_of(msg):
            shift.recorder.acknowledged(msg.data["batch"])

    def _read_clock(self, environment: Environment, msg: Any, **_: object) -> None:
        self._send(
            messages.CLOCK_READ,
            number=msg.data["number"],
            monotonic_ns=clock.monotonic_ns(),
            boot_id=clock.BOOT_ID,
        )

    def _shift_of(self, msg: Any) -> _Shift | None:
        shift = self._shift
        return shift if shift is not None and shift.assignment.run_id == msg.data["run_id"] else None

    def _keep(self, finished: Finished) -> None:
        assert self._shift is not None
        self._shift.recorder.add(finished.record, finished.gaps_f32)
        self._on_finished(finished)

    def _status(self) -> dict[str, int]:
        assert self._shift is not None
        return {"fired": self._shift.dispatcher.fired, "in_flight": self._shift.dispatcher.in_flight}

    def _send_batch(self, batch: dict[str, Any]) -> None:
        assert self._shift is not None
        self._send(messages.RECORDS, run_id=self._shift.assignment.run_id, **batch)

    def _send(self, message: str, /, **data: Any) -> None:
        assert self._environment.runner is not None
        self._environment.runner.send_message(message, data)
