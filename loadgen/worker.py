"""A worker's side of a run: answers the master, sends its part of the load, reports every request.

One `LoadWorker` lives in each process that sends load: a Locust worker, or the only process of a local run.
The load runs in a greenlet of its own: Locust may start, stop or move users without touching a request.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
from gevent.event import Event
from locust.env import Environment
from locust.runners import WorkerRunner

from client import clock
from client.completion import Finished
from loadgen import messages
from loadgen.assignment import Assignment
from loadgen.garbage import short_collections
from loadgen.identity import identity
from loadgen.plan import SlicePart, unpack
from loadgen.recorder import RecordSender
from loadgen.sender import StreamSender
from loadgen.shift import Shift
from loadgen.speaker import Speaker, the_speaker
from runlog.exit_codes import ExitCode
from runlog.journal import journal_path

logger = logging.getLogger(__name__)

REPORT_LIMIT_S = 60.0
"""Longest wait for the master to acknowledge the last records."""

MASTER_SILENT_S = 6.0
"""A master that acknowledges nothing for this long is gone; nobody would see the load, so it ends."""


class LoadWorker:
    """Answers the master's messages and sends the load of one run at a time.

    `on_finished` is called with every finished request, in this process: Locust's table is fed from it.
    """

    def __init__(
        self,
        environment: Environment,
        on_finished: Callable[[Finished], None],
    ) -> None:
        assert environment.runner is not None
        self._environment = environment
        self._runner = environment.runner
        self._identity = identity(environment.parsed_locustfiles or ())
        self._on_finished = on_finished
        self._shift: Shift | None = None
        self._idle = Event()
        self._idle.set()
        self._interrupted = False
        for name, listener in {
            messages.CLOCK: self._read_clock,
            messages.ASSIGNMENT: self._take_assignment,
            messages.REFUSED: self._refused,
            messages.SLICE: self._take_slice,
            messages.START: self._start,
            messages.STOP: self._stop,
            messages.ACKNOWLEDGED: self._acknowledged,
        }.items():
            environment.runner.register_message(name, listener)

    def leave(self, reason: str) -> None:
        """This process must end: send no more, drain, report what was sent. Blocks until that is done."""
        shift = self._shift
        if shift is None or self._idle.is_set():
            return
        shift.left = reason
        shift.stop("run_stopped")
        self._idle.wait(shift.assignment.drain_s + REPORT_LIMIT_S)

    def interrupt(self) -> None:
        """SIGINT: Ctrl-C reaches every process of a terminal, and the master tells us what to do. So while a
        run goes on the first one is left to the master; otherwise the process ends.
        """
        if self._idle.is_set() or self._interrupted:
            sys.exit(int(ExitCode.OK))
        self._interrupted = True

    # --- the load --------------------------------------------------------------------------------

    def _work(self, shift: Shift) -> None:
        silence = gevent.spawn(self._watch_master, shift)
        try:
            note = shift.warm_up()
            with short_collections():
                self._send(messages.READY, run_id=shift.assignment.run_id, note=note)
                shift.run()
        except Exception as error:
            logger.exception("this worker's load failed")
            shift.left = f"its load failed with {type(error).__name__}"
        finally:
            silence.kill()
            try:
                self._hand_in(shift)
            finally:
                self._idle.set()
        if shift.left == "the master was lost":
            self._environment.process_exit_code = int(ExitCode.NOT_VALID)
            self._runner.quit()

    def _hand_in(self, shift: Shift) -> None:
        limit_s = 0.0 if shift.left == "the master was lost" else REPORT_LIMIT_S
        try:
            if not shift.recorder.close(limit_s):
                logger.error("the master has not taken the last records; see %s", shift.recorder.journal)
        finally:
            run_id = shift.assignment.run_id
            self._send(messages.DONE, run_id=run_id, left=shift.left, **shift.own_error())

    def _watch_master(self, shift: Shift) -> None:
        while shift.recorder.silent_s < MASTER_SILENT_S:
            gevent.sleep(0.5)
        logger.error("the master has been silent for %.0f s: no more load is sent", MASTER_SILENT_S)
        shift.left = "the master was lost"
        shift.stop("run_stopped")

    # --- messages --------------------------------------------------------------------------------

    def _read_clock(self, environment: Environment, msg: Any, **_: object) -> None:
        now_ns = clock.monotonic_ns()
        busy = None if self._shift is None or self._idle.is_set() else self._shift.assignment.run_id
        number = msg.data["number"]
        self._send(
            messages.CLOCK_READ, number=number, monotonic_ns=now_ns, busy_with=busy, identity=self._identity
        )

    def _take_assignment(self, environment: Environment, msg: Any, **_: object) -> None:
        assignment = Assignment.from_message(msg.data)
        self._shift = Shift(
            assignment,
            lambda keep: self._make_sender(assignment, keep),
            lambda status: self._make_recorder(assignment, status),
            self._on_finished,
        )
        self._idle.clear()
        gevent.spawn(self._work, self._shift)

    def _make_sender(self, assignment: Assignment, keep: Callable[[Finished], None]) -> StreamSender:
        sender = StreamSender(assignment, keep)
        users = [kind for kind in self._environment.user_classes if kind.__name__ == assignment.user_class]
        speaker: Speaker = the_speaker(users)(self._environment)
        sender.prompt_of = speaker.prompt
        sender.extra_body = {**speaker.extra_body, **assignment.body}
        return sender

    def _make_recorder(self, assignment: Assignment, status: Callable[[], dict[str, Any]]) -> RecordSender:
        folder = Path(assignment.runs_dir) / assignment.run_id
        journal = journal_path(folder, assignment.worker, os.getpid())
        run_id = assignment.run_id
        return RecordSender(
            lambda batch: self._send(messages.RECORDS, run_id=run_id, **batch),
            status,
            journal,
            run_id,
            assignment.worker,
        )

    def _refused(self, environment: Environment, msg: Any, **_: object) -> None:
        logger.error("the master refuses this worker: %s", msg.data["why"])
        if isinstance(self._runner, WorkerRunner):
            environment.process_exit_code = int(ExitCode.WORKERS_MISSING)
            gevent.spawn(self._runner.quit)

    def _take_slice(self, environment: Environment, msg: Any, **_: object) -> None:
        if shift := self._shift_of(msg):
            part = SlicePart(msg.data["number"], msg.data["packed"], msg.data["sha256"])
            shift.add(unpack(part), last=msg.data["last"])

    def _start(self, environment: Environment, msg: Any, **_: object) -> None:
        if shift := self._shift_of(msg):
            shift.start(msg.data["start_ns"])

    def _stop(self, environment: Environment, msg: Any, **_: object) -> None:
        if shift := self._shift_of(msg):
            shift.stop(msg.data["reason"])

    def _acknowledged(self, environment: Environment, msg: Any, **_: object) -> None:
        if shift := self._shift_of(msg):
            shift.recorder.acknowledged(msg.data["batch"])

    def _shift_of(self, msg: Any) -> Shift | None:
        shift = self._shift
        return shift if shift is not None and shift.assignment.run_id == msg.data["run_id"] else None

    def _send(self, message: str, /, **data: Any) -> None:
        self._runner.send_message(message, data)
