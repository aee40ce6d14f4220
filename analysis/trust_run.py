"""Were our own machines up to it, and how did the run end? Findings for the questions of validity.CHECKS."""

from __future__ import annotations

import math

from analysis.burstiness import counts_per_window
from analysis.client_bound import MOST_CPU_RATIO, bound_seconds, observed_s, told
from analysis.lumps import MOST_TINY_GAPS_RATIO
from analysis.numbers import percent
from analysis.own_error import worker_loads
from analysis.trust import Evidence, Finding, rounded_down

MOST_OWN_FAILURES_RATIO = 0.001
MOST_CANCELLED_RATIO = 0.01
MOST_CACHED_RATIO = 0.01
"""Of the prompt tokens: from here on a run is no fair pair for one that met a cold cache."""
CLOCK_OF_PEAK_GAP = 0.1
LEAST_CLOCK_LIMIT_S = 0.001
MOST_TOLD = 3


def cpu(evidence: Evidence) -> Finding:
    """CPU use of the busiest worker in its busiest second, as a share of one core."""
    workers = worker_loads(evidence.run)
    peak = max((row.cpu_peak_ratio for row in workers if row.cpu_peak_ratio is not None), default=None)
    if peak is None:
        return Finding(None, MOST_CPU_RATIO, "the workers' CPU was not measured")
    detail = f"the busiest worker used {rounded_down(peak)} of a core in its busiest second"
    if peak > MOST_CPU_RATIO:
        needed = max(math.ceil(len(workers) * peak / MOST_CPU_RATIO), len(workers) + 1)
        detail += f"; use at least {needed} workers instead of {len(workers)}"
    return Finding(peak, MOST_CPU_RATIO, detail)


def client_bound(evidence: Evidence) -> Finding:
    """Seconds in which a worker was the bottleneck: by CPU, event loop, read lag or send lag."""
    run, lags = evidence.run, evidence.run.load[["read_lag_s", "send_lag_s"]]
    if run.client_load.empty and not lags.notna().to_numpy().any():
        return Finding(None, 0, "the load generator did not say how busy or how late it was")
    return Finding(bound_seconds(evidence.bound), 0, told(evidence.bound, observed_s(run)))


def lumped(evidence: Evidence) -> Finding:
    """Chunk gaps below 0.1 ms / all, and who made them."""
    return Finding(evidence.lumps.tiny_gap_ratio, MOST_TINY_GAPS_RATIO, evidence.lumps.told)


def cached_prompts(evidence: Evidence) -> Finding:
    """Prompt tokens that came from the server's prefix cache / all, over the successes that say so."""
    load = evidence.run.load
    told = (load["outcome"] == "succeeded") & load["cached_tokens"].notna()
    done = load.loc[told, ["input_tokens", "cached_tokens"]]
    tokens = float(done["input_tokens"].sum())
    if not tokens:
        return Finding(None, MOST_CACHED_RATIO, "the server does not say how many prompt tokens were cached")
    ratio = float(done["cached_tokens"].sum()) / tokens
    return Finding(
        ratio, MOST_CACHED_RATIO, f"{percent(ratio)} of the prompt tokens came from the server's prefix cache"
    )


def own_failures(evidence: Evidence) -> Finding:
    """Requests that failed through our own machine / all; those of a lost worker are another check's."""
    load = evidence.run.load
    failed = (load["outcome"] == "failed") & (load["failure_class"] != "worker_lost")
    own = failed & (load["whose"] == "client")
    classes = ", ".join(sorted(load.loc[own, "failure_class"].unique()))
    named = f" ({classes})" if classes else ""
    detail = f"{int(own.sum())} requests failed through our own machine{named}"
    return Finding(int(own.sum()) / len(load) if len(load) else None, MOST_OWN_FAILURES_RATIO, detail)


