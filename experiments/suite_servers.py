"""The server of a suite's variant: started, waited for, and stopped again; and when it has nothing left
to do."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from experiments.launch import STOP_GRACE_S, LaunchError, last_lines, simulated_server
from experiments.suite_file import SuiteError, Variant
from runlog.exit_codes import ExitCode

Show = Callable[[str], object]

BUSY_GAUGES = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",
    "tgi_batch_current_size",
    "tgi_queue_size",
    "llamacpp:requests_processing",
    "llamacpp:requests_deferred",
)
"""Gauges that are 0 when the server has nothing to do (burstiness.md 5.3 of the design; each server's own
page)."""
_LOOK_EVERY_S = 0.5
_ANSWER_LIMIT_S = 5.0


def serving(variant: Variant, log: Path, show: Show) -> AbstractContextManager[str | None]:
    """The variant's server while the block lasts: its base URL, or None in virtual time.

    Raises LaunchError when it does not get ready, SuiteError when a person is needed and there is none.
    """
    return SERVERS[variant.kind](variant, log, show)


@contextmanager
def _virtual(variant: Variant, log: Path, show: Show) -> Iterator[str | None]:
    yield None


@contextmanager
def _simserver(variant: Variant, log: Path, show: Show) -> Iterator[str | None]:
    with simulated_server(log, "--model", variant.model, *shlex.split(variant.says)) as url:
        yield url


@contextmanager
def _running(variant: Variant, log: Path, show: Show) -> Iterator[str | None]:
    wait_ready(variant)
    yield variant.says


@contextmanager
def _command(variant: Variant, log: Path, show: Show) -> Iterator[str | None]:
    show(f"starting: {variant.says}")
    with open(log, "wb") as output:
        process = subprocess.Popen(
            shlex.split(variant.says),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # servers start processes of their own; all of them are to end
        )
    try:
        wait_ready(variant, lambda: _ended(process, variant, log))
        yield variant.url
    finally:
        _stop_group(process)


@contextmanager
def _compose(variant: Variant, log: Path, show: Show) -> Iterator[str | None]:
    show(f"starting the compose service {variant.says}")
    _docker("up", "--detach", variant.says)
    try:
        wait_ready(variant)
        yield variant.url
    finally:
        _docker("stop", variant.says)


@contextmanager
def _by_hand(variant: Variant, log: Path, show: Show) -> Iterator[str | None]:
    if not sys.stdin.isatty():
        raise SuiteError(f"variant {variant.name} is switched by hand; run the suite in a terminal")
    input(f"{variant.says}\nThen press Enter: ")
    wait_ready(variant)
    yield variant.url


SERVERS: dict[str, Callable[[Variant, Path, Show], AbstractContextManager[str | None]]] = {
    "simserver": _simserver,
    "virtual": _virtual,
    "url": _running,
    "command": _command,
    "compose": _compose,
    "by_hand": _by_hand,
}
"""One row per kind of suite_file.VARIANT_KINDS."""


def wait_ready(variant: Variant, check: Callable[[], None] = lambda: None) -> None:
    """Wait until the variant's server answers. Raises LaunchError after its limit, and what `check`
    raises."""
    url = variant.url or variant.says
    asked = variant.health or url
    deadline = time.monotonic() + variant.ready_limit_s
    while True:
        check()
        if _answers(variant.health) if variant.health else _accepts(url):
            return
        if time.monotonic() > deadline:
            raise LaunchError(
                f"variant {variant.name}: {asked} did not answer within {variant.ready_limit_s:g} s; start "
                "the server, or correct its address (--host; url, health, ready_limit in a suite)",
                ExitCode.PREFLIGHT_REFUSED,
            )
        time.sleep(_LOOK_EVERY_S)


def cool_down(
    url: str, limit_s: float, page: Callable[[str], str | None] = lambda url: metrics_page(url)
) -> bool | None:
    """Wait until the server's own gauges say that it has nothing left to do; False when it still had after
    `limit_s`, None when it has no /metrics to say so. `page` gets that page."""
    deadline = time.monotonic() + limit_s
    while True:
        idle = idle_by(page(url))
        if idle is not False:
            return idle
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_EVERY_S)


def idle_by(page: str | None) -> bool | None:
    """Whether a /metrics page says that nothing runs and nothing waits; None when it says neither."""
    values = []
    for line in (page or "").splitlines():
        found = re.match(r"([\w:]+)(?:\{.*\})?\s+(\S+)", line)
        if found and found[1] in BUSY_GAUGES:
            with suppress(ValueError):
                values.append(float(found[2]))
    return all(value == 0 for value in values) if values else None


def metrics_page(url: str) -> str | None:
    """A server's /metrics as text, None when it has none."""
    parts = urlsplit(url)
    with (
        suppress(OSError, ValueError),
        urllib.request.urlopen(f"{parts.scheme}://{parts.netloc}/metrics", timeout=_ANSWER_LIMIT_S) as answer,
    ):
        return str(answer.read(4_000_000).decode("utf-8", "replace"))
    return None


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=_ANSWER_LIMIT_S):
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except (OSError, ValueError):
        return False


def _accepts(url: str) -> bool:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=_ANSWER_LIMIT_S).close()
    except OSError:
        return False
    return True


def _ended(process: subprocess.Popen[bytes], variant: Variant, log: Path) -> None:
    if process.poll() is not None:
        raise LaunchError(
            f"variant {variant.name}: its command ended with status {process.returncode}:\n{last_lines(log)}"
        )


def _stop_group(process: subprocess.Popen[bytes]) -> None:
    """End the process that we started and those that it started."""
    for number, grace_s in ((signal.SIGTERM, STOP_GRACE_S), (signal.SIGKILL, STOP_GRACE_S)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
            return


def _docker(*arguments: str) -> None:
    try:
        done = subprocess.run(["docker", "compose", *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        raise LaunchError(f"docker compose cannot be run: {error}") from error
    if done.returncode:
        lines = "\n".join(done.stderr.splitlines()[-5:])
        raise LaunchError(f"docker compose {' '.join(arguments)} ended with {done.returncode}:\n{lines}")
