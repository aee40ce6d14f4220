"""Can this machine hold the load? Open files and local ports against the requests that may be in flight.

Between two bounds lies what a run will have in flight, both read off the schedule:

    certain    the most arrivals within the time that one small request took on the idle server
    possible   the most arrivals within the longest time that a request may take (--total-limit)

Each request in flight holds a connection: one open file of its process and one local port of its machine. A
load whose certain number does not fit is refused; one whose possible number does not fit gets a notice. A
connection that we close keeps its port for another 60 s (TIME_WAIT), which counts when every request opens
its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

OWN_FILES = 100
"""Files that a worker needs beside its requests: libraries, logs, Locust's own sockets."""

TIME_WAIT_S = 60.0
"""How long Linux keeps the port of a connection that this side closed (TCP_TIMEWAIT_LEN)."""

_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


@dataclass(frozen=True)
class LocalLimits:
    """What a process may open here; None where the system does not say."""

    open_files: int | None
    ports: int | None


@dataclass(frozen=True)
class Demand:
    """What a plan asks of this machine: see the module. `workers` share the requests evenly."""

    at_s: NDArray[np.float64]
    least_s: float
    longest_s: float
    workers: int = 1
    fresh_connections: bool = False

    def within(self, window_s: float) -> int:
        return most_within(self.at_s, window_s)


def limits_here(port_range: Path = _PORT_RANGE) -> LocalLimits:
    """The limit on open files of this process (`ulimit -n`) and the number of local ports (Linux)."""
    files = None
    if resource is not None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        files = None if soft == resource.RLIM_INFINITY else soft
    try:
        first, last = map(int, port_range.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return LocalLimits(files, None)
    return LocalLimits(files, last - first + 1)


def most_within(at_s: NDArray[np.float64], window_s: float) -> int:
    """The most entries of the sorted `at_s` within any window [t, t + window_s]."""
    if not len(at_s):
        return 0
    ends = np.searchsorted(at_s, at_s + window_s, side="right")
    return int((ends - np.arange(len(at_s))).max())


def shortages(demand: Demand, limits: LocalLimits) -> tuple[list[str], list[str]]:
    """Lines for what cannot fit, and lines for what may not."""
    impossible: list[str] = []
    doubtful: list[str] = []
    certain, possible = demand.within(demand.least_s), demand.within(demand.longest_s)
    if limits.open_files is not None:
        each = (
            math.ceil(certain / demand.workers) + OWN_FILES,
            math.ceil(possible / demand.workers) + OWN_FILES,
        )
        remedy = "raise it (ulimit -n), or use more workers"
        if each[0] > limits.open_files:
            impossible.append(_line(f"{each[0]:,} open files in one process", limits.open_files, remedy))
        elif each[1] > limits.open_files:
            doubtful.append(_line(f"up to {each[1]:,} open files in one process", limits.open_files, remedy))
    if limits.ports is not None:
        remedy = "spread the workers over machines, or widen net.ipv4.ip_local_port_range"
        kept = demand.within(demand.longest_s + TIME_WAIT_S) if demand.fresh_connections else possible
        if certain > limits.ports:
            impossible.append(_line(f"{certain:,} local ports at once", limits.ports, remedy))
        elif kept > limits.ports:
            doubtful.append(_line(f"up to {kept:,} local ports at once", limits.ports, remedy))
    return impossible, doubtful


def _line(need: str, limit: int, remedy: str) -> str:
    return f"the plan needs {need}, and this machine allows {limit:,}: {remedy}"
