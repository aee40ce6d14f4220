"""Suites: the file's errors, the order of runs, caps, what resumes, servers waited for, the matrix."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from experiments.launch import LaunchError, LoadRun, free_port, not_begun
from experiments.suite import resuming
from experiments.suite_budget import cap_passed, planned
from experiments.suite_compose import ASK_METRICS, seen_from_containers
from experiments.suite_file import VARIANT_KINDS, SuiteError, Variant, read_suite
from experiments.suite_servers import SERVERS, cool_down, idle_by, serving

SUITES = Path(__file__).parent.parent / "experiments" / "suites"
VIRTUAL = """
name = "quick"
repeats = 2
[load]
rate = 6
run_time = "30s"
input_tokens = 300
[scenarios.A]
shape = "uniform"
[scenarios.B]
shape = "pulse"
period = "10s"
lead = "2s"
[variants.wide]
virtual = "--preset a100-8b --max-num-batched-tokens 8192"
[variants.narrow]
virtual = "--preset a100-8b --max-num-batched-tokens 512"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "suite.toml"
    path.write_text(text)
    return path


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "experiments", "suite", *options]


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*options), capture_output=True, text=True, check=False)


def test_variants_go_forth_and_back_and_each_repeat_has_its_own_schedules(tmp_path: Path) -> None:
    suite = read_suite(written(tmp_path, VIRTUAL))
    assert [step.key for step in suite.steps()] == [
        *("1/wide/A", "1/wide/B", "1/narrow/A", "1/narrow/B"),
        *("2/narrow/A", "2/narrow/B", "2/wide/A", "2/wide/B"),
    ]
    assert [suite.options(step)["seed"] for step in suite.steps()] == ["1"] * 4 + ["2"] * 4


