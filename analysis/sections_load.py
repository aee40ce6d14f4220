"""The report's sections about the load itself: its levels, how bursty it was, and what happened beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from analysis.load import Run
from analysis.numbers import UNKNOWN, count, known, percent, plain, seconds
from analysis.page import Html, Section, element, join, table
from analysis.tiles import quantile_text
from analysis.wording import TEXT

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
    """How bursty the load was, asked beside sent, each measure with a reading in plain words."""
    asked, sent = summary["burstiness"]["asked"], summary["burstiness"]["sent"]
    if asked is None and sent is None:
        return Section("burstiness", TEXT["burstiness"], element("p", TEXT["no_burstiness"]))
    rows = [_measure_row(TEXT["measure_cv"], asked, sent, ("cv",), _read_cv)]
    for name, reading in (
        ("idc", "read_idc"),
        ("allan_factor", "read_allan"),
        ("peak_over_mean", "read_peak"),
    ):
        for window in (asked or sent)[name]:
            label = TEXT[f"measure_{name}"].format(window=window)
            row = _measure_row(label, asked, sent, (name, window), _reader(reading, window))
            rows += [row] if row[1:3] != (UNKNOWN, UNKNOWN) else []
    made = table(
        TEXT["burstiness_head"].split("|"), rows, numeric=(1, 2, 3), caption=TEXT["burstiness_caption"]
    )
    return Section("burstiness", TEXT["burstiness"], made)


def _measure_row(
    label: str,
    asked: Mapping[str, Any] | None,
    sent: Mapping[str, Any] | None,
    path: tuple[str, ...],
    read: Callable[[float], str],
) -> tuple[str, ...]:
    first, second = _dig(asked, path), _dig(sent, path)
    shown = first if second is None else second
    ratio = second / first if first and second is not None else None
    return label, plain(first), plain(second), percent(ratio), "" if shown is None else read(shown)


def _dig(found: Mapping[str, Any] | None, path: tuple[str, ...]) -> float | None:
    value: Any = found
    for name in path:
        value = None if value is None else value.get(name)
    return known(value)


def _read_cv(value: float) -> str:
    named = next(
        name
        for bound, name in ((0.3, "even"), (0.85, "regular"), (1.15, "random"), (np.inf, "bursty"))
        if value < bound
    )
    return TEXT[f"read_cv_{named}"]


def _reader(key: str, window: str) -> Callable[[float], str]:
    def read(value: float) -> str:
        return TEXT[key].format(value=plain(value), window=window)

    return read
