"""The loads of the bench: real runs of Locust against the truth server, each on a core of its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.process_watch import ProcessWatch
from bench.truth import TrueStream, make_certificate, true_streams, truth_server
from experiments.launch import LaunchError, run_load
from runlog.folder import read_gaps, read_requests
from runlog.record import RequestRecord

SERVER_CORE, CLIENT_CORE = 1, 0

_RAMP_LEVELS = 20
_MOST_LEVELS = 190


@dataclass(frozen=True)
class Answers:
    """What the truth server does: `tokens` chunks, the first after `ttft_ms`, `gap_ms` between them."""

    tokens: int
    ttft_ms: float
    gap_ms: float

    @property
    def seconds(self) -> float:
        """How long one takes."""
        return (self.ttft_ms + (self.tokens - 1) * self.gap_ms) / 1000


@dataclass(frozen=True)
class Compared:
    """A run's successful records, and what really happened to each: by request id."""

    records: list[RequestRecord]
    truth: dict[str, TrueStream]
    gaps: dict[str, np.ndarray]


def run_and_compare(
    arguments: Sequence[str],
    answers: Answers,
    watch: ProcessWatch | None = None,
    *,
    tls: bool = False,
) -> Compared:
    """Run Locust with `arguments`. Raises LaunchError when the run does not begin, NoCompiler without one."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    apart = len(cores) > 1
    on_line: Callable[[str], None] = watch.on_line if watch else lambda line: None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certificate = make_certificate(folder) if tls else None
        server_cores = [cores[SERVER_CORE]] if apart else []
        with truth_server(answers.ttft_ms, answers.gap_ms, answers.tokens, server_cores, certificate) as url:
            base = [
                "--host",
                url,
                "--model",
                "truth",
                "--runs-dir",
                name,
                "--run-name",
                "bench",
                "--slo",
                "none",
            ]
            lengths = ["--input-tokens", "40", "--output-tokens", str(answers.tokens)]
            run = run_load(
                [*base, *lengths, *arguments],
                folder / "logs",
                on_line=on_line,
                env={"SSL_CERT_FILE": str(certificate)} if certificate else None,
                cores=[cores[CLIENT_CORE]] if apart else [],
            )
            if run.folder is None:
                raise LaunchError(f"the run did not begin:\n{run.log.read_text()[-800:]}")
            records = [record for record in read_requests(run.folder) if record.outcome == "succeeded"]
            gaps = {record.request_id: np.array(read_gaps(run.folder, record)) for record in records}
            return Compared(records, true_streams(url, certificate), gaps)


def closed_loop(users: int, answers: Answers, seconds: float) -> list[str]:
    """Arguments for `users` users, who come in small groups over the first answer's time: in one herd they
    would stay in step with each other for the whole run. Where answers are short they do not.
    """
    base = ["--load", "closed", "--run-time", f"{seconds:g}s"]
    ramp_s = _ramp_s(answers, seconds)
    if not ramp_s:
        return [*base, "--users", str(users)]
    count = int(min(_RAMP_LEVELS, _MOST_LEVELS * ramp_s / seconds))
    levels = [users * step // count or 1 for step in range(1, count)]
    levels += [users] * (round(seconds / ramp_s * count) - len(levels))
    return [*base, "--shape", "steps", "--levels", ",".join(map(str, levels))]


def _ramp_s(answers: Answers, seconds: float) -> float:
    return min(answers.seconds, seconds / 3) if answers.seconds > 0.5 else 0.0


def whole_cycles(answers: Answers, seconds: float) -> tuple[float, float]:
    """From when to when to measure: after the ramp and a second, for as many whole answers as fit. Over whole
    ones a stream's chunks are as many as offered, whatever its phase.
    """
    from_s = _ramp_s(answers, seconds) + 1.0
    count = max(int((seconds - 0.2 - from_s) / answers.seconds), 1)
    return from_s, from_s + count * answers.seconds
