"""What a scheduling policy may decide, and what it may look at. policies.py has the policies themselves.

A policy is a frozen row of pure functions. Each that it leaves out (None) is vLLM's own rule: first come,
first served, the whole budget in every step, the last running request is the one that is preempted. What no
policy can do is stop the engine: when a step would be empty although something could be computed, and no
arrival is being held back, the step is planned first come, first served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simserver.request import Limits, Request


@dataclass(frozen=True, slots=True)
class View:
    """The engine before a step. `running` grows while requests are admitted, the rest stands still.

    waiting: those that have arrived, in their order; arrivals_s: the last arrivals, oldest first;
    served_tokens: prompt and answer tokens computed for each tenant's ended requests; prefill_tokens_per_s:
    how fast prompts alone are computed.
    """

    now_s: float
    step: int
    waiting: Sequence[Request]
    running: Sequence[Request]
    limits: Limits
    arrivals_s: Sequence[float]
    served_tokens: Mapping[str | None, float]
    prefill_tokens_per_s: float


@dataclass(frozen=True, slots=True)
class StepBudget:
    """Tokens that a step may compute: in all, of prompts, and of any one prompt."""

    tokens: int
    prompt_tokens: int
    of_one_prompt: int


@dataclass(frozen=True)
class Policy:
    """One way to schedule.

    order: the key by which waiting requests are admitted, smallest first.
    gate: which of them may start in this step; one that may not is passed over. It is asked once for each,
        in order, and a request that it lets through starts unless memory or the budget ends the step.
    budget: the step's tokens.
    opens_at_s: the moment until which nothing that waits is admitted.
    victim: the place in `running` of the request to preempt.
    """

    name: str = "fcfs"
    order: Callable[[View], Callable[[Request], Any]] | None = None
    gate: Callable[[View], Callable[[Request], bool]] | None = None
    budget: Callable[[View], StepBudget] | None = None
    opens_at_s: Callable[[View], float] | None = None
    victim: Callable[[Sequence[Request]], int] | None = None

    @property
    def plain(self) -> bool:
        """Whether all rules are vLLM's own, so that nothing need be looked at."""
        return not (self.order or self.gate or self.budget or self.opens_at_s)


@dataclass(frozen=True)
class PolicyKind:
    """A row of POLICIES. `options`: name -> (default, what it means); `make` takes them by name.

    `starves`: a waiting request may be overtaken for ever while others keep coming.
    """

    name: str
    summary: str
    make: Callable[..., Policy]
    options: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    starves: bool = False


FCFS = Policy()
