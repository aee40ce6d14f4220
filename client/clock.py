"""The one place that reads clocks and waits for a moment, for the client and the load generator.

Durations are differences of `monotonic_ns()`: a step of the wall clock cannot make one negative. Kernel
receive stamps come on the wall clock and are moved over by `kernel_offset_ns()`, taken when the stamp is
read.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import gevent

monotonic_ns = time.monotonic_ns
"""Nanoseconds of CLOCK_MONOTONIC. Comparable between processes with the same BOOT_ID."""

_HAND_OVER_NS = 1_200_000
_UNINTERRUPTED_NS = 5_000
_TFD_ABSTIME = 1
_NANOS = 1_000_000_000
_LIBC = ctypes.CDLL(None, use_errno=True)


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()


BOOT_ID = _boot_id()
"""Names this boot of this machine (elsewhere than on Linux: its host name). Processes that agree share a
clock."""


def wall_time_s() -> float:
    """Seconds since 1970 by the wall clock; for saying when a run was, never for durations."""
    return time.time()


def utc_iso(at_s: float | None = None) -> str:
    """A wall time (default: now) as ISO 8601 in UTC with milliseconds, such as 2026-11-30T10:21:07.123Z."""
    moment = datetime.fromtimestamp(wall_time_s() if at_s is None else at_s, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def kernel_offset_ns() -> int:
    """CLOCK_MONOTONIC minus CLOCK_REALTIME: add it to a kernel receive stamp to get a monotonic moment.

    The wall clock is read between two readings of the other; when we were interrupted there, once more.
    """
    for _ in range(3):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if after - before < _UNINTERRUPTED_NS:
            break
    return (before + after) // 2 - wall


def process_cpu_s() -> float:
    """User and system CPU seconds that this process has used."""
    return time.process_time()


def sleep_until_ns(due_ns: int) -> None:
    """Sleep this greenlet until `monotonic_ns()` reaches `due_ns`; return at once when it has passed.

    gevent's own timers go through epoll's whole milliseconds and were late by 0.6 ms at the median and 1.2
    ms at p99 on an otherwise idle 2-core machine. On Linux a timerfd wakes the loop instead: 0.08 ms and
    0.2-1.3 ms, at the same CPU (some 90 us a sleep). Elsewhere the last 1.2 ms are spent yielding to other
    greenlets, which is as exact and costs a core for that long. Either way a callback that holds the loop
    delays the wake-up.
    """
    remaining = due_ns - time.monotonic_ns()
    if remaining <= 0:
        return
    if sys.platform == "linux":
        _sleep_by_timerfd(due_ns)
    elif remaining > _HAND_OVER_NS:
        gevent.sleep((remaining - _HAND_OVER_NS) / _NANOS)
    while time.monotonic_ns() < due_ns:
        gevent.sleep(0)


def _sleep_by_timerfd(due_ns: int) -> None:
    descriptor = _LIBC.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no timer: {os.strerror(number)}")
    once = struct.pack("@4l", 0, 0, *divmod(due_ns, _NANOS))
    hub = gevent.get_hub()
    watcher = hub.loop.io(descriptor, 1)
    try:
        _LIBC.timerfd_settime(descriptor, _TFD_ABSTIME, once, None)
        hub.wait(watcher)
    finally:
        watcher.stop()
        watcher.close()
        os.close(descriptor)
