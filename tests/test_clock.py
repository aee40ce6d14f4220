"""Clocks: one reader of time, moments kept, stamps moved between clocks."""

from __future__ import annotations

import ast
from pathlib import Path

import gevent

from client import clock

REPOSITORY = Path(__file__).resolve().parent.parent


def readers_of_time(source: str) -> list[str]:
    """What in a module reads a clock or waits by one, other than through client.clock."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] == "time"]
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            found += [f"from time import {alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and node.attr in {
            "now",
            "utcnow",
            "today",
            "perf_counter",
            "time_ns",
        }:
            found.append(ast.unparse(node))
    return found


def test_only_clock_reads_the_time() -> None:
    for room in ("client", "loadgen"):
        for path in sorted((REPOSITORY / room).glob("*.py")):
            if path != REPOSITORY / "client" / "clock.py":
                assert readers_of_time(path.read_text(encoding="utf-8")) == [], path


def test_the_search_for_readers_of_time_finds_them() -> None:
    source = "import time\nfrom time import monotonic\nx = datetime.now()\ny = time.perf_counter()"
    assert len(readers_of_time(source)) == 4
    assert readers_of_time((REPOSITORY / "client" / "clock.py").read_text(encoding="utf-8"))


def test_sleep_until_never_wakes_early_and_keeps_the_order() -> None:
    begin = clock.monotonic_ns()
    woken: list[int] = []

    def sleeper(number: int) -> None:
        due_ns = begin + number * 7_300_000
        clock.sleep_until_ns(due_ns)
        assert clock.monotonic_ns() >= due_ns
        woken.append(number)

    sleepers = [gevent.spawn(sleeper, number) for number in (4, 1, 3, 0, 2)]
    gevent.joinall(sleepers, raise_error=True)
    assert woken == [0, 1, 2, 3, 4]


def test_other_greenlets_run_while_one_sleeps() -> None:
    turns = 0

    def busy() -> None:
        nonlocal turns
        while True:
            turns += 1
            gevent.sleep(0.001)

    other = gevent.spawn(busy)
    clock.sleep_until_ns(clock.monotonic_ns() + 60_000_000)
    other.kill()
    assert turns > 5


def test_kernel_offset_leads_from_wall_time_to_monotonic() -> None:
    wall_ns = round(clock.wall_time_s() * 1e9)
    assert abs(wall_ns + clock.kernel_offset_ns() - clock.monotonic_ns()) < 50_000_000


def test_utc_iso_and_boot_id() -> None:
    assert clock.utc_iso(0.1234) == "1970-01-01T00:00:00.123Z"
    assert clock.BOOT_ID
