"""docker-compose.yml on a real engine: a run's exit code and folder, a worker that is killed, the web UI.

Needs a Docker engine with Compose v2, else the slow tests skip (tests/docker_engine.py). Each test has a
project, a network and a runs folder of its own and leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import tomllib
import urllib.request
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from experiments.launch import REPOSITORY, LoadRun, follow, free_port, stop
from loadgen.options import OPTIONS
from runlog.exit_codes import ExitCode
from runlog.folder import SUMMARY_JSON, read_run_info
from tests.docker_engine import BUILD_LIMIT_S, docker
from tests.run_folders import degraded
from tests.test_load_run import folder_of, records_of

COMPOSE_FILE = REPOSITORY / "docker-compose.yml"
WORKERS = 4
SECRET = "sk-compose-secret-word"
RUN_LIMIT_S = 180
LOAD = ("--shape", "pulse", "--rate", "10", "--period", "5s", "--output-tokens", "5")

pytestmark = pytest.mark.timeout(BUILD_LIMIT_S + 60)


class Stack:
    """One compose project with a runs folder of its own, owned by a user who is not root."""

    def __init__(self, image: str, tmp_path: Path) -> None:
        self.project = f"burst-test-{uuid.uuid4().hex[:8]}"
        self.runs = tmp_path / "runs"
        self.runs.mkdir()
        self.owner = (os.getuid(), os.getgid()) if os.getuid() else (4321, 4321)
        os.chown(self.runs, *self.owner)
        self.log = tmp_path / "master.log"
        self.master = f"{self.project}-headless"
        self.env = {
            "SUITE_IMAGE": image,
            "COMPOSE_PROJECT_NAME": self.project,
            "RUNS_DIR": str(self.runs),
            "RUN_AS": "{}:{}".format(*self.owner),
            "WORKERS": str(WORKERS),
            "WEB_PORT": str(free_port()),
            "LOAD_API_KEY": SECRET,
            "SIMSERVER_API_KEY": SECRET,
        }

    def compose(self, *arguments: str) -> str:
        return docker("compose", *arguments, env=self.env)

    def run(
        self, *options: str, deps: bool = True, when: str | None = None, then: tuple[str, ...] = ()
    ) -> LoadRun:
        """The documented line for a headless run. When a line of the master's log matches `when`, `docker
        *then` is run, once.
        """
        waiting_for = when

        def on_line(line: str) -> None:
            nonlocal waiting_for
            if waiting_for and re.search(waiting_for, line):
                waiting_for = None
                docker(*then)

        ours = ["--name", self.master, *(() if deps else ("--no-deps",))]
        with open(self.log, "wb") as output:
            process = subprocess.Popen(
                [
                    "docker",
                    "compose",
                    "run",
                    "--rm",
                    "--use-aliases",
                    *ours,
                    "master",
                    "--headless",
                    *options,
                ],
                cwd=REPOSITORY,
                env={**os.environ, **self.env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            follow(process, self.log, RUN_LIMIT_S, on_line)
        finally:
            stop(process)
        assert waiting_for is None, f"no line matched {waiting_for!r}:\n{self.log.read_text()}"
        found = re.findall(r"run folder: runs/(\S+)$", self.log.read_text(), re.MULTILINE)
        return LoadRun(process.returncode, self.runs / found[-1] if found else None, self.log)

    def down(self) -> None:
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "2")


@pytest.fixture
def stack(image: str, tmp_path: Path) -> Iterator[Stack]:
    made = Stack(image, tmp_path)
    try:
        yield made
    finally:
        made.down()


def summary_of(run: LoadRun) -> dict[str, object]:
    read: dict[str, object] = json.loads((folder_of(run) / SUMMARY_JSON).read_text())
    return read


@pytest.mark.slow
def test_a_headless_run_ends_with_its_own_code_and_leaves_its_folder_to_the_caller(stack: Stack) -> None:
    run = stack.run(*LOAD, "--run-time", "15s")
    assert {record.outcome for record in records_of(run)} == {"succeeded"}  # the key reached every worker
    info = read_run_info(folder_of(run))
    assert len(info.workers) == len({worker.host for worker in info.workers}) == WORKERS
    assert [worker.kept for worker in info.workers] == [worker.planned for worker in info.workers]

    summary = summary_of(run)
    expected = ExitCode.OK if summary["verdict"] == "VALID" else ExitCode.NOT_VALID
    assert run.exit_code == summary["exit_code"] == expected, run.log.read_text()

    files = sorted(folder_of(run).iterdir())
    assert "report.html" in [file.name for file in files]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in [folder_of(run), *files]} == {stack.owner}
    for path in [*files, run.log]:
        assert SECRET.encode() not in path.read_bytes(), path.name
    assert SECRET not in docker("history", "--no-trunc", stack.env["SUITE_IMAGE"])


@pytest.mark.slow
def test_a_worker_container_killed_in_mid_run_is_named_and_nothing_is_counted_twice(stack: Stack) -> None:
    killed = f"{stack.project}-worker-1"
    run = stack.run(*LOAD, "--run-time", "20s", when=r"pulse\s+5/20 s", then=("kill", killed))
    records = records_of(run)
    info = read_run_info(folder_of(run))
    lost = [worker for worker in info.workers if worker.lost_at_s is not None]
    assert len(lost) == 1, info.workers
    unsent = [record for record in records if record.outcome == "not_sent"]
    assert unsent
    assert {(record.worker, record.failure_class) for record in unsent} == {(lost[0].index, "worker_lost")}
    assert all(record.outcome == "succeeded" for record in records if record.worker != lost[0].index)
    before = [record for record in records if record.worker == lost[0].index and record.outcome != "not_sent"]
    assert before, "what the worker had reported until then is kept"

    summary = summary_of(run)
    assert degraded(summary), summary["verdict_reasons"]
    assert "workers lost" in str(summary["verdict_reasons"])
    assert run.exit_code == summary["exit_code"] == ExitCode.NOT_VALID


@pytest.mark.slow
def test_a_stopped_run_drains_within_the_grace_period_and_leaves_a_whole_folder(stack: Stack) -> None:
    """Every request in flight takes some 5 s and ends by itself: nothing is cut."""
    options = ("--shape", "uniform", "--rate", "5", "--run-time", "60s", "--output-tokens", "500")
    run = stack.run(*options, when=r"uniform\s+5/60 s", then=("stop", stack.master))
    assert run.exit_code == ExitCode.INTERRUPTED, run.log.read_text()
    outcomes = Counter(record.outcome for record in records_of(run))
    assert set(outcomes) == {"succeeded", "not_sent"}
    assert outcomes["succeeded"] >= 10


@pytest.mark.slow
def test_a_wrong_option_ends_with_its_own_code_too(stack: Stack) -> None:
    run = stack.run("--rate", "0", deps=False)
    assert run.exit_code == ExitCode.USAGE
    assert "--rate: '0' must be above 0" in run.log.read_text()
    assert not list(stack.runs.iterdir())


@pytest.mark.slow
def test_the_web_ui_is_on_loopback_and_workers_may_come_before_and_after_the_master(stack: Stack) -> None:
    stack.compose("up", "--detach", "--wait", "--wait-timeout", "90", "--scale", "worker=1")
    stack.compose("up", "--detach", "--wait", "--wait-timeout", "90", "--scale", "worker=2", "--no-recreate")
    port = stack.env["WEB_PORT"]
    assert stack.compose("port", "master", "8089").strip() == f"127.0.0.1:{port}"
    for service, inside in (("master", "5557"), ("simserver", "8000")):
        with pytest.raises(AssertionError, match="no port"):
            stack.compose("port", service, inside)
    base = f"http://127.0.0.1:{port}"
    with urllib.request.urlopen(f"{base}/", timeout=10) as page:
        assert SECRET.encode() not in page.read()
    deadline = time.monotonic() + 30
    ready: list[str] = []
    while len(ready) != 2 and time.monotonic() < deadline:
        with suppress(OSError), urllib.request.urlopen(f"{base}/stats/requests", timeout=10) as answer:
            ready = [worker["id"] for worker in json.load(answer)["workers"] if worker["state"] == "ready"]
        time.sleep(0.5)
    assert len(ready) == 2


@pytest.mark.slow
@pytest.mark.parametrize("profiles", ["", "vllm"])
def test_the_file_is_sound_and_holds_no_key_of_its_own(image: str, profiles: str) -> None:
    keys = {"LOAD_API_KEY": "", "OPENAI_API_KEY": "", "HF_TOKEN": "", "SIMSERVER_API_KEY": ""}
    config = json.loads(
        docker("compose", "config", "--format", "json", env={"COMPOSE_PROFILES": profiles} | keys)
    )
    services = {"simserver", "master", "worker"} | ({profiles} if profiles else set())
    assert set(config["services"]) == services
    for service in config["services"].values():
        for name in keys:
            assert not service.get("environment", {}).get(name)


def test_every_option_can_be_set_from_outside() -> None:
    """A new option needs its line under the master's `environment`."""
    passed_on = set(re.findall(r"^      (LOAD_[A-Z_]+):", COMPOSE_FILE.read_text(), re.MULTILINE))
    fixed = {"LOAD_RUNS_DIR"}  # the folder that is mounted
    assert {option.env_var for option in OPTIONS} - fixed <= passed_on


def test_the_image_gets_every_package_that_a_run_needs_and_nothing_else() -> None:
    lines = (REPOSITORY / ".dockerignore").read_text().splitlines()
    packages = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["mypy"]["packages"]
    assert "*" in lines
    assert {line[1:] for line in lines if line.startswith("!")} == {
        *(package for package in packages if package != "bench"),
        "locustfiles",
        "requirements.txt",
    }
