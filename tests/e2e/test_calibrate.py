"""--rate auto with real Locust processes: its steps, the rate from them, their cost, and early ends."""

from __future__ import annotations

import json
import signal
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.launch import LoadRun, run_load, simulated_server, start, stop, wait_for_line
from loadgen.capacity_rule import LOAD_SHARE, STEPS
from runlog.exit_codes import ExitCode
from runlog.folder import read_requests, read_run_info
from tests.byte_server import ByteServer
from tests.test_clues import streamed
from tests.test_web_ui import get, web_ui

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

AUTO = ("--rate", "auto", "--calibration-step", "500ms", "--output-tokens", "20")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("server") / "simserver.log"
    with simulated_server(log, "--preset", "h100-8b", "--model", "m") as url:
        yield url


def load(tmp_path: Path, host: str, *arguments: str, workers: int = 0) -> LoadRun:
    base = ["--host", host, "--model", "m", "--runs-dir", str(tmp_path / "runs")]
    return run_load([*base, *AUTO, *arguments], tmp_path / "logs", workers=workers, limit_s=200)


def requests_served(url: str) -> int:
    """All requests that the simulated server has begun to answer, by its metrics."""
    text = get(f"{url}/metrics")[1]
    values = [line for line in text.splitlines() if line.startswith("vllm:time_to_first_token_seconds_count")]
    return round(float(values[0].split()[-1]))


@pytest.mark.parametrize("workers", [0, 2])
def test_the_rate_is_60_percent_of_what_the_steps_found(server: str, tmp_path: Path, workers: int) -> None:
    arguments = ("--shape", "pulse", "--period", "2s", "--run-time", "4s", "--slo", "ttft<20s")
    run = load(tmp_path, server, *arguments, workers=workers)
    log = run.log.read_text()
    assert run.folder is not None, log
    info = read_run_info(run.folder)
    found, steps = info.rate_calibration, info.rate_calibration["steps"]
    assert [step["in_flight"] for step in steps] == list(STEPS)
    assert all(step["why"] == "" for step in steps)
    assert all(0 <= step["ended"] <= step["requests"] >= step["in_flight"] for step in steps)
    rates = [step["throughput_rps"] for step in steps if step["throughput_rps"] is not None]
    assert found["capacity_rps"] == max(rates)
    assert found["rate_rps"] == pytest.approx(LOAD_SHARE * found["capacity_rps"], rel=0.01)
    assert info.mean_rate_rps == found["rate_rps"]
    assert info.options["rate"] == "auto"
    assert info.server["calibration"]["requests"] == sum(step["requests"] for step in steps)
    records = list(read_requests(run.folder))
    assert len(records) == info.counts["planned"] == info.counts["kept"]
    assert {record.name for record in records} == {"chat"}
    assert all("calibration" not in record.request_id for record in records)
    assert f"--rate {found['rate_rps']:g})" in log
    assert log.count("in flight: ") >= len(STEPS)


def test_the_measured_rate_given_again_draws_the_same_schedule(server: str, tmp_path: Path) -> None:
    run = load(tmp_path, server, "--run-time", "3s", "--slo", "none")
    assert run.folder is not None, run.log.read_text()
    info = read_run_info(run.folder)
    again = load(tmp_path, server, "--run-time", "3s", "--slo", "none", "--rate", f"{info.mean_rate_rps:g}")
    assert again.folder is not None, again.log.read_text()
    other = read_run_info(again.folder)
    assert info.schedule_sha256 == other.schedule_sha256
    assert other.rate_calibration == {}
    assert "calibration" not in other.server


def test_a_step_with_rejections_ends_it_and_the_steps_before_count(tmp_path: Path) -> None:
    narrow = ("--preset", "h100-8b", "--model", "m", "--max-num-seqs", "1", "--max-num-queued-reqs", "1")
    with simulated_server(tmp_path / "narrow.log", *narrow) as url:
        run = load(tmp_path, url, "--run-time", "3s", "--slo", "none")
    assert run.folder is not None, run.log.read_text()
    found = read_run_info(run.folder).rate_calibration
    last, held = found["steps"][-1], found["steps"][:-1]
    assert "rejected" in last["why"] or "TTFT p95" in last["why"]
    assert 1 <= len(held) < len(STEPS) - 1
    assert found["capacity_rps"] == max(step["throughput_rps"] for step in held)
    assert found["at_least"] is False


