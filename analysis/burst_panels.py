"""Bursts as small multiples: TTFT against the time since each burst's start, a panel a burst.

All panels share their axes, so that one burst is compared with the next by eye; in each, behind its own dots
and median, stands the median of all bursts together. Of more bursts than there is room for the hardest are
drawn. Frames as in analysis.charts; bursts also have threshold_s and peak_ttft_s (NaN: unknown).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from analysis import series
from analysis.charts import LEGEND, LIMIT_LINE, LINES, SYMBOL, blank_figure, log_seconds, single, span_of
from analysis.numbers import seconds
from analysis.wording import TEXT

MOST_PANELS = 12
COLUMNS = 4
MOST_DOTS = 500
PANEL_PX = 190
TITLE_PX = 44
LEAD_S = 2 * series.WINDOW_S
MOST_WINDOWS = 400
MOST_TICKS = 6


def hardest(bursts: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Which bursts have a panel, in order of time: all, or those that took longest to recover from (an end
    that was not seen counts with what is known of it), and of equals those with the highest peak."""
    hurt_s = bursts["recovery_s"].fillna(bursts["at_least_s"]).fillna(0.0).to_numpy()
    peak_s = bursts["peak_ttft_s"].fillna(0.0).to_numpy()
    return np.sort(np.lexsort((-peak_s, -hurt_s))[:MOST_PANELS])


