"""What a run will do, decided before it starts: the schedule, drawn once by the master, and its slices.

    settings ─► shape x arrivals x seed ─► Schedule ─► slices of 10 s ─► one part per worker

Worker i of n fires every arrival k with k mod n = i. Its part is sent ahead of time as bytes with a digest,
so that what is fired is what was drawn.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
import orjson

from loadgen.options import RunSettings
from runlog.folder import RunInfo
from shapes import make_shape
from shapes.arrivals import arrivals_named
from shapes.curve import rate_curve
from shapes.schedule import Schedule, draw_schedule

SLICE_S = 10.0
"""Length of a slice of the schedule."""

AHEAD_S = 60.0
"""How far ahead of its time a slice is sent."""


@dataclass(frozen=True)
class Arrival:
    """One request that is due: its index in schedule.csv, its moment, and what to ask for."""

    index: int
    at_s: float
    name: str
    input_tokens: int
    output_tokens: int
    prompt_seed: int


@dataclass(frozen=True)
class SlicePart:
    """One worker's arrivals of one slice, packed, with the digest of the bytes."""

    number: int
    packed: bytes
    sha256: str


@dataclass(frozen=True)
class Plan:
    """A run that has not started: its schedule and what run.json says of it."""

    settings: RunSettings
    schedule: Schedule
    info: RunInfo

    @property
    def slice_count(self) -> int:
        return int(np.ceil(self.info.duration_s / SLICE_S))

    def slice_part(self, number: int, worker: int, workers: int) -> SlicePart:
        """Worker `worker`'s arrivals in [number, number + 1) x SLICE_S."""
        at_s = self.schedule.at_s
        first, last = np.searchsorted(at_s, [number * SLICE_S, (number + 1) * SLICE_S])
        mine = [k for k in range(int(first), int(last)) if k % workers == worker]
        packed = orjson.dumps([_row(self.schedule, k) for k in mine])
        return SlicePart(number, packed, hashlib.sha256(packed).hexdigest())


def _row(schedule: Schedule, k: int) -> list[object]:
    return [
        k,
        round(float(schedule.at_s[k]) * 1e6),
        schedule.name[k],
        int(schedule.asked_input_tokens[k]),
        int(schedule.asked_output_tokens[k]),
        int(schedule.prompt_seed[k]),
    ]


def unpack(part: SlicePart) -> Iterator[Arrival]:
    """The arrivals of a slice part in order. Raises ValueError when the bytes do not match their digest."""
    if hashlib.sha256(part.packed).hexdigest() != part.sha256:
        raise ValueError(f"slice {part.number} of the schedule does not match its digest")
    for index, at_us, name, input_tokens, output_tokens, prompt_seed in orjson.loads(part.packed):
        yield Arrival(index, at_us / 1e6, name, input_tokens, output_tokens, prompt_seed)


def make_plan(settings: RunSettings, run_id: str, options: dict[str, str], command: Sequence[str]) -> Plan:
    """Draw the schedule and describe the run. Raises ShapeError when the shape's settings do not fit
    together.
    """
    shape = make_shape(settings.shape, settings.shape_settings)
    arrivals = arrivals_named(settings.arrivals)
    schedule = draw_schedule(shape, arrivals, settings.seed, settings.input_lengths, settings.output_lengths)
    info = RunInfo(
        run_id=run_id,
        name=settings.run_name,
        target=settings.target,
        model=settings.model,
        shape=settings.shape,
        arrivals=settings.arrivals,
        seed=settings.seed,
        duration_s=shape.duration_s,
        drain_s=settings.drain_s,
        command=list(command),
        options=dict(options),
        mean_rate_rps=shape.mean_rate_rps,
        bursts=[[burst.start_s, burst.end_s] for burst in shape.bursts()],
        rate_curve=rate_curve(shape),
        segments=[{"id": 0, "start_s": 0.0, "end_s": shape.duration_s, "author": "plan"}],
        slo=settings.slo,
        schedule_sha256=schedule.sha256(),
        counts={"planned": len(schedule)},
        versions={
            "python": platform.python_version(),
            "platform": sys.platform,
            **{name: version(name) for name in ("locust", "gevent", "numpy", "httptools")},
        },
    )
    return Plan(settings, schedule, info)
