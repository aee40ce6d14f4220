"""`python -m experiments quick`: one calibration, two runs at its rate, the price of burstiness."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from experiments.launch import REPOSITORY, simulated_server
from experiments.suite import options_set
from runlog.folder import read_run_info

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def quick(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "experiments", "quick", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)


def test_the_first_run_finds_the_rate_and_the_second_takes_it_over(tmp_path: Path) -> None:
    narrow = ("--preset", "h100-8b", "--model", "m", "--max-num-seqs", "2")
    short = ("--run-time", "14s", "--set", "calibration_step=300ms", "--set", "output_tokens=20")
    with simulated_server(tmp_path / "server.log", *narrow) as url:
        done = quick("--host", url, "--model", "m", "--runs-dir", str(tmp_path / "runs"), *short)
    assert done.returncode in (0, 1, 2), done.stdout + done.stderr  # 2: the machine was too busy
    (folder,) = (tmp_path / "runs").iterdir()
    runs = sorted(path.parent for path in folder.glob("*/run.json"))
    first, second = (read_run_info(run) for run in runs)
    assert [first.shape, second.shape] == ["uniform", "pulse"]
    assert first.rate_calibration["rate_rps"] == first.mean_rate_rps == second.mean_rate_rps
    assert second.rate_calibration == {}
    assert first.counts["planned"] == second.counts["planned"] > 0
    assert done.stdout.count("At the same ") == 1
    assert "B costs" in done.stdout
    assert "A, server)" in (folder / "matrix.html").read_text()


def test_a_wrong_option_is_told_in_one_line() -> None:
    wrong = quick("--host", "http://127.0.0.1:9", "--model", "m", "--set", "speed=3")
    assert wrong.returncode == 3
    assert "write NAME=VALUE" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_options_are_told_by_name() -> None:
    assert options_set(["run_time=60s", "output-tokens=5"]) == {"duration": "60s", "output_tokens": "5"}
