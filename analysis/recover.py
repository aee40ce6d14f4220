"""A run whose master died -> a complete run folder, from what it wrote and from the workers' journals.

    requests.csv as far as it is readable  +  journal records that are not in it  +  a row "not sent" for
    every arrival that has none

Nothing is written over: the files as the master left them stay beside the new ones as *.before-recovery.
gaps.f32 only grows and run.json comes last, so a recovery that is itself cut off can be run again.
"""

from __future__ import annotations

import csv
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from analysis.journals import Journals, find_journals
from analysis.unsent import never_sent
from runlog.folder import (
    EVENT_COLUMNS,
    EVENTS_CSV,
    GAPS_F32,
    REQUESTS_CSV,
    RUN_JSON,
    RunInfo,
    read_run_info,
    write_run_info,
)
from runlog.record import COLUMNS, OUTCOMES, OUTSIDE_THE_LOAD, from_row, to_row

LOST = "the master was lost"
"""The stop reason of a recovered run, and how its event begins."""

BEFORE = ".before-recovery"

_ARRIVAL, _ID, _WORKER, _NAME, _SENT, _OUTCOME, _CLASS, _OFFSET, _GAPS = (
    COLUMNS.index(name)
    for name in (
        "arrival",
        "request_id",
        "worker",
        "name",
        "sent_at_s",
        "outcome",
        "failure_class",
        "gap_offset",
        "gap_count",
    )
)

Key = tuple[str, str]
Row = list[str]


@dataclass
class Recovered:
    """What a recovery found: records by where they came from, and notes about what is missing."""

    from_requests: int = 0
    from_journals: int = 0
    journals: int = 0
    never_sent: int = 0
    duplicates: int = 0
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        more = f"{self.from_journals} more from {self.journals} journal{'s' * (self.journals != 1)}"
        text = f"{self.from_requests} records from {REQUESTS_CSV}, {more}, {self.never_sent} never sent"
        return f"{text}, {self.duplicates} duplicates dropped" if self.duplicates else text


def recover(folder: Path, journal_places: Sequence[Path] = ()) -> Recovered | None:
    """Complete the folder of a run whose master died; None when there is nothing to recover.

    `journal_places` are files or folders with journals beside those in the run folder. A run that was
    recovered before changes only when they hold records that it has not got. Use it when the master is gone:
    of a run that still goes on it would take the folder away. Raises RunFolderError as `read_run_info` and
    `find_journals` do.
    """
    info = read_run_info(folder)
    before = info.state != "running"
    if before and info.stop_reason != LOST:
        return None
    journals = find_journals(folder, info.run_id, journal_places)
    build = _Build(folder, info, journals)
    try:
        build.write_records()
        if before and not build.found.from_journals:
            return None
        build.found.notes += journals.notes
        for name in (GAPS_F32, REQUESTS_CSV, EVENTS_CSV, RUN_JSON):
            _keep(folder / name)
        build.gaps_path.replace(folder / GAPS_F32)
        build.requests_path.replace(folder / REQUESTS_CSV)
        _write_events(folder, build.last_sent_at_s, str(build.found), build.found.notes)
        write_run_info(folder, build.final_info())
        return build.found
    finally:
        build.requests_path.unlink(missing_ok=True)
        build.gaps_path.unlink(missing_ok=True)


