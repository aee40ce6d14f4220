"""`python -m experiments doctor`: look at this machine, a run's options and its target before a big run.

Facts are read first (doctor_machine, doctor_plan, doctor_target), then one table of pure rules judges them
(GROUPS). The target gets the small requests of a run's own preflight, and nothing else; with no --host it is
left out.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from experiments.doctor_checks import MACHINE, MASTER, OPTIONS, WEB_UI
from experiments.doctor_finding import PROBLEM, STATES, WARNING, Check, Facts, Finding
from experiments.doctor_machine import cores_here, machine_here
from experiments.doctor_plan import Asking, asking
from experiments.doctor_target import ask_target
from experiments.doctor_target_checks import TARGET
from runlog.exit_codes import ExitCode, first_of

Show = Callable[[str], object]

WIDTH = 100
_INDENT = 2
_STATE_WIDTH = 13
_NAME_WIDTH = 19


@dataclass(frozen=True)
class Group:
    """Checks of one thing, and the exit code that a problem with it has."""

    name: str
    checks: tuple[Check, ...]
    code: ExitCode


GROUPS: tuple[Group, ...] = (
    Group("machine", MACHINE, ExitCode.NOT_VALID),
    Group("options", OPTIONS, ExitCode.USAGE),
    Group("target", TARGET, ExitCode.PREFLIGHT_REFUSED),
)

DESCRIPTION = """\
Check this machine, the options of a run and its target, before a big run. Give it what you would
give to locust:

  python -m experiments doctor --host http://127.0.0.1:8000 --model my-llm --shape pulse --rate 8
  python -m experiments doctor --processes 4 --headless --host ... --rate 50 --run-time 10m
  python -m experiments doctor                      this machine only

Every option of a run is known (python -m loadgen, locust --help), on the command line, in the
environment (LOAD_RATE, LOCUST_HOST) and in locust.conf, and is read by Locust itself. A target gets
the small requests with which a run begins, and no load.
"""
EPILOG = """\
states:
  ok            nothing to do
  warning       the run can begin; know this before you trust its figures, or repeat them
  problem       the run would not begin, or could not give figures that are worth having
  not checked   what the check needs is missing

exit codes: 0 no problem (warnings are none), 2 a problem with this machine, 3 with the options,
4 with the target. If there are several: 3 before 4 before 2.

The API key is read from LOAD_API_KEY or OPENAI_API_KEY. No key, header or prompt is shown.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `doctor`; all others on its command line are the run's."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.allow_abbrev = False
    parser.usage = "python -m experiments doctor [--workers N] [--json] [OPTIONS OF THE RUN]"
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="processes of this machine that will send (--processes, else --expect-workers of a master)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, for gates")


def doctor(arguments: argparse.Namespace, run_options: Sequence[str], show: Show = print) -> ExitCode:
    """Look, judge, show. `run_options` are those of the run, as for locust. Returns 0 unless something is a
    problem."""
    facts = look(arguments.workers, run_options)
    findings = [(group, check, check.judge(facts)) for group in GROUPS for check in group.checks]
    code = first_of(group.code for group, _, finding in findings if finding.state == PROBLEM)
    show(as_json(findings, code) if arguments.json else as_text(findings))
    return code


def look(workers: int | None, run_options: Sequence[str]) -> Facts:
    """Read all facts: a second or two for the options, then what the target takes to answer."""
    asked_for = asking(run_options)
    sending = _workers(asked_for) if workers is None else workers
    settings = None if asked_for.plan is None else asked_for.plan.settings
    machine = machine_here(settings.runs_dir if settings else "runs", ports(asked_for, sending))
    asked = None
    if asked_for.host and settings is not None:
        asked = ask_target(settings, asked_for.extra_body)
        if asked_for.plan is not None and asked.found and not asked.found.refused:
            asked_for = replace(asked_for, plan=asked_for.plan.after(asked.found))
    return Facts(asked_for, machine, sending, asked)


def ports(asked_for: Asking, workers: int) -> list[tuple[str, int]]:
    """What the run will listen at here: the web UI unless it is headless, and the master for its workers."""
    locust = asked_for.locust
    if not locust or locust["worker"]:
        return []
    wanted = [] if locust["headless"] else [(WEB_UI, int(locust["web_port"]))]
    if locust["master"] or locust["processes"] or workers:
        wanted.append((MASTER, int(locust["master_bind_port"])))
    return wanted


def _workers(asked_for: Asking) -> int:
    """Processes of this machine that will send; 0 when the master does."""
    locust = asked_for.locust
    processes = locust.get("processes")
    if processes:
        return max(int(cores_here()), 1) if processes < 0 else int(processes)
    return int(locust["expect_workers"]) if locust.get("master") else 0


def as_text(judged: Sequence[tuple[Group, Check, Finding]]) -> str:
    """The table of checks, at most WIDTH wide, and a last line that sums it up."""
    lines = []
    for group in GROUPS:
        rows = [(check.name, finding) for owner, check, finding in judged if owner is group]
        if len({finding for _, finding in rows}) == 1:
            rows = [("all", rows[0][1])]
        lines += [group.name, *(line for name, finding in rows for line in _rows(name, finding)), ""]
    lines.append(conclusion([finding for _, _, finding in judged]))
    return "\n".join(lines)


def conclusion(findings: Sequence[Finding]) -> str:
    """How many problems and warnings there are, and whether the run can begin."""
    problems, warnings = (sum(finding.state == state for finding in findings) for state in (PROBLEM, WARNING))
    counted = f"{_number(problems, 'problem')}, {_number(warnings, 'warning')}"
    if problems:
        return f"{counted}: mend the problems first."
    return f"{counted}: nothing keeps the run from beginning."


def _number(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"


def as_json(judged: Sequence[tuple[Group, Check, Finding]], code: ExitCode) -> str:
    """One object: `exit_code`, `counts` by state, and `checks` with group, name, state, seen and next."""
    return json.dumps(
        {
            "exit_code": int(code),
            "counts": {state: sum(found.state == state for _, _, found in judged) for state in STATES},
            "checks": [
                {"group": group.name, "name": check.name, **asdict(finding)}
                for group, check, finding in judged
            ],
        },
        indent=2,
        allow_nan=False,
    )


def _rows(name: str, finding: Finding) -> list[str]:
    head = f"{'':{_INDENT}}{finding.state:{_STATE_WIDTH}}{name:{_NAME_WIDTH}}"
    beside = " " * len(head)
    lines = textwrap.wrap(finding.seen, WIDTH, initial_indent=head, subsequent_indent=beside)
    if finding.next:
        lines += textwrap.wrap(
            finding.next, WIDTH, initial_indent=f"{beside}-> ", subsequent_indent=f"{beside}   "
        )
    return lines
