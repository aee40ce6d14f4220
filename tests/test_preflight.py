"""The first request before a load: every mistake has its own line with a remedy, and sends one completion at
the most."""

from __future__ import annotations

import json
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest

from client import preflight as client_preflight
from client.calibration import PromptCalibration
from client.clock import monotonic_ns
from client.completion import Request, complete
from client.endpoints import request_body
from client.model_list import read_model_list
from client.notices import NOTICES
from client.preflight import Preflight, preflight
from client.reader import ConnectionPool
from client.refusals import REFUSALS
from client.seen import Seen, named
from client.target import Limits, Target
from client.whereabouts import in_container, is_loopback, is_public
from experiments.launch import free_port, run_load
from loadgen.budget import budget_of
from loadgen.local_limits import Demand, LocalLimits, limits_here, most_within, shortages
from loadgen.plan import Plan, make_plan
from loadgen.preflight import PreflightRefused, check_target, require_confirmation
from loadgen.settings import RunSettings
from runlog.exit_codes import ExitCode
from shapes import ShapeSettings
from shapes.lengths import parse_lengths
from tests.byte_server import (
    CLOSE,
    HOLD,
    LAST_CHUNK,
    RESET,
    STREAM_HEAD,
    ByteServer,
    Received,
    Step,
    chunk,
    plain_answer,
)
from tests.conftest import StartServer

KEY = "sk-secret-word-4711"
SHORT = Limits(connect_s=1.0, first_token_s=0.4, stall_s=0.4, total_s=2.0)
MODELS = plain_answer(b'{"object":"list","data":[{"id":"m","owned_by":"vllm"},{"id":"n"}]}')
NO_MODELS = plain_answer(b'{"detail":"Not Found"}', "404 Not Found")


def event(text: str | None = None, finish: str | None = None) -> bytes:
    delta = {} if text is None else {"content": text}
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return chunk(b"data: " + json.dumps({"choices": choices}).encode() + b"\n\n")


def usage(tokens: int) -> bytes:
    fields = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": tokens}}
    return chunk(b"data: " + json.dumps(fields).encode() + b"\n\n")


def stream(tokens: int = 8, pause_s: float = 0.003, count: bool = True) -> list[Step]:
    """A good streamed answer, one event a token."""
    steps: list[Step] = [STREAM_HEAD]
    for _ in range(tokens):
        steps += [event("one "), pause_s]
    counted = [usage(tokens)] if count else []
    return [*steps, event(finish="length"), *counted, chunk(b"data: [DONE]\n\n"), LAST_CHUNK]


def ask(
    completion: Sequence[Step],
    models: Sequence[Step] = (MODELS,),
    *,
    target_url: str = "{}",
    model: str = "m",
    key: str | None = KEY,
    dialect: str = "openai",
    want_stream: bool = True,
) -> tuple[Preflight, list[Received]]:
    """The judgement on a server that answers the first request with `completion` and later ones with
    `models`; and what reached it."""

    def script(connection: int, request: int) -> Sequence[Step]:
        return completion if (connection, request) == (0, 0) else models

    with ByteServer(script) as server:
        target = Target(target_url.format(server.url), model, api_key=key)
        found = preflight(
            target,
            limits=SHORT,
            dialect=dialect,
            stream=want_stream,
            key_variables=("LOAD_API_KEY", "OPENAI_API_KEY"),
        )
    assert KEY not in repr(found)
    assert "\n" not in found.line
    completions = [one for one in server.received if one.head.startswith(b"POST")]
    assert len(completions) == 1
    assert json.loads(completions[0].body)["max_tokens"] == 8
    return found, server.received


def error(status: str, message: str, head: str = "") -> bytes:
    return plain_answer(json.dumps({"error": {"message": message}}).encode(), status, head=head)


# --- good answers and their notices ---


def test_a_good_answer_passes_without_a_notice() -> None:
    found, received = ask(stream())
    assert found.refused is None
    assert found.notices == ()
    assert found.models == ("m", "n")
    assert str(found.server) == "vLLM"
    assert found.dialect == "openai"
    assert found.url.endswith("/v1/chat/completions")
    assert found.first_token_s is not None
    assert found.duration_s is not None
    assert 0 < found.first_token_s < found.duration_s
    assert [one.head.split(b" ")[:2] for one in received] == [
        [b"POST", b"/v1/chat/completions"],
        [b"GET", b"/v1/models"],
    ]
    assert received[0].connection == received[1].connection
    assert f"Authorization: Bearer {KEY}".encode() in received[1].head


