"""CPU time of a program and all that it started, and of a whole core, read from Linux's /proc.

    program ─┬─ worker ── helper        everything below the program, and everything in its session:
             └─ worker (ended)          an ended child's time is kept by the parent that waited for it

A process counts its own time and that of its children that it has waited for, so nothing is lost or counted
twice as long as parents wait for their children. An orphan is still found by its session; one that left the
session as well is not.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
IDLE_FIELDS = (3, 4)  # idle, iowait
COUNTED_FIELDS = 8  # user nice system idle iowait irq softirq steal; guest time is inside user and nice


@dataclass(frozen=True)
class ProcessTimes:
    """One line of /proc/<pid>/stat: whose child it is, its session, and its CPU time in clock ticks with that
    of its children that were waited for.
    """

    pid: int
    parent: int
    session: int
    ticks: int


def parse_stat(text: str) -> ProcessTimes:
    """/proc/<pid>/stat, see proc(5). The name in brackets may hold anything, brackets and blanks too."""
    pid, rest = text.split(" (", 1)
    fields = rest[rest.rindex(")") + 2 :].split()
    return ProcessTimes(int(pid), int(fields[1]), int(fields[3]), sum(int(ticks) for ticks in fields[11:15]))


def family(root: int, processes: Iterable[ProcessTimes]) -> list[ProcessTimes]:
    """Those of `processes` that are `root`, descend from it, or are in the session that it leads."""
    children: dict[int, list[ProcessTimes]] = {}
    to_visit = []
    for process in processes:
        children.setdefault(process.parent, []).append(process)
        if process.pid == root or process.session == root:
            to_visit.append(process)
    found: dict[int, ProcessTimes] = {}
    while to_visit:
        process = to_visit.pop()
        found[process.pid] = process
        to_visit += children.get(process.pid, [])
    return list(found.values())


def tree_cpu_s(root: int) -> float:
    """CPU seconds that the family of `root` has used up to now; 0 when none of it is left."""
    ticks = sum(process.ticks for process in family(root, _all_processes()))
    return ticks / os.sysconf("SC_CLK_TCK")


def _all_processes() -> list[ProcessTimes]:
    found = []
    for name in os.listdir(PROC):
        if name.isdigit():
            try:
                found.append(parse_stat((PROC / name / "stat").read_text(errors="replace")))
            except (FileNotFoundError, ProcessLookupError):
                continue  # ended meanwhile
    return found


def parse_cores(text: str) -> dict[int, int]:
    """/proc/stat: core -> clock ticks in which it worked."""
    found = {}
    for line in text.splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu":
            ticks = [int(field) for field in fields[:COUNTED_FIELDS]]
            found[int(name[3:])] = sum(ticks) - sum(ticks[index] for index in IDLE_FIELDS)
    return found


def busy_s(cores: Collection[int]) -> float:
    """Seconds that these cores have worked since the machine started, whoever for."""
    ticks: Mapping[int, int] = parse_cores((PROC / "stat").read_text())
    return sum(ticks[core] for core in cores) / os.sysconf("SC_CLK_TCK")
