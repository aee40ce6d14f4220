"""python -m analysis: what came of a run. COMMANDS is the table; a command is a function and a line in it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from analysis.load import load_run
from analysis.slo import SloError
from analysis.summary import summarize, write_summary
from analysis.table import check_lines, side_by_side
from runlog.exit_codes import MEANING, ExitCode, first_of
from runlog.folder import RunFolderError

EXAMPLES = """examples:
  python -m analysis report runs/20260101-120000-pulse          write summary.json and report.html
  python -m analysis summary runs/A runs/B                      a table, the runs side by side
  python -m analysis check runs/A --slo "ttft<1s,tpot<50ms@99%" checks and SLO; the exit code says the result

an SLO:
  ttft<1s,tpot<50ms        each request must meet both; the share that does is reported
  ttft<1s,tpot<50ms@99%    ... and `check` exits 1 when less than 99 % do
  p95(ttft)<1s             a percentile over the run, a failure counting as infinite; exits 1 when missed
"""


@dataclass(frozen=True)
class Command:
    """`run` takes the parsed options and returns the exit code."""

    name: str
    what: str
    run: Callable[[argparse.Namespace], ExitCode]
    more_options: Callable[[argparse.ArgumentParser], object] | None = None


class _Parser(argparse.ArgumentParser):
    """An argparse whose errors are one line and end with the suite's own exit code."""

    def error(self, message: str) -> NoReturn:
        self.exit(int(ExitCode.USAGE), f"{self.prog}: {message} (--help shows examples)\n")


def report(options: argparse.Namespace) -> ExitCode:
    """Write summary.json and report.html into each run folder."""
    from analysis.report import write_report  # plotly takes a second to load; only this command needs it

    for folder in options.runs:
        run = load_run(folder)
        summary = summarize(run, options.slo)
        print(f"summary  {write_summary(run, summary)}")
        print(f"report   {write_report(run, summary)}")
        print(_verdict_line(summary))
    return ExitCode.OK


def summary(options: argparse.Namespace) -> ExitCode:
    """Print the table, or the summaries as JSON (one object, or a list for several runs)."""
    summaries = [summarize(load_run(folder), options.slo) for folder in options.runs]
    if options.json:
        print(json.dumps(summaries if len(summaries) > 1 else summaries[0], indent=2, allow_nan=False))
    else:
        print(side_by_side(summaries))
    return ExitCode.OK


def check(options: argparse.Namespace) -> ExitCode:
    """Print checks and SLO; of several runs the code that comes first in the table's order wins."""
    codes = []
    for folder in options.runs:
        found = summarize(load_run(folder), options.slo)
        code = ExitCode(found["exit_code"])
        print(check_lines(found))
        print(f"  exit {int(code)}: {MEANING[code]}")
        codes.append(code)
    return first_of(codes)


COMMANDS: tuple[Command, ...] = (
    Command("report", "write summary.json and report.html into the run folder", report),
    Command(
        "summary",
        "print the figures of one or several runs side by side",
        summary,
        lambda parser: parser.add_argument(
            "--json", action="store_true", help="print JSON instead of a table"
        ),
    ),
    Command("check", "print every check and the SLO's result; exit by the table of exit codes", check),
)


def _verdict_line(found: dict[str, Any]) -> str:
    reasons = found["verdict_reasons"]
    return f"verdict  {found['verdict']}" + (f": {'; '.join(reasons)}" if reasons else "")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m analysis",
        description="What came of a run: figures, checks, a verdict and a report from its run folder.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    codes = "exit codes:\n" + "\n".join(f"  {int(code):>3}  {meaning}" for code, meaning in MEANING.items())
    for command in COMMANDS:
        one = commands.add_parser(
            command.name,
            help=command.what,
            description=command.what,
            epilog=f"{EXAMPLES}\n{codes}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        one.add_argument(
            "runs", nargs="+", type=Path, metavar="RUN", help="a run folder, such as runs/<run_id>"
        )
        one.add_argument("--slo", metavar="TEXT", help="judge by this SLO instead of the run's own")
        if command.more_options:
            command.more_options(one)
        one.set_defaults(run=command.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; wrong input, or a folder that cannot be written, is one line and exit code 3."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (RunFolderError, SloError, OSError) as error:
        print(f"python -m analysis: {error}", file=sys.stderr)
        return int(ExitCode.USAGE)


if __name__ == "__main__":
    sys.exit(main())
