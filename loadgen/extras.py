"""What the user adds to every request: headers and fields of the body, from the text of an option.

One header is a line, `X-Tenant: blue`; several are lines, or one JSON object, {"X-Tenant": "blue"}, where
lines cannot be broken (a configuration file, the web form). Values of headers are secrets: no error, log or
file holds them, only their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

_SET_ELSEWHERE: Mapping[str, str] = {
    "model": "--model",
    "messages": "the user class, by its prompt(arrival, run_id)",
    "prompt": "the user class, by its prompt(arrival, run_id)",
    "input": "the user class, by its prompt(arrival, run_id)",
    "stream": "--no-stream",
    "max_tokens": "--output-tokens",
    "max_completion_tokens": "--output-tokens",
    "max_output_tokens": "--output-tokens",
}
"""Fields of the body that an option of their own or the user class decides."""


def parse_headers(text: str) -> dict[str, str]:
    """Headers from lines `Name: value`, each of which may be a JSON object instead.

    Raises ValueError for a line that is neither and for a header named twice; it never repeats a value.
    """
    found: dict[str, str] = {}
    for number, line in enumerate((line.strip() for line in text.splitlines() if line.strip()), start=1):
        for name, value in _headers_of(line, number):
            if name.lower() in {known.lower() for known in found}:
                raise ValueError(f"header {name!r} is given twice")
            found[name] = value
    return found


def _headers_of(line: str, number: int) -> Iterable[tuple[str, str]]:
    if line.startswith("{"):
        try:
            parsed = orjson.loads(line)
        except orjson.JSONDecodeError:
            parsed = None
        if not isinstance(parsed, dict) or not all(isinstance(value, str) for value in parsed.values()):
            raise ValueError('it begins like JSON, so write names and texts: {"X-Tenant": "blue"}')
        return parsed.items()
    name, colon, value = line.partition(":")
    if not colon or not name.strip():
        raise ValueError(f"line {number} is no header; write a name, a colon and a value: X-Tenant: blue")
    return ((name.strip(), value.strip()),)


def headers_told(text: str) -> str:
    """The text of --header as it may be written down: names without values. Nothing of a text that cannot be
    read."""
    try:
        return "\n".join(f"{name}: …" for name in parse_headers(text))
    except ValueError:
        return "…"


def parse_body(text: str) -> dict[str, Any]:
    """Fields of the request's body from a JSON object. Raises ValueError for anything else, and for a field
    that is set elsewhere (the lengths too, so that what a record says was asked is what was asked)."""
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f'no JSON ({error}); write one object: {{"temperature": 0.7}}') from None
    if not isinstance(parsed, dict):
        raise ValueError('give one JSON object: {"temperature": 0.7}')
    for name in parsed:
        if name in _SET_ELSEWHERE:
            raise ValueError(f"{name!r} is set by {_SET_ELSEWHERE[name]}: leave it out here")
    return parsed
