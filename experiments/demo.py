"""`make demo`: the same mean load against the simulated server, once spread evenly and once in pulses.

Scenario A is a uniform Poisson stream; scenario B has a pulse every 20 s whose peak is five times the mean.
Their mean rate is the same, so what differs between them is burstiness. They stand side by side and are not
paired: their schedules differ.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from analysis.load import load_run
from analysis.summary import summarize
from analysis.table import side_by_side
from experiments.launch import LoadRun, run_load, simulated_server
from runlog.exit_codes import ExitCode
from runlog.folder import REPORT_HTML, read_run_info
from shapes import make_shape
from shapes.shape import ShapeSettings

WORKERS = 2
RUN_TIME_S = 88.0
"""The fourth pulse ends at 72 s; a recovery shows in 10 s of calm after it, so some time must be left for
that.
"""

MODEL = "sim-llm"
SERVER_OPTIONS = ("--preset", "a100-8b", "--max-num-batched-tokens", "2048", "--model", MODEL)
LOAD_OPTIONS = ("--model", MODEL, "--arrivals", "poisson", "--seed", "1")
SCENARIOS: dict[str, tuple[str, ...]] = {
    "A-uniform": ("--shape", "uniform"),
    "B-pulse": ("--shape", "pulse", "--period", "20s", "--peak-ratio", "5", "--lead", "10s"),
}
INPUT_TOKENS = "lognormal:700,0.5"
OUTPUT_TOKENS = "60"

_PROGRESS = re.compile(r"loadgen\.\w+: (.*)$")


def demo(runs_dir: Path, run_time_s: float, rate_rps: float) -> ExitCode:
    """Run both scenarios and print the table A beside B and the paths of both reports.

    OK when both runs ended with every request accounted for, whatever their verdict or SLO. Raises ShapeError
    when the time or the rate makes no pulse.
    """
    for kind in ("uniform", "pulse"):
        make_shape(kind, ShapeSettings(rate_rps=rate_rps, duration_s=run_time_s))
    runs_dir = runs_dir.resolve()
    logs = runs_dir / "demo-logs"
    logs.mkdir(parents=True, exist_ok=True)
    for old in logs.rglob("*.log"):
        old.unlink()
    runs: dict[str, LoadRun] = {}
    with simulated_server(logs / "simserver.log", *SERVER_OPTIONS) as url:
        print(f"Simulated server ({' '.join(SERVER_OPTIONS)}) at {url}", flush=True)
        for name, shape in SCENARIOS.items():
            print(f"\nScenario {name}: {rate_rps:g} req/s on average for {run_time_s:.0f} s", flush=True)
            arguments = [
                *("--host", url, "--runs-dir", str(runs_dir), "--run-name", name),
                *("--run-time", f"{run_time_s:.0f}s", "--rate", f"{rate_rps:g}"),
                *("--input-tokens", INPUT_TOKENS, "--output-tokens", OUTPUT_TOKENS),
                *LOAD_OPTIONS,
                *shape,
            ]
            runs[name] = run_load(arguments, logs / name, workers=WORKERS, on_line=_show)
    return _conclude(runs)


def _show(line: str) -> None:
    if found := _PROGRESS.search(line):
        print(f"  {found[1]}", flush=True)


def _conclude(runs: dict[str, LoadRun]) -> ExitCode:
    folders = {name: run.folder for name, run in runs.items()}
    for name, run in runs.items():
        if run.folder is None:
            print(f"\nScenario {name} did not run; see {run.log}")
            return ExitCode.NOT_VALID
    finished = {name: folder for name, folder in folders.items() if folder is not None}
    summaries = [summarize(load_run(folder)) for folder in finished.values()]
    print("\n" + side_by_side(summaries) + "\n")
    print(closing_sentence(*summaries) + "\n")
    for name, folder in finished.items():
        print(f"Report {name}: {_as_seen_from_here(folder / REPORT_HTML)}")
    unaccounted = [name for name, folder in finished.items() if not _all_accounted_for(folder)]
    if unaccounted:
        print(
            f"Not every request of {', '.join(unaccounted)} is accounted for; see the checks in the report."
        )
        return ExitCode.NOT_VALID
    return ExitCode.OK


def _all_accounted_for(folder: Path) -> bool:
    info = read_run_info(folder)
    return info.state == "finished" and info.counts["kept"] == info.counts["planned"]


def closing_sentence(even: dict[str, Any], pulsed: dict[str, Any]) -> str:
    """What the bursts did, in one line: TTFT p95 and SLO attainment, evenly and in pulses."""
    p95s = [summary["metrics"]["ttft_s"]["p95"]["value"] for summary in (even, pulsed)]
    slos = [(summary["slo"] or {}).get("attainment", {}).get("whole", {}) for summary in (even, pulsed)]
    shares = [share.get("ratio") for share in slos]
    if None in p95s or None in shares:
        return "The same load in pulses: see the reports."
    return (
        f"The same load in pulses: TTFT p95 {p95s[1] / p95s[0]:.1f} times as long ({p95s[0]:.2f} s -> "
        f"{p95s[1]:.2f} s), SLO attainment {shares[0]:.0%} -> {shares[1]:.0%}."
    )


def _as_seen_from_here(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
