"""`python -m bench.report_size`: is the report of a million requests quick, small and light to look at?

Makes a run folder (bench/report_folder.py), times `python -m analysis report` on it with its peak memory,
opens the page in Chromium for the first paint, the first figure and one zoom, and reports a long Locust
history. Prints each figure beside what it should stay below; nothing is asserted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.report_folder import write_folder, write_history
from runlog.exit_codes import ExitCode
from runlog.folder import REPORT_HTML

BROWSER_OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
FIRST_PAINT_JS = "performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000"
ZOOM_JS = """async (range) => {
  const slot = document.querySelector('[data-figure=time_line]'), before = performance.now();
  await Plotly.relayout(slot, {'xaxis.range': range});
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return (performance.now() - before) / 1000;
}"""


ZOOMS_S = ([1000, 1300], [0, 3600], [1000, 1010], [500, 600], [0, 3600], [2000, 2600])


@dataclass(frozen=True)
class Figure:
    """What was measured, in `unit`, and what it should stay below."""

    name: str
    value: float
    below: float
    unit: str

    def __str__(self) -> str:
        mark = "ok" if self.value < self.below else "OVER"
        return f"{self.name:<34} {self.value:>8.2f} {self.unit:<3} (below {self.below:g}) {mark}"


def timed(name: str, arguments: list[str], most_s: float, most_mb: float) -> list[Figure]:
    """Run `python -m analysis` and return its time, CPU time and peak memory. Raises OSError when it fails.

    Beside other work the time grows and the CPU time hardly does.
    """
    began_s = time.perf_counter()
    command = [sys.executable, "-m", "analysis", *arguments]
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=silent)
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise OSError(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    wall_s = time.perf_counter() - began_s
    return [
        Figure(f"{name}: time", wall_s, most_s, "s"),
        Figure(f"{name}: CPU time", usage.ru_utime + usage.ru_stime, most_s, "s"),
        Figure(f"{name}: peak memory", usage.ru_maxrss / 1024, most_mb, "MB"),
    ]


def looked_at(page: Path) -> list[Figure]:
    """First paint and zooms of the page in Chromium; nothing where it is not installed."""
    chromium = shutil.which("chromium")
    if chromium is None:
        print("no chromium: first paint and zoom are left out (apt install chromium)", file=sys.stderr)
        return []
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=BROWSER_OPTIONS)
        view = browser.new_page(viewport={"width": 1280, "height": 800})
        view.goto(page.resolve().as_uri())
        slot = view.locator("[data-figure=time_line]")
        slot.scroll_into_view_if_needed()  # a figure is drawn when it comes near the screen
        slot.locator(".main-svg").first.wait_for()
        first_paint_s = float(view.evaluate(FIRST_PAINT_JS))
        drawn_s = float(view.evaluate("performance.now() / 1000"))
        zooms_s = [float(view.evaluate(ZOOM_JS, span_s)) for span_s in ZOOMS_S]
        browser.close()
    return [
        Figure("first paint", first_paint_s, 2.0, "s"),
        Figure("time line drawn", drawn_s, 5.0, "s"),
        Figure("one zoom (median of 6)", median(zooms_s), 0.5, "s"),
    ]


def main() -> ExitCode:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.report_size", description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000, help="in the run folder (1000000)")
    parser.add_argument("--rows", type=int, default=100_000, help="in the Locust history (100000)")
    parser.add_argument("--gaps", action="store_true", help="with a chunk gap for each token")
    parser.add_argument("--keep", type=Path, help="make the folder here and keep it; use it if it is there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch) / "run"
        if not folder.exists():
            print(f"making {options.requests} requests (about a minute for a million) ...", flush=True)
            write_folder(folder, options.requests, options.gaps)
        found = timed("report", ["report", str(folder)], 20.0, 1500.0)
        page = folder / REPORT_HTML
        found.append(Figure("size of the page", page.stat().st_size / 1e6, 8.0, "MB"))
        found += looked_at(page)
        prefix = write_history(Path(scratch) / "locust", options.rows)
        found += timed("Locust history", ["report", "--locust-csv", str(prefix)], 10.0, 500.0)
    print("\n".join(map(str, found)))
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
