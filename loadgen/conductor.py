"""The master's side of a run, as Locust sees it: from the options to a finished run folder and an exit code.

    test_start ─► plan ─► preflight (─► calibration) ─► muster ─► Run.lead ─► report ─► exit code

It works in a greenlet of its own. Locust's shape asks `tick()` once a second how many users there should be:
one per worker while the run lasts, then None, which ends Locust's test.
"""

from __future__ import annotations

import logging
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import gevent
from gevent.event import Event
from locust.env import Environment

from client import clock
from loadgen import messages
from loadgen.budget import budget_of
from loadgen.calibrate import CalibrationRefused, CalibrationStopped, calibrate
from loadgen.crew import Worker, take_clock_answer
from loadgen.given import options_as_given
from loadgen.ledger import Ledger
from loadgen.link import Link
from loadgen.muster import WorkersMissing, muster, wait_for_workers
from loadgen.options import OptionError
from loadgen.plan import Plan, make_plan
from loadgen.preflight import PreflightRefused, check_plan, check_target
from loadgen.report import analyse, check_slo, ttft_limit_s
from loadgen.run import Run
from loadgen.settings import read_settings
from loadgen.speaker import the_speaker, try_prompt
from runlog.exit_codes import ExitCode, first_of
from runlog.folder import RunFolderError
from shapes import SHAPES
from shapes.errors import LoadRuleError

logger = logging.getLogger(__name__)

_COMPACT = str.maketrans("", "", "-:")
NO_RUN = {
    OptionError: ExitCode.USAGE,
    LoadRuleError: ExitCode.USAGE,
    RunFolderError: ExitCode.USAGE,
    PreflightRefused: ExitCode.PREFLIGHT_REFUSED,
    CalibrationRefused: ExitCode.PREFLIGHT_REFUSED,
    CalibrationStopped: ExitCode.SAFETY_VALVE,
    WorkersMissing: ExitCode.WORKERS_MISSING,
}
"""What keeps a run from starting, each told in one line, and its exit code."""

LATE_WORKERS_S = 15.0
"""How long a run waits for expected workers that were there before (from the web UI, or between two runs)."""


def code_of(error: Exception) -> ExitCode:
    """The exit code for one of NO_RUN's errors."""
    return next(code for kind, code in NO_RUN.items() if isinstance(error, kind))


