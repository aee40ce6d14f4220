"""The shipped suites against the simulated server, over HTTP, with real Locust processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.suite_file import read_suite

pytestmark = pytest.mark.slow

SMOKE = "experiments/suites/smoke.toml"


def test_smoke_interrupted_and_resumed_ends_with_all_runs_of_three_schedulers(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "experiments", "suite", SMOKE]
    process = subprocess.Popen(
        [*command, "--runs-dir", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    told: list[str] = []
    for line in process.stdout:
        told.append(line)
        if line.startswith("[2/6]"):
            break
    for line in process.stdout:  # the second run's load has begun
        told.append(line)
        if "sent" in line:
            process.send_signal(signal.SIGINT)
            break
    told.append(process.stdout.read())
    process.stdout.close()
    assert process.wait() == 130, "".join(told)
    (folder,) = tmp_path.iterdir()
    assert list(json.loads((folder / "suite.json").read_text())["done"]) == ["1/fcfs/A-uniform"]

    done = subprocess.run([*command, "--resume", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1, 2), done.stdout + done.stderr  # 2: the machine was too busy
    suite = read_suite(Path(SMOKE))
    assert set(suite.variants) == {"fcfs", "shortest-prompt-first", "prefill-cadence"}
    kept = json.loads((folder / "suite.json").read_text())["done"]
    assert list(kept) == [step.key for step in suite.steps()]
    for row in kept.values():
        info = json.loads((folder / row["run"] / "run.json").read_text())
        assert info["state"] == "finished"
        assert info["counts"]["kept"] == info["counts"]["planned"]
    assert "shortest-prompt-first" in (folder / "matrix.html").read_text()
