"""DIAGNOSES: what may be the cause of harm, a row and a rule each.

A rule is a test on the facts of a run that answers how sure it is (`Seen`), or None.

    strong   a measurement of the thing itself: counted, or told by the server's own gauges
    likely   the client's records fit this cause and not the others next to it
    hint     they fit, but little speaks against another cause

docs/diagnosis.md has the thresholds with their sources.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from analysis.facts import NOTHING, Facts
from analysis.lengths import off
from analysis.trust import ON_TIME_S
from analysis.wording_diagnosis import DIAGNOSIS_TEXT

Strength = Literal["strong", "likely", "hint"]
Figures = dict[str, float | int | str | None]

LEAST_SHARE = 0.10
LEAST_REQUESTS = 3
MUCH_BOUND, SOME_BOUND = 0.10, 0.02
CONNECTING_SHARE, MUCH_CONNECTING, LEAST_CONNECT_S = 0.2, 0.5, 0.020
FULL_KV_RATIO, OFTEN = 0.90, 0.5
TPOT_HARDLY_MOVES = 1.25
QUEUE_BEFORE = 5
HALF = 0.5
BUSY_FOR_SURE = 0.6
SHARED_STEPS = 0.3
RISES_WITH = 0.7
RISES_A_LITTLE = 0.3
FEW_STREAMS = 4
TINY_GAPS, CACHED = 0.20, 0.01
UNEXPLAINED = 0.20
STARVED_CPU = 0.5
"""Of a core: a worker that was late and never used more than this was kept waiting by others."""


@dataclass(frozen=True)
class Seen:
    """That a cause was seen: how sure, its figures, and which words tell it (None: those of its key)."""

    strength: Strength
    figures: Figures
    words: str | None = None


@dataclass(frozen=True)
class Diagnosis:
    """A row of DIAGNOSES. `about`: the server, the client or the answers (no harm of their own)."""

    key: str
    test: Callable[[Facts], Seen | None]
    about: Literal["client", "server", "answers"] = "server"


def _worth_telling(facts: Facts, key: str) -> bool:
    seen = facts.explained.get(key, NOTHING)
    return seen.requests >= LEAST_REQUESTS and (seen.ratio or 0.0) >= LEAST_SHARE


def _queue_gauges(facts: Facts) -> Figures:
    server = facts.server
    if server is None:
        return {"waiting_peak": None, "running_peak": None}
    return {"waiting_peak": server.waiting_peak, "running_peak": server.running_peak}


def _contrast(facts: Facts) -> Figures:
    seen = facts.contrast
    return {
        "calm": DIAGNOSIS_TEXT[f"calm_{seen.parts}"],
        "crowded": DIAGNOSIS_TEXT[f"crowded_{seen.parts}"],
        "ttft_calm_s": seen.ttft_calm_s,
        "ttft_crowded_s": seen.ttft_crowded_s,
        "tpot_calm_s": seen.tpot_calm_s,
        "tpot_crowded_s": seen.tpot_crowded_s,
    }


def _client(facts: Facts) -> Seen | None:
    seen = facts.client
    bound_ratio = seen.bound_s / seen.of_s if seen.of_s else 0.0
    lag_s = seen.send_lag_p99_s or 0.0
    if lag_s > seen.late_limit_s or bound_ratio >= MUCH_BOUND:
        strength: Strength = "strong"
    elif lag_s > ON_TIME_S or bound_ratio >= SOME_BOUND:
        strength = "likely"
    elif seen.bound_s:
        strength = "hint"
    else:
        return None
    return Seen(
        strength,
        {
            "send_lag_p50_s": seen.send_lag_p50_s,
            "send_lag_p99_s": seen.send_lag_p99_s,
            "bound_s": float(seen.bound_s),
            "of_s": seen.of_s,
            "cpu_peak_ratio": seen.cpu_peak_ratio,
        },
        "starved" if seen.cpu_peak_ratio is not None and seen.cpu_peak_ratio < STARVED_CPU else None,
    )


def _connecting(facts: Facts) -> Seen | None:
    seen = facts.connect
    if (seen.share_ratio or 0.0) < CONNECTING_SHARE or (seen.connect_p99_s or 0.0) < LEAST_CONNECT_S:
        return None
    figures: Figures = {
        "share_ratio": seen.share_ratio,
        "connect_p50_s": seen.connect_p50_s,
        "connect_p99_s": seen.connect_p99_s,
        "tls_p50_s": seen.tls_p50_s,
        "new": seen.new,
    }
    return Seen("strong" if (seen.share_ratio or 0.0) >= MUCH_CONNECTING else "likely", figures)


def _freeze(facts: Facts) -> Seen | None:
    freezes = facts.pauses.freezes
    if not freezes:
        return None
    start_s, end_s = max(freezes, key=lambda row: row[1] - row[0])
    figures: Figures = {
        "freezes": len(freezes),
        "start_s": start_s,
        "end_s": end_s,
        "longest_s": end_s - start_s,
    }
    return Seen("strong", figures)


def _restart(facts: Facts) -> Seen | None:
    if facts.server is None or facts.server.restarted_at_s is None:
        return None
    return Seen("strong", {"restarted_at_s": facts.server.restarted_at_s, "failed": facts.losses.failed})


def _failures(facts: Facts) -> Seen | None:
    seen = facts.losses
    if not seen.failed:
        return None
    figures: Figures = {
        "failed": seen.failed,
        "of": seen.of,
        "failed_as": seen.failed_as,
        "failed_most": seen.failed_most,
        "first_s": seen.first_s,
        "last_s": seen.last_s,
    }
    return Seen("strong", figures, "failures_at_once" if seen.first_s is not None else None)


def _rejections(facts: Facts) -> Seen | None:
    seen = facts.losses
    if not seen.rejected:
        return None
    by_phase = facts.contrast.parts == "phases" or seen.rejected_in_bursts > 0
    figures: Figures = {
        "rejected": seen.rejected,
        "of": seen.of,
        "rejected_as": seen.rejected_as,
        "rejected_in_bursts_ratio": seen.rejected_in_bursts / seen.rejected if by_phase else None,
        "retry_after_p50_s": seen.retry_after_p50_s,
        **_queue_gauges(facts),
    }
    return Seen("strong", figures)


def _kv_cache(facts: Facts) -> Seen | None:
    server, explained = facts.server, facts.explained.get("kv_cache", NOTHING)
    if server is None or server.kv_peak_ratio is None:
        seen = facts.pauses
        if seen.paused < LEAST_REQUESTS:
            return None
        return Seen("hint", {"paused": seen.paused, "longest_s": seen.longest_s}, "kv_cache_guess")
    full = server.kv_peak_ratio >= FULL_KV_RATIO and (server.full_kv_ratio or 0.0) >= OFTEN
    if not server.preemptions and not full:
        return None
    figures: Figures = {
        "kv_peak_ratio": server.kv_peak_ratio,
        "full_kv_ratio": server.full_kv_ratio,
        "preemptions": server.preemptions,
        "memory_waited_p50_s": facts.queue.memory_waited_p50_s,
        **_queue_gauges(facts),
    }
    if not explained.requests:
        return Seen("hint", figures)
    return Seen("strong" if server.preemptions else "likely", figures)


def _queue(facts: Facts) -> Seen | None:
    if not _worth_telling(facts, "queue"):
        return None
    server, seen, contrast = facts.server, facts.queue, facts.contrast
    figures: Figures = {
        "waited_p50_s": seen.waited_p50_s,
        "busy_ratio": seen.busy_ratio,
        "awaiting_peak": seen.awaiting_peak,
        "at_slots_ratio": server.at_slots_ratio if server else None,
        "kv_peak_ratio": server.kv_peak_ratio if server else None,
        **_queue_gauges(facts),
        **_contrast(facts),
    }
    if server is not None and server.slots_were_full:
        return Seen("strong", figures)
    waiting = server.waiting_peak if server is not None else None
    if waiting is not None and seen.awaiting_peak >= QUEUE_BEFORE * max(waiting, 1):
        return Seen("likely", figures, "queue_before")
    calm_s, crowded_s = contrast.tpot_calm_s, contrast.tpot_crowded_s
    steady = calm_s is not None and crowded_s is not None and crowded_s <= TPOT_HARDLY_MOVES * calm_s
    return Seen("likely" if steady else "hint", figures)


def _prefill(facts: Facts) -> Seen | None:
    if not _worth_telling(facts, "prefill"):
        return None
    seen = facts.prompts
    figures: Figures = {
        "input_p50_tokens": seen.input_p50_tokens,
        "prompt_tokens_per_s": seen.tokens_per_s,
        "busy_ratio": seen.busy_ratio,
        "others_ratio": seen.others_ratio,
        "alone_s": seen.alone_s,
        "alone_ratio": seen.alone_ratio,
        **_queue_gauges(facts),
        **_contrast(facts),
    }
    if (seen.alone_ratio or 0.0) >= HALF:
        return Seen("likely" if seen.counted else "hint", figures, "prefill_own")
    sure = seen.counted and max(seen.busy_ratio or 0.0, seen.others_ratio or 0.0) >= BUSY_FOR_SURE
    return Seen("strong" if sure else "likely", figures)


def _decode(facts: Facts) -> Seen | None:
    if not _worth_telling(facts, "decode"):
        return None
    seen = facts.steps
    correlation, few = seen.correlation or 0.0, seen.streams_few
    figures: Figures = {
        "tpot_limit_s": seen.tpot_limit_s,
        "streams_few": few,
        "streams_many": seen.streams_many,
        "tpot_few_s": seen.tpot_few_s,
        "tpot_many_s": seen.tpot_many_s,
        "correlation": seen.correlation,
        **_queue_gauges(facts),
    }
    too_slow = seen.tpot_limit_s is not None and (seen.tpot_few_s or 0.0) > seen.tpot_limit_s
    if too_slow and few is not None and few <= FEW_STREAMS:
        return Seen("likely", figures, "decode_alone")
    if _worth_telling(facts, "prefill") and (facts.prompts.others_ratio or 0.0) >= SHARED_STEPS:
        return Seen("hint", figures)  # prompts in the same steps slow the streams as well, and fit too
    if correlation >= RISES_WITH:
        return Seen("strong", figures)
    return Seen("likely" if correlation >= RISES_A_LITTLE else "hint", figures)


def _stale(facts: Facts) -> Seen | None:
    seen = facts.connect
    if not seen.sent_again and not seen.stale:
        return None
    return Seen("strong", {"sent_again": seen.sent_again, "stale": seen.stale})


def _lumps(facts: Facts) -> Seen | None:
    seen = facts.answers
    if (seen.tiny_gap_ratio or 0.0) <= TINY_GAPS:
        return None
    figures: Figures = {
        "tiny_gap_ratio": seen.tiny_gap_ratio,
        "lumps_made_by": "server or a proxy before it" if seen.lumps_made_by == "server" else None,
    }
    words = "lumps_client" if seen.lumps_made_by == "client" else None
    return Seen("hint" if seen.lumps_made_by is None else "likely", figures, words)


def _lengths(facts: Facts) -> Seen | None:
    asked, got = facts.answers.asked_mean, facts.answers.got_mean
    if not asked or got is None or not off(asked, got):
        return None
    return Seen("strong", {"asked_mean": asked, "got_mean": got}, "short" if got < asked else "long")


def _cached(facts: Facts) -> Seen | None:
    ratio = facts.answers.cached_ratio or 0.0
    return Seen("strong", {"cached_ratio": ratio}) if ratio >= CACHED else None


def _unexplained(facts: Facts) -> Seen | None:
    rest = facts.unexplained
    if rest.requests < LEAST_REQUESTS or (rest.ratio or 0.0) < UNEXPLAINED:
        return None
    figures: Figures = {
        "unexplained": rest.requests,
        "unexplained_ratio": rest.ratio,
        "harmed": facts.harmed,
    }
    return Seen("hint", figures)


DIAGNOSES: tuple[Diagnosis, ...] = (
    Diagnosis("client", _client, "client"),
    Diagnosis("restart", _restart),
    Diagnosis("freeze", _freeze),
    Diagnosis("kv_cache", _kv_cache),
    Diagnosis("queue", _queue),
    Diagnosis("prefill", _prefill),
    Diagnosis("decode", _decode),
    Diagnosis("rejections", _rejections),
    Diagnosis("failures", _failures),
    Diagnosis("connecting", _connecting),
    Diagnosis("stale", _stale),
    Diagnosis("unexplained", _unexplained),
    Diagnosis("lumps", _lumps, "answers"),
    Diagnosis("lengths", _lengths, "answers"),
    Diagnosis("cached", _cached, "answers"),
)
"""Every cause, in the order in which those that explain equally much are told."""
