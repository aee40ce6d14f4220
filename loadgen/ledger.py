"""The run folder while a run goes on: opened with the plan, filled as records come in, closed with every
count.

planned = sent + not sent          sent = succeeded + failed + rejected + cancelled
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from client import clock
from loadgen.crew import Worker
from loadgen.plan import Plan
from loadgen.recorder import RecordKeeper
from runlog.folder import SCHEDULE_CSV, EventLog, RunInfo, create_folder, write_run_info
from runlog.record import OUTCOMES, RequestRecord


class Ledger:
    """One run's folder. `plan.info.run_id` is the folder's name, made unique."""

    def __init__(self, plan: Plan, runs_dir: Path) -> None:
        """Make the folder with schedule.csv and run.json. Raises RunFolderError when it cannot be made."""
        self.folder, run_id = create_folder(runs_dir, plan.info.run_id)
        self.plan = replace(plan, info=replace(plan.info, run_id=run_id))
        (self.folder / SCHEDULE_CSV).write_bytes(plan.schedule.to_csv_bytes())
        write_run_info(self.folder, self.plan.info)
        self._keeper = RecordKeeper(self.folder, len(plan.schedule))
        self._events = EventLog(self.folder)
        self._closed = False

    @property
    def info(self) -> RunInfo:
        return self.plan.info

    def started(self, started_at: str, workers: Sequence[Worker]) -> None:
        """Note the wall time of the start moment and who takes part."""
        self.plan = replace(self.plan, info=replace(self.info, started_at=started_at))
        write_run_info(self.folder, self._info(workers))

    def take(self, worker: Worker, batch: dict[str, Any]) -> bool:
        """Write one batch of records; False when it is written already or comes after the end."""
        return not self._closed and self._keeper.take(worker.index, batch)

    def note(self, at_s: float, kind: str, worker: Worker | None, text: str) -> None:
        """One line in events.csv."""
        self._events.add(at_s, kind, None if worker is None else worker.index, text)

    def close(self, workers: Sequence[Worker], stop_reason: str | None) -> None:
        """Give every arrival without a record one as not sent, and write the final run.json."""
        self._closed = True
        for k in self._keeper.missing():
            self._keeper.add(self._never_sent(k, workers))
        self._keeper.close()
        self._events.close()
        final = replace(
            self._info(workers),
            state="finished" if stop_reason is None else "stopped",
            stop_reason=stop_reason,
            ended_at=clock.utc_iso(),
        )
        write_run_info(self.folder, final)

    def _never_sent(self, k: int, workers: Sequence[Worker]) -> RequestRecord:
        worker = workers[k % len(workers)] if workers else None
        lost = worker is not None and worker.lost_at_s is not None
        schedule = self.plan.schedule
        return RequestRecord(
            arrival=k,
            request_id=f"{self.info.run_id}-{k}",
            worker=None if worker is None else worker.index,
            name=schedule.name[k],
            scheduled_at_s=float(schedule.at_s[k]),
            outcome="not_sent",
            failure_class="worker_lost" if lost else "run_stopped",
            asked_input_tokens=int(schedule.asked_input_tokens[k]),
            asked_output_tokens=int(schedule.asked_output_tokens[k]),
        )

    def _info(self, workers: Sequence[Worker]) -> RunInfo:
        counts = self._keeper.counts
        planned = len(self.plan.schedule)
        return replace(
            self.info,
            counts={
                "planned": planned,
                "kept": int((self._keeper.kept > 0).sum()),
                "sent": sum(counts.values()) - counts["not_sent"],
                **{outcome: counts[outcome] for outcome in OUTCOMES},
            },
            workers=[
                worker.info(
                    planned=len(range(worker.index, planned, len(workers))),
                    kept=self._keeper.kept_by_worker[worker.index],
                )
                for worker in workers
            ],
        )
