"""Every kind of server is told from captures by one clue, and asked for no more than that takes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from client.calibration import PromptCalibration
from client.clues import CLUES, KINDS, PAGES, Evidence, Server, server_of
from client.detection import recognise
from client.dialects import DIALECTS
from client.model_list import read_model_list
from client.preflight import AUTO, Preflight, preflight
from client.reader import ConnectionPool
from client.target import Limits, Target
from loadgen.prompts import sample_prompt
from tests.byte_server import LAST_CHUNK, STREAM_HEAD, ByteServer, Step, chunk, plain_answer

CAPTURES = Path(__file__).parent / "data/clues"
SHORT = Limits(connect_s=1.0, first_token_s=2.0, stall_s=2.0, total_s=5.0)


def captured(name: str) -> tuple[dict[str, str], bytes]:
    """Headers by lower-case name, and the body, of a capture."""
    head, _, body = (CAPTURES / f"{name}.txt").read_bytes().partition(b"\r\n\r\n")
    lines = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:])
    return {name.lower(): value.strip() for name, _, value in lines}, body


def shown(server: str, *names: str) -> Evidence:
    """What a server has shown by these captures."""
    seen = Evidence()
    for name in names:
        headers, body = captured(f"{server}_{name}")
        if name == "models":
            seen = replace(seen, models=read_model_list(body).rows)
        elif name == "nonstream":
            seen = replace(seen, headers=headers, answers=(json.loads(body),))
        elif name == "stream_usage_true":
            seen = replace(seen, headers=headers)
        else:
            seen = replace(seen, pages={f"/{name}": json.loads(body)})
    return seen


@pytest.mark.parametrize(
    ("server", "names", "kind", "by", "version"),
    [
        ("vllm", ["models"], "vllm", "its list of models", None),
        ("vllm", ["nonstream"], "vllm", "its answer's system_fingerprint", "0.32.0"),
        ("vllm", ["version"], "vllm", "its page /version", "0.32.0"),
        ("sglang", ["models"], "sglang", "its list of models", None),
        ("sglang", ["nonstream"], "sglang", "its answer's matched_stop", None),
        ("llamacpp", ["models"], "llama.cpp", "its list of models", None),
        ("llamacpp", ["nonstream"], "llama.cpp", "its Server header", None),
        ("llamacpp", ["props"], "llama.cpp", "its page /props", None),
        ("transformers", ["models", "nonstream"], "transformers", "the @main in its answer's model", None),
        ("litellm", ["models", "nonstream"], "litellm", "its x-litellm headers", "1.80.0"),
        ("vllm_router", ["models", "nonstream"], "llama.cpp", "its Server header", None),
        ("smg", ["models", "stream_usage_true"], "llama.cpp", "its Server header", None),
    ],
)
def test_a_captured_server_is_recognised(
    server: str, names: Sequence[str], kind: str, by: str, version: str | None
) -> None:
    found = server_of(shown(server, *names))
    assert found is not None
    assert (found.kind, found.by) == (kind, by)
    assert found.version is None or found.version.startswith(version or "?")
    assert (found.version is None) is (version is None)


def test_a_clue_that_a_gateway_could_hide_is_not_the_only_one() -> None:
    """llama.cpp and vLLM behind something that rewrites headers."""
    bare = replace(shown("llamacpp", "nonstream"), headers={})
    assert server_of(bare) == Server("llama.cpp", "its answer's timings")
    answer = {**shown("vllm", "nonstream").answers[0], "system_fingerprint": None}
    found = server_of(Evidence(answers=(answer,)))
    assert found == Server("vllm", "its answer's prompt_token_ids")


@pytest.mark.parametrize("server", ["guidellm", "llmock", "smg"])
def test_others_are_unknown(server: str) -> None:
    names = [name for name in ("models", "nonstream") if (CAPTURES / f"{server}_{name}.txt").exists()]
    assert server_of(shown(server, *names)) is None


def test_the_tables_agree() -> None:
    assert {clue.kind for clue in CLUES} == set(KINDS)
    assert {kind.dialect for kind in KINDS.values()} <= set(DIALECTS)
    assert "/health" not in PAGES  # SGLang generates a token for it


@pytest.mark.parametrize(
    "seen",
    [
        Evidence(models=({"owned_by": ["vllm"]},), answers=({"choices": "none", "model": 7},)),
        Evidence(answers=({"choices": [None, 3]},), pages={"/version": {"version": None}}),
    ],
)
def test_evidence_of_any_kind_is_taken(seen: Evidence) -> None:
    assert server_of(seen) is None


# --- asking ---


def answers(pages: Mapping[str, bytes], served: list[str]) -> ByteServer:
    """A server of these pages; it notes the paths that it was asked for."""

    def script(connection: int, request: int) -> Sequence[Step]:
        path = server.received[-1].head.split(b" ")[1].decode()
        served.append(path)
        return [pages.get(path, plain_answer(b"{}", "404 Not Found"))]

    server = ByteServer(script, idle_limit_s=10)
    return server


@pytest.mark.parametrize(
    ("capture", "page", "kind", "asked"),
    [
        ("vllm_version", "/version", "vllm", ["/version"]),
        ("llamacpp_props", "/props", "llama.cpp", ["/version", "/props"]),
        (None, "", None, list(PAGES)),
    ],
)
def test_an_unknown_server_is_asked_until_a_clue_fits(
    capture: str | None, page: str, kind: str | None, asked: list[str]
) -> None:
    pages = {} if capture is None else {f"/here{page}": plain_answer(captured(capture)[1])}
    served: list[str] = []
    with answers(pages, served) as server:
        pool = ConnectionPool(Target(f"{server.url}/here/v1", "m"))
        found = recognise(pool, Evidence(), 2.0)
        pool.close()
    assert (found.kind if found else None) == kind
    assert served == [f"/here{path}" for path in asked]


def test_a_known_server_is_asked_for_its_version_only() -> None:
    served: list[str] = []
    with answers({"/version": plain_answer(captured("vllm_version")[1])}, served) as server:
        pool = ConnectionPool(Target(server.url, "m"))
        found = recognise(pool, shown("vllm", "models"), 2.0)
        pool.close()
    assert str(found) == "vLLM 0.32.0"
    assert served == ["/version"]


# --- the whole preflight ---

MODELS = plain_answer(b'{"data":[{"id":"m","owned_by":"someone"}]}')


def streamed(tokens: int) -> list[Step]:
    def event(fields: dict[str, object]) -> bytes:
        return chunk(b"data: " + json.dumps(fields).encode() + b"\n\n")

    words = [event({"choices": [{"index": 0, "delta": {"content": "one "}}]}) for _ in range(tokens)]
    end = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
    usage = event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": tokens}})
    spaced = [step for word in words for step in (word, 0.003)]
    return [STREAM_HEAD, *spaced, end, usage, chunk(b"data: [DONE]\n\n"), LAST_CHUNK]


def counted(body: bytes, fields: Mapping[str, object], per_word: float = 1.5) -> bytes:
    """An answer in one piece whose usage counts 20 tokens and `per_word` for every word."""
    words = len(json.loads(body)["messages"][0]["content"].split())
    usage = {"prompt_tokens": 20 + round(per_word * words), "completion_tokens": 1}
    choice = {"index": 0, "message": {"content": "one"}, "finish_reason": "length"}
    return plain_answer(json.dumps({"choices": [choice], "usage": usage, **fields}).encode())


def asked(
    fields: Mapping[str, object],
    forced: Sequence[Step] | None = None,
    dialect: str = AUTO,
    models: bytes = MODELS,
    uncounted: bytes | None = None,
) -> tuple[Preflight, list[dict[str, object]]]:
    """A preflight against a server whose whole answers hold `fields`, and the completions that it got."""

    def script(connection: int, request: int) -> Sequence[Step]:
        got = server.received[-1]
        if got.head.startswith(b"GET"):
            return [models if b"/v1/models" in got.head else plain_answer(b"{}", "404 Not Found")]
        body = json.loads(got.body)
        if not body["stream"]:
            return [uncounted or counted(got.body, fields)]
        return forced if forced and "ignore_eos" in body else streamed(8)

    with ByteServer(script, idle_limit_s=10) as server:
        found = preflight(
            Target(server.url, "m"), limits=SHORT, dialect=dialect, prompt_of_words=sample_prompt
        )
    return found, [json.loads(one.body) for one in server.received if one.body]


def test_a_recognised_server_is_spoken_to_in_its_dialect() -> None:
    found, bodies = asked({"prompt_token_ids": None})
    assert (found.refused, found.notices, found.dialect) == (None, (), "vllm")
    assert [(body["max_tokens"], body["stream"]) for body in bodies] == [
        (8, True),
        (1, False),
        (1, False),
        (8, True),
    ]
    assert "ignore_eos" not in bodies[0]
    assert (bodies[3]["ignore_eos"], bodies[3]["min_tokens"]) == (True, 8)
    assert found.calibration == PromptCalibration(20.0, 1.5)
    assert (found.spent.requests, found.spent.input_tokens, found.spent.output_tokens) == (4, 490, 18)


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        ([plain_answer(captured("transformers_stream_ignore_eos")[1], "422 Unprocessable")], "HTTP 422"),
        ([STREAM_HEAD, chunk(b'data: {"error":{"message":"no eos"}}\n\n'), LAST_CHUNK], "no eos"),
    ],
)
def test_a_server_that_refuses_the_forcing_fields_gets_none(refusal: Sequence[Step], words: str) -> None:
    found, bodies = asked({"prompt_token_ids": None}, refusal)
    assert (found.refused, found.dialect, str(found.server)) == (None, "openai", "vLLM")
    assert len(found.notices) == 1
    assert "refuses what forces an answer's length" in found.notices[0]
    assert words in found.notices[0]
    assert len(bodies) == 4


def test_a_server_that_ends_early_all_the_same_is_noticed() -> None:
    found, _ = asked({"timings": {}}, streamed(3))
    assert found.dialect == "llama.cpp"
    assert "ended after 3 of 8 tokens although the dialect llama.cpp forces" in found.notices[0]


def test_an_unknown_server_gets_the_standard_and_a_notice() -> None:
    found, bodies = asked({})
    assert (found.server, found.dialect, len(bodies)) == (None, "openai", 3)
    assert "--dialect names it: vllm, sglang, " in found.notices[0]


def test_a_named_dialect_stays_and_is_told_when_it_does_not_fit() -> None:
    found, bodies = asked({"matched_stop": None, "timings": {}}, dialect="sglang")
    assert found.dialect == "sglang"
    assert found.notices == (
        "--dialect sglang, but the server looks like llama.cpp (by its answer's timings): "
        "--dialect llama.cpp would fit it",
    )
    assert len(bodies) == 3
    assert asked({"timings": {}}, dialect="openai")[0].notices == ()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (plain_answer(b'{"choices":[]}'), "does not count them"),
        (plain_answer(b'{"error":"too long"}', "400 Bad Request"), "32 words was not counted: HTTP 400"),
        (plain_answer(b'{"usage":{"prompt_tokens":7,"completion_tokens":1}}'), "words as 7 tokens, 256"),
    ],
)
def test_without_counts_lengths_are_estimates(answer: bytes, words: str) -> None:
    found, _ = asked({}, dialect="openai", uncounted=answer)
    assert (found.refused, found.calibration) == (None, None)
    assert found.notices[0].startswith("prompt lengths are estimates, a word for a token: ")
    assert words in found.notices[0]


def test_a_server_that_wants_another_field_gets_it() -> None:
    """OpenAI's newer models: max_tokens is refused, and the refusal names the field to use."""
    refusal = b"""{"error": {"message": "Unsupported parameter: 'max_tokens' is not supported with this model.
 Use 'max_completion_tokens' instead.", "type": "invalid_request_error", "code": "unsupported_parameter"}}"""
    bodies: list[dict[str, object]] = []

    def script(connection: int, request: int) -> Sequence[Step]:
        newest = server.received[-1]
        if newest.head.startswith(b"GET"):
            return [plain_answer(b"{}", "404 Not Found")]
        bodies.append(json.loads(newest.body))
        if "max_tokens" in bodies[-1]:
            return [plain_answer(refusal.replace(b"\n", b""), "400 Bad Request")]
        return [plain_answer(b'{"choices":[{"message":{"content":"a"},"finish_reason":"length"}]}')]

    with ByteServer(script) as server:
        found = preflight(Target(server.url, "gpt"), limits=SHORT, dialect=AUTO, stream=False)
    assert (found.refused, found.dialect) == (None, "openai-hosted")
    assert [("max_tokens" in body, "max_completion_tokens" in body) for body in bodies] == [
        (True, False),
        (False, True),
    ]


def test_the_docs_name_every_kind_and_page() -> None:
    docs = (Path(__file__).parent.parent / "docs/servers.md").read_text(encoding="utf-8")
    rows = [line for line in docs.splitlines() if line.startswith("| ")]
    for kind in KINDS.values():
        assert any(line.startswith(f"| {kind.name} |") and f"`{kind.dialect}`" in line for line in rows), kind
    assert all(f"`{page}`" in docs for page in PAGES)
