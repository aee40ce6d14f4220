"""One table of exit codes, the same for locust, analysis and experiments.

When several apply, the first of `PRECEDENCE` wins. Failed requests alone do not change the code: under a
burst they are a finding. A run without a single success is INVALID.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    OK = 0
    SLO_MISSED = 1
    NOT_VALID = 2
    USAGE = 3
    PREFLIGHT_REFUSED = 4
    SAFETY_VALVE = 5
    WORKERS_MISSING = 6
    INTERRUPTED = 130


MEANING: dict[ExitCode, str] = {
    ExitCode.OK: "the run is VALID and every limit that gates was met",
    ExitCode.SLO_MISSED: "an SLO that gates was missed or cannot be judged, or a regression was found",
    ExitCode.NOT_VALID: "the verdict is INVALID or DEGRADED: the figures cannot be trusted as they stand",
    ExitCode.USAGE: "an option or input is wrong; nothing was run",
    ExitCode.PREFLIGHT_REFUSED: "the target refused the first request; no load was sent",
    ExitCode.SAFETY_VALVE: "a safety valve (requests, tokens, failure ratio) ended the run",
    ExitCode.WORKERS_MISSING: "fewer workers than expected at the start; no load was sent",
    ExitCode.INTERRUPTED: "stopped by SIGINT, SIGTERM or the web UI",
}

PRECEDENCE: tuple[ExitCode, ...] = (
    ExitCode.USAGE,
    ExitCode.PREFLIGHT_REFUSED,
    ExitCode.WORKERS_MISSING,
    ExitCode.INTERRUPTED,
    ExitCode.SAFETY_VALVE,
    ExitCode.NOT_VALID,
    ExitCode.SLO_MISSED,
    ExitCode.OK,
)


def first_of(codes: Iterable[ExitCode]) -> ExitCode:
    """The code to exit with when all of `codes` apply; OK when there are none."""
    found = set(codes)
    return next((code for code in PRECEDENCE if code in found), ExitCode.OK)
