"""Marks on the time line: bursts with what followed them, client-bound windows, and events."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis.charts import single
from analysis.numbers import seconds
from analysis.wording import TEXT

MOST_NOTED_BURSTS = 16
MOST_MARKED_BURSTS = 300
MOST_MARKED_EVENTS = 100
MOST_CLIENT_BOUND = 300
MOST_HOVER_LINES = 6
LONGEST_HOVER = 160
ALWAYS_MARKED = ("worker_lost", "amendment")


def mark_bursts(figure: go.Figure, bursts: pd.DataFrame) -> None:
    """Shade each burst over all rows and its recovery in the TTFT row, with its seconds if there is room."""
    across = {"xref": "x", "yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
    beside = {"xref": "x", "yref": "y3 domain", "y0": 0, "y1": 1, "layer": "below", "line_width": 0}
    shapes: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    for burst in bursts.head(MOST_MARKED_BURSTS).to_dict("records"):
        salvo = burst["start_s"] == burst["end_s"]
        line = {"width": 2 if salvo else 0, "color": "var(--burst)"}
        span = {"x0": burst["start_s"], "x1": burst["end_s"], "line": line, "opacity": 0.6 if salvo else 0.13}
        shapes.append({**across, **span, "fillcolor": "var(--burst)"})
        censored = bool(np.isnan(burst["recovery_s"]))
        after_s = burst["observed_s"] if censored else burst["recovery_s"]
        colour = "var(--censored)" if censored else "var(--recovery)"
        shapes.append(
            {
                **beside,
                "x0": burst["end_s"],
                "x1": burst["end_s"] + after_s,
                "fillcolor": colour,
                "opacity": 0.18,
            }
        )
        notes.append(
            {"x": burst["end_s"] + after_s / 2, "text": _mark(burst), "yref": "y3 domain", "y": 0.99}
        )
    figure.update_layout(shapes=[*figure.layout.shapes, *shapes])
    if len(notes) <= MOST_NOTED_BURSTS:
        style = {
            "xref": "x",
            "showarrow": False,
            "yanchor": "top",
            "font": {"size": 12, "color": "var(--ink)"},
        }
        figure.update_layout(annotations=[*figure.layout.annotations, *({**style, **note} for note in notes)])


def _mark(burst: Mapping[Any, Any]) -> str:
    if not np.isnan(burst["recovery_s"]):
        return TEXT["mark_recovered"].format(time=seconds(burst["recovery_s"]))
    if burst["at_least_s"] > 0:
        return TEXT["mark_censored"].format(time=seconds(burst["at_least_s"]))
    return TEXT["mark_not_seen"]


def mark_client_bound(figure: go.Figure, windows: pd.DataFrame, axis: str, legend: str) -> None:
    """A hatched band in the row of `axis` over each window, and a plain grey one through all rows.

    The hatching lies on an axis of its own over that row, from 0 to 1, so that neither zooming nor a
    logarithmic scale moves it. Of very many windows the longest are marked.
    """
    if windows.empty:
        return
    longest = (windows["end_s"] - windows["start_s"]).sort_values(ascending=False, kind="stable").index
    shown = windows.loc[longest[:MOST_CLIENT_BOUND]].sort_values("start_s", kind="stable")
    figure.layout.yaxis9 = {
        "overlaying": axis,
        "anchor": "x",
        "range": [0, 1],
        "fixedrange": True,
        "visible": False,
    }
    figure.add_bar(
        x=single((shown["start_s"] + shown["end_s"]) / 2),
        y=np.ones(len(shown)),
        width=single(shown["end_s"] - shown["start_s"]),
        customdata=[
            TEXT["client_bound_hover"].format(
                start=f"{row['start_s']:g}",
                end=f"{row['end_s']:g}",
                why="<br>".join(html.escape(why) for why in row["why"][:MOST_HOVER_LINES]),
            )
            for row in shown.to_dict("records")
        ],
        marker={
            "color": "rgba(0,0,0,0)",
            "line": {"width": 0},
            "pattern": {
                "shape": "/",
                "fgcolor": "var(--client-bound)",
                "bgcolor": "rgba(0,0,0,0)",
                "size": 9,
                "solidity": 0.1,
                "fgopacity": 0.65,
            },
        },
        name=TEXT["bars_client_bound"],
        yaxis="y9",
        legend=legend,
        hovertemplate="%{customdata}<extra></extra>",
    )
    across = {"type": "rect", "xref": "x", "yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
    fill = {"fillcolor": "var(--client-bound)", "opacity": 0.1, "line_width": 0}
    shapes = [{**across, **fill, "x0": row.start_s, "x1": row.end_s} for row in shown.itertuples()]
    figure.update_layout(shapes=[*figure.layout.shapes, *shapes])


def mark_events(figure: go.Figure, events: pd.DataFrame, axis: str, legend: str) -> None:
    """A dashed line across all rows and a point with its text at the foot of `axis` for each event.

    Of very many, those that change the verdict and the first of the others.
    """
    known = events[events["at_s"].notna()]
    first = known["kind"].isin(ALWAYS_MARKED).sort_values(ascending=False, kind="stable").index
    shown = known.loc[first[:MOST_MARKED_EVENTS]].sort_values("at_s", kind="stable")
    if shown.empty:
        return
    at_s = single(shown["at_s"])
    texts = shown["text"].fillna(shown["kind"]).fillna(TEXT["unnamed"])
    figure.add_scatter(
        x=at_s,
        y=np.zeros(len(at_s)),
        customdata=[html.escape(str(text)[:LONGEST_HOVER]) for text in texts],
        mode="markers",
        marker={"color": "var(--limit)", "size": 9, "symbol": "triangle-up"},
        name=TEXT["dots_event"],
        yaxis=axis,
        legend=legend,
        hovertemplate=TEXT["hover_event"],
    )
    line = {"color": "var(--limit)", "width": 1, "dash": "dash"}
    across = {"type": "line", "xref": "x", "yref": "paper", "y0": 0, "y1": 1, "line": line, "opacity": 0.7}
    shapes = [{**across, "x0": float(moment), "x1": float(moment)} for moment in at_s]
    figure.update_layout(shapes=[*figure.layout.shapes, *shapes])
