"""`python -m bench.virtual`: virtual time against the same schedule over HTTP, and how fast virtual time is.

HTTP: the simulated server, a Locust master and its client, without workers. Both write run folders. Steps
have no noise in them (`--jitter 0`), for it falls otherwise in each run; how far noise alone moves the
medians is told beside. Three comparisons:

    medians of TTFT and TPOT
    request by request, by their number in the schedule: what a request is late by over HTTP
    the requests as the server's own log says that they came, once more in virtual time: whether the engine
    behind HTTP decided the same, and how late its tokens were

Speed: requests with the demo's lengths at the demo's rate, evenly spread.
"""

from __future__ import annotations

import argparse
import csv
import resource
import tempfile
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev

import numpy as np

from experiments.launch import run_load, simulated_server
from experiments.simulate import add_arguments, simulate
from runlog.folder import read_requests
from runlog.record import RequestRecord
from simserver.engine_options import engine_of
from simserver.presets import PRESETS
from simserver.request import Request
from simserver.virtual import run_virtually

RATE, INPUT, OUTPUT = "6.5", "lognormal:700,0.5", "60"
ENGINE = ("--preset", "a100-8b", "--max-num-batched-tokens", "2048")
WITHOUT_NOISE = ("--jitter", "0")
NOISE_SEEDS = 10
SAME_STEP_S = 1e-3
"""Requests are admitted at the moment at which their step was to begin, which both compute: what is apart
by more is another step."""


def _options(arguments: Sequence[str]) -> Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args([*arguments, *ENGINE])


@dataclass(frozen=True)
class Spent:
    """CPU time since the start of the command and the process's peak memory, at the end of a part of it."""

    cpu_s: float
    peak_mib: float


def _simulated(runs_dir: Path, *options: str) -> tuple[Path, list[Spent]]:
    """Simulate; returns the run folder and what was spent when the schedule was drawn, when all records were
    written, and when the table was made."""
    arguments = _options([*options, "--runs-dir", str(runs_dir)])
    before_s = time.process_time()
    spent: list[Spent] = []

    def note(shown: str) -> None:
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        spent.append(Spent(time.process_time() - before_s, peak_mib))

    simulate(arguments, ["bench.virtual"], show=note)
    (folder,) = runs_dir.iterdir()
    return folder, spent


def _succeeded(folder: Path) -> list[RequestRecord]:
    return [record for record in read_requests(folder) if record.outcome == "succeeded"]


def _medians_ms(records: Sequence[RequestRecord]) -> dict[str, float]:
    return {
        "TTFT": median(record.ttft_s for record in records if record.ttft_s is not None) * 1e3,
        "TPOT": median(record.tpot_s for record in records if record.tpot_s is not None) * 1e3,
    }


def compare(seconds: int) -> None:
    """One schedule, scenario B of the demo, both ways."""
    when = ("--shape", "pulse", "--lead", "10s", "--rate", RATE, "--run-time", f"{seconds}s", "--seed", "1")
    load = (*when, "--arrivals", "poisson", "--input-tokens", INPUT, "--output-tokens", OUTPUT)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        virtual = _succeeded(_simulated(folder / "virtual", *load, *WITHOUT_NOISE)[0])
        log = folder / "received.csv"
        serving = (*ENGINE, *WITHOUT_NOISE, "--model", "m", "--log", str(log))
        with simulated_server(folder / "server.log", *serving) as url:
            arguments = ["--host", url, "--model", "m", "--runs-dir", str(folder / "http"), *load]
            run = run_load(arguments, folder / "logs")
        if run.folder is None:
            raise SystemExit(f"the run over HTTP did not begin:\n{run.log.read_text()}")
        _tell_medians(_succeeded(run.folder), virtual)
        _tell_decisions(log)
        noisy = [
            _medians_ms(_succeeded(_simulated(folder / f"{seed}", *load, "--jitter-seed", f"{seed}")[0]))
            for seed in range(NOISE_SEEDS)
        ]
    for name in noisy[0]:
        values = [medians[name] for medians in noisy]
        print(
            f"noise of the steps alone ({NOISE_SEEDS} seeds in virtual time): median {name} "
            f"{mean(values):.1f} ms, standard deviation {stdev(values) / mean(values):.1%}"
        )


