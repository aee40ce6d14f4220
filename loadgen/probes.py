"""Probes: small requests at a constant spacing beside the load, whose TTFT shows when a server has recovered.

    load      ▁▁▁▁▁▁▁▁▁▁▁█▁▁▁▁▁▁▁▁▁▁▁▁▁▁
    probes    · · · · · · · · · · · · ·        one a second, half a spacing off the start

After a salvo over silence nothing else arrives that could tell. A probe asks for 8 tokens after 10: so little
prefill that its TTFT is the wait for a place in the batch, and so little decode that one a second is no load.
It asks for more than one token because the first may show no text (half of a character, an empty reasoning
mark), and then there would be no TTFT. Probes have rows of their own name and enter no figure of the load.
"""

from __future__ import annotations

import math
import re

from loadgen.arrival import Arrival
from loadgen.seeds import Stream, generators, prompt_seeds
from runlog.record import PROBE

INPUT_TOKENS = 10
OUTPUT_TOKENS = 8
MOST_PER_S = 10.0
"""More would be a load themselves."""


def parse_probes(text: str) -> float | None:
    """Probes per second from "1/s", "2/s" or "0.5/s"; None for "none" or nothing. Raises ValueError."""
    text = text.strip()
    if text in ("", "none"):
        return None
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*/\s*s", text)
    if not found:
        raise ValueError(f"{text[:40]!r} is not a rate of probes; write 1/s, 2/s or 0.5/s, or none")
    rate = float(found[1])
    if not 0 < rate <= MOST_PER_S:
        raise ValueError(f"{text!r}: give more than 0 and at most {MOST_PER_S:g}/s, or none for no probes")
    return rate


def probe_times(rate: float, duration_s: float) -> list[float]:
    """The moments in [0, duration_s): (k + 1/2) / rate, to the microsecond.

    The half keeps them off the whole seconds at which bursts tend to begin.
    """
    times = (round((k + 0.5) / rate, 6) for k in range(math.ceil(rate * duration_s)))
    return [at_s for at_s in times if at_s < duration_s]


def probe_arrivals(rate: float, duration_s: float, seed: int) -> list[Arrival]:
    """The probes of a run in order of time, for one worker to send among its arrivals."""
    times = probe_times(rate, duration_s)
    _, _, prompts = generators(seed, Stream.PROBES)
    return [
        Arrival(None, at_s, PROBE, INPUT_TOKENS, OUTPUT_TOKENS, prompt_seed, label=f"{PROBE}-{n}")
        for n, (at_s, prompt_seed) in enumerate(zip(times, prompt_seeds(prompts, len(times)), strict=True))
    ]