def clocks(evidence: Evidence) -> Finding:
    """The least sure worker clock against a tenth of the gap between requests at the peak rate."""
    info = evidence.run.info
    known = [row.clock_uncertainty_s for row in info.workers if row.clock_uncertainty_s is not None]
    if len(info.workers) < 2:
        return Finding(None, None, "one worker, one clock")
    if not known:
        return Finding(None, None, "the workers' clocks were not compared")
    peak_rps = _peak_rps(evidence)
    limit_s = max(CLOCK_OF_PEAK_GAP / peak_rps if peak_rps > 0 else 0.0, LEAST_CLOCK_LIMIT_S)
    detail = f"the workers' clocks agree within {max(known) * 1000:.2f} ms (limit {limit_s * 1000:.2f} ms)"
    return Finding(max(known), limit_s, detail)


def cancelled(evidence: Evidence) -> Finding:
    """Requests that the run cancelled / sent."""
    outcome = evidence.run.load["outcome"]
    sent, cut_off = int((outcome != "not_sent").sum()), int((outcome == "cancelled").sum())
    detail = f"{cut_off} requests were still in flight when the run cancelled them"
    return Finding(cut_off / sent if sent else None, MOST_CANCELLED_RATIO, detail)


def ended(evidence: Evidence) -> Finding:
    """0 when the run ended as planned, 1 when it was stopped, broke off or is still going on."""
    info = evidence.run.info
    if info.state == "finished":
        return Finding(0, 0, "the run ended as planned")
    if info.state == "running":
        return Finding(1, 0, "the run had not ended when it was read, or it broke off")
    why = f" ({info.stop_reason})" if info.stop_reason else ""
    return Finding(1, 0, f"stopped after {evidence.run.window_s:.1f} of {info.duration_s:.1f} s{why}")


def workers_lost(evidence: Evidence) -> Finding:
    """How many workers were lost, by run.json or, when the run broke off before it was written,
    events.csv."""
    lost, count = lost_at_s(evidence), len(evidence.run.info.workers)
    if not lost:
        return Finding(0, 0, "no worker was lost")
    in_order = sorted(lost.items(), key=lambda row: (row[1], row[0]))
    if count < len(lost):
        when = ", ".join(f"worker {index} at {at_s:.1f} s" for index, at_s in in_order)
        return Finding(len(lost), 0, f"workers were lost: {when}")
    parts = [
        f"{'ran with ' if left == 1 else ''}{count - left} of {count} workers from {at_s:.1f} s on "
        f"(worker {index} was lost)"
        for left, (index, at_s) in enumerate(in_order, start=1)
    ]
    return Finding(len(lost), 0, ", ".join(parts))


def lost_at_s(evidence: Evidence) -> dict[int, float]:
    """Lost worker -> when."""
    events, workers = evidence.run.events, evidence.run.info.workers
    changes = events[events["kind"].isin(("worker_lost", "worker_back"))].drop_duplicates(
        "worker", keep="last"
    )
    rows = changes[changes["kind"] == "worker_lost"]
    lost = dict(zip(rows["worker"].fillna(-1).astype(int), rows["at_s"].fillna(0.0), strict=True))
    return lost | {row.index: row.lost_at_s for row in workers if row.lost_at_s is not None}


def amended(evidence: Evidence) -> Finding:
    """How many times the plan was amended during the run."""
    events = evidence.run.events
    rows = events[events["kind"] == "amendment"]
    if not len(rows):
        return Finding(0, 0, "the plan stayed as it was")
    told = [
        f"{text} at {at_s:.1f} s" if text else f"at {at_s:.1f} s"
        for at_s, text in zip(rows["at_s"], rows["text"].fillna(""), strict=True)
    ][:MOST_TOLD]
    more = f"; and {len(rows) - MOST_TOLD} more" if len(rows) > MOST_TOLD else ""
    times = "once" if len(rows) == 1 else f"{len(rows)} times"
    return Finding(
        len(rows), 0, f"the plan was amended {times} while the run went on: {'; '.join(told)}{more}"
    )


def _peak_rps(evidence: Evidence) -> float:
    """The highest rate that was planned; in a closed loop, which plans none, the fullest second of sends."""
    run = evidence.run
    if not run.closed:
        return max((point[1] for point in run.info.rate_curve), default=0.0)
    counts = counts_per_window(run.load["sent_at_s"].dropna().to_numpy(), 1.0, math.ceil(run.info.duration_s))
    return float(counts.max())
