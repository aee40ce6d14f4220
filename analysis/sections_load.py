"""The report's sections about the load itself: its levels, how bursty it was, and what happened beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.burst_table import SHORT_ROWS, rows
from analysis.load import Run
from analysis.numbers import UNKNOWN, count, known, percent, plain, seconds
from analysis.page import Html, Section, element, join, table
from analysis.tiles import quantile_text
from analysis.wording import TEXT
from analysis.wording_burst import MEASURE, PAGE

MOST_EVENTS = 200


def levels(run: Run, summary: Mapping[str, Any]) -> Section | None:
    """A row a level; no section for a load without levels."""
    rows = summary["levels"]
    if not rows:
        return None
    unit = TEXT["levels_head_users" if run.closed else "levels_head_rps"]
    made = table(
        [unit, *TEXT["levels_head"].split("|")],
        (
            (
                plain(row["level"]),
                TEXT["span"].format(start=plain(row["start_s"]), end=plain(row["end_s"])),
                count(row["requests"]),
                plain(row["requests_per_s"]),
                quantile_text(row["ttft"]["p50"]),
                quantile_text(row["ttft"]["p95"]),
                quantile_text(row["tpot_s"]["p50"]),
                UNKNOWN if row["attainment"] is None else percent(row["attainment"]["ratio"]),
                percent(row["error_ratio"]),
            )
            for row in rows
        ),
        numeric=range(2, 9),
        caption=TEXT["levels_caption"],
    )
    return Section("levels", TEXT["levels"], made)


def events(run: Run, summary: Mapping[str, Any]) -> Section:
    """What happened beside the requests, in order of time; of very many the first and how many more."""
    found = run.events.sort_values("at_s", kind="stable")
    if found.empty:
        return Section("events", TEXT["events"], element("p", TEXT["no_events"]))
    shown, others = found.head(MOST_EVENTS), found.iloc[MOST_EVENTS:]
    rows: list[tuple[object, ...]] = [
        (
            seconds(row["at_s"]),
            _event_name(row["kind"]),
            UNKNOWN if known(row["worker"]) is None else count(row["worker"]),
            row["text"] if isinstance(row["text"], str) else "",
        )
        for row in shown.astype({"worker": "float64"}).to_dict("records")
    ]
    parts: list[Html] = [
        table(
            TEXT["events_head"].split("|"),
            rows,
            numeric=(2,),
            wide=(3,),
            caption=TEXT["events_list_caption"],
        )
    ]
    if len(others):
        kinds = ", ".join(sorted(_event_name(kind) for kind in others["kind"].unique()))
        parts.append(element("p", TEXT["other_events"].format(count=count(len(others)), kinds=kinds)))
    return Section("events", TEXT["events"], join(parts))


def _event_name(kind: Any) -> str:
    return kind.replace("_", " ") if isinstance(kind, str) else TEXT["unnamed"]


def burstiness(run: Run, summary: Mapping[str, Any]) -> Section:
    """How bursty the load was: asked, sent and first bytes side by side, with what a Poisson stream shows."""
    found = summary["burstiness"]
    streams = [key for key in ("asked", "sent", "first_byte") if found.get(key) is not None]
    if not streams:
        return Section("burstiness", TEXT["burstiness"], element("p", TEXT["no_burstiness"]))
    profiles = [found[key] for key in streams]
    made = table(
        [PAGE["head_measure"], *(PAGE[key] for key in streams), PAGE["head_says"]],
        ((label, *cells, says) for label, cells, says in rows(profiles, SHORT_ROWS)),
        numeric=range(1, len(streams) + 1),
        wide=(len(streams) + 1,),
        caption=f"{TEXT['burstiness_caption']} {PAGE['table_caption']}",
    )
    left_out = [
        element("p", PAGE["unmeasured"].format(what=MEASURE.get(what, f"{what} s"), why=why), class_="soft")
        for what, why in profiles[0]["unmeasured"].items()
    ]
    return Section("burstiness", TEXT["burstiness"], join([made, *left_out]))