def _tell_medians(http: Sequence[RequestRecord], virtual: Sequence[RequestRecord]) -> None:
    there = _medians_ms(http)
    for name, value in _medians_ms(virtual).items():
        print(
            f"median {name}: HTTP {there[name]:.1f} ms, virtual {value:.1f} ms "
            f"({there[name] - value:+.1f} ms, {there[name] / value - 1:+.1%})"
        )
    ttft_s = {record.arrival: record.ttft_s for record in virtual}
    pairs = [(one.ttft_s, ttft_s.get(one.arrival)) for one in http]
    later_ms = [(one - other) * 1e3 for one, other in pairs if one is not None and other is not None]
    print(f"TTFT over HTTP - virtual, {len(later_ms)} requests: {_spread(later_ms)}")


def _tell_decisions(log: Path) -> None:
    """What came over HTTP, when it came, once more in virtual time."""
    with open(log, newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["outcome"] == "finished"]
    rows.sort(key=lambda row: float(row["received_monotonic_s"]))
    from_s = float(rows[0]["received_monotonic_s"])

    def moment_s(row: dict[str, str], name: str) -> float:
        return float(row[f"{name}_monotonic_s"]) - from_s

    again = [
        Request(
            row["request_id"], int(row["prompt_tokens"]), int(row["output_tokens"]), moment_s(row, "received")
        )
        for row in rows
    ]
    options = _options(WITHOUT_NOISE)
    run_virtually(engine_of(options, PRESETS[options.preset]), again)
    same, late_ms = 0, []
    for row, request in zip(rows, again, strict=True):
        admitted_s, first_s = request.admitted_at_s, request.first_token_at_s
        assert admitted_s is not None
        assert first_s is not None
        same += abs(moment_s(row, "admitted") - admitted_s) < SAME_STEP_S
        late_ms.append((moment_s(row, "first_token") - first_s) * 1e3)
    print(f"requests as received, in virtual time: {same} of {len(rows)} admitted by the same step")
    print(f"first tokens later than there: {_spread(late_ms)}")


def _spread(values_ms: Sequence[float]) -> str:
    low, middle, high = np.quantile(values_ms, (0.01, 0.5, 0.99))
    return f"p1 {low:.2f} ms, median {middle:.2f} ms, p99 {high:.2f} ms"


def speed(requests: int) -> None:
    """So many requests in virtual time: schedule, engine and run folder, and the table apart."""
    seconds = round(requests / float(RATE))
    load = ("--shape", "uniform", "--rate", RATE, "--run-time", f"{seconds}s", "--run-name", "speed")
    with tempfile.TemporaryDirectory() as place:
        _, (_, run, table, *_) = _simulated(
            Path(place) / "runs", *load, "--input-tokens", INPUT, "--output-tokens", OUTPUT
        )
    print(
        f"{requests:,} requests, {seconds:,} s of virtual time: {run.cpu_s:.1f} s of CPU "
        f"({seconds / run.cpu_s:,.0f} times real time), peak memory {run.peak_mib:.0f} MiB; "
        f"the table {table.cpu_s - run.cpu_s:.1f} s more, {table.peak_mib:.0f} MiB"
    )


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(prog="python -m bench.virtual", description=main.__doc__)
    parser.add_argument("--seconds", type=int, default=88, help="of load over HTTP; 0 for none (88)")
    parser.add_argument("--requests", type=int, default=100_000, help="for the speed; 0 for none (100,000)")
    parser.add_argument("--million", action="store_true", help="a million requests, nothing over HTTP")
    options = parser.parse_args()
    if options.million:
        options.seconds, options.requests = 0, 1_000_000
    if options.seconds:
        compare(options.seconds)
    if options.requests:
        speed(options.requests)


if __name__ == "__main__":
    main()
