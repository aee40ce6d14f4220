"""`--rate auto`: the master loads the target for some seconds in steps, and so finds the run's mean rate.

    plan (drawn at no rate yet) ─► steps of capacity_rule.STEPS ─► Capacity ─► the plan at its rate

The steps are a closed loop with the run's own lengths, prompts, endpoint, dialect and limits. Each begins
afresh: its requests start spread over its first quarter, and its end cuts off what is still in flight. None
of it is part of the load: run.json counts it beside the preflight.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count

import gevent
import numpy as np
from gevent.event import Event

from client import clock
from client.completion import Finished
from client.preflight import Spent
from loadgen.arrival import Arrival
from loadgen.assignment import assignment_for
from loadgen.capacity_rule import STEPS, Calibration, Step, capacity_line, capacity_of, step_line, step_of
from loadgen.plan import Plan
from loadgen.sender import PromptOf, StreamSender
from loadgen.user_requests import user_requests
from loadgen.valves import Spent as SpentOfValves
from runlog.record import RequestRecord

logger = logging.getLogger(__name__)

_STAGGER = 0.25
_DRAWN_FOR_MEAN = 10_000


class CalibrationRefused(Exception):
    """No rate could be found; the message says why and what to do, in one line."""


class CalibrationStopped(Exception):
    """A safety valve ended the calibration; the message says which."""


def calibrate(
    plan: Plan,
    user_class: str,
    prompt_of: PromptOf,
    extra_body: Mapping[str, object],
    ttft_limit_s: float | None,
) -> Calibration:
    """Step up until a step does not hold. `prompt_of` and `extra_body` are the load's own, `ttft_limit_s` the
    SLO's (None without one).

    Blocks this greenlet; killed, it cancels what is in flight. Raises CalibrationRefused or
    CalibrationStopped.
    """
    settings = plan.settings
    rng = np.random.default_rng(settings.seed)
    asked_mean = float(settings.output_lengths.draw(rng, _DRAWN_FOR_MEAN).mean())
    length_s = settings.calibration_step_s
    logger.info(
        "calibration: %s requests in flight, %g s each, outside the load",
        ", ".join(map(str, STEPS)),
        length_s,
    )
    steps: list[Step] = []
    with _Loop(plan, user_class, prompt_of, extra_body) as loop:
        for in_flight in STEPS:
            records = loop.run(in_flight, length_s)
            if loop.tripped:
                raise CalibrationStopped(f"the calibration was ended by a {loop.tripped}")
            first = steps[0] if steps else None
            step = step_of(
                in_flight, records, length_s, asked_mean, ttft_limit_s, first, streamed=settings.stream
            )
            steps.append(step)
            logger.info("calibration: %s", step_line(step))
            if not step.held:
                break
    found = capacity_of(steps)
    if found is None:
        why = steps[0].why or f"no answer came far enough within {length_s:g} s"
        raise CalibrationRefused(
            f"--rate auto found no rate: with {steps[0].in_flight} request in flight {why}. Give --rate a "
            "number, or change --slo or --calibration-step"
        )
    logger.info("calibration: %s", capacity_line(found))
    return Calibration(found, tuple(steps), loop.spent)


class _Loop:
    """Keeps requests in flight, one step after the other; every user of a step has prompts of its own."""

    def __init__(
        self, plan: Plan, user_class: str, prompt_of: PromptOf, extra_body: Mapping[str, object]
    ) -> None:
        settings = plan.settings
        self.tripped: str | None = None
        self.spent = Spent()
        self._valves = settings.valves
        self._sent = self._failed = self._tokens = 0
        self._records: list[RequestRecord] = []
        self._over = Event()
        self._users = count()
        self._request_of = user_requests(settings.seed, settings.input_lengths, settings.output_lengths)
        self._sender = StreamSender(assignment_for(plan, plan.info.run_id, user_class, 0, 1), self._keep)
        self._sender.prompt_of = prompt_of
        self._sender.extra_body = {**extra_body, **settings.body}
        self._sender.start_ns = clock.monotonic_ns()

    def __enter__(self) -> _Loop:
        return self

    def __exit__(self, *_: object) -> None:
        self._sender.close()

    def run(self, in_flight: int, length_s: float) -> list[RequestRecord]:
        """The records of one step, which ends early at a failure or a safety valve."""
        self._records, self._over = [], Event()
        each_s = _STAGGER * length_s / in_flight
        users = [
            gevent.spawn_later(k * each_s, self._one_after_the_other, self._requests(), self._over.is_set)
            for k in range(in_flight)
        ]
        try:
            self._over.wait(length_s)
            self._over.set()
            self._sender.cancel_all()
            gevent.joinall(users, raise_error=True)
        finally:
            gevent.killall(users)
        return self._records

    def _requests(self) -> Iterator[Arrival]:
        user = next(self._users)
        for turn in count():
            yield replace(self._request_of(user, turn), label=f"calibration-{user}-{turn}")

    def _one_after_the_other(self, requests: Iterator[Arrival], over: Callable[[], bool]) -> None:
        for arrival in requests:
            self._check_valves()
            if over():
                return
            armed = self._sender.arm(arrival)
            self._sent += 1
            self._sender.fire(armed)
            self._sender.finish(armed)

    def _keep(self, finished: Finished) -> None:
        record = finished.record
        self._records.append(record)
        self.spent = self.spent.plus(record.input_tokens, record.output_tokens)
        given = record.asked_input_tokens if record.input_tokens is None else record.input_tokens
        self._tokens += (given or 0) + (record.output_tokens or 0)
        if record.outcome in ("failed", "rejected"):
            self._failed += 1
            self._over.set()
        self._check_valves()

    def _check_valves(self) -> None:
        spent = SpentOfValves(self._sent, self.spent.requests, self._failed, self._tokens)
        self.tripped = self.tripped or self._valves.tripped(spent)
        if self.tripped:
            self._over.set()
