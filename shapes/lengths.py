"""How many tokens a request has: a rule read from a short text, drawn from once per arrival.

    128                  always 128
    uniform:10-50        every whole number from 10 to 50 alike
    normal:128,32        mean, standard deviation
    lognormal:512,0.9    median, standard deviation of the logarithm: the long tail of real prompts

Add ",max=N" to cut the tail at N; a draw outside 1 ... max is set to the nearest of the two (clipped, not
redrawn).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shapes.errors import LengthError

IntArray = NDArray[np.int64]

MOST_TOKENS = 131_072
"""The maximum when none is given: the context of most long-context models."""

Draw = Callable[[np.random.Generator, int, float, float], NDArray[np.float64]]


@dataclass(frozen=True)
class LengthRule:
    """One family: how it is written, how it is drawn, and which pairs of figures make sense."""

    name: str
    form: str
    draw: Draw
    valid: Callable[[float, float], bool]


LENGTH_RULES: dict[str, LengthRule] = {
    rule.name: rule
    for rule in (
        LengthRule(
            "constant", "128", lambda rng, n, tokens, _: np.full(n, tokens), lambda tokens, _: tokens >= 1
        ),
        LengthRule(
            "uniform",
            "uniform:10-50",
            lambda rng, n, low, high: rng.integers(int(low), int(high), n, endpoint=True).astype(np.float64),
            lambda low, high: 1 <= low <= high and low.is_integer() and high.is_integer(),
        ),
        LengthRule(
            "normal",
            "normal:128,32",
            lambda rng, n, mean, sd: mean + sd * rng.standard_normal(n),
            lambda mean, sd: mean >= 1 and sd >= 0,
        ),
        LengthRule(
            "lognormal",
            "lognormal:512,0.9",
            lambda rng, n, median, sigma: median * np.exp(sigma * rng.standard_normal(n)),
            lambda median, sigma: median >= 1 and 0 <= sigma <= 5,
        ),
    )
}

_NUMBER = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)"
_TEXT = re.compile(
    rf"(?:(uniform)\s*:\s*{_NUMBER}\s*-\s*{_NUMBER}|(normal|lognormal)\s*:\s*{_NUMBER}\s*,\s*{_NUMBER}|([0-9]{{1,9}}))"
    r"(?:\s*,\s*max\s*=\s*([0-9]{1,9}))?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Lengths:
    """A token-length rule: the family, its figures (the second is 0 where there is one), the maximum."""

    rule: str
    first: float
    second: float = 0.0
    most: int = MOST_TOKENS

    def draw(self, rng: np.random.Generator, n: int) -> IntArray:
        """`n` lengths in tokens, whole numbers from 1 to `most`."""
        drawn = LENGTH_RULES[self.rule].draw(rng, n, self.first, self.second)
        return np.clip(np.rint(drawn), 1, self.most).astype(np.int64)


def parse_lengths(text: str) -> Lengths:
    """The rule that `text` describes. Raises LengthError when it cannot be read or makes no sense."""
    found = _TEXT.fullmatch(text.strip())
    if found is None:
        forms = ", ".join(rule.form for rule in LENGTH_RULES.values())
        raise LengthError(
            f"token length {text[:40]!r} cannot be read: write it like one of {forms} (and ,max=N)"
        )
    uniform, low, high, other, middle, spread, tokens, most = found.groups()
    name = (uniform or other or "constant").lower()
    first, second = float(low or middle or tokens), float(high or spread or 0)
    limit = MOST_TOKENS if most is None else int(most)
    if not LENGTH_RULES[name].valid(first, second):
        raise LengthError(
            f"token length {text[:40]!r} makes no sense: lengths are whole and at least 1, ranges rise, "
            f"and a lognormal sigma is at most 5"
        )
    if not 1 <= limit <= 10 * MOST_TOKENS or first > limit:
        raise LengthError(
            f"token length {text[:40]!r} does not fit a maximum of {limit:,}: "
            f"give ,max=N with N from {first:g} to {10 * MOST_TOKENS:,}"
        )
    return Lengths(name, first, second, limit)
