"""What one worker does in one run, as the master tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from client.calibration import UNCALIBRATED, PromptCalibration
from loadgen.plan import Plan
from shapes.lengths import Lengths


@dataclass(frozen=True)
class Assignment:
    """A worker's part: whom to send to, how, for how long, and its place among the workers. It holds no API
    key; it holds the values of --header, which therefore stay out of its text.

    `users` holds [at_s, users] in a closed loop; lengths and seed serve what no schedule holds: users, probes
    and the warm-up.
    """

    run_id: str
    runs_dir: str
    user_class: str
    worker: int
    workers: int
    target: str
    model: str
    endpoint: str
    engine: str
    api_version: str | None
    dialect: str
    connections: str
    gaps: str
    stream: bool
    duration_s: float
    drain_s: float
    first_token_limit_s: float
    stall_limit_s: float
    total_limit_s: float
    load: str
    users: list[list[float]]
    warmup: int
    probes_rps: float | None
    seed: int
    input_lengths: Lengths
    output_lengths: Lengths
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Mapping[str, Any] = field(default_factory=dict)
    calibration: PromptCalibration = UNCALIBRATED

    def as_message(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_message(cls, data: dict[str, Any]) -> Assignment:
        lengths = {name: Lengths(**data[name]) for name in ("input_lengths", "output_lengths")}
        return cls(**(data | lengths | {"calibration": PromptCalibration(**data["calibration"])}))


def assignment_for(plan: Plan, run_id: str, user_class: str, worker: int, workers: int) -> Assignment:
    """The part of worker number `worker` of `workers` in a plan; `user_class` says the prompts."""
    settings = plan.settings
    return Assignment(
        run_id=run_id,
        runs_dir=settings.runs_dir,
        user_class=user_class,
        worker=worker,
        workers=workers,
        target=settings.target,
        model=settings.model,
        endpoint=settings.endpoint,
        engine=settings.engine,
        api_version=settings.api_version,
        dialect=settings.dialect,
        connections=settings.connections,
        gaps=settings.gaps,
        stream=settings.stream,
        duration_s=plan.info.duration_s,
        drain_s=settings.drain_s,
        first_token_limit_s=settings.first_token_limit_s,
        stall_limit_s=settings.stall_limit_s,
        total_limit_s=settings.total_limit_s,
        load=settings.load,
        users=plan.info.users_curve,
        warmup=settings.warmup,
        probes_rps=settings.probes_rps,
        seed=settings.seed,
        input_lengths=settings.input_lengths,
        output_lengths=settings.output_lengths,
        headers=dict(settings.headers),
        body=dict(settings.body),
        calibration=plan.calibration,
    )
