"""/v1/responses: its prompt, its events and its whole answers, in vLLM's shapes.

A stream is: created and in progress, at once; then for each item of the output (reasoning, and a
message or a tool call) that it is added, its text in deltas, and that it is done; at last
`response.completed` with the whole response and its usage. As in vLLM it has that name also where
the answer was cut at its longest; the status in it is "incomplete" then. There is no `[DONE]`, and
only one choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from simserver.answers import Answer, escaped
from simserver.asked import text_of
from simserver.chat import message_tokens
from simserver.errors import ApiError, invalid
from simserver.script import TOOL_NAME, Kind


def prompts(fields: dict[str, Any]) -> list[list[str]]:
    """One prompt: the instructions, then the input's items, each with the tokens of a template."""
    tokens: list[str] = []
    instructions = fields.get("instructions")
    if instructions is not None:
        if not isinstance(instructions, str):
            raise invalid("body.instructions", "Input should be a valid string")
        tokens += message_tokens("system", instructions)
    asked = fields.get("input")
    if isinstance(asked, str):
        return [tokens + message_tokens("user", asked)]
    if not isinstance(asked, list):
        raise invalid("body.input", "Field required: a string or a list of items")
    if not asked:
        raise invalid("body.input", "List should have at least 1 item")
    for index, item in enumerate(asked):
        if not isinstance(item, dict):
            raise invalid(f"body.input.{index}", "Input should be an item of a conversation")
        tokens += _item_tokens(item, f"body.input.{index}")
    return [tokens]


def _item_tokens(item: dict[str, Any], where: str) -> list[str]:
    """A message, or what a tool was called with or answered."""
    role = item.get("role") or item.get("type")
    if not isinstance(role, str):
        raise invalid(where, "Input should be an item with a role or a type")
    for name in ("content", "output", "arguments"):
        if item.get(name) is not None:
            return message_tokens(role, text_of(item[name], f"{where}.{name}"))
    return message_tokens(role, "")


@dataclass(frozen=True)
class _Item:
    """What an item of the output is called, how it looks with the text so far, and how it is
    streamed: the name of its text's events, its field for the whole text, and its part, where it
    has parts."""

    prefix: str
    make: Callable[[str, str, bool], dict[str, Any]]
    events: str
    field: str
    part: Callable[[str], dict[str, Any]] | None = None
    part_events: str = ""


def _message(item_id: str, text: str, done: bool) -> dict[str, Any]:
    return {
        "id": item_id,
        "content": [_output_text(text)] if done else [],
        "role": "assistant",
        "status": _status(done),
        "type": "message",
    }


def _output_text(text: str) -> dict[str, Any]:
    return {"annotations": [], "text": text, "type": "output_text", "logprobs": []}


def _reasoning(item_id: str, text: str, done: bool) -> dict[str, Any]:
    return {
        "id": item_id,
        "summary": [],
        "type": "reasoning",
        "content": [_reasoning_text(text)] if done else None,
        "encrypted_content": None,
        "status": _status(done),
    }


def _reasoning_text(text: str) -> dict[str, Any]:
    return {"text": text, "type": "reasoning_text"}


def _call(item_id: str, text: str, done: bool) -> dict[str, Any]:
    return {
        "id": item_id,
        "call_id": item_id.replace("fc_", "call_"),
        "name": TOOL_NAME,
        "arguments": text,
        "type": "function_call",
        "status": _status(done),
    }


def _status(done: bool) -> str:
    return "completed" if done else "in_progress"


_ITEMS: dict[Kind, _Item] = {
    "content": _Item("msg_", _message, "response.output_text", "text", _output_text, "response.content_part"),
    "reasoning": _Item(
        "rs_", _reasoning, "response.reasoning_text", "text", _reasoning_text, "response.reasoning_part"
    ),
    "tool_call": _Item("fc_", _call, "response.function_call_arguments", "arguments"),
}


