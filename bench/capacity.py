"""`python -m bench.capacity`: the capacity found over HTTP in real time, beside the one in virtual time.

The same search on the same schedules, twice: through Locust against the simulated server, and on its engine
in virtual time; evenly spread, and in the pulses of scenario B. Then what `--rate auto` finds on the same
server within half a minute, beside the even load's capacity in virtual time over LONG times the length, so
that chance in one short schedule is out of it. Takes about 12 minutes a seed.
"""

from __future__ import annotations

import argparse
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.capacity import Bracket, bracket
from experiments.capacity import (
    RunAt,
    add_arguments,
    find,
    in_virtual_time,
    over_http,
    search_of,
)
from experiments.launch import run_load, simulated_server
from runlog.folder import read_run_info

ENGINE = ("--preset", "a100-8b", "--max-num-batched-tokens", "2048")
"""The demo's, slow enough for two cores: some 10 requests/s. On a slower one bursts have so few requests that
attainment over the rate is no smooth curve, and where it crosses the share demanded is chance."""
SLO = "ttft<1s,tpot<50ms@95%"
LENGTHS = ("--input-tokens", "lognormal:700,0.5", "--output-tokens", "60")
START = {"uniform": 9.0, "pulse": 4.0}
"""Near what the engine can do, so that fewer runs lead there."""
PARTS = (*START, "auto")
LONG = 8


@dataclass(frozen=True)
class Row:
    """One line of the table: the capacity over HTTP and in virtual time, requests/s; None = not found."""

    seed: int
    what: str
    http_rps: float | None
    virtual_rps: float | None

    def __str__(self) -> str:
        http, virtual = self.http_rps, self.virtual_rps
        ratio = f"{http / virtual:8.2f}" if http and virtual else "     n/a"
        return f"{self.seed:4}  {self.what:<12}{_shown(http)}{_shown(virtual)}{ratio}"


def _shown(rate_rps: float | None) -> str:
    return f"{'n/a' if rate_rps is None else f'{rate_rps:.3g}':>10}"


def _options(arguments: Namespace, seed: int, *where: str, longer: int = 1) -> Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    load = ("--slo", SLO, *LENGTHS, "--arrivals", "poisson", "--seed", str(seed))
    how = ("--duration", f"{arguments.seconds * longer}s", "--precision", str(arguments.precision))
    return parser.parse_args([*where, *load, *how])


def _searched(options: Namespace, shape: str, run_at: RunAt, name: str) -> Bracket:
    """The bracket of one search, told run by run."""

    def show(line: str) -> None:
        print(f"  {name:<8}{line.strip()}", flush=True)

    return bracket(find(search_of(options), shape, START[shape], run_at, show))


def _auto_rps(url: str, seed: int, folder: Path) -> float | None:
    """The capacity that `--rate auto` finds; None when it finds none."""
    load = ("--rate", "auto", "--run-time", "4s", "--slo", SLO, *LENGTHS, "--seed", str(seed))
    run = run_load(["--host", url, "--model", "m", "--runs-dir", str(folder), *load], folder / "logs")
    if run.folder is None:
        return None
    found: float = read_run_info(run.folder).rate_calibration["capacity_rps"]
    return found


def rows(arguments: Namespace, seed: int, folder: Path) -> Iterator[Row]:
    """All that `arguments.parts` ask for, with one seed."""
    for part in arguments.parts:
        print(f"seed {seed}, {part}", flush=True)
        auto = part == "auto"
        shape = "uniform" if auto else part
        options = _options(arguments, seed, "--virtual", *ENGINE, longer=LONG if auto else 1)
        runs = in_virtual_time(options, folder / f"virtual-{part}", [])
        virtual = _searched(options, shape, runs, "virtual")
        with simulated_server(folder / f"server-{part}.log", "--model", "m", *ENGINE) as url:
            if auto:
                http_rps = _auto_rps(url, seed, folder / "auto")
            else:
                options = _options(arguments, seed, "--host", url, "--model", "m")
                http_rps = _searched(options, shape, over_http(options, folder / part), "HTTP").holds_rps
        yield Row(seed, "--rate auto" if auto else part, http_rps, virtual.holds_rps)


def main(argv: Sequence[str] | None = None) -> None:
    """Search and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.capacity", description=__doc__)
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS), metavar="PART,...")
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[1])
    parser.add_argument("--seconds", type=int, default=40, help="length of each run (40)")
    parser.add_argument("--precision", type=float, default=5.0, metavar="PERCENT", help="of the search (5)")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as place:
        table: list[Row] = []
        for seed in arguments.seeds:
            folder = Path(place) / str(seed)
            folder.mkdir()
            for row in rows(arguments, seed, folder):
                print(row, flush=True)
                table.append(row)
    print(f"\n{' '.join(ENGINE)}, {SLO}; requests/s")
    print(f"{'seed':>4}  {'load':<12}{'HTTP':>10}{'virtual':>10}{'ratio':>8}")
    print("\n".join(map(str, table)))


if __name__ == "__main__":
    main()