def test_the_command_line_wins_over_the_scenario_and_makes_another_suite(tmp_path: Path) -> None:
    suite = read_suite(written(tmp_path, VIRTUAL))
    changed = suite.changed({"shape": "mixed"}, repeats=1)
    assert {changed.options(step)["shape"] for step in changed.steps()} == {"mixed"}
    assert len(changed.steps()) == 4
    assert changed.sha256 != suite.sha256
    assert suite.changed({}).sha256 == suite.changed({}).sha256


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name = [", "is no TOML"),
        ("nam = 1", "unknown key 'nam'; known are name"),
        ("repeats = 1.5", "repeats must be int, not 1.5"),
        ("repeats = 0\n" + VIRTUAL.replace("repeats = 2", ""), "repeats must be at least 1"),
        ("[variants.a]\nurl = 'http://a'", r"no \[scenarios.NAME\]"),
        (VIRTUAL.replace("rate = 6", "rat = 6"), "'rat' is no option of a run"),
        (VIRTUAL.replace("rate = 6", "seed = 6"), "'seed' is no option of a run here"),
        (VIRTUAL.replace("rate = 6", "rate = [6]"), "rate must be a text or a number"),
        (VIRTUAL.replace("variants.wide", "variants.'a/b'"), "the name 'a/b' would not do"),
        (VIRTUAL + "url = 'http://a'\ncommand = 'x'", "exactly one of simserver"),
        (VIRTUAL + "[variants.c]\ncommand = 'x'", "command needs url"),
        (VIRTUAL + "[variants.c]\nmodel = 'x'", "exactly one of simserver"),
        (VIRTUAL + "[variants.c]\nhost = 'x'", "unknown key 'host'"),
        (VIRTUAL + "[variants.c]\nurl = '${SUITE_NO_SUCH}'", "variable SUITE_NO_SUCH is not set"),
    ],
)
def test_a_wrong_file_is_one_line_that_says_where_and_what(tmp_path: Path, text: str, why: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SuiteError, match=why) as caught:
        read_suite(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", sorted(SUITES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_shipped_suite_reads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BASE_URL", "CANDIDATE_URL", "MODEL"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    suite = read_suite(path)
    assert suite.name == path.stem
    assert suite.steps()


def test_there_is_a_server_for_every_kind_of_variant() -> None:
    assert set(SERVERS) == set(VARIANT_KINDS)


def test_a_page_says_whether_a_server_is_idle() -> None:
    assert (
        idle_by('vllm:num_requests_running{engine="0"} 0.0\nvllm:num_requests_waiting{engine="0"} 0.0')
        is True
    )
    assert (
        idle_by('vllm:num_requests_running{engine="0"} 0\nvllm:num_requests_waiting{engine="1"} 2') is False
    )
    assert idle_by("llamacpp:requests_processing 1") is False
    assert idle_by("process_cpu_seconds_total 3") is None
    assert idle_by("<html>vllm:num_requests_running") is None
    assert idle_by(None) is None


class Busy(BaseHTTPRequestHandler):
    """A server whose queue holds three requests, one fewer at every look."""

    left = 3

    def do_GET(self) -> None:
        body = f"tgi_queue_size {Busy.left}\n".encode()
        Busy.left = max(0, Busy.left - 1)
        self.send_response(200 if self.path == "/metrics" else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


@pytest.fixture
def busy_url() -> Iterator[str]:
    Busy.left = 3
    server = HTTPServer(("127.0.0.1", 0), Busy)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def test_cooling_down_waits_until_the_queue_is_empty(busy_url: str) -> None:
    assert cool_down(busy_url, 30) is True
    Busy.left = 10**6
    assert cool_down(busy_url, 0) is False
    assert cool_down("http://127.0.0.1:1", 0) is None


def test_bash_in_a_servers_container_gets_its_metrics(busy_url: str) -> None:
    port = busy_url.removesuffix("/v1").rpartition(":")[2]
    page = subprocess.run(
        ["bash", "-c", ASK_METRICS, port], capture_output=True, text=True, check=True
    ).stdout
    assert idle_by(page) is False
    Busy.left = 0
    page = subprocess.run(
        ["bash", "-c", ASK_METRICS, port], capture_output=True, text=True, check=True
    ).stdout
    assert idle_by(page) is True


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("http://localhost:8000/v1", "http://host.docker.internal:8000/v1"),
        ("http://127.0.0.1:8000", "http://host.docker.internal:8000"),
        ("https://[::1]/v1?a=b", "https://host.docker.internal/v1?a=b"),
        ("http://10.0.0.5:8000", "http://10.0.0.5:8000"),
        ("http://vllm:8000", "http://vllm:8000"),
        ("http://localhost.example.org", "http://localhost.example.org"),
    ],
)
def test_what_is_on_localhost_here_has_another_name_in_a_container(here: str, there: str) -> None:
    assert seen_from_containers(here) == there


def test_the_way_on_repeats_what_was_typed() -> None:
    typed = ["python", "-m", "experiments", "suite", "a.toml", "--set", "slo=ttft<2s", "--repeats", "1"]
    on = "python -m experiments suite a.toml --set 'slo=ttft<2s' --repeats 1 --resume runs/x"
    assert resuming(typed, Path("runs/x")) == on
    assert resuming([*typed, "--resume", "runs/x"], Path("runs/x")) == on
    assert resuming([*typed[:5], "--resume=runs/x", *typed[5:]], Path("runs/x")) == on


def test_a_server_that_is_not_healthy_is_named_with_what_to_do(busy_url: str, tmp_path: Path) -> None:
    variant = Variant("old", "url", busy_url, None, "m", busy_url.replace("/v1", "/health"), 0.0)
    with (
        pytest.raises(LaunchError, match=r"variant old: .*/health did not answer"),
        serving(variant, tmp_path / "log", print),
    ):
        pass


