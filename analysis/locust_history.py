"""_stats_history.csv -> History: what a Locust run did over time, from its counts rather than its rates.

Locust's "Requests/s" is an average over ten seconds that freezes when nothing finishes, so rates are rebuilt
here from the differences of the running counts, and the mean response time of each interval from

    mean = (A2 N2 - A1 N1) / (N2 - N1)        A: average since the start, N: requests since the start

which no window blurs. Both are by the moment at which a request *ended*.

What the percentile columns are depends on version and options: those since the start ("cumulative"), or those
of about the last ten seconds ("window"; 0.13 to 1.1 always, later with --csv-full-history, 1.2 to 2.0 never).
The data tell: percentiles since the start agree with the maximum and, in the last row, with _stats.csv; those
of a window fall below it, change without a new request, or become 0.

A history may hold several runs: the counts fall when the statistics are reset or the web UI starts a new
test. The last one with a request is reported. Rows after its end (no users, nothing new) are cut.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from analysis.csv_text import Table, number
from analysis.locust_csv import Key, StatsRow, told_torn, whole
from analysis.locust_files import is_aggregated, open_table, places

Floats = npt.NDArray[np.float64]
Kind = Literal["window", "cumulative", "absent"]

WINDOW_S = 10.0
LEAST_MEAN_PRECISION = 0.05
SHOWN_LEVELS = (50.0, 95.0)
LONG_GAP_S = 30.0


@dataclass(frozen=True)
class Life:
    """A stretch of a history in which the counts only grew."""

    began_at_s: float
    ended_at_s: float
    requests: int


@dataclass(frozen=True)
class History:
    """One row an interval, the first row being its start. Times of day are seconds since the epoch.

    `new`, `new_failures`: what ended in the interval; `mean_ms`: of what ended in it, NaN where nothing did;
    `percentiles_ms`: of the window, NaN where no request ended in it; empty for a cumulative file.
    `counted`: whether the counts are those of the request rows, or of all events that Locust counted.
    """

    at_s: Floats
    users: Floats
    new: Floats
    new_failures: Floats
    mean_ms: Floats
    percentiles_ms: Mapping[float, Floats]
    kind: Kind
    counted: Literal["requests", "events"]
    lives: tuple[Life, ...]
    cut_rows: int
    last: Mapping[Key, tuple[int, int, float]]
    partial: tuple[str, ...]
    notices: tuple[str, ...]

    @property
    def rate_rps(self) -> Floats:
        """What ended per second in each interval; NaN in the first row, which ends none."""
        span_s = np.diff(self.at_s, prepend=np.nan)
        return np.divide(self.new, span_s)

    @property
    def failure_rate_rps(self) -> Floats:
        return np.divide(self.new_failures, np.diff(self.at_s, prepend=np.nan))


class _Blocks:
    """One entry a moment: what its rows say together. Filled row by row, for a file may be long."""

    def __init__(self, requests: Collection[Key] | None, lead: Key | None) -> None:
        self.requests, self.lead = requests, lead
        self.columns = {
            name: array("d") for name in ("at", "users", "n", "failed", "sum", "max", "min", "agg")
        }
        self.levels: dict[float, array[float]] = {}
        self.last: dict[Key, tuple[int, int, float]] = {}
        self.by_name = False
        self._named = [0.0, 0.0, 0.0]
        self._named_rows = 0
        self._lead_times: dict[float, float | None] = {}

    def add(
        self, cells: Sequence[str], table: Table, figures: Mapping[str, int], levels: Mapping[float, int]
    ) -> None:
        """Take one row in; raises ValueError when it is torn."""

        def cell(figure: str) -> float | None:
            return number(cells[figures[figure]], table.decimal_comma) if figure in figures else None

        at_s = cell("at_s")
        n, failed = whole(cell("requests")), whole(cell("failures"))
        if at_s is None or failed > n:
            raise ValueError("torn")
        key = (cells[figures["type"]] if "type" in figures else "", cells[figures["name"]])
        average = cell("average_ms") or 0.0
        times = {level: number(cells[place], table.decimal_comma) for level, place in levels.items()}
        if not is_aggregated(*key):
            self.last[key] = (n, failed, average)
            if self.requests is None or key in self.requests:
                self._named = [self._named[0] + n, self._named[1] + failed, self._named[2] + n * average]
                self._named_rows += 1
            if key == self.lead:
                self._lead_times = times
            return
        self.last[key] = (n, failed, average)
        self.by_name = self.by_name or self._named_rows > 0
        row = self._named if self._named_rows else [n, failed, n * average]
        shown = self._lead_times if self._lead_times and self.lead is not None else times
        values = (at_s, cell("users"), row[0], row[1], row[2], cell("max_ms"), cell("min_ms"), n)
        for column, value in zip(self.columns.values(), values, strict=True):
            column.append(np.nan if value is None else value)
        for level in levels:
            value = shown.get(level)
            self.levels.setdefault(level, array("d")).append(np.nan if value is None else value)
        self._named, self._named_rows, self._lead_times = [0.0, 0.0, 0.0], 0, {}


def read_history(
    path: Path,
    requests: Collection[Key] | None = None,
    lead: Key | None = None,
    total: StatsRow | None = None,
) -> History | None:
    """Read a history; None while it holds no row.

    `requests` are the keys that count as requests: where the file has rows by name, the counts are theirs.
    `lead`, the one whose percentiles stand for the run when Locust's own total holds other events than
    requests. `total` is the Aggregated row of _stats.csv, to tell what the percentiles are.
    Raises LocustCsvError for an unknown layout.
    """
    table = open_table(path, "history")
    if table is None:
        return None
    figures, levels = places(table.header)
    used = {_nearest(levels, wanted) for wanted in (*SHOWN_LEVELS, 100.0)} if levels else set()
    levels = {level: place for level, place in levels.items() if level in used}
    blocks = _Blocks(requests, lead)
    for cells in table.rows:
        try:
            blocks.add(cells, table, figures, levels)
        except ValueError:
            table.torn += 1
    if not len(blocks.columns["at"]):
        return None
    columns = {name: np.frombuffer(column, dtype=float) for name, column in blocks.columns.items()}
    times = {level: np.frombuffer(column, dtype=float) for level, column in blocks.levels.items()}
    return _history(columns, times, blocks, table, total)


def _history(
    columns: dict[str, Floats],
    times: dict[float, Floats],
    blocks: _Blocks,
    table: Table,
    total: StatsRow | None,
) -> History:
    notices = list(table.notices)
    partial = told_torn(table)
    bounds = _life_bounds(columns["agg"])
    lives = tuple(Life(columns["at"][a], columns["at"][b - 1], int(columns["agg"][b - 1])) for a, b in bounds)
    begin, end = next(((a, b) for a, b in reversed(bounds) if columns["agg"][b - 1] > 0), bounds[-1])
    columns = {name: column[begin:end] for name, column in columns.items()}
    times = {level: column[begin:end] for level, column in times.items()}
    until = _end_of_run(columns)
    cut = len(columns["at"]) - until
    since = _start_of_run(columns)
    columns = {name: column[since:until] for name, column in columns.items()}
    times = {level: column[since:until] for level, column in times.items()}
    if np.any(np.diff(columns["at"]) < 0):
        notices.append("The clock of the machine that ran Locust was set back during the run.")
    columns["at"] = np.maximum.accumulate(columns["at"])
    kept = np.append(np.diff(columns["at"]) > 0, True)  # of rows of the same second the last
    columns = {name: column[kept] for name, column in columns.items()}
    times = {level: column[kept] for level, column in times.items()}
    longest_s = float(np.diff(columns["at"]).max(initial=0.0))
    if longest_s > LONG_GAP_S:
        notices.append(
            f"For {longest_s:.0f} s the history has no row; figures there are averages over that time."
        )
    last_total = (
        total
        if total is not None and total.requests == (columns["agg"][-1] if len(columns["agg"]) else -1)
        else None
    )
    kind = percentiles_kind(columns, times, last_total)
    new = _differences(columns["n"])
    return History(
        columns["at"],
        columns["users"],
        new,
        np.minimum(_differences(columns["failed"]), new),
        _means(columns, new),
        _window_percentiles(columns, times) if kind == "window" else {},
        kind,
        "requests" if blocks.by_name else "events",
        lives,
        cut,
        blocks.last,
        tuple(partial),
        tuple(notices),
    )


def _life_bounds(counts: Floats) -> list[tuple[int, int]]:
    starts = [0, *(np.flatnonzero(np.diff(counts) < 0) + 1).tolist()]
    return list(zip(starts, [*starts[1:], len(counts)], strict=True))


def _end_of_run(columns: Mapping[str, Floats]) -> int:
    """One behind the last row with users or anything new. Up to 0.14 there is no User Count: then the last
    with anything new."""
    users = np.nan_to_num(columns["users"]) > 0
    grew = np.diff(columns["agg"], prepend=0.0) > 0
    active = np.flatnonzero(users | grew)
    return int(active[-1]) + 1 if len(active) else len(users)


def _start_of_run(columns: Mapping[str, Floats]) -> int:
    """The last row before there are users or requests, if there is one."""
    active = np.flatnonzero((np.nan_to_num(columns["users"]) > 0) | (columns["agg"] > 0))
    return max(0, int(active[0]) - 1) if len(active) else 0


def percentiles_kind(
    columns: Mapping[str, Floats], times: Mapping[float, Floats], total: StatsRow | None
) -> Kind:
    """Whether the percentiles are those since the start or of a window. Undecided is "cumulative": in a run
    shorter than the window both are the same, and nothing may then be shown as "over time"."""
    if not times:
        return "absent"
    counted = columns["agg"] > 0
    top = times[max(times)]
    unchanged = (np.diff(columns["agg"]) == 0) & counted[1:]
    for values in times.values():
        if np.any(np.abs(np.diff(values)[unchanged]) > 0):
            return "window"
    if np.any((top[counted] == 0) & (columns["min"][counted] >= 1)):
        return "window"
    if max(times) == 100 and np.any(top[counted] < 0.9 * columns["max"][counted] - 1):
        return "window"
    if np.any(np.diff(top[counted]) < 0) and max(times) == 100:
        return "window"
    if total is not None and any(
        level in total.percentiles_ms and total.percentiles_ms[level] != values[-1]
        for level, values in times.items()
    ):
        return "window"
    return "cumulative"


def _differences(counts: Floats) -> Floats:
    """What came between a row and the one before; before the first row, nothing is known of when."""
    return np.maximum(np.diff(counts, prepend=counts[:1]), 0.0)


def _means(columns: Mapping[str, Floats], new: Floats) -> Floats:
    """Mean response time of what ended in each interval, ms; NaN where nothing did, or where the averages
    were written as whole numbers (before 1.2) and their rounding would show."""
    sums = np.diff(columns["sum"], prepend=columns["sum"][:1])
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.where(new > 0, sums / new, np.nan)
        averages = columns["sum"] / columns["n"]
    if np.all(np.abs(averages - np.round(averages))[columns["n"] > 0] < 1e-9) and len(means) > 2:
        error = columns["n"] / np.maximum(new, 1)  # up to half a ms at either end
        means = np.where(error <= LEAST_MEAN_PRECISION * np.abs(means), means, np.nan)
    return np.where(means >= 0, means, np.nan)


def _window_percentiles(columns: Mapping[str, Floats], times: Mapping[float, Floats]) -> dict[float, Floats]:
    """The levels shown, NaN where the window held no new request (Locust goes on writing the last value for
    some seconds, then 0) or where Locust had no window yet (0 although no request took less than 1 ms)."""
    at, n = columns["at"], columns["n"]
    before = np.searchsorted(at, at - WINDOW_S, side="right") - 1
    ended = n - np.where(before >= 0, n[np.maximum(before, 0)], 0.0)
    found = {}
    for wanted in SHOWN_LEVELS:
        level = _nearest(times, wanted)
        values = times[level]
        unknown = (ended <= 0) | ((values == 0) & (columns["min"] >= 1))
        found[level] = np.where(unknown, np.nan, values)
    return found


def _nearest(levels: Collection[float], wanted: float) -> float:
    return min(levels, key=lambda level: (abs(level - wanted), level))
