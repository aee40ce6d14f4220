"""DataFrame -> plotly figure, nothing else: no statistics beyond binning, no files, no HTML.

Colours are named, not given: "var(--sent)" stands for the page's CSS variable of that name, and the page puts
in the light or the dark value when it draws. The time line is in analysis.time_line.

Frames of requests have the columns arrival, arrived_at_s, sent_at_s, ended_at_s, ttft_s, tpot_s, outcome,
failure_class and phase ("quiet", "burst" or "recovery"). Frames of bursts have start_s, end_s, recovery_s
(NaN: censored), at_least_s (what is then known of it), observed_s (how long the burst's aftermath could be
watched), threshold_s and peak_ttft_s.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from analysis import series
from analysis.numbers import count, percent, seconds
from analysis.wording import TEXT

PHASES = ("quiet", "burst", "recovery")
SYMBOL = {"quiet": "circle", "burst": "square", "recovery": "triangle-up"}
DASH = {"quiet": "solid", "burst": "dash", "recovery": "dot"}
"""Marks and lines of the phases: nothing is told by colour alone."""
PATTERNS = ("", "/", "x", "-", ".", "|")
"""Fillings of stacked bars, one a class."""

LINES = {
    "title_font_size": 13,
    "gridcolor": "var(--grid)",
    "linecolor": "var(--rule)",
    "tickcolor": "var(--rule)",
    "zeroline": False,
    "automargin": True,
}
_TICKS_S = [digit * 10.0**power for power in range(-5, 5) for digit in (1, 2, 5)]
LOG_SECONDS = {
    "type": "log",
    "tickvals": _TICKS_S,
    "ticktext": [seconds(tick) for tick in _TICKS_S],
    "tickformat": "~s",
    "ticksuffix": "s",
}
"""A logarithmic axis of seconds as wide as its values: ticks at 1, 2 and 5 with their unit; the format serves
when it is made linear. `log_seconds` is one of a given width.
"""
MOST_TICKS = 9


def log_seconds(low_s: float, high_s: float, most: int = MOST_TICKS) -> dict[str, Any]:
    """A logarithmic axis of seconds from `low_s` to `high_s` with a little room: ticks with their unit, as
    dense as `most` of them allow. The format serves when it is made linear.
    """
    low_s, high_s = max(low_s, 1e-5) / 1.3, max(high_s, 1e-5) * 1.3
    if high_s / low_s < 4:
        middle = float(np.sqrt(low_s * high_s))
        low_s, high_s = middle / 2, middle * 2
    for digits in ((1, 2, 5), (1, 3), (1,)):
        ticks = [digit * 10.0**power for power in range(-6, 6) for digit in digits]
        if sum(low_s <= tick <= high_s for tick in ticks) <= most:
            break
    return {
        "type": "log",
        "range": [float(np.log10(low_s)), float(np.log10(high_s))],
        "autorangeoptions": {"clipmax": high_s},
        "tickvals": ticks,
        "ticktext": [seconds(tick) for tick in ticks],
        "tickangle": 0,
        "tickformat": "~s",
        "ticksuffix": "s",
    }


def span_of(*values: npt.ArrayLike) -> tuple[float, float]:
    """The lowest and highest of all known values above zero; 10 ms to 1 s where there are none."""
    every = np.concatenate([np.asarray(part, dtype=float).ravel() for part in values])
    every = every[np.isfinite(every) & (every > 0)]
    return (float(every.min()), float(every.max())) if len(every) else (0.01, 1.0)


LEGEND = {"orientation": "h", "x": 0, "xanchor": "left", "yanchor": "bottom", "font": {"size": 12}}
LIMIT_LINE = {"color": "var(--limit)", "dash": "dash", "width": 1.5}


def distribution(requests: pd.DataFrame, column: str, limit_s: float | None) -> go.Figure:
    """ECDF of `column` (seconds) by phase, over `requests` that were decided, with a row for each failure.

    A curve is of the successes but counts the failures as never done, so it ends below 1 by their share; at
    the SLO's limit, a dashed line, its legend says the share within it.
    """
    figure = blank_figure(360)
    phases = [phase for phase in PHASES if (requests["phase"] == phase).any()]
    lengths: list[npt.ArrayLike] = [[] if limit_s is None else [limit_s]]
    succeeded = (requests["outcome"] == "succeeded").to_numpy()
    for phase in phases:
        name = TEXT[f"phase_{phase}" if len(phases) > 1 else "phase_whole"]
        of_phase = (requests["phase"] == phase).to_numpy()
        values = requests.loc[of_phase & succeeded, column].to_numpy(float)
        lengths.append(values)
        lost = int((of_phase & ~succeeded).sum())
        x, y = series.ecdf(values)
        if not len(x):
            continue
        n = int(np.isfinite(values).sum())
        within = None if limit_s is None else float((values <= limit_s).sum()) / (n + lost)
        figure.add_scatter(
            x=single(x),
            y=single(y * (n / (n + lost))),
            name=_curve_name(name, n + lost, within, limit_s),
            line={
                "color": f"var(--{phase})",
                "width": 2,
                "shape": "hv",
                "dash": DASH[phase] if len(phases) > 1 else "solid",
            },
            hovertemplate=f"%{{y:.1%}} ≤ %{{x:.3s}}s<extra>{name}</extra>",
        )
    scale = log_seconds(*span_of(*lengths), most=6)
    if limit_s is not None:
        limit_line(figure, "x", limit_s, to_the_left=float(np.log10(limit_s)) > np.mean(scale["range"]))
    figure.update_xaxes(title_text=TEXT[f"axis_{column}"], **scale, **LINES)
    figure.update_yaxes(title_text=TEXT["axis_share"], range=[0, 1.02], tickformat=".0%", **LINES)
    figure.layout.margin.t = 20 + 20 * len(figure.data)
    figure.layout.legend.orientation = "v"
    return figure


def _curve_name(name: str, n: int, within: float | None, limit_s: float | None) -> str:
    if within is None:
        return TEXT["curve"].format(name=name, n=count(n))
    return TEXT["curve_at_limit"].format(name=name, share=percent(within), limit=seconds(limit_s), n=count(n))


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


def limit_line(figure: go.Figure, axis: str, limit_s: float, to_the_left: bool = False) -> None:
    """A dashed line with its name at the SLO's limit; shapes on a log axis take the value, notes its
    logarithm. `to_the_left`: where the name of an upright line stands.
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
        xanchor="left" if upright and not to_the_left else "right",
        yanchor="bottom",
    )


def single(values: Any) -> npt.NDArray[np.float32]:
    """Single precision: 7 digits are enough for a picture and halve the page."""
    return np.asarray(values, dtype=np.float32)
