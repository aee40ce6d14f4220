"""A gateway before the server, on an injected clock: who is let through, who waits, who is turned
away and how.

The order is that of gateways: the cap on an answer's length, then rates, then the circuit breaker,
then the bounded queue before the server. What a rate turns away takes nothing from any bucket; what
comes further has been counted, even if the breaker or a full queue turns it away then.

    visit = gateway.enter(caller, prompt_tokens, output_tokens, now_s)   let through, waiting or refused
    moved = gateway.late(now_s)                        those whose time in the queue is over
    moved = gateway.leave(visit, failed, now_s)        it has ended: those who moved because of it

Whoever drives it tells each of the moved ones: a server over HTTP (gateway_door.py), a simulation
in virtual time."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from simserver.gateway_limits import Breaker, ConcurrencyGate, TokenBucket
from simserver.gateway_rules import MEASURES, Concurrency, GatewayRules, Rate


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, as far as known; `key` is a digest of the API key."""

    key: str | None = None
    tenant: str | None = None
    ip: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a request was turned away, in the fields of OpenAI's error object. `reason` is what it is
    counted under; retry_after_s: None where trying again does not help."""

    reason: str
    status: int
    message: str
    kind: str
    code: str
    retry_after_s: int | None = None
    param: str | None = None


@dataclass(slots=True, eq=False)
class Visit:
    """One request at the gateway. It waits until it is let through or refused; until_s: at most so
    long."""

    arrived_at_s: float
    until_s: float = math.inf
    passed_at_s: float | None = None
    refused: Refused | None = None
    breaker_number: int = 0

    @property
    def waits(self) -> bool:
        return self.passed_at_s is None and self.refused is None


@dataclass(frozen=True, slots=True)
class Standing:
    """A rate as OpenAI's x-ratelimit headers tell it: what fits the bucket, what is left, and the
    seconds until it is full."""

    limit: int
    remaining: int
    reset_s: float


class Gateway:
    """The rules and what they have counted. `passed` and `refused` (by reason and status) count
    requests, `in_flight` those let through that have not ended."""

    def __init__(self, rules: GatewayRules) -> None:
        self.rules = rules
        self.passed = 0
        self.clamped = 0
        self.refused: Counter[tuple[str, int]] = Counter()
        self._buckets: dict[tuple[Rate, str | None], TokenBucket] = {}
        self._gate: ConcurrencyGate[Visit] | None = None
        if (limits := rules.concurrency) is not None:
            self._gate = ConcurrencyGate(limits.limit, limits.queue, limits.timeout_s)
        self.breaker: Breaker | None = None
        if (given := rules.breaker) is not None:
            self.breaker = Breaker(given.open_s, given.failures, given.ratio, given.window_s, given.least)
        self.in_flight = 0

    @property
    def waiting(self) -> int:
        return self._gate.waiting if self._gate else 0

    def capped(self, tokens: int, param: str | None) -> int | Refused:
        """The longest answer that is let through when `tokens` are asked for by the field `param`,
        or by none: then they are the server's own limit, which nobody is turned away for."""
        cap = self.rules.token_cap
        if cap is None or tokens <= cap.most_tokens:
            return tokens
        if param is None:
            return cap.most_tokens
        if cap.over == "clamp":
            self.clamped += 1
            return cap.most_tokens
        return self._counted(
            Refused(
                "max_tokens",
                400,
                f"{param} is too large: {tokens}. At most {cap.most_tokens} completion tokens may be asked "
                f"for, whereas you provided {tokens}.",
                "invalid_request_error",
                "invalid_value",
                param=param,
            )
        )

    def enter(self, caller: Caller, prompt_tokens: int, output_tokens: int, now_s: float) -> Visit:
        """A request has come, its answer's length capped already."""
        visit, limits = Visit(now_s), self.rules.concurrency
        if (refused := self._over_a_rate(caller, prompt_tokens, output_tokens, now_s)) is not None:
            visit.refused = self._counted(refused)
        elif self.breaker and self.breaker.state(now_s) == "open":
            visit.refused = self._counted(_circuit_open(self.breaker.wait_s(now_s)))
        elif self._gate is None or limits is None:
            self._let_through(visit, now_s)
        else:
            place = self._gate.enter(visit, now_s)
            if place == "queued":
                visit.until_s = now_s + limits.timeout_s
            elif place == "full":
                visit.refused = self._counted(_queue_full(limits))
            elif not self._let_through(visit, now_s):
                self._gate.leave()
        return visit

    def leave(self, visit: Visit, failed: bool | None, now_s: float) -> list[Visit]:
        """A request has ended, or its client has left; `failed` as Breaker.ended has it. Harmless
        for one that was refused."""
        if visit.refused is not None:
            return []
        moved = self.late(now_s)
        if visit.passed_at_s is None:
            if self._gate:
                self._gate.forget(visit)
            return [one for one in moved if one is not visit]
        self.in_flight -= 1
        if self.breaker:
            self.breaker.ended(visit.breaker_number, failed, now_s)
        while self._gate and (following := self._gate.leave()) is not None:
            moved.append(following)
            if self._let_through(following, now_s):
                break
        return moved

    def late(self, now_s: float) -> list[Visit]:
        """Those who have waited too long; refused now."""
        limits = self.rules.concurrency
        if self._gate is None or limits is None:
            return []
        gone = self._gate.late(now_s)
        for visit in gone:
            visit.refused = self._counted(_too_late(limits))
        return gone

    def standings(self, caller: Caller, now_s: float) -> dict[str, Standing]:
        """How the caller stands, by rate; of two rates of a name the one with the smaller share
        left."""
        found: dict[str, tuple[float, Standing]] = {}
        for rate in self.rules.rates:
            bucket = self._bucket(rate, caller)
            level = bucket.level(now_s)
            share = level / bucket.burst
            if rate.name not in found or share < found[rate.name][0]:
                remaining = max(0, math.floor(level + 1e-9 * bucket.burst))
                found[rate.name] = (share, Standing(int(rate.burst), remaining, bucket.reset_s(now_s)))
        return {name: standing for name, (_, standing) in found.items()}

    def _over_a_rate(
        self, caller: Caller, prompt_tokens: int, output_tokens: int, now_s: float
    ) -> Refused | None:
        """The rate that the request would have to wait for longest; takes from all buckets when
        there is none."""
        asked = [
            (rate, self._bucket(rate, caller), MEASURES[rate.name](prompt_tokens, output_tokens))
            for rate in self.rules.rates
        ]
        waits_s = [bucket.wait_s(amount, now_s) for _, bucket, amount in asked]
        if longest_s := max(waits_s, default=0.0):
            rate, _, amount = asked[waits_s.index(longest_s)]
            return _rate_limited(rate, amount, longest_s)
        for _, bucket, amount in asked:
            bucket.take(amount, now_s)
        return None

    def _bucket(self, rate: Rate, caller: Caller) -> TokenBucket:
        who = None if rate.per == "all" else getattr(caller, rate.per)
        return self._buckets.setdefault((rate, who), TokenBucket(rate.rate_per_s, rate.burst))

    def _let_through(self, visit: Visit, now_s: float) -> bool:
        """Let it through unless the breaker says no."""
        if self.breaker:
            number = self.breaker.enter(now_s)
            if number is None:
                visit.refused = self._counted(_circuit_open(self.breaker.wait_s(now_s)))
                return False
            visit.breaker_number = number
        visit.passed_at_s = now_s
        self.passed += 1
        self.in_flight += 1
        return True

    def _counted(self, refused: Refused) -> Refused:
        self.refused[refused.reason, refused.status] += 1
        return refused


