"""python -m analysis: what came of a run. COMMANDS is the table; a command is a function and a line in it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from analysis.allocation import keep_memory
from analysis.burst_command import burst_options, burstiness
from analysis.load import load_run
from analysis.locust_files import LocustCsvError
from analysis.log_table import ArrivalLogError
from analysis.slo import SloError
from analysis.summary import summarize, write_summary
from analysis.table import check_lines, side_by_side, slo_lines
from runlog.exit_codes import MEANING, ExitCode, first_of
from runlog.folder import RunFolderError, write_text_atomically

COMPARISON_HTML = "comparison.html"
EXAMPLES = """examples:
  python -m analysis report runs/20260101-120000-pulse          write summary.json and report.html
  python -m analysis summary runs/A runs/B                      a table, the runs side by side
  python -m analysis check runs/A --slo "ttft<1s,tpot<50ms@99%" checks and SLO; the exit code says the result
  python -m analysis compare runs/A runs/B                      B against A, burst by burst; exits 1 if worse
  python -m analysis recover runs/A --journals /mnt/worker2     complete a run whose master died, then report
  python -m analysis burstiness log.csv --html                  how bursty a log or a run is, with pictures
  python -m analysis report --locust-csv out/test               a report from what locust --csv out/test wrote

an SLO:
  ttft<1s,tpot<50ms        each request must meet both; the share that does is reported
  ttft<1s,tpot<50ms@99%    ... and `check` exits 1 when less than 99 % do
  p95(ttft)<1s             a percentile over the run, a failure counting as infinite; exits 1 when missed
"""


@dataclass(frozen=True)
class Command:
    """`run` takes the parsed options and returns the exit code. `reads_csv`: from Locust's CSV as well.

    Without `takes_runs` the command has arguments of its own instead of RUN folders and --slo.
    """

    name: str
    what: str
    run: Callable[[argparse.Namespace], ExitCode]
    more_options: Callable[[argparse.ArgumentParser], object] | None = None
    reads_csv: bool = False
    takes_runs: bool = True


class _Parser(argparse.ArgumentParser):
    """An argparse whose errors are one line and end with the suite's own exit code."""

    def error(self, message: str) -> NoReturn:
        self.exit(int(ExitCode.USAGE), f"{self.prog}: {message} (--help shows examples)\n")


def report(options: argparse.Namespace) -> ExitCode:
    """Write summary.json and report.html into each run folder, or the one report of Locust CSV."""
    if _is_locust_csv(options):
        return _report_csv(options)
    for folder in options.runs:
        _report(folder, options.slo)
    return ExitCode.OK


def _report(folder: Path, slo: str | None) -> None:
    from analysis.report import write_report  # plotly takes a second to load; only this needs it

    run = load_run(folder)
    summary = summarize(run, slo)
    print(f"summary  {write_summary(run, summary)}")
    print(f"report   {write_report(run, summary)}")
    print(_verdict_line(summary))
    if summary["slo"] and summary["slo"]["gates"]:
        print("\n".join(line[2:] for line in slo_lines(summary["slo"])))


def recover(options: argparse.Namespace) -> ExitCode:
    """Complete the folder of a run whose master died, and make its summary and report."""
    from analysis.recover import recover as complete

    for folder in options.runs:
        found = complete(folder, options.journals)
        if found is None:
            print(f"{folder}: nothing to recover, the run has ended and every record is there")
            continue
        print(f"recovered {folder}: {found}")
        for note in found.notes:
            print(f"note     {note}")
        _report(folder, options.slo)
    return ExitCode.OK


def summary(options: argparse.Namespace) -> ExitCode:
    """Print the table, or the summaries as JSON (one object, or a list for several runs)."""
    if _is_locust_csv(options):
        return _summarize_csv(options)
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


def compare(options: argparse.Namespace) -> ExitCode:
    """Hold candidates against the first run; a regression exits 1, runs that are unlike are refused."""
    from analysis.alike import Side
    from analysis.compare import UnlikeRuns, strict_json
    from analysis.compare import compare as held_against
    from analysis.compare_words import text

    if len(options.runs) < 2:
        raise RunFolderError("compare needs the base and at least one candidate (--help shows examples)")
    runs = [load_run(folder) for folder in options.runs]
    slo = options.slo or runs[0].info.slo or None  # all by the base's, so that attainments can be compared
    base, *candidates = [Side(run, summarize(run, slo)) for run in runs]
    try:
        found = held_against(base, candidates, options.allow, options.least_change / 100)
    except UnlikeRuns as error:
        print(f"python -m analysis: {error}", file=sys.stderr)
        only_verdicts = all(set(reasons) == {"verdict"} for reasons in error.reasons.values())
        return ExitCode.NOT_VALID if only_verdicts else ExitCode.USAGE
    if options.json:
        print(json.dumps(strict_json(found), indent=2, allow_nan=False))
    else:
        print(text(found))
        path = _write_comparison(options.out or options.runs[-1] / COMPARISON_HTML, base, candidates, found)
        print(f"\ncomparison  {path}")
    return ExitCode.SLO_MISSED if any(one.regressed for one in found) else ExitCode.OK


