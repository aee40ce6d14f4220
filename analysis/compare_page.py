"""Comparisons -> one self-contained HTML page: the sentence, the figures, each burst's difference, both
TTFTs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from analysis import series
from analysis.alike import Side
from analysis.charts import LINES, LOG_SECONDS, blank_figure, single
from analysis.compare import Comparison, Row
from analysis.compare_words import cells, head, how, label, sentence
from analysis.metrics import decided
from analysis.page import Html, Section, element, figure, join, page, table
from analysis.phases import burst_windows
from analysis.table import side_by_side
from analysis.wording_compare import COMPARE_TEXT

COLOURS = ("--quiet", "--burst", "--c3", "--c4", "--c5", "--c6")
DASHES = ("solid", "dash", "dot", "dashdot")
ROW_HEIGHT = 150


def comparison_page(base: Side, candidates: Sequence[Side], found: Sequence[Comparison]) -> str:
    """The page as the text of one HTML file that needs no network."""
    sides = [base, *candidates]
    sections = [_figures(number, one) for number, one in enumerate(found)]
    sections += [_per_block(number, one) for number, one in enumerate(found)]
    sections += [_over_time(sides), _distribution(sides), _whole(sides)]
    header = join(
        [
            element("h1", COMPARE_TEXT["page_title"].format(base=base.name)),
            *(element("p", sentence(one), class_="answer") for one in found),
            *_allowed(found),
        ]
    )
    return page(COMPARE_TEXT["page_title"].format(base=base.name), header, sections)


def _allowed(found: Sequence[Comparison]) -> list[Html]:
    items = [
        element("li", COMPARE_TEXT["allowed"].format(key=key, what=what))
        for one in found
        for key, what in one.allowed.items()
    ]
    return [element("ul", *items, class_="reasons warn")] if items else []


def _named(key: str, number: int, found: Comparison) -> tuple[str, str]:
    """Anchor and heading of a candidate's section."""
    title = COMPARE_TEXT["title"].format(candidate=found.candidate, base=found.base)
    return f"{key}-{number + 1}", f"{COMPARE_TEXT[key]}: {title}"


def _figures(number: int, found: Comparison) -> Section:
    key, title = _named("figures", number, found)
    rows = [cells(found, row) for row in found.rows]
    return Section(
        key,
        title,
        join(
            [
                table(head(found), rows, numeric=range(1, 6), wide=(6,), caption=found.candidate),
                element("p", how(found), class_="note"),
            ]
        ),
    )


def _per_block(number: int, found: Comparison) -> Section:
    key, title = _named("per_block", number, found)
    unit = COMPARE_TEXT[f"unit_{found.by}"]
    title = title.format(unit=unit)
    rows = [row for row in found.rows if row.finding != "equal"]
    figures = {f"{key}-{row.key}": _differences(found, row) for row in rows}
    slots = [
        figure(
            f"{key}-{row.key}",
            ROW_HEIGHT + 90,
            COMPARE_TEXT["per_block_caption"].format(
                label=label(found, row.key), way=COMPARE_TEXT[f"way_{row.better}"]
            ),
        )
        for row in rows
    ]
    told = element("p", COMPARE_TEXT["per_block_how"].format(unit=unit), class_="note")
    return Section(key, title, join([told, *slots]), figures)


def _differences(found: Comparison, row: Row) -> go.Figure:
    """A dot per block, the shift as a line, its interval as a band; seconds, or points for ratios."""
    scale = 100.0 if row.unit == "ratio" else 1.0
    made = blank_figure(ROW_HEIGHT + 90)
    values = np.array(row.differences, dtype=float) * scale
    finite = np.isfinite(values)
    low, high = row.shift.low, row.shift.high
    if low is not None and high is not None and np.isfinite([low, high]).all():
        made.add_hrect(
            y0=low * scale,
            y1=high * scale,
            fillcolor="var(--quiet)",
            opacity=0.15,
            line_width=0,
            layer="below",
        )
    made.add_hline(y=0, line={"color": "var(--soft)", "width": 1})
    if row.shift.shift is not None and np.isfinite(row.shift.shift):
        made.add_hline(y=row.shift.shift * scale, line={"color": "var(--quiet)", "width": 2})
    made.add_scatter(
        x=np.arange(1, len(values) + 1)[finite],
        y=single(values[finite]),
        mode="markers",
        showlegend=False,
        marker={"size": 8, "color": "var(--burst)", "line": {"width": 1, "color": "var(--panel)"}},
        hovertemplate="%{x}: %{y:+.3~s}<extra></extra>",
    )
    unit = COMPARE_TEXT[f"unit_{found.by}"]
    made.update_xaxes(title=COMPARE_TEXT["number_axis"].format(unit=unit), **LINES)
    suffix = {"ticksuffix": " pt"} if row.unit == "ratio" else {"tickformat": "~s", "ticksuffix": "s"}
    made.update_yaxes(**suffix, **LINES)
    return made


def _distribution(sides: Sequence[Side]) -> Section:
    made = blank_figure(400)
    for number, side in enumerate(sides):
        load = side.run.load
        judged = load[decided(load)]
        good = np.sort(judged.loc[judged["outcome"] == "succeeded", "ttft_s"].dropna().to_numpy(float))
        x, y = series.ecdf(good)
        share = len(good) / len(judged) if len(judged) else 0.0
        made.add_scatter(
            x=single(x),
            y=single(np.asarray(y) * share),
            name=side.name,
            line={"color": f"var({_colour(number)})", "width": 2, "shape": "hv", "dash": _dash(number)},
        )
    made.update_xaxes(title=COMPARE_TEXT["ecdf_axis"], **LOG_SECONDS, **LINES)
    made.update_yaxes(title=COMPARE_TEXT["share_axis"], range=[0, 1.02], tickformat=".0%", **LINES)
    slot = figure("ecdf", 400, COMPARE_TEXT["ecdf_caption"], "xaxis")
    return Section("distribution", COMPARE_TEXT["ecdf"], slot, {"ecdf": made})


def _over_time(sides: Sequence[Side]) -> Section:
    made = blank_figure(380)
    for start_s, end_s in burst_windows(sides[0].run.info.bursts):
        made.add_vrect(
            x0=start_s, x1=end_s, fillcolor="var(--burst)", opacity=0.13, line_width=0, layer="below"
        )
    for number, side in enumerate(sides):
        load = side.run.load
        seen = series.windowed(load["arrived_at_s"].to_numpy(float), load["ttft_s"].to_numpy(float))
        made.add_scatter(
            x=single(seen.middle_s),
            y=single(seen.p50),
            mode="lines",
            name=side.name,
            line={"color": f"var({_colour(number)})", "width": 1.8, "dash": _dash(number)},
            hovertemplate="%{y:.3s}s<extra>%{fullData.name}</extra>",
        )
    made.update_xaxes(title=COMPARE_TEXT["time_axis"], **LINES)
    made.update_yaxes(title=COMPARE_TEXT["ecdf_axis"], **LOG_SECONDS, **LINES)
    slot = figure("over-time", 380, COMPARE_TEXT["over_time_caption"], "yaxis")
    return Section("over-time-section", COMPARE_TEXT["over_time"], slot, {"over-time": made})


def _whole(sides: Sequence[Side]) -> Section:
    text = side_by_side([side.summary for side in sides])
    return Section(
        "whole",
        COMPARE_TEXT["whole"],
        join([element("p", COMPARE_TEXT["whole_caption"], class_="note"), element("pre", text)]),
    )


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _dash(number: int) -> str:
    return DASHES[number % len(DASHES)]
