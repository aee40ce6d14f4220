"""A Locust history -> one figure: users, what ended per second, response times and failures over time.

Gaps are gaps: where nothing ended there is no response time. Percentiles are drawn only where the file has
them of a window; those since the start say nothing about a moment.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import plotly.graph_objects as go

from analysis.charts import LINES, blank_figure, single
from analysis.csv_wording import TEXT
from analysis.locust_bursts import CsvBurst
from analysis.locust_history import Floats, History

MOST_POINTS = 2000
HEIGHT = 620
HEIGHTS = {"y": 24, "y2": 21, "y3": 26, "y4": 13}
"""Users, rate, response times, failures from top to bottom: each axis and its height; without data, none."""
GAP = 0.05
PERCENTILE_LINES = (("var(--sent)", "solid"), ("var(--sent)", "dot"))


def history_figure(history: History, bursts: tuple[CsvBurst, ...], mixed: bool) -> go.Figure:
    """The course of a run; `bursts` are shaded. `mixed`: the counts hold metric events too, so that the mean
    would be one of seconds and tokens and is left out."""
    figure = blank_figure(HEIGHT)
    parts = list(_thinned(history, MOST_POINTS))
    at_s = history.at_s - history.at_s[0]
    x = np.array([at_s[part][-1] for part in parts])
    span_s = np.diff(history.at_s, prepend=np.nan)

    def highest(values: Floats) -> Floats:
        return np.array(
            [np.nanmax(values[part]) if np.isfinite(values[part]).any() else np.nan for part in parts]
        )

    def rate(counts: Floats) -> Floats:
        """Counts over the time that they took; the first row ends no interval."""
        found = [(counts[part].sum(), np.nansum(span_s[part])) for part in parts]
        return np.array([n / seconds if seconds > 0 else np.nan for n, seconds in found])

    def mean() -> Floats:
        weights = np.where(np.isfinite(history.mean_ms), history.new, 0.0)
        sums = np.nan_to_num(history.mean_ms) * weights
        found = [(sums[part].sum(), weights[part].sum()) for part in parts]
        return np.array([ms / n if n > 0 else np.nan for ms, n in found])

    def line(axis: str, name: str, y: Floats, colour: str, **more: object) -> None:
        if np.isfinite(y).any():
            figure.add_scatter(
                x=single(x),
                y=single(y),
                name=name,
                yaxis=axis,
                line={"color": colour, "width": 1.8, **more},
                mode="lines+markers" if len(x) <= 400 else "lines",
                marker={"size": 4},
                connectgaps=False,
                hovertemplate=f"%{{y:.4~g}} at %{{x:.0f}} s<extra>{name}</extra>",
            )

    line("y", TEXT["line_users"], highest(history.users), "var(--in-flight)", shape="hv")
    line("y2", TEXT["line_rate"], rate(history.new), "var(--finished)", shape="vh")
    if not mixed:
        line("y3", TEXT["line_mean"], mean(), "var(--recovery)")
    for (level, values), (colour, dash) in zip(
        history.percentiles_ms.items(), PERCENTILE_LINES, strict=False
    ):
        line("y3", TEXT["line_percentile"].format(level=f"p{level:g}"), highest(values), colour, dash=dash)
    line("y4", TEXT["line_failures"], rate(history.new_failures), "var(--limit)", shape="vh")
    titles = ("axis_users", "axis_events" if mixed else "axis_rate", "axis_times", "axis_failures")
    drawn = [axis for axis in HEIGHTS if any((trace.yaxis or "y") == axis for trace in figure.data)]
    share = (1 - GAP * (len(drawn) - 1)) / sum(HEIGHTS[axis] for axis in drawn) if drawn else 1.0
    top = 1.0
    for axis, title in zip(HEIGHTS, titles, strict=True):
        if axis in drawn:
            bottom = max(0.0, top - share * HEIGHTS[axis])
            shape = {
                "title": TEXT[title],
                "domain": (bottom, top),
                "rangemode": "tozero",
                "anchor": "x",
                **LINES,
            }
            figure.update_layout({axis.replace("y", "yaxis"): shape})
            top = bottom - GAP
    figure.update_xaxes(
        title=TEXT["axis_time"], anchor=drawn[-1] if drawn else "y", range=[0, float(at_s[-1])], **LINES
    )
    for burst in bursts[:300]:
        figure.add_shape(
            type="rect",
            xref="x",
            yref="paper",
            x0=burst.start_s,
            x1=burst.end_s,
            y0=0,
            y1=1,
            fillcolor="var(--burst)",
            opacity=0.13,
            line_width=0,
            layer="below",
        )
    return figure


def _thinned(history: History, most: int) -> Iterator[slice]:
    """Slices of neighbouring rows, at most `most`, for a picture of a long run."""
    size = -(-len(history.at_s) // most)
    for start in range(0, len(history.at_s), size):
        yield slice(start, start + size)
