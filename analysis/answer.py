"""The report's first screen: verdict, the answer in one plain sentence, five numbers.

Everything is read from the summary, so that a figure here is the figure of summary.json; only the quantiles
by phase are taken from the records, by analysis.metrics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.load import Run
from analysis.numbers import UNKNOWN, count, known, percent, plain, seconds
from analysis.page import Html, element, join
from analysis.phased import lead_metric, ttft_by_phase
from analysis.recovery import HOLD_S
from analysis.sections_statistics import attainment_bounds, bursts_interval_note
from analysis.wording import OUTCOME, TEXT
from analysis.wording_statistics import STATISTICS_TEXT

VERDICT_CLASS = {"VALID": "good", "DEGRADED": "warn", "INVALID": "bad"}


def header(run: Run, summary: Mapping[str, Any]) -> Html:
    """Name and verdict, the sentence, what stands against the figures, five numbers."""
    verdict = str(summary.get("verdict"))
    badges = [
        element("span", verdict, class_=f"badge {VERDICT_CLASS.get(verdict, 'warn')}"),
        *_slo_badge(summary),
    ]
    info = run.info
    what = TEXT["run_line"].format(
        run=info.run_id, model=info.model, target=info.target, started=info.started_at or UNKNOWN
    )
    if run.closed:
        what += TEXT["closed_line"]
    return join(
        [
            element("p", what, class_="run"),
            element("h1", info.name or info.run_id, " ", *badges),
            element("p", sentence(run, summary), class_="answer"),
            *_aside(summary),
            *_against(summary),
            element("dl", *(_tile(*row) for row in five_numbers(run, summary)), class_="tiles"),
        ]
    )


def sentence(run: Run, summary: Mapping[str, Any]) -> str:
    """The answer to "what did the bursts do?" (or, without bursts, "how did it do?") in one sentence."""
    counts, bursts = summary["counts"], summary["bursts"]
    if not counts["sent"]:
        if run.closed:
            return TEXT["say_no_users"]
        return TEXT["say_nothing_sent"].format(scheduled=count(counts["scheduled"]))
    if not counts["succeeded"]:
        first = next(iter(summary["failures"]), None)
        return TEXT["say_no_success"].format(
            sent=count(counts["sent"]),
            why=TEXT["say_mostly"].format(name=first["class"], share=percent(first["share"]))
            if first
            else "",
        )
    if not bursts:
        ttft = summary["metrics"][lead_metric(summary)]
        return TEXT["say_steady"].format(
            shape=run.info.shape,
            load=_load(run, summary),
            p50=seconds(ttft["p50"]["value"]),
            p95=quantile_text(ttft["p95"]),
            errors=_errors(summary),
        )
    return TEXT["say_bursts"].format(
        burst=_burst_words(run, summary), effect=_effect(summary), errors=_errors(summary)
    )


def _load(run: Run, summary: Mapping[str, Any]) -> str:
    if run.closed:
        return TEXT["load_users"].format(users=plain(summary["in_flight"]["users_mean"]))
    return TEXT["load_rate"].format(rate=plain(run.info.mean_rate_rps))


def five_numbers(run: Run, summary: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(label, value, note) of the five tiles."""
    return [
        _attainment(summary),
        _ttft(run, summary),
        _recovery_or_tpot(summary),
        _throughput(summary),
        _lost(summary),
    ]


def quantile_text(quantile: Mapping[str, Any] | None) -> str:
    """A quantile in words: its seconds, "not met" when it falls on a failure, "n too small", or n/a."""
    if quantile is None:
        return UNKNOWN
    if quantile["value"] is None and not quantile["not_met"]:
        return UNKNOWN
    if quantile["n_too_small"]:
        return TEXT["n_too_small"]
    return TEXT["not_met"] if quantile["not_met"] else seconds(quantile["value"])


def recovery_text(burst: Mapping[str, Any]) -> str:
    """A burst's recovery time, or what is known of it when its end was not seen."""
    if burst["recovery_s"] is not None:
        return seconds(burst["recovery_s"])
    if burst["at_least_s"]:
        return TEXT["at_least"].format(time=seconds(burst["at_least_s"]))
    return TEXT["not_seen"]


