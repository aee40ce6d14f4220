"""DataFrame -> plotly figure, nothing else: no statistics beyond binning, no files, no HTML.

Colours are named, not given: "var(--sent)" stands for the page's CSS variable of that name, and the page puts
in the light or the dark value when it draws. The time line is in analysis.time_line.

Frames of requests have the columns arrival, arrived_at_s, sent_at_s, ended_at_s, ttft_s, tpot_s, outcome,
failure_class and phase ("quiet", "burst" or "recovery"). Frames of bursts have start_s, end_s, recovery_s
(NaN: censored), at_least_s (what is then known of it) and observed_s (how long the burst's aftermath could be
watched).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from analysis import series
from analysis.numbers import seconds
from analysis.wording import TEXT

MOST_NAMED_BURSTS = 16
MOST_ALIGNED = 60
PHASES = ("quiet", "burst", "recovery")

LINES = {
    "gridcolor": "var(--grid)",
    "linecolor": "var(--rule)",
    "tickcolor": "var(--rule)",
    "zeroline": False,
    "automargin": True,
}
LOG_TICKS_S = [digit * 10.0**power for power in range(-5, 5) for digit in (1, 2, 5)]
LOG_SECONDS = {
    "type": "log",
    "tickvals": LOG_TICKS_S,
    "ticktext": [seconds(tick) for tick in LOG_TICKS_S],
    "tickformat": "~s",
    "ticksuffix": "s",
}
"""A logarithmic axis of seconds: ticks at 1, 2 and 5 with their unit; the format serves when it is made
linear.
"""
LEGEND = {"orientation": "h", "x": 0, "xanchor": "left", "yanchor": "bottom", "font": {"size": 12}}
LIMIT_LINE = {"color": "var(--limit)", "dash": "dash", "width": 1.5}


def distribution(requests: pd.DataFrame, column: str, limit_s: float | None) -> go.Figure:
    """ECDF of `column` (seconds), one curve per phase; the SLO's limit as a dashed line."""
    figure = blank_figure(380)
    for phase in PHASES:
        values = requests.loc[requests["phase"] == phase, column].to_numpy(float)
        x, y = series.ecdf(values)
        if len(x):
            figure.add_scatter(
                x=single(x),
                y=single(y),
                name=f"{TEXT[f'phase_{phase}']} (n={int(np.isfinite(values).sum())})",
                line={"color": f"var(--{phase})", "width": 2, "shape": "hv"},
                hovertemplate=f"%{{y:.1%}} ≤ %{{x:.3s}}s<extra>{TEXT[f'phase_{phase}']}</extra>",
            )
    if limit_s is not None:
        limit_line(figure, "x", limit_s)
    figure.update_xaxes(title=TEXT[f"axis_{column}"], **LOG_SECONDS, **LINES)
    figure.update_yaxes(title=TEXT["axis_share"], range=[0, 1.02], tickformat=".0%", **LINES)
    return figure


def bursts_aligned(requests: pd.DataFrame, bursts: pd.DataFrame, ttft_limit_s: float | None) -> go.Figure:
    """Every burst's median TTFT laid over the others from its start on: is one burst like the next?

    Windows of 2 s by arrival, from two windows before each burst to the start of the next.
    """
    figure = blank_figure(380)
    at_s, ttft_s = requests["arrived_at_s"].to_numpy(float), requests["ttft_s"].to_numpy(float)
    starts = [float(start) for start in bursts["start_s"]]
    lead_s = 2 * series.WINDOW_S
    longest_s = float((bursts["end_s"] - bursts["start_s"]).max())
    figure.add_vrect(x0=0, x1=longest_s, fillcolor="var(--burst)", opacity=0.13, line_width=0, layer="below")
    spans = list(zip(starts, [*starts[1:], np.inf], strict=True))[:MOST_ALIGNED]
    for number, (start_s, next_s) in enumerate(spans):
        part = (at_s >= start_s - lead_s) & (at_s < next_s)
        seen = series.windowed(at_s[part] - start_s + lead_s, ttft_s[part])
        figure.add_scatter(
            x=single(seen.middle_s - lead_s),
            y=single(seen.p50),
            mode="lines+markers",
            name=TEXT["burst_number"].format(number=number + 1),
            showlegend=len(starts) <= MOST_NAMED_BURSTS,
            line={"color": f"var(--c{number % 6 + 1})", "width": 1.6},
            marker={"size": 5},
            connectgaps=True,
            hovertemplate="%{y:.3s}s<extra>%{fullData.name}</extra>",
        )
    if ttft_limit_s is not None:
        limit_line(figure, "y", ttft_limit_s)
    figure.update_xaxes(title=TEXT["axis_since_burst"], **LINES)
    figure.update_yaxes(title=TEXT["axis_ttft_median"], **LOG_SECONDS, **LINES)
    return figure


def blank_figure(height: int) -> go.Figure:
    return go.Figure(
        layout={
            "template": "none",
            "height": height,
            "margin": {"l": 70, "r": 16, "t": 48, "b": 52},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"color": "var(--ink)", "size": 13, "family": "var(--sans)"},
            "hoverlabel": {
                "bgcolor": "var(--panel)",
                "bordercolor": "var(--rule)",
                "font": {"color": "var(--ink)"},
            },
            "legend": {**LEGEND, "y": 1.01},
            "showlegend": True,
            "modebar": {
                "bgcolor": "rgba(0,0,0,0)",
                "color": "var(--soft)",
                "activecolor": "var(--ink)",
            },
        }
    )


def limit_line(figure: go.Figure, axis: str, limit_s: float) -> None:
    """A dashed line with its name at the SLO's limit; shapes on a log axis take the value, notes its
    logarithm.
    """
    upright = axis == "x"
    position = {"x": "x", "y": "y"}[axis[0]]
    other = "y" if upright else "x"
    figure.add_shape(
        type="line",
        line=LIMIT_LINE,
        **{f"{position}ref": axis, f"{position}0": limit_s, f"{position}1": limit_s},
        **{f"{other}ref": "paper", f"{other}0": 0, f"{other}1": 1},
    )
    figure.add_annotation(
        text=TEXT["slo_limit"].format(limit=seconds(limit_s)),
        showarrow=False,
        font={"size": 12, "color": "var(--limit)"},
        bgcolor="var(--panel)",
        borderpad=1,
        **{f"{position}ref": axis, position: float(np.log10(limit_s))},
        **{f"{other}ref": "paper", other: 0.02 if upright else 1},
        xanchor="left" if upright else "right",
        yanchor="bottom",
    )


def single(values: Any) -> npt.NDArray[np.float32]:
    """Single precision: 7 digits are enough for a picture and halve the page."""
    return np.asarray(values, dtype=np.float32)
