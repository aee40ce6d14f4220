"""Run -> Facts: gathers the evidence of every cause, and finds the requests that show it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis.client_bound import bound_seconds, observed_s
from analysis.facts import (
    AnswerFacts,
    ClientFacts,
    ConnectFacts,
    Contrast,
    Explained,
    Facts,
    LossFacts,
    PauseFacts,
    PromptFacts,
    QueueFacts,
    StepFacts,
)
from analysis.harm import Harm, harm
from analysis.lengths import lengths
from analysis.load import Run
from analysis.metrics import exact_quantile
from analysis.pauses import Pauses, pauses
from analysis.server_said import ServerSamples
from analysis.slo import Judged, Slo
from analysis.time_parts import HALF, TimeParts, time_parts
from analysis.trust import ON_TIME_S, Evidence
from analysis.users import spans

CONNECTING_SHARE = 0.2
CALM_QUARTER, CROWDED_QUARTER = 0.25, 0.75
FEW, MANY = 0.05, 0.95
LEAST_IN_PART = 3
CLUSTER_OF_WINDOW = 0.1
LEAST_CLUSTER_S = 5.0
LEAST_FAILURES = 3
STALE = "stale_connection"


def facts_of(evidence: Evidence, phase: np.ndarray, slo: Slo | None, joint: Judged | None) -> Facts:
    """The evidence of one run. `phase`: of each request of its load; `joint`: slo.judge by all limits."""
    run = evidence.run
    load = run.load
    samples = ServerSamples(run.server_metrics)
    parts = time_parts(run, samples)
    stood = pauses(run)
    found = harm(run, parts, slo, joint)
    masks = _masks(evidence, parts, stood, found)
    prompts_late, queued = masks["prefill"] & found.late_first, masks["queue"]
    waited_s = parts.waited_until_first_s - parts.alone_s
    explained = {key: _explained(mask & found.harmed, found) for key, mask in masks.items()}
    by_none = found.harmed & ~np.any(list(masks.values()), axis=0)
    limits = [row.limit_s for row in slo.attained_by if row.metric.key == "tpot_s"] if slo else []
    return Facts(
        judged_by=found.judged_by,
        harmed=found.requests,
        of=found.of,
        explained=explained,
        unexplained=_explained(by_none, found),
        client=_client(evidence),
        connect=_connect(load),
        contrast=_contrast(run, phase),
        prompts=PromptFacts(
            input_p50_tokens=_median(load["input_tokens"]),
            counted=bool((load["tokens_from"] == "usage").any()),
            token_s=parts.prompt_token_s,
            tokens_per_s=parts.prompt_tokens_per_s,
            alone_s=_median(parts.alone_s[prompts_late]),
            alone_ratio=_median(parts.alone_s[prompts_late] / parts.waited_until_first_s[prompts_late]),
            busy_ratio=_median(parts.busy_ratio[prompts_late]),
            others_ratio=_median(parts.others_ratio[masks["prefill"] & found.slow_steps]),
        ),
        steps=_steps(load, parts, min(limits, default=None)),
        queue=QueueFacts(
            waited_p50_s=_median(waited_s[queued]),
            memory_waited_p50_s=_median(waited_s[masks["kv_cache"] & found.late_first]),
            busy_ratio=_median(parts.busy_ratio[queued]),
            awaiting_peak=_awaiting_peak(load, parts),
        ),
        losses=_losses(run, phase),
        pauses=PauseFacts(stood.freezes, int(stood.paused.sum()), stood.longest_s),
        answers=_answers(evidence),
        server=samples.said(),
    )


def _masks(evidence: Evidence, parts: TimeParts, stood: Pauses, found: Harm) -> dict[str, np.ndarray]:
    """Cause -> the requests of the load that show its evidence."""
    load = evidence.run.load
    late, slow = found.late_first, found.slow_steps
    frozen = _overlaps(load, stood.freezes)
    moved = ~frozen
    failed = load["outcome"].isin(("failed",)) & load["whose"].isin(("server", "network"))
    again = (load["attempts"] > 1).fillna(False) | (load["failure_class"] == STALE)
    total_s = load["ttft_from_schedule_s"].fillna(load["ttft_s"] + load["connect_s"].fillna(0.0))
    connecting = (load["connect_s"] / total_s >= CONNECTING_SHARE).fillna(False)
    masks: dict[str, Any] = {
        "client": _client_late(evidence),
        "connecting": connecting,
        "freeze": frozen,
        "rejections": load["outcome"] == "rejected",
        "failures": failed & (load["failure_class"] != STALE),
        "kv_cache": moved & ((late & (parts.first_reason == "memory")) | (slow & stood.paused)),
        "queue": moved & late & (parts.first_reason == "slots"),
        "prefill": moved
        & ((late & (parts.first_reason == "prompts")) | (slow & (parts.step_reason == "prompts"))),
        "decode": moved & slow & (parts.step_reason == "steps") & ~stood.paused,
        "stale": again,
    }
    return {key: np.asarray(mask, dtype=bool) for key, mask in masks.items()}


def _explained(mask: np.ndarray, found: Harm) -> Explained:
    n = int(mask.sum())
    return Explained(n, n / found.requests if found.requests else None)


def _client_late(evidence: Evidence) -> np.ndarray:
    """Requests sent late, or under way while their worker was the bottleneck."""
    load = evidence.run.load
    late: np.ndarray = (load["send_lag_s"] > ON_TIME_S).to_numpy(dtype=bool, copy=True)
    sent_s, ended_s = (load[name].to_numpy(dtype=float) for name in ("sent_at_s", "ended_at_s"))
    worker = load["worker"].to_numpy(dtype=float, na_value=np.nan)
    for row in evidence.bound:
        mine = np.isnan(worker) if row.worker is None else worker == row.worker
        late |= mine & (sent_s < row.end_s) & (ended_s > row.start_s)
    return late | (load["whose"] == "client").to_numpy(dtype=bool)


def _overlaps(load: pd.DataFrame, windows: tuple[tuple[float, float], ...]) -> np.ndarray:
    sent_s, ended_s = (load[name].to_numpy(dtype=float) for name in ("sent_at_s", "ended_at_s"))
    found = np.zeros(len(load), dtype=bool)
    for start_s, end_s in windows:
        found |= (sent_s < end_s) & (ended_s > start_s)
    return found


def _client(evidence: Evidence) -> ClientFacts:
    lags_s = evidence.lags_s
    busy = [row.cpu_ratio for row in evidence.bound if row.cpu_ratio is not None]
    busy += [row.cpu_peak_ratio for row in evidence.run.info.workers if row.cpu_peak_ratio is not None]
    return ClientFacts(
        send_lag_p50_s=_known(exact_quantile(lags_s, 0.5)),
        send_lag_p99_s=_known(exact_quantile(lags_s, 0.99)),
        late_limit_s=evidence.lag_limit_s,
        bound_s=bound_seconds(evidence.bound),
        of_s=observed_s(evidence.run),
        cpu_peak_ratio=max(busy, default=None),
    )


def _connect(load: pd.DataFrame) -> ConnectFacts:
    done = load.loc[load["outcome"] == "succeeded", ["ttft_from_schedule_s", "ttft_s", "connect_s"]]
    new_s = np.sort(load.loc[load["connection"] == "new", "connect_s"].dropna().to_numpy())
    total_s = done["ttft_from_schedule_s"].fillna(done["ttft_s"] + done["connect_s"].fillna(0.0))
    whole_s = float(total_s.sum())
    return ConnectFacts(
        new=int((load["connection"] == "new").sum()),
        connect_p50_s=_known(exact_quantile(new_s, 0.5)),
        connect_p99_s=_known(exact_quantile(new_s, 0.99)),
        tls_p50_s=_median(load["tls_s"]),
        share_ratio=float(done["connect_s"].sum()) / whole_s if whole_s > 0 else None,
        sent_again=int((load["attempts"] > 1).sum()),
        stale=int((load["failure_class"] == STALE).sum()),
    )


def _contrast(run: Run, phase: np.ndarray) -> Contrast:
    """Quiet against bursts; without either, the quarter with fewest in flight against that with most."""
    load = run.load
    done = (load["outcome"] == "succeeded").to_numpy() & load["ttft_s"].notna().to_numpy()
    flying = load["in_flight_at_send"].to_numpy(dtype=float, na_value=np.nan)
    calm, crowded = done & (phase == "quiet"), done & (phase == "burst")
    by_phase = min(int(calm.sum()), int(crowded.sum())) >= LEAST_IN_PART
    if not by_phase:
        seen = np.sort(flying[done & ~np.isnan(flying)])
        calm = done & (flying <= exact_quantile(seen, CALM_QUARTER))
        crowded = done & (flying >= exact_quantile(seen, CROWDED_QUARTER))
    return Contrast(
        "phases" if by_phase else "in_flight",
        *(_median(load.loc[part, name]) for name in ("ttft_s", "tpot_s") for part in (calm, crowded)),
        *(_median(flying[part]) for part in (calm, crowded)),
    )


def _steps(load: pd.DataFrame, parts: TimeParts, limit_s: float | None) -> StepFacts:
    tpot_s, streams = load["tpot_s"].to_numpy(dtype=float), parts.decoding
    known = np.sort(streams[~np.isnan(streams) & ~np.isnan(tpot_s)])
    few, many = (exact_quantile(known, q) for q in (FEW, MANY))
    return StepFacts(
        tpot_limit_s=limit_s,
        correlation=_correlation(streams, tpot_s),
        streams_few=_known(few),
        streams_many=_known(many),
        tpot_few_s=_median(tpot_s[streams <= few]),
        tpot_many_s=_median(tpot_s[streams >= many]),
    )


def _losses(run: Run, phase: np.ndarray) -> LossFacts:
    load = run.load
    rejected = load[load["outcome"] == "rejected"]
    failed = load[
        (load["outcome"] == "failed")
        & load["whose"].isin(("server", "network"))
        & (load["failure_class"] != STALE)
    ]
    as_what = failed["failure_class"].astype("str").value_counts()
    first_s, last_s = _one_short_time(failed["ended_at_s"], run.window_s)
    return LossFacts(
        rejected=len(rejected),
        rejected_in_bursts=int((phase[rejected.index.to_numpy()] == "burst").sum()),
        rejected_as=", ".join(rejected["failure_class"].astype("str").dropna().value_counts().index[:2]),
        retry_after_p50_s=_median(rejected["retry_after_s"]),
        failed=len(failed),
        failed_as=str(as_what.index[0]) if len(as_what) else "",
        failed_most=int(as_what.iloc[0]) if len(as_what) else 0,
        first_s=first_s,
        last_s=last_s,
        of=int((load["outcome"] != "not_sent").sum()),
    )


def _one_short_time(at_s: pd.Series[float], window_s: float) -> tuple[float | None, float | None]:
    """From when to when 90 % of the moments lie, if that is at most 10 % of the window (5 s at least)."""
    known = np.sort(at_s.dropna().to_numpy())
    if len(known) < LEAST_FAILURES:
        return None, None
    first_s, last_s = exact_quantile(known, 0.05), exact_quantile(known, 0.95)
    short = last_s - first_s <= max(LEAST_CLUSTER_S, CLUSTER_OF_WINDOW * window_s)
    return (first_s, last_s) if short and window_s > 2 * LEAST_CLUSTER_S else (None, None)


def _answers(evidence: Evidence) -> AnswerFacts:
    load = evidence.run.load
    output = lengths(load)["output"]
    told = (load["outcome"] == "succeeded") & load["cached_tokens"].notna()
    done = load.loc[told, ["input_tokens", "cached_tokens"]]
    inputs = float(done["input_tokens"].sum())
    return AnswerFacts(
        asked_mean=output.asked_mean,
        got_mean=output.got_mean,
        cached_ratio=float(done["cached_tokens"].sum()) / inputs if inputs else None,
        tiny_gap_ratio=evidence.lumps.tiny_gap_ratio,
        lumps_made_by=evidence.lumps.made_by,
    )


def _awaiting_peak(load: pd.DataFrame, parts: TimeParts) -> int:
    sent_s = load["sent_at_s"].to_numpy(dtype=float)
    steps = spans(sent_s, sent_s + parts.waited_until_first_s)
    return int(steps.value.max()) if len(steps.value) else 0


def _correlation(one: np.ndarray, other: np.ndarray) -> float | None:
    known = ~(np.isnan(one) | np.isnan(other))
    if known.sum() < 8 or np.ptp(one[known]) == 0 or np.ptp(other[known]) == 0:
        return None
    return float(np.corrcoef(one[known], other[known])[0, 1])


def _median(values: Any) -> float | None:
    known = np.sort(pd.Series(values).dropna().to_numpy(dtype=float))
    return _known(exact_quantile(known, HALF))


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None
