"""The report's upper sections: what the bursts did. Time line, bursts, latency, SLO, burstiness."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from analysis.charts import distribution
from analysis.load import Run
from analysis.metrics import BY_KEY, decided
from analysis.numbers import UNKNOWN, count, known, percent, plain, seconds
from analysis.page import Html, Section, element, figure, join, noted, table
from analysis.phased import burst_frame, by_phase, client_bound_frame, labelled, lead_metric
from analysis.phases import PHASES
from analysis.sections_statistics import by_burst_words
from analysis.tiles import quantile_text
from analysis.time_line import time_line
from analysis.ttft_row import MOST_DOTS
from analysis.wording import TEXT

FIRST_BURST_ROWS = 12
MOST_BURST_ROWS = 500
SHOWN_QUANTILES = ("p50", "p90", "p95", "p99", "p99_9")
_DOTS = {TEXT[f"dots_{phase}"] for phase in PHASES}


def over_time(run: Run, summary: Mapping[str, Any]) -> Section:
    """The main picture."""
    load = labelled(run, summary)
    answered = int(load["ttft_s"].notna().sum())
    made = time_line(
        load,
        run.schedule["at_s"],
        run.info.users_curve if run.closed else run.info.rate_curve,
        burst_frame(summary),
        float(run.info.duration_s),
        limit_of(summary, "ttft_s"),
        closed=run.closed,
        probes=run.probes,
        events=run.events,
        client_bound=client_bound_frame(summary),
        server=run.server_metrics,
    )
    caption = [TEXT["time_line_caption"], *([TEXT["shaded_caption"]] if summary["bursts"] else [])]
    if answered > MOST_DOTS:
        drawn = sum(len(line.x) for line in made.data if line.name in _DOTS)
        caption.append(TEXT["thinned"].format(shown=count(drawn), all=count(answered)))
    if lost := int((load["outcome"] != "succeeded").sum()):
        caption.append(TEXT["failures_all"].format(all=count(lost)))
    if len(run.server_metrics):
        caption.append(TEXT["server_caption"].format(samples=count(len(run.server_metrics))))
    if len(run.probes):
        caption.append(TEXT["probes_caption"])
    if summary["own_error"]["client_bound"]["windows"]:
        caption.append(TEXT["client_bound_caption"])
    if len(run.events):
        caption.append(TEXT["events_caption"])
    height = int(made.layout.height)
    slot = figure("time_line", height, " ".join(caption), axis="yaxis3")
    return Section("time", TEXT["over_time"], slot, {"time_line": made})


def latency(run: Run, summary: Mapping[str, Any]) -> Section:
    """Distributions by phase, and the table of percentiles, successes only and failures as infinite."""
    load = labelled(run, summary)
    lead = lead_metric(summary)
    first = dict.fromkeys((lead, "ttft_s", "tpot_s", "e2e_s"))
    others = [key for key in summary["metrics"] if key not in first]
    more = _percentiles(summary, others, TEXT["more_metrics"])
    parts: list[object] = [
        _percentiles(summary, first, TEXT["percentiles_caption"]),
        _phase_table(load, (lead, "tpot_s", "e2e_s")) if summary["bursts"] else "",
        element("details", element("summary", TEXT["more_metrics"]), more),
    ]
    if not (load["outcome"] == "succeeded").any():
        return Section("latency", TEXT["latency"], join([element("p", TEXT["no_success"]), *parts]))
    shown = load.loc[decided(load), ["phase", "outcome", *dict.fromkeys((lead, "tpot_s", "e2e_s"))]]
    figures = {
        "ttft": distribution(shown, lead, limit_of(summary, "ttft_s")),
        "tpot": distribution(shown, "tpot_s", limit_of(summary, "tpot_s")),
        "e2e": distribution(shown, "e2e_s", limit_of(summary, "e2e_s")),
    }
    figures = {key: made for key, made in figures.items() if made.data}
    slots = (figure(key, 360, TEXT[f"{key}_ecdf_caption"]) for key in figures)
    how = element("p", TEXT["ecdf_words"] + _lost_words(shown), class_="reading")
    words = element("p", TEXT["late_words"], class_="reading") if lead != "ttft_s" else ""
    return Section(
        "latency",
        TEXT["latency"],
        join([words, how, element("div", *slots, class_="three"), *parts]),
        figures,
    )


def _lost_words(shown: pd.DataFrame) -> str:
    """How many requests of each phase are missing from the curves; empty without any."""
    lost = shown.loc[shown["outcome"] != "succeeded", "phase"].value_counts()
    parts = [
        TEXT["counted"].format(count=count(int(lost[phase])), what=TEXT[f"phase_{phase}"])
        for phase in _in_reading_order(PHASES)
        if lost.get(phase)
    ]
    return " " + TEXT["curves_lost"].format(parts=", ".join(parts)) if parts else ""


def _percentiles(summary: Mapping[str, Any], keys: Iterable[str], caption: str) -> Html:
    rows = []
    for key in keys:
        row = summary["metrics"].get(key)
        if row is None:
            continue
        write = _writer(row["unit"])
        rows.append(
            (
                row["label"],
                count(row["n"]),
                write(row["mean"]),
                *(_quantile_cell(row.get(name), write) for name in SHOWN_QUANTILES),
                write(row["max"]),
            )
        )
        adjusted = row.get("adjusted")
        if adjusted and adjusted["n"] != row["n"]:
            rows.append(
                (
                    noted("", TEXT["adjusted"].format(label=row["label"])),
                    count(adjusted["n"]),
                    UNKNOWN,
                    *(_quantile_cell(adjusted.get(name), write) for name in SHOWN_QUANTILES),
                    TEXT["not_met"],
                )
            )
    return table(TEXT["percentiles_head"].split("|"), rows, numeric=range(1, 9), caption=caption)


def _phase_table(load: Any, keys: tuple[str, ...]) -> Html:
    rows = []
    for key in keys:
        phases = by_phase(load, key)
        for phase in ("quiet", "burst", "recovery"):
            row = phases[phase]
            if row["n"]:
                quantiles = (_quantile_cell(row[name], seconds) for name in SHOWN_QUANTILES)
                label = TEXT["metric_in_phase"].format(label=BY_KEY[key].label, phase=TEXT[f"phase_{phase}"])
                rows.append((label, count(row["n"]), seconds(row["mean"]), *quantiles, seconds(row["max"])))
    return table(
        TEXT["percentiles_head"].split("|"), rows, numeric=range(1, 9), caption=TEXT["phases_caption"]
    )


def _quantile_cell(quantile: Mapping[str, Any] | None, write: Any) -> Html:
    if quantile is None or quantile["n_too_small"] or quantile.get("not_met"):
        return element("span", quantile_text(quantile), class_="soft")
    if quantile["low"] is None or quantile["high"] is None:
        return noted(write(quantile["value"]), "")
    interval = TEXT["range"].format(low=write(quantile["low"]), high=write(quantile["high"]))
    return noted(write(quantile["value"]), interval)


def slo(run: Run, summary: Mapping[str, Any]) -> Section:
    """How much of the load met the SLO: whole, by phase, and each limit by itself."""
    found = summary["slo"]
    if found is None:
        return Section("slo", TEXT["slo"], element("p", TEXT["no_slo"]))
    attained = found["attainment"]
    rows = [(TEXT[f"phase_{name}"], attained[name]) for name in ("whole", *_in_reading_order(PHASES))]
    rows += [
        (TEXT["limit_alone"].format(text=row["text"]), row)
        for row in found["limits"]
        if len(found["limits"]) > 1
    ]
    cells = [(name, *(_met_cells(row)), _interval(row), count(row["left_out"])) for name, row in rows]
    parts: list[object] = [
        element("p", TEXT["slo_words"].format(text=found["text"]), class_="reading"),
        table(TEXT["slo_head"].split("|"), cells, numeric=range(1, 6), caption=TEXT["slo_caption"]),
        *(element("p", words, class_="reading") for words in by_burst_words(found)),
        element(
            "p",
            TEXT["goodput_words"].format(
                goodput=plain(found["goodput_rps"]), bursts=plain(found.get("goodput_in_bursts_rps"))
            ),
            class_="reading",
        ),
    ]
    if found["percentiles"]:
        judged = [
            (
                row["text"],
                seconds(row["value_s"]) if row["value_s"] is not None else TEXT["not_met"],
                seconds(row["limit_s"]),
                count(row["n"]),
                UNKNOWN if row["met"] is None else TEXT["yes" if row["met"] else "no"],
            )
            for row in found["percentiles"]
        ]
        parts.append(
            table(
                TEXT["percentile_slo_head"].split("|"),
                judged,
                numeric=(1, 2, 3),
                caption=TEXT["percentile_slo"],
            )
        )
    return Section("slo", TEXT["slo"], join(parts))


def limit_of(summary: Mapping[str, Any], metric: str) -> float | None:
    """The tightest limit that the SLO puts on `metric` of every request, in seconds; one with a condition is
    not drawn over those that it is not about."""
    found = summary["slo"]
    if found is None:
        return None
    rows = [row for row in [*found["limits"], *found["percentiles"]] if row["where"] is None]
    return min((row["limit_s"] for row in rows if row["metric"] == metric), default=None)


def _in_reading_order(phases: tuple[str, ...]) -> list[str]:
    return sorted(phases, key=lambda name: name != "quiet")


def _met_cells(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return count(row["met"]), count(row["decided"]), percent(row["ratio"])


def _interval(row: Mapping[str, Any]) -> str:
    if row["low"] is None:
        return UNKNOWN
    return TEXT["range"].format(low=percent(row["low"]), high=percent(row["high"]))


def _writer(unit: str) -> Any:
    if unit == "s":
        return seconds
    if unit.startswith("s/"):
        return lambda value: UNKNOWN if known(value) is None else f"{seconds(value)}{unit[1:]}"
    return plain
