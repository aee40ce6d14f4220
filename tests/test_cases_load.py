"""Field cases A32 to A34, the client's own limits: connections, names, clocks and CPU.

Those about the client run with both engines. What the preflight says of open files and ports is in
test_preflight.py.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import gevent
import pytest

import client.reader
import client.wire
from client.clock import kernel_offset_ns, monotonic_ns
from client.completion import Request, Target
from client.engines import arming
from client.reader import ConnectionPool
from client.wire import Address, Wire
from experiments.launch import run_load
from runlog.folder import read_requests, read_run_info
from tests.asking import BODY, FIVE, WHOLE, WHOLE_ANSWER, answered, sent
from tests.byte_server import LAST_CHUNK, RESET, STREAM_HEAD, ByteServer, Step, chunk
from tests.freezing_server import freezing_server

USERS = 300


def test_a32_as_many_requests_are_in_flight_at_the_server_as_users_ask(engine: str) -> None:
    """A client with a pool of 100 connections would show 100."""
    with ByteServer([1.5, WHOLE_ANSWER]) as server:
        pool = ConnectionPool(Target(server.url, "m"))
        arm, start_ns = arming(engine, pool), monotonic_ns()
        calls = [arm(Request(body=BODY, request_id=f"r-{n}"), start_ns=start_ns) for n in range(USERS)]
        for call in calls:
            call.fire()
        most = 0
        while pool.in_flight:
            most = max(most, len(server.received) - sum(call.finished is not None for call in calls))
            gevent.sleep(0.02)
        records = [call.wait().record for call in calls]
        pool.close()
        assert server.accepted(USERS) == USERS
    assert most == USERS
    assert {record.outcome for record in records} == {"succeeded"}
    assert max(record.in_flight_at_send or 0 for record in records) == USERS


def test_a32_waiting_for_a_connection_is_shown_and_no_part_of_ttft(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = client.reader._resolve

    def slowly(host: str, port: int) -> list[Address]:
        gevent.sleep(0.5)
        return resolve(host, port)

    monkeypatch.setattr(client.reader, "_resolve", slowly)
    with ByteServer([WHOLE_ANSWER]) as server:
        pool = ConnectionPool(Target(server.url, "m"))
        first, second = (sent(pool, f"r-{n}", engine).record for n in range(2))
        pool.close()
    assert first.connect_s is not None
    assert first.ttft_s is not None
    assert first.sent_at_s is not None
    assert first.connect_s >= 0.5
    assert first.sent_at_s >= first.connect_s
    assert first.ttft_s < 0.4
    assert (second.connection, second.connect_s) == ("reused", None)


def test_a33_a_name_is_resolved_once_and_users_keep_their_connections(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK's own stream would open a connection for every request."""
    resolved: list[str] = []
    resolve = client.reader._resolve

    def counted(host: str, port: int) -> list[Address]:
        resolved.append(host)
        gevent.sleep(0.05)
        return resolve(host, port)

    monkeypatch.setattr(client.reader, "_resolve", counted)
    with ByteServer([0.02, WHOLE_ANSWER]) as server:
        pool = ConnectionPool(Target(server.url, "m"))
        arm = arming(engine, pool)

        def user(number: int) -> None:
            for turn in range(5):
                call = arm(Request(body=BODY, request_id=f"u{number}-{turn}"), start_ns=monotonic_ns())
                call.fire()
                assert call.wait().record.outcome == "succeeded"

        gevent.joinall([gevent.spawn(user, number) for number in range(20)], raise_error=True)
        pool.close()
        assert len(server.received) == 100
        assert server.accepted(20) == pool.opened == 20
    assert resolved == ["127.0.0.1"]


@pytest.mark.skipif(Wire.stamps != "kernel", reason="kernel stamps are Linux's")
@pytest.mark.parametrize("step_s", [3600, -3600], ids=["back", "forward"])
@pytest.mark.parametrize("from_receive", [1, 2, 3])
def test_a34_a_step_of_the_wall_clock_makes_no_time_negative_or_huge(
    engine: str, step_s: int, from_receive: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel stamps by the wall clock; here it is stepped between a stamp and its reading. The offset of
    the clocks is then wrong for that stamp by the step, to either side."""
    receives = 0

    def stepped() -> int:
        nonlocal receives
        receives += 1
        return kernel_offset_ns() + (step_s * 1_000_000_000 if receives == from_receive else 0)

    monkeypatch.setattr(client.wire, "kernel_offset_ns", stepped)
    tokens = [step for event in FIVE for step in (chunk(event), 0.05)]
    steps: list[Step] = [0.05, STREAM_HEAD, 0.05, *tokens, *map(chunk, WHOLE[-3:]), LAST_CHUNK]
    record = answered(steps, engine).record
    assert receives >= 6
    times = (record.sent_at_s, record.first_byte_at_s, record.first_token_at_s, record.last_token_at_s)
    assert all(time_s is not None for time_s in (*times, record.ended_at_s))
    assert list(times) == sorted(times)  # type: ignore[type-var]
    assert (record.ended_at_s or -1.0) < 10
    assert 0.095 < (record.ttft_s or 0.0) < 1
    assert record.gap_zeros == 0
    assert record.gap_p50_s == pytest.approx(0.05, abs=0.04)
    assert (record.gap_max_s or 9.0) < 1
    assert 0 <= (record.read_lag_s or 0.0) < 1


@pytest.mark.parametrize("steps", [[0.1, RESET], [STREAM_HEAD, 0.1, RESET]])
def test_a34_a_reset_has_a_time_too(engine: str, steps: list[Step]) -> None:
    record = answered(steps, engine).record
    assert record.failure_class in ("connection_lost", "connection_lost_mid_stream")
    assert 0.0 < (record.ended_at_s or -1.0) < 2.0


LOAD = ["--rate", "20", "--arrivals", "constant", "--run-time", "5s"]
BURNING = """
    import time
    from loadgen.users import ChatUser
    from shapes.locust_shape import ChosenShape

    class Burning(ChatUser):
        def prompt(self, arrival, run_id):
            if arrival.index is not None and arrival.index % 2 == 0:
                until = time.process_time() + 0.05
                while time.process_time() < until:
                    pass
            return "hello"
"""


@pytest.mark.timeout(120)
def test_a34_a_worker_that_burns_cpu_is_marked(tmp_path: Path) -> None:
    """Worker 0 of two burns 50 ms of CPU for each of its ten requests a second, when they are built ahead.

    Where other work keeps it from getting the CPU that it asks for, it is late instead, which is marked too.
    """
    locustfile = tmp_path / "burning.py"
    locustfile.write_text(textwrap.dedent(BURNING))
    with freezing_server(freeze_from_s=1e6, freeze_s=0.0) as server:
        run = run_load(
            ["--host", server.url, "--model", "m", "--runs-dir", str(tmp_path / "runs"), *LOAD],
            tmp_path / "logs",
            locustfile=str(locustfile),
            workers=2,
            limit_s=100,
        )
    assert run.folder is not None, run.log.read_text()
    burning, calm = read_run_info(run.folder).workers
    assert (burning.cpu_peak_ratio or 0.0) > (calm.cpu_peak_ratio or 9.0)
    assert len(list(read_requests(run.folder))) == 100
    summary = json.loads((run.folder / "summary.json").read_text())
    failing = {check["name"] for check in summary["checks"] if check["passed"] is False}
    marks = failing & {"worker CPU", "send lag"}
    assert marks, failing
    assert all(mark in (run.folder / "report.html").read_text() for mark in marks)
