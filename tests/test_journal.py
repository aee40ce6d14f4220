"""A worker's journal: what was written comes back, a cut costs one line, foreign files are told."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runlog.folder import RunFolderError
from runlog.journal import JOURNAL_VERSION, EmptyJournal, JournalWriter, Line, journal_path, read_journal
from runlog.record import COLUMNS, to_row
from tests.run_folders import answered, failed

texts = st.text(st.characters(codec="utf-8"), max_size=12)
lines = st.tuples(
    st.lists(texts, min_size=len(COLUMNS), max_size=len(COLUMNS)),
    st.lists(st.floats(0, 10, width=32), max_size=3).map(lambda gaps: struct.pack(f"<{len(gaps)}f", *gaps)),
)


def write(path: Path, *kept: Line) -> Path:
    with JournalWriter(path, "r", 2) as journal:
        for row, gaps in kept:
            journal.append_row(row, gaps)
    return path


def test_records_and_gaps_come_back(tmp_path: Path) -> None:
    path = journal_path(tmp_path, 2, 4711)
    assert path == tmp_path / "journals" / "worker-2-4711.jsonl"
    kept = [
        (to_row(answered(0, 1.0)), struct.pack("<2f", 0.5, 0.25)),
        (to_row(failed(1, 2.0, error='a, "quoted"\nline')), b""),
    ]
    header, found = read_journal(write(path, *kept))
    assert (header.run_id, header.worker, header.columns) == ("r", 2, COLUMNS)
    assert list(found) == kept
    with pytest.raises(FileExistsError):
        JournalWriter(path, "r", 2)


def test_what_was_flushed_is_there_though_the_journal_was_never_closed(tmp_path: Path) -> None:
    journal = JournalWriter(tmp_path / "worker-0-1.jsonl", "r", 0)
    row = to_row(answered(0, 1.0))
    journal.append_row(row)
    journal.flush()
    assert [cells for cells, _ in read_journal(tmp_path / "worker-0-1.jsonl")[1]] == [row]
    journal.close()


@settings(deadline=None, max_examples=60)
@given(kept=st.lists(lines, max_size=4), share=st.floats(0, 1))
def test_cut_anywhere_it_gives_every_record_whose_line_is_whole(
    tmp_path_factory: pytest.TempPathFactory, kept: list[Line], share: float
) -> None:
    path = write(tmp_path_factory.mktemp("journal") / "worker-2-1.jsonl", *kept)
    whole = path.read_bytes()
    cut = whole[: round(share * len(whole))]
    path.write_bytes(cut)
    complete = cut.count(b"\n") - 1
    if complete < 0:
        with pytest.raises(EmptyJournal, match="broke off in its first line"):
            read_journal(path)
    else:
        assert list(read_journal(path)[1]) == kept[:complete]


def test_a_last_line_of_noise_is_left_out_and_a_broken_one_before_it_is_told(tmp_path: Path) -> None:
    row = to_row(answered(0, 1.0))
    path = write(tmp_path / "worker-2-1.jsonl", (row, b""))
    whole = path.read_bytes()
    path.write_bytes(whole + b"\x00" * 40 + b"\n")
    assert [cells for cells, _ in read_journal(path)[1]] == [row]
    path.write_bytes(whole[:-1])
    assert list(read_journal(path)[1]) == [], "a line counts when its line feed is there"
    for broken in (b"[1, 2]\n", b'["a"]\n', b"{}\n", b"7\n"):
        path.write_bytes(whole + broken + whole.splitlines(keepends=True)[1])
        with pytest.raises(RunFolderError, match=r"worker-2-1\.jsonl, line 3"):
            list(read_journal(path)[1])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"format_version": JOURNAL_VERSION + 1}, "format version 2; this program reads version 1"),
        ({"columns": None}, "lacks what a journal's header needs"),
        ({"columns": ["arrival"]}, "does not say which run"),
        ({"worker": "two"}, "does not say which run"),
    ],
)
def test_a_foreign_header_is_refused(tmp_path: Path, changes: dict[str, object], says: str) -> None:
    path = write(tmp_path / "worker-2-1.jsonl")
    header = json.loads(path.read_text())
    path.write_text(json.dumps(header | changes) + "\n")
    with pytest.raises(RunFolderError, match=says):
        read_journal(path)


@pytest.mark.parametrize("text", ["hello\n", "[1]\n", "{}\n"])
def test_a_file_that_is_no_journal_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(RunFolderError, match="is not a worker's journal"):
        read_journal(tmp_path / "x")
    with pytest.raises(RunFolderError, match="cannot be read"):
        read_journal(tmp_path / "missing")
