"""One client under one load: started, watched beside the server until it has ended, and compared.

The truth server has the last core and the client the others. The client leads a session, so that all that it
started can be counted, and ended with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.comparison import Figures, NoResult, Sample, figures, window_of
from bench.loads import Load
from bench.peers import Client, Command, Setting
from bench.process_tree import busy_s, tree_cpu_s
from bench.truth import server_stats, true_streams, truth_server
from experiments.launch import REPOSITORY, last_lines

ENDING = {signal.SIGINT, signal.SIGTERM}
SAMPLE_EVERY_S = 0.25
START_AND_END_S = 90.0  # a client that takes longer beside its load is ended


class ClientFailed(Exception):
    """A client did not give a result; the message says why, with the end of its log."""


@dataclass(frozen=True)
class Contender:
    """A client of this comparison, with the Python that has it and its version."""

    name: str
    client: Client
    python: Path
    version: str


def measure(
    contender: Contender, load: Load, repeat: int, seconds: float, cores: Sequence[int], words: Path
) -> Figures:
    """Run one client under one load to its end. Raises ClientFailed."""
    server_cores, client_cores = cores[-1:], cores[:-1] or cores
    with (
        tempfile.TemporaryDirectory() as made,
        truth_server(load.ttft_ms, load.gap_ms, load.chunks, server_cores) as url,
    ):
        folder = Path(made)
        (folder / "output").mkdir()
        setting = Setting(load, url, seconds, folder / "output", contender.python, words)
        log = folder / "client.log"
        samples, exit_code = _run(contender.client, setting, log, client_cores)
        try:
            return figures(
                contender.name,
                contender.version,
                load,
                repeat,
                window=window_of(samples, load, seconds),
                measured=contender.client.read(setting.folder),
                truth=true_streams(url),
                server_late_ms=server_stats(url).late_ms,
            )
        except (NoResult, FileNotFoundError, LookupError, ValueError) as error:
            what = f"{contender.name} gave no result under {load.name} (exit status {exit_code})"
            raise ClientFailed(f"{what}: {error}\n{last_lines(log)}") from error


def _run(client: Client, setting: Setting, log: Path, cores: Sequence[int]) -> tuple[list[Sample], int]:
    """Start a client in a session of its own and look at it and the server until it has ended."""
    command = client.command(setting)
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # or a client half started would be left behind
    try:
        process = _start(command, log, cores)
    except OSError as error:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        raise ClientFailed(f"{command.arguments[0]} cannot be run: {error}") from error
    samples = []
    deadline = time.monotonic() + setting.seconds + START_AND_END_S
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        ended = False
        while not ended:
            ended = _has_ended(process.pid) or time.monotonic() > deadline
            seen = server_stats(setting.url)
            now_ns = time.monotonic_ns()
            cpu_s, core_busy_s = tree_cpu_s(process.pid), busy_s(cores)
            samples.append(Sample(now_ns, seen.chunks, seen.requests, seen.active, cpu_s, core_busy_s))
            time.sleep(0 if ended else SAMPLE_EVERY_S)
    finally:
        with suppress(ProcessLookupError):  # what still runs in its session
            os.killpg(process.pid, signal.SIGKILL)
        exit_code = process.wait()
    return samples, exit_code


def _start(command: Command, log: Path, cores: Sequence[int]) -> subprocess.Popen[bytes]:
    with open(log, "wb") as output:
        return subprocess.Popen(
            command.arguments,
            cwd=REPOSITORY,
            env={**os.environ, **command.environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: _place(cores),
        )


def _place(cores: Sequence[int]) -> None:
    """In a client before it begins: its cores, our priority, and no signal held back."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    os.sched_setaffinity(0, cores)
    heed_nice()


def heed_nice() -> None:
    """Let this session compete with others by our nice value: where Linux groups processes by session, that
    value counts only inside the group, and the group has one of its own.
    """
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(os.nice(0)))


def _has_ended(pid: int) -> bool:
    """Whether a child has ended; it is not waited for, so that its CPU time can still be read."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
