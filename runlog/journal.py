"""A worker's journal: its records on its own disk, for the case that the master never gets or keeps them.

    journals/worker-<index>-<pid>.jsonl    in the run folder, or wherever the worker runs
        {"format_version": 1, "run_id": "...", "worker": 2, "columns": ["arrival", ...]}
        ["17", "0", "...", null]           the cells of one record in that order, then its chunk gaps:
        ["18", "0", "...", "AACAPw=="]     little-endian float32 seconds in base64, or null

One line per record, only ever appended. Whatever ends the worker costs at most the lines not flushed yet.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

import orjson

from runlog.folder import RunFolderError
from runlog.record import COLUMNS

JOURNALS = "journals"
JOURNAL_VERSION = 1
JOURNAL_NAMES = "worker-*-*.jsonl"

Line = tuple[list[str], bytes]
"""A record's cells in the order of the header's columns, and its chunk gaps (little-endian float32)."""


class EmptyJournal(RunFolderError):
    """The journal broke off in its first line: nothing had been kept in it."""


@dataclass(frozen=True)
class JournalHeader:
    """Whose journal it is: the run, the worker's index, and what each record's cells are."""

    format_version: int
    run_id: str
    worker: int
    columns: tuple[str, ...]


def journal_path(folder: Path, worker: int, pid: int) -> Path:
    """Where the worker with this index and process id keeps its journal of the run in `folder`."""
    return folder / JOURNALS / f"worker-{worker}-{pid}.jsonl"


class JournalWriter:
    """Appends a worker's records. Use as a context manager, or close it.

    The folder is made when it is missing; an existing file is not written over (FileExistsError).
    """

    def __init__(self, path: Path, run_id: str, worker: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "xb")  # noqa: SIM115
        header = JournalHeader(JOURNAL_VERSION, run_id, worker, COLUMNS)
        self._file.write(json.dumps(asdict(header)).encode() + b"\n")
        self._file.flush()

    def append_row(self, row: Sequence[str], gaps_f32: bytes = b"") -> None:
        """Append one record: its cells in the order of COLUMNS and its chunk gaps."""
        gaps = base64.b64encode(gaps_f32).decode() if gaps_f32 else None
        self._file.write(orjson.dumps([*row, gaps], option=orjson.OPT_APPEND_NEWLINE))

    def flush(self) -> None:
        """Hand everything appended so far to the operating system."""
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()


def read_journal(path: Path) -> tuple[JournalHeader, Iterator[Line]]:
    """A journal's header and its records in order; a last line that was cut short is left out.

    Raises RunFolderError when the file cannot be read or is of an unknown version, EmptyJournal when even
    its header was cut, and, while the records are read, RunFolderError for a broken line before the last.
    """
    try:
        with open(path, "rb") as file:
            first = file.readline()
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read: {error.strerror}") from error
    if not first.endswith(b"\n"):
        raise EmptyJournal(f"{path} broke off in its first line: it holds no record")
    header = _header(path, first)
    return header, _lines(path, header)


def _header(path: Path, line: bytes) -> JournalHeader:
    try:
        raw = json.loads(line)
        version = raw["format_version"]
    except (ValueError, TypeError, KeyError):
        raise RunFolderError(f"{path} is not a worker's journal: its first line is no header") from None
    if version != JOURNAL_VERSION:
        raise RunFolderError(
            f"{path} has format version {version!r}; this program reads version {JOURNAL_VERSION}. "
            f"Use the release of the suite that wrote it."
        )
    try:
        header = JournalHeader(version, raw["run_id"], raw["worker"], tuple(raw["columns"]))
    except (TypeError, KeyError) as error:
        raise RunFolderError(f"{path} lacks what a journal's header needs: {error}") from None
    if not (
        isinstance(header.run_id, str) and isinstance(header.worker, int) and "request_id" in header.columns
    ):
        raise RunFolderError(f"{path}: its header does not say which run, worker and columns it holds")
    return header


def _lines(path: Path, header: JournalHeader) -> Iterator[Line]:
    """Each line is read when the next one is there, so that only the last may be broken."""
    with open(path, "rb") as file:
        file.readline()
        waiting: bytes | None = None
        number = 1
        for line in file:
            if waiting is not None:
                yield _record(path, number, header, waiting)
            waiting, number = line, number + 1
        if waiting is not None and waiting.endswith(b"\n"):
            try:
                last = _record(path, number, header, waiting)
            except RunFolderError:
                return
            yield last


def _record(path: Path, number: int, header: JournalHeader, line: bytes) -> Line:
    try:
        *cells, gaps = json.loads(line)
        if len(cells) != len(header.columns) or not all(isinstance(cell, str) for cell in cells):
            raise ValueError(f"not {len(header.columns)} texts, one for each column")
        return cells, base64.b64decode(gaps, validate=True) if gaps is not None else b""
    except (ValueError, TypeError, binascii.Error) as error:
        raise RunFolderError(f"{path}, line {number}: {error}") from error
