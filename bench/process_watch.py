"""What the Locust process of a run costs: its CPU time and memory, read from outside at chosen moments."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Reading:
    """One look at the process: the monotonic moment, CPU seconds used so far, resident memory."""

    at_ns: int
    cpu_s: float
    rss_bytes: int


class ProcessWatch:
    """Takes a reading at each of `moments_s`, counted from the run's start moment, to some 0.2 s."""

    def __init__(self, moments_s: Sequence[float]) -> None:
        self._moments_s = moments_s
        self.readings: list[Reading] = []
        self._begun = False

    def on_line(self, line: str) -> None:
        """Begin when the run folder is made: the start moment is a second later."""
        if "run folder:" in line and not self._begun:
            self._begun = True
            threading.Thread(target=self._watch, args=(time.monotonic() + 1.0,), daemon=True).start()

    def _watch(self, start_s: float) -> None:
        children = psutil.Process().children()
        process = next((child for child in children if "locust" in " ".join(child.cmdline())), None)
        for moment_s in self._moments_s:
            time.sleep(max(start_s + moment_s - time.monotonic(), 0.0))
            try:
                assert process is not None
                cpu, memory = process.cpu_times(), process.memory_info()
            except (AssertionError, psutil.NoSuchProcess):
                return
            self.readings.append(Reading(time.monotonic_ns(), cpu.user + cpu.system, memory.rss))

    @property
    def window(self) -> tuple[Reading, Reading] | None:
        """The first two readings; None when the run was over before."""
        return (self.readings[0], self.readings[1]) if len(self.readings) > 1 else None
