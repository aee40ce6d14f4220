"""The run folder: where its files are, run.json, and how records are appended and read.

    run.json       what the run was: everything needed to repeat it, and its counts
    schedule.csv   what was asked: one row per arrival
    requests.csv   what happened: one row per arrival (and per request without an arrival)
    gaps.f32       chunk gaps, little-endian float32 seconds; requests.csv says which belong to whom
    client_load.csv    how busy each worker was, second by second (runlog.client_load)
    events.csv     at_s, kind, worker, text: lost workers, notices
    summary.json, report.html   what the analysis made of it

Readers refuse a format version that they do not know. docs/run_folder.md describes every file.
"""

from __future__ import annotations

import csv
import json
import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Any, TypedDict

from runlog.kinds import check_kinds, check_pairs
from runlog.record import COLUMNS, RequestRecord, from_row, to_row

FORMAT_VERSION = 1

RUN_JSON = "run.json"
SCHEDULE_CSV = "schedule.csv"
REQUESTS_CSV = "requests.csv"
GAPS_F32 = "gaps.f32"
EVENTS_CSV = "events.csv"
SUMMARY_JSON = "summary.json"
REPORT_HTML = "report.html"

EVENT_COLUMNS = ("at_s", "kind", "worker", "text")
LOADS = ("open", "closed")


class RunFolderError(Exception):
    """A run folder cannot be read or made; the message says which file, why, and what to do."""


@dataclass(frozen=True)
class WorkerInfo:
    """One worker's part in the run, with its own error: how busy it was and how sure of the time."""

    index: int
    host: str
    pid: int
    clock_offset_s: float | None = None
    clock_uncertainty_s: float | None = None
    cpu_peak_ratio: float | None = None
    loop_lag_p99_s: float | None = None
    cpu_mean_ratio: float | None = None
    loop_lag_max_s: float | None = None
    planned: int = 0
    kept: int = 0
    lost_at_s: float | None = None


class SegmentRow(TypedDict, total=False):
    """A part of the plan: one entry of `RunInfo.segments`."""

    id: int
    start_s: float
    end_s: float
    author: str
    level: float | None


@dataclass(frozen=True)
class RunInfo:
    """run.json. `bursts` are planned [start_s, end_s] windows (equal for a salvo), `rate_curve` is [at_s,
    req/s].

    `load` is "open" (requests at their moments) or "closed" (users, each with one request at a time); then
    `users_curve` holds [at_s, users wanted from then on] and there is no schedule. `segments` are the parts
    of the plan: id, start_s, end_s, author, and for a step its level (req/s or users).

    `state` is "running" until the run has ended, then "finished" or "stopped" with `stop_reason`. `counts`
    has planned, sent, kept and one key per outcome. `duration_s` is the planned load window, without the
    drain. `server` says what the preflight learned: kind, version, known_by (null where unknown), the dialect
    that requests speak, and in preflight its own requests, input_tokens and output_tokens;
    `prompt_calibration` holds overhead_tokens and tokens_per_word, empty where prompts were not
    counted. `rate_calibration` holds what `--rate auto` found: capacity_rps, at_least, rate_rps and steps,
    else it is empty; its requests are counted in server's calibration, as the preflight's are in preflight.
    """

    run_id: str
    name: str
    target: str
    model: str
    shape: str
    arrivals: str
    seed: int
    duration_s: float
    drain_s: float
    started_at: str | None = None
    ended_at: str | None = None
    state: str = "running"
    stop_reason: str | None = None
    command: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    load: str = "open"
    mean_rate_rps: float | None = None
    users_curve: list[list[float]] = field(default_factory=list)
    bursts: list[list[float]] = field(default_factory=list)
    rate_curve: list[list[float]] = field(default_factory=list)
    segments: list[dict[str, Any]] = field(default_factory=list)
    slo: str = ""
    schedule_sha256: str | None = None
    workers: list[WorkerInfo] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    server: dict[str, Any] = field(default_factory=dict)
    prompt_calibration: dict[str, float] = field(default_factory=dict)
    rate_calibration: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION


def write_run_info(folder: Path, info: RunInfo) -> None:
    """Write run.json in one step: a reader sees the old or the new file, never half of one."""
    write_text_atomically(folder / RUN_JSON, json.dumps(asdict(info), indent=2, allow_nan=False) + "\n")