ONE_PIECE = plain_answer(
    b'{"choices":[{"index":0,"message":{"content":"one two"},"finish_reason":"length"}],'
    b'"usage":{"prompt_tokens":9,"completion_tokens":8}}'
)
HIDDEN = [STREAM_HEAD, event(""), event(finish="length"), chunk(b"data: [DONE]\n\n"), LAST_CHUNK]


@pytest.mark.parametrize(
    ("kind", "answer", "models", "words"),
    [
        ("not_streamed", [ONE_PIECE], MODELS, "in one piece though a stream"),
        ("usage_missing", stream(count=False), MODELS, "does not count tokens"),
        ("buffered", [b"".join(s for s in stream() if isinstance(s, bytes))], MODELS, "buffers the stream"),
        ("too_long", stream(11), MODELS, "11 tokens came where 8 were the limit"),
        ("too_short", stream(5), MODELS, "ended after 5 of 8 tokens: lengths will vary; --dialect vllm"),
        ("no_output_yet", HIDDEN, MODELS, "hidden reasoning"),
        (
            "model_unlisted",
            stream(),
            plain_answer(b'{"data":[{"id":"other"}]}'),
            "'m' although it lists other",
        ),
        ("no_model_list", stream(), NO_MODELS, "/v1/models (HTTP 404)"),
        ("no_model_list", stream(), plain_answer(b"<html>", kind="text/html"), "not JSON"),
    ],
)
def test_what_a_load_should_know_is_a_notice(
    kind: str, answer: Sequence[Step], models: bytes, words: str
) -> None:
    found, _ = ask(answer, (models,))
    assert found.refused is None
    assert len(found.notices) == 1
    assert words in found.notices[0]
    assert kind in {row.kind for row in NOTICES}


def test_an_answer_in_one_piece_that_was_asked_for_is_no_notice() -> None:
    found, received = ask([ONE_PIECE], want_stream=False)
    assert found.notices == ()
    assert json.loads(received[0].body)["stream"] is False


def test_short_answers_in_spite_of_a_forcing_dialect() -> None:
    found, received = ask(stream(3), dialect="sglang")
    assert found.notices[0].startswith(
        "--dialect sglang, but the server looks like vLLM (by its list of models)"
    )
    assert "the dialect sglang forces the length" in found.notices[1]
    assert json.loads(received[0].body)["ignore_eos"] is True


def test_fields_of_the_load_go_along_but_not_its_lengths() -> None:
    with ByteServer(lambda connection, request: [MODELS] if request else stream()) as server:
        extra = {"temperature": 0, "max_tokens": 5000, "min_tokens": 100}
        preflight(Target(server.url, "m"), limits=SHORT, extra=extra)
    body = json.loads(server.received[0].body)
    assert (body["temperature"], body["max_tokens"]) == (0, 8)
    assert "min_tokens" not in body


# --- mistakes that the server tells ---

TRUNCATED = [STREAM_HEAD, event("one"), LAST_CHUNK]
MID_ERROR = [STREAM_HEAD, event("one"), chunk(b'data: {"error":{"message":"CUDA died"}}\n\n'), LAST_CHUNK]
FULL = [STREAM_HEAD, chunk(b'data: {"error":{"message":"The request queue is full."}}\n\n'), LAST_CHUNK]
PAGE = plain_answer(b"<html><title>Welcome</title></html>", kind="text/html")