def test_a_target_that_misses_the_slo_with_one_request_gets_no_load(server: str, tmp_path: Path) -> None:
    run = load(tmp_path, server, "--run-time", "3s", "--slo", "ttft<1us")
    log = run.log.read_text()
    assert run.exit_code == ExitCode.PREFLIGHT_REFUSED, log
    assert "--rate auto found no rate: with 1 request in flight TTFT p95" in log
    assert "Traceback" not in log
    assert not (tmp_path / "runs").exists()


def test_a_safety_valve_holds_for_the_calibration_too(tmp_path: Path) -> None:
    with simulated_server(tmp_path / "server.log", "--preset", "h100-8b", "--model", "m") as url:
        run = load(tmp_path, url, "--run-time", "3s", "--max-requests", "7")
        assert run.exit_code == ExitCode.SAFETY_VALVE, run.log.read_text()
        assert "the calibration was ended by a safety valve: --max-requests 7 reached" in run.log.read_text()
        assert not (tmp_path / "runs").exists()
        preflight = 4
        assert requests_served(url) <= preflight + 7


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_calibration_ends_it_at_once(
    server: str, tmp_path: Path, how: signal.Signals
) -> None:
    arguments = ["-m", "locust", "-f", "locustfiles/chat.py", "--headless", "--only-summary"]
    target = ["--host", server, "--model", "m", "--runs-dir", str(tmp_path / "runs")]
    given = ["--rate", "auto", "--calibration-step", "60s", "--output-tokens", "5000"]
    process = start([*arguments, *target, *given], tmp_path / "log")
    try:
        wait_for_line(process, tmp_path / "log", "60 s each, outside the load", 60)
        time.sleep(1)
        process.send_signal(how)
        assert process.wait(30) == ExitCode.INTERRUPTED
    finally:
        stop(process)
    assert "Traceback" not in (tmp_path / "log").read_text()
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--load", "closed"), "--rate auto is for an open load"),
        (("--shape", "salvo", "--salvo", "1s,3"), "--rate auto means nothing to the shape salvo"),
    ],
)
def test_where_no_rate_is_asked_for_auto_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    run = load(tmp_path, "http://127.0.0.1:9", *arguments)
    assert run.exit_code == ExitCode.USAGE
    assert message in run.log.read_text()
    assert "Traceback" not in run.log.read_text()


def test_the_form_takes_auto(server: str, tmp_path: Path) -> None:
    form = {"rate": "auto", "calibration_step": "300ms", "duration": "2s", "slo": "none"}
    with web_ui(tmp_path, server) as address:
        told = get(f"{address}/swarm", data=urllib.parse.urlencode(form).encode())
        assert json.loads(told[1])["success"] is True, told
        deadline = time.monotonic() + 90
        while json.loads(get(f"{address}/stats/requests")[1])["state"] != "stopped":
            assert time.monotonic() < deadline
            time.sleep(0.2)
        (folder,) = (tmp_path / "runs").iterdir()
        assert read_run_info(folder).rate_calibration["steps"]


def test_each_request_of_the_calibration_is_the_loads_own_kind_with_a_prompt_of_its_own(
    tmp_path: Path,
) -> None:
    with ByteServer(streamed(3), idle_limit_s=30) as server:
        given = ("--dialect", "openai", "--slo", "none", "--body", '{"top_k": 7}')
        run = load(tmp_path, server.url, "--run-time", "1s", "--calibration-step", "200ms", *given)
        posts = [json.loads(one.body) for one in server.received if one.head.startswith(b"POST")]
        heads = [one.head for one in server.received if one.head.startswith(b"POST")]
    assert run.folder is not None, run.log.read_text()
    ours = [body for body, head in zip(posts, heads, strict=True) if b"-calibration-" in head]
    info = read_run_info(run.folder)
    assert len(ours) == info.server["calibration"]["requests"] > 0
    assert all(body["top_k"] == 7 and body["stream"] for body in ours)
    prompts = [json.dumps(body["messages"]) for body in ours]
    assert len(set(prompts)) == len(prompts)
