"""What a check of `doctor` says, and what it is told.

ok            nothing to do
warning       the run can begin; know this before you trust its figures, or repeat them
problem       the run would not begin, or could not give figures that are worth having
not checked   what the check needs is missing
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from experiments.doctor_machine import Machine
from experiments.doctor_plan import Asking
from experiments.doctor_target import Asked

OK, WARNING, PROBLEM, NOT_CHECKED = STATES = ("ok", "warning", "problem", "not checked")


@dataclass(frozen=True)
class Facts:
    """All that was seen. `asked` is None where no target is named, or the options cannot be read; `workers`
    counts the processes that will send, 0 when the master does."""

    asking: Asking
    machine: Machine
    workers: int = 0
    asked: Asked | None = None

    @property
    def senders(self) -> int:
        return max(self.workers, 1)


@dataclass(frozen=True)
class Finding:
    """The state of a check, what was seen, and what to do next ("" when there is nothing to do)."""

    state: str
    seen: str
    next: str = ""


@dataclass(frozen=True)
class Check:
    """One row of a table of checks: a name, and the rule."""

    name: str
    judge: Callable[[Facts], Finding]


def fine(seen: str) -> Finding:
    return Finding(OK, seen)


def warn(seen: str, remedy: str) -> Finding:
    return Finding(WARNING, seen, remedy)


def wrong(seen: str, remedy: str) -> Finding:
    return Finding(PROBLEM, seen, remedy)


def skipped(why: str) -> Finding:
    return Finding(NOT_CHECKED, why)


def bytes_told(count: int) -> str:
    """A number of bytes in the unit that suits it: 24 MB, 1.5 GB."""
    if count < 1_000_000_000:
        return f"{max(round(count / 1e6), 1)} MB"
    return f"{count / 1e9:.1f} GB" if count < 1e10 else f"{count / 1e9:.0f} GB"
