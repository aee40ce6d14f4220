"""The five numbers of the report's first screen, and how a figure that may be unknown is written.

Everything is read from the summary; only the quantiles by phase are taken from the records, by
analysis.metrics. Beside each number stands its 95 % interval where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.load import Run
from analysis.numbers import UNKNOWN, count, percent, plain, seconds, unbroken
from analysis.page import Html, element
from analysis.phased import lead_metric, ttft_by_phase
from analysis.sections_statistics import attainment_bounds
from analysis.slo import wilson_interval
from analysis.wording import OUTCOME, TEXT


def five_numbers(run: Run, summary: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(label, value, note) of the five tiles."""
    return [
        _attainment(summary),
        _ttft(run, summary),
        _recovery_or_tpot(summary),
        _throughput(summary),
        _lost(summary),
    ]


def tile(label: str, value: str, note: str) -> Html:
    """A number of the first screen: what it is, its value, and what stands beside it."""
    return element(
        "div",
        element("dt", label),
        element("dd", element("div", value, class_="value"), element("div", unbroken(note), class_="note")),
        class_="tile",
    )


def quantile_text(quantile: Mapping[str, Any] | None) -> str:
    """A quantile in words: its seconds, "not met" when it falls on a failure, "n too small", or n/a."""
    if quantile is None:
        return UNKNOWN
    if quantile["value"] is None and not quantile["not_met"]:
        return UNKNOWN
    if quantile["n_too_small"]:
        return TEXT["n_too_small"]
    return TEXT["not_met"] if quantile["not_met"] else seconds(quantile["value"])


def interval_text(quantile: Mapping[str, Any]) -> str:
    """The bounds of a quantile's 95 % interval; n/a where it has none."""
    if quantile["low"] is None or quantile["high"] is None:
        return UNKNOWN
    return TEXT["range"].format(low=seconds(quantile["low"]), high=seconds(quantile["high"]))


def recovered_words(recovery: Mapping[str, Any]) -> str:
    """How many bursts were seen to recover, or to drain."""
    words = TEXT["drained_of" if recovery["methods"] == ["drain"] else "recovered_of"]
    return words.format(recovered=recovery["n"] - recovery["censored"], all=recovery["n"])


def least_median_s(bursts: Sequence[Mapping[str, Any]]) -> float:
    """A lower bound of the median recovery: the median of what each burst took at the least."""
    return float(np.median([burst["at_least_s"] or 0.0 for burst in bursts]))


def _attainment(summary: Mapping[str, Any]) -> tuple[str, str, str]:
    slo = summary["slo"]
    if slo is None or not slo["limits"]:
        return TEXT["tile_slo"], UNKNOWN, TEXT["tile_no_slo" if slo is None else "tile_no_request_limit"]
    whole, burst, quiet = (slo["attainment"][key] for key in ("whole", "burst", "quiet"))
    low, high = attainment_bounds(slo)
    note = TEXT["tile_slo_interval"].format(low=percent(low), high=percent(high))
    if not whole["decided"]:
        unmeasured = whole["unmeasured"]
        note = (
            TEXT["tile_slo_unjudged"].format(why=slo["unjudged"]) if unmeasured else TEXT["tile_none_decided"]
        )
    elif burst["decided"] and quiet["decided"]:
        phases = TEXT["tile_slo_phases"].format(burst=percent(burst["ratio"]), quiet=percent(quiet["ratio"]))
        note = f"{note}; {phases}{_most_missed(slo)}"
    return TEXT["tile_slo"], percent(whole["ratio"]), note


def _most_missed(slo: Mapping[str, Any]) -> str:
    """The one limit of several that was missed most in bursts; empty when none stands out."""
    missed = [(row["burst"]["decided"] - row["burst"]["met"], row["text"]) for row in slo["limits"]]
    (most, limit), *others = sorted(missed, reverse=True)
    return TEXT["tile_slo_limit"].format(limit=limit) if others and most > others[0][0] else ""