def write_text_atomically(path: Path, text: str) -> None:
    """Replace `path` by `text`; a crash in between leaves the old file."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def read_run_info(folder: Path) -> RunInfo:
    """run.json of `folder`. Raises RunFolderError when it is missing, unreadable or of an unknown version."""
    path = folder / RUN_JSON
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunFolderError(
            f"{folder} is not a run folder: it has no {RUN_JSON}. Give the folder that a run printed, "
            f"such as runs/<run_id>."
        ) from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise RunFolderError(f"{path} cannot be read: {error}") from error
    if not isinstance(raw, dict):
        raise RunFolderError(f"{path} does not hold a JSON object")
    version = raw.get("format_version")
    if version != FORMAT_VERSION:
        raise RunFolderError(
            f"{path} has format version {version!r}; this program reads version {FORMAT_VERSION}. "
            f"Use the release of the suite that wrote it."
        )
    known = {item.name for item in fields(RunInfo)}
    values = {key: value for key, value in raw.items() if key in known}
    worker_keys = {item.name for item in fields(WorkerInfo)}
    try:
        values["workers"] = [
            WorkerInfo(**{key: value for key, value in worker.items() if key in worker_keys})
            for worker in values.get("workers", [])
        ]
        info = RunInfo(**values)
    except (TypeError, AttributeError) as error:
        raise RunFolderError(f"{path} lacks what a run folder needs: {error}") from error
    try:
        _check_values(info)
    except (TypeError, OverflowError) as error:
        raise RunFolderError(f"{path} holds a wrong value: {error}") from error
    return info


def _check_values(info: RunInfo) -> None:
    """Raises TypeError for a value that a reader of run.json could stumble over."""
    check_kinds(RunInfo, {key: value for key, value in vars(info).items() if key != "workers"})
    for place, worker in enumerate(info.workers):
        check_kinds(WorkerInfo, vars(worker), f"workers[{place}].")
    for place, segment in enumerate(info.segments):
        check_kinds(SegmentRow, segment, f"segments[{place}].")
    for name in ("bursts", "rate_curve", "users_curve"):
        check_pairs(name, getattr(info, name))
    if info.load not in LOADS:
        raise TypeError(f"load is {info.load!r}; it must be one of {', '.join(LOADS)}")


def create_folder(root: Path, run_id: str) -> tuple[Path, str]:
    """Make `root/run_id`, or with a number behind it when that is taken; returns the folder and its run id.

    Raises RunFolderError when the folder cannot be made.
    """
    for attempt in range(1, 1000):
        unique = run_id if attempt == 1 else f"{run_id}-{attempt}"
        try:
            (root / unique).mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise RunFolderError(
                f"{root / unique} cannot be made: {error.strerror}; choose another --runs-dir"
            ) from error
        return root / unique, unique
    raise RunFolderError(f"{root} holds a thousand runs called {run_id}; choose another --runs-dir")


class EventLog:
    """Appends to events.csv what happened beside the requests: lost workers, notices."""

    def __init__(self, folder: Path) -> None:
        self._file = open(folder / EVENTS_CSV, "x", newline="", encoding="utf-8")  # noqa: SIM115
        self._csv = csv.writer(self._file)
        self._csv.writerow(EVENT_COLUMNS)
        self._file.flush()

    def add(self, at_s: float, kind: str, worker: int | None, text: str) -> None:
        """One event at `at_s` after the start."""
        self._csv.writerow([f"{at_s:.3f}", kind, "" if worker is None else worker, text])
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class RecordWriter:
    """Appends records to requests.csv and their chunk gaps to gaps.f32, so that a crash loses at most a line.

    Use as a context manager. `append` sets gap_offset by itself. Existing files are not written over.
    """

    def __init__(self, folder: Path) -> None:
        try:
            self._rows = open(folder / REQUESTS_CSV, "x", newline="", encoding="utf-8")  # noqa: SIM115
            self._gaps = open(folder / GAPS_F32, "xb")  # noqa: SIM115
        except FileExistsError as error:
            raise RunFolderError(
                f"{error.filename} is there already; a run never writes over another"
            ) from error
        self._csv = csv.writer(self._rows)
        self._csv.writerow(COLUMNS)
        self._gap_count = 0

    def append(self, record: RequestRecord, gaps_f32: bytes = b"") -> None:
        """Append one record and its gaps (little-endian float32 seconds)."""
        self.append_row(to_row(record), gaps_f32)

    def append_row(self, row: list[str], gaps_f32: bytes = b"") -> None:
        """Append a record that is a row of cells already (it came over the wire)."""
        if gaps_f32:
            row[COLUMNS.index("gap_offset")] = str(self._gap_count)
            self._gaps.write(gaps_f32)
            self._gap_count += len(gaps_f32) // 4
        self._csv.writerow(row)

    def flush(self) -> None:
        """Hand everything appended so far to the operating system."""
        self._rows.flush()
        self._gaps.flush()

    def close(self) -> None:
        self._rows.close()
        self._gaps.close()

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()


def read_requests(folder: Path) -> Iterator[RequestRecord]:
    """The records of requests.csv in file order. A last line that was cut short is left out.

    Raises RunFolderError when the file is missing or a line before the last one cannot be read.
    """
    path = folder / REQUESTS_CSV
    try:
        with open(path, newline="", encoding="utf-8") as file:
            lines = csv.reader(file)
            header = next(lines, [])
            pending: list[str] | None = None
            for number, line in enumerate(lines, start=2):
                if pending is not None:
                    yield _record_from(path, number - 1, header, pending)
                pending = line
            if pending is not None and len(pending) == len(header) and _ends_with_newline(path):
                yield _record_from(path, -1, header, pending)
    except FileNotFoundError:
        raise RunFolderError(f"{folder} has no {REQUESTS_CSV}") from None


def _record_from(path: Path, number: int, header: Sequence[str], line: Sequence[str]) -> RequestRecord:
    try:
        return from_row(dict(zip(header, line, strict=True)))
    except (ValueError, TypeError) as error:
        raise RunFolderError(f"{path}, line {number}: {error}") from error


def _ends_with_newline(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def read_gaps(folder: Path, record: RequestRecord) -> array[float]:
    """The chunk gaps of one record in seconds; empty when none were kept."""
    gaps = array("f")
    if record.gap_offset is None or not record.gap_count:
        return gaps
    with open(folder / GAPS_F32, "rb") as file:
        file.seek(record.gap_offset * 4)
        gaps.frombytes(file.read(record.gap_count * 4))
    return gaps
