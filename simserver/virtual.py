"""The engine in virtual time: no HTTP and no waiting, so that hours of load take seconds.

Requests join at their moments, also while a step runs; the step then ends, its tokens are handed out, and the
next one starts. Nothing here reads a clock: the same requests and the same seed give the same times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from simserver.engine import Engine
from simserver.request import Request

OnStep = Callable[[list[Request], float], None]
OnSample = Callable[[float], None]


def run_virtually(
    engine: Engine,
    arrivals: Iterable[Request],
    *,
    submit: Callable[[Request], None] | None = None,
    on_step: OnStep = lambda gained, now_s: None,
    sample_every_s: float = math.inf,
    on_sample: OnSample = lambda at_s: None,
    until_s: float = math.inf,
) -> float:
    """Serve `arrivals`, in order of arrived_at_s, until all have ended or `until_s`; returns the time then.

    submit: what is done with a request at its moment (the engine's own `submit` unless given). on_step gets
    the requests that gained a token, after each step; it may submit and abort requests, which is how a closed
    loop or a client that gives up is made. on_sample is called at 0, sample_every_s, 2 * sample_every_s ...
    as long as there is something to serve.
    """
    submit = submit or engine.submit
    upcoming = iter(arrivals)
    following = next(upcoming, None)
    now_s, sample_s = 0.0, 0.0
    next_s = 0.0
    """When the next arrival or sample is due."""

    def pass_time(to_s: float) -> None:
        """Everything that happens until `to_s` without a step's end."""
        nonlocal following, sample_s, next_s
        while next_s <= to_s:
            if following is not None and following.arrived_at_s <= sample_s:
                submit(following)
                following = next(upcoming, None)
            else:
                on_sample(sample_s)
                sample_s += sample_every_s
            next_s = min(math.inf if following is None else following.arrived_at_s, sample_s)

    while now_s <= until_s:
        if next_s <= now_s:
            pass_time(now_s)
        start_s = engine.next_start_s(now_s)
        if start_s is None and following is None:
            return now_s
        arrival_s = math.inf if following is None else following.arrived_at_s
        if start_s is None or arrival_s < start_s:
            now_s = arrival_s
            continue
        step = engine.schedule(start_s)
        now_s = start_s
        if step is None:
            continue
        now_s += step.duration_s
        if now_s > until_s:
            break
        if next_s <= now_s:
            pass_time(now_s)
        on_step(engine.complete(step, now_s), now_s)
    pass_time(until_s)
    return until_s