class ResponseEvents:
    """A streamed response."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._script = answer.scripts[0]
        self._number = 0
        self._places: dict[Kind, int] = {}

    def greeting(self) -> list[bytes]:
        response = _response(self._answer, "in_progress")
        return [
            self._event(f"response.{name}", {"response": response}) for name in ("created", "in_progress")
        ]

    def opening(self) -> list[bytes]:
        return []

    def tokens(self, choice: int, first: int, last: int) -> list[bytes]:
        events: list[bytes] = []
        for kind, text in self._script.runs(first, last):
            if kind not in self._places:
                events += self._done() + self._added(kind)
            if text:
                events.append(self._delta(kind, text))
        return events

    def around(self, choice: int) -> tuple[bytes, bytes] | None:
        return None  # each event has a number of its own

    def closing(self) -> list[bytes]:
        done = self._done()
        status = "incomplete" if self._script.finish_reason == "length" else "completed"
        return [*done, self._event("response.completed", {"response": _response(self._answer, status)})]

    def failing(self, error: ApiError) -> list[bytes]:
        response = _response(self._answer, "failed")
        response["error"] = {"code": "server_error", "message": str(error)}
        return [self._event("response.failed", {"response": response})]

    def _added(self, kind: Kind) -> list[bytes]:
        row, place = _ITEMS[kind], len(self._places)
        self._places[kind] = place
        item_id = _item_id(self._answer, kind)
        item = row.make(item_id, "", False)
        events = [self._event("response.output_item.added", {"item": item, "output_index": place})]
        if row.part:
            fields = {**self._where(kind), "part": row.part("")}
            events.append(self._event(f"{row.part_events}.added", fields))
        return events

    def _delta(self, kind: Kind, text: str) -> bytes:
        name = f"{_ITEMS[kind].events}.delta"
        fields = (
            name.encode(),
            b'"content_index":0,' if _ITEMS[kind].part else b"",
            escaped(text),
            _item_id(self._answer, kind).encode(),
            b'"logprobs":[],' if kind == "content" else b"",
            self._places[kind],
            self._next(),
            name.encode(),
        )
        return (
            b'event: %b\ndata: {%b"delta":"%b","item_id":"%b",%b"output_index":%d,'
            b'"sequence_number":%d,"type":"%b"}\n\n' % fields
        )

    def _done(self) -> list[bytes]:
        """The end of the item that was under way, if one was."""
        if not self._places:
            return []
        kind = next(reversed(self._places))
        row, text = _ITEMS[kind], self._script.whole[kind]
        where = self._where(kind)
        told = {**where, row.field: text} | ({"logprobs": []} if kind == "content" else {})
        events = [self._event(f"{row.events}.done", told)]
        if row.part:
            events.append(self._event(f"{row.part_events}.done", {**where, "part": row.part(text)}))
        item = row.make(_item_id(self._answer, kind), text, True)
        fields = {"item": item, "output_index": self._places[kind]}
        return [*events, self._event("response.output_item.done", fields)]

    def _where(self, kind: Kind) -> dict[str, Any]:
        item_id = _item_id(self._answer, kind)
        index = {"content_index": 0} if _ITEMS[kind].part else {}
        return {**index, "item_id": item_id, "output_index": self._places[kind]}

    def _event(self, name: str, fields: dict[str, Any]) -> bytes:
        body = orjson.dumps({**fields, "sequence_number": self._next(), "type": name})
        return b"event: %b\ndata: %b\n\n" % (name.encode(), body)

    def _next(self) -> int:
        number, self._number = self._number, self._number + 1
        return number


def whole(answer: Answer) -> dict[str, Any]:
    """The body of a response that is not streamed."""
    cut = answer.scripts[0].finish_reason == "length"
    return _response(answer, "incomplete" if cut else "completed")


def _item_id(answer: Answer, kind: Kind) -> str:
    return answer.request_id.replace("resp_", _ITEMS[kind].prefix)


def _response(answer: Answer, status: str) -> dict[str, Any]:
    over = status in ("completed", "incomplete")
    said = answer.scripts[0].whole if over else {}
    asked = answer.asked
    return {
        "id": answer.request_id,
        "created_at": answer.created,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "instructions": None,
        "model": answer.rules.model,
        "object": "response",
        "output": [_ITEMS[kind].make(_item_id(answer, kind), text, True) for kind, text in said.items()],
        "parallel_tool_calls": True,
        "max_output_tokens": asked.most_tokens,
        "status": status,
        "usage": _usage(answer) if over else None,
    }


def _usage(answer: Answer) -> dict[str, Any]:
    prompt_tokens = answer.asked.prompt_tokens
    return {
        "input_tokens": prompt_tokens,
        "input_tokens_details": {"cached_tokens": answer.cached_tokens},
        "output_tokens": answer.tokens,
        "output_tokens_details": {"reasoning_tokens": answer.reasoning_tokens},
        "total_tokens": prompt_tokens + answer.tokens,
    }
