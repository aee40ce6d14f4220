"""What a diagnosis looks at: a run's evidence in small groups, and how much harm each could explain.

The rules of diagnosis.py see nothing but `Facts`. `explained` holds for each cause the harmed requests that
show its evidence themselves (masks in causes.py), so that causes can be ordered by how much they explain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from analysis.phases import Window
from analysis.server_said import ServerSaid


@dataclass(frozen=True)
class ClientFacts:
    """How late and how busy the load generator was."""

    send_lag_p50_s: float | None
    send_lag_p99_s: float | None
    late_limit_s: float
    bound_s: int
    of_s: float
    cpu_peak_ratio: float | None


@dataclass(frozen=True)
class ConnectFacts:
    """What connections cost. `share_ratio`: connecting's share of the time from the scheduled moment to the
    first token; `sent_again`: requests whose kept connection had been closed, `stale` of them lost by it."""

    new: int
    connect_p50_s: float | None
    connect_p99_s: float | None
    tls_p50_s: float | None
    share_ratio: float | None
    sent_again: int
    stale: int


@dataclass(frozen=True)
class Contrast:
    """Medians of a calm and a crowded part of the run, and which parts those are."""

    parts: Literal["phases", "in_flight"]
    ttft_calm_s: float | None
    ttft_crowded_s: float | None
    tpot_calm_s: float | None
    tpot_crowded_s: float | None
    in_flight_calm: float | None
    in_flight_crowded: float | None


@dataclass(frozen=True)
class PromptFacts:
    """What prompts cost. `busy_ratio`: of late requests laid at their door, the median share of the wait in
    which prompts were computed; `alone_ratio` the share of their own; `others_ratio`: of slow streams, the
    median share of the time between tokens."""

    input_p50_tokens: float | None
    counted: bool
    token_s: float | None
    tokens_per_s: float | None
    alone_s: float | None
    alone_ratio: float | None
    busy_ratio: float | None
    others_ratio: float | None


@dataclass(frozen=True)
class StepFacts:
    """How tokens came. `correlation`: of TPOT with the streams under way. `few`, `many`: the streams that the
    twentieth with fewest and the twentieth with most had beside them, and the median TPOT of each."""

    tpot_limit_s: float | None
    correlation: float | None
    streams_few: float | None
    streams_many: float | None
    tpot_few_s: float | None
    tpot_many_s: float | None


@dataclass(frozen=True)
class QueueFacts:
    """Requests that waited for a slot (`waited_p50_s`) or for memory. `awaiting_peak`: requests without a
    first token at one moment, as the client saw them."""

    waited_p50_s: float | None
    memory_waited_p50_s: float | None
    busy_ratio: float | None
    awaiting_peak: int


@dataclass(frozen=True)
class LossFacts:
    """Failures that speak of the server or the network, and rejections apart. `first_s` to `last_s`: when
    nearly all of the failures ended, where that was one short time."""

    rejected: int
    rejected_in_bursts: int
    rejected_as: str
    retry_after_p50_s: float | None
    failed: int
    failed_as: str
    failed_most: int
    first_s: float | None
    last_s: float | None
    of: int


@dataclass(frozen=True)
class PauseFacts:
    """Streams that stood still: together (freezes) or some of them."""

    freezes: tuple[Window, ...]
    paused: int
    longest_s: float | None


@dataclass(frozen=True)
class AnswerFacts:
    """What is odd about the answers without being harm."""

    asked_mean: float | None
    got_mean: float | None
    cached_ratio: float | None
    tiny_gap_ratio: float | None
    lumps_made_by: Literal["client", "server"] | None


@dataclass(frozen=True)
class Explained:
    """Harmed requests that show a cause's evidence: how many, and their share of all harmed (None without
    harm)."""

    requests: int
    ratio: float | None


NOTHING = Explained(0, None)


@dataclass(frozen=True)
class Facts:
    """All of a run's evidence. `explained`: by the key of a cause; `unexplained`: harmed requests that show
    the evidence of none."""

    judged_by: Literal["slo", "calm"]
    harmed: int
    of: int
    explained: Mapping[str, Explained]
    unexplained: Explained
    client: ClientFacts
    connect: ConnectFacts
    contrast: Contrast
    prompts: PromptFacts
    steps: StepFacts
    queue: QueueFacts
    losses: LossFacts
    pauses: PauseFacts
    answers: AnswerFacts
    server: ServerSaid | None
