"""Analyse a finished run in a process of its own.

pandas and plotly stay out of the master's process: they would stop its event loop for seconds, and a fault in
a report must not cost the run.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

from gevent import subprocess

from loadgen.options import OptionError
from runlog.exit_codes import ExitCode
from runlog.folder import SUMMARY_JSON

logger = logging.getLogger(__name__)

_REPOSITORY = Path(__file__).resolve().parent.parent


def check_slo(text: str) -> None:
    """Raise OptionError when the SLO cannot be read, before any load is sent. Empty text is no SLO."""
    if not text:
        return
    from analysis.slo import SloError, parse_slo  # brings pandas: only here, only in the master

    try:
        parse_slo(text)
    except SloError as error:
        raise OptionError(f"--slo: {error}") from error


def ttft_limit_s(slo: str) -> float | None:
    """The tightest limit on TTFT in a checked SLO; None where it has none."""
    if not slo:
        return None
    from analysis.slo import parse_slo

    return parse_slo(slo).ttft_limit_s()


def analyse(folder: Path) -> ExitCode:
    """Write summary.json and report.html into `folder`, log the verdict, and return the run's exit code."""
    folder = folder.resolve()
    done = subprocess.run(
        [sys.executable, "-m", "analysis", "report", str(folder)],
        cwd=_REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C is for the run; its report is finished all the same
    )
    for line in done.stdout.decode(errors="replace").splitlines():
        logger.info("%s", line)
    if done.returncode != 0:
        logger.error("no report could be made; try: python -m analysis report %s", folder)
        return ExitCode.NOT_VALID
    return ExitCode(json.loads((folder / SUMMARY_JSON).read_text(encoding="utf-8"))["exit_code"])
