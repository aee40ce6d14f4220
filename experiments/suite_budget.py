"""What a suite may still spend, and how long it will take: known before a run begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.suite_file import Step, Suite, value_of

BETWEEN_RUNS_S = 12.0
"""What a run takes beside its load: start-up, preflight, drain, report. An estimate, for the time left."""


def cap_passed(wanted: Suite, done: Mapping[str, Mapping[str, Any]], step: Step) -> str:
    """Why the next run must not begin; empty when it may. `done` holds requests and tokens of the runs that
    ended; a run is taken to need what its like needed before, or what its plan asks for."""
    for cap, key, what in (
        (wanted.max_requests, "requests", "requests"),
        (wanted.max_tokens, "tokens", "tokens"),
    ):
        if cap is None:
            continue
        used = sum(row[key] for row in done.values())
        alike = [row[key] for name, row in done.items() if name.endswith(f"/{step.scenario}")]
        expected = max(alike, default=planned(wanted, step) if key == "requests" else 0)
        if used + expected > cap:
            return (
                f"{step.key} was not begun: with the {used:,} {what} so far it would pass the suite's "
                f"cap of {cap:,}"
            )
    return ""


def planned(wanted: Suite, step: Step) -> int:
    """The requests that the plan asks for; 0 where that is not known before (users, a measured rate)."""
    options = wanted.options(step)
    rate_rps: float | None = value_of(options, "rate")
    if options.get("load") == "closed" or rate_rps is None:
        return 0
    return round(rate_rps * _duration_s(options))


def _duration_s(options: Mapping[str, str]) -> float:
    """Seconds of load; a minute is taken where only the shape knows."""
    found: float | None = value_of(options, "duration")
    return 60.0 if found is None else found


def left(wanted: Suite, todo: Sequence[Step]) -> str:
    """The time that the steps will take, as an estimate."""
    seconds = sum(
        0.0
        if wanted.variants[step.variant].kind == "virtual"
        else _duration_s(wanted.options(step)) + BETWEEN_RUNS_S
        for step in todo
    )
    return f"about {seconds / 60:.0f} min left" if seconds >= 90 else "less than 2 min left"
