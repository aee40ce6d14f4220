"""The real-server check as a whole, with the simulated server in the real one's place."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.launch import REPOSITORY, simulated_server
from runlog.exit_codes import ExitCode

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOAD_API_KEY", "sk-check")
    monkeypatch.setenv("SIMSERVER_API_KEY", "sk-check")


def checked(folder: Path, url: str, parts: str, *more: str) -> dict[str, tuple[str, str]]:
    """The findings by claim: the word before, and the figures behind."""
    command = [sys.executable, "-m", "bench.check_real", "--folder", str(folder)]
    command += ["--url", url, "--model", "sim-llm", "--only", parts, *more]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode in (ExitCode.OK, ExitCode.NOT_VALID), done.stdout + done.stderr
    rows = re.findall(r"^(PASS|FAIL|n/a ) +(\S.*?)  +(\S.*)$", done.stdout, re.MULTILINE)
    return {claim: (word.strip(), seen) for word, claim, seen in rows}


def test_loads_are_compared_with_the_servers_own_counters(tmp_path: Path) -> None:
    limits = ("--max-num-seqs", "8", "--max-num-queued-reqs", "12")
    with simulated_server(tmp_path / "server.log", *limits) as url:
        found = checked(tmp_path, url, "refused,forms,overload")
    assert {word for word, seen in found.values() if "has no /v1/" not in seen} == {"PASS"}, found
    assert found["one piece: TTFT where there is a stream"][1].startswith("0 of ")
    assert found["run: refused before any load"][1].startswith("exit code 4")
    assert "server 48 of 60" in found["overload: rejected as the server counts"][1]


def test_a_burst_is_compared_with_the_servers_queue_and_histogram(tmp_path: Path) -> None:
    """Whether the run is VALID depends on the machine; what is counted does not."""
    with simulated_server(tmp_path / "server.log", "--max-num-seqs", "2") as url:
        found = checked(tmp_path, url, "burst", "--burst-tokens", "32")
    for claim in (
        "burst: every request succeeds",
        "burst: TTFT rises at least 5-fold",
        "burst: the server's queue fills and empties",
        "burst: input tokens as the server counts",
        "burst: output tokens as the server counts",
    ):
        assert found[claim][0] == "PASS", (claim, found[claim])
    assert "(90), server" in found["burst: mean TTFT as the server's, ± 10%"][1]
    assert "(baseline)" in found["burst: recovery as by the queue, ± 3 s"][1]