@pytest.mark.parametrize(
    ("kind", "answer", "words"),
    [
        ("key_wrong", [error("401 Unauthorized", "bad key " + KEY)], ["OPENAI_API_KEY", "401"]),
        ("key_wrong", [error("403 Forbidden", "no access")], ["HTTP 403: no access"]),
        ("redirect", [plain_answer(b"", "308 Permanent Redirect", head="location: https://x/v1?k=1\r\n")],
            ["redirects to https://x/v1 (HTTP 308)", "--host"]),
        ("model_not_served", [error("404 Not Found", "The model `m` does not exist.")], ["'m'", "m, n"]),
        ("model_not_served", [error("400 Bad Request", "Invalid model name passed in model=m")], ["m, n"]),
        ("model_not_served", [error("400 Bad Request", "Server is pinned to 'n'")], ["pinned", "m, n"]),
        ("loading", [error("503 Service Unavailable", "Loading model")], ["still loading", "Wait"]),
        ("busy", [error("503 Service Unavailable", "queue full")], ["turns away", "idle"]),
        ("busy", [error("429 Too Many Requests", "slow down", "retry-after: 20\r\n")], ["asks to wait 20 s"]),
        ("busy", [plain_answer(b"", "408 Request Timeout")], ["HTTP 408"]),
        ("busy", FULL, ["queue is full"]),
        ("no_endpoint", [NO_MODELS], ["/v1/chat/completions", "HTTP 404", "--host"]),
        ("no_endpoint", [plain_answer(b"", "405 Method Not Allowed")], ["HTTP 405"]),
        ("backend_down", [plain_answer(b"<h1>Bad Gateway</h1>", "502 Bad Gateway")], ["gateway", "behind"]),
        ("server_error", [error("500 Internal Server Error", "boom")], ["failed", "boom"]),
        ("request_refused", [error("422 Unprocessable", "ignore_eos: extra")], ["ignore_eos", "--dialect"]),
        ("no_first_token", [STREAM_HEAD, event(""), HOLD], ["within 0.4 s", "--first-token-limit"]),
        ("too_slow", [STREAM_HEAD, event("one"), HOLD], ["--stall-limit"]),
        ("tls_under_http", [plain_answer(b"plain HTTP request was sent to HTTPS port", "400 Bad Request")],
            ["https://"]),
        ("not_http", [b"SSH-2.0-OpenSSH_9.2\r\n", CLOSE], ["does not speak HTTP", "port"]),
        ("not_a_completion_server", [PAGE], ["web page", "text/html"]),
        ("not_a_completion_server", [plain_answer(b'{"hello":"world"}')], ["not with a completion"]),
        ("error_with_200", [plain_answer(b'{"error":"licence expired"}')], ["licence expired"]),
        ("no_answer", [CLOSE], ["without an answer"]),
        ("no_answer", [RESET], ["without an answer"]),
        ("no_output", [plain_answer(b"")], ["without any output"]),
        ("broken_answer", TRUNCATED, ["without a finish reason", "proxy"]),
        ("broken_answer", MID_ERROR, ["CUDA died"]),
        ("broken_answer", [STREAM_HEAD, event("one"), CLOSE], ["in the middle"]),
    ],
)  # fmt: skip
def test_each_mistake_has_its_line_and_remedy(
    kind: str, answer: Sequence[Step], words: Sequence[str]
) -> None:
    found, _ = ask(answer)
    assert found.refused == kind, found.line
    assert found.notices == ()
    for word in words:
        assert word in found.line


def test_a_missing_key_is_told_apart_from_a_wrong_one() -> None:
    found, _ = ask([plain_answer(b'{"error":"Unauthorized"}', "401 Unauthorized")], key=None)
    assert found.refused == "key_missing"
    assert "none is set. Set LOAD_API_KEY or OPENAI_API_KEY in the environment" in found.line


def test_an_unlisted_model_explains_a_404_that_says_nothing() -> None:
    found, _ = ask([NO_MODELS], model="absent")
    assert found.refused == "model_not_served"
    found, _ = ask([NO_MODELS], (NO_MODELS,), model="absent")
    assert found.refused == "no_endpoint"


@pytest.mark.parametrize("endpoint", ["responses", "completions"])
def test_an_endpoint_that_is_missing_is_told_with_those_that_are_there(endpoint: str) -> None:
    def script(connection: int, request: int) -> Sequence[Step]:
        path = server.received[-1].head.split(b" ")[1]
        there = path == b"/api/v2/chat/completions"
        return [plain_answer(b"", "405 Method Not Allowed") if there else NO_MODELS]

    with ByteServer(script, idle_limit_s=10) as server:
        found = preflight(Target(f"{server.url}/api/v2", "m", endpoint=endpoint), limits=SHORT)
    assert found.refused == "other_endpoint"
    assert f"the server has no {endpoint} endpoint" in found.line
    assert found.line.endswith("Use one that it has: --endpoint chat")


