"""`python -m experiments`: several processes or runs, one answer."""

from __future__ import annotations

import argparse
import io
import signal
import sys
from pathlib import Path
from typing import NoReturn

from experiments.capacity import add_arguments as capacity_options
from experiments.capacity import capacity
from experiments.demo import RUN_TIME_S, demo
from experiments.doctor import add_arguments as doctor_options
from experiments.doctor import doctor
from experiments.launch import LaunchError
from experiments.quick import add_arguments as quick_options
from experiments.quick import quick
from experiments.simulate import add_arguments, simulate
from experiments.suite import add_arguments as suite_options
from experiments.suite import suite
from experiments.suite_file import SuiteError
from loadgen.options import OptionError
from runlog.exit_codes import ExitCode
from shapes import ShapeError


class _Parser(argparse.ArgumentParser):
    """A wrong argument ends with one line and our usage code."""

    def error(self, message: str) -> NoReturn:
        self.exit(int(ExitCode.USAGE), f"{self.prog}: {message}. See --help.\n")


def main() -> ExitCode:
    """Run the named experiment; returns its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # progress is to be seen through a pipe too
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what was started is stopped
    parser = _Parser(
        prog="python -m experiments",
        description="Decisions from several runs. Run from the repository root.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo_parser = commands.add_parser(
        "demo",
        help="the same load spread evenly (A) and in pulses (B), against the simulated server",
        description="Start the simulated server; run scenarios A and B, each with a master and two workers. "
        "Prints A beside B and the paths of both reports. Needs no GPU; takes about four minutes.",
    )
    demo_parser.add_argument(
        "--run-time", type=float, default=RUN_TIME_S, metavar="S", help=f"seconds a scenario ({RUN_TIME_S:g})"
    )
    demo_parser.add_argument("--rate", type=float, default=6.5, metavar="R", help="mean requests/s (6.5)")
    demo_parser.add_argument(
        "--runs-dir", type=Path, default=Path("runs"), help="folder for run folders (runs)"
    )
    add_arguments(
        commands.add_parser(
            "simulate",
            help="a run's schedule on the simulated server's engine, in virtual time",
            description="The engine of python -m simserver on the schedule of a run, without HTTP and much "
            "faster than\nreal time, to try schedulers. Writes an ordinary run folder.",
        )
    )
    capacity_options(
        commands.add_parser(
            "capacity",
            help="the highest mean rate whose SLO holds, spread evenly and in bursts",
            description="One run a rate, up by half until the SLO no longer holds, then closing in; first\n"
            "for an even load, then for --shape. Writes capacity.html and .json: the price of bursts.",
        )
    )
    suite_options(
        commands.add_parser(
            "suite",
            help="scenarios against variants of a server, repeated, and one page that decides",
            description="Run what a suite file describes (experiments/suites/*.toml), resume it after an\n"
            "interruption, and write matrix.html: scenario by variant.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    quick_options(
        commands.add_parser(
            "quick",
            help="what bursts cost on a server: a rate found for it, evenly and in pulses, five minutes",
            description="Find a mean rate for the server (--rate auto), send it evenly (A) and in pulses of\n"
            "five times the mean every 20 s (B), and write matrix.html: the price of burstiness.",
        )
    )
    doctor_options(
        commands.add_parser(
            "doctor", help="before a big run: look at this machine, the run's options and its target"
        )
    )
    arguments, run_options = parser.parse_known_args()
    if run_options and arguments.command != "doctor":
        parser.error(f"unrecognized arguments: {' '.join(run_options)}")
    told = ["python", "-m", "experiments", *sys.argv[1:]]
    try:
        if arguments.command == "doctor":
            return doctor(arguments, run_options)
        if arguments.command == "suite":
            return suite(arguments, told)
        if arguments.command == "quick":
            return quick(arguments, told)
        if arguments.command == "capacity":
            return capacity(arguments, told)
        if arguments.command == "simulate":
            return simulate(arguments, told)
        return demo(arguments.runs_dir, arguments.run_time, arguments.rate)
    except (ShapeError, OptionError, SuiteError) as error:
        print(f"python -m experiments: {error}", file=sys.stderr)
        return ExitCode.USAGE
    except LaunchError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
