"""The report's parts about groups of requests: by name, tenant, prompt length; who hurts whom; token flow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.load import Run
from analysis.numbers import UNKNOWN, count, percent, seconds
from analysis.page import Html, Section, element, join, noted, table
from analysis.tiles import quantile_text
from analysis.wording import TEXT
from analysis.wording_groups import GROUPS_TEXT as WORDS


def groups(run: Run, summary: Mapping[str, Any]) -> Section | None:
    """A table for each way of grouping that has two groups or more; None without any."""
    parts = [
        table(WORDS["head"].split("|"), map(_row, rows), range(1, 9), caption=WORDS[way])
        for way, rows in summary["groups"].items()
        if rows
    ]
    if summary["tenants"]:
        rows = [_tenant(row) for row in summary["tenants"]]
        parts.append(table(WORDS["tenants_head"].split("|"), rows, range(1, 9), caption=WORDS["tenants"]))
        parts.append(element("p", WORDS["tenants_note"], class_="note"))
    return Section("groups", WORDS["title"], join(parts)) if parts else None


def flow(run: Run, summary: Mapping[str, Any]) -> Section | None:
    """Token deadlines missed, whole and by phase, and the gaps of all answers; None without both."""
    parts: list[Html] = []
    found, gaps = summary["fluidity"], summary["chunk_gaps"]
    if found["deadlines"]:
        parts.append(element("p", _deadlines_told(found), class_="note"))
        rows = [
            _flow_row(TEXT[f"phase_{phase}"], part)
            for phase, part in (
                ("whole", found),
                *((name, found[name]) for name in ("quiet", "burst", "recovery")),
            )
            if part and part["deadlines"]
        ]
        parts.append(table(WORDS["flow_head"].split("|"), rows, range(1, 5), caption=WORDS["flow_caption"]))
    if gaps["n"]:
        note = WORDS["gaps_note"].format(note=gaps["note"]) if gaps["note"] else ""
        told = WORDS["gaps"].format(
            p50=seconds(gaps["p50_s"]),
            p99=seconds(gaps["p99_s"]),
            longest=seconds(gaps["max_s"]),
            n=count(gaps["n"]),
            note=note,
        )
        parts.append(element("p", told))
    return Section("flow", WORDS["flow"], join(parts)) if parts else None


def _row(row: Mapping[str, Any]) -> list[object]:
    return [
        row["group"],
        count(row["requests"]),
        percent(row["error_ratio"]),
        *(quantile_text(row["ttft"][name]) for name in ("p50", "p95", "p99")),
        *(quantile_text(row["tpot_s"][name]) for name in ("p50", "p95")),
        _attained(row["attainment"]),
    ]


def _tenant(row: Mapping[str, Any]) -> list[object]:
    times = [row[name] for name in ("quiet", "others", "own")]
    return [
        row["tenant"],
        count(row["requests"]),
        count(row["bursts"]),
        *(quantile_text(part["ttft"]["p95"]) for part in times),
        *(_attained(part["attainment"]) for part in times),
    ]


def _attained(part: Mapping[str, Any] | None) -> Html | str:
    if part is None or part["ratio"] is None:
        return UNKNOWN
    return noted(
        percent(part["ratio"]),
        WORDS["interval"].format(low=percent(part["low"]), high=percent(part["high"])),
    )


def _deadlines_told(found: Mapping[str, Any]) -> str:
    first = found["first_deadline_s"]
    told = WORDS["flow_no_first"] if first is None else WORDS["flow_first"].format(limit=seconds(first))
    return WORDS["flow_note"].format(first=told, deadline=seconds(found["deadline_s"]))


def _flow_row(name: str, part: Mapping[str, Any]) -> list[object]:
    return [
        name,
        count(part["requests"]),
        count(part["deadlines"]),
        percent(part["missed_ratio"]),
        percent(part["fluid_ratio"]),
    ]
