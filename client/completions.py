"""What an event of the older text completions endpoint means: the text stands in `choices[].text`."""

from __future__ import annotations

from client.meaning import ANSWER, NOTHING, Meaning, error_in, usage_of


def meaning_of(event: object, named_error: bool = False) -> Meaning | None:
    """The meaning of a parsed event or answer, as meaning.meaning_of has it for chat."""
    if not isinstance(event, dict):
        return None
    error = error_in(event, named_error)
    if error is not None:
        return Meaning(error=error)
    choices = event.get("choices")
    usage = usage_of(event.get("usage"))
    if not isinstance(choices, list) or not choices:
        return Meaning(usage=usage, has_choices=False)
    answer = False
    finish_reason = None
    index = 0
    for choice in choices:
        if not isinstance(choice, dict):
            continue
        text = choice.get("text")
        answer = answer or bool(text and isinstance(text, str))
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            finish_reason = reason
        number = choice.get("index")
        if isinstance(number, int):
            index = max(index, number)
    if finish_reason is None and usage is None and index == 0:
        return ANSWER if answer else NOTHING
    return Meaning(answer, False, finish_reason, usage, True, index)
