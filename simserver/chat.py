"""A chat completion's body -> what is asked of the engine, or an error in vLLM's words and shape.

Prompt tokens are counted by a plain rule, so that a test knows them beforehand: one per word (split at
white space) of each message's text, plus `TOKENS_PER_MESSAGE` per message for the chat template. The answer
has exactly `max_completion_tokens` (or `max_tokens`) tokens and ends by "length"; a request that names
neither gets the server's default length and ends by "stop", as if the model had come to an end.
`priority` is heeded by the policy of that name. `ignore_eos`, `min_tokens` and the sampling options are
taken and change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import orjson

from simserver.prefix import block_hashes

TOKENS_PER_MESSAGE = 4
MOST_PRIORITY = 2**31
_TEMPLATE = ("",) * (TOKENS_PER_MESSAGE - 1)

FinishReason = Literal["length", "stop"]


class ApiError(Exception):
    """A request turned away: HTTP status, the fields of vLLM's error object, and when to try again."""

    def __init__(
        self,
        status: int,
        message: str,
        kind: str,
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
        self.error = {"message": message, "type": kind, "param": param, "code": status}

    @property
    def body(self) -> bytes:
        return orjson.dumps({"error": self.error})


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What one request asks for."""

    prompt_tokens: int
    output_tokens: int
    finish_reason: FinishReason
    stream: bool
    include_usage: bool
    priority: int = 0
    block_hashes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ChatRules:
    """What this server serves: its model's name, its context length, its answers' length unless asked.

    prefix_caching: whether prompts get the hashes by which they share KV blocks.
    """

    model: str
    max_model_len: int
    default_output_tokens: int
    prefix_caching: bool = True


def read_chat_request(body: bytes, rules: ChatRules) -> ChatRequest:
    """Parse and check one body. Raises ApiError with status 400, or 404 for another model's name."""
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"JSON decode error: {error}", "Bad Request", "body") from None
    if not isinstance(asked, dict):
        raise _invalid("body", "Input should be a valid dictionary")

    model = asked.get("model")
    if model is not None and model != rules.model:
        raise ApiError(
            404,
            f"The model `{model}` does not exist. Valid aliases: {rules.model}.",
            "NotFoundError",
            "model",
        )
    if asked.get("n") not in (None, 1):
        raise _bad_value("n", asked["n"], "only n=1 is served")
    stream = asked.get("stream") or False
    if not isinstance(stream, bool):
        raise _invalid("body.stream", "Input should be a valid boolean")

    priority = asked.get("priority") or 0
    if not isinstance(priority, int) or abs(priority) > MOST_PRIORITY:
        raise _invalid("body.priority", "Input should be a valid integer")

    prompt = _prompt_of(asked.get("messages"))
    prompt_tokens = len(prompt)
    if prompt_tokens >= rules.max_model_len:
        raise ApiError(
            400,
            f"This model's maximum context length is {rules.max_model_len} tokens. However, your prompt "
            f"contains {prompt_tokens} input tokens, which leaves no room for an answer. Please reduce the "
            f"length of the input prompt. (parameter=input_tokens, value={prompt_tokens})",
            "BadRequestError",
            "input_tokens",
        )
    output_tokens, finish_reason = _answer_length(asked, prompt_tokens, rules)
    return ChatRequest(
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        finish_reason=finish_reason,
        stream=stream,
        include_usage=_usage_wanted(asked.get("stream_options"), stream),
        priority=int(priority),
        block_hashes=block_hashes(prompt) if rules.prefix_caching else (),
    )


def _prompt_of(messages: Any) -> list[str]:
    """The prompt's tokens: for each message those of the template, then its words."""
    if not isinstance(messages, list):
        raise _invalid("body.messages", "Field required: a list of messages")
    if not messages:
        raise _invalid("body.messages", "List should have at least 1 item")
    tokens: list[str] = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise _invalid(f"body.messages.{index}", "Input should be a message with a role")
        tokens += [message["role"], *_TEMPLATE]
        tokens += _text_of(message.get("content"), index).split()
    return tokens


def _text_of(content: Any, index: int) -> str:
    """A message's text: a string, none (a tool call), or a list of parts of which those with text count."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return " ".join(part["text"] for part in content if isinstance(part.get("text"), str))
    raise _invalid(f"body.messages.{index}.content", "Input should be a string or a list of content parts")


def _answer_length(asked: dict[str, Any], prompt_tokens: int, rules: ChatRules) -> tuple[int, FinishReason]:
    room = rules.max_model_len - prompt_tokens
    name = "max_completion_tokens" if asked.get("max_completion_tokens") is not None else "max_tokens"
    length = asked.get(name)
    if length is None:
        return min(rules.default_output_tokens, room), "stop"
    if not isinstance(length, int) or isinstance(length, bool):
        raise _invalid(f"body.{name}", "Input should be a valid integer")
    if length < 1:
        raise _bad_value(name, length, f"{name} must be at least 1, got {length}")
    if length > rules.max_model_len:
        raise _bad_value(
            name,
            length,
            f"{name}={length} cannot be greater than max_model_len={rules.max_model_len}. Please request "
            "fewer output tokens",
        )
    if length > room:
        raise _bad_value(
            name,
            length,
            f"This model's maximum context length is {rules.max_model_len} tokens. However, you requested "
            f"{length} output tokens and your prompt contains {prompt_tokens} input tokens. "
            "Please reduce one of them",
        )
    return length, "length"


def _usage_wanted(options: Any, stream: bool) -> bool:
    if options is None:
        return False
    if not stream:
        raise _invalid("body.stream_options", "Stream options can only be defined when `stream=True`")
    if not isinstance(options, dict):
        raise _invalid("body.stream_options", "Input should be a valid dictionary")
    return bool(options.get("include_usage"))


def _invalid(where: str, why: str) -> ApiError:
    return ApiError(400, f"1 validation error: {{'loc': '{where}', 'msg': '{why}'}}", "Bad Request", where)


def _bad_value(name: str, value: Any, why: str) -> ApiError:
    return ApiError(400, f"{why}. (parameter={name}, value={value})", "BadRequestError", name)
