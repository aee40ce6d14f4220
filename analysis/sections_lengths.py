"""The report's section about lengths: tokens asked beside tokens that came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.load import Run
from analysis.numbers import count, known, percent, plain
from analysis.page import Html, Section, element, join, table
from analysis.wording import TEXT


def lengths(run: Run, summary: Mapping[str, Any]) -> Section:
    """A row for prompts and one for answers."""
    rows = [
        (
            TEXT[f"lengths_{side}"],
            count(found["n"]),
            plain(found["asked_mean"]),
            plain(found["got_mean"]),
            plain(found["asked_median"]),
            plain(found["got_median"]),
            percent(found["off_by_more_than_5_percent_ratio"]),
        )
        for side, found in summary["lengths"].items()
    ]
    made = table(TEXT["lengths_head"].split("|"), rows, numeric=range(1, 7), caption=TEXT["lengths_caption"])
    return Section("lengths", TEXT["lengths"], join([made, *_ends(summary)]))


def _ends(summary: Mapping[str, Any]) -> list[Html]:
    """How answers ended, and how many tokens an event held; nothing where the server said neither."""
    reasons = [
        TEXT["finish_reason"].format(count=count(number), reason=reason)
        for reason, number in summary["finish_reasons"].items()
    ]
    said = [TEXT["finish_reasons"].format(reasons=", ".join(reasons))] if reasons else []
    per_event = known(summary["tokens"]["tokens_per_event"])
    if per_event is not None:
        said.append(TEXT["tokens_per_event"].format(tokens=plain(per_event)))
    return [element("p", " ".join(said), class_="reading")] if said else []
