"""A CSV file of a run folder -> a table whose columns are of known kinds.

Read in pieces, as many at a time as there are cores, and each column joined by itself: a million requests
take half the time and half the memory that they take in one go.
"""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd

from runlog.folder import RunFolderError

PIECE_BYTES = 16 << 20
MOST_AT_ONCE = 4

Kinds = Mapping[str, type]


def read_table(
    path: Path, kinds: Kinds, required: tuple[str, ...] = (), few: Collection[str] = ()
) -> tuple[pd.DataFrame, bool]:
    """The table and whether its last line was cut.

    Whole numbers are Int64, other numbers float64, texts str, or a category of str for the columns of `few`
    different texts. Absent columns are unknown; columns not in `kinds` are left out. Raises RunFolderError
    for a file that cannot be read, and for one without a `required` column.
    """
    parts: list[dict[str, pd.Series[Any]]] = []
    cut = False
    cores = min(os.cpu_count() or 1, MOST_AT_ONCE)
    parse = partial(_parsed, path, kinds, required, few)
    try:
        with path.open("rb") as file, ThreadPoolExecutor(cores) as pool:
            pieces = _pieces(file)
            while some := list(islice(pieces, cores)):
                whole = [piece for piece, is_whole in some if is_whole and not piece.isspace()]
                cut |= len(whole) < len(some)
                parts += pool.map(parse, whole)
    except FileNotFoundError:
        raise RunFolderError(f"{path.parent} has no {path.name}") from None
    except (OSError, ValueError, TypeError) as error:
        raise RunFolderError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    return (_joined(parts, kinds) if parts else no_rows(kinds, few)), cut


def no_rows(kinds: Kinds, few: Collection[str] = ()) -> pd.DataFrame:
    """The table without rows."""
    return _typed(pd.DataFrame(columns=list(kinds), dtype="str"), kinds, few)


def whole_lines(data: bytes) -> bytes:
    """`data` up to its last whole record: a line feed counts as an end only outside quotes."""
    end = data.rfind(b"\n")
    while end >= 0 and data.count(b'"', 0, end) % 2:
        end = data.rfind(b"\n", 0, end)
    return data[: end + 1]


def _pieces(file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """The whole records of the file, some at a time, each time under its header; last of all, with False,
    what there is of one that was cut."""
    header = rest = b""
    while block := file.read(PIECE_BYTES):
        data = rest + block
        whole = whole_lines(data)
        rest = data[len(whole) :]
        if whole:
            yield header + whole, True
            header = header or whole[: whole.find(b"\n") + 1]
    if rest:
        yield rest, False


def _parsed(
    path: Path, kinds: Kinds, required: tuple[str, ...], few: Collection[str], data: bytes
) -> dict[str, pd.Series[Any]]:
    table = pd.read_csv(
        io.BytesIO(data),
        dtype={name: _read_as(name, kind, few) for name, kind in kinds.items()},
        keep_default_na=False,
        na_values=[""],
        encoding_errors="replace",
        low_memory=False,  # every kind is given, so smaller pieces would only cost a copy
    )
    absent = [name for name in required if name not in table.columns]
    if absent:
        raise RunFolderError(
            f"{path} has no column {absent[0]!r}; its columns are {', '.join(table.columns[:8])} ..."
        )
    if not isinstance(table.index, pd.RangeIndex):
        raise RunFolderError(f"{path} has more cells in a line than columns in its header")
    typed = _typed(table, kinds, few)
    return {name: typed[name] for name in kinds}


def _read_as(name: str, kind: type, few: Collection[str]) -> str:
    return "category" if name in few else "str" if kind is str else "float64"


def _typed(table: pd.DataFrame, kinds: Kinds, few: Collection[str]) -> pd.DataFrame:
    dtypes = {int: "Int64", float: "float64", str: "str"}
    table = table.reindex(columns=list(kinds))
    return table.astype({name: "category" if name in few else dtypes[kind] for name, kind in kinds.items()})


def _joined(parts: list[dict[str, pd.Series[Any]]], kinds: Kinds) -> pd.DataFrame:
    """The parts as one table; each gives up a column before the next is joined."""
    columns = {}
    for name in kinds:
        columns[name] = _one([part.pop(name) for part in parts])
    return pd.DataFrame(columns, copy=False)


def _one(parts: list[pd.Series[Any]]) -> pd.Series[Any]:
    if isinstance(parts[0].dtype, pd.CategoricalDtype):
        texts = sorted(set().union(*(part.cat.categories for part in parts)))
        dtype = pd.CategoricalDtype(pd.Index(texts, dtype="str"))
        parts = [part.astype(dtype) for part in parts]
    return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)
