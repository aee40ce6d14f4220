"""Is a value that was read from JSON of the kind that a dataclass declares? Wrong ones are told by name.

Understands the annotations that run.json needs: str, int, float (whole numbers are fine), unions with None,
lists, dicts with text keys, and Any. Infinity and not-a-number are no numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

_WORDS = {str: "a text", int: "a whole number", float: "a number", NoneType: "null"}


def check_kinds(kind: type, values: Mapping[str, Any], place: str = "") -> None:
    """Check `values`, found at `place`, against the annotations of the class `kind`; names that it lacks are
    left alone.

    Raises TypeError, "bursts[0][1] is 'x'; it must be a number", for the first value that does not fit.
    """
    hints = get_type_hints(kind)
    for name, value in values.items():
        if name in hints:
            _check(place + name, value, hints[name])


def check_pairs(name: str, rows: Sequence[Sequence[float]]) -> None:
    """Check that each row has two numbers. Raises TypeError for the first that has not."""
    for place, pair in enumerate(rows):
        if len(pair) != 2:
            raise TypeError(f"{name}[{place}] is {_short(pair)}; it must be two numbers")


def _check(name: str, value: Any, hint: Any) -> None:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if value is not None or NoneType not in inner:
            _check(name, value, next(one for one in inner if one is not NoneType))
    elif origin is list:
        if not isinstance(value, list):
            raise TypeError(f"{name} is {_short(value)}; it must be a list")
        for place, item in enumerate(value):
            _check(f"{name}[{place}]", item, inner[0])
    elif origin is dict:
        if not isinstance(value, dict):
            raise TypeError(f"{name} is {_short(value)}; it must be an object")
        for key, item in value.items():
            _check(f"{name}.{key}", item, inner[1])
    elif hint is not Any and not _fits(value, hint):
        raise TypeError(f"{name} is {_short(value)}; it must be {_WORDS.get(hint, hint.__name__)}")


def _fits(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    if kind is float:
        return isinstance(value, (int, float)) and math.isfinite(value)
    return isinstance(value, kind)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
