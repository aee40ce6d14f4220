"""The start scripts of real servers: told ready, stopped whole, installed once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.servers.environment import Install, prepare, python_of
from experiments.launch import REPOSITORY, free_port, start, stop, wait_for_line
from runlog.exit_codes import ExitCode

SERVE = """
import sys
from bench.servers.foreground import options, serve
port = int(sys.argv[1])
asked = options("example", "").parse_args(["--venv", "none", *sys.argv[2:-1]])
sys.exit(serve([sys.executable, *sys.argv[-1].format(port=port).split()], asked, port))
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_is_told_ready_and_stopped(tmp_path: Path, number: signal.Signals) -> None:
    log = tmp_path / "log"
    process = start(["-c", SERVE, str(free_port()), "-m simserver --port {port}"], log)
    try:
        ready = json.loads(wait_for_line(process, log, r"^ready (.*)$", 20)[1])
        assert ready["base_url"].startswith("http://127.0.0.1:")
        assert alive(ready["pid"])
        process.send_signal(number)
        assert process.wait(20) == ExitCode.OK
        assert not alive(ready["pid"])
    finally:
        stop(process)


def served(tmp_path: Path, *arguments: str) -> tuple[int, str]:
    """The exit code and the log of a server that is not stopped from outside."""
    log = tmp_path / "log"
    process = start(["-c", SERVE, str(free_port()), *arguments], log)
    try:
        return process.wait(20), log.read_text()
    finally:
        stop(process)


def test_a_server_that_ends_by_itself_is_told(tmp_path: Path) -> None:
    code, told = served(tmp_path, "-c exit(7)")
    assert (code, "ended by itself with status 7" in told) == (ExitCode.NOT_VALID, True)


def test_a_server_that_never_answers_is_told(tmp_path: Path) -> None:
    code, told = served(tmp_path, "--ready-limit", "0.5", "-m simserver --port 0")
    assert (code, "not ready after" in told) == (ExitCode.NOT_VALID, True)


def test_a_server_stops_by_itself_after_its_time(tmp_path: Path) -> None:
    code, told = served(tmp_path, "--max-seconds", "1", "-m simserver --port {port}")
    assert (code, "ended by itself" in told) == (ExitCode.OK, False)


def test_an_environment_is_filled_once_and_again_after_a_failure(tmp_path: Path) -> None:
    python_of(tmp_path).parent.mkdir()
    python_of(tmp_path).symlink_to(sys.executable)
    filled: list[str] = []

    def fails(install: Install) -> None:
        filled.append("in vain")
        raise subprocess.CalledProcessError(1, "pip")

    with pytest.raises(subprocess.CalledProcessError):
        prepare(tmp_path, "server-1", fails)
    for _ in range(2):
        prepare(tmp_path, "server-1", lambda install: filled.append("well"))
    prepare(tmp_path, "server-2", lambda install: filled.append("another"))
    assert filled == ["in vain", "well", "another"]


@pytest.mark.parametrize("script", ["vllm_cpu", "llama_cpp", "tiny_model", "gguf_to_hf"])
def test_every_script_explains_itself(script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"bench.servers.{script}", "--help"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert f"bench.servers.{script}" in done.stdout or f"{script}.py" in done.stdout
