"""How long the server's own queue took to drain after a burst, beside the recovery that clients saw.

Queue drain: from a burst's end to the first sample of server_metrics.csv from which the queue is empty for
10 s: no request waits, but for one (or 5 % of the most that waited), since in quiet times too a request waits
for the step under way. Clients and server should agree within two windows of recovery (4 s). Where they
don't, requests waited somewhere that the server does not count, or it was busy without a queue: a finding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.load import Run
from analysis.phases import SAME_MOMENT_S, Window
from analysis.recovery import HOLD_S, Recovery
from analysis.waits import WINDOW_S
from runlog.server_samples import SERVER_METRICS_CSV, read_samples

AGREE_S = 2 * WINDOW_S
EMPTY_REQUESTS = 1
EMPTY_OF_PEAK = 0.05


@dataclass(frozen=True)
class QueueDrain:
    """Seconds after a burst's end; `drain_s` None when the queue was not seen empty for long enough before
    the next burst or the last sample: it took `at_least_s`."""

    drain_s: float | None
    at_least_s: float


def waiting_of(run: Run, notices: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """(at_s, requests waiting) of the server's samples, both empty where it said nothing; a file that cannot
    be read is added to `notices`."""
    try:
        rows = [(row.at_s, row.waiting) for row in read_samples(run.folder) if row.waiting is not None]
    except ValueError as error:
        notices.append(f"{SERVER_METRICS_CSV} cannot be read and is left out: {error}")
        rows = []
    samples = np.array(rows, dtype=float).reshape(-1, 2)
    return samples[:, 0], samples[:, 1]


def queue_drains(at_s: np.ndarray, waiting: np.ndarray, bursts: Sequence[Window]) -> list[QueueDrain | None]:
    """The drain of each burst; None where no sample lies between its end and the next burst."""
    next_s = [*(start_s for start_s, _ in bursts), np.inf][1:]
    return [_drain(at_s, waiting, *row) for row in zip(bursts, next_s, strict=True)]


def _drain(at_s: np.ndarray, waiting: np.ndarray, burst: Window, until_s: float) -> QueueDrain | None:
    start_s, end_s = burst
    after = (at_s >= end_s - SAME_MOMENT_S) & (at_s < until_s)
    if not after.any():
        return None
    peak = waiting[(at_s >= start_s) & (at_s < until_s)].max()
    empty = max(EMPTY_REQUESTS, EMPTY_OF_PEAK * peak)
    times, queued = at_s[after] - end_s, waiting[after] > empty
    seen_s = float(times[-1]) if np.isinf(until_s) else until_s - end_s
    begins = int(np.flatnonzero(queued)[-1]) + 1 if queued.any() else 0
    for index in np.flatnonzero(~queued):
        held = times <= times[index] + HOLD_S + SAME_MOMENT_S
        if times[index] + HOLD_S > seen_s + SAME_MOMENT_S:
            break
        if not queued[index:][held[index:]].any():
            before = waiting[at_s < end_s - SAME_MOMENT_S]
            empty_at_end = index == 0 and len(before) > 0 and before[-1] <= empty
            drain_s = 0.0 if empty_at_end else float(times[index])
            return QueueDrain(drain_s, drain_s)
    return QueueDrain(None, float(times[begins]) if begins < len(times) else seen_s)


def disagrees(burst: Recovery, drain: QueueDrain | None) -> bool | None:
    """Whether clients and server tell times of recovery that are more than 4 s apart; None when one is
    unknown, censored before it could show, or held up by failures, which wait in no queue."""
    if drain is None or burst.method == "drain" or burst.at_least_s is None or burst.peak_failed:
        return None
    if burst.recovery_s is not None and drain.drain_s is not None:
        return abs(burst.recovery_s - drain.drain_s) > AGREE_S + SAME_MOMENT_S
    if burst.recovery_s is None and drain.drain_s is not None:
        return True if burst.at_least_s - drain.drain_s > AGREE_S else None
    if burst.recovery_s is not None:
        return True if drain.at_least_s - burst.recovery_s > AGREE_S else None
    return None


def queue_findings(bursts: Sequence[Recovery], drains: Sequence[QueueDrain | None]) -> list[str]:
    """One sentence for the bursts after which TTFT came back later than the queue was empty, and one for
    those after which it came back sooner."""
    late: list[str] = []
    soon: list[str] = []
    for burst, drain in zip(bursts, drains, strict=True):
        if drain is None or not disagrees(burst, drain):
            continue
        seen_s = burst.at_least_s if burst.recovery_s is None else burst.recovery_s
        queue_s = drain.at_least_s if drain.drain_s is None else drain.drain_s
        ttft, queue = "> " * (burst.recovery_s is None), "> " * (drain.drain_s is None)
        words = (
            f"burst {burst.index + 1}: TTFT {ttft}{seen_s:.1f} s, queue {queue}{queue_s:.1f} s after its end"
        )
        (late if (seen_s or 0.0) > queue_s else soon).append(words)
    said = []
    if late:
        said.append(
            f"recovery: in {len(late)} of {len(bursts)} bursts TTFT was back more than {AGREE_S:g} s later "
            f"than the server's queue was empty ({late[0]}): requests waited outside the queue that the "
            f"server counts, in the client, a proxy or the running batch"
        )
    if soon:
        said.append(
            f"recovery: in {len(soon)} of {len(bursts)} bursts the server's queue was empty more than "
            f"{AGREE_S:g} s later than TTFT was back ({soon[0]}): others use this server, or its policy lets "
            f"new requests pass waiting ones"
        )
    return said
