"""Numbers as people read them. Unknown, infinite and not-a-number come out as "n/a", never as themselves."""

from __future__ import annotations

import math
import re
from typing import Any

UNKNOWN = "n/a"


def known(value: Any) -> float | None:
    """`value` as a finite float, or None when it is unknown or no number."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def seconds(value: Any) -> str:
    """A duration with its unit: 0.45 ms, 45 ms, 1.9 s, 34.1 s, 125 s."""
    number = known(value)
    if number is None:
        return UNKNOWN
    if number == 0:
        return "0 s"
    if abs(number) < 0.9995:
        return f"{_three_figures(number * 1000)} ms"
    return f"{_three_figures(number)} s"


def percent(value: Any) -> str:
    """A ratio as a percentage; what is not quite all or not quite nothing never rounds to 100 % or 0 %."""
    number = known(value)
    if number is None:
        return UNKNOWN
    share = number * 100
    if 99.9 <= share < 100:
        return f"{math.floor(share * 100) / 100:.2f} %"
    if 0 < share < 0.1:
        return "< 0.01 %" if share < 0.01 else f"{share:.2f} %"
    return f"{share:.1f} %" if share % 1 else f"{share:.0f} %"


def count(value: Any) -> str:
    """A whole number with a thin space at the thousands."""
    number = known(value)
    return UNKNOWN if number is None else f"{round(number):,}".replace(",", "\u202f")


def plain(value: Any) -> str:
    """A number without a unit in three figures."""
    number = known(value)
    if number is None:
        return UNKNOWN
    return count(number) if abs(number) >= 1000 else _three_figures(number)


def unbroken(text: str) -> str:
    """A number and its unit on one line."""
    return re.sub(r"(?<=\d) (?=(?:%|m?s|req/s)(?!\w))", "\u00a0", text)


def _three_figures(number: float) -> str:
    if number == 0:
        return "0"
    size = abs(number)
    decimals = max(0, 2 - math.floor(math.log10(size))) if size >= 0.01 else 4
    text = f"{number:.{min(decimals, 4)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
