"""Connections and framing, against a raw server: reuse, opening ahead, refusals, odd HTTP, TLS."""

from __future__ import annotations

import select
import shutil
import socket
import ssl
import struct
import subprocess
import time
from pathlib import Path

import gevent
import gevent.event
import pytest
from gevent import monkey

from client.clock import monotonic_ns
from client.reader import Connection, ConnectionPool
from client.target import Target
from client.wire import ConnectError, Wire, keep_stamping
from tests.byte_server import (
    CLOSE,
    HOLD,
    LAST_CHUNK,
    RESET,
    STREAM_HEAD,
    ByteServer,
    Step,
    chunk,
    plain_answer,
)

plain_socket = monkey.get_original("socket", "socket")
REQUEST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"


class Kept:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.heads: list[tuple[int, dict[str, str]]] = []
        self.data = b""
        self.stamps: list[int] = []
        self.lags_ns: list[int] = []

    def begin(self, status: int, headers: dict[str, str]) -> None:
        self.heads.append((status, headers))

    def body(self, piece: bytes, stamp_ns: int, handled_ns: int) -> None:
        self.data += piece
        self.stamps.append(stamp_ns)
        self.lags_ns.append(handled_ns - stamp_ns)


def exchange(connection: Connection, message: bytes = REQUEST) -> tuple[Kept, str, int]:
    """Send and read one answer: what came, how it ended, and the moment of sending."""
    sink, ended = Kept(), gevent.event.AsyncResult()
    sent_ns = connection.send(message)
    connection.read_answer(sink, lambda ending, detail: ended.set(ending))
    return sink, ended.get(timeout=20), sent_ns


