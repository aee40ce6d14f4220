"""Random streams for what no schedule holds, drawn from the run's seed beside those of the schedule.

The schedule's streams are the first children of the seed (shapes.schedule.SeedChildren). These are the next
ones, so a probe or a user more leaves every other draw as it was.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from shapes.schedule import SeedChildren

_FIRST_FREE = len(SeedChildren._fields)


class Stream(IntEnum):
    """What is drawn for: the number of the seed's child."""

    USERS = _FIRST_FREE
    PROBES = _FIRST_FREE + 1
    WARM_UP = _FIRST_FREE + 2


def generators(seed: int, stream: Stream, *which: int) -> tuple[np.random.Generator, ...]:
    """Three independent PCG64 generators, for input lengths, output lengths and prompt seeds.

    `which` tells apart whose they are within the stream, such as a user and its turn.
    """
    children = np.random.SeedSequence(seed, spawn_key=(stream, *which)).spawn(3)
    return tuple(np.random.Generator(np.random.PCG64(child)) for child in children)


def prompt_seeds(rng: np.random.Generator, n: int) -> list[int]:
    """`n` seeds of prompts, 0 ... 2^63 - 1 as in the schedule."""
    drawn: list[int] = rng.integers(0, 2**63, n, dtype=np.int64).tolist()
    return drawn
