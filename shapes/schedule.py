"""Shape x arrivals x seed -> exact send times. Drawn once, by the master; every worker gets a slice.

Drawing once matters: floating point differs in the last bit between machines, and streams that workers drew
for themselves would be less bursty together than each alone. A schedule is the same, byte by byte, for the
same shape, arrivals, lengths, seed and NumPy version.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shapes.arrivals import Arrivals
from shapes.errors import ScheduleError, ShapeError
from shapes.lengths import Lengths
from shapes.shape import Shape

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

COLUMNS = (
    "arrival",
    "segment",
    "at_s",
    "name",
    "tenant",
    "session",
    "asked_input_tokens",
    "asked_output_tokens",
    "prompt_seed",
)
MOST_ARRIVALS = 20_000_000
CSV_ROWS = 8_192
"""Rows of schedule.csv that are text at one time."""
GRID = 4_096
RESOLUTION_S = 1e-8  # of the search; far below the microsecond that times are rounded to


class SeedChildren(NamedTuple):
    """One random stream for each thing that is drawn, so that changing one leaves the others as they were."""

    arrivals: np.random.Generator
    lengths: np.random.Generator
    prompts: np.random.Generator
    tenants: np.random.Generator


def seed_children(seed: int) -> SeedChildren:
    """Four independent PCG64 streams from `np.random.SeedSequence(seed).spawn(4)`, in the order of
    SeedChildren.

    Raises ShapeError for a negative seed.
    """
    if seed < 0:
        raise ShapeError(f"seed {seed} is impossible: it must be a whole number from 0 up")
    children = np.random.SeedSequence(seed).spawn(len(SeedChildren._fields))
    return SeedChildren(*(np.random.Generator(np.random.PCG64(child)) for child in children))


def draw_times(shape: Shape, arrivals: Arrivals, seed: int) -> FloatArray:
    """Send times in seconds, sorted, within [0, duration), rounded to 1 microsecond.

    Time-rescaling (Cinlar 1975): the k-th event E_k of a unit-rate process happens at the first moment t at
    which the expected arrivals exceed E_k. Poisson events become a Poisson process of that rate; a jump of
    n in the integral swallows the n events in it: a salvo. Raises ShapeError for a negative seed or more
    than MOST_ARRIVALS.
    """
    total = float(shape.expected_until(shape.duration_s))
    if total > MOST_ARRIVALS:
        raise ShapeError(
            f"{total:,.0f} requests in {shape.duration_s:g} s are too many for one schedule: "
            f"at most {MOST_ARRIVALS:,}"
        )
    events = arrivals.unit_times(seed_children(seed).arrivals, total)
    times = _first_moment_above(shape, events)
    last_us = math.ceil(shape.duration_s * 1e6) - 1
    return np.minimum(np.rint(times * 1e6), last_us) / 1e6


def _first_moment_above(shape: Shape, events: FloatArray) -> FloatArray:
    """The first t with expected_until(t) > E for each E: by a table to bracket it, then by bisection for
    all at once.

    Invariant: expected_until(low) <= E < expected_until(high), except that high = 0 where a salvo opens the
    load.
    """
    grid = np.linspace(0.0, shape.duration_s, GRID + 1)
    expected = np.maximum.accumulate(shape.expected_until(grid))  # rounding may make it fall by an ulp
    events = events[events < expected[-1]]
    place = np.searchsorted(expected, events, side="right")
    low, high = grid[np.maximum(place - 1, 0)], grid[place]
    halvings = max(math.ceil(math.log2(shape.duration_s / GRID / RESOLUTION_S)), 0)
    for _ in range(halvings):
        middle = (low + high) / 2
        above = shape.expected_until(middle) > events
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return high


@dataclass(frozen=True, eq=False)
class Schedule:
    """What is asked of the server, one entry per arrival in each column, in order of time.

    `at_s` seconds since the start of the load; `segment` the part of the plan it belongs to; `asked_*`
    tokens; `prompt_seed` the seed of the prompt's text (0 ... 2^63 - 1); tenant and session None where
    there is none. Raises ScheduleError when the columns differ in length or the times go backwards.
    """

    at_s: FloatArray
    segment: IntArray
    name: list[str]
    tenant: list[str | None]
    session: list[str | None]
    asked_input_tokens: IntArray
    asked_output_tokens: IntArray
    prompt_seed: IntArray

    def __post_init__(self) -> None:
        sizes = {column: len(getattr(self, column)) for column in COLUMNS[1:]}
        if len(set(sizes.values())) > 1:
            raise ScheduleError(f"the columns of a schedule must be equally long: {sizes}")
        if np.any(np.diff(self.at_s) < 0) or not np.all(np.isfinite(self.at_s)):
            raise ScheduleError("the times of a schedule must be finite and in order")

    def __len__(self) -> int:
        return len(self.at_s)

    def csv_parts(self) -> Iterator[bytes]:
        """schedule.csv in parts: a header and a row per arrival; RFC 4180 (CRLF), UTF-8, times to the
        microsecond."""
        for first in range(0, max(len(self), 1), CSV_ROWS):
            part = slice(first, first + CSV_ROWS)
            text = io.StringIO(newline="")
            rows = csv.writer(text, lineterminator="\r\n")
            if not first:
                rows.writerow(COLUMNS)
            rows.writerows(
                zip(
                    range(len(self))[part],
                    self.segment[part].tolist(),
                    [f"{at:.6f}" for at in self.at_s[part].tolist()],
                    self.name[part],
                    self.tenant[part],
                    self.session[part],
                    self.asked_input_tokens[part].tolist(),
                    self.asked_output_tokens[part].tolist(),
                    self.prompt_seed[part].tolist(),
                    strict=True,
                )
            )
            yield text.getvalue().encode()

    def to_csv_bytes(self) -> bytes:
        """schedule.csv whole."""
        return b"".join(self.csv_parts())

    def sha256(self) -> str:
        """The SHA-256 of schedule.csv in hex: two runs with the same one asked for exactly the same load."""
        digest = hashlib.sha256()
        for part in self.csv_parts():
            digest.update(part)
        return digest.hexdigest()

    @classmethod
    def from_csv(cls, data: bytes) -> Schedule:
        """The schedule that `to_csv_bytes` wrote. Raises ScheduleError when it cannot be read."""
        try:
            rows = list(csv.reader(io.StringIO(data.decode(), newline=""), strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            raise ScheduleError(f"schedule.csv cannot be read: {error}") from error
        if not rows or tuple(rows[0]) != COLUMNS:
            raise ScheduleError(f"schedule.csv must begin with the header {','.join(COLUMNS)}")
        for k, row in enumerate(rows[1:]):
            if len(row) != len(COLUMNS) or row[0] != str(k):
                raise ScheduleError(
                    f"schedule.csv, row {k + 1}: expected arrival {k} with {len(COLUMNS)} cells"
                )
        columns = list(zip(*rows[1:], strict=True)) or [()] * len(COLUMNS)
        _, segment, at_s, name, tenant, session, *numbers = columns
        try:
            times = np.array(at_s, dtype=np.float64)
            segments, *whole = (np.array(column, dtype=np.int64) for column in (segment, *numbers))
        except (ValueError, OverflowError) as error:
            raise ScheduleError(f"schedule.csv holds a cell that is no number: {error}") from error
        names = (list(name), [cell or None for cell in tenant], [cell or None for cell in session])
        return cls(times, segments, *names, *whole)


def empty_schedule() -> Schedule:
    """A schedule without arrivals: in a closed loop the users decide when requests are sent."""
    none = np.zeros(0, dtype=np.int64)
    return Schedule(np.zeros(0), none, [], [], [], none, none, none)


def draw_schedule(
    shape: Shape,
    arrivals: Arrivals,
    seed: int,
    input_lengths: Lengths,
    output_lengths: Lengths,
    name: str = "chat",
) -> Schedule:
    """The whole schedule of one shape, segment 0, without tenants or sessions.

    Lengths of prompts and answers have a stream each, so that changing one rule leaves the other's draws
    alone. Raises ShapeError as `draw_times` does.
    """
    at_s = draw_times(shape, arrivals, seed)
    n = len(at_s)
    streams = seed_children(seed)
    input_stream, output_stream = streams.lengths.spawn(2)
    return Schedule(
        at_s=at_s,
        segment=np.zeros(n, dtype=np.int64),
        name=[name] * n,
        tenant=[None] * n,
        session=[None] * n,
        asked_input_tokens=input_lengths.draw(input_stream, n),
        asked_output_tokens=output_lengths.draw(output_stream, n),
        prompt_seed=streams.prompts.integers(0, 2**63, n, dtype=np.int64),
    )
