"""Tokens -> bytes on the wire, in the shape of vLLM's chat completions.

A stream is, in this order: a role event with empty content, just before the first token; one event per
token, the last of them with the finish reason; a usage event without choices, if asked for; `[DONE]`.

Everything that is the same for all tokens of a request is made once, chunk framing included, so that a
token costs one concatenation and one write. Writes go straight to the connection's transport, which buffers
what a slow reader has not taken: the engine never waits for a reader, and a stream's buffer is bounded by
the context length.
"""

from __future__ import annotations

import asyncio

import orjson

from simserver.chat import ApiError, ChatRequest

WORDS = """
time load queue burst token batch step cache block model prompt answer stream server budget chunk prefill
decode wait run late early slow fast peak quiet wave tide river stone cloud field light sound paper metal
north south winter summer morning evening garden window bridge harbour island forest valley mountain
engine signal number letter minute second market village station journey question reason measure balance
pattern
""".split()

_AFTER_TEXT = b'"},"logprobs":null,"finish_reason":null}]}\n\n\r\n'
# Per word: its length with the leading space, and the rest of its event from the text on.
_TOKEN_EVENTS = tuple((len(word) + 1, b" " + word.encode() + _AFTER_TEXT) for word in WORDS)
_WORD_LENGTHS = sorted({length for length, _ in _TOKEN_EVENTS})
_DONE = b"data: [DONE]\n\n"


def chunk(payload: bytes) -> bytes:
    """One chunk of HTTP/1.1 chunked transfer coding."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def _word(start: int, index: int) -> str:
    return WORDS[(start + index) % len(WORDS)]


def usage(chat: ChatRequest, completion_tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": chat.prompt_tokens,
        "total_tokens": chat.prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
    }


class TokenStream:
    """The events of one streamed answer, written to an open chunked HTTP response.

    start: which word the answer begins with, so that answers differ.
    """

    __slots__ = ("_chat", "_head", "_heads", "_start", "_transport")

    def __init__(
        self,
        transport: asyncio.Transport,
        completion_id: str,
        created: int,
        model: str,
        chat: ChatRequest,
        start: int,
    ) -> None:
        self._transport = transport
        self._chat = chat
        self._start = start
        opening = {"id": completion_id, "object": "chat.completion.chunk", "created": created, "model": model}
        self._head = b"data: " + orjson.dumps(opening)[:-1]
        head = self._head + b',"choices":[{"index":0,"delta":{"content":"'
        rest = len(head) + len(_AFTER_TEXT) - len(b"\r\n")
        self._heads = {length: b"%x\r\n%b" % (rest + length, head) for length in _WORD_LENGTHS}

    def write_token(self, count: int) -> None:
        """Write what token number `count` (from 1) brings: the first and the last bring more than text."""
        if self._transport.is_closing():
            return
        if 1 < count < self._chat.output_tokens:
            length, event = _TOKEN_EVENTS[(self._start + count - 1) % len(_TOKEN_EVENTS)]
            self._transport.write(self._heads[length] + event)
            return
        pieces = []
        if count == 1:
            role = b',"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,'
            pieces.append(chunk(self._head + role + b'"finish_reason":null}]}\n\n'))
        if count < self._chat.output_tokens:
            length, event = _TOKEN_EVENTS[self._start % len(_TOKEN_EVENTS)]
            pieces.append(self._heads[length] + event)
        else:
            text = b',"choices":[{"index":0,"delta":{"content":" %b"},"logprobs":null,"finish_reason":"%b",'
            pieces.append(
                chunk(
                    self._head
                    + text % (_word(self._start, count - 1).encode(), self._chat.finish_reason.encode())
                    + b'"stop_reason":null}]}\n\n'
                )
            )
            if self._chat.include_usage:
                counts = orjson.dumps(usage(self._chat, count))
                pieces.append(chunk(self._head + b',"choices":[],"usage":%b}\n\n' % counts))
            pieces.append(chunk(_DONE))
        self._transport.write(b"".join(pieces))

    def write_error(self, error: ApiError) -> None:
        """End the stream as vLLM does when its engine dies: an error event, then `[DONE]`."""
        if self._transport.is_closing():
            return
        self._transport.write(chunk(b"data: " + error.body + b"\n\n") + chunk(_DONE))


def whole_answer(completion_id: str, created: int, model: str, chat: ChatRequest, start: int) -> bytes:
    """The body of an answer that is not streamed."""
    text = "".join(f" {_word(start, index)}" for index in range(chat.output_tokens))
    return orjson.dumps(
        {
            "id": completion_id,
            "object": "chat.completion",
            "created": created,
            "model": model,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text, "refusal": None},
                    "logprobs": None,
                    "finish_reason": chat.finish_reason,
                    "stop_reason": None,
                }
            ],
            "usage": usage(chat, chat.output_tokens),
        }
    )
