"""The time line: load, requests in flight, TTFT, failures and the server over one zoomable time axis.

All rows lie on a single x axis, so that a burst's shade, the cursor's line and every zoom run through all of
them. Latency is placed at the moment its request *arrived*: a burst's slow answers end long after it, so by
completion the peak would be drawn tens of seconds late. Frames as in analysis.charts.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis import series
from analysis.charts import PATTERNS, single
from analysis.marks import mark_bursts, mark_client_bound, mark_events
from analysis.rows import AXIS, add_line, layout_axis, legend_of, stacked_rows
from analysis.server_rows import add_kv_cache, add_server, known_rows
from analysis.ttft_row import add_probes, add_ttft
from analysis.wording import TEXT

MOST_STEPS = 2000
MOST_CLASSES = 5
HEIGHTS = {"rate": 0.23, "in_flight": 0.15, "ttft": 0.46, "failures": 0.16, "server": 0.18, "kv": 0.14}
"""The height of each row, as a share of the figure without the server's rows."""


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
    server: pd.DataFrame | None = None,
) -> go.Figure:
    """Load, requests in flight, TTFT, failures and server; bursts shaded, recovery marked.

    `planned` holds [at_s, req/s] points joined by straight lines, in a `closed` loop [at_s, users wanted from
    then on], which stands beside what was in flight; `asked_at_s` the scheduled moments; `ttft_limit_s` the
    SLO's limit on TTFT, if it has one. `probes` are dots of their own, `events` have at_s, kind and text.
    `client_bound`, the windows in which the load generator was the bottleneck, has start_s, end_s and why (a
    list of texts). `server` has the columns of analysis.load.SERVER_KINDS. The failure row is left out when
    nothing failed, the server's rows where it said nothing.
    """
    failed = requests[requests["outcome"] != "succeeded"]
    of_server = () if server is None else known_rows(server)
    rows = ("rate", "in_flight", "ttft", *(["failures"] if len(failed) else []), *of_server)
    end_s = max(duration_s, _largest(requests["ended_at_s"]), 1.0)
    if probes is not None:
        end_s = max(end_s, _largest(probes["ended_at_s"]))
    figure = stacked_rows({row: HEIGHTS[row] for row in rows}, end_s)
    _add_rates(figure, requests, None if closed else asked_at_s, [] if closed else planned, duration_s, end_s)
    _add_in_flight(figure, requests, planned if closed else [], end_s)
    add_ttft(figure, requests, ttft_limit_s, end_s)
    if probes is not None:
        add_probes(figure, probes)
    if len(failed):
        _add_failures(figure, failed, duration_s, end_s)
    if server is not None and "server" in rows:
        add_server(figure, server)
    if server is not None and "kv" in rows:
        add_kv_cache(figure, server)
    mark_bursts(figure, bursts)
    if client_bound is not None:
        mark_client_bound(figure, client_bound, AXIS["ttft"], legend_of("in_flight"))
    if events is not None:
        mark_events(figure, events, AXIS["in_flight"], legend_of("in_flight"))
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
        ("finished", done, end_s, {"color": "var(--finished)", "width": 1.5, "dash": "dash"}),
    ]
    if asked_at_s is not None:
        lines.insert(0, ("asked", asked_at_s, duration_s, {"color": "var(--asked)", "width": 4}))
    if rate_curve:
        at_s, rate_rps = np.array(rate_curve, dtype=float).T
        add_line(figure, "rate", "planned", at_s, rate_rps, {"color": "var(--ink)", "dash": "dot"}, "linear")
    for name, times, until_s, line in lines:
        at_s, rate_rps = series.rate_per_bin(times.to_numpy(float), until_s, width_s)
        at_s, rate_rps = np.append(at_s, at_s[-1] + width_s), np.append(rate_rps, rate_rps[-1])
        add_line(figure, "rate", name, at_s, rate_rps, line)
    figure.layout[layout_axis("rate")].title.text = TEXT["axis_rate"]


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
    add_line(figure, "in_flight", "in_flight", at_s, count, line, fill="tozeroy", fillcolor="var(--wash)")
    if users_curve:
        wanted_at_s, users = np.array(users_curve, dtype=float).T
        dotted = {"color": "var(--ink)", "dash": "dot"}
        add_line(figure, "in_flight", "users", wanted_at_s, users, dotted)
    figure.layout[layout_axis("in_flight")].title.text = TEXT["axis_in_flight"]


def _add_failures(figure: go.Figure, failed: pd.DataFrame, duration_s: float, end_s: float) -> None:
    width_s = series.bin_width(duration_s, series.MOST_BARS)
    named = failed["failure_class"].astype("str").fillna(failed["outcome"].astype("str"))
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
                marker={
                    "color": f"var(--c{number + 1})",
                    "line": {"width": 0},
                    "pattern": {"shape": PATTERNS[number], "fgcolor": "var(--panel)", "size": 6},
                },
                yaxis=AXIS["failures"],
                legend=legend_of("failures"),
                hovertemplate="%{y:.0f} × %{fullData.name}<extra></extra>",
            )
    figure.layout.barmode = "stack"
    figure.layout[layout_axis("failures")].title.text = TEXT["axis_failures"].format(width=f"{width_s:g}")


def _largest(values: pd.Series[float]) -> float:
    known = values.to_numpy(float)
    known = known[np.isfinite(known)]
    return float(known.max()) if len(known) else 0.0
