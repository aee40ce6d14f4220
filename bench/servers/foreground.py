"""One server in the foreground: started, told ready, and stopped with everything that it started.

Prints `ready {"base_url": ..., "pid": ..., "start_s": ...}` once the server answers. SIGTERM and SIGINT stop
the server; so does --max-seconds, the net for a caller that died.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from runlog.exit_codes import ExitCode

KEY_VARIABLE = "REAL_SERVER_API_KEY"
"""The key that the server shall ask for. From the environment: arguments are for all to see."""

_ANSWERS_ANYHOW = frozenset({401, 403, 404, 405})


def options(module: str, about: str | None) -> argparse.ArgumentParser:
    """The options that every start script has. What follows `--` goes to the server itself."""
    made = argparse.ArgumentParser(
        prog=f"python -m bench.servers.{module}",
        description=about,
        epilog=f"${KEY_VARIABLE}, if set, is the key that the server asks for. Options of the server itself"
        " follow after --.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--venv", type=Path, required=True, help="environment to use; made there if there is none"
    )
    made.add_argument("--install-only", action="store_true", help="make the environment and end")
    made.add_argument("--name", default="my-llm", help="the model's name as served (%(default)s)")
    made.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0: any free one (%(default)s)")
    made.add_argument("--ready-limit", type=float, default=300, help="seconds until it must answer (300)")
    made.add_argument("--stop-limit", type=float, default=15, help="seconds from SIGTERM to SIGKILL (15)")
    made.add_argument("--max-seconds", type=float, help="stop by itself after this long")
    made.add_argument("more", nargs="*", metavar="-- OPTIONS", help="options of the server itself")
    return made


def free_port(asked: int) -> int:
    """`asked`, or for 0 a port on 127.0.0.1 that was free a moment ago."""
    if asked:
        return asked
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def serve(
    command: Sequence[str],
    asked: argparse.Namespace,
    port: int,
    *,
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> ExitCode:
    """Run `command` until SIGTERM, SIGINT or its own end. NOT_VALID when it ended by itself or never got
    ready.
    """
    stops: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: stops.append(number))
    began = time.monotonic()
    child = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    url, ready = f"http://127.0.0.1:{port}", False
    try:
        while not stops and child.poll() is None:
            age_s = time.monotonic() - began
            if not ready and _answers(f"{url}/health"):
                ready = True
                facts = {"base_url": url, "pid": child.pid, "start_s": round(age_s, 1)}
                print(f"ready {json.dumps(facts)}", flush=True)
            if not ready and age_s > asked.ready_limit:
                print(f"not ready after {asked.ready_limit:.0f} s", flush=True)
                return ExitCode.NOT_VALID
            if asked.max_seconds and age_s > asked.max_seconds:
                break
            time.sleep(0.1)
        if child.poll() is not None and not stops:
            print(f"the server ended by itself with status {child.returncode}", flush=True)
            return ExitCode.NOT_VALID
        return ExitCode.OK
    finally:
        _stop_all(child, asked.stop_limit)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            answer.read()
        return True
    except urllib.error.HTTPError as error:
        error.close()
        return error.code in _ANSWERS_ANYHOW
    except OSError:
        return False


def _stop_all(child: subprocess.Popen[bytes], grace_s: float) -> None:
    """SIGTERM to the server, and once it is gone or the grace time over SIGKILL to all that it started."""
    if child.poll() is None:
        child.terminate()
        with suppress(subprocess.TimeoutExpired):
            child.wait(grace_s)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
