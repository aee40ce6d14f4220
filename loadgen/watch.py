"""How busy this process is, second by second: its CPU, and how late its event loop runs.

A load generator that is short of CPU measures itself. The seconds go into the run folder for every worker,
and the table of checks judges them.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

import gevent
import numpy as np

from client import clock

BEAT_S = 0.02
LEAST_SEEN_S = 0.5

Second = list[float]
"""second, cpu_ratio, loop_lag_p99_s, loop_lag_max_s, in_flight: client_load.csv's row without the worker."""


@dataclass
class _Seen:
    """What was seen of one second so far."""

    span_s: float = 0.0
    cpu_s: float = 0.0
    lags_s: list[float] = field(default_factory=list)


class Seconds:
    """Beats of the event loop -> one `Second` for each second of the run; pure.

    A beat is due every `BEAT_S`. One that comes late by L stands also for those that it held up, due
    meanwhile and late by L - BEAT_S, L - 2 BEAT_S ... (HdrHistogram's correction for coordinated omission):
    so p99 is what an event at any moment of that second had to wait. CPU between two beats is spread evenly
    over their time. A second of which less than `LEAST_SEEN_S` was seen, and those before 0, are left out.
    """

    def __init__(self, at_s: float, cpu_s: float) -> None:
        self._at_s, self._cpu_s = at_s, cpu_s
        self._open: dict[int, _Seen] = {}
        self._ended: list[Second] = []
        self.cpu_peak_ratio: float | None = None
        self._span_s = self._used_s = 0.0

    @property
    def cpu_mean_ratio(self) -> float | None:
        """Over all seconds that ended; None before the first."""
        return self._used_s / self._span_s if self._span_s else None

    def beat(self, at_s: float, cpu_s: float, lag_s: float, in_flight: int) -> None:
        """The loop ran at `at_s`, `lag_s` late; the process had used `cpu_s` in all."""
        self._spread_cpu(at_s, cpu_s)
        for held_up in range(max(1, math.ceil(lag_s / BEAT_S))):
            late_s = lag_s - held_up * BEAT_S
            self._second(math.floor(at_s - late_s)).lags_s.append(late_s)
        self._close(math.floor(at_s), in_flight)

    def end(self, at_s: float, cpu_s: float, in_flight: int) -> None:
        """The watch ends at `at_s`."""
        self._spread_cpu(at_s, cpu_s)
        self._close(math.floor(at_s) + 1, in_flight)

    def take(self) -> list[Second]:
        """The seconds that ended since the last call, in order."""
        taken, self._ended = self._ended, []
        return taken

    def _second(self, number: int) -> _Seen:
        return self._open.setdefault(number, _Seen())

    def _spread_cpu(self, at_s: float, cpu_s: float) -> None:
        ratio = (cpu_s - self._cpu_s) / (at_s - self._at_s) if at_s > self._at_s else 0.0
        while self._at_s < at_s:
            number = math.floor(self._at_s)
            until_s = min(at_s, number + 1.0)
            seen = self._second(number)
            seen.span_s += until_s - self._at_s
            seen.cpu_s += ratio * (until_s - self._at_s)
            self._at_s = until_s
        self._cpu_s = cpu_s

    def _close(self, before: int, in_flight: int) -> None:
        for number in sorted(self._open):
            if number >= before:
                break
            seen = self._open.pop(number)
            if number < 0 or seen.span_s < LEAST_SEEN_S or not seen.lags_s:
                continue
            ratio = seen.cpu_s / seen.span_s
            p99_s = float(np.quantile(seen.lags_s, 0.99))
            self._ended.append([number, ratio, p99_s, max(seen.lags_s), in_flight])
            self.cpu_peak_ratio = max(self.cpu_peak_ratio or 0.0, ratio)
            self._used_s += seen.cpu_s
            self._span_s += seen.span_s


class SelfWatch:
    """Watches this process from `start` to `stop`; `in_flight` tells how many requests are under way."""

    def __init__(self, in_flight: Callable[[], int]) -> None:
        self._in_flight = in_flight
        self._lags_s = array("f")
        self._greenlet: gevent.Greenlet[..., None] | None = None
        self._seconds: Seconds | None = None
        self._start_ns = 0

    def start(self, start_ns: int) -> None:
        """Begin; `start_ns` is the run's start moment, which may lie ahead."""
        self._start_ns = start_ns
        self._seconds = Seconds(self._at_s(), clock.process_cpu_s())
        self._greenlet = gevent.spawn(self._watch, self._seconds)

    def stop(self) -> None:
        """End; once is enough."""
        if self._greenlet is not None and self._seconds is not None:
            self._greenlet.kill()
            self._greenlet = None
            self._seconds.end(self._at_s(), clock.process_cpu_s(), self._in_flight())

    def take(self) -> list[Second]:
        """The seconds that ended since the last call."""
        return self._seconds.take() if self._seconds is not None else []

    def totals(self) -> dict[str, float | None]:
        """Over the whole watch: the busiest second and the mean, of one core, and how late the loop ran, as
        the p99 and maximum over its beats. None before the first."""
        seconds, lags_s = self._seconds, sorted(self._lags_s)
        return {
            "cpu_peak_ratio": None if seconds is None else seconds.cpu_peak_ratio,
            "cpu_mean_ratio": None if seconds is None else seconds.cpu_mean_ratio,
            "loop_lag_p99_s": lags_s[min(len(lags_s) - 1, int(0.99 * len(lags_s)))] if lags_s else None,
            "loop_lag_max_s": lags_s[-1] if lags_s else None,
        }

    def _at_s(self) -> float:
        return (clock.monotonic_ns() - self._start_ns) / 1e9

    def _watch(self, seconds: Seconds) -> None:
        while True:
            due_s = self._at_s() + BEAT_S
            gevent.sleep(BEAT_S)
            at_s = self._at_s()
            lag_s = max(0.0, at_s - due_s)
            self._lags_s.append(lag_s)
            seconds.beat(at_s, clock.process_cpu_s(), lag_s, self._in_flight())
