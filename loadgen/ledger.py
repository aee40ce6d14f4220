"""The run folder while a run goes on: opened with the plan, filled as records come in, closed with every
count.

planned = sent + not sent          sent = succeeded + failed + rejected + cancelled
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gevent

from client import clock
from loadgen.crew import Worker
from loadgen.plan import Plan
from loadgen.recorder import RecordKeeper
from loadgen.shares import Shares
from loadgen.watch import Second
from runlog.client_load import ClientLoadLog
from runlog.folder import SCHEDULE_CSV, EventLog, RunFolderError, RunInfo, create_folder, write_run_info
from runlog.journal import JOURNAL_NAMES, JOURNALS, read_journal
from runlog.record import OUTCOMES, RequestRecord


class Ledger:
    """One run's folder. `info.run_id` is the folder's name: the plan's, made unique."""

    def __init__(self, plan: Plan, runs_dir: Path) -> None:
        """Make the folder with schedule.csv and run.json. Raises RunFolderError when it cannot be made."""
        self._schedule = plan.schedule
        self.folder, run_id = create_folder(runs_dir, plan.info.run_id)
        self.info = replace(plan.info, run_id=run_id)
        (self.folder / SCHEDULE_CSV).write_bytes(plan.schedule.to_csv_bytes())
        write_run_info(self.folder, self.info)
        self._keeper = RecordKeeper(self.folder, len(plan.schedule))
        self._events = EventLog(self.folder)
        self._client_load = ClientLoadLog(self.folder)
        self.closed = False

    def started(self, started_at: str, crew: Sequence[Worker], shares: Shares) -> None:
        """Note the wall time of the start moment and who takes part."""
        self.info = replace(self.info, started_at=started_at)
        write_run_info(self.folder, self._counted(crew, shares))

    def take(self, worker: Worker, batch: dict[str, Any]) -> bool:
        """Write one batch of records; False when it is written already or comes after the end."""
        new = not self.closed and self._keeper.take(worker.index, batch)
        if new:
            self.take_seconds(worker, batch.get("seconds", ()))
        return new

    def take_seconds(self, worker: Worker, seconds: Sequence[Second]) -> None:
        """Write how busy a worker was in some seconds of the run."""
        if not self.closed:
            self._client_load.add(worker.index, seconds)

    def note(self, at_s: float, kind: str, worker: Worker | None, text: str) -> None:
        """One line in events.csv."""
        self._events.add(at_s, kind, None if worker is None else worker.index, text)

    def amend(self, start_s: float, author: str) -> int:
        """Add a segment that changes the plan from `start_s` on; returns its id."""
        segment = len(self.info.segments)
        row = {"id": segment, "start_s": start_s, "end_s": self.info.duration_s, "author": author}
        self.info = replace(self.info, segments=[*self.info.segments, row])
        return segment

    def close(self, crew: Sequence[Worker], shares: Shares, stop_reason: str | None) -> None:
        """Take what lost workers left in journals, give every other arrival a record, write run.json."""
        self.closed = True
        self._take_journals(crew)
        for k in self._keeper.missing():
            self._keeper.add(self._never_sent(k, crew, shares, stop_reason))
            if k % 1000 == 999:
                gevent.sleep(0)
        if self._keeper.dropped:
            text = f"{self._keeper.dropped} second records of reassigned requests were left out"
            self._events.add(self.info.duration_s, "notice", None, text)
        self._keeper.close()
        self._events.close()
        final = replace(
            self._counted(crew, shares),
            state="finished" if stop_reason is None else "stopped",
            stop_reason=stop_reason,
            ended_at=clock.utc_iso(),
        )
        write_run_info(self.folder, final)

    def _take_journals(self, crew: Sequence[Worker]) -> None:
        """The journals of lost workers, where they lie on this machine, hold what did not reach us."""
        lost = {worker.index for worker in crew if worker.lost_at_s is not None}
        known, self._keeper.dropped = self._keeper.dropped, 0
        for path in sorted((self.folder / JOURNALS).glob(JOURNAL_NAMES)) if lost else ():
            try:
                header, rows = read_journal(path)
                for row, gaps in rows if header.worker in lost else ():
                    self._keeper.add_row(row, gaps)
            except RunFolderError as error:
                self._events.add(self.info.duration_s, "notice", None, str(error))
        self._keeper.dropped = known  # a journal repeats what came in before

    def _never_sent(
        self, k: int, crew: Sequence[Worker], shares: Shares, stop_reason: str | None
    ) -> RequestRecord:
        worker = next((worker for worker in crew if worker.index == shares.owner(k)), None)
        why = "record_lost" if stop_reason is None else "run_stopped"
        if worker is not None and worker.lost_at_s is not None:
            why = "worker_lost"
        schedule = self._schedule
        return RequestRecord(
            arrival=k,
            segment=int(schedule.segment[k]),
            request_id=f"{self.info.run_id}-{k}",
            worker=None if worker is None else worker.index,
            name=schedule.name[k],
            scheduled_at_s=float(schedule.at_s[k]),
            outcome="not_sent",
            failure_class=why,
            asked_input_tokens=int(schedule.asked_input_tokens[k]),
            asked_output_tokens=int(schedule.asked_output_tokens[k]),
        )

    def _counted(self, crew: Sequence[Worker], shares: Shares) -> RunInfo:
        counts = self._keeper.counts
        return replace(
            self.info,
            counts={
                "planned": len(self._schedule),
                "kept": int(self._keeper.kept.sum()),
                "sent": sum(counts.values()) - counts["not_sent"],
                **{outcome: counts[outcome] for outcome in OUTCOMES},
            },
            workers=[
                worker.info(
                    planned=len(shares.of(worker.index)), kept=self._keeper.kept_by_worker[worker.index]
                )
                for worker in crew
            ],
        )
