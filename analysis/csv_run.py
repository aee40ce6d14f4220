"""PREFIX -> CsvRun: everything that the CSV files of a Locust run say, put together."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis.locust_bursts import CsvBursts, find_bursts
from analysis.locust_csv import Key, LocustCsv, StatsRow, read_locust_csv
from analysis.locust_files import is_aggregated
from analysis.locust_history import History, read_history
from analysis.locust_totals import Totals, split_requests, totals

RECENT_S = 15.0
"""Locust writes a row a second and flushes each 5 to 10 s; figures this young may be of a run going on."""


@dataclass(frozen=True)
class CsvRun:
    """`requests` and `metrics` are the rows that count as requests and those that do not; `mixed` says that
    Locust's own total holds metric events too. `partial`: why the files may not be whole."""

    csv: LocustCsv
    requests: tuple[StatsRow, ...]
    metrics: tuple[StatsRow, ...]
    mixed: bool
    totals: Totals
    history: History | None
    bursts: CsvBursts
    partial: tuple[str, ...]
    notices: tuple[str, ...]


def load_csv_run(
    prefix: Path, request_types: Collection[str] | None = None, now_s: Callable[[], float] = time.time
) -> CsvRun:
    """Read a run. Raises LocustCsvError when its files are none of Locust's, OSError when one is "
    "unreadable."""
    csv = read_locust_csv(prefix)
    notices, partial = list(csv.notices), list(csv.partial)
    agree = False
    rows, aggregated = csv.rows, csv.aggregated
    path = csv.files.get("history")
    first: History | None = None
    if not rows and aggregated is None and path is not None:
        first = read_history(path)
        if first is not None:
            rows, aggregated = _rows_of(first.last)
            notices.append("There is no _stats.csv: totals are from the last rows of the history.")
    requests, metrics = split_requests(rows, request_types)
    if not rows and aggregated is not None and aggregated.requests:
        requests = [aggregated]
        notices.append("There are no rows by name: metric events, if any were fired, cannot be told apart.")
    counted = sum(row.requests for row in requests)
    mixed = aggregated is not None and bool(metrics) and aggregated.requests > counted
    history = None
    if path is not None:
        history = first if first and not rows else _history_of(path, requests, aggregated, mixed, partial)
    if history is not None:
        partial += [line for line in history.partial if line not in partial]
        notices += [line for line in history.notices if line not in notices]
        total = aggregated.requests if aggregated is not None else sum(row.requests for row in rows)
        seen = history.lives[-1].requests
        agree = csv.aggregated is not None and seen == total and not partial
        if seen < total:
            partial.append(
                f"The history ends at {seen} of {total} events: Locust writes it each 5 to 10 s and not at "
                f"its end."
            )
    if _is_recent(csv, history, now_s()):
        if agree:
            notices.append("The last figures are moments old; the files agree, as those of an ended run do.")
        else:
            partial.append("The last figures are moments old: the run may still be going on.")
    return CsvRun(
        csv,
        tuple(requests),
        tuple(metrics),
        mixed,
        totals(requests, aggregated),
        history,
        find_bursts(history) if history is not None else CsvBursts((), None, None),
        tuple(partial),
        tuple(notices),
    )


def _is_recent(csv: LocustCsv, history: History | None, now_s: float) -> bool:
    """By the history's own clock, for a copied file is as young as its copy."""
    last_s = history.lives[-1].ended_at_s if history is not None else None
    if last_s is None:
        last_s = max(path.stat().st_mtime for path in csv.files.values())
    return 0 <= now_s - last_s < RECENT_S


def _history_of(
    path: Path, requests: list[StatsRow], aggregated: StatsRow | None, mixed: bool, partial: list[str]
) -> History | None:
    lead = max(requests, key=lambda row: row.requests).key if mixed and requests else None
    history = read_history(path, {row.key for row in requests} or None, lead, aggregated)
    if history is None:
        partial.append(f"{path.name} holds no row yet.")
    return history


def _rows_of(last: Mapping[Key, tuple[int, int, float]]) -> tuple[tuple[StatsRow, ...], StatsRow | None]:
    """Rows and total as far as a history has them: counts and averages."""
    rows = {
        key: StatsRow(*key, n, failed, None, average_ms if n else None, None, None, None, None, {})
        for key, (n, failed, average_ms) in last.items()
    }
    total = next((row for key, row in rows.items() if is_aggregated(*key)), None)
    return tuple(row for key, row in rows.items() if not is_aggregated(*key)), total
