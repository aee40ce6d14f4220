"""`python -m experiments quick`: what bursts cost on a server that runs already, in about five minutes.

A suite of two scenarios on one server, at one mean rate: the first run finds it (`--rate auto`), the second
takes it over. Its page is the suite's.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from experiments.suite import Show, carry_out, options_set, running_server
from experiments.suite_file import Suite
from runlog.exit_codes import ExitCode

RUN_TIME = "120s"
SCENARIOS = {
    "A": {"shape": "uniform"},
    "B": {"shape": "pulse", "period": "20s", "peak_ratio": "5"},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `quick`."""
    parser.add_argument("--host", required=True, metavar="URL", help="the server's base URL")
    parser.add_argument("--model", required=True, metavar="NAME", help="the model, as the server names it")
    parser.add_argument(
        "--run-time", default=RUN_TIME, metavar="S", help=f"length of each of the two runs ({RUN_TIME})"
    )
    parser.add_argument("--workers", type=int, default=0, metavar="N", help="processes that send (0: one)")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"), help="where its folder is made (runs)")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="go on with an interrupted one")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another option of both runs: --set output_tokens=200 --set slo=ttft<2s, --set rate=6",
    )
    parser.set_defaults(allow=[])


def quick(arguments: argparse.Namespace, command: list[str], show: Show = print) -> ExitCode:
    """Run both scenarios, then write and show the page. Returns and raises as `suite.suite`."""
    wanted = suite_of(arguments.host, arguments.model, arguments.run_time, arguments.workers)
    wanted = wanted.changed(options_set(arguments.set))
    return carry_out(wanted, arguments, command, show)


def suite_of(host: str, model: str, run_time: str, workers: int) -> Suite:
    """A beside B on this server, the rate still to be measured."""
    load = {"rate": "auto", "duration": run_time}
    text = f"{host} {model} {sorted(load.items())} {workers}"
    return Suite(
        name="quick",
        repeats=1,
        mirror=False,
        workers=workers,
        seed=1,
        cool_down_limit_s=60.0,
        max_requests=None,
        max_tokens=None,
        load=load,
        scenarios=SCENARIOS,
        variants={"server": running_server(host, model)},
        sha256=hashlib.sha256(text.encode()).hexdigest(),
    )