class _Build:
    """The new requests.csv and gaps.f32, written beside the old ones, and the counts of their rows."""

    def __init__(self, folder: Path, info: RunInfo, journals: Journals) -> None:
        self.found = Recovered(journals=len(journals.found))
        self.requests_path = folder / f".{REQUESTS_CSV}.{os.getpid()}.partial"
        self.gaps_path = folder / f".{GAPS_F32}.{os.getpid()}.partial"
        self.last_sent_at_s = 0.0
        self._folder, self._info, self._journals = folder, info, journals
        self._again = info.state == "stopped"
        self._lost_at_s = _lost_workers(folder)
        self._written: set[Key] = set()
        self._outcomes: Counter[str] = Counter()
        self._by_worker: Counter[str] = Counter()
        self._kept = 0
        self._short: set[int | None] = set()
        self._planned = 0

    def write_records(self) -> None:
        """Everything from requests.csv, then from the journals, then what was never sent."""
        in_journals = {_key(row) for row, _ in self._journals.rows() if row[_OUTCOME] != "not_sent"}
        gaps_there = _copy_whole_gaps(self._folder / GAPS_F32, self.gaps_path)
        with (
            open(self.requests_path, "w", newline="", encoding="utf-8", errors="replace") as requests,
            open(self.gaps_path, "ab") as gaps_file,
        ):
            lines = csv.writer(requests)
            lines.writerow(COLUMNS)
            for row in _readable(self._folder / REQUESTS_CSV, self.found.notes):
                gaps_lost = row[_OFFSET] != "" and int(row[_OFFSET]) + int(row[_GAPS] or 0) > gaps_there
                unsent = row[_OUTCOME] == "not_sent"
                if _key(row) in in_journals and (gaps_lost or unsent):
                    continue  # the journal knows more
                if unsent and self._again and row[_CLASS] in ("run_stopped", "worker_lost"):
                    continue  # the recovery before this one made it, and knew less
                if gaps_lost:
                    row[_OFFSET] = ""
                if self._take(row):
                    self.found.from_requests += 1
                    lines.writerow(row)
                else:
                    self.found.duplicates += 1
            for row, gaps in self._journals.rows():
                if self._take(row):
                    self.found.from_journals += 1
                    row[_OFFSET] = str(gaps_there) if gaps else ""
                    gaps_there += len(gaps) // 4
                    gaps_file.write(gaps)
                    lines.writerow(row)
            for record in never_sent(self._folder, self._info, self._journals.workers, self._lost_at_s):
                self._planned += 1
                row = to_row(record)
                if self._take(row):
                    self.found.never_sent += 1
                    self._short |= {record.worker} if record.error else set()
                    lines.writerow(row)
        self._note_missing_journals()

    def _take(self, row: Row) -> bool:
        """Count a row; False when its request has one already."""
        key = _key(row)
        if key in self._written:
            return False
        self._written.add(key)
        self._outcomes[row[_OUTCOME]] += 1
        self._by_worker[row[_WORKER]] += 1
        self._kept += row[_ARRIVAL] != ""
        if row[_SENT] and row[_NAME] not in OUTSIDE_THE_LOAD:
            self.last_sent_at_s = max(self.last_sent_at_s, float(row[_SENT]))
        return True

    def _note_missing_journals(self) -> None:
        """A worker whose every arrival has a record needs no journal; users have no arrivals to tell by."""
        missing = [
            row.index
            for row in self._info.workers
            if row.index not in self._journals.workers
            and (row.index in self._short or self._info.load == "closed")
        ]
        if missing:
            whose = ", ".join(map(str, missing))
            self.found.notes.append(
                f"no journal of worker {whose}: what it sent last may stand as never sent; "
                f"give it with --journals"
            )

    def final_info(self) -> RunInfo:
        """run.json with the counts of what is there now."""
        info = self._info
        sent = sum(self._outcomes.values()) - self._outcomes["not_sent"]
        workers = [
            replace(
                worker,
                planned=len(range(worker.index, self._planned, len(info.workers))),
                kept=self._by_worker[str(worker.index)],
                lost_at_s=self._lost_at_s.get(worker.index, worker.lost_at_s),
            )
            for worker in info.workers
        ]
        counts: dict[str, int] = {outcome: self._outcomes[outcome] for outcome in OUTCOMES}
        counts |= {"planned": self._planned, "kept": self._kept, "sent": sent}
        return replace(
            info, state="stopped", stop_reason=LOST, counts={**info.counts, **counts}, workers=workers
        )


def _key(row: Row) -> Key:
    """What a request is told by: its arrival, or its worker and id where it has none."""
    return ("", row[_ARRIVAL]) if row[_ARRIVAL] else (row[_WORKER] or "-", row[_ID])


def _readable(path: Path, notes: list[str]) -> Iterator[Row]:
    """The rows of requests.csv in the order of COLUMNS, until the first that cannot be read."""
    if not path.exists():
        notes.append(f"there is no {path.name}")
        return
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        lines = csv.reader(_whole_lines(file))
        try:
            header: Row = next(lines, [])
            for line in lines:
                yield to_row(from_row(dict(zip(header, line, strict=True))))
        except (ValueError, TypeError, csv.Error) as error:
            notes.append(f"{path.name} is unreadable from line {lines.line_num} on ({error})")


def _whole_lines(lines: Iterator[str]) -> Iterator[str]:
    """All lines but a last one without its line feed, which was cut."""
    waiting = None
    for line in lines:
        if waiting is not None:
            yield waiting
        waiting = line
    if waiting is not None and waiting.endswith("\n"):
        yield waiting


def _copy_whole_gaps(path: Path, to: Path) -> int:
    """Copy gaps.f32 and return how many whole gaps it holds; what is cut at its end is left out."""
    if path.exists():
        shutil.copyfile(path, to)
    else:
        to.touch()
    whole = to.stat().st_size // 4
    os.truncate(to, 4 * whole)
    return whole


def _keep(path: Path) -> None:
    """A second name for a file as it is now, unless it has one already."""
    if not path.exists():
        return
    kept = path.with_name(path.name + BEFORE)
    number = 1
    while kept.exists():
        if kept.samefile(path):
            return
        number += 1
        kept = path.with_name(f"{path.name}{BEFORE}-{number}")
    try:
        os.link(path, kept)
    except OSError:  # a file system without hard links
        shutil.copy2(path, kept)


def _events(folder: Path) -> list[Row]:
    path = folder / EVENTS_CSV
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        rows = list(csv.reader(_whole_lines(file)))
    return [row for row in rows[1:] if len(row) == len(EVENT_COLUMNS)]


def _lost_workers(folder: Path) -> dict[int, float]:
    """Worker -> when it was lost, by events.csv: run.json says so only at a run's end."""
    rows = [row for row in _events(folder) if row[1] == "worker_lost" and row[2].isdigit()]
    return {int(worker): float(at_s) for at_s, _, worker, _ in reversed(rows)}


def _write_events(folder: Path, at_s: float, found: str, notes: Sequence[str]) -> None:
    """events.csv with what the recovery found, instead of what an earlier one did."""
    rows = [row for row in _events(folder) if not (row[1] == "stopped" and row[3].startswith(LOST))]
    rows.append([f"{at_s:.3f}", "stopped", "", "; ".join([LOST, found, *notes])])
    partial = folder / f".{EVENTS_CSV}.{os.getpid()}.partial"
    with open(partial, "w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(EVENT_COLUMNS)
        lines.writerows(rows)
    partial.replace(folder / EVENTS_CSV)
