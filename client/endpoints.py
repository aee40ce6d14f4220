"""The endpoints of a completion: one table of where each stands, what a request holds and what its events
mean.

    chat          /chat/completions   messages            max_tokens          the stream ends in [DONE]
    completions   /completions        prompt, text only   max_tokens          the stream ends in [DONE]
    responses     /responses          input               max_output_tokens   ends in response.completed
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import orjson

from client import completions, meaning, responses
from client.dialects import DIALECTS, Dialect
from client.meaning import Meaning

Prompt = str | Sequence[Mapping[str, object]]
"""The user's text, or a list of messages."""

Fields = Callable[[Prompt, int | None, bool, Dialect], dict[str, object]]


@dataclass(frozen=True)
class Endpoint:
    """One endpoint: its path behind /v1, the fields of a request (prompt, longest answer, stream and dialect
    in), and what a parsed event means."""

    name: str
    path: str
    fields: Fields
    meaning_of: Callable[[object, bool], Meaning | None]


def _chat(prompt: Prompt, max_tokens: int | None, stream: bool, dialect: Dialect) -> dict[str, object]:
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    length = _length(dialect.max_tokens_field, max_tokens, dialect)
    return {"messages": messages, **_stream(stream, dialect), **length}


def _completions(prompt: Prompt, max_tokens: int | None, stream: bool, dialect: Dialect) -> dict[str, object]:
    text = prompt if isinstance(prompt, str) else "\n\n".join(map(_text_of, prompt))
    return {"prompt": text, **_stream(stream, dialect), **_length("max_tokens", max_tokens, dialect)}


def _responses(prompt: Prompt, max_tokens: int | None, stream: bool, dialect: Dialect) -> dict[str, object]:
    fields: dict[str, object] = {"input": prompt if isinstance(prompt, str) else list(prompt)}
    fields["stream"] = stream
    if max_tokens is not None:
        fields["max_output_tokens"] = max_tokens
        fields.update(dialect.force if dialect.forces_responses else {})
    return fields


def _stream(stream: bool, dialect: Dialect) -> dict[str, object]:
    if stream and dialect.takes_stream_options:
        return {"stream": True, "stream_options": {"include_usage": True}}
    return {"stream": stream}


def _length(name: str, max_tokens: int | None, dialect: Dialect) -> dict[str, object]:
    if max_tokens is None:
        return {}
    least = {"min_tokens": max_tokens} if dialect.takes_min_tokens else {}
    return {name: max_tokens, **dialect.force, **least}


def _text_of(message: Mapping[str, object]) -> str:
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(
            "the completions endpoint takes text only, and a message holds something else: leave it out, or"
            " send to the chat endpoint"
        )
    return "".join(str(text) for text in texts)


ENDPOINTS: dict[str, Endpoint] = {
    row.name: row
    for row in (
        Endpoint("chat", "/chat/completions", _chat, meaning.meaning_of),
        Endpoint("completions", "/completions", _completions, completions.meaning_of),
        Endpoint("responses", "/responses", _responses, responses.meaning_of),
    )
}


def request_fields(
    endpoint: str,
    model: str,
    prompt: Prompt,
    max_tokens: int | None,
    *,
    stream: bool = True,
    dialect: str = "openai",
    extra: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """The fields of a request's JSON body. `extra` has the last word. A dialect may force the answer to be
    exactly `max_tokens` long (see dialects.DIALECTS).

    Raises KeyError for an unknown endpoint or dialect and ValueError for a prompt that the endpoint cannot
    take.
    """
    fields = ENDPOINTS[endpoint].fields(prompt, max_tokens, stream, DIALECTS[dialect])
    return {"model": model, **fields, **(extra or {})}


def request_body(
    endpoint: str,
    model: str,
    prompt: Prompt,
    max_tokens: int | None,
    *,
    stream: bool = True,
    dialect: str = "openai",
    extra: Mapping[str, object] | None = None,
) -> bytes:
    """The JSON body of a request; see `request_fields`. Raises also TypeError for what JSON cannot hold."""
    return orjson.dumps(
        request_fields(endpoint, model, prompt, max_tokens, stream=stream, dialect=dialect, extra=extra)
    )