def _ttft(run: Run, summary: Mapping[str, Any]) -> tuple[str, str, str]:
    whole = summary["metrics"][lead_metric(summary)]
    since = TEXT["tile_from_schedule"] if lead_metric(summary) != "ttft_s" else ""
    if not summary["bursts"]:
        return TEXT["tile_ttft"] + since, seconds(whole["p50"]["value"]), _interval_and_p95(whole)
    by_phase = ttft_by_phase(run, summary)
    quiet, burst = by_phase["quiet"], by_phase["burst"]
    if not quiet["n"] and not burst["n"]:
        return TEXT["tile_ttft"] + since, UNKNOWN, TEXT["no_answers"]
    if not quiet["n"]:
        return (
            TEXT["tile_ttft_bursts"] + since,
            quantile_text(burst["p50"]),
            _interval_and_p95(burst),
        )
    return (
        TEXT["tile_ttft_phases"] + since,
        TEXT["tile_arrow"].format(quiet=quantile_text(quiet["p50"]), burst=quantile_text(burst["p50"])),
        TEXT["tile_p95"].format(
            quiet=quantile_text(quiet["p95"]),
            burst=quantile_text(burst["p95"]),
            quiet_interval=interval_text(quiet["p50"]),
            burst_interval=interval_text(burst["p50"]),
        ),
    )


def _interval_and_p95(row: Mapping[str, Any]) -> str:
    """The note of a median: its interval and the p95, or that nothing was measured."""
    if not row["n"]:
        return TEXT["tile_none_measured"]
    return TEXT["tile_p50_p95"].format(interval=interval_text(row["p50"]), p95=quantile_text(row["p95"]))


def _recovery_or_tpot(summary: Mapping[str, Any]) -> tuple[str, str, str]:
    recovery = summary["recovery"]
    if not recovery["n"]:
        tpot = summary["metrics"]["tpot_s"]
        return TEXT["tile_tpot"], seconds(tpot["p50"]["value"]), _interval_and_p95(tpot)
    label = TEXT["tile_drain" if recovery["methods"] == ["drain"] else "tile_recovery"]
    note = recovered_words(recovery)
    low_s, high_s = recovery["range_s"] or (0.0, 0.0)
    if low_s != high_s:
        note = f"{TEXT['range'].format(low=seconds(low_s), high=seconds(high_s))}; {note}"
    if recovery["median_s"] is not None:
        return label, seconds(recovery["median_s"]), note
    least_s = least_median_s(summary["bursts"])
    return label, TEXT["at_least"].format(time=seconds(least_s)) if least_s else TEXT["not_seen"], note


def _throughput(summary: Mapping[str, Any]) -> tuple[str, str, str]:
    done = summary["throughput"]
    notes = [TEXT["tile_tokens"].format(tokens=plain(done["output_tokens_per_s"]))]
    if summary["slo"] is not None and summary["slo"]["limits"] and summary["slo"]["goodput_rps"] is not None:
        notes.insert(0, TEXT["tile_goodput"].format(goodput=plain(summary["slo"]["goodput_rps"])))
    return (
        TEXT["tile_throughput"],
        TEXT["per_second"].format(rate=plain(done["requests_per_s"])),
        "; ".join(notes),
    )


def _lost(summary: Mapping[str, Any]) -> tuple[str, str, str]:
    counts = summary["counts"]
    parts = [
        TEXT["counted"].format(count=count(counts[name]), what=OUTCOME[name])
        for name in ("failed", "rejected", "cancelled", "not_sent")
        if counts[name]
    ]
    note = TEXT["of_sent"].format(parts=", ".join(parts) or TEXT["none_lost"], sent=count(counts["sent"]))
    ended = counts["succeeded"] + counts["failed"] + counts["rejected"]
    low, high = wilson_interval(counts["failed"] + counts["rejected"], ended)
    if low is not None and high is not None:
        note = TEXT["tile_interval"].format(low=percent(low), high=percent(high)) + note
    return TEXT["tile_errors"], percent(summary["error_ratio"]), note
