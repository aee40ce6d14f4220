"""The master's side of a run: from the options to a finished run folder.

    test_start ─► plan and folder ─► clocks compared, workers ready ─► slices, start moment ─► records come in
      ─► every worker done (or lost) ─► arrivals without a record accounted for ─► run.json, report, exit code

It runs in a greenlet of its own. Locust's shape asks `tick()` once a second how many users there should be:
one per worker while the run lasts, then None, which ends Locust's test.
"""

from __future__ import annotations

import logging
import sys
from functools import partial
from pathlib import Path
from typing import Any

import gevent
from gevent.event import Event
from locust.env import Environment
from locust.runners import STATE_MISSING, LocalRunner, MasterRunner

from client import clock
from loadgen import messages
from loadgen.assignment import assignment_for
from loadgen.crew import Worker, compare_clocks, take_clock_answer
from loadgen.ledger import Ledger
from loadgen.options import OptionError, RunSettings, options_as_given, read_settings
from loadgen.plan import AHEAD_S, SLICE_S, Plan, make_plan
from loadgen.progress import Progress
from loadgen.report import analyse, check_slo
from runlog.exit_codes import ExitCode, first_of
from runlog.folder import RunFolderError
from shapes import SHAPES, make_shape
from shapes.errors import LoadRuleError

logger = logging.getLogger(__name__)

READY_LIMIT_S = 15.0
START_LEAD_S = 1.0
DONE_GRACE_S = 20.0
PROGRESS_EVERY_S = 5.0
_COMPACT = str.maketrans("", "", "-:")


