"""Closed loop: a pool of users, each with one request at a time, whose number follows the plan exactly.

               10 ┌─────┐
    users(t)   2 ─┘     └──────
    user 1     ██ ███ ██ ███ ██     active all the time: the next request when the answer has ended
    user 5        ███ ████          active in the pulse: wakes at its start, parks after an answer

User u belongs to worker u mod n and is active while u < users(t), so every worker knows its part from the
plan alone. No request is cut because the number falls. Users that become active wake at the moment itself, in
one burst, with their requests built and connections open.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import gevent
from gevent.event import Event
from gevent.pool import Group

from client import clock
from client.turns import BREATH_S, STRETCH_NS, Turns
from loadgen import dispatch
from loadgen.arrival import Arrival
from loadgen.dispatch import ARM_AHEAD_S, ARM_AT_MOST, ARM_BYTES_AT_MOST, CONNECT_AHEAD_S
from loadgen.drain import drain

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 1.0
"""A user pauses after a failure, twice as long after the next one: a server that refuses is not hammered."""

_ARM_EVERY_S = 0.02
_WAKE_EARLY_S = 0.02

RequestOf = Callable[[int, int], Arrival]
"""What user u asks for in its n-th request, both from 0; the loop sets the moment."""


def activations(
    changes: Iterable[tuple[float, int]], worker: int, workers: int
) -> Iterator[tuple[float, int]]:
    """(at_s, user) for each of this worker's users that becomes active, in order of time.

    `changes` are (at_s, users from then on); before the first there are none.
    """
    before = 0
    for at_s, users in changes:
        first = before + (worker - before) % workers
        for user in range(first, users, workers):
            yield at_s, user
        before = users


class Armed(dispatch.Armed, Protocol):
    """A request that is built, and after its end tells whether it ended well."""

    @property
    def succeeded(self) -> bool: ...


class Sender(dispatch.Sender, Protocol):
    """What the loop needs of the client."""

    def arm(self, arrival: Arrival) -> Armed: ...


@dataclass
class _User:
    """One user: its next turn, whether it is awake (asking or pausing), and its request once built."""

    number: int
    turn: int = 0
    awake: bool = False
    armed: Armed | None = field(default=None, repr=False)


class ClosedLoop:
    """One run's users on one worker; used like a Dispatcher.

    `changes` are the run's (at_s, users) in order, 0 users at the end (shapes.users.user_changes);
    `duration_s` is the load window and `drain_s` the longest wait after it. `start` gives the start moment on
    this machine's monotonic clock; `run` returns when nothing is in flight any more.

    A record's `session` is the user's number and its `turn` counts that user's requests. `scheduled_at_s` is
    the moment of activation for a request that woke a user, so that its send lag is known; a request that
    followed on an answer was due at no moment of the plan and has none. An activation that was missed before
    the end is told as not sent.
    """

    def __init__(
        self,
        sender: Sender,
        changes: Sequence[tuple[float, int]],
        request_of: RequestOf,
        *,
        worker: int,
        workers: int,
        duration_s: float,
        drain_s: float,
    ) -> None:
        self._sender = sender
        self._request_of = request_of
        self._duration_s = duration_s
        self._drain_s = drain_s
        self._change_at_s = [at_s for at_s, _ in changes]
        self._users_from = [users for _, users in changes]
        self._activations = activations(changes, worker, workers)
        self._due: deque[tuple[float, _User]] = deque()
        self._users: dict[int, _User] = {}
        self._armed_bytes = 0
        self._started = Event()
        self._closing = Event()
        self._stop_reason = "sent_too_late"
        self._awake: Group = Group()
        self._building = Turns()
        self._error: Exception | None = None
        self._start_ns = 0
        self.fired = 0
        self.in_flight = 0

    def start(self, start_ns: int) -> None:
        """Set the start moment (monotonic nanoseconds of this machine)."""
        self._start_ns = start_ns
        self._started.set()

    def stop(self, reason: str) -> None:
        """Send no more; what is in flight may still end within the drain limit."""
        if not self._closing.is_set():
            self._stop_reason = reason
        self._closing.set()
        self._started.set()

    def run(self) -> None:
        """Let the users ask until the load window ends, then drain. Returns with nothing in flight.

        Raises what a user's prompt raised, after the drain.
        """
        self._started.wait()
        if self._closing.is_set():  # before the start
            return
        arming = gevent.spawn(self._arm_ahead)
        try:
            self._activate_all()
            self._closing.wait(max(self._duration_s - self._elapsed_s(), 0.0))
        except Exception as error:
            self._error = self._error or error
        finally:
            arming.kill()
            self._closing.set()
        self._tell_missed()
        drain(self._awake, self._drain_s, self._sender.cancel_all)
        if self._error is not None:
            raise self._error

    # --- waking users ---

    def _activate_all(self) -> None:
        while due := self._next_due():
            if not self._wait_for(due[0]) or self._elapsed_s() >= self._duration_s:
                return
            self._wake_due()

    def _wake_due(self) -> None:
        """Wake all that are due by now in one go, and only then make what sees to them: a burst is narrow."""
        now_s = self._elapsed_s()
        woken: list[tuple[_User, Armed]] = []
        try:
            while (due := self._next_due()) and due[0] <= now_s:
                at_s, user = due
                if not user.awake:  # else it never parked and goes on by itself
                    woken.append((user, self._wake(user, at_s)))
                self._due.popleft()
        finally:
            for user, armed in woken:
                self._awake.spawn(self._go_on, user, armed)

    def _next_due(self) -> tuple[float, _User] | None:
        self._look_ahead(0.0)
        return self._due[0] if self._due else None

    def _look_ahead(self, until_s: float) -> None:
        """Take in what is due before `until_s` and the next one after, within bounds."""
        while not self._due or (self._due[-1][0] < until_s and len(self._due) < ARM_AT_MOST):
            coming = next(self._activations, None)
            if coming is None:
                return
            at_s, number = coming
            self._due.append((at_s, self._users.setdefault(number, _User(number))))

    def _wait_for(self, at_s: float) -> bool:
        """Wait until `at_s` after the start; False when the end came first."""
        early_s = at_s - self._elapsed_s() - _WAKE_EARLY_S
        if early_s > 0 and self._closing.wait(early_s):
            return False
        clock.sleep_until_ns(self._start_ns + round(at_s * 1e9))
        return not self._closing.is_set()

    def _elapsed_s(self) -> float:
        return (clock.monotonic_ns() - self._start_ns) / 1e9

    def _wake(self, user: _User, at_s: float) -> Armed:
        armed = user.armed or self._arm(user, at_s)
        self._armed_bytes -= user.armed.size_bytes if user.armed else 0
        user.armed, user.awake = None, True
        self._fire(user, armed)
        return armed

    def _tell_missed(self) -> None:
        """Activations whose moment has come without a request: a stop or the end came while we were late."""
        now_s = self._elapsed_s()
        while (due := self._next_due()) and due[0] < min(now_s, self._duration_s):
            at_s, user = self._due.popleft()
            if not user.awake:
                self._sender.not_sent(self._request(user, at_s), self._stop_reason)
                user.turn += 1

    # --- a user that is awake ---

    def _go_on(self, user: _User, armed: Armed) -> None:
        """See a user's request to its end, then send the next one, as long as the user is active."""
        pause_s = 0.0
        try:
            while True:
                try:
                    self._sender.finish(armed)
                finally:
                    self.in_flight -= 1
                pause_s = 0.0 if armed.succeeded else min(max(2 * pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
                if pause_s:
                    self._closing.wait(pause_s)
                with self._building:
                    if not self._active(user):
                        return
                    armed = self._arm(user, None)
                self._fire(user, armed)
        except Exception as error:
            self._error = self._error or error
            self.stop("run_stopped")
        finally:
            user.awake = False

    def _active(self, user: _User) -> bool:
        """By the clock, not by what the other greenlet has come to: exact to the moment."""
        if self._closing.is_set():
            return False
        place = bisect_right(self._change_at_s, self._elapsed_s()) - 1
        return place >= 0 and user.number < self._users_from[place]

    def _fire(self, user: _User, armed: Armed) -> None:
        self._sender.fire(armed)
        user.turn += 1
        self.fired += 1
        self.in_flight += 1

    # --- building requests ---

    def _arm(self, user: _User, at_s: float | None) -> Armed:
        return self._sender.arm(self._request(user, at_s))

    def _request(self, user: _User, at_s: float | None) -> Arrival:
        request = self._request_of(user.number, user.turn)
        request.at_s = self._elapsed_s() if at_s is None else at_s
        request.scheduled = at_s is not None
        return request

    def _arm_ahead(self) -> None:
        """Build the requests of users that wake soon, and open their connections."""
        while True:
            now_s = self._elapsed_s()
            self._look_ahead(now_s + ARM_AHEAD_S)
            soon = [due for due in self._due if due[0] < now_s + ARM_AHEAD_S and not due[1].awake]
            until_ns, more = clock.monotonic_ns() + STRETCH_NS, False
            for at_s, user in soon:
                if more or self._armed_bytes >= ARM_BYTES_AT_MOST:
                    break
                if user.armed is None:
                    user.armed = self._arm(user, at_s)
                    self._armed_bytes += user.armed.size_bytes
                    more = clock.monotonic_ns() > until_ns
            if waking := len({user.number for at_s, user in soon if at_s < now_s + CONNECT_AHEAD_S}):
                self._sender.open_ahead(waking + self.in_flight)
            gevent.sleep(BREATH_S if more else _ARM_EVERY_S)
