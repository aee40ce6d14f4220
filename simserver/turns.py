"""Turns for the requests of a burst: one in each round of the event loop.

Reading a request and preparing its answer takes some tenths of a millisecond. Five hundred in one round
would keep the loop from sockets and timers for as long as all of them take: what comes in meanwhile would be
stamped late, and the steps of the engine would end late for all that are running.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """`await turn()` before such work: returns at once, or in a later round where others were first."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._taken = False

    async def turn(self) -> None:
        """Wait for a round of one's own. Turns come in the order in which they were asked for."""
        loop = asyncio.get_running_loop()
        if self._taken:
            mine = loop.create_future()
            self._waiting.append(mine)
            await mine
        else:
            self._taken = True
            loop.call_soon(self._next_round, loop)

    def _next_round(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            following = self._waiting.popleft()
            if not following.done():  # it is done where its client has left
                following.set_result(None)
                loop.call_soon(self._next_round, loop)
                return
        self._taken = False
