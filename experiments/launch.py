"""Start and stop the processes of a run: servers, Locust masters and workers, by pid and nothing else.

Used by the demo, by suites and by the tests, so that all start things the same way and leave nothing behind.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from runlog.exit_codes import ExitCode

REPOSITORY = Path(__file__).resolve().parent.parent
STOP_GRACE_S = 10.0
_OUR_ERROR = re.compile(r"/ERROR/loadgen\.\w+: (.+)")


class LaunchError(Exception):
    """A process did not start or did not get ready; the message ends with the last lines it printed, and
    `exit_code` is the project's for it.
    """

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.NOT_VALID) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def free_port() -> int:
    """A TCP port on 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def start(
    arguments: Sequence[str], log: Path, env: Mapping[str, str] | None = None, cores: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start `python <arguments>` from the repository root, its output going to the file `log`.

    `cores` pins it to CPU cores where the platform can (Linux).
    """
    pin = (lambda: os.sched_setaffinity(0, cores)) if cores and hasattr(os, "sched_setaffinity") else None
    with open(log, "wb") as output:
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=REPOSITORY,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=pin,
        )


def stop(process: subprocess.Popen[bytes], grace_s: float = STOP_GRACE_S) -> int:
    """End one process that we started: SIGTERM, after the grace time SIGKILL. Returns its status."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


def wait_for_line(process: subprocess.Popen[bytes], log: Path, pattern: str, limit_s: float) -> re.Match[str]:
    """Wait until a line of `log` matches `pattern`. Raises LaunchError when the process ends or time runs
    out.
    """
    deadline = time.monotonic() + limit_s
    while True:
        ended = process.poll() is not None
        if found := re.search(pattern, log.read_text(errors="replace"), re.MULTILINE):
            return found
        if ended or time.monotonic() > deadline:
            why = (
                f"ended with status {process.returncode}" if ended else f"was not ready after {limit_s:.0f} s"
            )
            raise LaunchError(f"{' '.join(map(str, process.args))} {why}:\n{last_lines(log)}")  # type: ignore[arg-type]
        time.sleep(0.05)


def last_lines(log: Path, count: int = 15) -> str:
    """The end of a log file, for error messages."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:])


@contextmanager
def simulated_server(log: Path, *options: str, cores: Sequence[int] = ()) -> Iterator[str]:
    """Run `python -m simserver` on a free port of 127.0.0.1 while the block lasts; yields its base URL."""
    process = start(["-m", "simserver", "--port", "0", *options], log, cores=cores)
    try:
        ready = wait_for_line(process, log, r"listening on (https?://127\.0\.0\.1:\d+)", limit_s=30)
        yield ready[1]
    finally:
        stop(process)


@dataclass(frozen=True)
class LoadRun:
    """A load run that has ended: its exit code, its run folder (None when it never began) and the master's
    log.
    """

    exit_code: int
    folder: Path | None
    log: Path


def not_begun(what: str, run: LoadRun, advice: str = "") -> LaunchError:
    """The error for a run that sent no load: what its log calls errors, else the log's last lines, then
    `advice`. A refusal keeps the run's own exit code.
    """
    errors = _OUR_ERROR.findall(run.log.read_text(errors="replace"))
    why = "\n".join(f"  {line}" for line in errors) or last_lines(run.log)
    refused = (ExitCode.USAGE, ExitCode.PREFLIGHT_REFUSED, ExitCode.WORKERS_MISSING)
    code = next((code for code in refused if code == run.exit_code), ExitCode.NOT_VALID)
    return LaunchError("\n".join(filter(None, [f"{what} did not begin:", why, advice])), code)


def run_load(
    arguments: Sequence[str],
    logs: Path,
    *,
    locustfile: str = "locustfiles/chat.py",
    workers: int = 0,
    limit_s: float = 600.0,
    on_line: Callable[[str], None] = lambda line: None,
    env: Mapping[str, str] | None = None,
    cores: Sequence[int] = (),
) -> LoadRun:
    """Run Locust headless to its end, with a master and `workers` workers, or in one process when 0.

    `arguments` are Locust's options for the run; `on_line` gets each new line of the master's log while it
    goes on. Everything started is stopped, also when an exception passes through. Raises LaunchError after
    `limit_s`.
    """
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / "master.log"
    base = ["-m", "locust", "-f", locustfile]
    leader = [*base, "--headless", "--only-summary", *arguments]
    started: list[subprocess.Popen[bytes]] = []
    try:
        if workers:
            port = str(free_port())
            leader += ["--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", port]
            leader += ["--expect-workers", str(workers), "--expect-workers-max-wait", "60"]
        master = start(leader, log, env, cores)
        started.append(master)
        for index in range(workers):
            worker = [*base, "--worker", "--master-host", "127.0.0.1", "--master-port", port]
            started.append(start(worker, logs / f"worker{index}.log", env, cores))
        follow(master, log, limit_s, on_line)
        for process in started[1:]:
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_GRACE_S)
    finally:
        for process in reversed(started):
            stop(process)
    found = re.findall(r"run folder: (.+)$", log.read_text(errors="replace"), re.MULTILINE)
    return LoadRun(master.returncode, Path(found[-1]) if found else None, log)


def follow(
    process: subprocess.Popen[bytes], log: Path, limit_s: float, on_line: Callable[[str], None]
) -> None:
    """Hand each line of `log` to `on_line` until the process ends. Raises LaunchError after `limit_s`."""
    deadline = time.monotonic() + limit_s
    with open(log, errors="replace") as lines:
        rest = ""
        while True:
            ended = process.poll() is not None
            *whole, rest = (rest + lines.read()).split("\n")
            for line in whole:
                on_line(line)
            if ended:
                return
            if time.monotonic() > deadline:
                raise LaunchError(f"the run did not end within {limit_s:.0f} s:\n{last_lines(log)}")
            time.sleep(0.2)
