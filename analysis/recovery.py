"""How long a burst keeps hurting after it has ended.

Recovery time: from a burst's planned end to the start of the first 2 s window, by arrival, from which on the
median TTFT of every window with data stays within a threshold for 10 s. Failures count as infinitely slow,
unfinished requests as at least their age; empty windows are neutral, but the first must hold data.

    method     threshold                             used when
    baseline   max(baseline + 0.2 s, 1.5 baseline)   there are quiet requests to take a baseline from
    probes     likewise, all from probes             outside bursts there are more probes than requests
    slo        the SLO's limit on TTFT               there is no baseline
    drain      (none)                                nothing arrives after the burst, or neither is known

Probes are small requests at a steady rate, outside the load. Where the load is silent between bursts they are
the only ones to see the server come back; windows then hold probes alone, never a mixture, because a probe's
short prompt is answered sooner than the load's. Drain time is from the burst's end to the last first token of
its own requests.

By arrival, because a burst's slow requests complete long after it: indexed by completion the same burst looks
harmless at first and recovers tens of seconds late. Absolute, because 1.5 times a baseline of 20 ms is noise.

Baseline: the median TTFT of quiet requests (outside bursts and recoveries), the run's first 5 s dropped
(before the first burst: half of the time before it, where that is less).
That is circular, so it starts from the requests before the first burst (too few: from the lower quartile of
the windows outside bursts) and is repeated with the recoveries found until it no longer changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

from analysis.phases import SAME_MOMENT_S, Window, held, label_phases
from analysis.waits import WINDOW_S, Waits, after_burst, median_s, outside, waits_of, windowed_medians

HOLD_S = 10.0
DROP_FIRST_S = 5.0
LEAST_QUIET = 3
TOLERANCE_S = 0.2
TOLERANCE_RATIO = 1.5
_MOST_ROUNDS = 10

Method = Literal["baseline", "probes", "slo", "drain"]


@dataclass(frozen=True)
class Recovery:
    """What one burst did to TTFT. Times in seconds, None = unknown.

    `requests` were due in the burst; `peak_ttft_s` is the largest 2 s median from its start until the next
    burst (None with `peak_failed` when at least half of that window failed); `overshoot_s` = peak - baseline.
    `recovery_s` is None when it was not seen: then `at_least_s` says how long it lasted at the least and
    `observed_s` how long the burst's aftermath could be watched (until the next burst or the end of the
    load).
    """

    index: int
    start_s: float
    end_s: float
    requests: int
    peak_ttft_s: float | None
    peak_failed: bool
    overshoot_s: float | None
    method: Method
    threshold_s: float | None
    recovery_s: float | None
    at_least_s: float | None
    observed_s: float

    @property
    def censored(self) -> bool:
        """True when the burst had not recovered for certain while it was watched."""
        return self.recovery_s is None

    @property
    def watched_too_short(self) -> bool:
        """True when it is censored because the calm that a recovery needs had hardly room to be seen."""
        short = self.observed_s < WINDOW_S + HOLD_S - SAME_MOMENT_S
        return self.censored and self.method != "drain" and short

    @property
    def affected_until_s(self) -> float:
        """The moment until which requests count as recovering from this burst."""
        return self.end_s + (self.observed_s if self.recovery_s is None else self.recovery_s)


@dataclass(frozen=True)
class Recoveries:
    """All bursts of a run and the quiet baseline, of requests or probes, they were judged against (None when
    there was none)."""

    bursts: tuple[Recovery, ...]
    baseline_ttft_s: float | None


def recoveries(
    load: pd.DataFrame,
    bursts: Sequence[Window],
    window_s: float,
    slo_ttft_s: float | None = None,
    probes: pd.DataFrame | None = None,
) -> Recoveries:
    """The recovery of each burst. `load` is Run.load, `window_s` the length of the load, `slo_ttft_s` the
    SLO's limit, `probes` Run.probes."""
    case = _case(load, bursts, window_s, slo_ttft_s, probes)
    seen = case.witness
    base_s = _first_baseline(seen, bursts, case.until_s)
    found = _judge(case, base_s)
    for _ in range(_MOST_ROUNDS):
        phase = label_phases(seen.at_s, bursts, [row.affected_until_s for row in found])
        quiet = seen.ttft_s[(phase == "quiet") & _settled(seen.at_s, bursts)]
        before, base_s = base_s, median_s(quiet) if len(quiet) >= LEAST_QUIET else None
        found = _judge(case, base_s)
        if base_s == before:
            break
    return Recoveries(tuple(found), base_s)


@dataclass(frozen=True)
class _Case:
    """What recovery is judged by: the load's waits, and those of the `witness`, the load itself or the
    probes. `until_s`: the end of what the witness saw."""

    load: Waits
    witness: Waits
    by: Method
    bursts: Sequence[Window]
    until_s: float
    slo_ttft_s: float | None


def _case(
    load: pd.DataFrame,
    bursts: Sequence[Window],
    window_s: float,
    slo_ttft_s: float | None,
    probes: pd.DataFrame | None,
) -> _Case:
    waits = waits_of(load)
    probed = waits if probes is None else waits_of(probes)
    if probed is waits or outside(probed, bursts) <= outside(waits, bursts):
        return _Case(waits, waits, "baseline", bursts, window_s, slo_ttft_s)
    return _Case(waits, probed, "probes", bursts, max(window_s, float(probed.at_s.max())), slo_ttft_s)


