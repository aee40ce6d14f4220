"""What a client measured against what happened: figures of one run, ratios within a repeat, a table.

samples     │ chunks written, CPU used, every quarter second      ─► window ─┐
measured    │ TTFT and gaps as the client recorded them                      ├─► Figures ─► table
truth       │ when each request arrived and each chunk was written ──────────┘
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.loads import Load
from bench.peers import Measured
from bench.truth import TrueStream

REQUESTS_BEFORE_THE_LOAD = 4  # at most this many are a client's look at the server
WARM_S, TAIL_S = 2.0, 1.0


@dataclass(frozen=True)
class Sample:
    """One look at server and client: totals up to then, and the requests being answered."""

    at_ns: int
    chunks: int
    requests: int
    active: int
    client_cpu_s: float
    core_busy_s: float


@dataclass(frozen=True)
class Figures:
    """One client under one load. Errors are the client's figure minus the truth. None: not to be had.

    `chunks_per_s` and `cpu_us_per_chunk` count what the server wrote in the steady window, and the CPU time
    of all the client's processes in it. `other_cores` is other work on the client's cores meanwhile.
    `compared` counts the requests whose record was held against its own truth. `gaps_are` says what the gap
    error compares: each "chunk", or a "mean" per request.
    `server_late_ms` is the worst lateness of the server's own clock: what the machine's noise can do.
    """

    client: str
    version: str
    load: str
    repeat: int
    requests: int
    connections: int
    compared: int
    window_s: float
    requests_per_s: float
    chunks_per_s: float
    offered_chunks_per_s: float | None
    cpu_us_per_chunk: float | None
    client_cores: float
    other_cores: float
    ttft_error_p50_ms: float
    ttft_error_p99_ms: float
    gap_error_p99_ms: float | None
    gaps_are: str | None
    burst_spread_ms: float | None
    server_late_ms: float


class NoResult(Exception):
    """A run tells nothing: too little was sent, or no record fits what the server saw."""


def window_of(samples: Sequence[Sample], load: Load, seconds: float) -> tuple[Sample, Sample]:
    """The steady part of a run: from WARM_S after its start until TAIL_S before its end, or until its last
    request was under way if that was earlier; of a burst all. Raises NoResult.
    """
    begun = next(
        (place for place, sample in enumerate(samples) if sample.requests > REQUESTS_BEFORE_THE_LOAD), None
    )
    if begun is None:
        raise NoResult("the server saw no load")
    if load.once:
        after = samples[begun:]
        quiet = next((sample for sample in after if not sample.active), after[-1])
        return samples[max(begun - 1, 0)], quiet
    start_ns = samples[begun].at_ns
    until_ns = start_ns + round((seconds - TAIL_S) * 1e9)
    steady = [
        sample
        for sample in samples
        if start_ns + round(WARM_S * 1e9) <= sample.at_ns <= until_ns and sample.active
    ]
    if len(steady) < 2:
        raise NoResult("the load ended before it was steady: give more --seconds")
    return steady[0], steady[-1]


def figures(
    client: str,
    version: str,
    load: Load,
    repeat: int,
    *,
    window: tuple[Sample, Sample],
    measured: Sequence[Measured],
    truth: Mapping[str, TrueStream],
    server_late_ms: float,
) -> Figures:
    """The figures of one run; only requests that arrived in the window are compared, of a burst all.

    Raises NoResult when no record belongs to a request that the server saw.
    """
    first, last = window
    window_s = (last.at_ns - first.at_ns) / 1e9
    chunks = last.chunks - first.chunks
    cpu_s = last.client_cpu_s - first.client_cpu_s
    inside = {
        request_id: true
        for request_id, true in truth.items()
        if true.chunks_ns and (load.once or first.at_ns <= true.received_ns <= last.at_ns)
    }
    pairs = [(one, inside[one.request_id]) for one in measured if one.request_id in inside]
    if not pairs:
        raise NoResult(f"none of its {len(measured)} records is of a request that the server saw in the load")
    ttft_ms = [one.ttft_ms - (true.chunks_ns[0] - true.received_ns) / 1e6 for one, true in pairs]
    gaps_are, gap_ms = _gap_errors(pairs)
    received = [true.received_ns for _, true in pairs]
    return Figures(
        client=client,
        version=version,
        load=load.name,
        repeat=repeat,
        requests=len(truth),
        connections=len({true.connection for true in truth.values()}),
        compared=len(pairs),
        window_s=window_s,
        requests_per_s=(last.requests - first.requests) / window_s,
        chunks_per_s=chunks / window_s,
        offered_chunks_per_s=load.offered_chunks_per_s,
        cpu_us_per_chunk=cpu_s * 1e6 / chunks if chunks else None,
        client_cores=cpu_s / window_s,
        other_cores=(last.core_busy_s - first.core_busy_s - cpu_s) / window_s,
        ttft_error_p50_ms=float(np.quantile(ttft_ms, 0.5)),
        ttft_error_p99_ms=float(np.quantile(ttft_ms, 0.99)),
        gap_error_p99_ms=float(np.quantile(gap_ms, 0.99)) if gap_ms else None,
        gaps_are=gaps_are,
        burst_spread_ms=(max(received) - min(received)) / 1e6 if load.once else None,
        server_late_ms=server_late_ms,
    )


def _gap_errors(pairs: Iterable[tuple[Measured, TrueStream]]) -> tuple[str | None, list[float]]:
    """|recorded - true| of every gap, or of each request's mean gap."""
    each: list[float] = []
    means: list[float] = []
    for one, true in pairs:
        written_ms = np.diff(true.chunks_ns) / 1e6
        if not len(written_ms):
            continue
        if one.gaps_ms is not None and len(one.gaps_ms) == len(written_ms):
            each += np.abs(np.array(one.gaps_ms) - written_ms).tolist()
        elif one.mean_gap_ms is not None:
            means.append(abs(one.mean_gap_ms - float(written_ms.mean())))
    return ("chunk", each) if each else ("mean", means) if means else (None, [])