def _burst_words(run: Run, summary: Mapping[str, Any]) -> str:
    """What a burst was: so many requests at once, or so many times the mean rate."""
    bursts = summary["bursts"]
    one = len(bursts) == 1
    if all(burst["end_s"] == burst["start_s"] for burst in bursts):
        sizes = sorted({burst["requests"] for burst in bursts})
        size = (
            count(sizes[0])
            if len(sizes) == 1
            else TEXT["range"].format(low=count(sizes[0]), high=count(sizes[-1]))
        )
        return TEXT["one_salvo" if one else "each_salvo"].format(size=size)
    curve = run.info.users_curve if run.closed else run.info.rate_curve
    if summary["recovery"]["found"]:
        return STATISTICS_TEXT["one_found_burst" if one else "each_found_burst"].format(n=len(bursts))
    highest = max((point[1] for point in curve), default=None)
    mean = summary["in_flight"]["users_mean"] if run.closed else run.info.mean_rate_rps
    if highest is None or not mean:
        return TEXT["one_burst" if one else "each_burst"]
    key = f"{'one' if one else 'each'}_burst_of{'_users' if run.closed else ''}"
    return TEXT[key].format(ratio=plain(round(highest / mean, 1)))


def _effect(summary: Mapping[str, Any]) -> str:
    bursts, recovery = summary["bursts"], summary["recovery"]
    peaks = [burst["peak_ttft_s"] for burst in bursts if burst["peak_ttft_s"] is not None]
    peak, base = float(np.median(peaks)) if peaks else None, recovery["baseline_ttft_s"]
    failed = sum(burst["peak_failed"] for burst in bursts)
    limits = [burst["threshold_s"] for burst in bursts if burst["threshold_s"] is not None]
    if peak is None:
        raised = TEXT["peak_failed" if failed else "peak_unknown"]
    elif base is None:
        raised = TEXT["peaked"].format(peak=seconds(peak))
    elif not failed and limits and max(peaks) <= min(limits):
        return TEXT["unharmed"].format(base=seconds(base), peak=seconds(peak))
    else:
        raised = TEXT["raised"].format(base=seconds(base), peak=seconds(peak))
    tail = _recovered(recovery)
    short = [burst for burst in bursts if burst["watched_too_short"]]
    if short:
        tail = TEXT["watched_too_short"].format(tail=tail, **watched(summary, short[-1]))
    if recovery["median_s"] is not None:
        words = TEXT["drained" if recovery["methods"] == ["drain"] else "hurt"]
        return words.format(raised=raised, time=seconds(recovery["median_s"]), tail=tail)
    least_s = least_median_s(bursts)
    return TEXT["longer" if least_s else "unconfirmed"].format(
        raised=raised, least=seconds(least_s), tail=tail
    )


def least_median_s(bursts: Sequence[Mapping[str, Any]]) -> float:
    """A lower bound of the median recovery: the median of what each burst took at the least."""
    return float(np.median([burst["at_least_s"] or 0.0 for burst in bursts]))


def watched(summary: Mapping[str, Any], burst: Mapping[str, Any]) -> dict[str, str]:
    """For how long a burst's aftermath was watched, what a recovery needs, and what would help."""
    last = burst["index"] == len(summary["bursts"]) - 1
    return {
        "number": str(burst["index"] + 1),
        "observed": seconds(burst["observed_s"]),
        "hold": seconds(HOLD_S),
        "advice": TEXT["longer_run" if last else "longer_pauses"],
    }


def _recovered(recovery: Mapping[str, Any]) -> str:
    words = TEXT["drained_of" if recovery["methods"] == ["drain"] else "recovered_of"]
    return words.format(recovered=recovery["n"] - recovery["censored"], all=recovery["n"])


def _errors(summary: Mapping[str, Any]) -> str:
    ratio = known(summary["error_ratio"])
    return TEXT["and_errors"].format(ratio=percent(ratio)) if ratio else ""


