"""An event loop whose timers are late by some 0.1 ms instead of 1: steps of 10 ms want that.

asyncio waits with epoll, which knows whole milliseconds only, rounded up. select(2) knows microseconds, and
an epoll descriptor can itself be waited for with it: it is readable as soon as one of its sockets is ready.
"""

from __future__ import annotations

import asyncio
import select
import selectors
import sys

if sys.platform == "linux":

    class ExactSelector(selectors.EpollSelector):
        """epoll, whose time limits are kept to the microsecond."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout is not None and timeout > 0:
                select.select((self.fileno(),), (), (), timeout)
                timeout = 0
            return super().select(timeout)

    def event_loop() -> asyncio.AbstractEventLoop:
        """A new event loop with exact timers."""
        return asyncio.SelectorEventLoop(ExactSelector())

else:

    def event_loop() -> asyncio.AbstractEventLoop:
        """A new event loop: elsewhere timers are exact by themselves, or as good as they get."""
        return asyncio.new_event_loop()
