"""What an event of the older text completions endpoint means: the text stands in `choices[].text`."""

from __future__ import annotations

from collections.abc import Mapping

from client.meaning import Meaning, Says, meaning_of_choices


def meaning_of(event: object, named_error: bool = False) -> Meaning | None:
    """The meaning of a parsed event or answer, as meaning.meaning_of has it for chat."""
    return meaning_of_choices(event, named_error, _text_says)


def _text_says(choice: Mapping[str, object]) -> Says:
    text = choice.get("text")
    return isinstance(text, str) and bool(text), bool(
        choice.get("reasoning_content") or choice.get("reasoning")
    )
