"""The arrivals of a schedule as records "not sent", for a run whose master did not live to write them."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from runlog.folder import SCHEDULE_CSV, RunFolderError, RunInfo
from runlog.record import RequestRecord


def never_sent(
    folder: Path, info: RunInfo, with_journal: Collection[int], lost: Collection[int]
) -> Iterator[RequestRecord]:
    """A record "not sent" for every arrival of schedule.csv, none for a run without one.

    Arrival k was worker k mod n's. `with_journal` are the workers whose journal was found; where it was not,
    the record says so. Those of `lost` workers were lost with them, the others when the run stopped. Raises
    RunFolderError for a schedule that cannot be read.
    """
    path = folder / SCHEDULE_CSV
    if not path.exists():
        return
    with open(path, newline="", encoding="utf-8") as file:
        rows = csv.DictReader(line for line in file if line.endswith("\n"))
        try:
            for row in rows:
                yield _record(row, info, with_journal, lost)
        except (ValueError, TypeError, KeyError, csv.Error) as error:
            raise RunFolderError(f"{path}, line {rows.line_num}: {error!r}") from error


def _record(
    row: Mapping[str, str], info: RunInfo, with_journal: Collection[int], lost: Collection[int]
) -> RequestRecord:
    arrival = int(row["arrival"])
    worker = arrival % len(info.workers) if info.workers else None
    found = worker is None or worker in with_journal
    return RequestRecord(
        arrival=arrival,
        segment=int(row["segment"]),
        request_id=f"{info.run_id}-{arrival}",
        worker=worker,
        name=row["name"],
        tenant=row["tenant"] or None,
        session=row["session"] or None,
        scheduled_at_s=float(row["at_s"]),
        outcome="not_sent",
        failure_class="worker_lost" if worker in lost else "run_stopped",
        error=None if found else f"no record came in, and the journal of worker {worker} was not found",
        asked_input_tokens=int(row["asked_input_tokens"]),
        asked_output_tokens=int(row["asked_output_tokens"]),
    )