class Conductor:
    """Leads one run at a time, in the master process or the only one. `folder` is the last run's folder."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._link = Link(environment)
        self._mustering: list[Worker] = []
        self._run: Run | None = None
        self._planned: Plan | None = None
        self._preflighted = False
        self._users = 1
        self._terminating = False
        self._over = Event()
        self._stop_before_run: str | None = None
        self._greenlet: gevent.Greenlet[..., None] | None = None
        self.folder: Path | None = None
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
        if self._greenlet is None:
            self._users = max(len(self._link.client_ids()), 1)
        elif self._over.is_set():
            return None
        return self._users, float(self._users)

    def plan(self, options: Namespace, host: str | None, shape: str | None) -> Plan:
        """The plan that these options ask for. Raises a key of NO_RUN."""
        settings = read_settings(options, host, shape)
        check_slo(settings.slo)
        try_prompt(the_speaker(self._environment.user_classes), self._environment, settings.endpoint)
        for name in SHAPES[settings.shape].unread(settings.shape_settings):
            flag = f"--{name.removesuffix('_s').replace('_', '-')}"
            logger.warning("%s means nothing to the shape %s", flag, settings.shape)
        run_id = f"{clock.utc_iso()[:19].translate(_COMPACT)}-{settings.slug}"
        return make_plan(settings, run_id, options_as_given(options), ["locust", *sys.argv[1:]])

    def short_of_workers(self) -> str | None:
        """Why a run cannot start now for want of workers; None when it can."""
        connected, expected = len(self._link.client_ids()), max(self._link.expected, 1)
        if connected >= expected:
            return None
        return f"{connected} of {expected} expected workers are connected: start workers, then try again."

    def picked_shape(self) -> str | None:
        """The shape of a picked LoadTestShape class; None when --shape decides."""
        name: str | None = getattr(self._environment.shape_class, "shape_name", None)
        return name

    def plan_ahead(self, options: Namespace, host: str | None, shape: str | None) -> None:
        """Make the plan that `begin` will take, so that what is wrong is told now. Raises as `plan`."""
        self._planned, self._preflighted = None, False
        self._planned = self.plan(options, host, shape)

    def check(self, options: Namespace, host: str | None, shape: str | None) -> None:
        """`plan_ahead` and the preflight: all that a form can tell before it is sent. Raises as `plan`."""
        self.plan_ahead(options, host, shape)
        assert self._planned is not None
        self._planned = self._preflight(self._planned)
        self._preflighted = True

    def begin(self) -> None:
        """Start a run (Locust's test_start); what keeps it from starting is told in one line and a code."""
        self._over = Event()
        self._run = None
        self._stop_before_run = None
        self._environment.process_exit_code = None
        self._greenlet = gevent.spawn(self._lead, self._over)

    def end(self, reason: str) -> None:
        """Stop the run (Locust's test_stopping, quitting): send no more, drain, finish the folder. Blocks."""
        over, greenlet = self._over, self._greenlet
        if greenlet is None or greenlet is gevent.getcurrent() or over.is_set():
            return
        if self._run is not None:
            self._run.stop("all workers were lost" if self._run.deserted else reason)
        elif self._stop_before_run is None:
            self._stop_before_run = reason
            greenlet.kill(block=False)
        over.wait()

    def forget(self) -> None:
        """The test has stopped (Locust's test_stop): the next one starts clean."""
        self._greenlet = None
        self._run = None

    def terminate(self) -> None:
        """SIGTERM or Ctrl-C: end the run as `end` does, or the process when there is none, or at a second
        one.
        """
        if self._terminating and self._run is not None:
            ledger = self._run.ledger
            what = "report" if ledger.closed else "recover"
            logger.error("ended before that was done; now: python -m analysis %s %s", what, ledger.folder)
        if self._terminating or self._greenlet is None or self._over.is_set():
            sys.exit(int(ExitCode.INTERRUPTED))
        self._terminating = True
        self.end("interrupted")

    # --- the run ---------------------------------------------------------------------------------

    def _lead(self, over: Event) -> None:
        codes: list[ExitCode] = []
        try:
            codes.append(self._carry_out())
        except tuple(NO_RUN) as error:
            logger.error("%s", error)
            codes.append(code_of(error))
        except gevent.GreenletExit:
            logger.info("stopped before the start")
        except Exception:
            logger.exception("the run failed; its folder holds what came in until then")
            codes.append(ExitCode.NOT_VALID)
        finally:
            stop_reason = self._run.stop_reason if self._run else self._stop_before_run
            if stop_reason == "interrupted":
                codes.append(ExitCode.INTERRUPTED)
            self._environment.process_exit_code = int(first_of(codes))
            over.set()
            self._end_test_without_a_shape()

    def _carry_out(self) -> ExitCode:
        options = self._environment.parsed_options
        assert options is not None
        plan, self._planned = self._planned, None
        preflighted, self._preflighted = self._preflighted, False
        if plan is None:
            plan = self.plan(options, self._environment.host, self.picked_shape())
        if not preflighted:
            plan = self._preflight(plan)
        wait_for_workers(self._link, options.expect_workers_max_wait or LATE_WORKERS_S)
        if plan.settings.auto_rate:
            plan = self._calibrate(plan)
        self._mustering = [Worker(client_id) for client_id in self._link.client_ids()]
        crew = muster(self._link, self._mustering)
        ledger = Ledger(plan, Path(plan.settings.runs_dir))
        logger.info("run folder: %s", ledger.folder)
        logger.info("%s", plan.described())
        if notice := plan.last_burst_notice():
            logger.warning("%s", notice)
        speaker = the_speaker(self._environment.user_classes)
        self._run = Run(plan, ledger, self._link, crew, speaker.__name__)
        self._run.lead()
        self.folder = ledger.folder
        return analyse(ledger.folder)

    def _preflight(self, plan: Plan) -> Plan:
        """The plan with what the target showed of itself. Raises PreflightRefused."""
        plan, notices = check_target(
            plan.settings,
            plan,
            confirmed_host=plan.settings.confirm_target,
            workers=self._other_processes(),
            stream=plan.settings.stream,
            extra_body=the_speaker(self._environment.user_classes).extra_body,
        )
        for notice in notices:
            logger.info("%s", notice)
        if plan.settings.load == "open" and not plan.settings.auto_rate:
            self._tell_budget(plan)
        elif plan.settings.load == "closed" and plan.settings.valves.max_requests is None:
            logger.info("a closed loop sends as fast as answers come; --max-requests sets a limit")
        return plan

    def _calibrate(self, plan: Plan) -> Plan:
        """The plan at the rate that the target was found to take. Raises CalibrationRefused,
        CalibrationStopped, and PreflightRefused for a load that cannot be sent from here."""
        speaker = the_speaker(self._environment.user_classes)
        user = speaker(self._environment)
        limit_s = ttft_limit_s(plan.settings.slo)
        found = calibrate(plan, speaker.__name__, user.prompt, user.extra_body, limit_s)
        plan = plan.at_rate(found)
        for notice in check_plan(plan, found.answer_s, self._other_processes()):
            logger.info("%s", notice)
        self._tell_budget(plan)
        return plan

    def _other_processes(self) -> int:
        """How many workers will send; 0 when this process does."""
        return len(self._link.client_ids()) if self._link.distributed else 0

    def _tell_budget(self, plan: Plan) -> None:
        logger.info("%s", budget_of(plan.schedule, plan.settings.valves.max_requests, plan.calibration))

    def _end_test_without_a_shape(self) -> None:
        """`tick` ends the test; where the class picker chose no shape, nobody asks it."""
        environment = self._environment
        if environment.shape_class is None and environment.runner is not None:
            gevent.spawn(environment.runner.stop)

    # --- messages --------------------------------------------------------------------------------

    def _on_clock(self, environment: Environment, msg: Any, **_: object) -> None:
        for worker in self._mustering:
            if worker.client_id == msg.node_id:
                take_clock_answer(worker, msg.data)

    def _on_ready(self, environment: Environment, msg: Any, **_: object) -> None:
        if found := self._sender_of(msg):
            found[0].take_ready(found[1], msg.data)

    def _on_records(self, environment: Environment, msg: Any, **_: object) -> None:
        if found := self._sender_of(msg):
            found[0].take_records(found[1], msg.data)

    def _on_done(self, environment: Environment, msg: Any, **_: object) -> None:
        if found := self._sender_of(msg):
            found[0].take_done(found[1], msg.data)

    def _sender_of(self, msg: Any) -> tuple[Run, Worker] | None:
        """The run and worker that a message belongs to; None for one of another run."""
        run = self._run
        if run is None or msg.data["run_id"] != run.ledger.info.run_id:
            return None
        worker = next((worker for worker in run.crew if worker.client_id == msg.node_id), None)
        return (run, worker) if worker is not None else None
