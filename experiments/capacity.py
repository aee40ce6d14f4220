"""`python -m experiments capacity`: the highest mean rate whose SLO holds, spread evenly and under a bursty
shape.

One run a rate, on a real server through Locust or on the simulated engine in virtual time; analysis.capacity
decides which rate comes next. The same seed at each rate.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import ceil
from pathlib import Path

from analysis.capacity import DEFAULT_SHARE, Trial, bracket, next_rate, requests_needed, trial_of
from analysis.capacity_page import capacity_page
from analysis.capacity_words import capacity_line, price, tried
from analysis.load import load_run
from analysis.numbers import percent, plain
from analysis.slo import SloError, parse_slo
from analysis.summary import plain as strict
from analysis.summary import summarize
from analysis.wording_capacity import CAPACITY_TEXT as TEXT
from experiments import simulate
from experiments.launch import not_begun, run_load
from experiments.suite_file import value_of
from loadgen.options import OPTIONS, OptionError
from runlog.exit_codes import ExitCode
from runlog.folder import write_text_atomically

Show = Callable[[str], object]
RunAt = Callable[[str, float, int], Path]
"""(shape, mean req/s, how many times the duration asked for) -> the run folder, the run having ended."""

START_OF_BURSTY = 0.7
"""Where the search under a bursty shape starts, as a share of the even load's capacity."""
MOST_TIMES_LONGER = 10
REQUESTS_TO_SPARE = 1.5
"""A run is planned for so many times the requests that could hold if all met their limits, for how many come
is chance, and one or two may miss them. MOST_TIMES_LONGER bounds how long it gets by that."""