def _write_comparison(path: Path, base: Any, candidates: Any, found: Any) -> Path:
    from analysis.compare_page import comparison_page  # plotly, as above

    write_text_atomically(path, comparison_page(base, candidates, found))
    return path


def _is_locust_csv(options: argparse.Namespace) -> bool:
    if bool(options.runs) == (options.locust_csv is not None):
        raise LocustCsvError("give RUN folders, or --locust-csv PREFIX (--help shows examples)")
    if options.locust_csv is None and (options.request_types or getattr(options, "out", None)):
        raise LocustCsvError("--request-types and --out go with --locust-csv PREFIX only")
    return options.locust_csv is not None


def _report_csv(options: argparse.Namespace) -> ExitCode:
    from analysis.csv_report import write_csv_report  # plotly, as above
    from analysis.csv_summary import text_summary

    path, found = write_csv_report(options.locust_csv, options.out, options.request_types, options.slo)
    print(text_summary(found))
    print(f"report   {path}")
    return ExitCode.OK


def _summarize_csv(options: argparse.Namespace) -> ExitCode:
    from analysis.csv_run import load_csv_run
    from analysis.csv_summary import summarize_csv, text_summary

    found = summarize_csv(load_csv_run(options.locust_csv, options.request_types), options.slo)
    print(json.dumps(found, indent=2, allow_nan=False) if options.json else text_summary(found))
    return ExitCode.OK


def _csv_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--locust-csv",
        type=Path,
        metavar="PREFIX",
        help="instead of run folders: what locust --csv PREFIX wrote, of any Locust version",
    )
    parser.add_argument(
        "--request-types",
        type=lambda text: [name for name in text.split(",") if name.strip()],
        metavar="GET,POST",
        help="with --locust-csv: the types of rows that are requests; others are metric events such as TTFT",
    )


def _report_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="with --locust-csv: the page (default: PREFIX_report.html)"
    )


def _summary_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _compare_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow",
        type=lambda text: [key.strip() for key in text.split(",") if key.strip()],
        default=[],
        metavar="KEY,...",
        help="compare although runs differ in: verdict, amended, schedule, settings, model, lengths, cached",
    )
    parser.add_argument(
        "--least-change",
        type=float,
        default=2.0,
        metavar="PERCENT",
        help="a significant difference below this share of the base is called small, no regression (2)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the page (default: comparison.html in the last run's folder)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON; no page is written")


def _recover_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--journals",
        nargs="+",
        type=Path,
        default=[],
        metavar="PLACE",
        help="journals of workers on other machines: files, or folders to search (worker-<n>-<pid>.jsonl)",
    )


COMMANDS: tuple[Command, ...] = (
    Command(
        "report", "write summary.json and report.html into the run folder", report, _report_options, True
    ),
    Command(
        "summary", "print the figures of one or several runs side by side", summary, _summary_options, True
    ),
    Command("check", "print every check and the SLO's result; exit by the table of exit codes", check),
    Command(
        "compare",
        "say what differs between runs on one schedule, how much and how sure; a regression exits 1",
        compare,
        _compare_options,
    ),
    Command(
        "recover",
        "complete a run whose master died from its workers' journals, then report; only once it is gone",
        recover,
        _recover_options,
    ),
    Command(
        "burstiness",
        "how bursty a log or a run is, in words, figures and pictures; and which shape comes near",
        burstiness,
        burst_options,
        takes_runs=False,
    ),
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
        if command.takes_runs:
            one.add_argument(
                "runs",
                nargs="*" if command.reads_csv else "+",
                type=Path,
                metavar="RUN",
                help="a run folder, such as runs/<run_id>",
            )
            one.add_argument("--slo", metavar="TEXT", help="judge by this SLO instead of the run's own")
        if command.reads_csv:
            _csv_options(one)
        if command.more_options:
            command.more_options(one)
        one.set_defaults(run=command.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; wrong input, or a folder that cannot be written, is one line and exit code 3."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (RunFolderError, LocustCsvError, ArrivalLogError, SloError, OSError) as error:
        print(f"python -m analysis: {error}", file=sys.stderr)
        return int(ExitCode.USAGE)


if __name__ == "__main__":
    keep_memory()
    sys.exit(main())
