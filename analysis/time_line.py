"""The time line: load, requests in flight, TTFT and failures over one shared, zoomable time axis.

All four rows lie on a single x axis, so that a burst's shade, the cursor's line and every zoom run through
all of them. Latency is placed at the moment its request *arrived*: a burst's slow answers end long after it,
so by completion the peak would be drawn tens of seconds late. Frames as in analysis.charts.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis import series
from analysis.charts import LEGEND, LINES, LOG_SECONDS, PHASES, blank_figure, limit_line, single
from analysis.marks import mark_bursts, mark_client_bound, mark_events
from analysis.wording import TEXT

MOST_DOTS = 5000
MOST_STEPS = 4000
MOST_CLASSES = 5

AXIS = {"rate": "y", "in_flight": "y2", "ttft": "y3", "failures": "y4"}
"""The rows from top to bottom and the y axis of each."""


def time_line(
    requests: pd.DataFrame,
    asked_at_s: pd.Series[float],
    planned: Sequence[Sequence[float]],
    bursts: pd.DataFrame,
    duration_s: float,
    ttft_limit_s: float | None,
    *,
    closed: bool = False,
    probes: pd.DataFrame | None = None,
    events: pd.DataFrame | None = None,
    client_bound: pd.DataFrame | None = None,
) -> go.Figure:
    """Load, requests in flight, TTFT and failures over one shared time axis; bursts shaded, recovery marked.

    `planned` holds [at_s, req/s] points joined by straight lines, in a `closed` loop [at_s, users wanted from
    then on], which stands beside what was in flight; `asked_at_s` the scheduled moments; `ttft_limit_s` the
    SLO's limit on TTFT, if it has one. `probes` are dots of their own, `events` have at_s, kind and text.
    `client_bound`, the windows in which the load generator was the bottleneck, has start_s, end_s and why (a
    list of texts). The failure row is left out when nothing failed.
    """
    failed = requests[requests["outcome"] != "succeeded"]
    heights = {"rate": 0.24, "in_flight": 0.15, "ttft": 0.46} | ({"failures": 0.17} if len(failed) else {})
    end_s = max(duration_s, _largest(requests["ended_at_s"]), 1.0)
    if probes is not None:
        end_s = max(end_s, _largest(probes["ended_at_s"]))
    figure = _rows(heights, end_s)
    _add_rates(figure, requests, None if closed else asked_at_s, [] if closed else planned, duration_s, end_s)
    _add_in_flight(figure, requests, planned if closed else [], end_s)
    _add_ttft(figure, requests, ttft_limit_s, end_s)
    if probes is not None:
        _add_probes(figure, probes)
    if len(failed):
        _add_failures(figure, failed, duration_s, end_s)
    mark_bursts(figure, bursts)
    if client_bound is not None:
        mark_client_bound(figure, client_bound, AXIS["ttft"], _legend("ttft"))
    if events is not None:
        mark_events(figure, events, AXIS["in_flight"], _legend("in_flight"))
    return figure


def _add_rates(
    figure: go.Figure,
    requests: pd.DataFrame,
    asked_at_s: pd.Series[float] | None,
    rate_curve: Sequence[Sequence[float]],
    duration_s: float,
    end_s: float,
) -> None:
    """Requests per second: planned and asked where there is a schedule, sent, finished."""
    width_s = series.bin_width(duration_s)
    done = requests.loc[requests["outcome"] == "succeeded", "ended_at_s"]
    lines: list[tuple[str, pd.Series[float], float, dict[str, Any]]] = [
        ("sent", requests["sent_at_s"], duration_s, {"color": "var(--sent)", "width": 1.8}),
        ("finished", done, end_s, {"color": "var(--finished)", "width": 1.5}),
    ]
    if asked_at_s is not None:
        lines.insert(0, ("asked", asked_at_s, duration_s, {"color": "var(--asked)", "width": 4}))
    if rate_curve:
        at_s, rate_rps = np.array(rate_curve, dtype=float).T
        _step_line(
            figure, "rate", "planned", at_s, rate_rps, {"color": "var(--ink)", "dash": "dot"}, "linear"
        )
    for name, times, until_s, line in lines:
        at_s, rate_rps = series.rate_per_bin(times.to_numpy(float), until_s, width_s)
        at_s, rate_rps = np.append(at_s, at_s[-1] + width_s), np.append(rate_rps, rate_rps[-1])
        _step_line(figure, "rate", name, at_s, rate_rps, line)
    figure.layout.yaxis.title.text = TEXT["axis_rate"]


def _add_in_flight(
    figure: go.Figure, requests: pd.DataFrame, users_curve: Sequence[Sequence[float]], end_s: float
) -> None:
    at_s, count = series.in_flight(
        requests["sent_at_s"].to_numpy(float), requests["ended_at_s"].to_numpy(float)
    )
    at_s, count = series.thin_steps(
        np.append(at_s, max(end_s, at_s[-1])), np.append(count, count[-1]), MOST_STEPS
    )
    line = {"color": "var(--in-flight)", "width": 1.5}
    _step_line(figure, "in_flight", "in_flight", at_s, count, line, fill="tozeroy", fillcolor="var(--wash)")
    if users_curve:
        wanted_at_s, users = np.array(users_curve, dtype=float).T
        dotted = {"color": "var(--ink)", "dash": "dot"}
        _step_line(figure, "in_flight", "users", wanted_at_s, users, dotted)
    figure.layout.yaxis2.title.text = TEXT["axis_in_flight"]


def _add_ttft(figure: go.Figure, requests: pd.DataFrame, limit_s: float | None, end_s: float) -> None:
    known = requests[requests["ttft_s"].notna() & requests["arrived_at_s"].notna()]
    at_s, ttft_s = known["arrived_at_s"].to_numpy(float), known["ttft_s"].to_numpy(float)
    shown = known.iloc[series.thin_points(at_s, ttft_s, MOST_DOTS)]
    for phase in PHASES:
        dots = shown[shown["phase"] == phase]
        if len(dots):
            figure.add_scatter(
                x=single(dots["arrived_at_s"]),
                y=single(dots["ttft_s"]),
                customdata=dots["arrival"].to_numpy(dtype=object, na_value=TEXT["unknown"]),
                mode="markers",
                marker={"color": f"var(--{phase})", "size": 5, "opacity": 0.55},
                name=TEXT[f"dots_{phase}"],
                yaxis=AXIS["ttft"],
                legend=_legend("ttft"),
                hovertemplate=TEXT["hover_dot"],
            )
    width_s = max(series.WINDOW_S, series.bin_width(end_s, series.MOST_WINDOWS))
    seen = series.windowed(at_s, ttft_s, width_s)
    for name, values, dash in (("p95", seen.p95, "dot"), ("p50", seen.p50, "solid")):
        figure.add_scatter(
            x=single(seen.middle_s),
            y=single(values),
            mode="lines+markers" if len(seen.p50) <= 300 else "lines",
            marker={"size": 4},
            line={"color": "var(--ink)", "width": 1.8, "dash": dash},
            name=TEXT[f"ttft_{name}"].format(width=f"{width_s:g}"),
            yaxis=AXIS["ttft"],
            legend=_legend("ttft"),
            hovertemplate=f"{name} %{{y:.3s}}s<extra></extra>",
        )
    if limit_s is not None:
        limit_line(figure, "y3", limit_s)
    room = [1.6 * _largest(known["ttft_s"])] if len(known) else []
    figure.layout.yaxis3.update(title=TEXT["axis_ttft"], autorangeoptions_include=room, **LOG_SECONDS)


def _add_probes(figure: go.Figure, probes: pd.DataFrame) -> None:
    known = probes[probes["ttft_s"].notna() & probes["arrived_at_s"].notna()]
    at_s, ttft_s = known["arrived_at_s"].to_numpy(float), known["ttft_s"].to_numpy(float)
    shown = series.thin_points(at_s, ttft_s, MOST_DOTS)
    if not len(shown):
        return
    figure.add_scatter(
        x=single(at_s[shown]),
        y=single(ttft_s[shown]),
        mode="markers",
        marker={"color": "var(--ink)", "size": 6, "symbol": "diamond-open"},
        name=TEXT["dots_probe"],
        yaxis=AXIS["ttft"],
        legend=_legend("ttft"),
        hovertemplate=TEXT["hover_probe"],
    )


def _add_failures(figure: go.Figure, failed: pd.DataFrame, duration_s: float, end_s: float) -> None:
    width_s = series.bin_width(duration_s, series.MOST_BARS)
    named = failed["failure_class"].fillna(failed["outcome"])
    common = list(named.value_counts().index[:MOST_CLASSES])
    named = named.where(named.isin(common), TEXT["others"])
    for number, name in enumerate([*common, TEXT["others"]]):
        times = failed.loc[named == name, "arrived_at_s"]
        if len(times):
            at_s, rate = series.rate_per_bin(times.to_numpy(float), end_s, width_s)
            figure.add_bar(
                x=single(at_s + width_s / 2),
                y=single(rate * width_s),
                width=width_s,
                name=html.escape(str(name)),
                marker={"color": f"var(--c{number + 1})", "line": {"width": 0}},
                yaxis=AXIS["failures"],
                legend=_legend("failures"),
                hovertemplate="%{y:.0f} × %{fullData.name}<extra></extra>",
            )
    figure.layout.barmode = "stack"
    figure.layout.yaxis4.title.text = TEXT["axis_failures"].format(width=f"{width_s:g}")


def _rows(heights: dict[str, float], end_s: float) -> go.Figure:
    """An empty time line: y axes stacked with the given shares of the height, all on one x axis, a legend
    above each.
    """
    figure = blank_figure(int(900 * sum(heights.values())))
    gap = 0.065
    scale = (1 - gap * len(heights)) / sum(heights.values())
    top = 1.0
    for row, height in heights.items():
        top -= gap
        bottom = max(0.0, top - height * scale)
        axis = f"yaxis{AXIS[row][1:]}"
        figure.layout[axis] = {**LINES, "domain": [bottom, top], "anchor": "x", "rangemode": "tozero"}
        figure.layout[_legend(row)] = {**LEGEND, "y": top + 0.004}
        top = bottom
    figure.layout.xaxis = {
        **LINES,
        "title": TEXT["axis_time"],
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
    for row in ("rate", "in_flight", "failures"):
        if row in heights:
            figure.layout[f"yaxis{AXIS[row][1:]}"].fixedrange = True
    return figure


def _step_line(
    figure: go.Figure,
    row: str,
    name: str,
    x: Any,
    y: Any,
    line: dict[str, Any],
    shape: str = "hv",
    **more: Any,
) -> None:
    figure.add_scatter(
        x=single(x),
        y=single(y),
        mode="lines",
        line={"shape": shape, **line},
        name=TEXT[f"line_{name}"],
        yaxis=AXIS[row],
        legend=_legend(row),
        hovertemplate="%{y:.3~f}<extra>%{fullData.name}</extra>",
        **more,
    )


def _legend(row: str) -> str:
    return f"legend{AXIS[row][1:]}"


def _largest(values: pd.Series[float]) -> float:
    known = values.to_numpy(float)
    known = known[np.isfinite(known)]
    return float(known.max()) if len(known) else 0.0