@dataclass(frozen=True)
class Search:
    """What is searched for: the SLO as text, the share that must meet it, and how far to look."""

    slo: str
    share: float
    start_rps: float
    most_rps: float
    precision: float
    most_trials: int
    duration_s: float | None

    def times_longer(self, rate_rps: float) -> int:
        """How many times its duration a run at this rate takes, so that it has the requests to be judged;
        MOST_TIMES_LONGER at most."""
        if self.duration_s is None:
            return 1
        needed = REQUESTS_TO_SPARE * requests_needed(self.share)
        return min(max(1, ceil(needed / (rate_rps * self.duration_s))), MOST_TIMES_LONGER)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options: where, how far to search, then those of a load and of the simulated engine."""
    where = parser.add_argument_group("target")
    where.add_argument("--host", metavar="URL", help="a server to load through Locust")
    where.add_argument("--model", metavar="NAME", help="with --host: the model, as the server names it")
    where.add_argument(
        "--workers", type=int, default=0, metavar="N", help="with --host: worker processes (0)"
    )
    where.add_argument("--virtual", action="store_true", help="instead: the simulated engine in virtual time")
    search = parser.add_argument_group("search")
    search.add_argument(
        "--precision", type=float, default=5.0, metavar="PERCENT", help="how close to come (5)"
    )
    search.add_argument(
        "--max-rate", type=float, default=1000.0, metavar="R", help="no rate above this (1000)"
    )
    search.add_argument("--max-runs", type=int, default=12, metavar="N", help="runs per shape at most (12)")
    search.add_argument(
        "--cool-down", type=float, default=2.0, metavar="S", help="with --host: pause between runs (2)"
    )
    simulate.add_arguments(parser)
    parser.add_argument(
        "more", nargs="*", metavar="-- MORE", help="with --host: more options for Locust, after --"
    )
    parser.set_defaults(shape="pulse", duration="100s", rate="2", slo="ttft<1s,tpot<50ms@95%")


def capacity(arguments: argparse.Namespace, command: list[str], show: Show = print) -> ExitCode:
    """Search, show each step, write capacity.json and capacity.html beside the runs.

    Raises OptionError for options that do not fit, ShapeError for a shape that cannot be made, LaunchError
    when Locust does not start.
    """
    if bool(arguments.host) == arguments.virtual:
        raise OptionError("capacity needs either --host URL or --virtual")
    if arguments.host and not arguments.model:
        raise OptionError("capacity --host needs --model")
    search = search_of(arguments)
    folder = Path(arguments.runs_dir) / f"{datetime.now(UTC):%Y%m%dT%H%M%S}-capacity"
    folder.mkdir(parents=True)
    run_at = (
        in_virtual_time(arguments, folder, command)
        if arguments.virtual
        else over_http(arguments, folder, show)
    )
    show(TEXT["begin"].format(duration=arguments.duration, most=search.most_trials, folder=folder) + "\n")
    trials: dict[str, list[Trial]] = {}
    start_rps = search.start_rps
    for shape in dict.fromkeys(("uniform", arguments.shape)):
        trials[shape] = find(search, shape, start_rps, run_at, show)
        show(capacity_line(shape, trials[shape], search.slo, search.share) + "\n")
        start_rps = START_OF_BURSTY * (bracket(trials[shape]).holds_rps or start_rps / START_OF_BURSTY)
        start_rps = max(start_rps, 1e-3)
    return _conclude(arguments, search, trials, folder, show)


def find(search: Search, shape: str, start_rps: float, run_at: RunAt, show: Show) -> list[Trial]:
    """Try rates under one shape until the rule has found its capacity, or the trials are used up."""
    trials: list[Trial] = []
    while len(trials) < search.most_trials:
        rate_rps = next_rate(trials, start_rps, search.precision, search.most_rps)
        if rate_rps is None:
            break
        rate_rps = float(f"{rate_rps:.4g}")
        longer = search.times_longer(rate_rps)
        if longer > 1:
            show(TEXT["longer"].format(rate=plain(rate_rps), times=longer))
        run = load_run(run_at(shape, rate_rps, longer))
        trials.append(trial_of(summarize(run, search.slo), rate_rps, search.share))
        show(f"  {len(trials):>2}  {tried(trials[-1])}")
    return trials


def search_of(arguments: argparse.Namespace) -> Search:
    """What the options of `add_arguments` ask for. Raises OptionError."""
    if arguments.rate == "auto":
        raise OptionError(
            "capacity finds the rate itself: give --rate a number to begin with, or leave it out"
        )
    try:
        slo = parse_slo(arguments.slo)
        start_rps = float(arguments.rate)
    except (SloError, ValueError) as error:
        raise OptionError(str(error)) from error
    if not slo.per_request:
        raise OptionError(
            f"capacity needs limits per request, such as ttft<1s,tpot<50ms@95%; got {slo.text!r}"
        )
    share = DEFAULT_SHARE if slo.share is None else slo.share
    if share == 1:
        raise OptionError("capacity cannot tell that all requests meet a limit: ask for less than 100 %")
    if not (start_rps > 0 and arguments.precision > 0 and arguments.max_rate > 0 and arguments.max_runs > 0):
        raise OptionError("--rate, --precision, --max-rate and --max-runs must be above 0")
    return Search(
        slo=",".join(limit.text for limit in slo.per_request),
        share=share,
        start_rps=start_rps,
        most_rps=arguments.max_rate,
        precision=arguments.precision / 100,
        most_trials=arguments.max_runs,
        duration_s=value_of({"duration": arguments.duration}, "duration"),
    )


def in_virtual_time(arguments: argparse.Namespace, folder: Path, command: list[str]) -> RunAt:
    """Runs on the simulated engine, into `folder`. They raise OptionError for options that do not fit."""

    def run_at(shape: str, rate_rps: float, longer: int) -> Path:
        changed = {"shape": shape, "rate": f"{rate_rps:g}", "runs_dir": str(folder)}
        changed["duration"] = _times(arguments.duration, longer)
        told = argparse.Namespace(**{**vars(arguments), **changed})
        told.run_name = f"{shape}-{rate_rps:g}"
        try:
            return simulate.run_as_told(told, command, show=lambda text: None).folder
        except (ValueError, OSError) as error:
            raise OptionError(str(error)) from error

    return run_at


def over_http(arguments: argparse.Namespace, folder: Path, show: Show = print) -> RunAt:
    """Runs through Locust, into `folder`, with those options of the load that differ from their defaults,
    each told when it begins. They raise LaunchError when one does not begin."""
    given = [
        f"{option.flag}={getattr(arguments, option.name)}"
        for option in OPTIONS
        if option.name in simulate.LOAD_OPTIONS
        and option.name not in ("shape", "rate", "duration", "run_name", "runs_dir")
        and getattr(arguments, option.name) != option.default
    ]

    def run_at(shape: str, rate_rps: float, longer: int) -> Path:
        name, duration = f"{shape}-{rate_rps:g}", _times(arguments.duration, longer)
        show(TEXT["now"].format(shape=shape, rate=plain(rate_rps), duration=duration))
        run = run_load(
            [
                *("--host", arguments.host, "--model", arguments.model, "--runs-dir", str(folder.resolve())),
                *(f"--shape={shape}", f"--rate={rate_rps:g}", f"--run-name={name}"),
                f"--duration={duration}",
                *given,
                *arguments.more,
            ],
            folder / "logs" / name,
            workers=arguments.workers,
            limit_s=24 * 3600,
        )
        if run.folder is None:
            raise not_begun(f"the run {name}", run)
        time.sleep(arguments.cool_down)
        return run.folder

    return run_at


def _times(duration: str, longer: int) -> str:
    """A duration as an option tells it, so many times as long."""
    if longer == 1:
        return duration
    return f"{longer * value_of({'duration': duration}, 'duration'):g}s"


def _conclude(
    arguments: argparse.Namespace, search: Search, trials: dict[str, list[Trial]], folder: Path, show: Show
) -> ExitCode:
    sentences = [capacity_line(shape, tried_, search.slo, search.share) for shape, tried_ in trials.items()]
    bursty = trials[arguments.shape]
    told = price(trials["uniform"], bursty) if arguments.shape != "uniform" else None
    if told:
        sentences.insert(0, told)
    target = arguments.host or f"{arguments.preset}, virtual time"
    all_trials = [trial for rows in trials.values() for trial in rows]
    how = TEXT["how"].format(
        duration=arguments.duration, precision=percent(search.precision), share=percent(search.share)
    )
    page = capacity_page(TEXT["title"].format(target=target), sentences, how, all_trials, search.share)
    write_text_atomically(folder / "capacity.html", page)
    found = {
        "target": target,
        "search": asdict(search),
        "capacity": {shape: asdict(bracket(rows)) for shape, rows in trials.items()},
        "trials": [asdict(trial) for trial in all_trials],
    }
    text = json.dumps(strict(found), indent=2, allow_nan=False)
    write_text_atomically(folder / "capacity.json", text + "\n")
    if told:
        show(told)
    show(f"Runs and figures: {folder}\nPage: {folder / 'capacity.html'}")
    known = all(bracket(rows).holds_rps is not None for rows in trials.values())
    return ExitCode.OK if known else ExitCode.NOT_VALID
