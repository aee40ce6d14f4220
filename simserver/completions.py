"""/v1/completions, the older endpoint: text in, text out, in vLLM's shapes. No role event, no
template."""

from __future__ import annotations

from typing import Any

import orjson

from simserver.answers import Answer, closing, escaped, failing, usage, usage_so_far
from simserver.errors import ApiError, invalid

MOST_TOKENS_UNASKED = 16
"""The longest answer of a request that names none, as in OpenAI's API and in vLLM."""
_UNFINISHED = b'"finish_reason":null,"stop_reason":null'


def prompts(fields: dict[str, Any]) -> list[list[str]]:
    """The prompts: a string, a list of token numbers, or a list of either. Raises ApiError."""
    prompt = fields.get("prompt")
    many = prompt if isinstance(prompt, list) and not _numbers(prompt) else [prompt]
    texts = [_tokens(one) for one in many]
    if not texts or not all(texts):
        raise invalid("body.prompt", "Field required: prompt must not be empty")
    return texts


def _tokens(prompt: Any) -> list[str]:
    if isinstance(prompt, str):
        return prompt.split()
    if _numbers(prompt):
        return [str(number) for number in prompt]
    raise invalid("body.prompt", "Input should be a string, a list of integers or a list of either")


def _numbers(prompt: Any) -> bool:
    return isinstance(prompt, list) and bool(prompt) and all(type(one) is int for one in prompt)


class CompletionEvents:
    """A streamed text completion."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._head = b"data: " + orjson.dumps(_opening(answer))[:-1]
        self._texts = [
            self._head + b',"choices":[{"index":%d,"text":"' % choice for choice in range(len(answer.scripts))
        ]

    def greeting(self) -> list[bytes]:
        return []

    def opening(self) -> list[bytes]:
        return []

    def tokens(self, choice: int, first: int, last: int) -> list[bytes]:
        script = self._answer.scripts[choice]
        text = "".join(text for _, text in script.runs(first, last))
        reasons = _UNFINISHED
        if last == script.tokens:
            told = (script.finish_reason.encode(), orjson.dumps(script.stop_reason))
            reasons = b'"finish_reason":"%b","stop_reason":%b' % told
        counts = usage_so_far(self._answer, choice, last)
        return [self._texts[choice] + escaped(text) + b'","logprobs":null,' + reasons + b"}]%b}\n\n" % counts]

    def around(self, choice: int) -> tuple[bytes, bytes] | None:
        if self._answer.asked.continuous_usage:
            return None
        return self._texts[choice], b'","logprobs":null,' + _UNFINISHED + b"}]}\n\n"

    def closing(self) -> list[bytes]:
        return closing(self._answer, self._head)

    def failing(self, error: ApiError) -> list[bytes]:
        return failing(error)


def whole(answer: Answer) -> dict[str, Any]:
    """The body of an answer that is not streamed."""
    return {
        **_opening(answer),
        "choices": [
            {
                "index": choice,
                "text": script.whole["content"],
                "logprobs": None,
                "finish_reason": script.finish_reason,
                "stop_reason": script.stop_reason,
            }
            for choice, script in enumerate(answer.scripts)
        ],
        "usage": usage(answer, answer.tokens),
    }


def _opening(answer: Answer) -> dict[str, Any]:
    return {
        "id": answer.request_id,
        "object": "text_completion",
        "created": answer.created,
        "model": answer.rules.model,
    }
