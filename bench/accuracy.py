"""`python -m bench.accuracy`: our client, through Locust and the real dispatcher, against the truth server.

Streams: a closed loop of N users, which shows CPU per chunk and the errors of TTFT and gaps. A burst: N
requests at one moment from one worker, which shows how far they spread at the server. Requests: N users whose
answers are one chunk after 20 ms, which shows what a request itself costs. The server runs on one core and
the client on another; figures are of this machine at this moment.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from bench.own_run import Answers, Compared, closed_loop, run_and_compare, whole_cycles
from bench.process_watch import ProcessWatch, Reading
from bench.truth import NoCompiler
from client.engines import ENGINES
from experiments.launch import LaunchError
from runlog.exit_codes import ExitCode


@dataclass(frozen=True)
class Accuracy:
    """One run's figures; errors are the client's figure minus the truth, in milliseconds. None: nothing to
    tell.
    """

    load: str
    requests: int
    requests_per_s: float
    chunks_per_s: float
    delivered_ratio: float | None
    cpu_us_per_chunk: float | None
    ttft_error_p50_ms: float
    ttft_error_p99_ms: float
    gap_error_p99_ms: float | None
    send_lag_p99_ms: float | None
    burst_spread_ms: float | None
    connections: int


def measure_streams(
    streams: int, tokens: int, ttft_ms: float, gap_ms: float, seconds: float, engine: str = "direct"
) -> Accuracy:
    """A closed loop of `streams` users for `seconds`; those of it are measured in which all are there."""
    answers = Answers(tokens, ttft_ms, gap_ms)
    watch = ProcessWatch(whole_cycles(answers, seconds))
    arguments = [*closed_loop(streams, answers, seconds), "--engine", engine]
    compared = run_and_compare(arguments, answers, watch)
    offered = streams * tokens / answers.seconds
    return _figures(f"{streams} streams of {tokens} chunks", compared, watch.window, offered=offered)


def measure_burst(
    requests: int,
    tokens: int,
    ttft_ms: float,
    gap_ms: float,
    connections: str = "reuse",
    tls: bool = False,
    engine: str = "direct",
) -> Accuracy:
    """`requests` at one moment; "fresh" connections are opened in the burst."""
    arguments = ["--shape", "salvo", "--salvo", f"3s,{requests}", "--connections", connections]
    arguments += ["--engine", engine]
    compared = run_and_compare(arguments, Answers(tokens, ttft_ms, gap_ms), tls=tls)
    how = ", fresh connections" * (connections == "fresh") + ", TLS" * tls
    return _figures(f"burst of {requests}{how}", compared, None, burst=True)


def _figures(
    load: str,
    compared: Compared,
    window: tuple[Reading, Reading] | None,
    *,
    offered: float | None = None,
    burst: bool = False,
) -> Accuracy:
    gaps = compared.gaps
    pairs = [(record, compared.truth[record.request_id]) for record in compared.records]
    ttft_ms = [
        (record.ttft_s or 0.0) * 1e3 - (true.chunks_ns[0] - true.received_ns) / 1e6 for record, true in pairs
    ]
    gap_ms = [
        np.abs(gaps[record.request_id] * 1e3 - np.diff(true.chunks_ns) / 1e6)
        for record, true in pairs
        if len(gaps[record.request_id]) == len(true.chunks_ns) - 1
    ]
    errors = np.concatenate(gap_ms) if gap_ms else np.array([])
    written = np.concatenate([np.array(true.chunks_ns) for _, true in pairs])
    received = np.array([true.received_ns for _, true in pairs])
    if window:
        from_ns, until_ns, cpu_s = window[0].at_ns, window[1].at_ns, window[1].cpu_s - window[0].cpu_s
    else:
        from_ns, until_ns, cpu_s = int(received.min()), int(written.max()) + 1, None
    seconds = (until_ns - from_ns) / 1e9
    chunks = int(np.count_nonzero((written >= from_ns) & (written < until_ns)))
    lags = [record.send_lag_s for record, _ in pairs if record.send_lag_s is not None]
    return Accuracy(
        load=load,
        requests=len(pairs),
        requests_per_s=np.count_nonzero((received >= from_ns) & (received < until_ns)) / seconds,
        chunks_per_s=chunks / seconds,
        delivered_ratio=chunks / seconds / offered if offered else None,
        cpu_us_per_chunk=cpu_s * 1e6 / chunks if cpu_s is not None and chunks else None,
        ttft_error_p50_ms=float(np.quantile(ttft_ms, 0.5)),
        ttft_error_p99_ms=float(np.quantile(ttft_ms, 0.99)),
        gap_error_p99_ms=float(np.quantile(errors, 0.99)) if len(errors) else None,
        send_lag_p99_ms=float(np.quantile(lags, 0.99)) * 1e3 if lags else None,
        burst_spread_ms=(received.max() - received.min()) / 1e6 if burst else None,
        connections=len({true.connection for _, true in pairs}),
    )


def main() -> ExitCode:
    """Measure what the arguments ask for; print the figures of each load, or JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy", description=__doc__)
    parser.add_argument("--streams", default="50,200", help="closed loops to try, comma-separated (50,200)")
    parser.add_argument("--bursts", default="100,500", help="bursts to try, comma-separated (100,500)")
    parser.add_argument("--requests", default="100", help="users with one-chunk answers to try (100)")
    parser.add_argument("--tokens", type=int, default=50, help="chunks a stream (50)")
    parser.add_argument("--ttft-ms", type=float, default=200.0, help="true time to first token (200)")
    parser.add_argument("--gap-ms", type=float, default=40.0, help="true gap between chunks (40)")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a closed loop (10)")
    parser.add_argument("--connections", default="reuse", choices=("reuse", "fresh"), help="of bursts")
    parser.add_argument("--tls", action="store_true", help="bursts over TLS")
    parser.add_argument("--engine", choices=tuple(ENGINES), default="direct", help="what sends (direct)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    asked = parser.parse_args()
    try:
        for measure in _asked_for(asked):
            _print(measure(), asked.json)
    except (LaunchError, NoCompiler) as error:
        print(error, file=sys.stderr)
        return ExitCode.NOT_VALID
    return ExitCode.OK


def _asked_for(asked: argparse.Namespace) -> Iterator[Callable[[], Accuracy]]:
    answers = (asked.tokens, asked.ttft_ms, asked.gap_ms)
    for streams in _numbers(asked.streams):
        yield partial(measure_streams, streams, *answers, asked.seconds, asked.engine)
    for users in _numbers(asked.requests):
        yield partial(measure_streams, users, 1, 20.0, 0.0, asked.seconds, asked.engine)
    for requests in _numbers(asked.bursts):
        yield partial(measure_burst, requests, *answers, asked.connections, asked.tls, asked.engine)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def _print(found: Accuracy, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(found)), flush=True)
        return
    print(found.load)
    for name, value in asdict(found).items():
        if name != "load":
            shown = "n/a" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
            print(f"  {name:<22} {shown}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
