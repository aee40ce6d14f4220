"""A suite's load in containers: each run is a master and so many workers of docker-compose.yml.

The suite itself stays on this machine and drives `docker compose` in a project of its own, so that a web UI
that is up stays apart. Run folders are the host's: the suite's folder is mounted where a run writes. The
master is stopped by its container, for a signal to the client would only detach it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from experiments.launch import REPOSITORY, STOP_GRACE_S, LaunchError, LoadRun, follow
from experiments.suite_file import Variant
from experiments.suite_servers import Show, cool_down, metrics_page, serving

PROJECT = "llm-burst-suite"
"""The compose project, unless COMPOSE_PROJECT_NAME names another."""
SIMSERVER_URL = "http://simserver:8000"
THIS_MACHINE = "host.docker.internal"
"""How containers call the machine that they run on; docker-compose.yml makes it so on Linux too."""
_LOOPBACK = re.compile(r"localhost|127\.\d+\.\d+\.\d+|::1")
ASK_METRICS = (
    'exec 3<>"/dev/tcp/127.0.0.1/$0" && printf "GET /metrics HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n" >&3 '
    "&& cat <&3"
)
"""A bash command, its first argument the port: containers of servers have bash, and few have curl."""


def seen_from_containers(url: str) -> str:
    """The URL by which a container reaches what is at `url` here: its own localhost is the container."""
    return _with_host(url, THIS_MACHINE) if _LOOPBACK.fullmatch(urlsplit(url).hostname or "") else url


@contextmanager
def compose_project(folder: Path, workers: int, limit_s: float, show: Show) -> Iterator[InCompose]:
    """The compose project while the block lasts: its image built before, unless SUITE_IMAGE names one;
    containers and network gone after.

    Raises LaunchError: no Docker engine, a build that fails, a project that is in use.
    """
    name = os.environ.get("COMPOSE_PROJECT_NAME") or PROJECT
    env = {
        "COMPOSE_PROJECT_NAME": name,
        "RUNS_DIR": str(folder.resolve()),
        "WORKERS": str(workers),
        "RUN_AS": os.environ.get("RUN_AS") or _owner(),
    }
    place = InCompose(folder, env, limit_s)
    if place.compose("ps", "--all", "--quiet").strip():
        raise LaunchError(
            f"the compose project {name} has containers already, of another suite or of one that was killed. "
            f"Remove them (docker compose -p {name} down), or set COMPOSE_PROJECT_NAME to another name"
        )
    try:
        if not os.environ.get("SUITE_IMAGE"):
            show("building the image of docker-compose.yml (some minutes the first time)")
            place.compose("build", "--quiet")
        yield place
    finally:
        place.compose("down", "--remove-orphans", "--timeout", f"{STOP_GRACE_S:.0f}")


class InCompose:
    """Runs a suite's load in a compose project whose variables are `env`; see suite_place."""

    def __init__(self, folder: Path, env: Mapping[str, str], limit_s: float) -> None:
        self._folder = folder
        self._env = dict(env)
        self._limit_s = limit_s
        self._master = f"{env['COMPOSE_PROJECT_NAME']}-run"
        self._service: str | None = None

    @contextmanager
    def serving(self, variant: Variant, log: Path, show: Show) -> Iterator[str | None]:
        """The variant's server while the block lasts: its URL as the containers see it, None in virtual time.

        A simulated server and a compose service run in the project; every other is where its suite says.
        Raises LaunchError when it does not get ready.
        """
        if variant.kind == "simserver":
            options = f"--model {shlex.quote(variant.model)} {variant.says}"
            with self._serving("simserver", variant, log, SIMSERVER_OPTIONS=options):
                yield SIMSERVER_URL
        elif variant.kind == "compose":
            show(f"starting the compose service {variant.says}")
            with self._serving(variant.says, variant, log):
                yield variant.url
        else:
            with serving(variant, log, show) as url:
                yield None if url is None else seen_from_containers(url)

    @contextmanager
    def _serving(self, service: str, variant: Variant, log: Path, **env: str) -> Iterator[None]:
        self._env.update(env)
        self._service = service
        limit = ("--wait-timeout", f"{variant.ready_limit_s:.0f}")
        try:
            self.compose("up", "--detach", "--no-deps", "--wait", *limit, service)
            yield
        finally:
            self._keep_log(service, log)
            self.compose("rm", "--stop", "--force", service)
            self._service = None

    def load(self, arguments: Sequence[str], logs: Path, on_line: Callable[[str], None]) -> LoadRun:
        """One run with Locust's `arguments`, to its end, on fresh workers. An exception that passes through
        stops it well: it drains, and its folder is whole. Raises LaunchError."""
        logs.mkdir(parents=True, exist_ok=True)
        log = logs / "master.log"
        run = ("run", "--rm", "--no-TTY", "--no-deps", "--use-aliases", "--name", self._master, "master")
        try:
            self.compose("up", "--detach", "--no-deps", "worker")
            with open(log, "wb") as output:
                master = subprocess.Popen(
                    ["docker", "compose", *run, "--headless", *arguments],
                    cwd=REPOSITORY,
                    env={**os.environ, **self._env},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C is ours to act on, not the client's
                )
            try:
                follow(master, log, self._limit_s, lambda line: on_line(self._told_here(line)))
            finally:
                self._end(master)
        finally:
            self._keep_log("worker", logs / "workers.log")
            self.compose("rm", "--stop", "--force", "worker")
        found = re.findall(r"run folder: runs/(\S+)$", log.read_text(errors="replace"), re.MULTILINE)
        return LoadRun(master.returncode, self._folder / found[-1] if found else None, log)

    def _told_here(self, line: str) -> str:
        """A line of the master with the run's paths as they are on this machine."""
        line = line.replace("run folder: runs/", f"run folder: {self._folder}/")
        return line.replace("/suite/runs/", f"{self._folder}/")

    def _end(self, master: subprocess.Popen[bytes]) -> None:
        """Stop the master's container, if it has not ended; and its client."""
        deadline = time.monotonic() + STOP_GRACE_S
        while master.poll() is None and time.monotonic() < deadline:
            stop = ["docker", "stop", self._master]  # it has STOP_GRACE to drain and to report
            stopped = subprocess.run(stop, capture_output=True, start_new_session=True, check=False)
            with suppress(subprocess.TimeoutExpired):  # it may not have been made yet
                master.wait(STOP_GRACE_S if stopped.returncode == 0 else 0.5)
        if master.poll() is None:
            master.kill()
        master.wait()

    def cool_down(self, url: str, limit_s: float) -> bool | None:
        """Wait until the server is idle; see suite_servers.cool_down."""
        return cool_down(url, limit_s, self._metrics)

    def _metrics(self, url: str) -> str | None:
        """The /metrics page of a server, asked in its container when it is one of the project's."""
        parts = urlsplit(url)
        if self._service is None:
            return metrics_page(_with_host(url, "localhost") if parts.hostname == THIS_MACHINE else url)
        ask = ("bash", "-c", ASK_METRICS, str(parts.port or 80))
        with suppress(LaunchError):
            return self.compose("exec", "--no-TTY", self._service, *ask)
        return None

    def _keep_log(self, service: str, log: Path) -> None:
        with suppress(LaunchError):
            log.write_text(self.compose("logs", "--no-color", service), encoding="utf-8")

    def compose(self, *arguments: str) -> str:
        """Standard output of a `docker compose` command. Raises LaunchError with its last lines."""
        return _docker("compose", *arguments, env=self._env)


def _docker(*arguments: str, env: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            ["docker", *arguments],
            cwd=REPOSITORY,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is ours to act on: what was begun is cleared up
            check=False,
        )
    except OSError as error:
        raise LaunchError(f"docker cannot be run: {error}. docs/docker.md says what it takes") from error
    if done.returncode:
        lines = "\n".join((done.stderr or done.stdout).splitlines()[-8:])
        raise LaunchError(f"docker {' '.join(arguments)} ended with {done.returncode}:\n{lines}")
    return done.stdout


def _owner() -> str:
    """Who is to own the run folders: this user, who is root within a rootless engine's containers."""
    rootless = "rootless" in _docker("info", "--format", "{{.SecurityOptions}}", env={})
    return "0:0" if rootless else f"{os.getuid()}:{os.getgid()}"


def _with_host(url: str, host: str) -> str:
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return urlunsplit(parts._replace(netloc=host + port))
