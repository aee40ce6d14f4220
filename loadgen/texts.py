"""Values from the text of an option. Each raises ValueError with the reason, which names the text."""

from __future__ import annotations

import re

_UNITS_S = {"": 1.0, "s": 1.0, "ms": 0.001, "m": 60.0, "min": 60.0, "h": 3600.0}


def seconds(text: str) -> float:
    """Seconds from "20", "20s", "500ms", "2m" or "1h"."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|)", text.strip())
    if not found:
        raise ValueError(f"{text!r} is not a time; write 20s, 500ms or 2m")
    return float(found[1]) * _UNITS_S[found[2]]


def some_seconds(text: str) -> float:
    """A time above 0."""
    value = seconds(text)
    if value == 0:
        raise ValueError(f"{text!r} must be above 0")
    return value


def number(text: str) -> float:
    """A finite number that is not negative."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not 0 <= value < float("inf"):
        raise ValueError(f"{text!r} must be a finite number, 0 or more")
    return value


def positive(text: str) -> float:
    """A finite number above 0."""
    value = number(text)
    if value == 0:
        raise ValueError(f"{text!r} must be above 0")
    return value


def rate_or_auto(text: str) -> float | None:
    """A rate above 0; None for "auto": it is to be measured."""
    return None if text == "auto" else positive(text)


def ratio(text: str) -> float:
    """A number above 0 and at most 1."""
    value = positive(text)
    if value > 1:
        raise ValueError(f"{text!r} must be above 0 and at most 1")
    return value


def yes(text: str) -> bool:
    """True for "true"."""
    return text == "true"


def whole(text: str) -> int:
    """A whole number that is not negative."""
    if not re.fullmatch(r"\d+", text.strip()):
        raise ValueError(f"{text!r} is not a whole number")
    if len(text.strip()) > 18:
        raise ValueError(f"{text!r} is too large")
    return int(text)
