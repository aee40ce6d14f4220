"""Turns for work that takes about a millisecond of CPU each and may be wanted by hundreds at once: TLS
handshakes in a burst of new connections, requests to build when many answers end together. One after the
other they would hold the hub for as long as all of them take, and what comes in meanwhile would lie unread
and be stamped in a heap.
"""

from __future__ import annotations

import gevent
import gevent.lock

from client.clock import monotonic_ns

STRETCH_NS = 2_000_000
"""How long such work may go on before sockets are looked at."""

BREATH_S = 0.0005
"""The pause then: gevent.sleep(0) would run what is ready in the same pass, without a look at sockets and
timers."""


class Turns:
    """Use as a context manager round each piece of work; blocks this greenlet until its turn has come."""

    def __init__(self) -> None:
        self._turn = gevent.lock.BoundedSemaphore()
        self._until_ns = 0

    def __enter__(self) -> None:
        self._turn.acquire()
        now_ns = monotonic_ns()
        if now_ns < self._until_ns:
            return
        if now_ns < self._until_ns + STRETCH_NS:  # else nobody has had a turn for a while
            gevent.sleep(BREATH_S)
        self._until_ns = monotonic_ns() + STRETCH_NS

    def __exit__(self, *raised: object) -> None:
        self._turn.release()
