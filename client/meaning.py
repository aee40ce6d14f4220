"""What an event of a chat completion means, and the usage that one answer's events add up to.

All of it was seen in captures of vLLM, SGLang, llama.cpp, transformers serve, LiteLLM and gateways
(tests/data/streams). Nothing here raises on what a server sent, and no text of an answer is kept. The other
endpoints' events are read in completions.py and responses.py, into the same Meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from client.server_errors import ServerError, error_of


@dataclass(slots=True)
class Usage:
    """Tokens as the server counted them. Reasoning and cached tokens are parts of output and input."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(slots=True)
class Meaning:
    """What one event (or one whole JSON answer) says. `answer` and `reasoning`: it carries such output;
    `choice`: the highest index of a choice in it; `over`: the choices whose end it tells; `ends`: nothing
    follows it."""

    answer: bool = False
    reasoning: bool = False
    finish_reason: str | None = None
    usage: Usage | None = None
    has_choices: bool = True
    choice: int = 0
    over: tuple[int, ...] = ()
    error: ServerError | None = None
    ends: bool = False


NOTHING = Meaning()
ANSWER = Meaning(answer=True)
REASONING = Meaning(reasoning=True)

Says = tuple[bool, bool]
"""Is there text, tool call or refusal; is there reasoning."""


def meaning_of(event: object, named_error: bool = False) -> Meaning | None:
    """The meaning of a parsed event or answer of the chat endpoint; None when it is nothing that a completion
    server sends.

    `named_error` says that the event came under the name "error".
    """
    return meaning_of_choices(event, named_error, _message_says)


def meaning_of_choices(
    event: object, named_error: bool, says: Callable[[Mapping[str, object]], Says]
) -> Meaning | None:
    """The meaning of an event that holds its output in `choices`, each of which `says` what it carries."""
    if not isinstance(event, dict):
        return None
    choices = event.get("choices")
    if named_error or not choices or event.get("error"):
        error = error_of(event, named_error)
        if error is not None:
            return Meaning(error=error)
    usage = _usage_in(event) if event.get("usage") or "x_groq" in event else None
    if not isinstance(choices, list) or not choices:
        return Meaning(usage=usage, has_choices=False)
    answer = reasoning = False
    finish_reason = None
    highest = 0
    over: tuple[int, ...] = ()
    for choice in choices:
        if not isinstance(choice, dict):
            continue
        text, thinking = says(choice)
        answer, reasoning = answer or text, reasoning or thinking
        index = choice.get("index")
        if type(index) is not int or index < 0:
            index = 0
        if index > highest:
            highest = index
        reason = choice.get("finish_reason")
        if reason and isinstance(reason, str):
            finish_reason = reason
            over = (*over, index)
            usage = usage or usage_of(choice.get("usage"))  # as Moonshot sends it
    if finish_reason is None and usage is None and highest == 0 and not (answer and reasoning):
        return ANSWER if answer else REASONING if reasoning else NOTHING
    return Meaning(answer, reasoning, finish_reason, usage, True, highest, over)


def _message_says(choice: Mapping[str, object]) -> Says:
    delta = choice.get("delta") or choice.get("message")
    if not isinstance(delta, dict):
        return False, False
    content = delta.get("content")
    reasoning = bool(delta.get("reasoning_content") or delta.get("reasoning"))
    if isinstance(content, list):
        text, thinking = _parts_say(content)
        reasoning = reasoning or thinking
    else:
        text = bool(content)
    return text or bool(delta.get("refusal") or _calls_a_tool(delta)), reasoning


def _parts_say(parts: Sequence[object]) -> Says:
    """Content as a list, as some gateways send it: parts of text, refusal or (Mistral) thinking."""
    answer = reasoning = False
    for part in parts:
        if isinstance(part, dict):
            answer = answer or bool(part.get("text") or part.get("refusal"))
            reasoning = reasoning or bool(part.get("thinking"))
        else:
            answer = answer or bool(part)
    return answer, reasoning


def _calls_a_tool(delta: Mapping[str, object]) -> bool:
    calls, function = delta.get("tool_calls"), delta.get("function_call")
    if not calls and not function:
        return False
    functions = [function]
    if isinstance(calls, list):
        functions += [call.get("function") or call.get("custom") for call in calls if isinstance(call, dict)]
    return any(
        isinstance(each, dict) and (each.get("name") or each.get("arguments") or each.get("input"))
        for each in functions
    )


def _usage_in(event: Mapping[str, object]) -> Usage | None:
    """The event's usage, or Groq's, which stands one level deeper."""
    usage = event.get("usage")
    if usage is None and "x_groq" in event:
        groq = event["x_groq"]
        usage = groq.get("usage") if isinstance(groq, dict) else None
    return usage_of(usage)


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

    @property
    def choices(self) -> int:
        """How many choices the answer has, by the highest index that came."""
        return self._choices

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
