"""A step being put together: who computes how much, what the budget leaves, and what the step will cost."""

from __future__ import annotations

from dataclasses import dataclass, field

from simserver.policy import StepBudget
from simserver.request import Request


@dataclass(slots=True)
class Plan:
    """The work of one step so far, within `budget`; the sums are what the cost model asks for."""

    budget: StepBudget
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    pairs: float = 0.0
    work: list[tuple[Request, int]] = field(default_factory=list)

    def room_for_prompt(self, wanted: int) -> int:
        """How many of `wanted` prompt tokens this step may compute; 0 when it is full."""
        budget = self.budget
        left = min(budget.tokens - self.tokens, budget.prompt_tokens - self.prompt_tokens)
        return min(wanted, left, budget.of_one_prompt)

    def add(self, request: Request, count: int, *, prompt: bool) -> None:
        before = request.computed_tokens
        self.work.append((request, count))
        self.tokens += count
        self.cached_tokens += before
        if prompt:
            self.prompt_tokens += count
            self.pairs += count * (before + 0.5 * count)

    def drop(self, request: Request) -> None:
        """Take a preempted request out again, if it was in."""
        for place, (planned, count) in enumerate(self.work):
            if planned is request:
                del self.work[place]
                before = request.computed_tokens
                self.tokens -= count
                self.cached_tokens -= before
                if count > 1 or not request.emitted_tokens:
                    self.prompt_tokens -= count
                    self.pairs -= count * (before + 0.5 * count)
                return
