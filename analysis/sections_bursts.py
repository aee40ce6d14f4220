"""The report's section on bursts: a panel a burst, and what each did in a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from analysis.answer import recovery_text, watched
from analysis.burst_panels import MOST_DOTS, MOST_PANELS, burst_panels
from analysis.load import Run
from analysis.numbers import UNKNOWN, count, known, percent, plain, seconds
from analysis.page import Html, Section, element, figure, join, noted, table
from analysis.phased import burst_frame, labelled
from analysis.sections_aftermath import aftermath
from analysis.sections_client import sending_words
from analysis.wording import TEXT

FIRST_BURST_ROWS = 12
MOST_BURST_ROWS = 500


def bursts(run: Run, summary: Mapping[str, Any]) -> Section:
    """A panel a burst, aligned at their starts, and a row a burst."""
    rows = summary["bursts"]
    if not rows:
        return Section("bursts", TEXT["bursts"], element("p", TEXT["no_bursts"]))
    parts = [_recovery_words(summary), sending_words(summary), _burst_table(summary), aftermath(summary)]
    figures = {}
    made = burst_panels(labelled(run, summary), burst_frame(summary))
    if any(np.isfinite(line.y).any() for line in made.data):
        caption = [TEXT["panels_caption"]]
        if any(burst["threshold_s"] is not None for burst in rows):
            caption.append(TEXT["panels_threshold"])
        caption.append(TEXT["panels_thinned"].format(most=count(MOST_DOTS)))
        if len(rows) > MOST_PANELS:
            caption.append(TEXT["panels_hardest"].format(shown=MOST_PANELS, all=count(len(rows))))
        parts.insert(2, figure("panels", int(made.layout.height), " ".join(caption), axis="yaxis"))
        figures["panels"] = made
    return Section("bursts", TEXT["bursts"], join(parts), figures)


def _recovery_words(summary: Mapping[str, Any]) -> Html:
    recovery = summary["recovery"]
    limits = sorted({burst["threshold_s"] for burst in summary["bursts"] if burst["threshold_s"] is not None})
    words = [
        TEXT[f"method_{method}"].format(
            base=seconds(recovery["baseline_ttft_s"]), limit=seconds(limits[0]) if limits else UNKNOWN
        )
        for method in recovery["methods"]
    ]
    if recovery["censored"]:
        words.append(TEXT["censored_words"].format(censored=recovery["censored"], all=recovery["n"]))
    return element("p", " ".join(words), class_="reading")


def _burst_table(summary: Mapping[str, Any]) -> Html:
    """The first bursts at once, the others behind a click."""
    closed = summary["load"] == "closed"
    rows = [_burst_row(summary, burst, closed) for burst in summary["bursts"]]
    first, others = rows[:FIRST_BURST_ROWS], rows[FIRST_BURST_ROWS:MOST_BURST_ROWS]
    head = TEXT["bursts_head"].split("|") + [TEXT["bursts_users_head"]] * closed
    numeric = range(2, len(head))
    shown = table(head, first, numeric=numeric, caption=TEXT["bursts_caption"])
    if not others:
        return shown
    caption = TEXT["other_bursts"].format(first=len(first) + 1, last=len(first) + len(others), all=len(rows))
    more = table(head, others, numeric=numeric, caption=TEXT["bursts_caption"])
    return join([shown, element("details", element("summary", caption), more)])


def _burst_row(summary: Mapping[str, Any], burst: Mapping[str, Any], closed: bool) -> tuple[object, ...]:
    """`closed` adds what was in flight of the users wanted, on average."""
    when = TEXT["moment" if burst["start_s"] == burst["end_s"] else "span"]
    seen = burst["in_flight"]
    users = TEXT["of_users"].format(seen=plain(seen["in_flight_mean"]), users=plain(seen["users_mean"]))
    return (
        str(burst["index"] + 1),
        when.format(start=plain(burst["start_s"]), end=plain(burst["end_s"])),
        count(burst["requests"]),
        TEXT["mostly_failed"] if burst["peak_failed"] else seconds(burst["peak_ttft_s"]),
        seconds(burst["overshoot_s"]),
        _recovery_cell(summary, burst),
        _met(burst["attainment"]),
        *([users] if closed else []),
    )


def _recovery_cell(summary: Mapping[str, Any], burst: Mapping[str, Any]) -> Html:
    if burst["recovery_s"] is None:
        note = TEXT["too_short_note" if burst["watched_too_short"] else "censored_note"]
        return noted(recovery_text(burst), note.format(**watched(summary, burst)))
    return noted(recovery_text(burst), TEXT["drain_note"] if burst["method"] == "drain" else "")


def _met(row: Mapping[str, Any] | None) -> str:
    return UNKNOWN if row is None or known(row["ratio"]) is None else percent(row["ratio"])
