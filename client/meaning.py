"""What an event of a chat completion means, and the usage that one answer's events add up to.

All of it was seen in captures of vLLM, SGLang, llama.cpp, transformers serve, LiteLLM and gateways
(tests/data/streams). Nothing here raises on what a server sent, and no text of an answer is kept. The other
endpoints' events are read in completions.py and responses.py, into the same Meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from client.server_errors import ServerError, error_of


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the server counted them. Reasoning and cached tokens are parts of output and input."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Meaning:
    """What one event (or one whole JSON answer) says. `answer` and `reasoning`: it carries such output;
    `ends`: nothing follows it."""

    answer: bool = False
    reasoning: bool = False
    finish_reason: str | None = None
    usage: Usage | None = None
    has_choices: bool = True
    choice: int = 0
    error: ServerError | None = None
    ends: bool = False


NOTHING = Meaning()
ANSWER = Meaning(answer=True)
REASONING = Meaning(reasoning=True)


def meaning_of(event: object, named_error: bool = False) -> Meaning | None:
    """The meaning of a parsed event or answer; None when it is nothing that a completion server sends.

    `named_error` says that the event came under the name "error".
    """
    if not isinstance(event, dict):
        return None
    error = error_in(event, named_error)
    if error is not None:
        return Meaning(error=error)
    choices = event.get("choices")
    usage = usage_of(event.get("usage"))
    if not isinstance(choices, list) or not choices:
        return Meaning(usage=usage, has_choices=False)
    answer = reasoning = False
    finish_reason = None
    index = 0
    for choice in choices:
        if not isinstance(choice, dict):
            continue
        delta = choice.get("delta") or choice.get("message")
        if isinstance(delta, dict):
            answer = answer or bool(delta.get("content") or delta.get("refusal")) or _calls_a_tool(delta)
            reasoning = reasoning or bool(delta.get("reasoning_content") or delta.get("reasoning"))
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            finish_reason = reason
        number = choice.get("index")
        if isinstance(number, int):
            index = max(index, number)
    if finish_reason is None and usage is None and index == 0 and not (answer and reasoning):
        return ANSWER if answer else REASONING if reasoning else NOTHING
    return Meaning(answer, reasoning, finish_reason, usage, True, index)


def error_in(event: Mapping[str, object], named_error: bool) -> ServerError | None:
    """The error that an event is, of any endpoint; None for one that brings choices and no error."""
    if named_error or not event.get("choices") or event.get("error"):
        return error_of(event, named_error)
    return None


def _calls_a_tool(delta: Mapping[str, object]) -> bool:
    calls = delta.get("tool_calls")
    functions = (
        [call.get("function") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    )
    functions.append(delta.get("function_call"))
    return any(isinstance(each, dict) and (each.get("name") or each.get("arguments")) for each in functions)


def usage_of(raw: object) -> Usage | None:
    """A usage object in any of its spellings; None for null, for no usage and for one that is all zeros."""
    if not isinstance(raw, dict):
        return None
    given = _count(raw, "prompt_tokens", "input_tokens")
    made = _count(raw, "completion_tokens", "output_tokens")
    if not given and not made:
        return None
    input_details = raw.get("prompt_tokens_details") or raw.get("input_tokens_details")
    output_details = raw.get("completion_tokens_details") or raw.get("output_tokens_details")
    reasoning = _count(output_details, "reasoning_tokens")
    if reasoning is None:
        reasoning = _count(raw, "reasoning_tokens")
    return Usage(given, made, reasoning, _count(input_details, "cached_tokens"))


def _count(raw: object, *names: str) -> int | None:
    if isinstance(raw, dict):
        for name in names:
            value = raw.get(name)
            if type(value) is int and value >= 0:
                return value
    return None


class UsageTally:
    """One answer's usage out of the many that a stream may carry.

    The last one counts. With several choices (`n` > 1) there are two more forms: one final usage per choice
    (as llama.cpp sends), and running counts per choice that a cut stream left without a total; both are
    summed.
    """

    def __init__(self) -> None:
        self._choices = 1
        self._finals: list[Usage] = []
        self._running: dict[int, Usage] = {}
        self._last: Usage | None = None

    def add(self, meaning: Meaning) -> None:
        """Take note of one event."""
        if meaning.choice >= self._choices:
            self._choices = meaning.choice + 1
        if meaning.usage is not None:
            self._last = meaning.usage
            if meaning.has_choices:
                self._running[meaning.choice] = meaning.usage
            else:
                self._finals.append(meaning.usage)

    def total(self) -> Usage | None:
        """The usage of the whole answer; None when no event carried one."""
        if self._choices == 1 or self._last is None:
            return self._last
        if len(self._finals) == self._choices:
            return _summed(self._finals)
        return self._finals[-1] if self._finals else _summed(list(self._running.values()))


def _summed(parts: Sequence[Usage]) -> Usage:
    outputs = [part.output_tokens for part in parts if part.output_tokens is not None]
    reasoning = [part.reasoning_tokens for part in parts if part.reasoning_tokens is not None]
    return Usage(
        input_tokens=parts[-1].input_tokens,
        output_tokens=sum(outputs) if outputs else None,
        reasoning_tokens=sum(reasoning) if reasoning else None,
        cached_tokens=parts[-1].cached_tokens,
    )
