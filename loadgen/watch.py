"""How busy this process is: its CPU in any one second, and how late its event loop runs.

A load generator that is short of CPU measures itself. These two figures go into the run folder for every
worker, and the table of checks judges them.
"""

from __future__ import annotations

from array import array

import gevent

from client import clock

_BEAT_S = 0.02
_CPU_WINDOW_S = 1.0


class SelfWatch:
    """Watches from `start` to `stop`; `cpu_peak_ratio` is of one core, `loop_lag_p99_s` over all beats."""

    def __init__(self) -> None:
        self._lags_s = array("f")
        self._greenlet: gevent.Greenlet[..., None] | None = None
        self.cpu_peak_ratio: float | None = None

    def start(self) -> None:
        self._greenlet = gevent.spawn(self._watch)

    def stop(self) -> None:
        if self._greenlet is not None:
            self._greenlet.kill()

    @property
    def loop_lag_p99_s(self) -> float | None:
        """The 99th percentile of how late a 20 ms beat came; None before the first beat."""
        if not self._lags_s:
            return None
        return sorted(self._lags_s)[min(len(self._lags_s) - 1, int(0.99 * len(self._lags_s)))]

    def _watch(self) -> None:
        window_ns, window_cpu_s = clock.monotonic_ns(), clock.process_cpu_s()
        while True:
            before_ns = clock.monotonic_ns()
            gevent.sleep(_BEAT_S)
            now_ns = clock.monotonic_ns()
            self._lags_s.append(max(0.0, (now_ns - before_ns) / 1e9 - _BEAT_S))
            if now_ns - window_ns >= _CPU_WINDOW_S * 1e9:
                cpu_s = clock.process_cpu_s()
                ratio = (cpu_s - window_cpu_s) / ((now_ns - window_ns) / 1e9)
                self.cpu_peak_ratio = max(self.cpu_peak_ratio or 0.0, ratio)
                window_ns, window_cpu_s = now_ns, cpu_s