def _slo_badge(summary: Mapping[str, Any]) -> list[Html]:
    slo = summary["slo"]
    if slo is None or not slo["gates"]:
        return []
    text = {True: "slo_met", False: "slo_missed", None: "slo_unjudged"}[slo["met"]]
    return [element("span", TEXT[text], class_=f"badge {'good' if slo['met'] else 'bad'}")]


def _aside(summary: Mapping[str, Any]) -> list[Html]:
    """What was demanded and whether it was kept; left out without an SLO that gates."""
    slo = summary["slo"]
    if slo is None:
        return []
    if slo["gates"] and slo["met"] is None:
        return [element("p", TEXT["unjudged"].format(why=slo["unjudged"]), class_="aside")]
    parts = []
    if slo["share"] is not None and known(slo["attainment"]["whole"]["ratio"]) is not None:
        parts.append(
            TEXT["share_demanded"].format(
                share=percent(slo["share"]),
                text=", ".join(row["text"] for row in slo["limits"]),
                ratio=percent(slo["attainment"]["whole"]["ratio"]),
            )
        )
    parts += [
        TEXT["percentile_demanded"].format(
            text=row["text"], value=seconds(row["value_s"]) if row["value_s"] is not None else TEXT["not_met"]
        )
        for row in slo["percentiles"]
    ]
    return [element("p", " ".join(parts), class_="aside")] if parts else []


def _against(summary: Mapping[str, Any]) -> list[Html]:
    """Why the verdict is not VALID and what to do; then the warnings that leave it as it is."""
    boxes = []
    advice = {row["name"]: row["advice"] for row in summary["checks"] if row["advice"]}
    for reasons, kind in (
        (summary["verdict_reasons"], VERDICT_CLASS.get(summary["verdict"], "warn")),
        (summary["warnings"], "warn"),
    ):
        items = []
        for reason in reasons:
            todo = next((text for name, text in advice.items() if str(reason).startswith(f"{name}:")), "")
            items.append(element("li", reason, TEXT["todo"].format(advice=todo) if todo else ""))
        if items:
            boxes.append(element("ul", *items, class_=f"reasons {kind}"))
    return boxes


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
        note = TEXT["tile_slo_phases"].format(burst=percent(burst["ratio"]), quiet=percent(quiet["ratio"]))
        note += _most_missed(slo) + bursts_interval_note(slo)
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
        return TEXT["tile_ttft"] + since, seconds(whole["p50"]["value"]), f"p95 {quantile_text(whole['p95'])}"
    by_phase = ttft_by_phase(run, summary)
    quiet, burst = by_phase["quiet"], by_phase["burst"]
    if not quiet["n"]:
        return (
            TEXT["tile_ttft_bursts"] + since,
            quantile_text(burst["p50"]),
            f"p95 {quantile_text(burst['p95'])}",
        )
    return (
        TEXT["tile_ttft_phases"] + since,
        TEXT["tile_arrow"].format(quiet=quantile_text(quiet["p50"]), burst=quantile_text(burst["p50"])),
        TEXT["tile_p95"].format(quiet=quantile_text(quiet["p95"]), burst=quantile_text(burst["p95"])),
    )


def _recovery_or_tpot(summary: Mapping[str, Any]) -> tuple[str, str, str]:
    recovery = summary["recovery"]
    if not recovery["n"]:
        tpot = summary["metrics"]["tpot_s"]
        return TEXT["tile_tpot"], seconds(tpot["p50"]["value"]), f"p95 {quantile_text(tpot['p95'])}"
    label = TEXT["tile_drain" if recovery["methods"] == ["drain"] else "tile_recovery"]
    note = _recovered(recovery)
    if recovery["range_s"] is not None:
        low, high = (seconds(bound) for bound in recovery["range_s"])
        note = f"{low if low == high else TEXT['range'].format(low=low, high=high)}; {note}"
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
    return TEXT["tile_errors"], percent(summary["error_ratio"]), note


def _tile(label: str, value: str, note: str) -> Html:
    return element(
        "div",
        element("dt", label),
        element("dd", element("div", value, class_="value"), element("div", note, class_="note")),
        class_="tile",
    )
