"""What the report says of intervals: words for the SLO section and the first tile, from the summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.numbers import percent, plain
from analysis.wording_statistics import STATISTICS_TEXT as TEXT


def by_burst_words(slo: Mapping[str, Any]) -> list[str]:
    """A sentence for each interval that counts bursts, or why there is none; [] for a run without bursts."""
    found = slo["by_burst"]
    if found is None:
        return []
    said = [
        TEXT[f"by_burst_{part}"].format(
            low=percent(row["low"]),
            high=percent(row["high"]),
            bursts=row["bursts"],
            effect=plain(row["design_effect"]),
        )
        if row["why_none"] is None
        else TEXT["by_burst_none"].format(why=row["why_none"])
        for part, row in ((part, found[part]) for part in ("burst", "whole"))
    ]
    if any(row["few"] for row in (found["burst"], found["whole"])):
        said.append(TEXT["by_burst_few"])
    return list(dict.fromkeys(said))


def attainment_bounds(slo: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """The interval to show of the whole run's attainment: the one that counts bursts where there is one."""
    found = slo["by_burst"]
    row = found["whole"] if found and found["whole"]["low"] is not None else slo["attainment"]["whole"]
    return row["low"], row["high"]


def bursts_interval_note(slo: Mapping[str, Any]) -> str:
    """For the first tile: the interval, over bursts, of the attainment in them; "" where there is none."""
    row = (slo["by_burst"] or {}).get("burst")
    if not row or row["low"] is None:
        return ""
    return TEXT["tile_by_burst"].format(low=percent(row["low"]), high=percent(row["high"]))
