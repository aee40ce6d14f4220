"""The CSV files of any Locust run, of any version from 0.9 on -> LocustCsv. Times stay in ms, as written.

(type, name) is a row's key. "Aggregated" ("Total" before 0.13) without a type ("None" in 0.13 to 1.0) is
Locust's own total and comes last; a request may be called "Aggregated" as well, but it has a type. N/A or an
empty cell is unknown, and so is every time of a row without a request, where Locust writes 0. A row with a
number that is none, or whose percentiles fall, was torn by being read while it was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.csv_text import Table, number
from analysis.locust_files import find_files, is_aggregated, open_table, places

Key = tuple[str, str]


@dataclass(frozen=True)
class StatsRow:
    """One row of _stats.csv. Times in ms as Locust has them: failed requests included, percentiles rounded.
    `percentiles_ms` is keyed by level in percent."""

    type: str
    name: str
    requests: int
    failures: int
    median_ms: float | None
    average_ms: float | None
    min_ms: float | None
    max_ms: float | None
    content_bytes: float | None
    rate_rps: float | None
    percentiles_ms: Mapping[float, float]

    @property
    def key(self) -> Key:
        return self.type, self.name


@dataclass(frozen=True)
class ErrorRow:
    """One row of _failures.csv (type, name, error), or of _exceptions.csv (error is its message)."""

    type: str
    name: str
    error: str
    occurrences: int


@dataclass(frozen=True)
class LocustCsv:
    """What the files of one prefix hold, but for the history, which is read apart (analysis.locust_history).

    `partial` says in sentences why the files may not be whole, `notices` what else to know of them.
    """

    prefix: Path
    files: Mapping[str, Path]
    rows: tuple[StatsRow, ...]
    aggregated: StatsRow | None
    errors: tuple[ErrorRow, ...]
    exceptions: tuple[ErrorRow, ...]
    partial: tuple[str, ...]
    notices: tuple[str, ...]


def read_locust_csv(prefix: Path) -> LocustCsv:
    """Read every file that a Locust run wrote for `--csv PREFIX`; one of the files stands for its prefix.

    Raises LocustCsvError when there is none, or one with an unknown layout; OSError when one is unreadable.
    """
    prefix, files = find_files(prefix)
    partial: list[str] = []
    notices: list[str] = []
    rows: list[StatsRow] = []
    aggregated: StatsRow | None = None
    found: dict[str, list[ErrorRow]] = {"failures": [], "exceptions": []}
    percentiles: dict[str, Mapping[float, float]] = {}
    for kind, path in files.items():
        if kind == "history":
            continue
        table = open_table(path, kind)
        if table is None:
            partial.append(f"{path.name} is still empty.")
            continue
        if kind == "stats":
            rows, aggregated = _stats(table)
            if aggregated is None and rows:
                partial.append(f"{path.name} ends before its Aggregated row.")
        elif kind == "distribution":
            percentiles = _distribution(table)
        else:
            found[kind] = list(_errors(table))
        partial += told_torn(table)
        notices += table.notices
    rows = [_with_percentiles(row, percentiles) for row in rows]
    if aggregated is not None:
        aggregated = _with_percentiles(aggregated, percentiles)
    return LocustCsv(
        prefix,
        files,
        tuple(rows),
        aggregated,
        tuple(found["failures"]),
        tuple(found["exceptions"]),
        tuple(partial),
        tuple(notices),
    )


def told_torn(table: Table) -> list[str]:
    """Why a table, read to its end, may be partial."""
    said = []
    if table.torn:
        rows = "a row was" if table.torn == 1 else f"{table.torn} rows were"
        said.append(
            f"In {table.path.name} {rows} torn and left out: it was read while being written, or cut."
        )
    if table.unfinished:
        said.append(f"The last row of {table.path.name} has no end: the file may be cut.")
    return said


def _stats(table: Table) -> tuple[list[StatsRow], StatsRow | None]:
    """Rows in their order, each key once, and the total. A file is rewritten in place, so that what stands
    behind the total, or comes again, is left over from an earlier state."""
    figures, levels = places(table.header)
    rows: dict[Key, StatsRow] = {}
    last_total: StatsRow | None = None
    for cells in table.rows:
        try:
            row = _stats_row(cells, figures, levels, table.decimal_comma)
        except ValueError:
            table.torn += 1
            continue
        if is_aggregated(row.type, row.name):
            if (
                last_total is not None
            ):  # a request without a type may be called so as well: the last is the total
                rows.setdefault(last_total.key, last_total)
            last_total = row
        elif row.key not in rows:
            rows[row.key] = row
        else:
            table.torn += 1
    return list(rows.values()), last_total


def _stats_row(
    cells: Sequence[str], figures: Mapping[str, int], levels: Mapping[float, int], decimal_comma: bool
) -> StatsRow:
    def cell(figure: str) -> float | None:
        return number(cells[figures[figure]], decimal_comma) if figure in figures else None

    requests, failures = whole(cell("requests")), whole(cell("failures"))
    times = {level: number(cells[n], decimal_comma) for level, n in levels.items()}
    known = {level: value for level, value in times.items() if value is not None}
    if list(known.values()) != sorted(known.values()) or failures > requests:
        raise ValueError("torn")
    timed = requests > 0
    return StatsRow(
        cells[figures["type"]],
        cells[figures["name"]],
        requests,
        failures,
        median_ms=cell("median_ms") if timed else None,
        average_ms=cell("average_ms") if timed else None,
        min_ms=cell("min_ms") if timed else None,
        max_ms=cell("max_ms") if timed else None,
        content_bytes=cell("content_bytes"),
        rate_rps=cell("rate_rps"),
        percentiles_ms=known if timed else {},
    )


def whole(value: float | None) -> int:
    """A count; raises ValueError for a cell that holds none, as in a torn row."""
    if value is None or value < 0 or value != int(value):
        raise ValueError("not a count")
    return int(value)


def _distribution(table: Table) -> dict[str, Mapping[float, float]]:
    """Percentiles by "TYPE name", as the second file of Locust up to 0.12 has them."""
    figures, levels = places(table.header)
    found: dict[str, Mapping[float, float]] = {}
    for cells in table.rows:
        try:
            times = {level: number(cells[n], table.decimal_comma) for level, n in levels.items()}
        except ValueError:
            table.torn += 1
            continue
        found[cells[figures["name"]]] = {level: ms for level, ms in times.items() if ms is not None}
    return found


def _with_percentiles(row: StatsRow, by_name: Mapping[str, Mapping[float, float]]) -> StatsRow:
    named = row.name if is_aggregated(row.type, row.name) else f"{row.type} {row.name}"
    if row.percentiles_ms or named not in by_name or not row.requests:
        return row
    return replace(row, percentiles_ms=by_name[named])


def _errors(table: Table) -> Iterable[ErrorRow]:
    figures, _ = places(table.header)
    count = figures.get("occurrences", figures.get("count"))
    text = figures.get("error", figures.get("message"))
    for cells in table.rows:
        try:
            occurrences = whole(number(cells[count or 0], table.decimal_comma))
        except ValueError:
            table.torn += 1
            continue
        kind, name = (cells[figures[key]] if key in figures else "" for key in ("type", "name"))
        yield ErrorRow(kind, name, cells[text or 0], occurrences)
