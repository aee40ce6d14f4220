"""A request's body -> what is asked of the engine, the same for all endpoints, or an error in
vLLM's words.

Prompt tokens are counted by a plain rule, so that a test knows them beforehand: one per word (split
at white space), and in chat `chat.TOKENS_PER_MESSAGE` per message for the template. `priority` is
heeded by the policy of that name. The sampling options are checked and change nothing. Beyond the
standard a body may hold `simserver: {"reasoning_tokens": 20, "tool_call": true}`: the answer begins
with so many tokens of reasoning, and what follows is a tool call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import orjson

from simserver.errors import ApiError, bad_value, invalid
from simserver.prefix import block_hashes

MOST_PRIORITY = 2**31
MOST_SEQUENCES = 128
MOST_STOPS = 64
OWN_FIELD = "simserver"
_NUMBERS = {
    "temperature": (0.0, sys.float_info.max),
    "top_p": (sys.float_info.min, 1.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
}
"""The sampling options, each with its least and its highest value."""

ReasoningField = Literal["reasoning", "reasoning_content"]
Cap = Callable[[int, str | None], int]
"""A gateway's say on the longest answer: from what is asked for, and by which field (None: by none), to what
is let through. Raises ApiError."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What this server serves: its model's name, its context length, its answers' length unless asked.

    prefix_caching: whether prompts get the hashes by which they share KV blocks. output_mean:
    tokens after which an answer ends by itself, on average, seeded; None: it ends where it must.
    stream_interval: tokens per event. prompt_tokens_details: whether usage tells the cached tokens.
    reasoning_field: its name in chat."""

    model: str
    max_model_len: int
    default_output_tokens: int
    prefix_caching: bool = True
    output_mean: float | None = None
    seed: int = 0
    stream_interval: int = 1
    prompt_tokens_details: bool = False
    reasoning_field: ReasoningField = "reasoning"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: its tokens, and the names of the whole blocks that it may share."""

    tokens: int
    block_hashes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """What one request asks for. Choice i answers prompt i // n.

    most_tokens: the longest answer; `most_named`: by the request itself, not by the context's end.
    """

    prompts: tuple[Prompt, ...]
    n: int
    most_tokens: int
    most_named: bool
    least_tokens: int
    ignore_eos: bool
    stop: tuple[str, ...]
    stream: bool
    include_usage: bool
    continuous_usage: bool
    priority: int
    reasoning_tokens: int
    tool_call: bool

    @property
    def prompt_tokens(self) -> int:
        return sum(prompt.tokens for prompt in self.prompts)

    @property
    def choices(self) -> int:
        return len(self.prompts) * self.n

    def prompt_of(self, choice: int) -> Prompt:
        return self.prompts[choice // self.n]


class Form(Protocol):
    """What an endpoint's body holds (a row of endpoints.ENDPOINTS)."""

    @property
    def prompts(self) -> Callable[[dict[str, Any]], Sequence[Sequence[str]]]: ...

    @property
    def length_fields(self) -> tuple[str, ...]: ...

    @property
    def default_most_tokens(self) -> int | None: ...

    @property
    def thinks(self) -> bool: ...

    @property
    def many(self) -> bool: ...


def read_asked(body: bytes, form: Form, rules: Rules, cap: Cap | None = None) -> Asked:
    """Parse and check one body. Raises ApiError with status 400, or 404 for another model's
    name."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise invalid("body", f"JSON decode error: {error}") from None
    if not isinstance(fields, dict):
        raise invalid("body", "Input should be a valid dictionary")
    if cap is not None:
        _cap_lengths(fields, form, cap)
    model = fields.get("model")
    if model is not None and model != rules.model:
        raise ApiError(
            404,
            f"The model `{str(model)[:200]}` does not exist. Valid aliases: {rules.model}.",
            "NotFoundError",
            "model",
        )
    for name in _NUMBERS:
        _check_number(fields, name)
    stream = _flag(fields, "stream")
    include_usage, continuous_usage = _usage_wanted(fields.get("stream_options"), stream)
    reasoning_tokens, tool_call = _own_wishes(fields.get(OWN_FIELD), form)
    n = _count(fields, "n", 1) if form.many else 1
    texts = form.prompts(fields)
    if n * len(texts) > MOST_SEQUENCES:
        raise bad_value("n", n, f"a request may have at most {MOST_SEQUENCES} choices in all")
    longest = max(len(text) for text in texts)
    _check_room(longest, rules)
    most_tokens, most_named = _longest_answer(fields, longest, form, rules)
    if cap is not None and not most_named:
        most_tokens = cap(most_tokens, None)
    least_tokens = _count(fields, "min_tokens", 0)
    if least_tokens > most_tokens:
        raise bad_value(
            "min_tokens", least_tokens, f"min_tokens must be less than or equal to max_tokens={most_tokens}"
        )
    return Asked(
        prompts=tuple(_prompt(text, rules) for text in texts),
        n=n,
        most_tokens=most_tokens,
        most_named=most_named,
        least_tokens=least_tokens,
        ignore_eos=_flag(fields, "ignore_eos"),
        stop=_stops(fields.get("stop")),
        stream=stream,
        include_usage=include_usage,
        continuous_usage=continuous_usage,
        priority=_priority(fields.get("priority")),
        reasoning_tokens=reasoning_tokens,
        tool_call=tool_call,
    )


def text_of(content: Any, where: str) -> str:
    """A content's text: a string, none (a tool call), or a list of parts of which those with text
    count."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return " ".join(part["text"] for part in content if isinstance(part.get("text"), str))
    raise invalid(where, "Input should be a string or a list of content parts")


def _prompt(tokens: Sequence[str], rules: Rules) -> Prompt:
    return Prompt(len(tokens), block_hashes(tokens) if rules.prefix_caching else ())


def _check_room(prompt_tokens: int, rules: Rules) -> None:
    if prompt_tokens >= rules.max_model_len:
        raise ApiError(
            400,
            f"This model's maximum context length is {rules.max_model_len} tokens. However, your prompt "
            f"contains {prompt_tokens} input tokens, which leaves no room for an answer. Please reduce the "
            f"length of the input prompt. (parameter=input_tokens, value={prompt_tokens})",
            "BadRequestError",
            "input_tokens",
        )


def _longest_answer(fields: dict[str, Any], prompt_tokens: int, form: Form, rules: Rules) -> tuple[int, bool]:
    room = rules.max_model_len - prompt_tokens
    name = next((name for name in form.length_fields if fields.get(name) is not None), None)
    if name is None:
        return min(form.default_most_tokens or room, room), form.default_most_tokens is not None
    length = _whole_number(fields[name], f"body.{name}")
    if length < 1:
        raise bad_value(name, length, f"{name} must be at least 1, got {length}")
    if length > rules.max_model_len:
        raise bad_value(
            name,
            length,
            f"{name}={length} cannot be greater than max_model_len={rules.max_model_len}. Please request "
            "fewer output tokens",
        )
    if length > room:
        raise bad_value(
            name,
            length,
            f"This model's maximum context length is {rules.max_model_len} tokens. However, you requested "
            f"{length} output tokens and your prompt contains {prompt_tokens} input tokens. "
            "Please reduce one of them",
        )
    return length, True


def _cap_lengths(fields: dict[str, Any], form: Form, cap: Cap) -> None:
    """Let a gateway change the lengths that a body names, before the server reads them."""
    for name in form.length_fields:
        if isinstance(fields.get(name), int) and not isinstance(fields[name], bool):
            fields[name] = cap(fields[name], name)


def _usage_wanted(options: Any, stream: bool) -> tuple[bool, bool]:
    """Whether a usage event ends the stream, and whether every event carries the counts so far."""
    if options is None:
        return False, False
    if not stream:
        raise invalid("body.stream_options", "Stream options can only be defined when `stream=True`")
    if not isinstance(options, dict):
        raise invalid("body.stream_options", "Input should be a valid dictionary")
    wanted = _flag(options, "include_usage", "body.stream_options.")
    return wanted, wanted and _flag(options, "continuous_usage_stats", "body.stream_options.")


def _own_wishes(wishes: Any, form: Form) -> tuple[int, bool]:
    if wishes is None:
        return 0, False
    if not isinstance(wishes, dict) or set(wishes) - {"reasoning_tokens", "tool_call"}:
        raise invalid(f"body.{OWN_FIELD}", "Input should be reasoning_tokens and tool_call, or one of them")
    where = f"body.{OWN_FIELD}."
    reasoning_tokens = _count(wishes, "reasoning_tokens", 0, where)
    tool_call = _flag(wishes, "tool_call", where)
    if (reasoning_tokens or tool_call) and not form.thinks:
        raise bad_value(OWN_FIELD, wishes, "this endpoint has neither reasoning nor tool calls")
    return reasoning_tokens, tool_call


def _stops(stop: Any) -> tuple[str, ...]:
    if stop is None:
        return ()
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(text, str) for text in stops):
        raise invalid("body.stop", "Input should be a string or a list of strings")
    if not all(stops) or len(stops) > MOST_STOPS:
        raise bad_value("stop", len(stops), f"stop wants at most {MOST_STOPS} strings, none of them empty")
    return tuple(stops)


def _priority(value: Any) -> int:
    priority = 0 if value is None else _whole_number(value, "body.priority")
    if abs(priority) > MOST_PRIORITY:
        raise invalid("body.priority", "Input should be a valid integer")
    return priority


def _flag(fields: dict[str, Any], name: str, where: str = "body.") -> bool:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise invalid(where + name, "Input should be a valid boolean")
    return bool(value)


def _count(fields: dict[str, Any], name: str, least: int, where: str = "body.") -> int:
    """A whole number from `least` up, which is also what it is when it is not given."""
    value = fields.get(name)
    number = least if value is None else _whole_number(value, where + name)
    if number < least:
        raise bad_value(name, number, f"{name} must be at least {least}, got {number}")
    return number


def _whole_number(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise invalid(where, "Input should be a valid integer")
    return value


def _check_number(fields: dict[str, Any], name: str) -> None:
    value = fields.get(name)
    if value is None:
        return
    least, most = _NUMBERS[name]
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise invalid(f"body.{name}", "Input should be a valid number") from None
    if not least <= number <= most:
        raise bad_value(name, number, f"{name} must be from {least:.2g} to {most:.2g}")
