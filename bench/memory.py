"""`python -m bench.memory`: what one more stream in flight costs in memory.

A closed loop holds 100 streams and then 2,000, none of which ends meanwhile; the growth of the Locust
process's resident memory between the two, shared out over the 1,900, is the figure. A stream gets 2.5 chunks
a second, whose gaps are kept (`--gaps all`) or not put into the run folder (`--gaps none`).
"""

from __future__ import annotations

import argparse
import sys

from bench.own_run import Answers, run_and_compare
from bench.process_watch import ProcessWatch
from bench.truth import NoCompiler
from experiments.launch import LaunchError
from runlog.exit_codes import ExitCode

_LEVEL_S = 12.0
_FEW, _MANY = 100, 2_000


def memory_per_stream_kb(
    few: int = _FEW, many: int = _MANY, level_s: float = _LEVEL_S, gaps: str = "all"
) -> float | None:
    """Kilobytes (1,024 bytes) a stream; None when the run ended too soon to be looked at."""
    answers = Answers(tokens=round(2 * level_s * 2.5), ttft_ms=1000.0, gap_ms=400.0)
    watch = ProcessWatch([level_s - 1.0, 2 * level_s - 1.0])
    levels = ["--shape", "steps", "--levels", f"{few},{many}", "--run-time", f"{2 * level_s:g}s"]
    run_and_compare(["--load", "closed", "--gaps", gaps, *levels], answers, watch)
    if watch.window is None:
        return None
    before, after = watch.window
    return (after.rss_bytes - before.rss_bytes) / (many - few) / 1024


def main() -> ExitCode:
    """Measure what the arguments ask for and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--gaps", choices=("all", "none"), default="all", help="of the run (all)")
    gaps = parser.parse_args().gaps
    try:
        found = memory_per_stream_kb(gaps=gaps)
    except (LaunchError, NoCompiler) as error:
        print(error, file=sys.stderr)
        return ExitCode.NOT_VALID
    print(f"memory per stream, gaps {gaps}: " + ("n/a" if found is None else f"{found:.1f} KB"))
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
