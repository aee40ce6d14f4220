"""What may be told of a server's error text: short, without keys and without what was asked."""

from __future__ import annotations

import orjson

from client.target import Target

_TOLD_CHARACTERS = 200
_SECRET_CHARACTERS = 6
_WINDOW = 12


def told(text: str, target: Target, body: bytes) -> str:
    """At most 200 characters of `text` in one line, the request's keys and pieces of its prompt left out."""
    text = " ".join(text.split())[: 2 * _TOLD_CHARACTERS]
    for value in target.all_headers().values():
        for secret in value.split():
            if len(secret) >= _SECRET_CHARACTERS:
                text = text.replace(secret, "<key>")
    text = text if len(text) <= _TOLD_CHARACTERS else f"{text[: _TOLD_CHARACTERS - 1]}…"
    return _without(text, " ".join(_prompt(body).split()))


def _without(text: str, prompt: str) -> str:
    """`text` with what it repeats of `prompt` replaced by an ellipsis: surely each stretch of 23
    characters, and shorter ones that hold a whole window of 12 (they are looked up window by window, for
    prompts are long)."""
    if 3 < len(prompt) < _WINDOW:
        return text.replace(prompt, "…")
    told_parts, told_to = [], 0
    for at in range(0, len(text) - _WINDOW + 1, _WINDOW):
        begin, end = at, at + _WINDOW
        if begin < told_to or text[begin:end] not in prompt:
            continue
        while begin > told_to and text[begin - 1 : end] in prompt:
            begin -= 1
        while end < len(text) and text[begin : end + 1] in prompt:
            end += 1
        told_parts += [text[told_to:begin], "…"]
        told_to = end
    return "".join([*told_parts, text[told_to:]])


def _prompt(body: bytes) -> str:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    messages = parsed.get("messages") if isinstance(parsed, dict) else None
    if not isinstance(messages, list):
        return ""
    said = [message.get("content") for message in messages if isinstance(message, dict)]
    parts = [part for content in said for part in (content if isinstance(content, list) else [content])]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return "\n".join(text for text in texts if isinstance(text, str))
