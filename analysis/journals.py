"""Where the journals of a run lie, whose they are, and which worker's is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runlog.folder import RunFolderError
from runlog.journal import JOURNAL_NAMES, JOURNALS, EmptyJournal, JournalHeader, read_journal
from runlog.record import COLUMNS


@dataclass
class Journals:
    """The journals of one run, in order of worker, and notes about what could not be used."""

    found: list[tuple[Path, JournalHeader]]
    notes: list[str] = field(default_factory=list)

    @property
    def workers(self) -> set[int]:
        """The workers whose journal is there."""
        return {header.worker for _, header in self.found}

    def rows(self) -> Iterator[tuple[list[str], bytes]]:
        """Every record as cells in the order of COLUMNS with its gaps, as far as each journal is readable."""
        for path, header in self.found:
            try:
                for cells, gaps in read_journal(path)[1]:
                    yield _in_our_order(header, cells), gaps
            except RunFolderError as error:
                note = f"{error}; what follows it there was left out"
                self.notes += [note] if note not in self.notes else []


def find_journals(folder: Path, run_id: str, places: Sequence[Path]) -> Journals:
    """The run's journals in its own folder and in `places`, files or folders that are searched through.

    Those of other runs are left aside with a note. Raises RunFolderError for a place that is not there and
    for a journal of an unknown version.
    """
    paths: dict[Path, Path] = {}
    for place in (folder / JOURNALS, *places):
        if place.is_dir():
            paths |= {path.resolve(): path for path in sorted(place.rglob(JOURNAL_NAMES))}
        elif place.is_file():
            paths[place.resolve()] = place
        elif place in places:
            raise RunFolderError(f"{place} is not there; --journals takes journal files or folders with them")
    found, notes, others = [], [], 0
    for path in paths.values():
        try:
            header, _ = read_journal(path)
        except EmptyJournal as empty:
            notes.append(str(empty))
            continue
        if header.run_id == run_id:
            found.append((path, header))
        else:
            others += 1
    if others:
        notes.append(f"{others} journals of other runs were left aside")
    return Journals(sorted(found, key=lambda row: (row[1].worker, row[0].name)), notes)


def _in_our_order(header: JournalHeader, cells: list[str]) -> list[str]:
    if header.columns == COLUMNS:
        return cells
    by_name = dict(zip(header.columns, cells, strict=True))
    return [by_name.get(name, "") for name in COLUMNS]
