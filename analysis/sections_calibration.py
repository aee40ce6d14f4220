"""How `--rate auto` found the mean rate, for the report's settings: the found capacity, and its steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.numbers import count, percent, plain, seconds
from analysis.page import Html, element, table
from analysis.wording_statistics import STATISTICS_TEXT as TEXT


def calibration(found: Mapping[str, Any]) -> list[Html]:
    """A heading, a sentence and a table a step, from run.json's `rate_calibration`; [] where it is empty."""
    capacity_rps, rate_rps = found.get("capacity_rps"), found.get("rate_rps")
    if not capacity_rps or not rate_rps:
        return []
    words = TEXT["calibration_at_least" if found.get("at_least") else "calibration_found"].format(
        capacity=plain(capacity_rps), share=percent(round(rate_rps / capacity_rps, 3)), rate=plain(rate_rps)
    )
    head = TEXT["calibration_head"].split("|")
    rows = (_row(step) for step in found.get("steps", ()))
    return [
        element("h3", TEXT["calibration"]),
        element("p", words, class_="reading"),
        table(head, rows, numeric=range(1, 6), wide=(6,), caption=TEXT["calibration_caption"]),
    ]


def _row(step: Mapping[str, Any]) -> tuple[object, ...]:
    why = step.get("why", "")
    return (
        count(step["in_flight"]),
        plain(step["throughput_rps"]),
        seconds(step["ttft_mean_s"]),
        seconds(step["ttft_p95_s"]),
        seconds(step["tpot_mean_s"]),
        TEXT["calibration_ended"].format(ended=count(step["ended"]), requests=count(step["requests"])),
        why or TEXT["calibration_held"],
    )
