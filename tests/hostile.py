"""What hostile clients of the simulated server do, and what they must find: shared by the tests of its bytes
and of its values."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from experiments.launch import simulated_server
from tests.test_simserver_app import gauges

CHAT = b"/v1/chat/completions"
CONTEXT = 40
SOUND: dict[str, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "hi"}]},
    "completions": {"prompt": "hi"},
    "responses": {"input": "hi"},
}


@dataclass(frozen=True)
class Server:
    """A server of these tests: where it is, and where its stderr goes."""

    url: str
    log: Path

    def printed(self) -> list[str]:
        """All lines after the first but those that say that this machine is slow."""
        return [line for line in self.log.read_text().splitlines()[1:] if "bottleneck" not in line]


@contextmanager
def hostile_server(log: Path, *options: str) -> Iterator[Server]:
    with simulated_server(
        log, "--max-model-len", str(CONTEXT), "--output-tokens", "2", "--jitter", "0", *options
    ) as url:
        server = Server(url, log)
        yield server
        assert_at_rest(url)
        assert server.printed() == []


IDLE = (
    "simserver_open_requests",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
)


def assert_at_rest(url: str) -> None:
    """Nothing is open, runs or waits, and no KV cache is held, soon."""
    deadline = time.monotonic() + 10
    while any(busy := {name: value for name, value in gauges(url).items() if name in IDLE and value}):
        assert time.monotonic() < deadline, busy
        time.sleep(0.02)


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10)


def answers_to(url: str, payload: bytes) -> bytes:
    """All that comes back until the server closes."""
    with connect(url) as connection:
        with suppress(ConnectionError):  # it may be refused before all of it is sent
            connection.sendall(payload)
        return until_closed(connection)


def until_closed(connection: socket.socket) -> bytes:
    found = b""
    with suppress(ConnectionResetError):
        while piece := connection.recv(65_536):
            found += piece
    return found


def post(
    body: object, *lines: bytes, path: bytes = CHAT, method: bytes = b"POST", http: bytes = b"1.1"
) -> bytes:
    """A request on a connection of its own, with a length."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = (method + b" " + path + b" HTTP/" + http, b"Host: x", b"Connection: close", *lines)
    return b"\r\n".join((*head, b"Content-Length: %d" % len(raw), b"", raw))


def kept_alive(request: bytes) -> bytes:
    """The same request on a connection that is to stay."""
    return request.replace(b"Connection: close\r\n", b"")


def assert_error(answer: bytes, status: int) -> dict[str, Any]:
    """An error object of the API with this status, and JSON by its own word."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert int(head.split(None, 2)[1]) == status, answer[:300]
    assert b"Content-Type: application/json" in head
    error: dict[str, Any] = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == status
    assert 0 < len(error["message"]) < 600
    return error


def leave(url: str, payload: bytes, how: str) -> None:
    """Send and go: at once, by a reset, or after a look at the answer."""
    connection = connect(url)
    with connection:
        connection.sendall(payload)
        if how == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how == "half":
            connection.shutdown(socket.SHUT_WR)
        if how == "later":
            time.sleep(0.03)


WHOLE = {**SOUND["chat"], "max_tokens": 1}
CHUNKED = b"POST " + CHAT + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server under test. A module that names these two as its own has both."""
    with hostile_server(tmp_path_factory.mktemp("hostile") / "log") as found:
        yield found


@pytest.fixture(autouse=True)
def nothing_is_printed_or_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "server" in request.fixturenames:
        used: Server = request.getfixturevalue("server")
        assert_at_rest(used.url)
        assert used.printed() == []
