"""An answer's tokens -> bytes on the wire; each endpoint says in what shape.

What is the same for all tokens of a request is made once, so that a token costs a concatenation and
a write. Writes go straight to the connection's transport, which buffers what a slow reader has not
taken: the engine never waits for a reader, and a stream's buffer is bounded by the context length.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from simserver.asked import Asked, Rules
from simserver.errors import ApiError
from simserver.request import Request
from simserver.script import TEXTS, Script

DONE = b"data: [DONE]\n\n"
_TEXTS = tuple(map(str.encode, TEXTS))
_TEXT_LENGTHS = frozenset(map(len, _TEXTS))


@dataclass(frozen=True, slots=True)
class Answer:
    """One request's answer: what it is called, what was asked, what each choice says and how far
    the engine is with it."""

    request_id: str
    created: int
    asked: Asked
    rules: Rules
    scripts: Sequence[Script]
    sequences: Sequence[Request]

    @property
    def tokens(self) -> int:
        """Tokens of all choices, when it is whole."""
        return sum(script.tokens for script in self.scripts)

    @property
    def reasoning_tokens(self) -> int:
        return sum(script.reasoning_tokens for script in self.scripts)

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens found in the prefix cache, each prompt counted once."""
        return sum(one.cached_prompt_tokens for one in self.sequences[:: self.asked.n])


class Events(Protocol):
    """How an endpoint streams one answer: lists of server-sent events, as bytes."""

    def greeting(self) -> list[bytes]:
        """At once, however long the request waits."""

    def opening(self) -> list[bytes]:
        """Just before the first token of all."""

    def tokens(self, choice: int, first: int, last: int) -> list[bytes]:
        """Tokens `first` to `last` of a choice."""

    def around(self, choice: int) -> tuple[bytes, bytes] | None:
        """What stands before and after the text of a token that brings text and nothing else, when that
        is the same for all of them."""

    def closing(self) -> list[bytes]:
        """After the last token of all."""

    def failing(self, error: ApiError) -> list[bytes]:
        """Instead of all that would follow."""


MakeEvents = Callable[[Answer], Events]


def chunk(payload: bytes) -> bytes:
    """One chunk of HTTP/1.1 chunked transfer coding."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def escaped(text: str) -> bytes:
    """Text as it stands between the quotes of a JSON string."""
    return orjson.dumps(text)[1:-1]


def event(fields: dict[str, Any]) -> bytes:
    """An event without a name."""
    return b"data: %b\n\n" % orjson.dumps(fields)


def usage(answer: Answer, completion_tokens: int) -> dict[str, Any]:
    """The usage of chat and text completions; details only where there are some to tell."""
    prompt_tokens = answer.asked.prompt_tokens
    counts: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
    }
    if answer.rules.prompt_tokens_details:
        counts["prompt_tokens_details"] = {"cached_tokens": answer.cached_tokens}
    if answer.reasoning_tokens:
        counts["completion_tokens_details"] = {"reasoning_tokens": answer.reasoning_tokens}
    return counts


def closing(answer: Answer, head: bytes) -> list[bytes]:
    """The end of a chat or text stream: a usage event without choices, if asked for, and the end mark."""
    if not answer.asked.include_usage:
        return [DONE]
    counts = orjson.dumps(usage(answer, answer.tokens))
    return [head + b',"choices":[],"usage":%b}\n\n' % counts, DONE]


def failing(error: ApiError) -> list[bytes]:
    """The end of a chat or text stream that fails."""
    return [b"data: " + error.body + b"\n\n", DONE]


def usage_so_far(answer: Answer, choice: int, count: int) -> bytes:
    """`,"usage":{...}` with a choice's running counts, for continuous_usage_stats; else nothing."""
    if not answer.asked.continuous_usage:
        return b""
    prompt_tokens = answer.asked.prompt_of(choice).tokens
    return b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}' % (
        prompt_tokens,
        prompt_tokens + count,
        count,
    )


class _Plain:
    """The tokens of a choice that bring text and nothing else: all but the first and the last. Everything but
    the text is made once, chunk framing included."""

    __slots__ = ("_after", "_heads", "_start", "first", "last")

    def __init__(self, script: Script, before: bytes, after: bytes) -> None:
        self.first = script.reasoning_tokens + 2
        self.last = script.tokens - 1
        self._start = script.start - 1
        size = len(before) + len(after)
        self._heads = {length: b"%x\r\n%b" % (size + length, before) for length in _TEXT_LENGTHS}
        self._after = after + b"\r\n"

    def chunk(self, number: int) -> bytes:
        text = _TEXTS[(self._start + number) % len(_TEXTS)]
        return self._heads[len(text)] + text + self._after


class AnswerStream:
    """One streamed answer, written to an open HTTP response, in chunks unless it is one of HTTP/1.0.

    Of a choice's tokens the first goes out at once, then `stream_interval` of them in an event, as
    in vLLM."""

    __slots__ = (
        "_answer",
        "_chunked",
        "_events",
        "_interval",
        "_left",
        "_opened",
        "_plain",
        "_sent",
        "_transport",
    )

    def __init__(
        self, transport: asyncio.Transport, answer: Answer, events: Events, *, chunked: bool
    ) -> None:
        self._transport = transport
        self._chunked = chunked
        self._answer = answer
        self._events = events
        self._interval = answer.rules.stream_interval
        self._sent = [0] * len(answer.scripts)
        self._left = len(answer.scripts)
        self._opened = False
        self._plain = [self._plain_part(choice, script) for choice, script in enumerate(answer.scripts)]

    def _plain_part(self, choice: int, script: Script) -> _Plain | None:
        around = self._events.around(choice)
        if around is None or not self._chunked or self._interval > 1 or script.tool_call or script.cut:
            return None
        return _Plain(script, *around)

    def greet(self) -> None:
        """Write what comes before the request has begun."""
        self.write(self._events.greeting())

    def write_token(self, choice: int, count: int) -> None:
        """Token `count` (from 1) of a choice is there: write what it brings."""
        plain = self._plain[choice]
        if plain is not None and plain.first <= count <= plain.last:
            self._sent[choice] = count
            if not self._transport.is_closing():
                self._transport.write(plain.chunk(count))
            return
        sent = self._sent[choice]
        last = count == self._answer.scripts[choice].tokens
        if sent and not last and count - sent < self._interval:
            return
        events = self._events.tokens(choice, sent + 1, count)
        self._sent[choice] = count
        if not self._opened:
            self._opened = True
            events = self._events.opening() + events
        if last:
            self._left -= 1
            if not self._left:
                events = events + self._events.closing()
        self.write(events)

    def write_error(self, error: ApiError) -> None:
        """End the stream with an error."""
        self.write(self._events.failing(error))

    def write(self, events: list[bytes]) -> None:
        """Write events as they are, unless the client has left."""
        if events and not self._transport.is_closing():
            self._transport.write(b"".join(map(chunk, events) if self._chunked else events))
