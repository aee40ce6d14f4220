"""The openai SDK as the engine: what it makes, when, and what it never gets to decide."""

from __future__ import annotations

import gc
import json
import logging
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import httpx2
import pytest

from client.clock import monotonic_ns
from client.completion import Finished, Request, Target
from client.endpoints import request_body
from client.engines import SDK_SAYS, Arm, EngineError, arming
from client.preflight import preflight
from client.reader import ConnectionPool
from client.target import Limits
from tests.asking import BODY, KEY, PROMPT, WHOLE, WHOLE_ANSWER, armed
from tests.byte_server import CLOSE, HOLD, STREAM_HEAD, ByteServer, Received, Step, chunk, plain_answer

REPOSITORY = Path(__file__).resolve().parent.parent


def headers_of(received: Received) -> dict[str, str]:
    lines = received.head.decode().split("\r\n")[1:]
    return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


def one(target: Target, body: bytes = BODY, engine: str = "openai") -> Finished:
    pool = ConnectionPool(target)
    call = arming(engine, pool)(Request(body=body, request_id="run-7"), start_ns=monotonic_ns())
    call.fire()
    finished = call.wait()
    pool.close()
    return finished


# --- what is made ---


def test_the_sdks_headers_arrive_with_ours() -> None:
    with ByteServer([WHOLE_ANSWER]) as server:
        finished = one(Target(server.url, "m", api_key=KEY, headers={"X-Tenant": "blue", "User-Agent": "me"}))
        headers = headers_of(server.received[0])
        assert server.received[0].head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert finished.record.outcome == "succeeded"
    assert headers["host"] == server.url.removeprefix("http://")
    assert headers["x-stainless-lang"] == "python"
    assert headers["x-stainless-retry-count"] == "0"
    assert {"x-stainless-os", "x-stainless-package-version", "x-stainless-runtime-version"} <= headers.keys()
    assert "x-stainless-read-timeout" not in headers  # it has no time limit of its own
    assert (headers["authorization"], headers["x-request-id"]) == (f"Bearer {KEY}", "run-7")
    assert (headers["accept-encoding"], headers["x-tenant"], headers["user-agent"]) == (
        "identity",
        "blue",
        "me",
    )
    assert int(headers["content-length"]) == len(server.received[0].body)


@pytest.mark.parametrize("endpoint", ["chat", "completions", "responses"])
def test_fields_that_the_sdk_knows_and_those_it_does_not_are_sent(endpoint: str) -> None:
    extra = {"temperature": 0.5, "ignore_eos": True, "guided_json": {"type": "object"}, "stop": None}
    body = request_body(endpoint, "m", PROMPT + " 中", 5, dialect="vllm", extra=extra)
    with ByteServer([plain_answer(b"{}")]) as server:
        one(Target(server.url, "m", endpoint=endpoint), body)
        received = server.received[0]
    assert json.loads(received.body) == json.loads(body)
    path = {"chat": "chat/completions", "completions": "completions", "responses": "responses"}[endpoint]
    assert received.head.startswith(b"POST /v1/%s HTTP/1.1\r\n" % path.encode())


def test_without_a_key_none_is_sent_whatever_the_environment_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "sk-of-somebody-else")
    for azure in ({}, {"api_version": "2024-10-21"}):
        with ByteServer([WHOLE_ANSWER]) as server:
            assert one(Target(server.url, "m", **azure)).record.outcome == "succeeded"
            headers = headers_of(server.received[0])
        assert not {"authorization", "api-key"} & headers.keys()
        assert "sk-of-somebody-else" not in str(headers)
        assert "no-key" not in str(headers)


@pytest.mark.parametrize(
    ("address", "version", "path"),
    [
        ("{}", "2024-10-21", "/openai/deployments/gpt%2Fx%20y{}?api-version=2024-10-21"),
        ("{}/openai/", "2024-10-21", "/openai/deployments/gpt%2Fx%20y{}?api-version=2024-10-21"),
        (
            "{}/openai/deployments/mine?api-version=2025-01-01-preview",
            None,
            "/openai/deployments/mine{}?api-version=2025-01-01-preview",
        ),
        ("{}/gateway/eu", "1", "/gateway/eu/openai/deployments/gpt%2Fx%20y{}?api-version=1"),
    ],
)
def test_azure_is_called_where_the_target_says(address: str, version: str | None, path: str) -> None:
    """Both engines send the same request line, the one that the target (and so the preflight) tells."""
    with ByteServer([WHOLE_ANSWER]) as server:
        target = Target(address.format(server.url), "gpt/x y", api_key=KEY, api_version=version)
        for engine in ("openai", "direct"):
            assert one(target, request_body("chat", target.model, PROMPT, 5), engine).record.status == 200
        for received in server.received:
            headers = headers_of(received)
            line = received.head.split(b"\r\n")[0].decode()
            assert line == f"POST {path.format('/chat/completions')} HTTP/1.1"
            assert line == f"POST {target.path} HTTP/1.1"
            assert (headers["api-key"], headers.get("authorization")) == (KEY, None)
    assert target.url_told == f"{server.url}{target.path}"


