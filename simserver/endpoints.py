"""The endpoints of a completion, one row each: where it stands, what its body holds and how it
answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from simserver import chat, completions, responses
from simserver.answers import Answer, MakeEvents


@dataclass(frozen=True)
class Endpoint:
    """A row of ENDPOINTS.

    prompts: the tokens of each prompt in a parsed body; raises ApiError. length_fields: the names
    of the longest answer, the first given counts; `default_most_tokens` without any, None for the
    context's end. thinks: it has reasoning and tool calls. many: it takes `n`. events and whole:
    how an answer is told."""

    name: str
    path: str
    id_prefix: str
    prompts: Callable[[dict[str, Any]], Sequence[Sequence[str]]]
    length_fields: tuple[str, ...]
    events: MakeEvents
    whole: Callable[[Answer], dict[str, Any]]
    default_most_tokens: int | None = None
    thinks: bool = True
    many: bool = True


ENDPOINTS: dict[str, Endpoint] = {
    row.name: row
    for row in (
        Endpoint(
            "chat",
            "/v1/chat/completions",
            "chatcmpl-",
            chat.prompts,
            ("max_completion_tokens", "max_tokens"),
            chat.ChatEvents,
            chat.whole,
        ),
        Endpoint(
            "completions",
            "/v1/completions",
            "cmpl-",
            completions.prompts,
            ("max_tokens",),
            completions.CompletionEvents,
            completions.whole,
            default_most_tokens=completions.MOST_TOKENS_UNASKED,
            thinks=False,
        ),
        Endpoint(
            "responses",
            "/v1/responses",
            "resp_",
            responses.prompts,
            ("max_output_tokens",),
            responses.ResponseEvents,
            responses.whole,
            many=False,
        ),
    )
}
