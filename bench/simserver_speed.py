"""`python -m bench.simserver_speed`: what the simulated server streams on one core, and how punctually.

The server on one core; on another the reader (plain_reader.py) and the truth server, which writes a few
streams on a clock meanwhile, with real-time priority where it may: how late its timers are is the machine's
part. Steps take `--step-ms` whatever is in them, so that 500 streams ask for 500 / step events a second. The
first answers end scattered, so that later ones do.

    events/s            what the reader counted, of all that were due
    CPU of the server   in cores
    step lateness       from the end of a step to the first of its tokens written (the server's /metrics)
    step writing        from there to the last
    timer lateness      from the moment a chunk of the truth server is due until it is written
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from bench.own_run import CLIENT_CORE, SERVER_CORE
from bench.plain_reader import Reader
from bench.truth import NoCompiler, true_streams, truth_server
from experiments.launch import simulated_server
from runlog.exit_codes import ExitCode

TRUE_STREAMS, TRUE_GAP_MS, TRUE_TOKENS = 20, 40.0, 25
QUANTILES = (0.5, 0.99)

Buckets = dict[float, float]


@dataclass(frozen=True)
class Page:
    """What the server's /metrics says at one moment: counts up to each edge of two histograms, in seconds."""

    cpu_s: float
    tokens: float
    lateness: Buckets
    writing: Buckets


@dataclass(frozen=True)
class Speed:
    """One run's figures; the pairs are the quantiles of QUANTILES."""

    step_ms: float
    due_per_s: float
    events_per_s: float
    tokens_per_s: float
    server_cores: float
    reader_cores: float
    lateness_ms: tuple[float, ...]
    writing_ms: tuple[float, ...]
    timer_ms: tuple[float, ...]

    def told(self) -> str:
        """A few lines of text."""
        pairs = {
            "step lateness": self.lateness_ms,
            "step writing": self.writing_ms,
            "timer lateness": self.timer_ms,
        }
        return "\n".join(
            [
                f"steps of {self.step_ms:g} ms: {self.due_per_s:,.0f} events/s due",
                f"  {self.events_per_s:,.0f} events/s read ({self.tokens_per_s:,.0f} tokens/s made); "
                f"CPU of the server {self.server_cores:.2f} cores "
                f"({self.server_cores / self.events_per_s * 1e6:.1f} us an event), of the reader "
                f"{self.reader_cores:.2f}",
                *(
                    f"  {name:<15} p50 {median:.2f} ms, p99 {most:.2f} ms"
                    for name, (median, most) in pairs.items()
                ),
                f"  p99 of steps / p99 of timers: {self.lateness_ms[1] / self.timer_ms[1]:.1f}",
            ]
        )


def measure(streams: int, tokens: int, step_ms: float, seconds: float) -> Speed:
    """Let `streams` streams run, each answer `tokens` long, and measure for `seconds`."""
    cores = sorted(os.sched_getaffinity(0))
    apart = len(cores) > 1
    client, server = ([cores[CLIENT_CORE]], [cores[SERVER_CORE]]) if apart else ([], [])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "step.csv").write_text(
            "tokens,cached_tokens,sequences,step_s\n"
            f"1,0,1,{step_ms / 1e3}\n1000000,1000000,1000000,{step_ms / 1e3}\n"
        )
        engine = ("--fit", str(folder / "step.csv"), "--max-num-seqs", str(streams), "--jitter", "0")
        with (
            truth_server(TRUE_GAP_MS, TRUE_GAP_MS, TRUE_TOKENS, client) as truth_url,
            simulated_server(folder / "server.log", *engine, "--model", "m", cores=server) as url,
            Reader() as reader,
        ):
            if apart:
                os.sched_setaffinity(0, client)
            try:
                return _measure(reader, url, truth_url, streams, tokens, step_ms, seconds)
            finally:
                if apart:
                    os.sched_setaffinity(0, cores)


