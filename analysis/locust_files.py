"""Which files a Locust run wrote, what kind each is and where its figures stand: the tables of names.

COLUMNS says what each figure was called when, LAYOUTS what each file must have. Percentiles are found by
pattern: "50%", "99.9%", "57.0%", and the "99.999" of 0.13 and 0.14. A new version of Locust is a name more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.csv_text import Table, read_table

COLUMNS: dict[str, tuple[str, ...]] = {
    # figure: what it is called, newest name first (the case of letters does not matter)
    "type": ("type", "method"),  # method: up to 0.12, and in the failures of every version
    "name": ("name",),
    "at_s": ("timestamp",),
    "users": ("user count",),  # since 1.0
    "requests": ("request count", "total request count", "# requests"),  # #: up to 0.14; total: history
    "failures": ("failure count", "total failure count", "# failures"),
    "median_ms": ("median response time", "total median response time"),
    "average_ms": ("average response time", "total average response time"),
    "min_ms": ("min response time", "total min response time"),
    "max_ms": ("max response time", "total max response time"),
    "content_bytes": ("average content size", "total average content size"),
    "rate_rps": ("requests/s",),
    "failure_rate_rps": ("failures/s", "requests failed/s"),  # requests failed/s: 0.13 and 0.14
    "error": ("error",),
    "occurrences": ("occurrences", "# occurrences"),
    "first_seen": ("first seen",),  # since 2.44
    "last_seen": ("last seen",),
    "count": ("count",),
    "message": ("message",),
    "traceback": ("traceback",),
    "nodes": ("nodes",),
}
FIGURE_OF = {spelling: figure for figure, spellings in COLUMNS.items() for spelling in spellings}
TEXT_FIGURES = frozenset(
    {"type", "name", "error", "message", "traceback", "nodes", "first_seen", "last_seen"}
)
TEXT_COLUMNS = frozenset(spelling for figure in TEXT_FIGURES for spelling in COLUMNS[figure])
PERCENTILE = re.compile(r"(\d+(?:[.,]\d+)?)\s*%?")


@dataclass(frozen=True)
class Layout:
    """A kind of file: the ends of its name, newest first, the figures it must have, and how to say so."""

    kind: str
    suffixes: tuple[str, ...]
    needs: frozenset[str]
    told: str


LAYOUTS: tuple[Layout, ...] = (  # the first whose figures are all there is the file's kind
    Layout(
        "history",
        ("_stats_history.csv", "_requests_full_history.csv"),
        frozenset({"at_s", "name", "requests", "failures"}),
        "Timestamp, Name, Total Request Count, Total Failure Count",
    ),
    Layout(
        "stats",
        ("_stats.csv", "_requests.csv"),
        frozenset({"type", "name", "requests", "failures"}),
        "Type, Name, Request Count, Failure Count",
    ),
    Layout("distribution", ("_distribution.csv",), frozenset({"name", "requests"}), "Name, # requests, 50%"),
    Layout(
        "failures",
        ("_failures.csv",),
        frozenset({"name", "error", "occurrences"}),
        "Method, Name, Error, Occurrences",
    ),
    Layout("exceptions", ("_exceptions.csv",), frozenset({"count", "message"}), "Count, Message, Traceback"),
)
SUFFIXES = tuple(suffix for layout in LAYOUTS for suffix in layout.suffixes)


class LocustCsvError(ValueError):
    """The files cannot be read as Locust's: what, where and what next in one line."""


def find_files(prefix: Path) -> tuple[Path, dict[str, Path]]:
    """The prefix itself and its files by kind. Of a folder, the one prefix in it."""
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if prefix.name.endswith(suffix) and prefix.is_file():
            prefix = prefix.with_name(prefix.name.removesuffix(suffix))
            break
    else:
        if prefix.is_file():
            return prefix, {_kind_of_file(prefix): prefix}
    files = _files_of(prefix)
    if not files and prefix.is_dir():
        inside = sorted(
            {path.name.removesuffix(suffix) for suffix in SUFFIXES for path in prefix.glob(f"*{suffix}")}
        )
        inside = [name for name in inside if not name.endswith(("_stats", "_requests"))] or inside
        if len(inside) > 1:
            named = ", ".join(inside[:8])
            raise LocustCsvError(
                f"{prefix} holds several Locust runs ({named}): give one, such as {prefix}/{inside[0]}"
            )
        if inside:
            prefix = prefix / inside[0]
            files = _files_of(prefix)
    if not files:
        raise LocustCsvError(
            f"no CSV file of Locust at {prefix} (looked for {prefix.name}_stats.csv and the like): "
            "give what was given to locust --csv"
        )
    return prefix, files


def _files_of(prefix: Path) -> dict[str, Path]:
    files = {}
    for layout in LAYOUTS:
        paths = (prefix.with_name(prefix.name + suffix) for suffix in layout.suffixes)
        if prefix.is_dir():
            paths = (
                path
                for suffix in layout.suffixes
                for path in (prefix / suffix, prefix.with_name(prefix.name + suffix))
            )
        if path := next((path for path in paths if path.is_file()), None):
            files[layout.kind] = path
    return files


def _kind_of_file(path: Path) -> str:
    table = read_table(path, TEXT_COLUMNS)
    if table is None:
        raise LocustCsvError(f"{path} is empty: if the run has just begun, read it again in some seconds")
    return kind_of(table)


def kind_of(table: Table) -> str:
    """The kind of file by its header. Raises LocustCsvError with the columns seen when it is none."""
    figures = {FIGURE_OF.get(name.lower(), "") for name in table.header}
    for layout in LAYOUTS:
        if layout.needs <= figures:
            return layout.kind
    seen = ", ".join(table.header)
    seen = seen if len(seen) <= 300 else seen[:300] + " …"
    raise LocustCsvError(
        f"{table.path} has no layout of Locust that is known; columns seen: {' '.join(seen.split())}; "
        f"expected at least: {next(x.told for x in LAYOUTS if x.kind == 'stats')}"
    )


def open_table(path: Path, kind: str) -> Table | None:
    """The table in `path`, which must be of `kind`; None while the file is empty."""
    table = read_table(path, TEXT_COLUMNS)
    if table is not None and kind_of(table) != kind:
        layout = next(layout for layout in LAYOUTS if layout.kind == kind)
        raise LocustCsvError(
            f"{path} has another layout than its name says; columns seen: {', '.join(table.header)[:300]}; "
            f"expected at least: {layout.told}"
        )
    return table


def places(header: Sequence[str]) -> tuple[dict[str, int], dict[float, int]]:
    """Where each figure stands in a row, and each percentile by its level in percent, ascending."""
    figures = {FIGURE_OF[name.lower()]: n for n, name in enumerate(header) if name.lower() in FIGURE_OF}
    levels = {}
    for n, name in enumerate(header):
        if (found := PERCENTILE.fullmatch(name)) and 0 < (level := float(found[1].replace(",", "."))) <= 100:
            levels[level] = n
    return figures, dict(sorted(levels.items()))


def is_aggregated(type_: str, name: str) -> bool:
    """Whether a row is Locust's own total: it has no type."""
    return type_ in ("", "None") and name in ("Aggregated", "Total")
