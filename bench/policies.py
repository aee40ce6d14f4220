"""`python -m bench.policies`: every scheduling policy and every rule of admission on scenario B of the demo.

In virtual time, the same schedules for all, means over seeds. `--picture FILE.png` draws the pulses of one
seed under vLLM's own rules, another order and a limit at the door, one above the other.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean
from typing import Any

from plotly.subplots import make_subplots

from analysis.load import load_run
from analysis.summary import summarize
from experiments.demo import INPUT_TOKENS, OUTPUT_TOKENS, SCENARIOS
from experiments.simulate import add_arguments, simulate
from runlog.folder import read_requests, read_run_info
from simserver.policies import POLICIES

LOAD = (
    *SCENARIOS["B-pulse"],
    *("--rate", "6.5", "--run-time", "120s", "--arrivals", "poisson"),
    *("--input-tokens", INPUT_TOKENS, "--output-tokens", OUTPUT_TOKENS),
    *("--preset", "a100-8b", "--slo", "ttft<1s,tpot<100ms"),
)
BUDGET = ("--max-num-batched-tokens", "2048")


@dataclass(frozen=True)
class Way:
    """A way to serve the load: what it is called in the table, and its options."""

    name: str
    options: tuple[str, ...]


WAYS = (
    *(Way(name, (*BUDGET, "--policy", name)) for name in POLICIES),
    Way("fcfs, 8,192 a step", ("--max-num-batched-tokens", "8192")),
    Way("fcfs, 512 a step", ("--max-num-batched-tokens", "512")),
    Way(
        "shortest-prompt-first, 8,192",
        ("--max-num-batched-tokens", "8192", "--policy", "shortest-prompt-first"),
    ),
    Way("admission requests=40", (*BUDGET, "--admission", "requests=40")),
    Way("admission waiting=12", (*BUDGET, "--admission", "waiting=12")),
    Way("admission queued-tokens=8000", (*BUDGET, "--admission", "queued-tokens=8000")),
    Way("admission prefill-backlog=0.6", (*BUDGET, "--admission", "prefill-backlog=0.6")),
)


def run(place: Path, seed: int, way: Way) -> Path:
    """One run in virtual time; returns its folder."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    arguments = parser.parse_args([*LOAD, "--seed", str(seed), *way.options, "--runs-dir", str(place)])
    simulate(arguments, ["bench.policies"], show=lambda text: None)
    (folder,) = place.iterdir()
    return folder


@dataclass(frozen=True)
class Figures:
    """A row of the table: seconds, shares of 1, requests turned away. None where nothing can be said."""

    ttft_p50_s: float | None
    ttft_p95_s: float | None
    ttft_p99_s: float | None
    tpot_p50_s: float | None
    tpot_p99_s: float | None
    slo_in_bursts: float | None
    slo_in_quiet: float | None
    recovery_s: float | None
    rejected: float | None


def figures_of(folder: Path) -> Figures:
    """The run's figures; recovery is the median over its bursts, unknown where most never recovered."""
    summary = summarize(load_run(folder))
    ttft, tpot = (summary["metrics"][name] for name in ("ttft_s", "tpot_s"))
    attained: dict[str, Any] = summary["slo"]["attainment"]
    return Figures(
        ttft["p50"]["value"],
        ttft["p95"]["value"],
        ttft["p99"]["value"],
        tpot["p50"]["value"],
        tpot["p99"]["value"],
        attained["burst"]["ratio"],
        attained["quiet"]["ratio"],
        summary["recovery"]["median_s"],
        summary["counts"]["rejected"] / summary["counts"]["scheduled"],
    )


def mean_of(rows: Sequence[Figures]) -> Figures:
    """The mean of each figure over the runs in which it is known."""
    columns = [(field.name, [getattr(row, field.name) for row in rows]) for field in fields(Figures)]
    return Figures(**{name: fmean(known) if (known := _known(column)) else None for name, column in columns})


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


