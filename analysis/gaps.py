"""Chunk gaps of a run, read from gaps.f32 in blocks: pooled over requests, in bounded memory.

A chunk gap is the time between two streamed events with output. Where events hold more than one token it says
nothing of single tokens. Quantiles are exact although the gaps are never all in memory: the bits of a
positive float32 are ordered like its value, so one pass counts the gaps by their upper 16 bits, and a second
counts, by their lower 16, those in the few bins that hold the wanted ranks (a radix selection; 0.5 MB of
counts whatever the number of gaps).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.load import Run
from runlog.folder import GAPS_F32

BLOCK = 4_000_000
MOST_TOKENS_PER_CHUNK = 1.1
_BINS = 1 << 16
Blocks = Callable[[], Iterator[np.ndarray]]


def chunk_gaps(run: Run, tokens_per_chunk: float | None) -> dict[str, Any]:
    """summary.json's `chunk_gaps`: over the gaps of all successes of the load."""
    kept, why = kept_gaps(run)
    found = dict.fromkeys(("mean_s", "p50_s", "p99_s", "max_s"))
    if why is None:
        path, offsets, counts = run.folder / GAPS_F32, *located(run.load[kept])
        n, mean_s, (p50_s, p99_s, max_s) = pooled(
            lambda: of_requests(path, offsets, counts), (0.5, 0.99, 1.0)
        )
        found |= {"mean_s": mean_s, "p50_s": p50_s, "p99_s": p99_s, "max_s": max_s}
    per_token = tokens_per_chunk is not None and tokens_per_chunk <= MOST_TOKENS_PER_CHUNK
    note = None if per_token or why else _note(tokens_per_chunk)
    return {
        "n": n if why is None else 0,
        **found,
        "tokens_per_chunk": tokens_per_chunk,
        "note": note,
        "why_none": why,
    }


def _note(tokens_per_chunk: float | None) -> str:
    held = "an unknown number of" if tokens_per_chunk is None else f"{tokens_per_chunk:.2f}"
    return f"per chunk, not per token: an event holds {held} tokens on average"


def kept_gaps(run: Run) -> tuple[np.ndarray, str | None]:
    """Which requests of the load succeeded and have their gaps in gaps.f32, whole; and why there are none."""
    load, path = run.load, run.folder / GAPS_F32
    succeeded = (load["outcome"] == "succeeded").to_numpy()
    there = path.stat().st_size // 4 if path.exists() else 0
    ends = (load["gap_offset"] + load["gap_count"]).to_numpy(dtype=float, na_value=np.inf)
    kept = succeeded & (load["gap_count"].to_numpy(dtype=float, na_value=0.0) > 0) & (ends <= there)
    if kept.any():
        return kept, None
    return (
        kept,
        f"{GAPS_F32} holds no gaps of a success: streams of two events or more, and --gaps all, have them",
    )


def located(requests: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """(index of the first gap, number of gaps) of requests that have gaps, in the order of the file."""
    offsets = requests["gap_offset"].to_numpy(dtype=np.int64)
    order = np.argsort(offsets, kind="stable")
    return offsets[order], requests["gap_count"].to_numpy(dtype=np.int64)[order]


def of_requests(path: Path, offsets: np.ndarray, counts: np.ndarray) -> Iterator[np.ndarray]:
    """The gaps of the requests that `located` found, block by block."""
    end = int((offsets + counts).max())
    whole = int(counts.sum()) == end
    for first in range(0, end, BLOCK):
        block = read(path, first, min(BLOCK, end - first))
        yield block if whole else block[_covered(offsets, counts, first, len(block))]


def read(path: Path, first: int, count: int) -> np.ndarray:
    """`count` gaps from index `first` on, as float32 seconds."""
    return np.fromfile(path, dtype="<f4", count=count, offset=4 * first)


def _covered(offsets: np.ndarray, counts: np.ndarray, first: int, length: int) -> np.ndarray:
    """Which places of the block [first, first + length) belong to one of the requests."""
    begins = np.clip(offsets - first, 0, length)
    ends = np.clip(offsets + counts - first, 0, length)
    change = np.bincount(begins, minlength=length + 1) - np.bincount(ends, minlength=length + 1)
    return np.cumsum(change[:length]) > 0


def pooled(blocks: Blocks, quantiles: Iterable[float]) -> tuple[int, float, list[float]]:
    """(n, mean, quantiles) of all values in `blocks()`, which is gone through twice: non-negative float32.

    Quantiles are those of metrics.exact_quantile (position (n - 1) q, linear in between). There must be a
    value.
    """
    upper, total = np.zeros(_BINS, dtype=np.int64), 0.0
    for block in blocks():
        upper += np.bincount(_bits(block) >> 16, minlength=_BINS)
        total += float(block.sum(dtype=np.float64))
    n = int(upper.sum())
    positions = [(n - 1) * q for q in quantiles]
    ranks = sorted({min(math.floor(p) + step, n - 1) for p in positions for step in (0, 1)})
    value = dict(zip(ranks, _at_ranks(blocks, upper, ranks), strict=True))
    found = []
    for position in positions:
        below = math.floor(position)
        low, high = value[below], value[min(below + 1, n - 1)]
        found.append(low + (position - below) * (high - low))
    return n, total / n, found


def _at_ranks(blocks: Blocks, upper: np.ndarray, ranks: list[int]) -> list[float]:
    """The values of these 0-based ranks, given the counts by upper 16 bits."""
    until = np.cumsum(upper)
    bins = np.searchsorted(until, ranks, side="right")
    lower = {int(place): np.zeros(_BINS, dtype=np.int64) for place in bins}
    for block in blocks():
        bits = _bits(block)
        top = (bits >> 16).astype(np.uint16)
        for place, counts in lower.items():
            counts += np.bincount(bits[top == place] & 0xFFFF, minlength=_BINS)
    found = []
    for rank, place in zip(ranks, bins.tolist(), strict=True):
        within = rank - (int(until[place - 1]) if place else 0)
        low = int(np.searchsorted(np.cumsum(lower[place]), within, side="right"))
        found.append(float(np.array([place << 16 | low], dtype=np.uint32).view(np.float32)[0]))
    return found


def _bits(block: np.ndarray) -> np.ndarray:
    """The bits of the values, the sign left out."""
    return block.astype(np.float32, copy=False).view(np.uint32) & np.uint32(0x7FFFFFFF)
