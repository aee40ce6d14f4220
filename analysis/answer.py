"""The report's first screen: verdict, the answer in one plain sentence, five numbers (analysis.tiles).

Everything is read from the summary, so that a figure here is the figure of summary.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.load import Run
from analysis.numbers import UNKNOWN, count, known, percent, plain, seconds, unbroken
from analysis.page import Html, element, join
from analysis.phased import lead_metric, ttft_by_phase
from analysis.recovery import HOLD_S
from analysis.sections_diagnosis import why
from analysis.tiles import five_numbers, least_median_s, quantile_text, recovered_words, tile
from analysis.trust import rounded_down
from analysis.wording import TEXT
from analysis.wording_statistics import STATISTICS_TEXT

MOST_REASONS = 2
MOST_WARNINGS = 2
VERDICT_CLASS = {"VALID": "good", "DEGRADED": "warn", "INVALID": "bad"}


def header(run: Run, summary: Mapping[str, Any]) -> Html:
    """Name and verdict, the sentence, what stands against the figures, five numbers, warnings.

    All but the warnings fit a first screen of 1280 x 800, so of many reasons the first stand here.
    """
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
            element("p", unbroken(sentence(run, summary)), class_="answer"),
            *why(summary),
            *_aside(summary),
            *_verdict_reasons(summary),
            element("dl", *(tile(*row) for row in five_numbers(run, summary)), class_="tiles"),
            *_warnings(summary),
        ]
    )


def sentence(run: Run, summary: Mapping[str, Any]) -> str:
    """The answer to "what did the bursts do?" (or, without bursts, "how did it do?") in one sentence."""
    counts, bursts = summary["counts"], summary["bursts"]
    if not counts["sent"]:
        if run.closed:
            return TEXT["say_no_users"]
        key = "say_nothing_sent" if counts["scheduled"] else "say_nothing_planned"
        return TEXT[key].format(scheduled=count(counts["scheduled"]))
    if not counts["succeeded"]:
        first = next(iter(summary["failures"]), None)
        return TEXT["say_no_success"].format(
            sent=count(counts["sent"]),
            why=TEXT["say_mostly"].format(name=first["class"], share=percent(first["share"]))
            if first
            else "",
        )
    if summary["verdict"] == "INVALID" and (late := too_slow(summary)):
        return late
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
        burst=_burst_words(run, summary), effect=_effect(run, summary), errors=_errors(summary)
    )


def too_slow(summary: Mapping[str, Any]) -> str:
    """That the load generator could not keep up, where that is beyond doubt; "" where it is not."""
    first = next(iter(summary["diagnosis"]["findings"]), None)
    if first is None or first["key"] != "client" or first["strength"] != "strong":
        return ""
    (reached,) = (row["value"] for row in summary["checks"] if row["name"] == "load reached")
    key = "say_too_slow" if reached is None or reached >= 0.9995 else "say_too_slow_reached"
    return TEXT[key].format(ratio=rounded_down(reached or 0.0))


def _load(run: Run, summary: Mapping[str, Any]) -> str:
    if run.closed:
        return TEXT["load_users"].format(users=plain(summary["in_flight"]["users_mean"]))
    return TEXT["load_rate"].format(rate=plain(run.info.mean_rate_rps))


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


def _quiet_s(run: Run, summary: Mapping[str, Any]) -> float | None:
    """The quiet median TTFT: the one of the tile below, so that both are one figure; where it has none or
    counts from the schedule, the one that recovery is judged by."""
    baseline_s = known(summary["recovery"]["baseline_ttft_s"])
    if baseline_s is None or lead_metric(summary) != "ttft_s":
        return baseline_s
    return known(ttft_by_phase(run, summary)["quiet"]["p50"]["value"]) or baseline_s


def _effect(run: Run, summary: Mapping[str, Any]) -> str:
    bursts, recovery = summary["bursts"], summary["recovery"]
    peaks = [burst["peak_ttft_s"] for burst in bursts if burst["peak_ttft_s"] is not None]
    peak, base = float(np.median(peaks)) if peaks else None, _quiet_s(run, summary)
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
    tail = recovered_words(recovery)
    short = [burst for burst in bursts if burst["watched_too_short"]]
    if short:
        tail = TEXT["watched_too_short"].format(tail=tail, **watched(summary, short[-1]))
    if recovery["median_s"] is not None:
        hurt = "hurt" if recovery["median_s"] > 0 else "hurt_no_longer"
        words = TEXT["drained" if recovery["methods"] == ["drain"] else hurt]
        return words.format(raised=raised, time=seconds(recovery["median_s"]), tail=tail)
    least_s = least_median_s(bursts)
    return TEXT["longer" if least_s else "unconfirmed"].format(
        raised=raised, least=seconds(least_s), tail=tail
    )


def watched(summary: Mapping[str, Any], burst: Mapping[str, Any]) -> dict[str, str]:
    """For how long a burst's aftermath was watched, what a recovery needs, and what would help."""
    last = burst["index"] == len(summary["bursts"]) - 1
    return {
        "number": str(burst["index"] + 1),
        "observed": seconds(burst["observed_s"]),
        "hold": seconds(HOLD_S),
        "advice": TEXT["longer_run" if last else "longer_pauses"],
    }


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


def _verdict_reasons(summary: Mapping[str, Any]) -> list[Html]:
    """Why the verdict is not VALID and what to do; of many the first, and where the others are."""
    items = _with_advice(summary, summary["verdict_reasons"])
    more = len(items) - MOST_REASONS
    if more > 0:
        link = element("a", TEXT["more_reasons"].format(count=count(more)), href="#checks")
        items = [*items[:MOST_REASONS], element("li", link)]
    kind = VERDICT_CLASS.get(summary["verdict"], "warn")
    return [element("ul", *items, class_=f"reasons {kind}")] if items else []


def _warnings(summary: Mapping[str, Any]) -> list[Html]:
    """The warnings that leave the verdict as it is; of many the first, and the others behind a click."""
    items = _with_advice(summary, summary["warnings"])
    if len(items) > MOST_WARNINGS:
        others = items[MOST_WARNINGS:]
        label = element("summary", TEXT["more_warnings"].format(count=count(len(others))))
        folded = element("details", label, element("ul", *others))
        items = [*items[:MOST_WARNINGS], element("li", folded)]
    return [element("ul", *items, class_="reasons warn")] if items else []


def _with_advice(summary: Mapping[str, Any], reasons: Sequence[str]) -> list[Html]:
    advice = {row["name"]: row["advice"] for row in summary["checks"] if row["advice"]}
    items = []
    for reason in reasons:
        todo = next((text for name, text in advice.items() if str(reason).startswith(f"{name}:")), "")
        items.append(element("li", unbroken(f"{reason}{TEXT['todo'].format(advice=todo) if todo else ''}")))
    return items
