"""POLICIES: ways to schedule, one row each, to try against each other. policy.py says what a row may decide.

A new one is a function from its options to a Policy, and a row; the contract tests take it from there.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from simserver.policy import FCFS, Policy, PolicyKind, StepBudget, View
from simserver.request import Request

Key = tuple[float, ...]


def fcfs() -> Policy:
    """First come, first served, from vLLM's own rules."""
    return FCFS


def shortest_prompt_first(aging: float) -> Policy:
    """Key = known tokens + aging * arrival time: a second of waiting is worth `aging` tokens.

    All requests age alike, so the order of two never changes while they wait.
    """

    def order(view: View) -> Callable[[Request], Key]:
        return lambda request: (request.known_tokens + aging * request.arrived_at_s, request.arrived_at_s)

    return Policy(order=order)


def _urgency(request: Request) -> Key:
    return (request.priority, request.arrived_at_s)


def priority() -> Policy:
    """vLLM's priority policy: lowest number first, and the least urgent running request is preempted."""

    def least_urgent(running: Sequence[Request]) -> int:
        return max(range(len(running)), key=lambda place: _urgency(running[place]))

    return Policy(order=lambda view: _urgency, victim=least_urgent)


def _whole(view: View) -> StepBudget:
    tokens = view.limits.max_num_batched_tokens
    return StepBudget(tokens, tokens, tokens)


def prefill_cadence(every: float, escape: float) -> Policy:
    """Prompts in every n-th step only, so that the steps between are short.

    While more than `escape` requests wait the cadence is off: it would never drain. (vLLM's
    --prefill-schedule-interval, with a plainer escape.)
    """

    def budget(view: View) -> StepBudget:
        off_beat = view.step % int(every) and len(view.waiting) <= escape
        if off_beat and any(request.decoding for request in view.running):
            return replace(_whole(view), prompt_tokens=0)
        return _whole(view)

    return Policy(budget=budget)


def prefill_grouping(over: float, tokens: float) -> Policy:
    """While more than `over` requests wait, a step computes up to `tokens` tokens instead of its budget."""

    def budget(view: View) -> StepBudget:
        usual = view.limits.max_num_batched_tokens
        most = max(usual, int(tokens)) if len(view.waiting) > over else usual
        return StepBudget(most, most, most)

    return Policy(budget=budget)


def long_prompt_cap(tokens: float) -> Policy:
    """One prompt computes at most `tokens` tokens in a step, so that others get in beside it.

    vLLM's --long-prefill-token-threshold; as there, a lone prompt has the whole budget.
    """

    def budget(view: View) -> StepBudget:
        begun = sum(not request.decoding for request in view.running)
        if begun + len(view.waiting) < 2:
            return _whole(view)
        return replace(_whole(view), of_one_prompt=max(1, int(tokens)))

    return Policy(budget=budget)


def arrival_gap(gap: float, hold: float, most: float) -> Policy:
    """Hold arrivals back until none has come for `gap` seconds, then admit them together.

    At most `hold` seconds after the first of them came, and at once when `most` of them wait.
    """

    def opens_at_s(view: View) -> float:
        if not view.waiting or len(view.waiting) >= most:
            return view.now_s
        arrived = [request.arrived_at_s for request in view.waiting]
        return min(max(arrived) + gap, min(arrived) + hold)

    return Policy(opens_at_s=opens_at_s)


def expected_arrivals(arrivals_s: Sequence[float], now_s: float, window: float, horizon: float) -> float:
    """Arrivals to expect in the next `horizon` seconds: the last window's rate, and its rise carried on.

    rate = (n1 + (n1 - n0)) / window, with n1 arrivals in the last `window` seconds and n0 in the one before.
    """
    last = sum(now_s - window < at_s <= now_s for at_s in arrivals_s)
    before = sum(now_s - 2 * window < at_s <= now_s - window for at_s in arrivals_s)
    return max(0.0, 2 * last - before) / window * horizon


def reserved_slots(long: float, window: float, horizon: float) -> Policy:
    """Prompts of `long` tokens or more leave as many running places free as arrivals are forecast."""

    def gate(view: View) -> Callable[[Request], bool]:
        reserved = math.ceil(expected_arrivals(view.arrivals_s, view.now_s, window, horizon))

        def may_start(request: Request) -> bool:
            free = view.limits.max_num_seqs - len(view.running)
            return request.prompt_tokens < long or free > reserved

        return may_start

    return Policy(gate=gate)


def deadline(target: float) -> Policy:
    """Who can still have its first token within `target` seconds goes first; who cannot comes last.

    Can: the deadline has not passed by the time its own prompt would be computed.
    """

    def order(view: View) -> Callable[[Request], Key]:
        def key(request: Request) -> Key:
            due_s = request.arrived_at_s + target
            late = view.now_s + request.known_tokens / view.prefill_tokens_per_s > due_s
            return (late, due_s)

        return key

    return Policy(order=order)


