"""Locust users that send the plan's requests, and the wiring that a locustfile gets by importing this module.

Importing it declares our options on Locust's parser and sets up master, worker or local process at Locust's
init. A user class says what is sent; when, the plan says. Every request with a record fires the event
`completed`; TTFT and TPOT are shown as rows of Locust's table without entering its Aggregated row.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import Any, ClassVar

import gevent
from locust import User, events, task
from locust.env import Environment
from locust.event import EventHook
from locust.runners import MasterRunner, WorkerRunner

from client.completion import Finished
from client.endpoints import Prompt
from loadgen import locust_patches, web
from loadgen.arrival import Arrival
from loadgen.conductor import NO_RUN, Conductor, code_of
from loadgen.given import add_to_parser, unknown_variables
from loadgen.link import Link
from loadgen.muster import MUSTER_LIMIT_S, wait_for_workers
from loadgen.sender import synthetic
from loadgen.worker import LoadWorker
from runlog.exit_codes import ExitCode
from runlog.record import OUTSIDE_THE_LOAD, RequestRecord

logger = logging.getLogger(__name__)

completed = EventHook()
"""Fired in the process that sent it, for every request with a record: `completed.fire(record=...)`."""


class CompletionError(Exception):
    """How a request ended when not well; Locust's failure table groups by its text: class and status only."""


class ChatUser(User):
    """Says what is sent: streamed chat completions. The plan, not the number of users, decides the load."""

    abstract = True
    extra_body: ClassVar[Mapping[str, object]] = {}
    """Fields for every request's body beside model, messages and length, such as {"temperature": 0}."""

    def prompt(self, arrival: Arrival, run_id: str) -> Prompt:
        """What to say: a text or a list of messages. Override it to send prompts of your own."""
        return synthetic(arrival, run_id)

    @task
    def follow_the_plan(self) -> None:
        """Stand in Locust's table of users until the run is over and Locust stops everybody."""
        gevent.sleep(0.5)


def _show_in_locust(environment: Environment, finished: Finished) -> None:
    """Feed Locust's own event and table from one record."""
    record = finished.record
    completed.fire(record=record)
    if record.sent_at_s is None or record.ended_at_s is None or record.name in OUTSIDE_THE_LOAD:
        return
    environment.events.request.fire(
        request_type="POST",
        name=record.name,
        response_time=(record.ended_at_s - record.sent_at_s) * 1000,
        response_length=record.output_tokens or 0,
        exception=None if record.outcome == "succeeded" else CompletionError(_failure_text(record)),
        context={"arrival": record.arrival, "outcome": record.outcome},
    )
    if record.outcome != "succeeded":
        return
    for row, value_s in (("TTFT", record.ttft_s), ("TPOT", record.tpot_s)):
        if value_s is not None:
            environment.stats.get(record.name, row).log(value_s * 1000, 0)  # type: ignore[arg-type]


def _failure_text(record: RequestRecord) -> str:
    status = f" (HTTP {record.status})" if record.status not in (None, 200) else ""
    return f"{record.outcome}: {record.failure_class}{status}"


@events.init_command_line_parser.add_listener
def _declare_options(parser: Any) -> None:
    locust_patches.exit_with_our_usage_code(parser)
    add_to_parser(parser)
    web.set_defaults(parser)


@events.init.add_listener
def _set_up(environment: Environment, **_: object) -> None:
    locust_patches.apply()
    if not isinstance(environment.runner, MasterRunner):
        _set_up_worker(environment)
    if not isinstance(environment.runner, WorkerRunner):
        _set_up_conductor(environment)


def _set_up_worker(environment: Environment) -> None:
    worker = LoadWorker(environment, lambda finished: _show_in_locust(environment, finished))
    if isinstance(environment.runner, WorkerRunner):
        environment.process_exit_code = int(ExitCode.OK)  # failed requests are the master's to judge
        environment.events.quitting.add_listener(lambda **_: worker.leave("it was stopped"))
        gevent.signal_handler(signal.SIGINT, worker.interrupt)


def _set_up_conductor(environment: Environment) -> None:
    conductor = Conductor(environment)
    environment.load_run = conductor  # type: ignore[attr-defined]
    environment.events.test_start.add_listener(lambda **_: conductor.begin())
    environment.events.test_stopping.add_listener(lambda **_: conductor.end("interrupted"))
    environment.events.test_stop.add_listener(lambda **_: conductor.forget())
    environment.events.quitting.add_listener(lambda **_: conductor.end("interrupted"))
    if environment.web_ui is not None:
        web.extend(environment, conductor)
    for name in unknown_variables(os.environ):
        logger.warning("%s in the environment is no option; see: python -m loadgen", name)
    options: Namespace | None = environment.parsed_options
    if options is not None and options.num_users:  # Locust's --users, before it gets a default
        options.load_users = str(options.num_users)
    if options is not None and (options.headless or options.autostart):
        # Locust takes signals into its hands only after a headless shape has ended.
        for signum in (signal.SIGTERM, signal.SIGINT):
            gevent.signal_handler(signum, conductor.terminate)
        _refuse_before_the_start(environment, conductor, options)


def _refuse_before_the_start(environment: Environment, conductor: Conductor, options: Namespace) -> None:
    """What is known to be wrong before a test begins ends the process at once: one line, our exit code."""
    assert environment.runner is not None
    try:
        conductor.plan_ahead(options, environment.host, conductor.picked_shape())
        wait_for_workers(Link(environment), options.expect_workers_max_wait or MUSTER_LIMIT_S)
        return
    except tuple(NO_RUN) as error:
        logger.error("%s", error)
        code = code_of(error)
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    environment.runner.quit()
    sys.exit(int(code))
