"""Time limits of many requests, watched together in steps of 50 ms.

Limits are seconds long, and an answer's milestones move them several times: a timer for each would cost more
than it is worth. Here that is one entry of a set.

    deadlines = Deadlines()
    deadline = deadlines.set(due_ns, on_late)   on_late() is called in the hub, up to 50 ms after `due_ns`
    deadlines.drop(deadline)                    it is not
"""

from __future__ import annotations

from collections.abc import Callable

import gevent

from client.clock import monotonic_ns

STEP_NS = 50_000_000


class Deadline:
    """A step of the clock, and what is to be called then."""

    __slots__ = ("on_late", "step")

    def __init__(self, step: int, on_late: Callable[[], None]) -> None:
        self.step = step
        self.on_late = on_late


class Deadlines:
    """The deadlines of one hub. Its timer runs only while there are any."""

    def __init__(self) -> None:
        self._steps: dict[int, set[Deadline]] = {}

    def set(self, due_ns: int, on_late: Callable[[], None]) -> Deadline:
        """Have `on_late` called when the monotonic clock has reached `due_ns`, and not before."""
        if not self._steps:
            self._timer = gevent.get_hub().loop.timer(STEP_NS / 1e9, STEP_NS / 1e9)
            self._timer.start(self._look)
        deadline = Deadline(-(-due_ns // STEP_NS), on_late)
        self._steps.setdefault(deadline.step, set()).add(deadline)
        return deadline

    def drop(self, deadline: Deadline) -> None:
        """Forget it, if it is still to come."""
        waiting = self._steps.get(deadline.step)
        if waiting is None or deadline not in waiting:
            return
        waiting.remove(deadline)
        if not waiting:
            del self._steps[deadline.step]
            self._rest()

    def _look(self) -> None:
        hub, now = gevent.get_hub(), monotonic_ns() // STEP_NS
        for step in [step for step in self._steps if step <= now]:
            for deadline in self._steps.pop(step):
                hub.loop.run_callback(deadline.on_late)
        self._rest()

    def _rest(self) -> None:
        if not self._steps:
            self._timer.stop()
            self._timer.close()