# --- several runs ---


def order(clients: Sequence[str], repeat: int) -> list[str]:
    """Forwards and backwards in turn, so that none always runs after the same other."""
    return list(clients) if repeat % 2 == 0 else list(reversed(clients))


def cpu_ratio(one: Figures, base: str | None, runs: Iterable[Figures]) -> float | None:
    """CPU per chunk of a run over that of `base` under the same load in the same repeat."""
    for other in runs:
        if (other.client, other.load, other.repeat) == (base, one.load, one.repeat):
            if not one.cpu_us_per_chunk or not other.cpu_us_per_chunk:
                return None
            return one.cpu_us_per_chunk / other.cpu_us_per_chunk
    return None


COLUMNS: tuple[tuple[str, int, Callable[[Figures], float | None]], ...] = (
    ("chunks/s", 0, lambda run: run.chunks_per_s),
    ("of the offer", 2, lambda run: _ratio(run.chunks_per_s, run.offered_chunks_per_s)),
    ("requests/s", 0, lambda run: run.requests_per_s),
    ("µs CPU/chunk", 1, lambda run: run.cpu_us_per_chunk),
    ("TTFT error p50 ms", 2, lambda run: run.ttft_error_p50_ms),
    ("TTFT error p99 ms", 2, lambda run: run.ttft_error_p99_ms),
    ("gap error p99 ms", 2, lambda run: run.gap_error_p99_ms),
    ("connections/request", 2, lambda run: _ratio(run.connections, run.requests)),
    ("burst spread ms", 1, lambda run: run.burst_spread_ms),
    ("requests compared", 0, lambda run: run.compared),
    ("client cores", 2, lambda run: run.client_cores),
    ("other work, cores", 2, lambda run: run.other_cores),
    ("server late ms", 1, lambda run: run.server_late_ms),
)
"""Heading, decimals, value: medians over the repeats are shown."""


def _ratio(part: float, whole: float | None) -> float | None:
    return part / whole if whole else None


def table(runs: Sequence[Figures], base: str | None) -> str:
    """Markdown, one table a load: a row a client, medians over repeats, ratio to `base` with its range."""
    parts = []
    for load in dict.fromkeys(run.load for run in runs):
        here = [run for run in runs if run.load == load]
        headings = [heading for heading, _, _ in COLUMNS]
        if base is not None:
            headings.insert(4, f"CPU/chunk of {base}'s")
        lines = [f"### {load}", "", _row(["client", *headings]), _row([":--", *["--:"] * len(headings)])]
        for client in dict.fromkeys(run.client for run in here):
            mine = [run for run in here if run.client == client]
            cells = [_cell([value(run) for run in mine], decimals) for _, decimals, value in COLUMNS]
            if base is not None:
                cells.insert(4, _range([cpu_ratio(run, base, here) for run in mine]))
            lines.append(_row([f"{client} {mine[0].version}".strip(), *cells]))
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(values: Sequence[float | None], decimals: int) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.{decimals}f}" if known else "-"


def _range(values: Sequence[float | None]) -> str:
    known = sorted({f"{value:.2f}" for value in values if value is not None})
    return f"{known[0]}–{known[-1]}" if len(known) > 1 else known[0] if known else "-"
