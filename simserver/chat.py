"""/v1/chat/completions: its prompts, its events and its whole answers, in vLLM's shapes.

A stream is, in this order: a role event with empty content for each choice, just before the first
token; one event per token (or per `--stream-interval`), the last of each choice with the finish
reason; a usage event without choices, if asked for; `[DONE]`."""

from __future__ import annotations

from typing import Any

import orjson

from simserver.answers import Answer, closing, escaped, failing, usage, usage_so_far
from simserver.asked import text_of
from simserver.errors import ApiError, invalid
from simserver.script import TOOL_NAME, Kind, Script

TOKENS_PER_MESSAGE = 4
_TEMPLATE = ("",) * (TOKENS_PER_MESSAGE - 1)
_UNFINISHED = b',"logprobs":null,"finish_reason":null}]'


def prompts(fields: dict[str, Any]) -> list[list[str]]:
    """One prompt: for each message the template's tokens, then its words. Raises ApiError."""
    return [prompt_of(fields.get("messages"), "body.messages")]


def prompt_of(messages: Any, where: str) -> list[str]:
    """The tokens of a list of messages that stands at `where`. Raises ApiError."""
    if not isinstance(messages, list):
        raise invalid(where, "Field required: a list of messages")
    if not messages:
        raise invalid(where, "List should have at least 1 item")
    tokens: list[str] = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise invalid(f"{where}.{index}", "Input should be a message with a role")
        tokens += message_tokens(message["role"], text_of(message.get("content"), f"{where}.{index}.content"))
    return tokens


def message_tokens(role: str, text: str) -> list[str]:
    return [role, *_TEMPLATE, *text.split()]


class ChatEvents:
    """A streamed chat completion."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._head = b"data: " + orjson.dumps(_opening(answer, "chat.completion.chunk"))[:-1]
        self._deltas = [
            self._head + b',"choices":[{"index":%d,"delta":{' % choice
            for choice in range(len(answer.scripts))
        ]
        self._reasoning = b'"%b":"' % answer.rules.reasoning_field.encode()

    def greeting(self) -> list[bytes]:
        return []

    def opening(self) -> list[bytes]:
        role = b'"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]%b}\n\n'
        return [
            delta + role % usage_so_far(self._answer, choice, 0) for choice, delta in enumerate(self._deltas)
        ]

    def tokens(self, choice: int, first: int, last: int) -> list[bytes]:
        script = self._answer.scripts[choice]
        head = self._deltas[choice]
        runs = script.runs(first, last)
        counts = usage_so_far(self._answer, choice, last)
        events = []
        for place, (kind, text) in enumerate(runs):
            opens = first <= script.reasoning_tokens + 1
            ends = last == script.tokens and place == len(runs) - 1
            events.append(
                head + self._delta(script, choice, kind, text, opens) + _after(script, ends, counts)
            )
        return events

    def around(self, choice: int) -> tuple[bytes, bytes] | None:
        if self._answer.asked.continuous_usage:
            return None
        return self._deltas[choice] + b'"content":"', b'"}' + _UNFINISHED + b"}\n\n"

    def _delta(self, script: Script, choice: int, kind: Kind, text: str, opens: bool) -> bytes:
        if kind == "content":
            return b'"content":"' + escaped(text) + b'"}'
        if kind == "reasoning":
            return self._reasoning + escaped(text) + b'"}'
        call = {"index": 0, "function": {"arguments": text}}
        if opens:
            call = {**_call(self._answer, choice, text), "index": 0}
        return b'"tool_calls":[' + orjson.dumps(call) + b"]}"

    def closing(self) -> list[bytes]:
        return closing(self._answer, self._head)

    def failing(self, error: ApiError) -> list[bytes]:
        return failing(error)


def whole(answer: Answer) -> dict[str, Any]:
    """The body of an answer that is not streamed."""
    return {
        **_opening(answer, "chat.completion"),
        "choices": [
            {
                "index": choice,
                "message": _message(answer, choice, script),
                "logprobs": None,
                "finish_reason": script.finish_reason,
                "stop_reason": script.stop_reason,
            }
            for choice, script in enumerate(answer.scripts)
        ],
        "usage": usage(answer, answer.tokens),
    }


def _message(answer: Answer, choice: int, script: Script) -> dict[str, Any]:
    said = script.whole
    message: dict[str, Any] = {"role": "assistant", "content": said.get("content"), "refusal": None}
    if "reasoning" in said:
        message[answer.rules.reasoning_field] = said["reasoning"]
    if "tool_call" in said:
        message["tool_calls"] = [_call(answer, choice, said["tool_call"])]
    return message


def _call(answer: Answer, choice: int, arguments: str) -> dict[str, Any]:
    return {
        "id": f"call-{answer.request_id}-{choice}",
        "type": "function",
        "function": {"name": TOOL_NAME, "arguments": arguments},
    }


def _opening(answer: Answer, kind: str) -> dict[str, Any]:
    return {
        "id": answer.request_id,
        "object": kind,
        "created": answer.created,
        "model": answer.rules.model,
    }


def _after(script: Script, ends: bool, counts: bytes) -> bytes:
    if not ends:
        return _UNFINISHED + counts + b"}\n\n"
    reasons = (script.finish_reason.encode(), orjson.dumps(script.stop_reason), counts)
    return b',"logprobs":null,"finish_reason":"%b","stop_reason":%b}]%b}\n\n' % reasons
