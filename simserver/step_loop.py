"""The engine on the wall clock: starts steps, waits until each is due, and hands out its tokens.

Due times are absolute: a step begins at the moment the one before it was due, not when its tokens were
sent, so that lateness does not add up. Where the process itself stood still for longer than
`MAX_CATCH_UP_S` (stopped by a signal, no CPU), the schedule moves by that time instead of racing through
the missed steps: a frozen server does not make up for lost tokens. Lateness and such slips are published in
/metrics.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from simserver.engine import Engine
from simserver.errors import ApiError
from simserver.exchange import Exchange, Job
from simserver.faults import Faults
from simserver.metrics import Metrics
from simserver.request import Request, Step

MAX_CATCH_UP_S = 0.25
LEAD_S = 0.0005
"""How long before a step's end the event loop is kept waiting: about what reading one request takes, so that
one which comes just then does not make the step late. It joins a step later, as if it had come after."""
WATCH_WINDOW_S = 5.0
WATCH_SHARE = 0.1
WATCH_FLOOR_S = 0.002


class StepLoop:
    """Drives one engine in real time. `run` steps it; `submit` and `abort` come from request handlers.

    clock: seconds, the event loop's own; requests' arrivals and `started_s` are told on it.
    """

    def __init__(
        self,
        engine: Engine,
        metrics: Metrics,
        faults: Faults,
        started_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._faults = faults
        self._started_s = started_s
        self._metrics = metrics
        self._jobs: dict[Request, Job] = {}
        self._submitted = asyncio.Event()
        self._clock = clock
        self._watch = LatenessWatch(clock())

    def submit(self, exchange: Exchange) -> None:
        for job in exchange.jobs:
            self._engine.submit(job.request)
            self._jobs[job.request] = job
        self._submitted.set()

    def abort(self, exchange: Exchange) -> None:
        """Forget a request and free its KV cache at once. Harmless when it has ended or never was in."""
        for job in exchange.jobs:
            if self._jobs.pop(job.request, None) is not None:
                self._engine.abort(job.request)
                self._submitted.set()  # the queue is another one: look again

    def give_up(self, error: ApiError) -> None:
        """End all requests with an error, as a server does that goes down."""
        for exchange in dict.fromkeys(job.exchange for job in self._jobs.values()):
            self.abort(exchange)
            if exchange.stream is not None:
                exchange.stream.write_error(error)
            exchange.fail(error)

    async def run(self) -> None:
        """Step for ever; cancel the task to stop."""
        due_s = self._clock()
        while True:
            if not self._engine.running:
                starts_s = self._engine.next_start_s(due_s)
                if starts_s is None or starts_s > self._clock():
                    await self._wait_for_arrival(starts_s)
                    continue
                due_s = starts_s
            step = self._engine.schedule(due_s)
            if step is None:
                continue
            due_s = self._due_s(step)
            await self._wait_until(due_s)
            now_s = self._clock()
            late_s = max(0.0, now_s - due_s)
            self._metrics.step_lateness.observe(late_s)
            self._metrics.iteration_tokens.observe(step.tokens)
            self._watch.observe(now_s, late_s, step.duration_s)
            if late_s > MAX_CATCH_UP_S:
                self._metrics.schedule_slip_s += late_s
                due_s = now_s
            self._hand_out(step, now_s)
            self._metrics.step_writing.observe(self._clock() - now_s)

    def _due_s(self, step: Step) -> float:
        """When a step ends, with the server's faults in it: slow steps, a freeze."""
        since_start_s = step.started_at_s - self._started_s
        end_s = since_start_s + step.duration_s * self._faults.slowness(since_start_s)
        return self._started_s + self._faults.frozen_until_s(end_s)

    async def _wait_until(self, due_s: float) -> None:
        """Return at a moment, not a loop's turn later: the last bit of it is waited for without the loop."""
        await asyncio.sleep(due_s - LEAD_S - self._clock())
        while self._clock() < due_s:
            pass

    async def _wait_for_arrival(self, until_s: float | None) -> None:
        """Wait until a request comes, or until arrivals that the policy holds back may start."""
        self._metrics.look()
        self._submitted.clear()
        limit_s = None if until_s is None else until_s - self._clock()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._submitted.wait(), limit_s)

    def _hand_out(self, step: Step, now_s: float) -> None:
        inter_token_latency = self._metrics.inter_token_latency
        for request in self._engine.complete(step, now_s):
            job = self._jobs[request]
            if request.emitted_tokens == 1:
                self._metrics.time_to_first_token.observe(now_s - request.arrived_at_s)
            else:
                inter_token_latency.observe(now_s - job.previous_token_at_s)
            job.previous_token_at_s = now_s
            if job.exchange.stream is not None:
                job.exchange.stream.write_token(job.choice, request.emitted_tokens)
            if request.finished:
                del self._jobs[request]
                job.exchange.one_done()
        self._metrics.look()


class LatenessWatch:
    """Says on stderr when this process, not the simulated GPU, sets the pace: once per window in which the
    steps were late by more than a tenth of their length on average (and by more than 2 ms).
    """

    def __init__(self, since_s: float) -> None:
        self._since_s = since_s
        self._steps = 0
        self._late_s = 0.0
        self._length_s = 0.0

    def observe(self, now_s: float, late_s: float, length_s: float) -> None:
        self._steps += 1
        self._late_s += late_s
        self._length_s += length_s
        if now_s - self._since_s < WATCH_WINDOW_S:
            return
        late_s, length_s = self._late_s / self._steps, self._length_s / self._steps
        if late_s > max(WATCH_FLOOR_S, WATCH_SHARE * length_s):
            print(
                f"simserver: warning: steps of {length_s * 1e3:.1f} ms were sent {late_s * 1e3:.1f} ms late "
                "on average: this process is the bottleneck, not the simulated GPU; give it a free core or "
                "less load",
                file=sys.stderr,
                flush=True,
            )
        self._since_s, self._steps, self._late_s, self._length_s = now_s, 0, 0.0, 0.0
