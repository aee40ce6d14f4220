"""Pictures of one stream: its rate, IDC and Allan factor over scales, its gaps, its autocorrelation."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from analysis import burstiness as measure
from analysis.burst_profile import why_not
from analysis.burst_streams import Measured
from analysis.charts import LINES, LOG_SECONDS, blank_figure, single
from analysis.numbers import seconds
from analysis.poisson_band import acf_band
from analysis.series import bin_width
from analysis.wording_burst import PAGE

MOST_POINTS = 2_000
LONGEST_LAG = 60


def rate_width(measured: Measured) -> float:
    """The width of the picture's steps in seconds: 1, or as much as keeps the picture readable."""
    step_s = measured.stream.stamp_step_s
    return max(bin_width(measured.stream.window_s, MOST_POINTS), step_s or 0.0)


def rate(measured: Measured) -> go.Figure:
    """Requests per second: each second, or of each longer step the fullest second and the mean."""
    stream, width_s = measured.stream, rate_width(measured)
    figure = blank_figure(300)
    if width_s > 1 and why_not(1, stream.window_s, stream.stamp_step_s) is None:
        counts = measure.counts_per_window(stream.times_s, 1, np.ceil(stream.window_s))
        size = int(width_s)
        padded = np.pad(counts, (0, -len(counts) % size)).reshape(-1, size)
        at_s = np.arange(len(padded)) * width_s
        _steps(figure, at_s, padded.max(axis=1), PAGE["line_peak"], "var(--asked)")
        _steps(figure, at_s, padded.mean(axis=1), PAGE["line_mean"], "var(--sent)")
    else:
        whole = np.ceil(stream.window_s / width_s) * width_s
        counts = measure.counts_per_window(stream.times_s, width_s, whole)
        at_s = np.arange(len(counts)) * width_s
        _steps(figure, at_s, counts / width_s, PAGE["line_rate"], "var(--sent)")
        figure.update_layout(showlegend=False)
    origin = PAGE["axis_time_run" if stream.of_run else "axis_time"]
    figure.update_xaxes(title=f"{origin} (s)", range=[0, stream.window_s], **LINES)
    figure.update_yaxes(title=PAGE["axis_rate"], rangemode="tozero", **LINES)
    return figure


def scales(measured: Measured) -> go.Figure:
    """IDC and Allan factor over the length of the windows, both axes logarithmic, with the Poisson band."""
    figure, over = blank_figure(380), measured.curve
    low, high = over.idc_band
    known = np.isfinite(low) & np.isfinite(high)
    figure.add_scatter(
        x=np.concatenate([over.scale_s[known], over.scale_s[known][::-1]]),
        y=np.concatenate([high[known], low[known][::-1]]),
        fill="toself",
        fillcolor="var(--grid)",
        line={"width": 0},
        name=PAGE["line_poisson"],
        mode="lines",
        hoverinfo="skip",
    )
    for values, name, colour in (
        (over.idc, PAGE["line_idc"], "var(--sent)"),
        (over.allan_factor, PAGE["line_allan"], "var(--burst)"),
    ):
        figure.add_scatter(
            x=over.scale_s,
            y=np.where(values > 0, values, np.nan),
            name=name,
            mode="lines+markers",
            line={"color": colour, "width": 2},
            marker={"size": 6},
            hovertemplate=f"%{{y:.3~g}} over %{{x:.3~s}}s<extra>{name}</extra>",
        )
    figure.update_xaxes(title=PAGE["axis_scale"], **LOG_SECONDS, **LINES)
    figure.update_yaxes(title=PAGE["axis_dispersion"], type="log", dtick=1, **LINES)
    return figure


def gaps(measured: Measured) -> go.Figure:
    """The share of gaps that are longer, against exponential gaps of the same mean; both axes logarithmic."""
    figure = blank_figure(380)
    found = np.sort(measure.gaps_of(measured.stream.times_s))
    n, mean_s = len(found), float(np.mean(found))
    places = np.unique(np.linspace(0, n - 1, min(n, MOST_POINTS)).astype(int))
    tail = np.arange(max(0, n - 200), n)
    places = np.unique(np.concatenate([places, tail]))
    places = places[found[places] > 0]
    least_s = max(mean_s / 1_000, 1e-6)
    places = places[found[places] >= least_s]
    figure.add_scatter(
        x=single(found[places]),
        y=single((n - places) / n),
        name=PAGE["line_gaps"],
        line={"color": "var(--sent)", "width": 2},
        hovertemplate="%{y:.2%} ≥ %{x:.3~s}s<extra></extra>",
    )
    at_s = np.geomspace(least_s, max(mean_s * np.log(n), least_s * 10), 200)
    figure.add_scatter(
        x=single(at_s),
        y=single(np.exp(-at_s / mean_s)),
        name=PAGE["line_poisson"],
        line={"color": "var(--soft)", "width": 1.5, "dash": "dash"},
        hoverinfo="skip",
    )
    figure.update_xaxes(title=PAGE["axis_gap"], **LOG_SECONDS, **LINES)
    figure.update_yaxes(
        title=PAGE["axis_survival"], type="log", tickformat=".3~%", dtick=1, exponentformat="none", **LINES
    )
    return figure


def autocorrelation(measured: Measured) -> go.Figure | None:
    """Of the counts per second at lags from 1 to 60 s; None where there are fewer than 8 s."""
    stream = measured.stream
    if "1" in measured.profile.unmeasured:
        return None
    counts = measure.counts_per_window(stream.times_s, 1, stream.window_s)
    band = acf_band(len(counts))
    lags = np.arange(1, min(LONGEST_LAG, len(counts) // 4) + 1)
    found = [measure.autocorrelation(counts, int(lag)) for lag in lags]
    if band is None or not len(lags) or found[0] is None:
        return None
    figure = blank_figure(300)
    figure.add_hrect(y0=band[0], y1=band[1], fillcolor="var(--grid)", line_width=0, layer="below")
    figure.add_bar(
        x=lags, y=found, marker={"color": "var(--sent)"}, hovertemplate="%{y:.3f} at %{x} s<extra></extra>"
    )
    figure.update_layout(showlegend=False, bargap=0.4)
    figure.update_xaxes(title=f"{PAGE['axis_lag']} (s)", **LINES)
    figure.update_yaxes(title=PAGE["axis_acf"], **LINES)
    return figure


def _steps(figure: go.Figure, x: np.ndarray, y: np.ndarray, name: str, colour: str) -> None:
    figure.add_scatter(
        x=single(x),
        y=single(y),
        name=name,
        line={"color": colour, "width": 1.4, "shape": "hv"},
        hovertemplate=f"%{{y:.3~g}} req/s at %{{x:.0f}} s<extra>{name}</extra>",
    )


def width_text(measured: Measured) -> str:
    return seconds(rate_width(measured))
