"""The rows of the time line: y axes stacked above each other on a single x axis, a legend above each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from analysis.charts import LEGEND, LINES, blank_figure, single
from analysis.wording import TEXT

AXIS = {"rate": "y", "in_flight": "y2", "ttft": "y3", "failures": "y4", "server": "y5", "kv": "y6"}
"""The rows from top to bottom and the y axis of each."""

FULL_HEIGHT_PX = 900
LEGEND_PX = 52
LONG_LEGEND_PX = 70
"""Of the TTFT row: on paper its legend takes two lines."""


def stacked_rows(heights: Mapping[str, float], end_s: float) -> go.Figure:
    """An empty time line from 0 to `end_s`: each row of `heights` with its share of FULL_HEIGHT_PX.

    The shares need not add up to 1; what is above makes the figure taller.
    """
    figure = blank_figure(int(FULL_HEIGHT_PX * sum(heights.values())))
    figure.layout.margin.t = 8
    inner = figure.layout.height - figure.layout.margin.t - figure.layout.margin.b
    gaps = {row: (LONG_LEGEND_PX if row == "ttft" else LEGEND_PX) / inner for row in heights}
    scale = (1 - sum(gaps.values())) / sum(heights.values())
    top = 1.0
    for row, height in heights.items():
        top -= gaps[row]
        bottom = max(0.0, top - height * scale)
        figure.layout[layout_axis(row)] = {
            **LINES,
            "domain": [bottom, top],
            "anchor": "x",
            "rangemode": "tozero",
            "fixedrange": row != "ttft",
        }
        figure.layout[legend_of(row)] = {**LEGEND, "y": top + 4 / inner}
        top = bottom
    figure.layout.xaxis = {
        **LINES,
        "title_text": TEXT["axis_time"],
        "range": [0, end_s],
        "anchor": AXIS[list(heights)[-1]],
        "showspikes": True,
        "spikemode": "across",
        "spikesnap": "cursor",
        "spikethickness": 1,
        "spikecolor": "var(--rule)",
        "spikedash": "solid",
    }
    figure.layout.hovermode = "closest"
    return figure


def add_line(
    figure: go.Figure,
    row: str,
    name: str,
    x: Any,
    y: Any,
    line: Mapping[str, Any],
    shape: str = "hv",
    **more: Any,
) -> None:
    """A line in `row`, named TEXT["line_<name>"]; steps unless `shape` says otherwise."""
    usual = {"hovertemplate": "%{y:.3~f}<extra>%{fullData.name}</extra>"}
    figure.add_scatter(
        x=single(x),
        y=single(y),
        mode="lines",
        line={"shape": shape, **line},
        name=TEXT[f"line_{name}"],
        yaxis=AXIS[row],
        legend=legend_of(row),
        **(usual | more),
    )


def layout_axis(row: str) -> str:
    """The key of a row's y axis in a figure's layout."""
    return f"yaxis{AXIS[row][1:]}"


def legend_of(row: str) -> str:
    """The name of a row's legend."""
    return f"legend{AXIS[row][1:]}"