def _whole_seconds(seconds: float) -> int:
    """Retry-After has no fractions and is never 0."""
    return max(1, math.ceil(seconds - 1e-6))


def _rate_limited(rate: Rate, amount: float, wait_s: float) -> Refused:
    reason = rate.name.replace("-", "_")
    kind = "requests" if rate.name == "requests" else "tokens"
    if math.isinf(wait_s):
        message = f"Request too large on {rate.name}: limit {rate.burst:g}, requested {amount:g}."
        return Refused(reason, 429, message, kind, "rate_limit_exceeded")
    after_s = _whole_seconds(wait_s)
    message = (
        f"Rate limit reached on {rate.name}: limit {rate.rate_per_s * 60:g} per min, {rate.burst:g} at once. "
        f"Please try again in {after_s}s."
    )
    return Refused(reason, 429, message, kind, "rate_limit_exceeded", after_s)


def _queue_full(limits: Concurrency) -> Refused:
    message = f"Too many requests: {limits.limit} are under way and the queue is full ({limits.queue})."
    return Refused("queue_full", limits.full_status, message, "rate_limit_error", "queue_full", 1)


def _too_late(limits: Concurrency) -> Refused:
    message = f"Too many requests: waited {limits.timeout_s:g}s in the queue without a free place."
    return Refused("queue_timeout", limits.timeout_status, message, "server_error", "queue_timeout", 1)


def _circuit_open(wait_s: float) -> Refused:
    after_s = _whole_seconds(wait_s)
    message = f"No healthy upstream: circuit open, next try in {after_s}s."
    return Refused("circuit_open", 503, message, "server_error", "circuit_open", after_s)
