"""What one worker does in one run, as the master tells it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from loadgen.plan import Plan


@dataclass(frozen=True)
class Assignment:
    """A worker's part: whom to send to, how, for how long, and its place among the workers. It holds no API
    key.
    """

    run_id: str
    worker: int
    workers: int
    target: str
    model: str
    dialect: str
    connections: str
    duration_s: float
    drain_s: float
    first_token_limit_s: float
    stall_limit_s: float
    total_limit_s: float

    def as_message(self) -> dict[str, Any]:
        return asdict(self)


def assignment_for(plan: Plan, worker: int, workers: int) -> Assignment:
    """The part of worker number `worker` of `workers` in a plan."""
    settings = plan.settings
    return Assignment(
        run_id=plan.info.run_id,
        worker=worker,
        workers=workers,
        target=settings.target,
        model=settings.model,
        dialect=settings.dialect,
        connections=settings.connections,
        duration_s=plan.info.duration_s,
        drain_s=settings.drain_s,
        first_token_limit_s=settings.first_token_limit_s,
        stall_limit_s=settings.stall_limit_s,
        total_limit_s=settings.total_limit_s,
    )