HEADER = (
    "| policy | TTFT p50 | p95 | p99 ms | TPOT p50 | p99 ms "
    "| SLO in bursts | in quiet | recovery s | rejected |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def told(way: Way, row: Figures) -> str:
    """The row as a line of a Markdown table."""
    times = (row.ttft_p50_s, row.ttft_p95_s, row.ttft_p99_s, row.tpot_p50_s, row.tpot_p99_s)
    cells = [
        way.name,
        *(
            "-" if value is None else f"{value * 1e3:,.{0 if index < 3 else 1}f}"
            for index, value in enumerate(times)
        ),
        *("-" if value is None else f"{value:.1%}" for value in (row.slo_in_bursts, row.slo_in_quiet)),
        "-" if row.recovery_s is None else f"{row.recovery_s:.1f}",
        "-" if row.rejected is None else f"{row.rejected:.1%}",
    ]
    return f"| {' | '.join(cells)} |"


PICTURED = (
    WAYS[0],
    Way("shortest-prompt-first", (*BUDGET, "--policy", "shortest-prompt-first")),
    Way("fcfs, admission queued-tokens=8000", (*BUDGET, "--admission", "queued-tokens=8000")),
)


def picture(place: Path, file: Path) -> None:
    """Draw TTFT over time under each of PICTURED, one above the other, as a PNG by a headless Chromium.

    Raises SystemExit without one.
    """
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("bench.policies: --picture needs chromium: apt install chromium")
    titles = []
    figure = make_subplots(rows=len(PICTURED), cols=1, shared_xaxes=True, vertical_spacing=0.08)
    for row, way in enumerate(PICTURED, start=1):
        folder = run(place / str(row), 1, way)
        records = [one for one in read_requests(folder) if one.sent_at_s is not None]
        served = [one for one in records if one.outcome == "succeeded"]
        turned_away = [one for one in records if one.outcome == "rejected"]
        for at_s, value_s, color, symbol in (
            ([one.sent_at_s for one in served], [one.ttft_s for one in served], "#1f77b4", "circle"),
            ([one.sent_at_s for one in turned_away], [0.0] * len(turned_away), "#d62728", "x"),
        ):
            figure.add_scatter(
                x=at_s,
                y=value_s,
                mode="markers",
                marker={"size": 4, "color": color, "symbol": symbol},
                row=row,
                col=1,
            )
        for start_s, end_s in read_run_info(folder).bursts:
            figure.add_vrect(
                start_s, end_s, fillcolor="#ff9f1c", opacity=0.25, line_width=0, layer="below", row=row, col=1
            )
        figure.add_hline(1.0, line={"dash": "dot", "color": "#666", "width": 1}, row=row, col=1)
        figure.update_yaxes(title="TTFT in s", range=[-0.2, 5], row=row, col=1)
        found = figures_of(folder)
        titles.append(
            f"{way.name}: p95 {found.ttft_p95_s or 0:.2f} s, SLO in bursts {found.slo_in_bursts or 0:.0%}, "
            f"{found.rejected or 0:.0%} turned away (red)"
        )
    for row, title in enumerate(titles, start=1):
        figure.add_annotation(
            text=title, xref="x domain", yref="y domain", x=0, y=1.14, showarrow=False, row=row, col=1
        )
    figure.update_xaxes(
        title="seconds of the run; bursts shaded, dotted: the target of 1 s", row=len(PICTURED), col=1
    )
    figure.update_layout(
        width=1100,
        height=720,
        showlegend=False,
        template="plotly_white",
        margin={"t": 40, "r": 20, "b": 50, "l": 60},
    )
    page = place / "picture.html"
    figure.write_html(page, include_plotlyjs=True, full_html=True, config={"displayModeBar": False})
    options = ("--headless", "--no-sandbox", "--hide-scrollbars", "--virtual-time-budget=5000")
    subprocess.run(
        [chromium, *options, "--window-size=1116,740", f"--screenshot={file.resolve()}", page.as_uri()],
        check=True,
        capture_output=True,
        timeout=120,
    )


def main() -> None:
    """Print the table, or draw the picture."""
    parser = argparse.ArgumentParser(prog="python -m bench.policies", description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each way, seeds from 1 up (5)")
    parser.add_argument("--picture", type=Path, metavar="FILE.png", help="draw this instead of the table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        if options.picture:
            picture(place, options.picture)
            return
        print(HEADER)
        for number, way in enumerate(WAYS):
            seeds = range(1, options.seeds + 1)
            found = [figures_of(run(place / f"{number}-{seed}", seed, way)) for seed in seeds]
            print(told(way, mean_of(found)), flush=True)


if __name__ == "__main__":
    main()
