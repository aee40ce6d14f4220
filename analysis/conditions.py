"""Which requests a limit is about: `where output_tokens<=200 and tenant=free`.

    condition   field relation value, several joined by "and"
    fields      input_tokens, output_tokens   < <= > >= = !=   a number
                name, tenant                  = !=             a text, in quotes if it has blanks or signs
    values      what was counted, else what was asked for; output tokens are counted of successes alone

A failure has no whole answer to count, so it is held to the one it asked for: left out, it would make
attainment better. A request without either, or without a name or tenant, is unknown: counted, and never met.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

NUMBER_FIELDS = ("input_tokens", "output_tokens")
TEXT_FIELDS = ("name", "tenant")
RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}
QUOTED = r""""[^"]*"|'[^']*'"""
_CONDITION = re.compile(
    rf"\s*(?P<field>\w+)\s*(?P<relation><=|>=|!=|<|>|=)\s*(?P<value>{QUOTED}|[^\s,@<>=!\"']+)\s*"
)
_AND = re.compile(rf"({QUOTED})|\s+and\s+", re.IGNORECASE)
EXAMPLE = 'write it like "where output_tokens<=200 and tenant=free"'


class ConditionError(ValueError):
    """A condition cannot be read; the message names it and shows a right one."""


@dataclass(frozen=True)
class Condition:
    """`field` `relation` `value`; a number for NUMBER_FIELDS, a text for TEXT_FIELDS."""

    field: str
    relation: str
    value: float | str

    @property
    def text(self) -> str:
        """As it is written, without blanks."""
        value = f"{self.value:g}" if isinstance(self.value, float) else self.value
        plain = re.fullmatch(r"[^\s,@<>=!\"']+", value)
        return f"{self.field}{self.relation}{value if plain else repr(value)}"


@dataclass(frozen=True, eq=False)
class Concerned:
    """Per request: `yes`, all conditions hold; `unknown`, none fails but a value is missing."""

    yes: np.ndarray
    unknown: np.ndarray


def parse_conditions(text: str) -> tuple[Condition, ...]:
    """Read what follows "where". Raises ConditionError."""
    return tuple(_condition(part) for part in split_outside_quotes(_AND, text))


def split_outside_quotes(pattern: re.Pattern[str], text: str) -> list[str]:
    """`text` cut where `pattern` matches; its first group matches what is quoted and never cuts."""
    parts, start = [], 0
    for found in pattern.finditer(text):
        if found[1] is None:
            parts.append(text[start : found.start()])
            start = found.end()
    return [*parts, text[start:]]


def _condition(part: str) -> Condition:
    found = _CONDITION.fullmatch(part)
    if not found:
        raise ConditionError(f"cannot read the condition {part.strip()!r}; {EXAMPLE}")
    field, relation, value = found["field"].lower(), found["relation"], found["value"]
    if field in TEXT_FIELDS:
        if relation not in ("=", "!="):
            raise ConditionError(f"{field} in {part.strip()!r} is a text: compare it with = or !=")
        return Condition(field, relation, value[1:-1] if value[0] in "\"'" else value)
    if field not in NUMBER_FIELDS:
        known = ", ".join(NUMBER_FIELDS + TEXT_FIELDS)
        raise ConditionError(f"unknown field {found['field']!r} in {part.strip()!r}; known are {known}")
    if not re.fullmatch(r"\d+(\.\d+)?", value):
        raise ConditionError(f"{value!r} in {part.strip()!r} is not a number of tokens; {EXAMPLE}")
    return Condition(field, relation, float(value))


def concerned(requests: pd.DataFrame, conditions: Sequence[Condition]) -> Concerned:
    """Which requests all `conditions` hold for. Without conditions: every one."""
    yes, unknown = np.ones(len(requests), dtype=bool), np.zeros(len(requests), dtype=bool)
    fails = np.zeros(len(requests), dtype=bool)
    for condition in conditions:
        values = _values(requests, condition.field)
        missing = values.isna().to_numpy()
        holds = RELATIONS[condition.relation](values, condition.value).fillna(False).to_numpy(dtype=bool)
        yes &= holds & ~missing
        unknown |= missing
        fails |= ~holds & ~missing
    return Concerned(yes, unknown & ~fails)


def _values(requests: pd.DataFrame, field: str) -> pd.Series[Any]:
    if field in TEXT_FIELDS:
        return requests[field]
    asked = requests[f"asked_{field}"].astype("float64")
    came = requests[field].astype("float64")
    if field == "output_tokens":
        came = came.where(requests["outcome"] == "succeeded")
    return came.fillna(asked)
