"""Continuous batching on an injected clock: no I/O, no wall time, no threads.

The loop is that of vLLM's V1 scheduler. There are no prefill and decode phases: each step spends one budget
of tokens, first on the running requests in their order (one token each, or the next part of a long prompt),
then on the waiting ones, first come first served unless a policy (policy.py) says otherwise. A request's
answer token comes out of the step that computes the last of its known tokens (prompt plus answer so far).

    schedule(now_s)  ──►  Step: who computes how many tokens, and how long it takes
    complete(step, now_s)  ──►  the requests that gained a token; `finished` says whose answer is whole

Whoever drives it owns the time: the server waits until the step is due, a simulation adds `duration_s` to a
number.

KV cache (kv_cache.py): blocks of 16 tokens, taken as tokens are computed, given back when a request ends.
When a running request needs a block and none is free, the LAST running request is preempted: its cache is
dropped, it goes to the front of the waiting ones and computes prompt and answer so far again; nothing
waiting is admitted in that step. A waiting request is admitted only if all its known tokens would fit at
once; those that the prefix cache still holds need not be computed.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from simserver.accounts import Accounts
from simserver.admission import Queue
from simserver.cost import CostModel
from simserver.kv_cache import KvCache
from simserver.plan import Plan
from simserver.policy import FCFS, Policy, StepBudget, View
from simserver.request import BLOCK_TOKENS, Limits, Request, Step, Totals, blocks_for

ARRIVALS_KEPT = 1_024


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
    policy: Policy = FCFS
    totals: Totals = field(default_factory=Totals, init=False)
    _waiting: deque[Request] = field(default_factory=deque, init=False)
    _running: list[Request] = field(default_factory=list, init=False)
    _kv: KvCache = field(init=False)
    _rng: random.Random = field(init=False)
    _steps: int = field(default=0, init=False)
    _arrivals_s: deque[float] = field(default_factory=lambda: deque(maxlen=ARRIVALS_KEPT), init=False)
    _accounts: Accounts = field(default_factory=Accounts, init=False)
    _prefill_tokens_per_s: float = field(init=False)
    _whole_budget: StepBudget = field(init=False)

    def __post_init__(self) -> None:
        self._kv = KvCache(self.limits.blocks)
        self._rng = random.Random(self.seed)
        budget = self.limits.max_num_batched_tokens
        self._whole_budget = StepBudget(budget, budget, budget)
        self._prefill_tokens_per_s = budget / self.cost.step_time_s(budget, 0, 1)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def kv_cache_used_ratio(self) -> float:
        return self._kv.used_ratio

    @property
    def queue(self) -> Queue:
        """What an admission rule looks at."""
        waiting_tokens = sum(request.known_tokens for request in self._waiting)
        begun = sum(r.known_tokens - r.computed_tokens for r in self._running if not r.decoding)
        backlog_s = (waiting_tokens + begun) / self._prefill_tokens_per_s
        return Queue(len(self._waiting), len(self._running), waiting_tokens, backlog_s)

    def next_start_s(self, now_s: float) -> float | None:
        """When an idle driver should next call `schedule`; None when nothing waits or runs.

        The first arrival, or later where the policy holds arrivals back. A new arrival may change it.
        """
        if self._running:
            return now_s
        if not self._waiting:
            return None
        first_s = max(now_s, min(request.arrived_at_s for request in self._waiting))
        if self.policy.opens_at_s is None:
            return first_s
        return max(first_s, self.policy.opens_at_s(self._view(first_s)))

    def submit(self, request: Request) -> None:
        """Put a request at the end of the waiting ones.

        Raises ValueError when it asks for less than one token each way or for more than the KV cache holds.
        """
        if request.prompt_tokens < 1 or request.output_tokens < 1:
            raise ValueError("a request needs at least 1 prompt token and 1 output token")
        if blocks_for(request.prompt_tokens + request.output_tokens - 1) > self.limits.blocks:
            raise ValueError(
                f"{request.prompt_tokens} prompt + {request.output_tokens} output tokens do not fit the "
                f"KV cache of {self.limits.whole_kv_tokens} tokens"
            )
        self._accounts.open(request)
        self._arrivals_s.append(request.arrived_at_s)
        self._waiting.append(request)

    def abort(self, request: Request) -> None:
        """Drop a request and free its KV blocks at once, even while a step runs. Harmless when it is over."""
        if request.finished or request.aborted:
            return
        request.aborted = True
        if request in self._running:
            self._running.remove(request)
        else:
            self._waiting.remove(request)
        self._end(request)

    def schedule(self, now_s: float) -> Step | None:
        """The step that starts now, None when there is nothing to do.

        A request that arrived after `now_s` does not join, so that a driver that runs late stays honest.
        """
        plan = self._plan(now_s, self.policy)
        if not plan.work and not self.policy.plain and not self._held(now_s):
            plan = self._plan(now_s, FCFS)
        if not plan.work:
            return None
        self._steps += 1
        return Step(now_s, self._duration_s(plan), plan.tokens, plan.work)

    def complete(self, step: Step, now_s: float) -> list[Request]:
        """End a step at `now_s`: the requests that gained one answer token, in the order of the step."""
        gained: list[Request] = []
        some_finished = False
        for request, count in step.work:
            if request.aborted:
                continue
            computed = request.computed_tokens + count
            request.computed_tokens = computed
            if computed < request.known_tokens:
                continue
            emitted = request.emitted_tokens + 1
            if emitted == 1:
                request.first_token_at_s = now_s
                self.totals.prompt_tokens += request.prompt_tokens
                self.totals.cached_prompt_tokens += request.cached_prompt_tokens
            request.emitted_tokens = emitted
            request.known_tokens += 1
            request.last_token_at_s = now_s
            gained.append(request)
            if emitted >= request.output_tokens:
                self._end(request)
                some_finished = True
        self.totals.generation_tokens += len(gained)
        if some_finished:
            self._running = [request for request in self._running if not request.finished]
        return gained

    def _plan(self, now_s: float, policy: Policy) -> Plan:
        looks = policy.budget or (self._waiting and not policy.plain)
        view = self._view(now_s) if looks else None
        budget = policy.budget(view) if view and policy.budget else self._whole_budget
        plan = Plan(budget)
        preempted = self._go_on(plan)
        if self._waiting and not preempted:
            self._admit(plan, now_s, policy, view)
        return plan

    def _go_on(self, plan: Plan) -> bool:
        """Plan the running requests' next tokens; True when one had to be preempted."""
        preempted = False
        running, most = self._running, plan.budget.tokens
        index = 0
        while (index := self._write_on(plan, index)) < len(running) and plan.tokens < most:
            request = running[index]
            computed = request.computed_tokens
            count = request.known_tokens - computed
            decoding = request.decoding
            if not decoding:
                count = plan.room_for_prompt(count)
                if count < 1:
                    index += 1
                    continue
            while not self._kv.take(request, computed + count):
                preempted = True
                place = self._preempt(plan)
                if place == index:
                    break
                index -= place < index
            else:
                plan.add(request, count, prompt=not decoding)
                index += 1
        return preempted

    def _write_on(self, plan: Plan, index: int) -> int:
        """Plan a token for each running request from place `index` that wants one and has room for it.

        Returns the place of the first that wants more, or of the first beyond the budget. Nearly all of
        an engine's work is this loop, so it is kept short.
        """
        work = plan.work
        room = min(plan.budget.tokens - plan.tokens, len(self._running) - index)
        cached_tokens, last = plan.cached_tokens, index + room
        before = index
        for request in islice(self._running, index, last):
            computed = request.computed_tokens
            if (
                request.known_tokens - computed != 1
                or not request.emitted_tokens
                or computed >= request.blocks * BLOCK_TOKENS
            ):
                break
            work.append((request, 1))
            cached_tokens += computed
            index += 1
        plan.cached_tokens = cached_tokens
        plan.tokens += index - before
        return index

    def _admit(self, plan: Plan, now_s: float, policy: Policy, view: View | None) -> None:
        """Plan what waiting requests there is room for."""
        if view and policy.opens_at_s and policy.opens_at_s(view) > now_s:
            return
        gate = policy.gate(view) if view and policy.gate else None
        queue: Iterable[Request] = self._waiting
        if view and policy.order:
            queue = sorted(view.waiting, key=policy.order(view))
        started = 0
        for request in queue:
            if len(self._running) >= self.limits.max_num_seqs or plan.room_for_prompt(1) < 1:
                break
            if request.arrived_at_s > now_s:
                break
            if gate and not gate(request):
                continue
            if not self._start(plan, request, now_s):
                break
            started += 1
        if started:
            gone = set(self._running[-started:])
            self._waiting = deque(request for request in self._waiting if request not in gone)

    def _start(self, plan: Plan, request: Request, now_s: float) -> bool:
        """Move a waiting request into the step; False when it does not fit the KV cache."""
        prefix_blocks = self._kv.prefix_blocks(request) if request.block_hashes else 0
        if not self._kv.fits(request, prefix_blocks):
            return False
        if request.block_hashes:
            self._kv.attach(request, prefix_blocks)
            self.totals.prefix_queries += request.known_tokens
            self.totals.prefix_hits += request.computed_tokens
        count = plan.room_for_prompt(request.known_tokens - request.computed_tokens)
        self._kv.take(request, request.computed_tokens + count)
        plan.add(request, count, prompt=True)
        self._running.append(request)
        if request.admitted_at_s is None:
            request.admitted_at_s = now_s
            request.cached_prompt_tokens = request.computed_tokens
        return True

    def _preempt(self, plan: Plan) -> int:
        """Put one running request back to the front of the waiting ones; returns the place it had."""
        victim = self.policy.victim
        place = victim(self._running) if victim else len(self._running) - 1
        request = self._running.pop(place)
        plan.drop(request)
        self._kv.release(request)
        request.computed_tokens = 0
        request.preemptions += 1
        self.totals.preemptions += 1
        self._waiting.appendleft(request)
        return place

    def _end(self, request: Request) -> None:
        self._kv.release(request)
        self._accounts.close(request)

    def _held(self, now_s: float) -> bool:
        opens_at_s = self.policy.opens_at_s
        return bool(opens_at_s and self._waiting and opens_at_s(self._view(now_s)) > now_s)

    def _view(self, now_s: float) -> View:
        return View(
            now_s=now_s,
            step=self._steps,
            waiting=[request for request in self._waiting if request.arrived_at_s <= now_s],
            running=self._running,
            limits=self.limits,
            arrivals_s=self._arrivals_s,
            served_tokens=self._accounts.served_tokens,
            prefill_tokens_per_s=self._prefill_tokens_per_s,
        )

    def _duration_s(self, plan: Plan) -> float:
        duration_s = self.cost.step_time_s(plan.tokens, plan.cached_tokens, len(plan.work), plan.pairs)
        if self.jitter_ratio == 0:
            return duration_s
        spread = self.jitter_ratio
        return duration_s * self._rng.lognormvariate(-spread * spread / 2, spread)
