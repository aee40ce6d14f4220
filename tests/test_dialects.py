"""What servers disagree on: meaning of events, usage in all its forms, errors, refusals, bodies."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.dialects import DIALECTS
from client.endpoints import request_body
from client.meaning import Meaning, Usage, UsageTally, meaning_of, usage_of
from client.redact import told
from client.server_errors import ServerError, error_of, error_of_body, is_rejection, retry_after_s
from client.target import Limits, Target


def delta(index: int = 0, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": fields, "finish_reason": finish}]}


@pytest.mark.parametrize(
    ("event", "answer", "reasoning"),
    [
        (delta(role="assistant"), False, False),
        (delta(role="assistant", content=""), False, False),
        (delta(role="assistant", content=None, reasoning_content=None), False, False),
        (delta(), False, False),
        (delta(content=" "), True, False),
        (delta(refusal="No."), True, False),
        (delta(reasoning="Hm"), False, True),
        (delta(reasoning_content="Hm"), False, True),
        (delta(reasoning="Hm", reasoning_content="Hm"), False, True),
        (delta(reasoning_content="so", content="It"), True, True),
        (delta(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": ""}}]), True, False),
        (delta(tool_calls=[{"index": 0, "function": {"arguments": "{"}}]), True, False),
        (
            delta(tool_calls=[{"index": 0, "id": "x", "function": {"name": "", "arguments": ""}}]),
            False,
            False,
        ),
        (delta(tool_calls=[]), False, False),
        (delta(function_call={"name": "f"}), True, False),
        ({"choices": [{"index": 0, "delta": None}]}, False, False),
        (delta(content=[{"type": "text", "text": "It"}]), True, False),
        (delta(content=[{"type": "text", "text": ""}]), False, False),
        (delta(content=[]), False, False),
        (delta(content=[{"type": "refusal", "refusal": "No."}]), True, False),
        (delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]), False, True),
        (delta(content=[{"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": "It"}]), True, True),
        (delta(content=[{"type": "image_url"}]), False, False),
        (delta(tool_calls=[{"index": 0, "custom": {"name": "f", "input": ""}}]), True, False),
        (delta(tool_calls=[{"index": 0, "function": {"name": "", "arguments": {"a": 1}}}]), True, False),
        (delta(function_call={"name": None, "arguments": "{"}), True, False),
        (delta(audio={"id": "a", "data": "AAAA"}), False, False),
        (delta(content="", refusal=None, tool_calls=None, function_call=None, audio=None), False, False),
    ],
)
def test_what_counts_as_output(event: dict[str, Any], answer: bool, reasoning: bool) -> None:
    meaning = meaning_of(event)
    assert meaning is not None
    assert (meaning.answer, meaning.reasoning) == (answer, reasoning)


@pytest.mark.parametrize(
    "event",
    [
        {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}},
        {"usage": {"prompt_tokens": 7, "completion_tokens": 5}},
        {"choices": None, "usage": {"input_tokens": 7, "output_tokens": 5}},
        {**delta(content="x", finish="stop"), "usage": {"prompt_tokens": 7, "completion_tokens": 5}},
        {**delta(finish="stop"), "x_groq": {"usage": {"prompt_tokens": 7, "completion_tokens": 5}}},
        {
            **delta(finish="stop"),
            "usage": None,
            "x_groq": {"usage": {"prompt_tokens": 7, "completion_tokens": 5}},
        },
        {"choices": [{"finish_reason": "stop", "usage": {"prompt_tokens": 7, "completion_tokens": 5}}]},
    ],
)
def test_usage_is_read_in_every_place(event: dict[str, Any]) -> None:
    meaning = meaning_of(event)
    assert meaning is not None
    assert meaning.usage == Usage(input_tokens=7, output_tokens=5)


def test_usage_details_and_zeros() -> None:
    assert usage_of(
        {
            "prompt_tokens": 9,
            "completion_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 6},
        }
    ) == Usage(9, 8, 6, 4)
    assert usage_of({"prompt_tokens": 9, "completion_tokens": 8, "reasoning_tokens": 0}) == Usage(
        9, 8, 0, None
    )
    assert usage_of({"prompt_tokens": 25, "completion_tokens": 0}) == Usage(25, 0)
    assert usage_of({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}) is None
    too_large = {"completion_tokens": 4, "completion_tokens_details": {"reasoning_tokens": 9}}
    assert usage_of(too_large) == Usage(None, 4, 9)  # a part is never added to the whole
    null_details = {"prompt_tokens": 9, "completion_tokens": 8, "prompt_tokens_details": None}
    assert usage_of({**null_details, "completion_tokens_details": []}) == Usage(9, 8)
    assert usage_of(None) is None
    assert usage_of({"prompt_tokens": "many", "completion_tokens": True}) is None


def total(*meanings: Meaning) -> Usage | None:
    tally = UsageTally()
    for meaning in meanings:
        tally.add(meaning)
    return tally.total()


def test_the_last_usage_counts_and_several_choices_are_summed() -> None:
    running = [Meaning(answer=True, usage=Usage(25, n)) for n in (1, 2, 3)]
    assert total(*running) == Usage(25, 3)
    assert total(*running, Meaning(usage=Usage(25, 4), has_choices=False)) == Usage(25, 4)
    assert total(Meaning(answer=True)) is None
    second = Meaning(answer=True, choice=1)
    final = Meaning(usage=Usage(38, 4, None, 37), has_choices=False)
    assert total(second, final, Meaning(answer=True), final) == Usage(38, 8, None, 37)
    assert total(second, Meaning(usage=Usage(25, 8), has_choices=False)) == Usage(25, 8)
    first_running, second_running = Meaning(usage=Usage(25, 3)), Meaning(usage=Usage(25, 2), choice=1)
    assert total(Meaning(usage=Usage(25, 1)), second_running, first_running) == Usage(25, 5)


@pytest.mark.parametrize(
    ("body", "message", "kind", "code"),
    [
        (
            {"error": {"message": "full", "type": "Service Unavailable", "code": 503}},
            "full",
            "Service Unavailable",
            503,
        ),
        ({"error": {"message": "No", "type": "auth_error", "code": "401"}}, "No", "auth_error", 401),
        ({"error": {"message": "No", "code": "rate_limit_exceeded"}}, "No", "rate_limit_exceeded", None),
        ({"error": "Unauthorized"}, "Unauthorized", "", None),
        (
            {"error": "Model is overloaded", "error_type": "overloaded"},
            "Model is overloaded",
            "overloaded",
            None,
        ),
        ({"object": "error", "message": "bad", "type": "BadRequest", "code": 400}, "bad", "BadRequest", 400),
        ({"detail": "no such model"}, "no such model", "", None),
        (
            {"detail": [{"loc": ["body", 33], "msg": "not JSON", "input": "my secret"}]},
            "body.33 not JSON",
            "",
            None,
        ),
    ],
)
def test_shapes_of_errors(body: dict[str, Any], message: str, kind: str, code: int | None) -> None:
    assert error_of(body) == ServerError(message, kind, code)
    assert error_of_body(orjson.dumps(body)) == ServerError(message, kind, code)
    meaning = meaning_of(body)
    assert meaning is not None
    assert meaning.error == ServerError(message, kind, code)


def test_errors_that_are_no_json_and_events_that_are_no_errors() -> None:
    assert error_of_body(b"") == ServerError("")
    assert error_of_body(b"Internal Server Error").message == "Internal Server Error"
    assert error_of_body(b"<html><b>502</b>\n Bad Gateway</html>").message == "502 Bad Gateway"
    assert error_of_body(b"\xff\xfe").message
    assert error_of(delta(content="an error")) is None
    assert meaning_of({**delta(content="x"), "error": None}) == Meaning(answer=True)
    named = meaning_of({"message": "gone"}, named_error=True)
    assert named is not None
    assert named.error == ServerError("gone")


@pytest.mark.parametrize(
    ("status", "error", "rejected"),
    [
        (429, None, True),
        (503, None, True),
        (529, None, True),
        (503, ServerError("No available workers (all circuits open or unhealthy)"), False),
        (503, ServerError("All workers are unavailable"), False),
        (503, ServerError("no healthy upstream"), False),
        (503, ServerError("Loading model"), True),
        (500, None, False),
        (498, None, True),
        (502, None, False),
        (504, ServerError("queue is full"), False),
        (408, None, True),
        (408, ServerError(""), True),
        (408, ServerError("admission queue timeout: overloaded"), True),
        (408, ServerError("Request Time-out. Your browser didn't send a complete request in time."), False),
        (200, None, False),
        (200, ServerError("busy", "", 503), True),
        (200, ServerError("The request queue is full.", "SERVICE_UNAVAILABLE"), True),
        (200, ServerError("x", "rate_limit_exceeded"), True),
        (200, ServerError("Model is overloaded"), True),
        (200, ServerError("Overloaded", "overloaded_error"), True),
        (200, ServerError("server busy, please try again. maximum pending requests exceeded"), True),
        (200, ServerError("x", "RESOURCE_EXHAUSTED", 429), True),
        (200, ServerError("x", "Service Unavailable"), True),
        (200, ServerError("request (6175 tokens) exceeds the available context size"), False),
        (200, ServerError("the prompt exceeds the capacity of the model's context"), False),
        (200, ServerError("Flex tier capacity exceeded"), True),
        (200, ServerError("EngineCore encountered an issue.", "InternalServerError", 500), False),
    ],
)
def test_what_is_a_rejection(status: int, error: ServerError | None, rejected: bool) -> None:
    assert is_rejection(status, error) is rejected


def test_retry_after() -> None:
    assert retry_after_s({"retry-after": "2"}) == 2.0
    assert retry_after_s({"retry-after": "12", "retry-after-ms": "11962"}) == 11.962
    date, later = "Mon, 30 Nov 2026 09:14:16 GMT", "Mon, 30 Nov 2026 09:14:46 GMT"
    assert retry_after_s({"retry-after": later, "date": date}) == 30.0
    assert retry_after_s({"retry-after": later}) is None
    assert retry_after_s({"retry-after": "soon", "date": date}) is None
    assert retry_after_s({}) is None


EXACT = {"vllm", "sglang", "tensorrt-llm", "lmdeploy", "llama.cpp"}
LEAST_TOO = {"vllm", "sglang", "tensorrt-llm"}


@pytest.mark.parametrize("name", DIALECTS)
def test_bodies_of_every_dialect(name: str) -> None:
    body = orjson.loads(request_body("chat", "m", "hi", 8, dialect=name, extra={"temperature": 0}))
    expected = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "max_completion_tokens" if name == "openai-hosted" else "max_tokens": 8,
        **({"ignore_eos": True} if name in EXACT else {}),
        **({"min_tokens": 8} if name in LEAST_TOO else {}),
    }
    if name == "mistral":
        del expected["stream_options"]
    assert body == expected
    whole = orjson.loads(
        request_body("chat", "m", [{"role": "user", "content": "hi"}], None, stream=False, dialect=name)
    )
    assert whole == {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": False}


@pytest.mark.parametrize("name", DIALECTS)
def test_what_of_a_dialect_holds_for_the_other_endpoints(name: str) -> None:
    text = orjson.loads(request_body("completions", "m", "hi", 8, dialect=name))
    assert (text.get("max_tokens"), text.get("max_completion_tokens")) == (8, None)
    assert ("ignore_eos" in text, "min_tokens" in text) == (name in EXACT, name in LEAST_TOO)
    assert ("stream_options" in text) == (name != "mistral")
    response = orjson.loads(request_body("responses", "m", "hi", 8, dialect=name))
    forced = {"ignore_eos": True} if name == "vllm" else {}
    assert response == {"model": "m", "input": "hi", "stream": True, "max_output_tokens": 8, **forced}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "message",
                    "usage",
                    "error",
                    "detail",
                    "content",
                    "tool_calls",
                    "function",
                    "index",
                ]
            )
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON, st.booleans())
def test_no_json_makes_it_raise(event: object, named_error: bool) -> None:
    meaning = meaning_of(event, named_error)
    assert (meaning is None) == (not isinstance(event, dict))


@pytest.mark.parametrize(
    ("given_url", "called"),
    [
        ("http://h:8000", "http://h:8000/v1/chat/completions"),
        ("http://h:8000/", "http://h:8000/v1/chat/completions"),
        ("http://h:8000/v1", "http://h:8000/v1/chat/completions"),
        ("http://h:8000/v1/", "http://h:8000/v1/chat/completions"),
        ("http://h:8000//v1//", "http://h:8000/v1/chat/completions"),
        ("http://h/v1/chat/completions", "http://h/v1/chat/completions"),
        ("https://h/llm/v1beta", "https://h/llm/v1beta/chat/completions"),
        ("https://h:443/llm?key=1", "https://h/llm/v1/chat/completions?key=1"),
        ("localhost:8000", "http://localhost:8000/v1/chat/completions"),
        ("http://[::1]:80", "http://[::1]/v1/chat/completions"),
    ],
)
def test_all_spellings_of_an_address(given_url: str, called: str) -> None:
    assert Target(given_url, "m").url == called


@pytest.mark.parametrize(
    "bad", ["", "ftp://h", "http://", "http://h:99999", "http://h:x", "http://a b", "http://u:pw@h"]
)
def test_addresses_that_cannot_be_used(bad: str) -> None:
    with pytest.raises(ValueError) as told_error:  # noqa: PT011
        Target(bad, "m")
    assert "pw" not in str(told_error.value)


def test_heads_and_headers() -> None:
    target = Target("http://h", "m", api_key="sk-secret", headers={"X-A": "1"})
    assert "sk-secret" not in repr(target)
    head = target.head()
    assert b"Authorization: Bearer sk-secret\r\n" in head
    assert b"X-A: 1\r\n" in head
    other = Target("http://h", "m", api_key="k", headers={"authorization": "Basic x"}).head()
    assert other.lower().count(b"authorization") == 1
    for name, value in (("X", "a\r\nB: c"), ("X Y", "a"), ("Content-Length", "3")):
        with pytest.raises(ValueError, match="header"):
            Target("http://h", "m", headers={name: value})
    assert Limits().first_token_s == 60.0


def test_error_texts_hold_neither_keys_nor_prompts_and_are_short() -> None:
    target = Target("http://h", "m", api_key="sk-test-123", headers={"api-key": "abcdef99"})
    prompt = "the quick brown fox jumps over the lazy dog by the river"
    body = request_body("chat", "m", prompt, 8)
    text = told(f"key sk-test-123 or abcdef99 refused: input was '{prompt}', too long", target, body)
    assert text == "key <key> or <key> refused: input was '…', too long"
    assert told("x " * 400, target, body) == ("x " * 100)[:199] + "…"
    assert told("short echo: hi you", target, request_body("chat", "m", "hi you", 8)) == "short echo: …"
    assert told("nothing in common", target, b"not json") == "nothing in common"
