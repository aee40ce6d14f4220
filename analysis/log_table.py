"""A log file as rows of text cells: CSV with any usual separator, JSON lines, or a JSON list of objects."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson


class ArrivalLogError(Exception):
    """A log cannot be read; the message says which, why, and what to give instead."""


@dataclass(frozen=True, eq=False)
class LogTable:
    """The cells of a file as text, by row, with the lines that make no row."""

    names: list[str]
    rows: Sequence[Any]
    first_line: int
    bad_lines: int
    bad: list[str]
    cell: Callable[[Any, int, str], str]

    @classmethod
    def read(cls, path: Path) -> LogTable:
        if path.is_dir():
            raise ArrivalLogError(f"{path}: a folder without run.json; give a run folder or a log file")
        text = path.read_bytes().decode("utf-8-sig", errors="replace")
        start = text.lstrip()[:1]
        if not start:
            raise ArrivalLogError(f"{path}: the file is empty")
        return _json_table(path, text, start) if start in "{[" else _csv_table(text)

    def column(self, name: str) -> list[str]:
        place = self.names.index(name)
        return [self.cell(row, place, name) for row in self.rows]

    def line(self, row: int) -> int:
        return int(row) + self.first_line


def _json_table(path: Path, text: str, start: str) -> LogTable:
    bad: list[str] = []
    lost = 0
    rows: list[dict[str, Any]] = []
    if start == "[":
        try:
            found = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise ArrivalLogError(f"{path}: looks like a JSON list and cannot be read: {error}") from error
        lines: Iterator[tuple[int, Any]] = enumerate(found, 1)
    else:
        lines = ((n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip())
    for number, line in lines:
        try:
            row = orjson.loads(line) if isinstance(line, str) else line
        except orjson.JSONDecodeError:
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            lost += 1
            bad.append(f"line {number}: no JSON object")
    names = list(dict.fromkeys(name for row in rows[:1000] for name in row))

    def cell(row: dict[str, Any], place: int, name: str) -> str:
        value = row.get(name)
        return "" if value is None else str(value)

    return LogTable(names, rows, 1, lost, bad, cell)


def _csv_table(text: str) -> LogTable:
    first = text.splitlines()[0]
    separator = max(",;\t|", key=first.count)
    rows, bad, lost = [], [], 0
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    for row in _rows(reader):
        if isinstance(row, list):
            if row:
                rows.append(row)
        else:
            lost += 1
            bad.append(row)
    headless = all(_looks_like_time(cell) for cell in rows[0][:1])
    names = (
        [f"column {n}" for n in range(1, len(rows[0]) + 1)]
        if headless
        else [name.strip() for name in rows[0]]
    )

    def cell(row: list[str], place: int, name: str) -> str:
        return row[place] if place < len(row) else ""

    return LogTable(names, rows if headless else rows[1:], 1 if headless else 2, lost, bad, cell)


def _rows(reader: Any) -> Iterator[list[str] | str]:
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield f"line {reader.line_num}: {error}"


def _looks_like_time(cell: str) -> bool:
    return bool(re.fullmatch(r"-?\d+(\.\d*)?([eE][+-]?\d+)?|\d{4}[-/]\d\d.*", cell.strip()))
