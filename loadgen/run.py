"""One run as the master leads it: workers ready, slices and start moment out, records in, every arrival
accounted for.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import gevent
import numpy as np
from gevent.event import Event
from numpy.typing import NDArray

from client import clock
from loadgen import messages
from loadgen.assignment import assignment_for
from loadgen.crew import Worker
from loadgen.drain import CANCEL_GRACE_S
from loadgen.ledger import Ledger
from loadgen.muster import WorkersMissing
from loadgen.plan import AHEAD_S, SLICE_S, Plan
from loadgen.progress import Progress
from loadgen.shares import Shares

if TYPE_CHECKING:
    from loadgen.link import Link  # imports Locust, which patches sockets; this file needs no Locust

logger = logging.getLogger(__name__)

READY_LIMIT_S = 30.0
START_LEAD_S = 1.0
DONE_GRACE_S = 20.0
PROGRESS_EVERY_S = 5.0


class Run:
    """Leads one run with a mustered crew. `stop` may come from anywhere; `lead` returns when the folder is
    complete.
    """

    def __init__(self, plan: Plan, ledger: Ledger, link: Link, crew: list[Worker], user_class: str) -> None:
        self.plan = plan
        self._user_class = user_class
        self.ledger = ledger
        self.crew = crew
        self.stop_reason: str | None = None
        self._link = link
        self._shares = Shares(plan.schedule.at_s, len(crew))
        self._progress = Progress()
        self._start_ns = 0
        self._slices = plan.slice_count
        self._next_slice = 0
        self._stopped_at_s: float | None = None
        self._news = Event()

    def lead(self) -> None:
        """Carry the run out. Raises WorkersMissing when a worker is not ready in time; no load was sent."""
        try:
            self._assign()
            if self.stop_reason is None:
                self._start()
                self._wait_for_the_end()
        finally:
            self.ledger.close(self.crew, self._shares, self.stop_reason)

    def stop(self, reason: str) -> None:
        """Send no more; what is in flight may end within the drain limit."""
        if self.stop_reason is None and not self.ledger.closed:
            self.stop_reason = reason
            self._stopped_at_s = self._elapsed_s()
            if self._start_ns:
                self.ledger.note(self._stopped_at_s, "stopped", None, reason)
            logger.info(
                "stopping: %s; up to %.0f s for requests in flight", reason, self.plan.settings.drain_s
            )
            for worker in self.crew:
                self._tell(worker, messages.STOP, reason="run_stopped")
            self._news.set()

    @property
    def deserted(self) -> bool:
        """No worker of the crew can be reached any more."""
        return all(worker.out or self._link.gone(worker.client_id) for worker in self.crew)

    # --- the way through -------------------------------------------------------------------------

    def _assign(self) -> None:
        for worker in self.crew:
            assignment = assignment_for(
                self.plan, self.ledger.info.run_id, self._user_class, worker.index, len(self.crew)
            )
            self._link.tell(worker.client_id, messages.ASSIGNMENT, **assignment.as_message())
            worker.heard_ns = clock.monotonic_ns()
        while self.stop_reason is None and not all(worker.ready for worker in self.crew):
            for worker in self.crew:
                silent_s = (clock.monotonic_ns() - worker.heard_ns) / 1e9
                gone = worker.out or self._link.gone(worker.client_id)
                if gone or (not worker.ready and silent_s > READY_LIMIT_S):
                    why = "left before the start" if gone else f"was silent for {READY_LIMIT_S:.0f} s"
                    self.stop(f"{worker} {why}")
                    raise WorkersMissing(f"{worker} {why}: no load was sent. Start it anew and run again")
            self._wait_for_news(1.0)

    def _start(self) -> None:
        self._start_ns = clock.monotonic_ns() + round(START_LEAD_S * 1e9)
        self.ledger.started(clock.utc_iso(clock.wall_time_s() + START_LEAD_S), self.crew, self._shares)
        self._send_slices()
        for worker in self.crew:
            self._tell(worker, messages.START, start_ns=self._start_ns + worker.clock_offset_ns)

    def _wait_for_the_end(self) -> None:
        while not all(worker.out for worker in self.crew):
            if self._elapsed_s() > self._patience_s():
                for worker in self.crew:
                    if not worker.out:
                        self._lose(worker, "did not report the end of its work")
                return
            if self.stop_reason is None:
                self._send_slices()
            self._look_for_lost()
            self._check_valves()
            self._progress.log_every(PROGRESS_EVERY_S, self._elapsed_s(), self.ledger.info, self.crew)
            self._wait_for_news(1.0)
        self._note_early_end()

    def _patience_s(self) -> float:
        """The moment, from the start, at which a worker must have reported the end of its work."""
        end_s = self.plan.info.duration_s
        if self._stopped_at_s is not None:
            end_s = min(end_s, self._stopped_at_s)
        return end_s + self.plan.settings.drain_s + CANCEL_GRACE_S + DONE_GRACE_S

    def _send_slices(self) -> None:
        """Send every slice that is due to be known by now; the last one says so."""
        while self._next_slice < self._slices and self._next_slice * SLICE_S < self._elapsed_s() + AHEAD_S:
            number = self._next_slice
            for worker in self.crew:
                if not worker.done:  # one that seems lost may only be slow: what is sent it will find
                    mine = self._shares.of(worker.index, number * SLICE_S, (number + 1) * SLICE_S)
                    self._send_arrivals(worker, number, mine, last=number == self._slices - 1)
            self._next_slice += 1

    def _send_arrivals(
        self,
        worker: Worker,
        number: int,
        arrivals: NDArray[np.int64],
        *,
        last: bool,
        segment: int | None = None,
    ) -> None:
        limit = self.plan.settings.valves.max_requests
        allowed = arrivals if limit is None else arrivals[arrivals < limit]
        part = self.plan.slice_part(number, allowed, segment)
        self._tell(worker, messages.SLICE, number=number, packed=part.packed, sha256=part.sha256, last=last)

    # --- what may go wrong -----------------------------------------------------------------------

    def _look_for_lost(self) -> None:
        for worker in self.crew:
            if not worker.out and self._link.gone(worker.client_id):
                self._lose(worker, "was lost")

    def _lose(self, worker: Worker, why: str) -> None:
        worker.lost_at_s = self._elapsed_s()
        left = [one for one in self.crew if one.lost_at_s is None]
        text = f"{worker} {why}; the run goes on with {len(left)} of {len(self.crew)} workers"
        logger.error("%s", text)
        self.ledger.note(worker.lost_at_s, "worker_lost", worker, text)
        if self.plan.settings.reassign and self.stop_reason is None:
            self._hand_over(worker, left)

    def _welcome_back(self, worker: Worker) -> None:
        """It was only silent. What it had to fire was never given to others, so it goes on."""
        worker.lost_at_s = None
        text = f"{worker} is back"
        logger.warning("%s", text)
        self.ledger.note(self._elapsed_s(), "worker_back", worker, text)

    def _hand_over(self, lost: Worker, left: list[Worker]) -> None:
        """Amend the plan: what the lost worker still had to fire goes round the others."""
        now_s = self._elapsed_s()
        moved = self._shares.hand_over(lost.index, [one.index for one in left if not one.done], now_s)
        if not len(moved):
            return
        segment = self.ledger.amend(float(self.plan.schedule.at_s[moved[0]]), "reassign")
        sent_until_s = self._next_slice * SLICE_S
        for worker in left:
            mine = np.intersect1d(moved, self._shares.of(worker.index, now_s), assume_unique=True)
            due = mine[self.plan.schedule.at_s[mine] < sent_until_s]
            last = self._next_slice >= self._slices
            self._send_arrivals(worker, -segment, due, last=last, segment=segment)
        text = f"{len(moved)} requests of worker {lost.index} are sent by the others from {now_s:.1f} s on"
        logger.warning("%s", text)
        self.ledger.note(now_s, "amendment", lost, text)

    def _check_valves(self) -> None:
        if self.stop_reason is None:
            spent = self._progress.spent(sum(worker.fired for worker in self.crew))
            if why := self.plan.settings.valves.tripped(spent):
                self.stop(why)

    def _note_early_end(self) -> None:
        limit = self.plan.settings.valves.max_requests
        if self.stop_reason is None and limit is not None and limit < len(self.plan.schedule):
            self.stop_reason = f"safety valve: --max-requests {limit} reached"

    # --- messages --------------------------------------------------------------------------------

    def take_ready(self, worker: Worker, data: dict[str, Any]) -> None:
        worker.ready, worker.heard_ns = True, clock.monotonic_ns()
        if data["note"]:
            logger.info("%s: %s", worker, data["note"])
        self._news.set()

    def take_records(self, worker: Worker, data: dict[str, Any]) -> None:
        worker.heard_ns = clock.monotonic_ns()
        if self.ledger.closed:
            return  # not acknowledged: the worker's journal keeps them
        try:
            new = self.ledger.take(worker, data)
        except OSError as error:
            self.stop(f"the run folder cannot be written: {error.strerror}")
            return
        if worker.lost_at_s is not None and not self.plan.settings.reassign:
            self._welcome_back(worker)
        if new:
            worker.fired, worker.in_flight = data["fired"], data["in_flight"]
            self._progress.take(data["rows"])
        self._tell(worker, messages.ACKNOWLEDGED, batch=data["batch"])

    def take_done(self, worker: Worker, data: dict[str, Any]) -> None:
        if self.ledger.closed:
            return  # the run went on without it
        worker.own_error = data
        self._take_last_seconds(worker, data)
        worker.in_flight = 0
        if data["left"] and not worker.out:
            self._lose(worker, f"left ({data['left']})")
        worker.done = True
        self._news.set()

    def _take_last_seconds(self, worker: Worker, data: dict[str, Any]) -> None:
        try:
            self.ledger.take_seconds(worker, data.get("seconds", ()))
        except OSError as error:
            self.stop(f"the run folder cannot be written: {error.strerror}")

    def _tell(self, worker: Worker, message: str, /, **data: Any) -> None:
        self._link.tell(worker.client_id, message, run_id=self.ledger.info.run_id, **data)

    def _elapsed_s(self) -> float:
        """Seconds since the start moment; 0 before it is set or reached."""
        return max(clock.monotonic_ns() - self._start_ns, 0) / 1e9 if self._start_ns else 0.0

    def _wait_for_news(self, limit_s: float) -> None:
        self._news.clear()
        self._news.wait(limit_s)
        gevent.sleep(0)
