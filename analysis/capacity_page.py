"""A capacity search -> one self-contained HTML page: price of burstiness, curves, every rate tried."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from analysis.capacity import Trial
from analysis.capacity_words import trial_cells
from analysis.charts import LIMIT_LINE, LINES, LOG_SECONDS, blank_figure
from analysis.page import Section, element, figure, join, page, table
from analysis.wording_capacity import CAPACITY_TEXT as TEXT

LOOKS = (("--quiet", "solid", "circle"), ("--burst", "dash", "diamond"))
"""Colour, line and marker by shape, so that colour is never alone."""
HOVER = "%{{x:.3g}} req/s: {value}<extra>%{{fullData.name}}</extra>"


def capacity_page(
    title: str, sentences: Sequence[str], how: str, trials: Sequence[Trial], share: float
) -> str:
    """The page as the text of one HTML file that needs no network; `sentences` are shown as its answer."""
    said = [
        element("p", line, class_="aside" if number else "answer") for number, line in enumerate(sentences)
    ]
    header = join([element("h1", title), *said])
    return page(title, header, [_curves(trials, share), _trials(trials, how)])


def _trials(trials: Sequence[Trial], how: str) -> Section:
    head = TEXT["head"].split("|")
    shown = table(
        head,
        [trial_cells(trial) for trial in trials],
        numeric=range(1, 7),
        wide=(7, 8),
        caption=TEXT["trials"],
    )
    return Section("trials", TEXT["trials"], join([shown, element("p", how, class_="note")]))


def _curves(trials: Sequence[Trial], share: float) -> Section:
    blank = blank_figure(720)
    made = make_subplots(rows=3, cols=1, shared_xaxes=True, vertical_spacing=0.06, figure=go.Figure())
    made.update_layout(blank.layout)
    trials = [trial for trial in trials if trial.holds is not None]
    shapes = list(dict.fromkeys(trial.shape for trial in trials))
    for shape, (colour, dash, symbol) in zip(shapes, LOOKS, strict=False):
        own = sorted((t for t in trials if t.shape == shape), key=lambda trial: trial.rate_rps)
        rates = [trial.rate_rps for trial in own]
        line = {"color": f"var({colour})", "dash": dash, "width": 2}
        marker = {"symbol": symbol, "size": 9}
        lows = [t.low for t in own]
        spread = [None if t.attainment is None or t.low is None else t.attainment - t.low for t in own]
        made.add_scatter(
            x=rates,
            y=[t.attainment for t in own],
            name=shape,
            line=line,
            marker=marker,
            mode="lines+markers",
            error_y={"type": "data", "symmetric": False, "array": [0.0] * len(own), "arrayminus": spread},
            customdata=lows,
            hovertemplate=HOVER.format(value="%{y:.1%}, at least %{customdata:.1%}"),
            row=1,
            col=1,
        )
        for row, values in ((2, [t.ttft_p99_s for t in own]), (3, [t.recovery_s for t in own])):
            made.add_scatter(
                x=rates,
                y=values,
                name=shape,
                showlegend=False,
                line=line,
                marker=marker,
                mode="lines+markers",
                hovertemplate=HOVER.format(value="%{y:.3s}s"),
                row=row,
                col=1,
            )
    made.add_hline(y=share, line=LIMIT_LINE, row=1, col=1)
    made.update_xaxes(**LINES)
    made.update_xaxes(title=TEXT["rate_axis"], row=3, col=1)
    made.update_yaxes(
        title=TEXT["attainment_axis"], tickformat=".0%", range=[-0.02, 1.05], **LINES, row=1, col=1
    )
    made.update_yaxes(title=TEXT["ttft_axis"], **LOG_SECONDS, **LINES, row=2, col=1)
    if all(trial.ttft_p99_s is None for trial in trials):
        place = {"xref": "x2 domain", "yref": "y2 domain", "x": 0.5, "y": 0.5}
        made.add_annotation(text=TEXT["no_p99"], showarrow=False, **place)
        made.update_yaxes(showticklabels=False, row=2, col=1)
    made.update_yaxes(title=TEXT["recovery_axis"], ticksuffix=" s", rangemode="tozero", **LINES, row=3, col=1)
    slot = figure("capacity", 720, TEXT["curve_caption"])
    return Section("curve", TEXT["curve"], slot, {"capacity": made})
