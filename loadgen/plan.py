"""What a run will do, decided before it starts: the schedule, drawn once by the master, and its slices.

    settings ─► shape x arrivals x seed ─► Schedule ─► slices of 10 s ─► one part per worker

Worker i of n fires every arrival k with k mod n = i. Its part is sent ahead of time as bytes with a digest,
so that what is fired is what was drawn.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version

import numpy as np
import orjson

from client.calibration import UNCALIBRATED, PromptCalibration
from client.preflight import Preflight
from loadgen.arrival import Arrival
from loadgen.capacity_rule import Calibration
from loadgen.given import command_told
from loadgen.settings import RunSettings
from runlog.folder import RunInfo
from shapes import make_shape
from shapes.arrivals import arrivals_named
from shapes.curve import rate_curve
from shapes.schedule import Schedule, draw_schedule, empty_schedule
from shapes.steps import segment_at, segment_rows
from shapes.users import user_changes

SLICE_S = 10.0
"""Length of a slice of the schedule."""

CALM_S = 12.0
"""A recovery is seen when one 2 s window and the 10 s of calm that follow its start lie within the load."""

AHEAD_S = 60.0
"""How far ahead of its time a slice is sent."""


@dataclass(frozen=True)
class SlicePart:
    """One worker's arrivals of one slice, packed, with the digest of the bytes."""

    number: int
    packed: bytes
    sha256: str


@dataclass(frozen=True)
class Plan:
    """A run that has not started: its schedule and what run.json says of it. `calibration` is the server's,
    once it has been asked; the schedule never depends on it."""

    settings: RunSettings
    schedule: Schedule
    info: RunInfo
    calibration: PromptCalibration = UNCALIBRATED

    @property
    def slice_count(self) -> int:
        """How many slices hold all that may be sent: up to the end of the load, or of --max-requests."""
        limit = self.settings.valves.max_requests
        if self.settings.load == "closed":
            return 0
        if limit is not None and limit < len(self.schedule):
            return int(self.schedule.at_s[max(limit - 1, 0)] // SLICE_S) + 1
        return int(np.ceil(self.info.duration_s / SLICE_S))

    def described(self) -> str:
        """What is planned, in one line."""
        info = self.info
        if info.load == "closed":
            most = max((users for _, users in info.users_curve), default=0)
            return f"up to {most:.0f} users over {info.duration_s:g} s"
        asked = (info.mean_rate_rps or 0.0) * info.duration_s
        drawn = f"{len(self.schedule)} requests planned over {info.duration_s:g} s"
        return (
            f"{drawn} ({asked:.0f} asked for on average; the seed decides)"
            if round(asked) != len(self)
            else drawn
        )

    def after(self, found: Preflight) -> Plan:
        """The same plan with what the preflight learned of the server: its dialect and its tokens."""
        server, calibration = found.server, found.calibration
        info = replace(
            self.info,
            server={
                "kind": server.kind if server else None,
                "version": server.version if server else None,
                "known_by": server.by if server else None,
                "dialect": found.dialect,
                "preflight": asdict(found.spent),
            },
            prompt_calibration=asdict(calibration) if calibration else {},
        )
        settings = replace(self.settings, dialect=found.dialect)
        return Plan(settings, self.schedule, info, calibration or UNCALIBRATED)

    def at_rate(self, calibration: Calibration) -> Plan:
        """The same plan drawn at the rate that was measured, with what measuring it showed and cost."""
        rate_rps = calibration.capacity.rate_rps
        drawn = make_plan(self.settings.at_rate(rate_rps), self.info.run_id, self.info.options, ())
        info = replace(
            drawn.info,
            command=self.info.command,
            server={**self.info.server, "calibration": asdict(calibration.spent)},
            prompt_calibration=self.info.prompt_calibration,
            rate_calibration=calibration.told(),
        )
        return replace(self, settings=drawn.settings, schedule=drawn.schedule, info=info)

    def __len__(self) -> int:
        return len(self.schedule)

    def last_burst_notice(self) -> str | None:
        """Why the last burst's recovery could not be seen; None when there is time for it."""
        if not self.info.bursts:
            return None
        needed_s = self.info.bursts[-1][1] + CALM_S
        if self.info.duration_s >= needed_s:
            return None
        left_s = self.info.duration_s - self.info.bursts[-1][1]
        return (
            f"the load ends {left_s:.1f} s after the last burst, and a recovery shows in 10 s of calm: "
            f"--run-time {np.ceil(needed_s):.0f}s would show it"
        )

    def slice_part(self, number: int, arrivals: Iterable[int], segment: int | None = None) -> SlicePart:
        """These arrivals, packed as one worker's part of slice `number`; an amendment gives its `segment`."""
        packed = orjson.dumps([_row(self.schedule, int(k), segment) for k in arrivals])
        return SlicePart(number, packed, hashlib.sha256(packed).hexdigest())


def _row(schedule: Schedule, k: int, segment: int | None) -> list[object]:
    return [
        k,
        round(float(schedule.at_s[k]) * 1e6),
        schedule.name[k],
        int(schedule.asked_input_tokens[k]),
        int(schedule.asked_output_tokens[k]),
        int(schedule.prompt_seed[k]),
        int(schedule.segment[k]) if segment is None else segment,
    ]


def unpack(part: SlicePart) -> Iterator[Arrival]:
    """The arrivals of a slice part in order. Raises ValueError when the bytes do not match their digest."""
    if hashlib.sha256(part.packed).hexdigest() != part.sha256:
        raise ValueError(f"slice {part.number} of the schedule does not match its digest")
    for index, at_us, *rest in orjson.loads(part.packed):
        yield Arrival(index, at_us / 1e6, *rest)


def url_told(text: str) -> str:
    """`text` with the values of a URL's query masked: some servers take their key there."""
    place, mark, query = text.partition("?")
    if "://" not in place or not mark:
        return text
    return f"{place}?" + "&".join(f"{part.partition('=')[0]}=…" for part in query.split("&"))


def make_plan(settings: RunSettings, run_id: str, options: dict[str, str], command: Sequence[str]) -> Plan:
    """Draw the schedule and describe the run. In a closed loop the users decide, and the schedule is empty.

    Raises ShapeError when the settings do not fit together.
    """
    shape = make_shape(settings.shape, settings.shape_settings)
    arrivals = arrivals_named(settings.arrivals, settings.cv)
    closed = settings.load == "closed"
    users = user_changes(shape) if closed else []
    schedule = (
        empty_schedule()
        if closed
        else draw_schedule(shape, arrivals, settings.seed, settings.input_lengths, settings.output_lengths)
    )
    schedule = replace(schedule, segment=segment_at(shape, schedule.at_s))
    info = RunInfo(
        run_id=run_id,
        name=settings.run_name,
        target=url_told(settings.target),
        model=settings.model,
        shape=settings.shape,
        arrivals=settings.arrivals,
        seed=settings.seed,
        duration_s=shape.duration_s,
        drain_s=settings.drain_s,
        command=[url_told(part) for part in command_told(command)],
        options=dict(options),
        load=settings.load,
        mean_rate_rps=None if closed else shape.mean_rate_rps,
        users_curve=[[float(at_s), float(count)] for at_s, count in users],
        bursts=[[burst.start_s, burst.end_s] for burst in shape.bursts()],
        rate_curve=[] if closed else rate_curve(shape),
        segments=segment_rows(shape),
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
