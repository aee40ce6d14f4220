"""The server's own rows of the time line: its queue and its batch, its KV cache and preemptions.

What the server said of itself, moment by moment (runlog.server_samples); it explains a TTFT that the client
only suffers. Both rows are left out where nothing is known.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis import series
from analysis.charts import single
from analysis.rows import AXIS, add_line, layout_axis, legend_of
from analysis.wording import TEXT

MOST_SAMPLES = 2000
MOST_PREEMPTIONS = 500
QUEUE = ("waiting", "running")
LINE_OF = {
    "waiting": {"color": "var(--in-flight)", "width": 1.8},
    "running": {"color": "var(--finished)", "width": 1.6, "dash": "dash"},
}


def known_rows(samples: pd.DataFrame) -> tuple[str, ...]:
    """Which of the rows "server" and "kv" the samples can fill."""
    queue = bool(samples[list(QUEUE)].notna().to_numpy().any())
    kv = bool(samples["kv_cache_used_ratio"].notna().any())
    return (*(["server"] if queue else []), *(["kv"] if kv else []))


def add_server(figure: go.Figure, samples: pd.DataFrame) -> None:
    """Requests waiting and running at the server."""
    for name in QUEUE:
        at_s, count = _known(samples, name)
        if len(at_s):
            fill = {"fill": "tozeroy", "fillcolor": "var(--wash)"} if name == "waiting" else {}
            add_line(figure, "server", name, at_s, count, LINE_OF[name], **fill)
    figure.layout[layout_axis("server")].title.text = TEXT["axis_server"]


def add_kv_cache(figure: go.Figure, samples: pd.DataFrame) -> None:
    """The share of the KV cache in use, and the moments at which requests were preempted for want of it."""
    at_s, used = _known(samples, "kv_cache_used_ratio")
    line = {"color": "var(--sent)", "width": 1.6}
    hover = TEXT["hover_kv"]
    add_line(
        figure,
        "kv",
        "kv",
        at_s,
        used,
        line,
        fill="tozeroy",
        fillcolor="var(--wash-2)",
        hovertemplate=hover,
    )
    total_at_s, total = _known(samples, "preemptions_total")
    more = np.diff(total)
    when = np.flatnonzero(more > 0)
    when = np.sort(when[np.argsort(-more[when], kind="stable")[:MOST_PREEMPTIONS]])
    if len(when):
        figure.add_scatter(
            x=single(total_at_s[when + 1]),
            y=np.full(len(when), 0.06),
            customdata=more[when].astype(int),
            mode="markers",
            marker={"color": "var(--limit)", "size": 8, "symbol": "x-thin-open", "line": {"width": 2}},
            name=TEXT["dots_preempted"],
            yaxis=AXIS["kv"],
            legend=legend_of("kv"),
            hovertemplate=TEXT["hover_preempted"],
        )
    figure.layout[layout_axis("kv")].update(
        title_text=TEXT["axis_kv"], range=[0, 1.04], tickformat=".0%", rangemode="normal"
    )


def _known(samples: pd.DataFrame, column: str) -> tuple[series.Floats, series.Floats]:
    """Times and values of `column` where it is known, thinned with their extremes kept."""
    values = samples[column].to_numpy(dtype=float, na_value=np.nan)
    known = np.isfinite(values)
    return series.thin_steps(samples["at_s"].to_numpy(float)[known], values[known], MOST_SAMPLES)