def test_at_most_ten_models_are_named() -> None:
    names = tuple(f"model-{k}" for k in range(12))
    assert named(names) == ", ".join(names[:10]) + " and 2 more"
    listed = plain_answer(json.dumps({"data": [{"id": name} for name in names]}).encode())
    found, _ = ask([error("404 Not Found", "The model `m` does not exist")], (listed,))
    assert found.line.endswith("model-9 and 2 more")


@pytest.mark.parametrize("spelling", ["{}", "{}/", "{}/v1", "{}//v1/", "{}/v1/chat/completions"])
def test_all_spellings_of_the_address_call_one_url_which_is_told(spelling: str) -> None:
    found, received = ask(stream(), target_url=spelling)
    assert found.refused is None
    assert received[0].head.startswith(b"POST /v1/chat/completions ")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/v1/chat/completions", found.url)


def test_what_a_query_says_is_not_told() -> None:
    found, received = ask([NO_MODELS], target_url="{}/v1?key=hush&api-version=2")
    assert received[0].head.startswith(b"POST /v1/chat/completions?key=hush&api-version=2 ")
    assert received[1].head.startswith(b"GET /v1/models?key=hush&api-version=2 ")
    assert "hush" not in found.line
    assert "/v1/chat/completions?key=…&api-version=2" in found.line


# --- mistakes before HTTP: no completion reaches anyone ---


def refused(url: str, limits: Limits = SHORT) -> Preflight:
    found = preflight(Target(url, "m", api_key=KEY), limits=limits)
    assert found.refused is not None
    assert KEY not in repr(found)
    return found


