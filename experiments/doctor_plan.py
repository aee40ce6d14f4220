"""What `doctor` sees of a run that is asked for: its options as a run reads them, its plan, what it takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from client.preflight import ASKED_TOKENS, Preflight
from loadgen.budget import Budget, budget_of
from loadgen.given import options_as_given, unknown_variables
from loadgen.local_limits import most_within
from loadgen.options import OptionError
from loadgen.plan import Plan, make_plan
from loadgen.report import check_slo
from loadgen.settings import read_settings
from shapes import SHAPES
from shapes.errors import LoadRuleError

NOBODY = "http://no-target"
"""Stands where a target is named, as long as there is none."""

_RUN_BYTES = 8_000_000
_ROW_BYTES = 300
_GAP_BYTES = 4
_TWICE = 2
_READ_LIMIT_S = 120.0


@dataclass(frozen=True)
class Asking:
    """A run that is asked for. `wrong` says which option is, and then there is no `plan`; without a host the
    plan's target is NOBODY. `locust`: Locust's own options; `unread`: options that mean nothing to the shape;
    `misspelt`: variables of the environment that are no option."""

    host: str | None = None
    wrong: str | None = None
    plan: Plan | None = None
    locust: Mapping[str, Any] = field(default_factory=dict)
    extra_body: Mapping[str, object] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    misspelt: tuple[str, ...] = ()

    @property
    def drawn(self) -> Plan | None:
        """The plan if it holds the run's requests: not in a closed loop, nor at a rate unknown yet."""
        plan = self.plan
        if plan is None or plan.settings.load == "closed" or plan.settings.auto_rate:
            return None
        return plan

    @property
    def budget(self) -> Budget | None:
        plan = self.drawn
        if plan is None:
            return None
        return budget_of(plan.schedule, plan.settings.valves.max_requests, plan.calibration)


def asking(arguments: Sequence[str]) -> Asking:
    """Have Locust read the options of a run, and make its plan; what is wrong is told in what is returned."""
    try:
        read = subprocess.run(
            [sys.executable, "-m", "loadgen.as_read", *arguments],
            capture_output=True,
            text=True,
            timeout=_READ_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Asking(wrong=f"the locustfile and the options were not read within {_READ_LIMIT_S:g} s")
    if read.returncode:
        lines = [line.strip() for line in read.stderr.splitlines() if line.strip()]
        return Asking(wrong=lines[-1] if lines else "the options cannot be read")
    said = json.loads(read.stdout.splitlines()[-1])
    misspelt = tuple(unknown_variables(os.environ))
    options, host = Namespace(**said["options"], **said["locust"]), said["locust"]["host"]
    if not host:
        options.model = options.model or "no-model"
    try:
        settings = read_settings(options, host or NOBODY, said["shape"])
        check_slo(settings.slo)
        plan = make_plan(settings, "doctor", options_as_given(options), ())
    except (OptionError, LoadRuleError) as error:
        return Asking(host, wrong=str(error), locust=said["locust"], misspelt=misspelt)
    unread = (name for name in SHAPES[settings.shape].unread(settings.shape_settings))
    return Asking(
        host,
        plan=plan,
        locust=said["locust"],
        extra_body=said["extra_body"],
        unread=tuple(f"--{name.removesuffix('_s').replace('_', '-')}" for name in unread),
        misspelt=misspelt,
    )


def answer_s(found: Preflight, output_tokens: float) -> float | None:
    """How long an answer of so many tokens takes, judged by the preflight's small one on the idle server:
    its first token, and then the pace of its others."""
    if found.duration_s is None:
        return None
    if found.first_token_s is None:
        return found.duration_s * max(output_tokens / ASKED_TOKENS, 1.0)
    tpot_s = (found.duration_s - found.first_token_s) / (ASKED_TOKENS - 1)
    return found.first_token_s + tpot_s * max(output_tokens - 1.0, 0.0)


def in_flight(plan: Plan, each_s: float) -> int:
    """The most requests in flight at one moment if each takes `each_s`, however many there are."""
    return most_within(plan.schedule.at_s, each_s)


def folder_bytes(budget: Budget, keeps_gaps: bool) -> int:
    """About what the run folder takes: the report (5 to 8 MB of it are the same in every run), a row of
    schedule.csv and requests.csv a request (280 bytes on measured runs), 4 bytes a gap. While the run lasts
    the workers' journals hold the rows and gaps once more."""
    gaps = _GAP_BYTES * budget.output_tokens if keeps_gaps else 0
    return _RUN_BYTES + _TWICE * (_ROW_BYTES * budget.requests + gaps)