def test_a_command_is_started_waited_for_and_ended_with_its_children(tmp_path: Path) -> None:
    script = (
        "import http.server, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "address = ('127.0.0.1', int(sys.argv[1]))\n"
        "server = http.server.HTTPServer(address, http.server.BaseHTTPRequestHandler)\n"
        "print(child.pid, flush=True)\n"
        "server.serve_forever()\n"
    )
    (tmp_path / "server.py").write_text(script)
    port = free_port()
    told = f"{sys.executable} {tmp_path / 'server.py'} {port}"
    variant = Variant("mine", "command", told, f"http://127.0.0.1:{port}", "m", None, 30.0)
    with serving(variant, tmp_path / "log", print) as url:
        assert url == f"http://127.0.0.1:{port}"
        child = int((tmp_path / "log").read_text())
        os.kill(child, 0)
    deadline = time.monotonic() + 20
    while Path(f"/proc/{child}").exists() and "Z" not in Path(f"/proc/{child}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with (
        pytest.raises(LaunchError, match="ended with status 3"),
        serving(
            Variant("bad", "command", f"{sys.executable} -c 'raise SystemExit(3)'", url, "m", None, 30.0),
            tmp_path / "log2",
            print,
        ),
    ):
        pass


def test_by_hand_needs_a_person(tmp_path: Path) -> None:
    done = run(
        str(written(tmp_path, VIRTUAL + "[variants.c]\nby_hand = 'switch it'\nurl = 'http://127.0.0.1:1'")),
        *("--runs-dir", str(tmp_path / "runs"), "--set", "run_time=12s", "--repeats", "1"),
    )
    assert done.returncode == 3
    assert "is switched by hand; run the suite in a terminal" in done.stderr


