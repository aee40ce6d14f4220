"""The faults that a server can be asked for, as our client sees them: the class is named, nothing hangs."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from client.clock import monotonic_ns
from client.completion import Finished, Limits, Request, Target, complete
from client.endpoints import request_body
from client.reader import ConnectionPool
from experiments.launch import simulated_server
from simserver.faults import FAULTS, Fault, Faults, parse_fault
from tests.test_simserver_app import get, wait_until

StartServer = Callable[..., str]
TOKENS = 8


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A healthy server, to be asked for faults request by request."""
    with simulated_server(tmp_path_factory.mktemp("server") / "log", "--model", "m", "--jitter", "0") as url:
        yield url


def ask(url: str, fault: str | None = None, tokens: int = TOKENS, **limits: float) -> Finished:
    headers = {} if fault is None else {"x-simserver-fault": fault}
    pool = ConnectionPool(Target(url, "m", headers=headers))
    body = request_body("chat", "m", "a few words", tokens)
    request = Request(body=body, request_id="r", arrival=0, scheduled_at_s=0.0, stream=True)
    try:
        return complete(pool, request, start_ns=monotonic_ns(), limits=Limits(**limits))
    finally:
        pool.close()


CASES = {
    "refuse": ("rejected", "http_503", 0),
    "refuse,status=500": ("failed", "http_500", 0),
    "error-body": ("failed", "error_body_with_200", 0),
    "reset": ("failed", "connection_lost_mid_stream", 3),
    "reset,after=0": ("failed", "connection_lost_mid_stream", 0),
    "cut": ("failed", "truncated_stream", 3),
    "cut,after=7": ("failed", "truncated_stream", 7),
    "error-event": ("failed", "server_error_mid_stream", 3),
    "garbage": ("failed", "malformed_stream", TOKENS),
    "stall,for=0.3": ("succeeded", None, TOKENS),
    "buffer": ("succeeded", None, TOKENS),
}


@pytest.mark.parametrize("fault", CASES)
def test_our_client_names_each_fault(server: str, fault: str) -> None:
    outcome, failure, events = CASES[fault]
    began_s = time.monotonic()
    record = ask(server, fault).record
    assert (record.outcome, record.failure_class) == (outcome, failure)
    assert (record.output_events or 0) == events
    assert time.monotonic() - began_s < 20
    wait_until(server, "vllm:num_requests_running", 0)
    assert ask(server).record.outcome == "succeeded", "and the next request is served"


def test_a_stall_is_a_pause_in_the_midst(server: str) -> None:
    record = ask(server, "stall,for=0.5").record
    assert record.gap_max_s is not None
    assert record.gap_max_s >= 0.45


def test_behind_a_buffer_the_first_token_comes_when_the_last_is_made(server: str) -> None:
    record = ask(server, "buffer", tokens=40).record
    assert record.output_events == 40
    assert record.ttft_s is not None
    assert record.ttft_s >= 0.9 * 40 * 0.0097


def test_keep_alive_comments_do_not_keep_a_client_waiting_beyond_its_limit(server: str) -> None:
    record = ask(server, "stall,for=30", stall_s=0.6).record
    assert (record.outcome, record.failure_class) == ("failed", "stall")
    wait_until(server, "vllm:num_requests_running", 0)


@pytest.mark.parametrize(
    "fault", ["mayhem", "reset,after=soon", "reset,times=2", "cut,share=2", "freeze", "refuse,status=200"]
)
def test_a_fault_that_there_is_not_is_a_bad_request(server: str, fault: str) -> None:
    record = ask(server, fault).record
    assert record.failure_class == "http_400"
    assert "fault" in (record.error or "")


def test_faults_by_option_strike_a_share_of_the_requests(
    start_simserver: StartServer, tmp_path: Path
) -> None:
    log = tmp_path / "truth.csv"
    url = start_simserver("--model", "m", "--fault", "error-event,share=0.25", "--log", str(log))
    ends = [ask(url).record.failure_class for _ in range(8)]
    assert ends == [None, None, None, "server_error_mid_stream"] * 2
    with open(log, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["outcome"] for row in rows].count("faulted") == 2
    assert get(url, "/health")[0] == 200


def test_a_frozen_server_goes_on_where_it_stood(start_simserver: StartServer) -> None:
    began_s = time.monotonic()
    url = start_simserver("--model", "m", "--fault", "freeze,at=0,for=4")
    record = ask(url).record
    assert record.outcome == "succeeded"
    assert time.monotonic() - began_s >= 4
    assert ask(url).record.ttft_s < 2  # type: ignore[operator]


def test_a_slow_server_takes_so_many_times_as_long(start_simserver: StartServer) -> None:
    url = start_simserver("--model", "m", "--fault", "slow,times=10", "--jitter", "0")
    record = ask(url).record
    assert record.tpot_s is not None
    assert record.tpot_s >= 0.05, "five healthy steps; the first token may have come late"


# --- the rules


def test_a_share_is_spread_evenly_and_always_the_same() -> None:
    faults = Faults.parse(["reset,share=0.3"])
    struck = [number for number in range(20) if faults.of_request(number, 0.0)]
    assert struck == [3, 6, 9, 13, 16, 19]
    assert Faults.parse(["reset,share=0"]).of_request(0, 0.0) is None


def test_the_timetable() -> None:
    faults = Faults.parse(["freeze,at=10,for=3", "slow,times=2,at=5,for=10", "cut,at=20,for=1"])
    assert [faults.frozen_until_s(at_s) for at_s in (9.9, 10.0, 12.9, 13.0)] == [9.9, 13.0, 13.0, 13.0]
    assert [faults.slowness(at_s) for at_s in (4.9, 5.0, 14.9, 15.0)] == [1, 2, 2, 1]
    assert [faults.of_request(0, at_s) is not None for at_s in (19.9, 20.0, 20.9, 21.0)] == [
        False,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("name", FAULTS)
def test_every_row_is_read_with_its_own_settings(name: str) -> None:
    assert parse_fault(name) == Fault(name, dict(FAULTS[name].settings))
