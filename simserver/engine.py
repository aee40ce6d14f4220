"""Continuous batching on an injected clock: no I/O, no wall time, no threads.

The loop is that of vLLM's V1 scheduler. There are no prefill and decode phases: each step spends one budget
of tokens, first on the running requests in their order (one token each, or the next part of a long prompt),
then on the waiting ones, first come first served. A request's answer token comes out of the step that
computes the last of its known tokens (prompt plus answer so far).

    schedule(now_s)  ──►  Step: who computes how many tokens, and how long it takes
    complete(step, now_s)  ──►  the requests that gained a token; `finished` says whose answer is whole

Whoever drives it owns the time: the server waits until the step is due, a simulation adds `duration_s` to a
number.

KV cache: blocks of 16 tokens, taken as tokens are computed, given back when a request ends. When a running
request needs a block and none is free, the LAST running request is preempted: its cache is dropped, it goes
to the front of the waiting ones and computes prompt and answer so far again; nothing waiting is admitted in
that step. A waiting request is admitted only if all its known tokens would fit at once.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from simserver.cost import CostModel

BLOCK_TOKENS = 16


@dataclass(frozen=True)
class Limits:
    """What one step and the memory can hold. Raises ValueError when a limit leaves no room for any work."""

    max_num_batched_tokens: int
    max_num_seqs: int
    kv_cache_tokens: int

    def __post_init__(self) -> None:
        for name in ("max_num_batched_tokens", "max_num_seqs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.kv_cache_tokens < BLOCK_TOKENS:
            raise ValueError(
                f"kv_cache_tokens must hold one block of {BLOCK_TOKENS}, got {self.kv_cache_tokens}"
            )

    @property
    def whole_kv_tokens(self) -> int:
        """KV-cache tokens in whole blocks."""
        return self.kv_cache_tokens // BLOCK_TOKENS * BLOCK_TOKENS


@dataclass(slots=True, eq=False)
class Request:
    """One completion: what is asked and how far the engine has got. Times: seconds on the driver's clock."""

    request_id: str
    prompt_tokens: int
    output_tokens: int
    arrived_at_s: float
    computed_tokens: int = 0
    emitted_tokens: int = 0
    blocks: int = 0
    preemptions: int = 0
    admitted_at_s: float | None = None
    """Start of the first step that worked on it."""
    first_token_at_s: float | None = None
    last_token_at_s: float | None = None
    aborted: bool = False

    @property
    def known_tokens(self) -> int:
        """Tokens whose keys and values the next answer token needs."""
        return self.prompt_tokens + self.emitted_tokens

    @property
    def finished(self) -> bool:
        return self.emitted_tokens >= self.output_tokens


@dataclass(frozen=True, slots=True)
class Step:
    """One step as scheduled: (request, tokens computed for it) in order, and its length in seconds."""

    started_at_s: float
    duration_s: float
    work: list[tuple[Request, int]]

    @property
    def tokens(self) -> int:
        return sum(count for _, count in self.work)


