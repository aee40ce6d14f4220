"""Which sockets have something to read: told at once, or, when much comes, together every few milliseconds.

    little comes    a socket becomes ready ─► the hub wakes ─► it is read
    much comes      the hub sleeps for 3 ms, whatever comes ─► all that are ready by then are read

Waking a process that sleeps was measured to cost some 100 us of CPU, caches being cold then, where reading a
chunk takes 30. The times do not suffer, for the kernel stamps what it receives; without its stamps all is
read at once. So it is when many of those who wait for an answer are ready together: before long one of them
would get two chunks in one look, and both would have one stamp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gevent
from gevent import monkey

from client.clock import monotonic_ns
from client.wire import Wire

LOOK_EVERY_S = 0.003
"""The hub's timers round up to milliseconds. Longer saves little more and delays a user's next request."""

FEW_RATIO = 0.1
"""Up to so many of those who wait for an answer may be ready together for it to be worth waiting for more."""

_READ_AT_ONCE = 1024
"""More than are ready in one look: what was left over would wait for the next."""
_READABLE = 1


class Readiness:
    """The sockets of one pool, all in one epoll that the hub watches. Where there is no epoll the hub watches
    each of them.

    `expecting` counts those that wait for an answer; the others are watched for bytes nobody asked for.
    """

    def __init__(self) -> None:
        self.expecting = 0
        self._calls: dict[int, Callable[[], None]] = {}
        self._watchers: dict[int, Any] = {}
        self._read_ns = 0

    def add(self, descriptor: int, on_ready: Callable[[], None]) -> None:
        """Have `on_ready` called in the hub whenever there is something to read."""
        if _new_epoll is None:
            watcher = self._watchers[descriptor] = gevent.get_hub().loop.io(descriptor, _READABLE)
            watcher.start(on_ready)
            return
        if not self._calls:
            self._epoll, loop = _new_epoll(), gevent.get_hub().loop
            self._any_ready = loop.io(self._epoll.fileno(), _READABLE)
            self._tick = loop.timer(LOOK_EVERY_S, LOOK_EVERY_S)
            self._any_ready.start(self._on_ready)
        self._calls[descriptor] = on_ready
        self._epoll.register(descriptor, _READABLE)

    def remove(self, descriptor: int) -> None:
        """No longer; to be told before the socket is closed."""
        if _new_epoll is None:
            self._watchers.pop(descriptor).close()
            return
        del self._calls[descriptor]
        self._epoll.unregister(descriptor)
        if not self._calls:
            self._any_ready.close()
            self._tick.close()
            self._epoll.close()

    def _on_ready(self) -> None:
        few, now_ns = self._read(), monotonic_ns()
        if few and now_ns < self._read_ns + LOOK_EVERY_S * 1e9 and Wire.stamps == "kernel":
            self._any_ready.stop()
            self._tick.again(self._on_tick)
        self._read_ns = now_ns

    def _on_tick(self) -> None:
        if not self._read() and self._calls:
            self._tick.stop()
            self._any_ready.start(self._on_ready)

    def _read(self) -> bool:
        """Call those that are ready; True when there were some, and few beside those that wait."""
        ready = self._epoll.poll(0, _READ_AT_ONCE)
        expecting = self.expecting
        for descriptor, _ in ready:
            on_ready = self._calls.get(descriptor)
            if on_ready is not None:  # else what was read before it has closed this one
                on_ready()
        return worth_waiting(len(ready), expecting) and bool(self._calls)


def worth_waiting(ready: int, expecting: int) -> bool:
    """Something comes, but to so few of those who wait that none will get two chunks soon."""
    return 0 < ready <= FEW_RATIO * expecting


def _epoll_of_the_system() -> Callable[[], Any] | None:
    try:
        made: Callable[[], Any] = monkey.get_original("select", "epoll")  # gevent hides it
    except AttributeError:
        return None
    return made


_new_epoll = _epoll_of_the_system()