@pytest.mark.parametrize(
    ("address", "version", "endpoint", "path"),
    [
        ("{}", "2", "responses", "/openai/responses?api-version=2"),
        ("{}/openai/v1", "preview", "chat", "/openai/v1/chat/completions?api-version=preview"),
        ("{}/api/v2?tier=a", None, "completions", "/api/v2/completions?tier=a"),
    ],
)
def test_addresses_beside_the_deployments(
    address: str, version: str | None, endpoint: str, path: str
) -> None:
    with ByteServer([plain_answer(b"{}")]) as server:
        target = Target(address.format(server.url), "m", api_key=KEY, endpoint=endpoint, api_version=version)
        one(target, request_body(endpoint, "m", PROMPT, 5))
        assert server.received[0].head.startswith(f"POST {path} HTTP/1.1\r\n".encode())
    assert target.path == path


# --- when it is made ---


class Built:
    """Counts the requests that the SDK has handed to its transport."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        build = httpx2.Client.build_request

        def counted(client: httpx2.Client, *args: Any, **fields: Any) -> httpx2.Request:
            self.count += 1
            return build(client, *args, **fields)

        monkeypatch.setattr(httpx2.Client, "build_request", counted)


def test_a_burst_is_built_before_it_is_fired(monkeypatch: pytest.MonkeyPatch) -> None:
    with ByteServer([0.05, WHOLE_ANSWER]) as server:
        pool = ConnectionPool(Target(server.url, "m"))
        arm = arming("openai", pool)
        built, start_ns = Built(monkeypatch), monotonic_ns()
        calls = [arm(Request(body=BODY, request_id=f"r-{n}"), start_ns=start_ns) for n in range(40)]
        assert (built.count, server.received, pool.in_flight) == (40, [], 0)
        assert pool.open_ahead(40) == 40
        for call in calls:
            call.fire()
        assert pool.in_flight == 40  # all are on their way, and nobody else has run
        records = [call.wait().record for call in calls]
        pool.close()
        assert (built.count, len(server.received)) == (40, 40)
    assert {record.outcome for record in records} == {"succeeded"}
    sent_at_s = [record.sent_at_s or 0.0 for record in records]
    assert sent_at_s == sorted(sent_at_s)


NO_FORKS = """
import sys
started = []
sys.addaudithook(lambda event, _: started.append(event) if event in ("subprocess.Popen", "os.fork") else None)
from client.completion import Request, Target
from client.engines import arming
from client.reader import ConnectionPool
arm = arming("openai", ConnectionPool(Target("http://127.0.0.1:9", "m")))
before = len(started)
body = b'{"model": "m", "messages": [], "stream": true}'
calls = [arm(Request(body=body, request_id="r"), start_ns=0) for _ in range(40)]
assert before and len(started) == before, (before, len(started))
"""


def test_the_sdk_starts_processes_for_its_headers_before_the_first_request() -> None:
    """It runs `uname -p`: 40 users at once would run it 40 times."""
    subprocess.run([sys.executable, "-c", NO_FORKS], cwd=REPOSITORY, check=True, timeout=60)


@pytest.mark.parametrize("module", ["client.completion", "client.preflight", "loadgen.sender"])
def test_the_sdk_is_imported_only_when_it_is_chosen(module: str) -> None:
    check = f"import sys, {module}; sys.exit('openai' in sys.modules or 'httpx2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], cwd=REPOSITORY, timeout=60).returncode == 0


# --- what it does not decide ---


def test_nothing_is_retried_redirected_or_kept_and_no_line_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    head = "set-cookie: backend=1; Path=/\r\nlocation: /elsewhere\r\nretry-after: 0\r\n"
    answers = [
        plain_answer(b"{}", status, head=head) for status in ("302 Found", "500 Oops", "408 Slow", "409 Busy")
    ]
    with (
        caplog.at_level(logging.DEBUG, "root"),
        ByteServer(lambda connection, request: [answers[request % 4]]) as server,
    ):
        pool = ConnectionPool(Target(f"{server.url}/v1?key=hush", "m"))
        arm, records = arming("openai", pool), []
        for number in range(4):
            call = arm(Request(body=BODY, request_id=f"r-{number}"), start_ns=monotonic_ns())
            call.fire()
            records.append(call.wait().record)
        pool.close()
        assert len(server.received) == 4
        assert "cookie" not in headers_of(server.received[-1])
    assert [record.failure_class for record in records] == ["http_302", "http_500", "http_408", "http_409"]
    assert "hush" not in caplog.text
    assert PROMPT not in caplog.text


def test_what_the_sdk_does_not_make_is_a_record_with_a_reason() -> None:
    with ByteServer([WHOLE_ANSWER]) as server:
        target = Target(server.url, "m", api_key=KEY)
        record = one(target, b'{"model": "m"}').record
        assert server.received == []
    assert (record.outcome, record.failure_class, record.attempts) == ("failed", "client_error", 1)
    assert record.error is not None
    assert record.error.startswith(f"{SDK_SAYS} TypeError: Missing required arguments")
    assert record.sent_at_s == record.ended_at_s


def test_the_sdks_error_does_not_tell_key_or_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ConnectionPool(Target("http://127.0.0.1:9", "m", api_key=KEY))
    arm = arming("openai", pool)

    def refuse(*args: Any, **fields: Any) -> httpx2.Request:
        raise ValueError(f"cannot send {PROMPT} with {KEY}")

    monkeypatch.setattr(httpx2.Client, "build_request", refuse)
    call = arm(Request(body=BODY, request_id="r"), start_ns=monotonic_ns())
    call.fire()
    record = call.wait().record
    assert (record.outcome, record.failure_class, pool.in_flight) == ("failed", "client_error", 0)
    assert record.error is not None
    assert KEY not in record.error
    assert PROMPT[5:30] not in record.error


def test_a_request_that_is_let_go_takes_the_sdks_call_with_it() -> None:
    pool = ConnectionPool(Target("http://127.0.0.1:9", "m"))
    arm: Arm = arming("openai", pool)
    call = arm(Request(body=BODY, request_id="r"), start_ns=0)
    resting = weakref.ref(call._call)  # type: ignore[attr-defined]
    assert resting()
    del call
    gc.collect()
    assert resting() is None


@pytest.mark.parametrize(
    "steps",
    [[WHOLE_ANSWER], [plain_answer(b"no", "503 Busy")], [STREAM_HEAD, *map(chunk, WHOLE[:2]), HOLD], [CLOSE]],
)
def test_the_sdks_call_has_ended_when_the_request_has(steps: list[Step]) -> None:
    with ByteServer(steps) as server:
        pool = ConnectionPool(Target(server.url, "m"))
        call = armed(pool, "r", "openai", stall_s=0.2)
        call.fire()
        first = call.wait()
        assert call.wait() is first is call.finished
        assert call._call.dead  # type: ignore[attr-defined]
        pool.close()


# --- before the load ---


def test_the_preflight_sends_by_the_same_engine() -> None:
    with ByteServer([WHOLE_ANSWER]) as server:
        found = preflight(Target(server.url, "m", api_key=KEY), engine="openai", limits=Limits(total_s=5.0))
        assert "x-stainless-lang" in headers_of(server.received[0])
    assert (found.refused, found.url) == (None, f"{server.url}/v1/chat/completions")


def test_the_preflight_tells_what_the_sdk_does_not_make() -> None:
    with ByteServer([WHOLE_ANSWER]) as server:
        target = Target(server.url, "..", api_key=KEY, api_version="2024-10-21")
        found = preflight(target, engine="openai")
        assert server.received == []
    assert found.refused == "sdk_refuses"
    assert found.line.startswith(SDK_SAYS)
    assert "--engine direct" in found.line


def test_an_sdk_that_does_not_start_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "client.sdk", None)
    with pytest.raises(EngineError, match="--engine openai needs the openai package"):
        preflight(Target("http://127.0.0.1:9", "m"), engine="openai")