class Conductor:
    """Leads one run at a time, in the master process or the only one."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._workers: list[Worker] = []
        self._ledger: Ledger | None = None
        self._progress = Progress()
        self._start_ns = 0
        self._news = Event()
        self._over = Event()
        self._stop_reason: str | None = None
        self._greenlet: gevent.Greenlet[..., None] | None = None
        assert environment.runner is not None
        for name, listener in {
            messages.CLOCK_READ: self._on_clock,
            messages.READY: self._on_ready,
            messages.RECORDS: self._on_records,
            messages.DONE: self._on_done,
        }.items():
            environment.runner.register_message(name, listener)

    # --- what Locust calls -----------------------------------------------------------------------

    def tick(self) -> tuple[int, float] | None:
        """Users and spawn rate for Locust: one user per worker, None when the run is over."""
        if self._over.is_set():
            return None
        count = len(self._workers) or len(self._client_ids()) or 1
        return count, float(count)

    def settings(self) -> RunSettings:
        """The options as they stand, read and checked. Raises OptionError or LoadRuleError."""
        environment = self._environment
        assert environment.parsed_options is not None
        shape = getattr(environment.shape_class, "shape_name", None)
        settings = read_settings(environment.parsed_options, environment.host, shape)
        make_shape(settings.shape, settings.shape_settings)
        check_slo(settings.slo)
        return settings

    def begin(self) -> None:
        """Start a run (Locust's test_start). A wrong option ends it at once with one line and exit code 3."""
        self._over.clear()
        self._stop_reason = None
        self._progress = Progress()
        try:
            self._ledger = self._prepare()
        except (OptionError, LoadRuleError, RunFolderError) as error:
            logger.error("%s", error)
            self._environment.process_exit_code = int(ExitCode.USAGE)
            self._over.set()
            return
        self._greenlet = gevent.spawn(self._lead, self._ledger)
        self._greenlet.link_exception(self._on_crash)

    def end(self, reason: str) -> None:
        """Stop the run (Locust's test_stopping, quitting): send no more, drain, finish the folder. Blocks."""
        if self._greenlet is None or self._greenlet is gevent.getcurrent():
            return
        if not self._over.is_set() and self._stop_reason is None:
            self._stop_reason = reason
            logger.info("stopping (%s): waiting up to %.0f s for requests in flight", reason, self._drain_s())
            self._tell_all(messages.STOP, reason="run_stopped")
            self._news.set()
        self._over.wait()

    def forget(self) -> None:
        """The test has stopped; the next one starts clean."""
        self._workers = []

    # --- the run ---------------------------------------------------------------------------------

    def _prepare(self) -> Ledger:
        settings = self.settings()
        options = self._environment.parsed_options
        assert options is not None
        for name in SHAPES[settings.shape].unread(settings.shape_settings):
            logger.warning("%s means nothing to the shape %s", name, settings.shape)
        run_id = f"{clock.utc_iso()[:19].translate(_COMPACT)}-{settings.run_name}"
        plan = make_plan(settings, run_id, options_as_given(options), ["locust", *sys.argv[1:]])
        ledger = Ledger(plan, Path(settings.runs_dir))
        logger.info("run folder: %s", ledger.folder)
        logger.info("%d requests planned over %.0f s", len(plan.schedule), plan.info.duration_s)
        return ledger

    def _lead(self, ledger: Ledger) -> None:
        self._workers = [Worker(client_id, index) for index, client_id in enumerate(self._client_ids())]
        if self._assign(ledger.plan) and self._stop_reason is None:
            self._feed_and_wait(ledger)
        self._finish(ledger)

    def _assign(self, plan: Plan) -> bool:
        """Compare clocks and hand out assignments; False when a worker does not answer in time."""
        for worker in self._workers:
            if not compare_clocks(worker, partial(self._ask_for_clock, worker)):
                return self._give_up(f"worker {worker.index} does not answer")
            assignment = assignment_for(plan, worker.index, len(self._workers))
            self._tell(worker, messages.ASSIGNMENT, **assignment.as_message())
        deadline_ns = clock.monotonic_ns() + round(READY_LIMIT_S * 1e9)
        while missing := [worker.index for worker in self._workers if not worker.ready]:
            if clock.monotonic_ns() > deadline_ns:
                return self._give_up(f"workers {missing} were not ready within {READY_LIMIT_S:.0f} s")
            self._wait_for_news(1.0)
        return True

    def _ask_for_clock(self, worker: Worker, number: int) -> None:
        self._tell(worker, messages.CLOCK, number=number)

    def _give_up(self, why: str) -> bool:
        logger.error("%s; no load is sent. Start the workers anew and run again.", why)
        self._environment.process_exit_code = int(ExitCode.WORKERS_MISSING)
        self._stop_reason = why
        return False

    def _feed_and_wait(self, ledger: Ledger) -> None:
        """Send slices ahead of their time until all are out, and wait until every worker is done or lost."""
        plan = ledger.plan
        self._start_ns = clock.monotonic_ns() + round(START_LEAD_S * 1e9)
        ledger.started(clock.utc_iso(clock.wall_time_s() + START_LEAD_S), self._workers)
        next_slice = self._send_slices(plan, 0)
        for worker in self._workers:
            self._tell(worker, messages.START, start_ns=self._start_ns + worker.clock_offset_ns)
        give_up_s = plan.info.duration_s + plan.settings.drain_s + DONE_GRACE_S
        while not all(worker.out for worker in self._workers):
            if self._elapsed_s() > give_up_s:
                self._lose_all_waiting("did not report the end of its work")
                break
            if self._stop_reason is None:
                next_slice = self._send_slices(plan, next_slice)
            self._look_for_lost()
            self._progress.log_every(PROGRESS_EVERY_S, self._elapsed_s(), plan.info, self._workers)
            self._wait_for_news(1.0)

    def _send_slices(self, plan: Plan, number: int) -> int:
        while number < plan.slice_count and number * SLICE_S < self._elapsed_s() + AHEAD_S:
            last = number == plan.slice_count - 1
            for worker in self._workers:
                part = plan.slice_part(number, worker.index, len(self._workers))
                self._tell(
                    worker, messages.SLICE, number=number, packed=part.packed, sha256=part.sha256, last=last
                )
            number += 1
        return number

    def _look_for_lost(self) -> None:
        runner = self._environment.runner
        if not isinstance(runner, MasterRunner):
            return
        for worker in self._workers:
            node = runner.clients.get(worker.client_id)
            if not worker.out and (node is None or node.state == STATE_MISSING):
                self._lose(worker, "was lost")

    def _lose_all_waiting(self, why: str) -> None:
        for worker in self._workers:
            if not worker.out:
                self._lose(worker, why)

    def _lose(self, worker: Worker, why: str) -> None:
        worker.lost_at_s = self._elapsed_s()
        logger.error("worker %d (%s, pid %d) %s", worker.index, worker.host, worker.pid, why)
        assert self._ledger is not None
        self._ledger.note(worker.lost_at_s, "worker_lost", worker, f"worker {worker.index} {why}")

    def _finish(self, ledger: Ledger) -> None:
        ledger.close(self._workers, self._stop_reason)
        self._environment.process_exit_code = int(self._exit_code(analyse(ledger.folder)))
        self._over.set()

    def _exit_code(self, analysed: ExitCode) -> ExitCode:
        codes = [analysed]
        if self._environment.process_exit_code is not None:
            codes.append(ExitCode(self._environment.process_exit_code))
        if self._stop_reason == "interrupted":
            codes.append(ExitCode.INTERRUPTED)
        return first_of(codes)

    def _on_crash(self, greenlet: gevent.Greenlet[..., None]) -> None:
        logger.error("the run failed: %r; its folder holds what came in until then", greenlet.exception)
        self._environment.process_exit_code = int(ExitCode.NOT_VALID)
        self._over.set()

    # --- messages --------------------------------------------------------------------------------

    def _on_clock(self, environment: Environment, msg: Any, **_: object) -> None:
        if worker := self._worker_of(msg):
            take_clock_answer(worker, msg.data)

    def _on_ready(self, environment: Environment, msg: Any, **_: object) -> None:
        if worker := self._worker_of(msg):
            worker.host, worker.pid, worker.ready = msg.data["host"], msg.data["pid"], True
            self._news.set()

    def _on_records(self, environment: Environment, msg: Any, **_: object) -> None:
        worker = self._worker_of(msg)
        if worker is None or self._ledger is None:
            return
        if self._ledger.take(worker, msg.data):
            worker.fired, worker.in_flight = msg.data["fired"], msg.data["in_flight"]
            self._progress.take(msg.data["rows"])
        self._tell(worker, messages.ACKNOWLEDGED, batch=msg.data["batch"])

    def _on_done(self, environment: Environment, msg: Any, **_: object) -> None:
        if worker := self._worker_of(msg):
            worker.own_error = msg.data
            worker.in_flight, worker.done = 0, True
            self._news.set()

    def _worker_of(self, msg: Any) -> Worker | None:
        run_id = msg.data.get("run_id")
        if run_id is not None and (self._ledger is None or run_id != self._ledger.info.run_id):
            return None
        return next((worker for worker in self._workers if worker.client_id == msg.node_id), None)

    def _tell(self, worker: Worker, message: str, /, **data: Any) -> None:
        assert self._environment.runner is not None
        run_id = {"run_id": self._ledger.info.run_id} if self._ledger else {}
        self._environment.runner.send_message(message, run_id | data, client_id=worker.client_id)

    def _tell_all(self, message: str, /, **data: Any) -> None:
        for worker in self._workers:
            self._tell(worker, message, **data)

    # --- small questions -------------------------------------------------------------------------

    def _client_ids(self) -> list[str]:
        runner = self._environment.runner
        if isinstance(runner, MasterRunner):
            clients = runner.clients
            active = clients.ready + clients.spawning + clients.running
            return [node.id for node in sorted(active, key=lambda node: runner.worker_indexes[node.id])]
        return ["local"] if isinstance(runner, LocalRunner) else []

    def _drain_s(self) -> float:
        return self._ledger.plan.settings.drain_s if self._ledger else 0.0

    def _elapsed_s(self) -> float:
        return (clock.monotonic_ns() - self._start_ns) / 1e9

    def _wait_for_news(self, limit_s: float) -> None:
        self._news.clear()
        self._news.wait(limit_s)
