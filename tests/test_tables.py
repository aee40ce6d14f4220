"""A CSV file becomes the same table, however it is cut into pieces."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from analysis import tables
from runlog.folder import RunFolderError

KINDS = {"n": int, "at_s": float, "text": str, "class": str, "absent": int}
RECORDS = (
    b'1,0.5,"two\nlines, ""quoted""",red\n',
    b"2,,plain,\n",
    b",1.25,,blue\n",
    b'4,2.0,"\n\n",amber\n',
)


def read(path: Path, piece_bytes: int, monkeypatch: pytest.MonkeyPatch) -> tuple[pd.DataFrame, bool]:
    monkeypatch.setattr(tables, "PIECE_BYTES", piece_bytes)
    return tables.read_table(path, KINDS, ("n",), ("class",))


@pytest.mark.parametrize("left_over", [b"", b"5,3.0,cut", b'5,3.0,"cut\n'])
def test_pieces_of_any_size_make_the_same_table(
    left_over: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "some.csv"
    path.write_bytes(b"n,at_s,text,class\n" + b"".join(RECORDS) + left_over)
    for piece_bytes in (1, 20, 33, 50, 1000):
        table, cut = read(path, piece_bytes, monkeypatch)
        assert cut is bool(left_over)
        assert table["n"].astype(object).where(table["n"].notna(), None).tolist() == [1, 2, None, 4]
        assert table["at_s"].fillna(-1.0).tolist() == [0.5, -1.0, 1.25, 2.0]
        assert table["text"].fillna("").tolist() == ['two\nlines, "quoted"', "plain", "", "\n\n"]
        assert table["class"].astype("str").fillna("").tolist() == ["red", "", "blue", "amber"]
        assert table["class"].cat.categories.tolist() == ["amber", "blue", "red"]
        assert table["absent"].isna().all()
        assert [str(kind) for kind in table.dtypes] == ["Int64", "float64", "str", "category", "Int64"]


def test_a_broken_piece_far_into_the_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "some.csv"
    path.write_bytes(b"n,at_s,text,class\n" + b"1,0.5,a,b\n" * 50 + b"x,0.5,a,b\n")
    with pytest.raises(RunFolderError, match=r"some\.csv cannot be read: .*'x'"):
        read(path, 40, monkeypatch)


@pytest.mark.parametrize("data", [b"", b"\n\n", b"n,at_s"])
def test_a_file_without_a_record_has_no_rows(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "some.csv"
    path.write_bytes(data)
    table, cut = read(path, 4, monkeypatch)
    assert (len(table), cut) == (0, bool(data))
    assert list(table.columns) == list(KINDS)
