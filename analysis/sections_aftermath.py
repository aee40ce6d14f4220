"""What each burst left behind, for the section on bursts: one sentence, and a table behind a click."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.numbers import UNKNOWN, count, known, plain, seconds
from analysis.page import Html, element, join, noted, table
from analysis.wording_statistics import STATISTICS_TEXT as TEXT

MOST_ROWS = 500


def aftermath(summary: Mapping[str, Any]) -> Html:
    """The medians over bursts in words, and a row a burst: backlog, drain, area under degradation."""
    head = TEXT["aftermath_head"].split("|")
    queue = any(_queue_known(burst) for burst in summary["bursts"])
    if queue:
        head.append(TEXT["aftermath_queue_head"])
    rows = [_row(burst, queue) for burst in summary["bursts"][:MOST_ROWS]]
    shown = table(head, rows, numeric=range(1, len(head)), caption=TEXT["aftermath_caption"])
    return join(
        [
            element("p", _medians(summary["recovery"]), class_="reading"),
            element("details", element("summary", TEXT["aftermath"]), shown),
        ]
    )


def _medians(recovery: Mapping[str, Any]) -> str:
    found = recovery["over_bursts"]
    several = recovery["n"] > 1
    said = []
    for key, write in (("backlog_at_end", plain), ("drain_s", seconds), ("degraded_request_s", plain)):
        row = found[key]
        if row["n"]:
            words = TEXT[f"aftermath_{key}"].format(value=write(row["median"]))
            spread = TEXT["aftermath_range"].format(low=write(row["low"]), high=write(row["high"]))
            said.append(words + (spread if several and row["low"] != row["high"] else ""))
    left = TEXT["aftermath_several" if several else "aftermath_one"].format(what="; ".join(said))
    times = [
        TEXT["amplified_at"].format(quantile=name, times=plain(ratio))
        for name, ratio in recovery["amplification"].items()
        if ratio is not None
    ]
    return " ".join(
        [*([left] if said else []), *([TEXT["amplified"].format(times=", ".join(times))] if times else [])]
    )


def _row(burst: Mapping[str, Any], queue: bool) -> tuple[object, ...]:
    lost = burst["lost_requests"]
    area = noted(
        plain(burst["degraded_request_s"]),
        TEXT["aftermath_lost"].format(lost=count(lost))
        if lost and burst["degraded_requests"] is not None
        else "",
    )
    return (
        str(burst["index"] + 1),
        count(burst["backlog_at_end"]),
        _or_least(burst["drain_s"], burst["drain_at_least_s"]),
        UNKNOWN if burst["degraded_requests"] is None else count(burst["degraded_requests"]),
        area,
        *([_or_least(burst["queue_drain_s"], burst["queue_drain_at_least_s"])] if queue else []),
    )


def _queue_known(burst: Mapping[str, Any]) -> bool:
    return burst["queue_drain_s"] is not None or burst["queue_drain_at_least_s"] is not None


def _or_least(value_s: float | None, least_s: float | None) -> str:
    if value_s is None and known(least_s) is not None:
        return TEXT["aftermath_least"].format(time=seconds(least_s))
    return seconds(value_s)