def burst_panels(requests: pd.DataFrame, bursts: pd.DataFrame) -> go.Figure:
    """A panel a burst, from two windows before its start to the start of the next burst (of a long pause,
    to twice the longest recovery)."""
    chosen = hardest(bursts)
    columns = min(COLUMNS, len(chosen))
    rows = -(-len(chosen) // columns)
    figure = blank_figure(rows * (PANEL_PX + TITLE_PX) + 90)
    figure.layout.margin.update(t=34, b=56, l=86)
    starts = bursts["start_s"].to_numpy(float)
    until_s = np.append(starts[1:], np.inf)
    shown_s = _shown_s(bursts, starts)
    at_s = requests["arrived_at_s"].to_numpy(float)
    burst_of = np.searchsorted(starts - LEAD_S, at_s, side="right") - 1
    since_s = at_s - starts[np.clip(burst_of, 0, None)]
    ttft_s = requests["ttft_s"].to_numpy(float)
    width_s = max(series.WINDOW_S, series.bin_width(shown_s + LEAD_S, MOST_WINDOWS))
    inside = (burst_of >= 0) & (since_s <= shown_s)
    every = series.windowed(since_s[inside] + LEAD_S, ttft_s[inside], width_s)
    lost = (requests["outcome"] != "succeeded").to_numpy() & np.isnan(ttft_s)
    lowest_s, highest_s = span_of(ttft_s[inside], bursts["threshold_s"])
    lost_at_s = highest_s * 1.4
    scale = log_seconds(lowest_s, lost_at_s, MOST_TICKS)
    place = _places(columns, rows)
    for number, index in enumerate(chosen):
        burst = bursts.iloc[int(index)]
        axis = str(number + 1) if number else ""
        first = number == 0
        panel = {"xaxis": f"x{axis}", "yaxis": f"y{axis}"}
        if len(chosen) > 1:
            figure.add_scatter(
                x=single(every.middle_s - LEAD_S),
                y=single(every.p50),
                mode="lines",
                line={"color": "var(--asked)", "width": 4},
                hoverinfo="skip",
                **_named("panel_all", first),
                **panel,
            )
        own = (at_s >= starts[index] - LEAD_S) & (at_s < until_s[index])
        own &= at_s <= starts[index] + shown_s
        own_since_s = at_s - starts[index]
        _add_dots(figure, own_since_s[own], ttft_s[own], first, panel)
        if (own & lost).any():
            figure.add_scatter(
                x=single(own_since_s[own & lost]),
                y=np.full(int((own & lost).sum()), lost_at_s),
                mode="markers",
                marker={"color": "var(--limit)", "size": 5, "symbol": "x"},
                hovertemplate=TEXT["hover_lost"],
                **_named("panel_lost", first),
                **panel,
            )
        seen = series.windowed(own_since_s[own] + LEAD_S, ttft_s[own], width_s)
        figure.add_scatter(
            x=single(seen.middle_s - LEAD_S),
            y=single(seen.p50),
            mode="lines+markers" if len(seen.p50) <= 60 else "lines",
            line={"color": "var(--ink)", "width": 1.8},
            marker={"size": 4},
            hovertemplate="%{y:.3s}s<extra></extra>",
            **_named("panel_median", first),
            **panel,
        )
        _mark(figure, burst, axis)
        _label(figure, burst, int(index), axis)
        column, row = number % columns, number // columns
        below = number + columns < len(chosen)
        left, bottom = place(column, row)
        figure.layout[f"xaxis{axis}"] = {
            **LINES,
            "domain": left,
            "anchor": f"y{axis}",
            "range": [-LEAD_S, shown_s],
            "showticklabels": not below,
            "nticks": 6,
        } | ({"matches": "x"} if number else {})
        figure.layout[f"yaxis{axis}"] = {
            **LINES,
            **scale,
            "domain": bottom,
            "anchor": f"x{axis}",
            "showticklabels": column == 0,
            "automargin": column == 0,
        } | ({"matches": "y"} if number else {})
    _axis_titles(figure)
    figure.layout.legend.update({**LEGEND, "y": 1.0, "yanchor": "top", "yref": "container"})
    return figure


def _shown_s(bursts: pd.DataFrame, starts: npt.NDArray[np.float64]) -> float:
    """How long after its start a burst is shown: the usual time to the next, or what its end calls for."""
    after_s = bursts["recovery_s"].fillna(bursts["observed_s"]).fillna(0.0)
    needed_s = float((bursts["end_s"] - bursts["start_s"] + after_s).max())
    pause_s = float(np.median(np.diff(starts))) if len(starts) > 1 else np.inf
    return max(2 * series.WINDOW_S, min(pause_s - LEAD_S, 2 * needed_s + 10.0))


def _places(columns: int, rows: int) -> Any:
    """(column, row) -> the x and the y domain of a panel."""
    gap_x, gap_y = 0.016, TITLE_PX / (rows * (PANEL_PX + TITLE_PX))
    width = (1 - gap_x * (columns - 1)) / columns
    height = (1 - gap_y * rows) / rows

    def place(column: int, row: int) -> tuple[list[float], list[float]]:
        left, top = column * (width + gap_x), 1 - gap_y - row * (height + gap_y)
        return [left, min(1.0, left + width)], [max(0.0, top - height), top]

    return place


def _add_dots(
    figure: go.Figure, since_s: series.Floats, ttft_s: series.Floats, first: bool, panel: dict[str, str]
) -> None:
    known = np.isfinite(ttft_s)
    since_s, ttft_s = since_s[known], ttft_s[known]
    shown = series.thin_points(since_s, ttft_s, MOST_DOTS)
    figure.add_scatter(
        x=single(since_s[shown]),
        y=single(ttft_s[shown]),
        mode="markers",
        marker={"color": "var(--burst)", "size": 4, "opacity": 0.5, "symbol": SYMBOL["quiet"]},
        hovertemplate=TEXT["hover_panel_dot"],
        **_named("panel_dots", first),
        **panel,
    )


def _mark(figure: go.Figure, burst: pd.Series[Any], axis: str) -> None:
    """The burst's shade, the threshold of its recovery, and where it had recovered."""
    width_s = float(burst["end_s"] - burst["start_s"])
    beside = {"xref": f"x{axis}", "yref": f"y{axis} domain", "y0": 0, "y1": 1, "layer": "below"}
    line = {"width": 2 if width_s == 0 else 0, "color": "var(--burst)"}
    shapes: list[dict[str, Any]] = [
        {
            **beside,
            "x0": 0,
            "x1": width_s,
            "fillcolor": "var(--burst)",
            "opacity": 0.6 if width_s == 0 else 0.13,
            "line": line,
        }
    ]
    if np.isfinite(burst["threshold_s"]):
        level = float(burst["threshold_s"])
        across = {"xref": f"x{axis} domain", "x0": 0, "x1": 1, "yref": f"y{axis}", "y0": level, "y1": level}
        shapes.append({**across, "type": "line", "line": LIMIT_LINE})
    if np.isfinite(burst["recovery_s"]):
        back_s = width_s + float(burst["recovery_s"])
        at = {**beside, "x0": back_s, "x1": back_s, "type": "line", "layer": "above"}
        shapes.append({**at, "line": {"color": "var(--finished)", "width": 2}})
    figure.layout.shapes = [*figure.layout.shapes, *shapes]


def _label(figure: go.Figure, burst: pd.Series[Any], index: int, axis: str) -> None:
    if np.isfinite(burst["recovery_s"]):
        end = TEXT["panel_recovered"].format(time=seconds(burst["recovery_s"]))
    elif burst["at_least_s"] > 0:
        end = TEXT["panel_censored"].format(time=seconds(burst["at_least_s"]))
    else:
        end = TEXT["panel_not_seen"]
    text = TEXT["panel_title"].format(number=index + 1, at=seconds(burst["start_s"]), end=end)
    figure.add_annotation(
        text=text,
        showarrow=False,
        xref=f"x{axis} domain",
        yref=f"y{axis} domain",
        x=0,
        y=1,
        xanchor="left",
        yanchor="bottom",
        font={"size": 12, "color": "var(--ink)"},
    )


def _axis_titles(figure: go.Figure) -> None:
    style = {"showarrow": False, "xref": "paper", "yref": "paper", "font": {"size": 13}}
    below = {"x": 0.5, "y": 0, "yshift": -30, "xanchor": "center", "yanchor": "top"}
    beside = {"x": 0, "y": 0.5, "xshift": -76, "xanchor": "center", "yanchor": "middle", "textangle": -90}
    figure.add_annotation(text=TEXT["axis_since_burst"], **style, **below)
    figure.add_annotation(text=TEXT["axis_ttft"], **style, **beside)


def _named(key: str, first: bool) -> dict[str, Any]:
    """One entry in the legend for the traces of all panels."""
    return {"name": TEXT[key], "legendgroup": key, "showlegend": first}
