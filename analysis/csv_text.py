"""Bytes of a CSV file -> header and rows, whoever wrote it and however far they had got.

Locust writes its files in the encoding, the line ends and (up to 1.1) the quoting of its own machine, and a
spreadsheet may have saved them again since. So: UTF-8 with or without a byte-order mark, UTF-16, else
Windows-1252; line ends \\n, \\r\\n, \\r and Windows' doubled \\r\\r\\n; comma, semicolon or tab; RFC 4180
quotes over several lines, and the quotes of Locust before 1.2, which were not doubled inside a name.

A file that is read while Locust writes it may end in the middle of a row, and (since it is rewritten in
place) may have a torn row in its middle. Rows of another width than the header's are left out and counted.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

DELIMITERS = (",", ";", "\t")
LONGEST_FIELD = 2**31 - 1
ABSENT = frozenset({"", "n/a", "#n/a", "na", "nan", "none", "null", "inf", "-inf", "-"})

NUMBER = r'"?[^",\n]*"?'
TEXT = r'"((?s:.*?))"'


@dataclass
class Table:
    """Header and rows of one file; `torn` rows were left out, `unfinished` says that the last row has no
    end. Rows are consumed once."""

    path: Path
    header: list[str]
    rows: Iterator[list[str]]
    delimiter: str = ","
    notices: list[str] = field(default_factory=list)
    torn: int = 0
    unfinished: bool = False

    @property
    def decimal_comma(self) -> bool:
        """Where cells are not parted by commas, a comma in a number is its decimal point."""
        return self.delimiter != ","


def read_table(path: Path, text_columns: Iterable[str]) -> Table | None:
    """The table in `path`, or None when the file is still empty. `text_columns` are the lower-case names of
    columns that may hold any text; all others hold numbers.

    Raises OSError when the file cannot be read.
    """
    notices: list[str] = []
    text = _text(path.read_bytes(), path.name, notices)
    if text.lower().startswith("sep=") and "\n" in text:
        text = text.split("\n", 1)[1]
    if not text.strip():
        return None
    text = text.lstrip("\n")
    first = text.split("\n", 1)[0]
    delimiter = max(DELIMITERS, key=first.count)
    header = [name.strip() for name in next(csv.reader([first], delimiter=delimiter))]
    table = Table(path, header, iter(()), delimiter, notices)
    # Locust before 1.2, which quotes its headers, ends no file with a line end.
    table.unfinished = not text.endswith("\n") and not first.startswith('"')
    if first.startswith('"') and delimiter == "," and not _is_rfc_4180(text):
        records = _undoubled(text, header, frozenset(text_columns))
    else:
        csv.field_size_limit(LONGEST_FIELD)
        records = csv.reader(_lines(text), delimiter=delimiter)
        next(records, None)
    table.rows = _whole(table, records)
    return table


def number(text: str, decimal_comma: bool = False) -> float | None:
    """The number in a cell, None when it is absent (N/A, empty, no finite number).

    Raises ValueError when the cell holds something else, as a torn row does.
    """
    cleaned = text.strip()
    if cleaned.lower() in ABSENT:
        return None
    if decimal_comma and "," in cleaned:
        cleaned = cleaned.replace(".", "").replace(",", ".")
    value = float(cleaned)
    return value if abs(value) < 1e300 else None


def _text(raw: bytes, name: str, notices: list[str]) -> str:
    raw = raw.rstrip(b"\0") if not raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else raw
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = raw.decode("utf-16", errors="replace")
    else:
        try:
            # Incremental: a character cut off at the end of a file being written is left out.
            text = codecs.getincrementaldecoder("utf-8-sig")().decode(raw)
        except UnicodeDecodeError:
            text = raw.decode("cp1252", errors="replace")
            notices.append(
                f"{name} is not UTF-8; it was read as Windows-1252, so names in other scripts look wrong."
            )
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("\0", "")


def _lines(text: str) -> Iterator[str]:
    """Lines with their ends, one at a time: a long file is not held twice."""
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield text[start:end]
        start = end


def _is_rfc_4180(text: str) -> bool:
    """Whether every quote inside a quoted field is doubled; an unended quote at the end is no breach."""
    try:
        for _ in csv.reader(_lines(text), strict=True):
            pass
    except csv.Error as error:
        return "unexpected end" in str(error)
    return True


def _undoubled(text: str, header: Sequence[str], text_columns: frozenset[str]) -> Iterator[list[str]]:
    """Rows of Locust before 1.2, whose names stand between quotes as they are: a row is found by its numbers.

    What lies between two rows that have all their numbers is a torn row.
    """
    cells = [TEXT if name.lower() in text_columns else f"({NUMBER})" for name in header]
    row = re.compile("^" + ",".join(cells) + "$", re.MULTILINE)
    at = text.find("\n") + 1
    while found := row.search(text, at):
        if text[at : found.start()].strip():
            yield [text[at : found.start()]]
        yield [
            cell.strip('"') if name.lower() not in text_columns else cell
            for name, cell in zip(header, found.groups(), strict=True)
        ]
        at = found.end()
    if text[at:].strip():
        yield [text[at:]]


def _whole(table: Table, records: Iterable[list[str]]) -> Iterator[list[str]]:
    """The rows as wide as the header. Blank ones and repeated headers (joined files) are passed over."""
    width = len(table.header)
    for record in records:
        if not any(cell.strip() for cell in record):
            continue
        if len(record) != width:
            table.torn += 1
        elif [cell.strip() for cell in record] != table.header:
            yield record