def test_a_suite_that_was_interrupted_goes_on_and_ends_with_the_same_runs(tmp_path: Path) -> None:
    file = str(written(tmp_path, VIRTUAL))
    process = subprocess.Popen(
        command(file, "--runs-dir", str(tmp_path / "runs")),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("[3/8]"):
            process.send_signal(signal.SIGINT)
            break
    rest = process.stdout.read()
    process.stdout.close()
    assert process.wait() == 130
    (folder,) = (tmp_path / "runs").iterdir()
    assert f"--resume {folder}" in rest
    before = json.loads((folder / "suite.json").read_text())["done"]
    assert 2 <= len(before) < 8

    resumed = run(file, "--resume", str(folder))
    assert resumed.returncode in (0, 1), resumed.stdout + resumed.stderr
    assert f"{8 - len(before)} of 8 runs to do" in resumed.stdout
    after = json.loads((folder / "suite.json").read_text())["done"]
    assert list(after) == [step.key for step in read_suite(Path(file)).steps()]
    assert {key: after[key] for key in before} == before
    assert all((folder / row["run"] / "requests.csv").exists() for row in after.values())
    page = (folder / "matrix.html").read_text()
    assert "At the same 6 req/s, B " in page
    assert "narrow" in page

    other = run(file, "--resume", str(folder), "--set", "rate=7")
    assert other.returncode == 3
    assert "made by another suite, or with other options" in other.stderr
    assert run(file, "--resume", str(tmp_path)).returncode == 3


def test_sigterm_ends_it_as_ctrl_c_does(tmp_path: Path) -> None:
    """It waits for a server that never comes."""
    waiting = VIRTUAL.partition("[variants")[0] + "[variants.a]\nurl = 'http://127.0.0.1:1'"
    process = subprocess.Popen(
        command(str(written(tmp_path, waiting)), "--runs-dir", str(tmp_path / "runs")),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("Suite quick: 4 of 4 runs")
    process.send_signal(signal.SIGTERM)
    rest = process.stdout.read()
    process.stdout.close()
    assert process.wait() == 130
    assert rest.startswith("\nInterrupted. To go on:")


def test_a_run_whose_figures_cannot_be_trusted_is_told_by_the_exit_code(tmp_path: Path) -> None:
    given = ("--runs-dir", str(tmp_path / "runs"), "--repeats", "1", "--set", "run_time=12s")
    file = str(written(tmp_path, VIRTUAL))
    nothing_succeeds = run(file, *given, "--set", "total_limit=10ms")
    assert nothing_succeeds.returncode == 2, nothing_succeeds.stdout + nothing_succeeds.stderr
    assert "is INVALID" in nothing_succeeds.stdout
    (folder,) = (tmp_path / "runs").iterdir()
    again = (file, "--resume", str(folder), *given[2:], "--set", "total_limit=10ms", "--allow", "verdict")
    assert run(*again).returncode in (0, 1)


def test_the_run_that_would_pass_a_cap_is_not_begun(tmp_path: Path) -> None:
    done = run(str(written(tmp_path, "max_requests = 400\n" + VIRTUAL)), "--runs-dir", str(tmp_path / "runs"))
    assert done.returncode == 5
    assert "1/narrow/A was not begun" in done.stdout
    (folder,) = (tmp_path / "runs").iterdir()
    assert len(json.loads((folder / "suite.json").read_text())["done"]) == 2


def test_a_run_that_did_not_begin_tells_its_errors_and_keeps_its_exit_code(tmp_path: Path) -> None:
    log = tmp_path / "master.log"
    log.write_text(
        "[2026-12-01 03:48:51,353] vm/INFO/loadgen.calibrate: calibration: 1 in flight does not hold\n"
        "[2026-12-01 03:48:51,354] vm/ERROR/loadgen.conductor: --rate auto found no rate\n"
        "Type     Name    # reqs\n"
    )
    refused = not_begun("1/server/A", LoadRun(4, None, log), "Say it by --set.")
    assert str(refused) == "1/server/A did not begin:\n  --rate auto found no rate\nSay it by --set."
    assert refused.exit_code == 4
    log.write_text("ModuleNotFoundError: No module named 'locust'\n")
    broken = not_begun("1/server/A", LoadRun(1, None, log))
    assert str(broken) == "1/server/A did not begin:\nModuleNotFoundError: No module named 'locust'"
    assert broken.exit_code == 2


def test_a_server_that_is_not_there_is_told_in_seconds(tmp_path: Path) -> None:
    port = free_port()
    file = str(written(tmp_path, VIRTUAL))
    given = ("--host", f"http://127.0.0.1:{port}", "--model", "m", "--runs-dir", str(tmp_path / "runs"))
    done = run(file, *given)
    assert done.returncode == 4
    assert f"127.0.0.1:{port} did not answer within 5 s" in done.stderr
    assert "--host" in done.stderr


def test_wrong_options_of_the_command_are_one_line(tmp_path: Path) -> None:
    file = str(written(tmp_path, VIRTUAL))
    for options, why in (
        (("--set", "rate"), "write NAME=VALUE"),
        (("--set", "speed=3"), "write NAME=VALUE"),
        (("--repeats", "0"), "--repeats must be at least 1"),
        (("--compose",), "--compose needs workers: --workers 4"),
        (("--host", "http://127.0.0.1:1"), "--host needs --model"),
        (("--set", "stall_limit=3s"), "stall_limit means nothing in virtual time"),
        (("--set", "rate=fast"), "rate"),
    ):
        done = run(file, "--runs-dir", str(tmp_path / "runs"), *options)
        assert done.returncode == 3, done.stdout + done.stderr
        assert why in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("option", "requests"),
    [({"duration": "2min", "rate": "3"}, 360), ({"duration": "1h"}, 6 * 3600), ({"rate": "auto"}, 0)],
)
def test_what_a_cap_is_held_against_is_what_a_run_makes_of_the_options(
    tmp_path: Path, option: dict[str, str], requests: int
) -> None:
    """Every spelling of a time that a run takes, and the options' own defaults."""
    text = VIRTUAL.replace("rate = 6\n", "").replace('run_time = "30s"\n', "")
    suite = read_suite(written(tmp_path, "max_requests = 1\n" + text)).changed(option)
    told = cap_passed(suite, {}, suite.steps()[0])
    assert (told != "") is (requests > 1)
    assert planned(suite, suite.steps()[0]) == requests
