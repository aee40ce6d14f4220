"""What a gateway counts with: a token bucket, a gate with a bounded queue, a circuit breaker.

Pure, each on its own; whoever calls brings the time, in seconds of any one clock that never goes
back."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

_SLACK = 1e-9
"""Share of a bucket by which a sum of floats may fall short of it."""

Who = TypeVar("Who", bound=Hashable)
State = Literal["closed", "open", "half-open"]


@dataclass(slots=True)
class TokenBucket:
    """Holds `burst` at most, fills with `rate_per_s`, starts full. In any time t at most burst +
    rate * t can be taken from it.

    Only the moment at which it is full again is kept (the generic cell rate algorithm, ITU-T I.371,
    in its virtual scheduling form), so nothing has to be done while time passes."""

    rate_per_s: float
    burst: float
    full_at_s: float = -math.inf

    def level(self, now_s: float) -> float:
        """How much is in it."""
        return self.burst - self.reset_s(now_s) * self.rate_per_s

    def reset_s(self, now_s: float) -> float:
        """Seconds until it is full again if nothing more is taken."""
        return max(0.0, self.full_at_s - now_s)

    def wait_s(self, amount: float, now_s: float) -> float:
        """Seconds until `amount` can be taken: 0 for now, infinite when it never holds so much."""
        if amount > self.burst:
            return math.inf
        short = amount - self.level(now_s)
        return short / self.rate_per_s if short > _SLACK * self.burst else 0.0

    def take(self, amount: float, now_s: float) -> None:
        """Take it out; ask `wait_s` first."""
        self.full_at_s = max(self.full_at_s, now_s) + amount / self.rate_per_s


@dataclass(slots=True)
class ConcurrencyGate(Generic[Who]):
    """Lets `limit` in at once; `queue` more may wait for `timeout_s`, first come first served.

    Nobody waits while there is room: a place that becomes free goes to the first who waits.
    """

    limit: int
    queue: int
    timeout_s: float
    in_flight: int = 0
    _waiting: dict[Who, float] = field(default_factory=dict)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def enter(self, who: Who, now_s: float) -> Literal["in", "queued", "full"]:
        """Someone has come."""
        if self.in_flight < self.limit:
            self.in_flight += 1
            return "in"
        if len(self._waiting) >= self.queue:
            return "full"
        self._waiting[who] = now_s + self.timeout_s
        return "queued"

    def leave(self) -> Who | None:
        """One who was in has gone: who has the place now, None when nobody waited for it."""
        following = next(iter(self._waiting), None)
        if following is None:
            self.in_flight -= 1
        else:
            del self._waiting[following]
        return following

    def late(self, now_s: float) -> list[Who]:
        """Those who have waited their time out by now; they are taken from the queue."""
        gone: list[Who] = []
        for who, until_s in self._waiting.items():  # in order of coming, so of time too
            if until_s > now_s:
                break
            gone.append(who)
        for who in gone:
            del self._waiting[who]
        return gone

    def forget(self, who: Who) -> None:
        """One who waited has gone. Harmless when it did not wait."""
        self._waiting.pop(who, None)


@dataclass(slots=True)
class Breaker:
    """Closed: all go on. Open: nobody does, for `open_s`. Half-open: one probe goes on; if it
    succeeds the breaker is closed, if it fails it is open again.

    It opens after `failures` in a row, or when `ratio` of the requests that ended in the last
    `window_s` have failed and there were `least` of them. What was under way when it opened is not
    counted when it ends."""

    open_s: float
    failures: int | None = None
    ratio: float | None = None
    window_s: float = 10.0
    least: int = 10
    times_opened: int = 0
    _opened_at_s: float | None = None
    _probing: bool = False
    _in_a_row: int = 0
    _recent: deque[tuple[float, bool]] = field(default_factory=deque)

    def state(self, now_s: float) -> State:
        if self._opened_at_s is None:
            return "closed"
        return "open" if self.wait_s(now_s) > 0 else "half-open"

    def wait_s(self, now_s: float) -> float:
        """Seconds until a probe may go on."""
        return 0.0 if self._opened_at_s is None else max(0.0, self._opened_at_s + self.open_s - now_s)

    def enter(self, now_s: float) -> int | None:
        """Someone wants to go on: None if it may not, else the number to tell `ended`."""
        if self._opened_at_s is not None:
            if self._probing or self.wait_s(now_s) > 0:
                return None
            self._probing = True
        return self.times_opened

    def ended(self, number: int, failed: bool | None, now_s: float) -> None:
        """One that went on has ended; `failed` is None when that says nothing, as when its client
        left."""
        if number != self.times_opened:
            return
        if self._opened_at_s is not None:
            self._probing = False
            if failed:
                self._open(now_s)
            elif failed is not None:
                self._opened_at_s = None
        elif failed is not None and self._too_many(failed, now_s):
            self._open(now_s)

    def _too_many(self, failed: bool, now_s: float) -> bool:
        if self.failures is not None:
            self._in_a_row = self._in_a_row + 1 if failed else 0
            return self._in_a_row >= self.failures
        recent = self._recent
        recent.append((now_s, failed))
        while recent[0][0] <= now_s - self.window_s:
            recent.popleft()
        bad = sum(one_failed for _, one_failed in recent)
        return len(recent) >= self.least and self.ratio is not None and bad >= self.ratio * len(recent)

    def _open(self, now_s: float) -> None:
        self._opened_at_s = now_s
        self.times_opened += 1
        self._in_a_row = 0
        self._recent.clear()
