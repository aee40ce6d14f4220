"""Fires one worker's arrivals at their moments; every arrival given to it ends in exactly one record.

Two greenlets share the work. One arms: it builds requests and opens connections a little ahead of time,
within bounds of count and memory. The other fires: it waits for each moment and lets the request go. What is
sent late is sent all the same, and its lag is in the record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import gevent
from gevent.event import Event
from gevent.pool import Group

from client import clock
from client.turns import BREATH_S, STRETCH_NS
from loadgen.arrival import Arrival
from loadgen.drain import drain

ARM_AHEAD_S = 5.0
"""How early a request may be built: the openai SDK takes 1-2 ms each, so a burst of 1,000 some 2 s."""

ARM_AT_MOST = 2_000
ARM_BYTES_AT_MOST = 64_000_000
CONNECT_AHEAD_S = 1.0
LEAST_ANSWER_S = 0.01
"""Connections are opened for the requests of the next second that will be in flight together for certain:
those within as long as the shortest answer so far took, and within this before the first one. So no
more are opened than come to be used at once (beside those that replace older ones), unless an answer comes
sooner than any before. The price: of a burst upon requests in flight whose answers take longer than the
shortest, as many open their connection in the burst."""

_LOOK_BACK_S = 1.0

_ARM_EVERY_S = 0.02
_WAKE_EARLY_S = 0.02


class Armed(Protocol):
    """A request that is built and waits for its moment."""

    @property
    def size_bytes(self) -> int: ...


class Sender(Protocol):
    """What the dispatcher needs of the client: build, open, send at once, wait for the end, cancel."""

    def arm(self, arrival: Arrival) -> Armed: ...
    def open_ahead(self, connections: int) -> None: ...
    def fire(self, armed: Any) -> None: ...
    def finish(self, armed: Any) -> None: ...
    def not_sent(self, arrival: Arrival, failure_class: str) -> None: ...
    def cancel_all(self) -> None: ...


@dataclass(eq=False)
class _Due:
    arrival: Arrival
    armed: Armed | None = None


def most_within(times_s: Sequence[float], span_s: float) -> int:
    """The most of `times_s` (rising) that lie within a span of `span_s`, its end left out."""
    most = first = 0
    for last, at_s in enumerate(times_s):
        while times_s[first] <= at_s - span_s:
            first += 1
        most = max(most, last - first + 1)
    return most


class Dispatcher:
    """One run's dispatcher on one worker.

    `duration_s` is the load window and `drain_s` the longest wait after it. Arrivals come by `add`; `start`
    gives the start moment on this machine's monotonic clock; `run` returns when every arrival is accounted
    for.
    """

    def __init__(self, sender: Sender, duration_s: float, drain_s: float) -> None:
        self._sender = sender
        self._duration_s = duration_s
        self._drain_s = drain_s
        self._due: deque[_Due] = deque()
        self._armed_bytes = 0
        self._complete = False
        self._news = Event()
        self._started = Event()
        self._stopping = Event()
        self._stop_reason = "run_stopped"
        self._over = False
        self._fired_at_s: deque[float] = deque()
        self._shortest_answer_s: float | None = None
        self._in_flight: Group = Group()
        self._start_ns = 0
        self.fired = 0

    @property
    def in_flight(self) -> int:
        """Requests sent whose answer has not ended."""
        return len(self._in_flight)

    def add(self, arrivals: Iterable[Arrival], *, last: bool) -> None:
        """Hand over more arrivals, in order; `last` says that no more slices will come.

        Usually they are later than all before; an amendment may put some in between.
        """
        if self._over:
            for arrival in arrivals:
                self._sender.not_sent(arrival, "sent_too_late")
            return
        added = [_Due(arrival) for arrival in arrivals]
        in_between = bool(self._due and added and added[0].arrival.at_s < self._due[-1].arrival.at_s)
        self._due.extend(added)
        if in_between:
            self._due = deque(sorted(self._due, key=lambda due: due.arrival.at_s))
        self._complete = self._complete or last
        self._news.set()

    def start(self, start_ns: int) -> None:
        """Set the start moment (monotonic nanoseconds of this machine)."""
        self._start_ns = start_ns
        self._started.set()

    def stop(self, reason: str) -> None:
        """Send no more; what is in flight may still end within the drain limit."""
        self._stop_reason = reason
        self._stopping.set()
        self._started.set()
        self._news.set()

    def run(self) -> None:
        """Fire everything at its moment, drain, account for the rest. Returns with nothing in flight.

        What a request's making raises is raised again after that.
        """
        self._started.wait()
        arming = gevent.spawn(self._arm_ahead)
        try:
            self._fire_all()
        except Exception:
            self._stop_reason = "client_error"
            raise
        finally:
            arming.kill()
            self._over = True
            for due in self._due:
                self._sender.not_sent(due.arrival, self._stop_reason)
            self._due.clear()
            drain(self._in_flight, self._patience_s(), self._sender.cancel_all)

    def _fire_all(self) -> None:
        give_up_s = self._duration_s + self._drain_s
        while not self._stopping.is_set():
            due = self._next_due()
            if due is None:
                return
            if self._elapsed_s() > give_up_s:
                self._stop_reason = "sent_too_late"
                return
            if not self._wait_for(due.arrival.at_s):
                continue
            if self._fire_due():
                gevent.sleep(BREATH_S)  # behind with building: what comes in is read all the same

    def _fire_due(self) -> bool:
        """Fire all that is due by now in one go, and only then make what waits for their ends: a burst stays
        narrow. True when it stopped short, after building requests for STRETCH_NS.
        """
        now_s = self._elapsed_s()
        until_ns = clock.monotonic_ns() + STRETCH_NS
        fired: list[Armed] = []
        try:
            while self._due and self._due[0].arrival.at_s <= now_s:
                due = self._due[0]
                armed = due.armed or self._sender.arm(due.arrival)
                self._due.popleft()
                self._armed_bytes -= due.armed.size_bytes if due.armed else 0
                self._sender.fire(armed)
                fired.append(armed)
                self._fired_at_s.append(now_s)
                if due.armed is None and clock.monotonic_ns() > until_ns:
                    return True
        finally:
            self.fired += len(fired)
            for armed in fired:
                self._in_flight.spawn(self._finish, armed, now_s)
        return False

    def _finish(self, armed: Armed, fired_at_s: float) -> None:
        self._sender.finish(armed)
        took_s = self._elapsed_s() - fired_at_s
        if self._shortest_answer_s is None or took_s < self._shortest_answer_s:
            self._shortest_answer_s = took_s

    def _next_due(self) -> _Due | None:
        while not self._due:
            if self._complete or self._stopping.is_set():
                return None
            self._news.clear()
            self._news.wait()
        return self._due[0]

    def _wait_for(self, at_s: float) -> bool:
        """Wait until `at_s` after the start; False when a stop or more arrivals came first: look again."""
        self._news.clear()
        if self._stopping.is_set():
            return False
        early_s = at_s - self._elapsed_s() - _WAKE_EARLY_S
        if early_s > 0 and self._news.wait(early_s):
            return False
        clock.sleep_until_ns(self._start_ns + round(at_s * 1e9))
        return not self._news.is_set()

    def _patience_s(self) -> float:
        """How long requests in flight may take: the drain counts from the end of the load, or from a stop."""
        if self._stopping.is_set():
            return self._drain_s
        return max(self._duration_s + self._drain_s - self._elapsed_s(), 0.0)

    def _elapsed_s(self) -> float:
        return (clock.monotonic_ns() - self._start_ns) / 1e9

    def _arm_ahead(self) -> None:
        while True:
            try:
                connections, more = self._arm_some()
            except Exception:
                return  # the request that cannot be made will say so when its moment comes
            if connections:
                self._sender.open_ahead(connections)
            gevent.sleep(BREATH_S if more else _ARM_EVERY_S)

    def _arm_some(self) -> tuple[int, bool]:
        """Arm the next requests for STRETCH_NS; returns how many connections they will need soon, and whether
        there is more to do at once."""
        now_s = self._elapsed_s()
        until_ns = clock.monotonic_ns() + STRETCH_NS
        soon: list[float] = []
        for due in list(islice(self._due, ARM_AT_MOST)):
            if due.arrival.at_s > now_s + ARM_AHEAD_S:
                break
            if due.arrival.at_s < now_s + CONNECT_AHEAD_S:
                soon.append(due.arrival.at_s)
            if due.armed is None and self._armed_bytes < ARM_BYTES_AT_MOST:
                due.armed = self._sender.arm(due.arrival)
                self._armed_bytes += due.armed.size_bytes
                if clock.monotonic_ns() > until_ns:
                    return self._together(soon, now_s), True
        return self._together(soon, now_s), False

    def _together(self, soon: Sequence[float], now_s: float) -> int:
        """The most requests, `soon` ones or sent before, that will be in flight at once for certain."""
        if not soon:
            return 0
        span_s = LEAST_ANSWER_S if self._shortest_answer_s is None else self._shortest_answer_s
        while self._fired_at_s and self._fired_at_s[0] <= now_s - min(span_s, _LOOK_BACK_S):
            self._fired_at_s.popleft()
        return most_within([*self._fired_at_s, *soon], min(span_s, _LOOK_BACK_S))