@dataclass(slots=True)
class Totals:
    """Counts since the start. Prompt tokens count once per request, at its first answer token."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    preemptions: int = 0


@dataclass(slots=True)
class Engine:
    """Waiting and running requests, and the rule that turns them into steps.

    jitter_ratio: standard deviation of the step time's multiplicative noise (log-normal with mean 1,
    seeded); 0 for none. One step is scheduled at a time: `complete` it before the next `schedule`.
    """

    cost: CostModel
    limits: Limits
    jitter_ratio: float = 0.0
    seed: int = 0
    totals: Totals = field(default_factory=Totals, init=False)
    _waiting: deque[Request] = field(default_factory=deque, init=False)
    _running: list[Request] = field(default_factory=list, init=False)
    _total_blocks: int = field(init=False)
    _free_blocks: int = field(init=False)
    _rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._total_blocks = self._free_blocks = self.limits.kv_cache_tokens // BLOCK_TOKENS
        self._rng = random.Random(self.seed)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def kv_cache_used_ratio(self) -> float:
        return 1 - self._free_blocks / self._total_blocks

    @property
    def next_arrival_s(self) -> float | None:
        """When the first waiting request arrived, None when none waits: an idle driver steps from then."""
        return self._waiting[0].arrived_at_s if self._waiting else None

    def submit(self, request: Request) -> None:
        """Put a request at the end of the waiting ones.

        Raises ValueError when it asks for less than one token each way or for more than the KV cache holds.
        """
        if request.prompt_tokens < 1 or request.output_tokens < 1:
            raise ValueError("a request needs at least 1 prompt token and 1 output token")
        if _blocks_for(request.prompt_tokens + request.output_tokens - 1) > self._total_blocks:
            raise ValueError(
                f"{request.prompt_tokens} prompt + {request.output_tokens} output tokens do not fit the "
                f"KV cache of {self._total_blocks * BLOCK_TOKENS} tokens"
            )
        self._waiting.append(request)

    def abort(self, request: Request) -> None:
        """Drop a request and free its KV blocks at once, even while a step runs. Harmless when it is over."""
        if request.finished or request.aborted:
            return
        request.aborted = True
        if request in self._running:
            self._running.remove(request)
            self._release(request)
        else:
            self._waiting.remove(request)

    def schedule(self, now_s: float) -> Step | None:
        """The step that starts now, None when there is nothing to do.

        A request that arrived after `now_s` does not join, so that a driver that runs late stays honest.
        """
        budget = self.limits.max_num_batched_tokens
        work: list[tuple[Request, int]] = []
        cached_tokens = 0
        preempted = False

        index = 0
        while index < len(self._running) and budget > 0:
            request = self._running[index]
            count = min(request.known_tokens - request.computed_tokens, budget)
            while not self._grow(request, count):
                preempted = True
                if self._preempt_last() is request:
                    break
            else:
                work.append((request, count))
                cached_tokens += request.computed_tokens
                budget -= count
            index += 1

        while (
            self._waiting and budget > 0 and not preempted and len(self._running) < self.limits.max_num_seqs
        ):
            request = self._waiting[0]
            if request.arrived_at_s > now_s or _blocks_for(request.known_tokens) > self._free_blocks:
                break
            count = min(request.known_tokens, budget)
            self._grow(request, count)
            self._running.append(self._waiting.popleft())
            if request.admitted_at_s is None:
                request.admitted_at_s = now_s
            work.append((request, count))
            budget -= count

        if not work:
            return None
        tokens = self.limits.max_num_batched_tokens - budget
        return Step(now_s, self._duration_s(tokens, cached_tokens, len(work)), work)

    def complete(self, step: Step, now_s: float) -> list[Request]:
        """End a step at `now_s`: the requests that gained one answer token, in the order of the step."""
        gained: list[Request] = []
        some_finished = False
        for request, count in step.work:
            if request.aborted:
                continue
            request.computed_tokens += count
            if request.computed_tokens < request.known_tokens:
                continue
            if request.emitted_tokens == 0:
                request.first_token_at_s = now_s
                self.totals.prompt_tokens += request.prompt_tokens
            request.emitted_tokens += 1
            request.last_token_at_s = now_s
            gained.append(request)
            if request.finished:
                self._release(request)
                some_finished = True
        self.totals.generation_tokens += len(gained)
        if some_finished:
            self._running = [request for request in self._running if not request.finished]
        return gained

    def _grow(self, request: Request, count: int) -> bool:
        """Take the blocks for `count` more tokens; False (and none taken) when too few are free."""
        more = _blocks_for(request.computed_tokens + count) - request.blocks
        if more > self._free_blocks:
            return False
        self._free_blocks -= more
        request.blocks += more
        return True

    def _preempt_last(self) -> Request:
        request = self._running.pop()
        self._release(request)
        request.computed_tokens = 0
        request.preemptions += 1
        self.totals.preemptions += 1
        self._waiting.appendleft(request)
        return request

    def _release(self, request: Request) -> None:
        self._free_blocks += request.blocks
        request.blocks = 0

    def _duration_s(self, tokens: int, cached_tokens: int, sequences: int) -> float:
        duration_s = self.cost.step_time_s(tokens, cached_tokens, sequences)
        if self.jitter_ratio == 0:
            return duration_s
        spread = self.jitter_ratio
        return duration_s * self._rng.lognormvariate(-spread * spread / 2, spread)


def _blocks_for(tokens: int) -> int:
    return -(-tokens // BLOCK_TOKENS)