def _measure(
    reader: Reader, url: str, truth_url: str, streams: int, tokens: int, step_ms: float, seconds: float
) -> Speed:
    for number in range(streams):
        reader.open(url, "m", tokens, first_tokens=1 + number * tokens // streams + tokens // 4)
        reader.read_until(time.monotonic() + 0.002)
    reader.read_until(time.monotonic() + 1.0)
    for number in range(TRUE_STREAMS):
        reader.open(truth_url, "truth", TRUE_TOKENS, first_tokens=1 + number)
    reader.read_until(time.monotonic() + 1.0)
    before, began_s, used_s, seen = _page(url), time.monotonic(), time.process_time(), reader.events
    reader.read_until(began_s + seconds)
    events, took_s, used_s = reader.events - seen, time.monotonic() - began_s, time.process_time() - used_s
    after, written_s = _page(url), time.monotonic() - began_s
    late_ms = _true_lateness_ms(truth_url, began_s, began_s + took_s)
    return Speed(
        step_ms=step_ms,
        due_per_s=streams / step_ms * 1e3,
        events_per_s=(events - len(late_ms)) / took_s,
        tokens_per_s=(after.tokens - before.tokens) / written_s,
        server_cores=(after.cpu_s - before.cpu_s) / written_s,
        reader_cores=used_s / took_s,
        lateness_ms=_quantiles_ms(before.lateness, after.lateness),
        writing_ms=_quantiles_ms(before.writing, after.writing),
        timer_ms=tuple(float(value) for value in np.quantile(late_ms, QUANTILES)),
    )


def _page(url: str) -> Page:
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        families = {family.name: family for family in text_string_to_metric_families(answer.read().decode())}

    def total(name: str) -> float:
        return sum(sample.value for sample in families[name].samples if sample.name.endswith("_total"))

    def buckets(name: str) -> Buckets:
        return {
            float(sample.labels["le"]): sample.value
            for sample in families[name].samples
            if "le" in sample.labels
        }

    return Page(
        total("process_cpu_seconds"),
        total("vllm:generation_tokens"),
        buckets("simserver_step_lateness_seconds"),
        buckets("simserver_step_writing_seconds"),
    )


def _quantiles_ms(before: Buckets, after: Buckets) -> tuple[float, ...]:
    """Quantiles of what a histogram took in meanwhile, by straight lines between its edges."""
    edges = sorted(after)
    counts = np.array([after[edge] - before[edge] for edge in edges])
    finite = np.array([0.0, *edges[:-1], edges[-2]])
    shares = np.concatenate(([0.0], counts / counts[-1]))
    return tuple(float(np.interp(share, shares, finite)) * 1e3 for share in QUANTILES)


def _true_lateness_ms(url: str, from_s: float, until_s: float) -> Sequence[float]:
    """How much later than due each chunk of the truth server was written in a window."""
    return [
        (at_ns - stream.received_ns) / 1e6 - (number + 1) * TRUE_GAP_MS
        for stream in true_streams(url).values()
        for number, at_ns in enumerate(stream.chunks_ns)
        if from_s <= at_ns / 1e9 < until_s
    ]


def main() -> ExitCode:
    """Measure once for each length of a step."""
    parser = argparse.ArgumentParser(prog="python -m bench.simserver_speed", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--streams", type=int, default=500, help="at a time (500)")
    parser.add_argument("--tokens", type=int, default=200, help="of an answer (200)")
    parser.add_argument(
        "--step-ms", default="40,20", help="lengths of a step to try, comma-separated (40,20)"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="that are measured (10)")
    asked = parser.parse_args()
    try:
        for step_ms in map(float, asked.step_ms.split(",")):
            print(measure(asked.streams, asked.tokens, step_ms, asked.seconds).told(), flush=True)
    except (NoCompiler, ConnectionError) as error:
        print(error, file=sys.stderr)
        return ExitCode.NOT_VALID
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