def pool_for(server: ByteServer, **options: object) -> ConnectionPool:
    return ConnectionPool(Target(server.url, "m"), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "ending", "body", "reusable"),
    [
        ([plain_answer(b"{}")], "complete", b"{}", True),
        ([plain_answer(b"{}", head="connection: close\r\n"), CLOSE], "complete", b"{}", False),
        ([STREAM_HEAD + chunk(b"ab"), chunk(b"c"), LAST_CHUNK], "complete", b"abc", True),
        (
            [STREAM_HEAD, chunk(b"ab") + b"3\r\nx", 0.02, b"yz\r\n0\r", 0.02, b"\n\r\n"],
            "complete",
            b"abxyz",
            True,
        ),
        ([STREAM_HEAD, chunk(b"ab"), CLOSE], "closed", b"ab", False),
        ([STREAM_HEAD, chunk(b"ab"), 0.05, RESET], "reset", b"ab", False),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc", CLOSE], "closed", b"abc", False),
        ([b"HTTP/1.1 200 OK\r\n\r\nabc", 0.02, b"d", CLOSE], "complete", b"abcd", False),
        ([b"HTTP/1.0 200 OK\r\n\r\nabc", CLOSE], "complete", b"abc", False),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", plain_answer(b"{}")], "complete", b"{}", True),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], "complete", b"", True),
        ([plain_answer(b"{}") + b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n!"], "complete", b"{}", False),
        ([b"SSH-2.0-OpenSSH\r\n"], "not_http", b"", False),
        ([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"], "not_http", b"", False),
        (
            [b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n"],
            "not_http",
            b"",
            False,
        ),
        ([CLOSE], "closed", b"", False),
    ],
)
def test_framing(answer: list[Step], ending: str, body: bytes, reusable: bool) -> None:
    with ByteServer(answer) as server:
        pool = pool_for(server)
        connection = pool.open()
        sink, ended, _ = exchange(connection)
        assert (ended, sink.data, connection.reusable) == (ending, body, reusable)
        assert len(sink.heads) == (ending != "not_http" or b"200" in bytes(answer[0])) * (answer[0] != CLOSE)
        connection.close()


def test_a_kept_connection_is_used_again_and_a_closed_one_is_noticed() -> None:
    with ByteServer([plain_answer(b"{}")]) as server:
        pool = pool_for(server)
        assert pool.take() is None
        first = pool.open()
        for _ in range(3):
            exchange(first)
            pool.give_back(first)
            assert pool.take() is first
        pool.give_back(first)
        pool.close()
        assert pool.take() is None
        assert (server.accepted(1), pool.opened) == (1, 1)
    with ByteServer([plain_answer(b"{}"), 0.01, CLOSE]) as server:
        pool = pool_for(server)
        gone = pool.open()
        exchange(gone)
        pool.give_back(gone)
        gevent.sleep(0.2)
        assert pool.take() is None


def test_idle_connections_expire() -> None:
    with ByteServer([plain_answer(b"{}")]) as server:
        pool = pool_for(server, keep_alive_s=0.1)
        assert pool.open_ahead(3) == 3
        gevent.sleep(0.25)
        assert pool.take() is None
        assert pool.open_ahead(2) == 2
        assert server.accepted(5) == 5
        pool.close()


def test_a_server_that_keeps_connections_for_a_shorter_time_is_believed() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nkeep-alive: timeout=%d, max=100\r\n\r\n{}"
    for said_s, kept in ((1, False), (60, True)):
        with ByteServer([head % said_s]) as server:
            pool = pool_for(server)
            connection = pool.open()
            exchange(connection)
            pool.give_back(connection)
            gevent.sleep(0.9)  # four fifths of a second are over
            assert (pool.take() is connection) is kept
            connection.close()


def test_open_ahead_counts_those_in_use_and_replaces_the_old() -> None:
    with ByteServer([plain_answer(b"{}")]) as server:
        pool = pool_for(server, keep_alive_s=2.0)
        pool.in_flight = 2
        assert pool.open_ahead(5) == 3
        gevent.sleep(1.1)  # good for less than half the time
        assert pool.open_ahead(5) == 3
        assert pool.opened == 6
        taken = [pool.take() for _ in range(4)]
        assert [connection is None for connection in taken] == [False, False, False, True]
        for connection in taken[:3]:
            assert connection is not None
            connection.close()


def test_open_ahead_tops_up_and_fresh_connections_are_never_kept() -> None:
    with ByteServer([plain_answer(b"{}")]) as server:
        pool = pool_for(server)
        assert pool.open_ahead(120) == 120
        assert pool.open_ahead(100) == 120
        taken = [pool.take() for _ in range(120)]
        assert None not in taken
        assert pool.take() is None
        assert (server.accepted(120), pool.opened) == (120, 120)
        for connection in taken:
            assert connection is not None
            connection.close()
        fresh = pool_for(server, connections="fresh")
        assert fresh.open_ahead(5) == 0
        connection = fresh.open()
        exchange(connection)
        fresh.give_back(connection)
        assert fresh.take() is None


def test_stamps_lie_between_sending_and_now_and_never_run_back() -> None:
    with ByteServer(
        [STREAM_HEAD, *[step for _ in range(5) for step in (chunk(b"x"), 0.02)], LAST_CHUNK]
    ) as server:
        pool = pool_for(server)
        connection = pool.open()
        sink, _, sent_ns = exchange(connection)
        assert connection.first_byte_ns is not None
        assert sent_ns <= connection.first_byte_ns <= sink.stamps[0]
        assert sink.stamps == sorted(sink.stamps)
        assert sink.stamps[-1] - sink.stamps[0] > 60_000_000
        connection.close()


def wait_until_the_kernel_stamps() -> None:
    """It begins some milliseconds after the first socket asked for it: until then reading sets the stamp."""
    keep_stamping()
    with plain_socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, 35, 1)
        probe.bind(("127.0.0.1", 0))
        probe.settimeout(5)
        for _ in range(200):
            probe.sendto(b"x", probe.getsockname())
            subprocess.run(["sleep", "0.01"], check=True)
            ancillary = probe.recvmsg(16, 64)[1]
            seconds, nanos = struct.unpack("@qq", ancillary[0][2])
            if time.time_ns() - seconds * 1_000_000_000 - nanos > 8_000_000:
                return
    raise AssertionError("the kernel never began to stamp")


@pytest.mark.skipif(Wire.stamps != "kernel", reason="kernel stamps are Linux's")
def test_kernel_stamps_do_not_depend_on_when_we_read() -> None:
    wait_until_the_kernel_stamps()
    with ByteServer([STREAM_HEAD + chunk(b"a"), 0.1, chunk(b"b"), LAST_CHUNK]) as server:
        connection = pool_for(server).open()
        sink, ended = Kept(), gevent.event.AsyncResult()
        connection.send(REQUEST)
        connection.read_answer(sink, lambda ending, detail: ended.set(ending))
        select.select([connection.wire.fileno()], [], [], 20)  # holds this thread, and the hub with it
        seen_ns = monotonic_ns()
        subprocess.run(["sleep", "0.05"], check=True)
        ended.get(timeout=20)
        connection.close()
        assert sink.lags_ns[0] > 20_000_000
        assert sink.stamps[0] <= seen_ns + 1_000_000


def test_a_request_larger_than_the_socket_takes_at_once_arrives_whole() -> None:
    body = b"x" * 12_000_000
    with ByteServer([plain_answer(b"{}")]) as server:
        pool = pool_for(server)
        connection = pool.open()
        message = b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
        _, ending, _ = exchange(connection, message)
        assert ending == "complete"
        assert connection.reusable
        assert server.received[0].body == body
        connection.close()


def failure_of(target: Target, connect_limit_s: float = 5.0) -> str:
    with pytest.raises(ConnectError) as failed:
        ConnectionPool(target, connect_limit_s=connect_limit_s).open()
    assert str(failed.value)
    return failed.value.failure_class


def test_classes_of_connections_that_fail() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert failure_of(Target(f"http://127.0.0.1:{port}", "m")) == "refused"
    assert failure_of(Target("http://no-such-host.invalid", "m")) == "dns_failure"
    assert failure_of(Target("http://a..b", "m")) == "dns_failure"
    with ByteServer([HOLD]) as mute:  # takes the connection, never says hello in TLS
        assert failure_of(Target(f"https://127.0.0.1:{mute.port}", "m"), 0.2) == "connect_timeout"
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        assert failure_of(Target(f"http://127.0.0.1:{full.getsockname()[1]}", "m"), 0.2) == "connect_timeout"
        for filler in fillers:
            filler.close()


def test_a_name_with_several_addresses_finds_the_one_that_listens() -> None:
    with ByteServer([plain_answer(b"{}")]) as server:
        pool = ConnectionPool(Target(f"http://localhost:{server.port}", "m"))
        for _ in range(2):
            pool.open().close()
        assert server.accepted(2) == 2


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make a certificate")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
        f" -keyout {key} -out {cert} -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    )
    subprocess.run(command.split(), check=True, capture_output=True)
    return key, cert


def test_tls_with_checks_on(certificate: tuple[Path, Path]) -> None:
    key, cert = certificate
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(cert, key)
    answer = [STREAM_HEAD, chunk(b"ab"), 0.02, chunk(b"c" * 40_000), LAST_CHUNK]
    with ByteServer(answer, tls=serving) as server:
        assert failure_of(Target(server.url, "m")) == "tls_failure"
        pool = pool_for(server, tls_context=ssl.create_default_context(cafile=cert))
        connection = pool.open()
        assert connection.wire.handshake_s is not None
        assert 0 < connection.wire.handshake_s < connection.connect_s
        for _ in range(2):
            sink, ending, sent_ns = exchange(connection)
            assert (ending, sink.data) == ("complete", b"ab" + b"c" * 40_000)
            assert sink.stamps[0] >= sent_ns
            pool.give_back(connection)
            assert pool.take() is connection
        connection.close()
        name = Target(f"https://localhost:{server.port}", "m")
        with pytest.raises(ConnectError, match=r"Hostname mismatch|CERTIFICATE_VERIFY_FAILED"):
            ConnectionPool(name, tls_context=ssl.create_default_context(cafile=cert)).open()


def test_an_idle_connection_that_is_closed_by_the_server_wakes_nobody_for_ever() -> None:
    with ByteServer([plain_answer(b"{}"), 0.05, CLOSE]) as server:
        pool = pool_for(server)
        connection = pool.open()
        exchange(connection)
        pool.give_back(connection)
        gevent.sleep(0.2)
        passes: list[None] = []
        watcher = gevent.get_hub().loop.prepare()
        watcher.start(lambda: passes.append(None))
        gevent.sleep(0.2)
        watcher.close()
        assert len(passes) < 50
        assert pool.take() is None
