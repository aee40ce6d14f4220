"""`python -m bench.virtual`: virtual time against the same schedule over HTTP, and how fast virtual time is.

HTTP: the simulated server, a Locust master and its client, without workers. Both write run folders; compared
are the medians of TTFT and TPOT. Speed: requests with the demo's lengths at the demo's rate, evenly spread.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from statistics import median

from experiments.launch import run_load, simulated_server
from experiments.simulate import add_arguments, simulate
from runlog.folder import read_requests

RATE, INPUT, OUTPUT = "6.5", "lognormal:700,0.5", "60"
ENGINE = ("--preset", "a100-8b", "--max-num-batched-tokens", "2048")


def _simulated(runs_dir: Path, *options: str) -> tuple[Path, float, float]:
    """Simulate; returns the run folder, the CPU time it took and the wall time."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    arguments: Namespace = parser.parse_args([*options, *ENGINE, "--runs-dir", str(runs_dir)])
    before_s, began_s = time.process_time(), time.perf_counter()
    simulate(arguments, ["bench.virtual"], show=lambda text: None)
    (folder,) = runs_dir.iterdir()
    return folder, time.process_time() - before_s, time.perf_counter() - began_s


def _medians_ms(folder: Path) -> dict[str, float]:
    records = [record for record in read_requests(folder) if record.outcome == "succeeded"]
    return {
        "TTFT": median(record.ttft_s for record in records if record.ttft_s is not None) * 1e3,
        "TPOT": median(record.tpot_s for record in records if record.tpot_s is not None) * 1e3,
    }


def compare(seconds: int) -> None:
    """One schedule, scenario B of the demo, both ways."""
    load = ("--shape", "pulse", "--lead", "10s", "--rate", RATE, "--run-time", f"{seconds}s", "--seed", "1")
    lengths = ("--input-tokens", INPUT, "--output-tokens", OUTPUT, "--arrivals", "poisson")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        virtual = _medians_ms(_simulated(folder / "virtual", *load, *lengths)[0])
        with simulated_server(folder / "server.log", *ENGINE, "--model", "m") as url:
            arguments = ["--host", url, "--model", "m", "--runs-dir", str(folder / "http"), *load, *lengths]
            run = run_load(arguments, folder / "logs")
        if run.folder is None:
            raise SystemExit(f"the run over HTTP did not begin:\n{run.log.read_text()}")
        http = _medians_ms(run.folder)
    for name, value in virtual.items():
        print(
            f"median {name}: HTTP {http[name]:.1f} ms, virtual {value:.1f} ms "
            f"({http[name] - value:+.1f} ms, {http[name] / value - 1:+.1%})"
        )


def speed(requests: int) -> None:
    """So many requests in virtual time, run folder and table included."""
    seconds = round(requests / float(RATE))
    load = ("--shape", "uniform", "--rate", RATE, "--run-time", f"{seconds}s", "--run-name", "speed")
    with tempfile.TemporaryDirectory() as place:
        _, cpu_s, wall_s = _simulated(
            Path(place) / "runs", *load, "--input-tokens", INPUT, "--output-tokens", OUTPUT
        )
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{requests:,} requests, {seconds:,} s of virtual time: {cpu_s:.1f} s of CPU, {wall_s:.1f} s of wall "
        f"time ({seconds / wall_s:,.0f} times real time), peak memory {peak_mib:.0f} MiB"
    )


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(prog="python -m bench.virtual", description=main.__doc__)
    parser.add_argument("--seconds", type=int, default=88, help="of load over HTTP; 0 for none (88)")
    parser.add_argument("--requests", type=int, default=100_000, help="for the speed; 0 for none (100,000)")
    options = parser.parse_args()
    if options.seconds:
        compare(options.seconds)
    if options.requests:
        speed(options.requests)


if __name__ == "__main__":
    main()
