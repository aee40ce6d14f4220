"""One line every few seconds while a run goes on: how far it is, what is in flight, and how it feels right
now.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

from loadgen.crew import Worker
from loadgen.valves import Spent
from runlog.folder import RunInfo
from runlog.record import COLUMNS, OUTSIDE_THE_LOAD

logger = logging.getLogger(__name__)

_FIRST_TOKEN = COLUMNS.index("first_token_at_s")
_SENT = COLUMNS.index("sent_at_s")
_OUTCOME = COLUMNS.index("outcome")
_NAME = COLUMNS.index("name")
_INPUT = COLUMNS.index("input_tokens")
_OUTPUT = COLUMNS.index("output_tokens")


class Progress:
    """Collects what came in since the last line; its TTFT is of requests that have ended."""

    def __init__(self) -> None:
        self._ttfts_s: list[float] = []
        self._outcomes: Counter[str] = Counter()
        self._tokens = 0
        self._last_s = 0.0

    def take(self, rows: Iterable[Sequence[str]]) -> None:
        """Note one batch of record rows."""
        for row in rows:
            if row[_NAME] in OUTSIDE_THE_LOAD:
                continue
            self._outcomes[row[_OUTCOME]] += 1
            self._tokens += int(row[_INPUT] or 0) + int(row[_OUTPUT] or 0)
            if row[_FIRST_TOKEN] and row[_SENT]:
                self._ttfts_s.append(float(row[_FIRST_TOKEN]) - float(row[_SENT]))

    def spent(self, sent: int) -> Spent:
        """What the safety valves look at; `sent` is the workers' own count."""
        outcomes = self._outcomes
        ended = sum(outcomes.values()) - outcomes["not_sent"]
        return Spent(sent, ended, outcomes["failed"] + outcomes["rejected"], self._tokens)

    def log_every(self, period_s: float, at_s: float, info: RunInfo, workers: Sequence[Worker]) -> None:
        """Log a line when `period_s` have passed since the last one."""
        if at_s < self._last_s + period_s:
            return
        self._last_s = at_s
        logger.info("%s", self.line(at_s, info, workers))
        self._ttfts_s.clear()

    def line(self, at_s: float, info: RunInfo, workers: Sequence[Worker]) -> str:
        """The line itself, such as `pulse  35/80 s  sent 230/520  in flight 14  failed 0  TTFT p50 45 ms`."""
        sent = sum(worker.fired for worker in workers)
        in_flight = sum(worker.in_flight for worker in workers)
        bad = ", ".join(f"{self._outcomes[kind]} {kind}" for kind in ("failed", "rejected", "cancelled"))
        ttft = f"{median(self._ttfts_s) * 1000:.0f} ms" if self._ttfts_s else "n/a"
        moment = f"{at_s:.0f}/{info.duration_s:.0f} s" if at_s <= info.duration_s else "draining"
        planned = f"/{info.counts['planned']}" if info.load == "open" else ""
        return f"{info.name}  {moment}  sent {sent}{planned}  in flight {in_flight}  {bad}  TTFT p50 {ttft}"
