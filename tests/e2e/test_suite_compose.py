"""experiments/suites/abc.toml, shortened, with its load in containers: interrupted, resumed, whole.

Needs a Docker engine with Compose v2, else it skips (tests/docker_engine.py).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from experiments.launch import REPOSITORY
from experiments.suite_file import read_suite
from runlog.folder import SUMMARY_JSON, read_requests, read_run_info
from tests.docker_engine import BUILD_LIMIT_S, docker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(BUILD_LIMIT_S + 300)]

ABC = Path("experiments/suites/abc.toml")
WORKERS = 4
SECRET = "sk-suite-secret-word"
SHORT = {
    "run_time": "7s",
    "rate": "5",
    "period": "4s",
    "lead": "1s",
    "output_tokens": "5",
    "input_tokens": "40",
}
COMMAND = [
    *(sys.executable, "-m", "experiments", "suite", str(ABC), "--compose", "--workers", str(WORKERS)),
    *(part for name, value in SHORT.items() for part in ("--set", f"{name}={value}")),
    *("--repeats", "1"),
]


def left_behind(project: str) -> list[str]:
    """Containers, networks and volumes of a compose project."""
    label = f"label=com.docker.compose.project={project}"
    return [
        *docker("ps", "--all", "--quiet", "--filter", label).split(),
        *docker("network", "ls", "--quiet", "--filter", label).split(),
        *docker("volume", "ls", "--quiet", "--filter", label).split(),
    ]


def whole(env: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    """The suite, run to its end."""
    command = [*COMMAND, *options]
    return subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, check=False)


def interrupted(env: dict[str, str], runs: Path) -> tuple[int, str]:
    """The suite's exit code and output, Ctrl-C having come while its second run's load was sent."""
    process = subprocess.Popen(
        [*COMMAND, "--runs-dir", str(runs)],
        cwd=REPOSITORY,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    told: list[str] = []
    for line in process.stdout:
        told.append(line)
        if "B-pulse" in line and " sent " in line:
            process.send_signal(signal.SIGINT)
            break
    told += process.stdout
    process.stdout.close()
    return process.wait(), "".join(told)


def test_abc_runs_in_compose_with_four_workers_also_after_an_interruption(image: str, tmp_path: Path) -> None:
    project = f"suite-test-{uuid.uuid4().hex[:8]}"
    env = {**os.environ, "SUITE_IMAGE": image, "COMPOSE_PROJECT_NAME": project, "LOAD_API_KEY": SECRET}
    suite = read_suite(ABC)
    keys = [f"1/{variant}/{scenario}" for variant in suite.variants for scenario in suite.scenarios]
    assert len(keys) == 3

    code, told = interrupted(env, tmp_path)
    assert code == 130, told
    (folder,) = tmp_path.iterdir()
    assert f"--set input_tokens=40 --repeats 1 --runs-dir {tmp_path} --resume {folder}" in told
    assert list(json.loads((folder / "suite.json").read_text())["done"]) == keys[:1]
    cut = [
        info for run in folder.glob("*/run.json") if (info := read_run_info(run.parent)).state == "stopped"
    ]
    assert [info.shape for info in cut] == ["pulse"], told
    assert cut[0].counts["kept"] == cut[0].counts["planned"]  # it was drained and accounted for
    assert left_behind(project) == []

    done = subprocess.run(
        [*COMMAND, "--resume", str(folder)],
        cwd=REPOSITORY,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert left_behind(project) == []
    kept = json.loads((folder / "suite.json").read_text())["done"]
    assert list(kept) == keys
    shapes, verdicts = [], set()
    for row in kept.values():
        run = folder / row["run"]
        info = read_run_info(run)
        shapes.append(info.shape)
        assert info.target.startswith("http://simserver:8000")
        assert len(info.workers) == len({worker.host for worker in info.workers}) == WORKERS
        assert [worker.kept for worker in info.workers] == [worker.planned for worker in info.workers]
        outcomes = [record.outcome for record in read_requests(run)]
        assert set(outcomes) == {"succeeded"}
        assert len(outcomes) == info.counts["planned"] == info.counts["kept"] == row["requests"] > 0
        verdicts.add(json.loads((run / SUMMARY_JSON).read_text())["verdict"])
        assert (run / "report.html").exists()
    assert shapes == ["uniform", "pulse", "mixed"]
    assert verdicts <= {"VALID", "INVALID"}
    assert done.returncode == (0 if verdicts == {"VALID"} else 2), done.stdout + done.stderr
    page = (folder / "matrix.html").read_text()
    assert all(scenario in page for scenario in suite.scenarios)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in files} == {(os.getuid(), os.getgid())}
    assert [path.name for path in files if SECRET.encode() in path.read_bytes()] == []


def test_without_an_engine_it_is_told_in_a_line(tmp_path: Path) -> None:
    env = {**os.environ, "DOCKER_HOST": "unix:///no/such/docker.sock", "SUITE_IMAGE": "none"}
    done = subprocess.run(
        [*COMMAND, "--runs-dir", str(tmp_path)],
        cwd=REPOSITORY,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "docker" in done.stderr
    assert "Traceback" not in done.stderr
