"""Can the figures of a run be trusted? CHECKS, one row per question, and the verdict that they add up to.

VALID      every check that counts passed (warnings may stand beside)
DEGRADED   the run is short of its plan for a named outside cause (a worker was lost, it was stopped or
           amended, a server that failed at once held back the users of a closed loop), and nothing failed
           but what such a cause explains
INVALID    any other check failed: the load was not what was asked for, or our own machine is in the figures

A check without data to judge by passes neither way (`passed` is None) and does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from analysis import trust as seen
from analysis import trust_run as ran
from analysis.lengths import answer_lengths
from analysis.load import Run
from analysis.phases import Window
from analysis.trust import Evidence, Finding

Severity = Literal["invalid", "degraded", "warn"]
Verdict = Literal["VALID", "DEGRADED", "INVALID"]


@dataclass(frozen=True)
class Check:
    """One question. It passes when value <= limit, < with `below`, or >= with `at_least`.

    `explained`: an outside cause explains its failing. `scope`: which figures it voids, "" = all.
    """

    name: str
    asks: str
    unit: str
    severity: Severity
    find: Callable[[Evidence], Finding]
    advice: str
    at_least: bool = False
    below: bool = False
    explained: bool = False
    scope: str = ""


@dataclass(frozen=True)
class CheckResult:
    """A check's outcome; `passed` None = no data. `advice`, what to do next, is empty unless it failed.

    `cause`: the outside cause, if the check found one, that explains its failing.
    """

    name: str
    asks: str
    value: float | None
    limit: float | None
    unit: str
    at_least: bool
    below: bool
    passed: bool | None
    severity: Severity
    detail: str
    advice: str
    explained: bool
    scope: str
    cause: str = ""


CHECKS: tuple[Check, ...] = (
    Check(
        "records",
        "Is every scheduled request recorded exactly once?",
        "requests",
        "invalid",
        seen.records,
        "repeat the run; if it happens again, keep the run folder and report it",
    ),
    Check(
        "success",
        "Did at least one request succeed?",
        "requests",
        "invalid",
        seen.success,
        "look at the failures: target, model name, API key and limits",
        at_least=True,
    ),
    Check(
        "answer lengths",
        "Were answers as long as asked, on average?",
        "ratio",
        "warn",
        answer_lengths,
        "choose a --dialect that forces lengths, or compare only runs with the same lengths",
    ),
    Check(
        "cached prompts",
        "Did the server compute the prompts, or know them already?",
        "ratio",
        "warn",
        ran.cached_prompts,
        "use prompts of this run alone (the default), restart the server or clear its prefix cache; compare "
        "only runs with the same share",
        below=True,
    ),
    Check(
        "load reached",
        "Was the load sent as planned?",
        "ratio",
        "invalid",
        seen.load_whole,
        "use more workers or a lower rate",
        at_least=True,
        explained=True,
    ),
    Check(
        "load reached, worst burst",
        "Was the worst burst sent as planned?",
        "ratio",
        "invalid",
        seen.load_worst_burst,
        "use more workers, or a machine with more free cores",
        at_least=True,
        explained=True,
    ),
    Check(
        "burstiness, 1 s",
        "Was the load as bursty as asked, second by second?",
        "IDC",
        "invalid",
        seen.idc(1),
        "use more workers; the bursts that arrived were not those that were asked for",
        explained=True,
    ),
    Check(
        "burstiness, 10 s",
        "Was the load as bursty as asked, over 10 s?",
        "IDC",
        "invalid",
        seen.idc(10),
        "use more workers; the bursts that arrived were not those that were asked for",
        explained=True,
    ),
    Check(
        "burstiness, CV",
        "Were the gaps between sends as uneven as asked?",
        "CV",
        "warn",
        seen.cv,
        "look at the send lag; single gaps were stretched or bunched",
        explained=True,
    ),
    Check(
        "send lag",
        "Were requests sent to the millisecond?",
        "s",
        "warn",
        seen.lag_p99(lambda _: seen.ON_TIME_S),
        "read the figures from the scheduled moment; use more workers or a quieter machine",
    ),
    Check(
        "send lag, gross",
        "Were requests sent too late to call it the load that was asked for?",
        "s",
        "invalid",
        seen.lag_p99(lambda evidence: evidence.lag_limit_s),
        "use more workers or a quieter machine",
    ),
    Check(
        "read lag",
        "Was the client quick enough to time what it received?",
        "s",
        "invalid",
        seen.read_lag,
        "use more workers: the client, not the server, set these times",
        scope="TTFT and TPOT",
    ),
    Check(
        "worker CPU",
        "Had each worker CPU to spare in every second?",
        "ratio",
        "warn",
        ran.cpu,
        "use more workers, or other machines than the server's",
    ),
    Check(
        "client-bound seconds",
        "Was the load generator never the bottleneck?",
        "s",
        "warn",
        ran.client_bound,
        "use more workers, or a machine with more free cores; the time line marks these seconds",
    ),
    Check(
        "lumped delivery",
        "Did events come one at a time?",
        "ratio",
        "warn",
        ran.lumped,
        "read TPOT, which rests on the first and the last token, and not single chunk gaps",
        scope="chunk gaps",
    ),
    Check(
        "own failures",
        "Was our own machine up to it (ports, files, DNS)?",
        "ratio",
        "invalid",
        ran.own_failures,
        "raise `ulimit -n` and the local port range, check name resolution, or use more machines",
    ),
    Check(
        "clocks",
        "Do the workers' clocks agree?",
        "s",
        "invalid",
        ran.clocks,
        "put the workers nearer to the master, or fewer of them on one busy machine",
        scope="the order of requests of different workers",
    ),
    Check(
        "cut off",
        "Could nearly all requests end by themselves?",
        "ratio",
        "warn",
        ran.cancelled,
        "raise --drain",
    ),
    Check(
        "ended as planned",
        "Did the run go on to its planned end?",
        "times",
        "degraded",
        ran.ended,
        "let the run end by itself",
    ),
    Check(
        "workers lost",
        "Were all workers there to the end?",
        "workers",
        "degraded",
        ran.workers_lost,
        "find out why it ended (its log, memory) and repeat the run",
    ),
    Check(
        "amended",
        "Did the plan stay as it was?",
        "times",
        "degraded",
        ran.amended,
        "never pair this run with another; repeat it without the amendment to compare",
    ),
)


def run_checks(run: Run, bursts: Sequence[Window]) -> list[CheckResult]:
    """Every row of CHECKS, judged."""
    return judged_checks(Evidence(run, bursts))


def judged_checks(evidence: Evidence) -> list[CheckResult]:
    """Every row of CHECKS, judged by evidence that others look at too."""
    return [_result(check, check.find(evidence)) for check in CHECKS]


def _result(check: Check, found: Finding) -> CheckResult:
    passed = None
    if found.value is not None and found.limit is not None:
        passed = _within(found.value, found.limit, check)
    return CheckResult(
        name=check.name,
        asks=check.asks,
        value=found.value,
        limit=found.limit,
        unit=check.unit,
        at_least=check.at_least,
        below=check.below,
        passed=passed,
        severity=check.severity,
        detail=found.detail,
        advice=(found.advice or check.advice) if passed is False else "",
        explained=check.explained,
        scope=check.scope,
        cause=found.cause if passed is False else "",
    )


def _within(value: float, limit: float, check: Check) -> bool:
    """On the limit passes (with `below` it does not), whatever the last bit says."""
    slack = 1e-9
    if check.at_least:
        return value >= limit - slack
    return value < limit - slack if check.below else value <= limit + slack


def verdict(results: Sequence[CheckResult]) -> tuple[Verdict, list[str]]:
    """The verdict and its reasons, one sentence each; no reasons when VALID."""
    causes = [row for row in results if row.passed is False and row.severity == "degraded"]
    failed = [row for row in results if row.passed is False and row.severity == "invalid"]
    reasons = [_reason(row) for row in causes + failed]
    if any(not (row.cause or (causes and row.explained)) for row in failed):
        return "INVALID", reasons
    return ("DEGRADED" if reasons else "VALID"), reasons


def warnings(results: Sequence[CheckResult]) -> list[str]:
    """One sentence for each check that failed without touching the verdict."""
    return [_reason(row) for row in results if row.passed is False and row.severity == "warn"]


def _reason(row: CheckResult) -> str:
    scope = f" (voids {row.scope})" if row.scope else ""
    cause = f" ({row.cause})" if row.cause else ""
    return f"{row.name}: {row.detail}{cause}{scope}"