def first_held_window(
    medians: np.ndarray, threshold_s: float, observed_s: float
) -> tuple[float | None, float]:
    """(recovery_s, at_least_s) from the medians of the windows after a burst's end.

    recovery_s is None when no window holds for 10 s within `observed_s`; at_least_s is then the earliest
    window that the data do not rule out. A hold that the next burst cuts short proves nothing.
    """
    hold = round(HOLD_S / WINDOW_S)
    has_data, above = ~np.isnan(medians), medians > threshold_s
    last_above = np.flatnonzero(above)
    for index in np.flatnonzero(has_data & ~above):
        if index * WINDOW_S + HOLD_S > observed_s + SAME_MOMENT_S:
            break
        if not above[index : index + hold].any():
            return float(index * WINDOW_S), float(index * WINDOW_S)
    return None, min(observed_s, float((last_above[-1] + 1) * WINDOW_S)) if len(last_above) else 0.0


def _judge(case: _Case, base_s: float | None) -> list[Recovery]:
    threshold_s = None if base_s is None else max(base_s + TOLERANCE_S, TOLERANCE_RATIO * base_s)
    method = case.by
    if threshold_s is None:
        method, threshold_s = ("drain", None) if case.slo_ttft_s is None else ("slo", case.slo_ttft_s)
    ends = [*(start_s for start_s, _ in case.bursts), case.until_s][1:]
    found = []
    for index, (window, until_s) in enumerate(zip(case.bursts, ends, strict=True)):
        during = case.load.where(held(case.load.at_s, window))
        after = after_burst(case.load, window, until_s)
        seen = after if case.witness is case.load else after_burst(case.witness, window, until_s)
        burst = _described(index, window, max(until_s, window[1]), during, after, base_s)
        if threshold_s is None or not len(seen.at_s):
            found.append(_drained(burst, during))
        else:
            medians = windowed_medians(seen, burst.end_s, burst.end_s + burst.observed_s)
            recovery_s, at_least_s = first_held_window(medians, threshold_s, burst.observed_s)
            found.append(
                replace(
                    burst,
                    method=method,
                    threshold_s=threshold_s,
                    recovery_s=recovery_s,
                    at_least_s=at_least_s,
                )
            )
    return found


def _described(
    index: int, window: Window, until_s: float, during: Waits, after: Waits, base_s: float | None
) -> Recovery:
    """The burst's size and peak, its recovery still unknown."""
    start_s, end_s = window
    medians = np.concatenate(
        [windowed_medians(during, start_s, end_s + WINDOW_S), windowed_medians(after, end_s, until_s)]
    )
    known = medians[~np.isnan(medians)]
    peak = float(known.max()) if len(known) else math.nan
    return Recovery(
        index=index,
        start_s=start_s,
        end_s=end_s,
        requests=len(during.at_s),
        peak_ttft_s=peak if math.isfinite(peak) else None,
        peak_failed=math.isinf(peak),
        overshoot_s=peak - base_s if math.isfinite(peak) and base_s is not None else None,
        method="drain",
        threshold_s=None,
        recovery_s=None,
        at_least_s=None,
        observed_s=until_s - end_s,
    )


def _drained(burst: Recovery, during: Waits) -> Recovery:
    """Drain time: from the burst's end until the last of its requests had its first token, failures left out.

    Censored when the run cancelled one that was still waiting; unknown when none was answered.
    """
    answered = np.isfinite(during.ttft_s)
    if not answered.any():
        return burst
    drain_s = max(0.0, float((during.at_s + during.ttft_s)[answered].max()) - burst.end_s)
    return replace(burst, recovery_s=None if during.unfinished.any() else drain_s, at_least_s=drain_s)


def _first_baseline(waits: Waits, bursts: Sequence[Window], window_s: float) -> float | None:
    if not bursts:
        return None
    lead = _settled(waits.at_s, bursts) & (waits.at_s < bursts[0][0] - SAME_MOMENT_S)
    if int(lead.sum()) >= LEAST_QUIET:
        return median_s(waits.ttft_s[lead])
    edges = [DROP_FIRST_S] + [edge for window in bursts for edge in window] + [window_s]
    medians = np.concatenate(
        [
            windowed_medians(waits, max(start_s, DROP_FIRST_S), end_s)
            for start_s, end_s in zip(edges[::2], edges[1::2], strict=True)
        ]
    )
    medians = medians[np.isfinite(medians)]
    return float(np.quantile(medians, 0.25)) if len(medians) else None


def _settled(at_s: np.ndarray, bursts: Sequence[Window]) -> np.ndarray:
    """Which moments are late enough in the run to take a baseline from."""
    first_s = bursts[0][0] if bursts else 0.0
    return (at_s >= DROP_FIRST_S) | ((at_s >= first_s / 2) & (at_s < first_s - SAME_MOMENT_S))


def median_recovery_s(rows: Sequence[Recovery]) -> float | None:
    """The Kaplan-Meier median of recovery times, censored ones taken into account; None when it was not
    reached."""
    steps = sorted((row.at_least_s, row.censored) for row in rows if row.at_least_s is not None)
    surviving = 1.0
    for index, (time_s, censored) in enumerate(steps):
        if not censored:
            surviving *= 1 - 1 / (len(steps) - index)
            if surviving <= 0.5 + 1e-12:
                return time_s
    return None