def _used_by_tenant(view: View) -> defaultdict[str | None, float]:
    """Tokens computed for each tenant so far, for ended and running requests."""
    used: defaultdict[str | None, float] = defaultdict(float, view.served_tokens)
    for request in view.running:
        used[request.tenant] += request.computed_tokens
    return used


def fair_share() -> Policy:
    """The tenant that was served the fewest tokens is next; within a tenant, first come, first served.

    Each waiting request is tagged with what its tenant will have used when its turn comes: tokens served so
    far and the prompts in front of it. (Virtual token counter, Sheng et al., OSDI 2024.)
    """

    def order(view: View) -> Callable[[Request], Key]:
        used = _used_by_tenant(view)
        tags: dict[Request, Key] = {}
        for request in view.waiting:
            tags[request] = (used[request.tenant], request.arrived_at_s)
            used[request.tenant] += request.known_tokens
        return tags.__getitem__

    return Policy(order=order)


def quota(running: float) -> Policy:
    """No tenant runs more than this many requests at once; those beyond wait, others pass them."""

    def gate(view: View) -> Callable[[Request], bool]:
        places = Counter(request.tenant for request in view.running)

        def may_start(request: Request) -> bool:
            if places[request.tenant] >= running:
                return False
            places[request.tenant] += 1
            return True

        return may_start

    return Policy(gate=gate)


POLICIES: dict[str, PolicyKind] = {
    row.name: row
    for row in (
        PolicyKind("fcfs", "first come, first served, as vLLM does", fcfs),
        PolicyKind(
            "shortest-prompt-first",
            "short prompts overtake long ones",
            shortest_prompt_first,
            {"aging": (0.0, "tokens that a second of waiting is worth; above 0 nobody starves")},
            starves=True,
        ),
        PolicyKind(
            "priority", "the request's own priority, low numbers first, as vLLM does", priority, starves=True
        ),
        PolicyKind(
            "prefill-cadence",
            "prompts only in every n-th step while answers are being written",
            prefill_cadence,
            {
                "every": (4, "steps from one with prompts to the next"),
                "escape": (32, "requests waiting beyond which every step takes prompts"),
            },
        ),
        PolicyKind(
            "prefill-grouping",
            "a larger step while many wait: prompts of a peak are computed together",
            prefill_grouping,
            {
                "over": (8, "requests waiting beyond which the step grows"),
                "tokens": (8_192, "tokens of such a step"),
            },
        ),
        PolicyKind(
            "long-prompt-cap",
            "a long prompt leaves room for others in each step",
            long_prompt_cap,
            {"tokens": (512, "tokens of one prompt in a step")},
        ),
        PolicyKind(
            "arrival-gap",
            "arrivals that come close together start together",
            arrival_gap,
            {
                "gap": (0.02, "seconds without an arrival that end a group"),
                "hold": (0.2, "seconds that the first of a group waits at most"),
                "most": (32, "requests that are a group at once"),
            },
        ),
        PolicyKind(
            "reserved-slots",
            "long prompts leave places for the arrivals that a forecast expects",
            reserved_slots,
            {
                "long": (2_000, "prompt tokens from which a prompt is long"),
                "window": (2, "seconds of arrivals that the forecast looks at"),
                "horizon": (1, "seconds ahead for which places are kept"),
            },
            starves=True,
        ),
        PolicyKind(
            "deadline",
            "who can still meet the target comes first, who cannot comes last",
            deadline,
            {"target": (1.0, "seconds to the first token")},
            starves=True,
        ),
        PolicyKind("fair-share", "the tenant that was served least is next", fair_share),
        PolicyKind(
            "quota",
            "a limit on each tenant's running requests",
            quota,
            {"running": (16, "requests of one tenant running at once")},
        ),
    )
}


def make_policy(name: str, options: Iterable[str] = ()) -> Policy:
    """The policy `name` with options such as `["every=4"]`. Raises ValueError that says what is wrong."""
    if name not in POLICIES:
        raise ValueError(f"policy {name!r} is unknown: choose from {', '.join(POLICIES)}")
    kind = POLICIES[name]
    values = {option: default for option, (default, _) in kind.options.items()}
    for text in options:
        option, _, value = text.partition("=")
        if option not in values:
            known = ", ".join(values) or "none"
            raise ValueError(f"policy {name} has no option {option!r}: its options are {known}")
        try:
            values[option] = float(value)
        except ValueError:
            values[option] = math.nan
        if not 0 <= values[option] < math.inf or (values[option] == 0 and kind.options[option][0]):
            raise ValueError(f"policy {name}: {text!r} needs a number above 0, such as {option}=2")
    return replace(kind.make(**values), name=name)
