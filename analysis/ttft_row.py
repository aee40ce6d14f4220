"""The TTFT row of the time line: a dot a request, a band from p50 to p95, probes and the SLO's limit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis import series
from analysis.charts import PHASES, SYMBOL, limit_line, log_seconds, single, span_of
from analysis.rows import AXIS, legend_of
from analysis.wording import TEXT

MOST_DOTS = 2000
FARTHEST_LIMIT = 20
"""How many times the largest TTFT a limit may be and still be in the picture."""
ROOM = 1.4
"""Above the highest dot, for the marks of recovery."""


def add_ttft(figure: go.Figure, requests: pd.DataFrame, limit_s: float | None, end_s: float) -> None:
    """Dots by phase at the moment of arrival, p50 and p95 of windows with the band between them."""
    known = requests[["arrival", "arrived_at_s", "ttft_s", "phase"]]
    known = known[known["ttft_s"].notna() & known["arrived_at_s"].notna()]
    at_s, ttft_s = known["arrived_at_s"].to_numpy(float), known["ttft_s"].to_numpy(float)
    shown = known.iloc[series.thin_points(at_s, ttft_s, MOST_DOTS)]
    for phase in PHASES:
        dots = shown[shown["phase"] == phase]
        if len(dots):
            figure.add_scatter(
                x=single(dots["arrived_at_s"]),
                y=single(dots["ttft_s"]),
                customdata=_arrivals(dots["arrival"]),
                mode="markers",
                marker={
                    "color": f"var(--{phase})",
                    "size": 5,
                    "opacity": 0.55,
                    "symbol": SYMBOL[phase],
                },
                name=TEXT[f"dots_{phase}"],
                yaxis=AXIS["ttft"],
                legend=legend_of("ttft"),
                hovertemplate=TEXT["hover_dot"],
            )
    width_s = max(series.WINDOW_S, series.bin_width(end_s, series.MOST_WINDOWS))
    seen = series.windowed(at_s, ttft_s, width_s)
    band_x, band_y = series.band(seen.middle_s, seen.p50, seen.p95)
    if len(band_x):
        figure.add_scatter(
            x=single(band_x),
            y=single(band_y),
            mode="lines",
            line={"width": 0},
            fill="toself",
            fillcolor="var(--band)",
            hoverinfo="skip",
            name=TEXT["ttft_band"],
            yaxis=AXIS["ttft"],
            legend=legend_of("ttft"),
        )
    for name, values, dash in (("p95", seen.p95, "dot"), ("p50", seen.p50, "solid")):
        figure.add_scatter(
            x=single(seen.middle_s),
            y=single(values),
            mode="lines+markers" if len(seen.p50) <= 300 else "lines",
            marker={"size": 4},
            line={"color": "var(--ink)", "width": 1.8, "dash": dash},
            name=TEXT[f"ttft_{name}"].format(width=f"{width_s:g}"),
            yaxis=AXIS["ttft"],
            legend=legend_of("ttft"),
            hovertemplate=f"{name} %{{y:.3s}}s<extra></extra>",
        )
    if limit_s is not None:
        limit_line(figure, AXIS["ttft"], limit_s)
    low_s, high_s = span_of(ttft_s)
    if limit_s is not None and high_s < limit_s <= FARTHEST_LIMIT * high_s:
        high_s = limit_s
    figure.layout.yaxis3.update(title_text=TEXT["axis_ttft"], **log_seconds(low_s, ROOM * high_s))


def add_probes(figure: go.Figure, probes: pd.DataFrame) -> None:
    """A diamond for each probe with a first token."""
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
        legend=legend_of("ttft"),
        hovertemplate=TEXT["hover_probe"],
    )


def _arrivals(arrival: pd.Series[int]) -> np.ndarray:
    """Arrival numbers to show; whole numbers where all are known, which packs them tightly."""
    if arrival.notna().all():
        return arrival.to_numpy(dtype=np.int32)
    return arrival.to_numpy(dtype=object, na_value=TEXT["unknown"])