def test_a_closed_port(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setattr(client_preflight, "in_container", lambda: False)
    found = refused(f"http://localhost:{port}")
    assert found.refused == "refused"
    assert f"nothing listens at localhost:{port}" in found.line
    assert "Start the server" in found.line


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_localhost_inside_a_container_gets_the_hint(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Field case A44."""
    port = free_port()
    monkeypatch.setattr(client_preflight, "in_container", lambda: True)
    found = refused(f"http://{host}:{port}")
    assert found.refused == "localhost_in_container"
    for words in (f"http://SERVICE:{port}", f"http://host.docker.internal:{port}", "host-gateway"):
        assert words in found.line


def test_an_unknown_name() -> None:
    found = refused("http://no-such-host.invalid:8000")
    assert found.refused == "dns_failure"
    assert "no-such-host.invalid is not known (DNS" in found.line


def test_a_port_that_never_accepts() -> None:
    """A listener with its queue full: connecting gets no answer."""
    with socket.socket() as listener, socket.socket() as filler:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        filler.connect(listener.getsockname())
        found = refused(f"http://127.0.0.1:{listener.getsockname()[1]}", Limits(connect_s=0.4))
    assert found.refused == "connect_timeout"
    assert "within 0.4 s" in found.line
    assert "firewalls" in found.line


@pytest.fixture(scope="module")
def own_certificate(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """A server's context with a certificate that nobody trusts."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    folder = tmp_path_factory.mktemp("certificate")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost"),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def test_a_certificate_that_is_not_trusted(own_certificate: ssl.SSLContext) -> None:
    with ByteServer(stream(), tls=own_certificate) as server:
        found = refused(server.url)
    assert found.refused == "certificate"
    assert "self-signed certificate" in found.line
    assert "SSL_CERT_FILE" in found.line
    assert server.received == []


def test_http_to_a_tls_port(own_certificate: ssl.SSLContext) -> None:
    with ByteServer(stream(), tls=own_certificate) as server:
        found = refused(server.url.replace("https", "http"))
    assert found.refused == "tls_under_http"
    assert "Use https://" in found.line
    assert server.received == []


def test_https_to_a_plain_port(start_simserver: StartServer) -> None:
    found = refused(start_simserver().replace("http", "https"))
    assert found.refused == "plain_http_under_https"
    assert "Use http:// instead" in found.line


def test_https_to_a_plain_port_that_waits_for_more() -> None:
    with ByteServer(stream()) as server:
        found = refused(server.url.replace("http", "https"))
    assert found.refused == "plain_http_under_https"
    assert server.received == []


# --- against the simulated server ---


def test_the_simulated_server_key_model_and_notices(start_simserver: StartServer) -> None:
    url = start_simserver("--preset", "h100-8b", "--model", "my-llm", "--api-key", KEY)
    good = preflight(Target(url, "my-llm", api_key=KEY), limits=Limits())
    assert (good.refused, good.notices, good.models) == (None, (), ("my-llm",))
    assert preflight(Target(url, "my-llm")).refused == "key_missing"
    assert preflight(Target(url, "my-llm", api_key="sk-wrong")).refused == "key_wrong"
    unknown = preflight(Target(url, "your-llm", api_key=KEY))
    assert unknown.refused == "model_not_served"
    assert unknown.line.endswith("Ask with --model for one that is: my-llm")
    assert preflight(Target(f"{url}/api", "my-llm", api_key=KEY)).refused == "no_endpoint"


# --- the tables ---


def test_every_refusal_has_texts_of_its_own_and_names_only_known_facts() -> None:
    with ByteServer([NO_MODELS]) as server:
        target = Target(server.url, "m")
        pool = ConnectionPool(target)
        request = Request(body=request_body("chat", "m", "hi", 1), request_id="r-1")
        facts = Seen(target, SHORT, complete(pool, request, start_ns=monotonic_ns())).facts()
        pool.close()
    lines = [row.line(facts) for row in REFUSALS.values()]
    assert len(set(lines)) == len(lines)
    assert not any("{" in line or "\n" in line for line in lines)


@pytest.mark.parametrize(
    ("body", "names", "why"),
    [
        (b'{"data":[{"id":"a"},{"id":7},"x"]}', ("a",), None),
        (b'[{"id":"a"},{"id":"b"}]', ("a", "b"), None),
        (b'{"data":[]}', (), None),
        (b'{"models":[]}', None, "no list"),
        (b"nonsense", None, "not JSON"),
    ],
)
def test_lists_of_models(body: bytes, names: tuple[str, ...] | None, why: str | None) -> None:
    found = read_model_list(body)
    assert found.names == names
    assert why is None or why in (found.why_not or "")


# --- where the target is ---

NAMES = {
    "vllm": ["172.18.0.3"],
    "gpu-box.local": ["192.168.1.20", "fe80::1%eth0"],
    "localhost": ["127.0.0.1", "::1"],
    "api.example.com": ["93.184.216.34"],
    "split.example.com": ["10.0.0.1", "2606:2800:220:1::1"],
    "shortname": ["8.8.8.8"],
}


def lookup(host: str) -> Iterable[str]:
    if host not in NAMES:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")
    return NAMES[host]


@pytest.mark.parametrize(
    ("host", "public"),
    [
        ("127.0.0.1", False),
        ("::1", False),
        ("0.0.0.0", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.0.1", False),
        ("169.254.1.1", False),
        ("100.64.0.1", False),
        ("fe80::1", False),
        ("fd12::1", False),
        ("::ffff:10.0.0.1", False),
        ("::ffff:8.8.8.8", True),
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("vllm", False),
        ("gpu-box.local", False),
        ("localhost", False),
        ("api.example.com", True),
        ("split.example.com", True),
        ("shortname", True),
    ],
)
def test_what_is_public(host: str, public: bool) -> None:
    assert is_public(host, lookup) is public


def test_a_public_target_must_be_named_twice() -> None:
    with pytest.raises(PreflightRefused) as told:
        require_confirmation("api.example.com", None, lookup)
    assert "api.example.com (93.184.216.34) is in the public internet" in str(told.value)
    assert str(told.value).endswith("add --confirm-target api.example.com")
    with pytest.raises(PreflightRefused):
        require_confirmation("api.example.com", "example.com", lookup)
    require_confirmation("api.example.com", "API.example.com", lookup)
    require_confirmation("vllm", None, lookup)
    with pytest.raises(PreflightRefused, match="nowhere is not known"):
        require_confirmation("nowhere", None, lookup)


def test_marks_of_a_container(tmp_path: Path) -> None:
    assert not in_container(tmp_path, {})
    assert in_container(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    groups = tmp_path / "proc/1/cgroup"
    groups.parent.mkdir(parents=True)
    groups.write_text("0::/init.scope\n")
    assert not in_container(tmp_path, {})
    groups.write_text("4:memory:/docker/0123abc\n")
    assert in_container(tmp_path, {})
    groups.unlink()
    (tmp_path / ".dockerenv").touch()
    assert in_container(tmp_path, {})
    assert is_loopback("LOCALHOST.")
    assert is_loopback("::ffff:127.0.0.1")
    assert not is_loopback("vllm")


# --- the plan: budget and this machine's limits ---


def settings_for(url: str, **changes: object) -> RunSettings:
    fields: dict[str, object] = {
        "target": url,
        "model": "my-llm",
        "shape": "uniform",
        "shape_settings": ShapeSettings(rate_rps=10.0, duration_s=5.0),
        "arrivals": "constant",
        "seed": 1,
        "input_lengths": parse_lengths("150"),
        "output_lengths": parse_lengths("60"),
        "endpoint": "chat",
        "dialect": "openai",
        "slo": "",
        "drain_s": 1.0,
        "first_token_limit_s": 5.0,
        "stall_limit_s": 5.0,
        "total_limit_s": 10.0,
        "connections": "reuse",
        "gaps": "all",
        "run_name": "t",
        "runs_dir": "runs",
    }
    return RunSettings(**(fields | {"headers": {}, "body": {}} | changes))  # type: ignore[arg-type]


def plan_of(settings: RunSettings) -> Plan:
    return make_plan(settings, "r", {}, ["locust"])


def test_the_budget_is_the_sum_of_what_the_schedule_asks_for() -> None:
    budget = budget_of(plan_of(settings_for("http://h")).schedule)
    assert str(budget) == "at most 50 requests, 7,500 prompt tokens and 3,000 output tokens"
    settings = settings_for("http://h", output_lengths=parse_lengths("uniform:10-50"))
    schedule = plan_of(settings).schedule
    assert budget_of(schedule).output_tokens == sum(int(n) for n in schedule.asked_output_tokens)
    assert str(budget_of(plan_of(settings_for("http://h")).schedule, 1)).startswith("at most 1 request, 150 ")
    template = PromptCalibration(overhead_tokens=199.0)
    assert budget_of(plan_of(settings_for("http://h")).schedule, 2, template).input_tokens == 400


def test_most_requests_within_a_window() -> None:
    at_s = np.array([0.0, 1.0, 1.0, 1.0, 1.4, 3.0])
    assert [most_within(at_s, window_s) for window_s in (0.0, 0.4, 1.0, 2.0, 9.0)] == [3, 4, 4, 5, 6]
    assert most_within(np.array([]), 5.0) == 0


SALVO = np.concatenate([np.full(2000, 1.0), np.linspace(2.0, 100.0, 1000)])


@pytest.mark.parametrize(
    ("limits", "workers", "fresh", "impossible", "doubtful"),
    [
        (LocalLimits(None, None), 1, False, [], []),
        (LocalLimits(4000, 28232), 1, False, [], []),
        (LocalLimits(2200, 28232), 1, False, [], ["up to 2,213 open files in one process"]),
        (LocalLimits(1024, 28232), 1, False, ["2,100 open files in one process"], []),
        (LocalLimits(1024, 28232), 4, False, [], []),
        (LocalLimits(4000, 1000), 4, False, ["2,000 local ports at once"], []),
        (LocalLimits(4000, 2500), 4, False, [], []),
        (LocalLimits(4000, 2500), 4, True, [], ["up to 2,724 local ports at once"]),
    ],
)
def test_files_and_ports_against_the_plan(
    limits: LocalLimits, workers: int, fresh: bool, impossible: list[str], doubtful: list[str]
) -> None:
    """2,000 at once at 1 s, then one each 98/999 s from 2 s on. At 0.1 s an answer, 2,000 are sure to be in
    flight; until 13 s (12 s an answer) there are 113 more, until 73 s (and TIME_WAIT) 724."""
    demand = Demand(SALVO, least_s=0.1, longest_s=12.0, workers=workers, fresh_connections=fresh)
    found = shortages(demand, limits)
    assert [len(lines) for lines in found] == [len(impossible), len(doubtful)]
    for line, words in zip([*found[0], *found[1]], [*impossible, *doubtful], strict=True):
        assert words in line
        assert "this machine allows" in line


def test_the_limits_of_this_machine_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "range").write_text("32768\t60999\n")
    assert limits_here(tmp_path / "range").ports == 28232
    assert limits_here(tmp_path / "missing").ports is None
    assert (limits_here().open_files or 1) > 0


# --- what the conductor calls ---


def test_prompts_below_the_servers_template_are_told(start_simserver: StartServer) -> None:
    url = start_simserver("--preset", "h100-8b", "--model", "my-llm")
    settings = settings_for(url, dialect="vllm", input_lengths=parse_lengths("uniform:2-5"))
    plan, lines = check_target(settings, plan_of(settings))
    short = int((plan.schedule.asked_input_tokens < 5).sum())
    assert 0 < short < 50
    words = f"{short} of 50 requests ask for fewer prompt tokens than the smallest prompt has here (5,"
    assert any(line.startswith(words) for line in lines)
    spent = plan.info.server.pop("preflight")
    assert plan.info.server == {
        "kind": "simserver", "version": None, "known_by": "its Server header", "dialect": "vllm"
    }  # fmt: skip
    assert spent["requests"] == 3  # one streamed, and two whose prompts were counted
    assert spent["output_tokens"] == 8 + 1 + 1
    assert spent["input_tokens"] > 32 + 256
    assert plan.schedule.sha256() == plan_of(settings).schedule.sha256()


def test_check_target_passes_with_the_url_and_the_notices(start_simserver: StartServer) -> None:
    url = start_simserver("--preset", "h100-8b", "--model", "my-llm")
    settings = settings_for(f"{url}//v1/", dialect="auto")
    plan, lines = check_target(settings, plan_of(settings))
    assert lines[0].startswith(f"{url}/v1/chat/completions answers, first token after ")
    assert re.fullmatch(
        r"server: simserver [\d.]+ \(by its Server header\); answers are forced to their length by "
        r"ignore_eos and min_tokens",
        lines[1],
    )
    assert lines[-1] == "the preflight took 4 small requests, 320 prompt tokens and 18 output tokens"
    assert (plan.settings.dialect, plan.calibration) == ("vllm", PromptCalibration(4.0, 1.0))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://h", "'ftp://h' is not a server's address"),
        ("http://h:99999", "is not a server's address"),
        ("http://user:pw@h", "holds a user name"),
        ("http://no-such-host.invalid", "is not known"),
        ("http://8.8.8.8", "add --confirm-target 8.8.8.8"),
    ],
)
def test_check_target_refuses_without_sending(url: str, words: str) -> None:
    settings = settings_for(url)
    with pytest.raises(PreflightRefused) as told:
        check_target(settings, plan_of(settings))
    assert words in str(told.value)
    assert "pw" not in str(told.value)


def test_a_load_that_this_machine_cannot_hold_is_refused_or_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadgen.preflight.limits_here", lambda: LocalLimits(101, None))
    with ByteServer(lambda connection, request: [MODELS] if request else stream(8, 0.03)) as server:
        settings = settings_for(server.url, model="m")
        plan = plan_of(settings)
        with pytest.raises(PreflightRefused, match="open files in one process"):
            check_target(settings, plan)
        told = check_target(settings, plan, workers=1)[1]
        assert "unless the workers run on other machines" in told[-2]


@pytest.mark.timeout(120)
def test_a_refused_run_ends_with_one_line_and_code_4_and_writes_nothing(tmp_path: Path) -> None:
    with ByteServer([plain_answer(b'{"error":"Unauthorized"}', "401 Unauthorized")]) as server:
        arguments = ["--host", server.url, "--model", "m", "--runs-dir", str(tmp_path / "runs")]
        env = {"LOAD_API_KEY": KEY}
        run = run_load([*arguments, "--run-time", "2s"], tmp_path / "logs", limit_s=60, env=env)
    log = run.log.read_text()
    assert run.exit_code == ExitCode.PREFLIGHT_REFUSED
    assert "does not accept the API key" in log
    assert KEY not in log
    assert "Traceback" not in log
    assert not (tmp_path / "runs").exists()
    assert len(server.received) == 1


@pytest.mark.timeout(120)
def test_a_public_target_is_not_even_called(tmp_path: Path) -> None:
    """203.0.113.0/24 is for documentation and not public; 192.88.99.1 is, and no longer leads anywhere."""
    arguments = ["--host", "http://192.88.99.1", "--model", "m", "--runs-dir", str(tmp_path / "runs")]
    run = run_load([*arguments, "--run-time", "2s"], tmp_path / "logs", limit_s=60)
    assert run.exit_code == ExitCode.PREFLIGHT_REFUSED
    assert "--confirm-target 192.88.99.1" in run.log.read_text()
    assert not (tmp_path / "runs").exists()
