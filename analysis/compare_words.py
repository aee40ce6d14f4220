"""A comparison in words: the sentence, one line a figure, and the text that the terminal shows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from analysis.compare import Comparison, Row
from analysis.numbers import UNKNOWN, percent, plain, seconds
from analysis.wording_compare import COMPARE_TEXT, COMPARED_LABEL, FINDING_TEXT, STRETCH_LABEL

MOST_MORE = 1000
"""Nobody will wait for more bursts than this, so no number is given."""


def sentence(found: Comparison) -> str:
    """What the comparison says, in one sentence."""
    names = {
        "base": found.base,
        "candidate": found.candidate,
        "n": found.blocks,
        "by": COMPARE_TEXT[found.by],
    }
    better, worse = (_figures(found, finding) for finding in ("better", "worse"))
    if better and worse:
        return COMPARE_TEXT["mixed"].format(better=better, worse=worse, **names)
    if better or worse:
        return COMPARE_TEXT["better" if better else "worse"].format(figures=better or worse, **names)
    small = _figures(found, "small")
    if small:
        return COMPARE_TEXT["small"].format(figures=small, **names)
    if all(row.finding == "equal" for row in found.rows):
        return COMPARE_TEXT["equal"].format(**names)
    more = max((row.more_bursts or 0 for row in found.rows if row.finding == "n too small"), default=0)
    if more:
        return COMPARE_TEXT["too_few"].format(more=more, **names)
    return COMPARE_TEXT["none"].format(**names)


def how(found: Comparison) -> str:
    """How the figures were come by: what pairs the runs, and the test."""
    return COMPARE_TEXT[f"how_{found.paired_by}"].format(
        unit=COMPARE_TEXT[f"unit_{found.by}"], candidate=found.candidate, base=found.base, tests=found.tests
    )


def head(found: Comparison) -> list[str]:
    """The head of the table of figures."""
    text = COMPARE_TEXT["head"]
    return [
        cell.format(by=COMPARE_TEXT[found.by], base=found.base, candidate=found.candidate)
        for cell in text.split("|")
    ]


def cells(found: Comparison, row: Row) -> list[str]:
    """One figure as the cells under `head`."""
    low, high = row.shift.low, row.shift.high
    interval = COMPARE_TEXT["no_interval"] if low is None else f"{moved(row, low)} … {moved(row, high)}"
    return [
        label(found, row.key),
        level(row, row.base),
        level(row, row.candidate),
        moved(row, row.shift.shift),
        interval,
        UNKNOWN if row.p_holm is None else _probability(row.p_holm),
        finding(row),
    ]


def label(found: Comparison, key: str) -> str:
    """The name of a figure: of bursts, or of a load without them."""
    return (COMPARED_LABEL if found.by == "burst" else STRETCH_LABEL)[key]


def finding(row: Row) -> str:
    """The finding, and how many more bursts would help."""
    words = FINDING_TEXT[row.finding]
    if row.more_bursts is None:
        return words
    if row.more_bursts > MOST_MORE:
        return words
    key = "more_needed" if row.finding == "n too small" else "more_estimated"
    return COMPARE_TEXT[key].format(finding=words, more=plain(row.more_bursts))


def level(row: Row, value: float | None) -> str:
    """A figure of one run."""
    if value is not None and math.isinf(value):
        return COMPARE_TEXT["failures"]
    return percent(value) if row.unit == "ratio" else seconds(value)


def moved(row: Row, shift: float | None) -> str:
    """A difference, with its sign."""
    if shift is None:
        return UNKNOWN
    sign = "+" if shift > 0 else "−" if shift < 0 else "±"
    if math.isinf(shift):
        return f"{sign}{COMPARE_TEXT['failures']}"
    if row.unit == "ratio":
        return COMPARE_TEXT["points"].format(points=f"{sign}{abs(shift) * 100:.1f}")
    return f"{sign}{seconds(abs(shift))}"


def text(comparisons: Sequence[Comparison]) -> str:
    """All comparisons for the terminal."""
    return "\n\n".join(_one(found) for found in comparisons)


def _one(found: Comparison) -> str:
    table = [head(found), *(cells(found, row) for row in found.rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [sentence(found)]
    lines += [COMPARE_TEXT["allowed"].format(what=what, key=key) for key, what in found.allowed.items()]
    lines.append("")
    for row in table:
        first = f"{row[0]:<{widths[0]}}"
        middle = "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:-1], widths[1:-1], strict=True))
        lines.append(f"{first}{middle}  {row[-1]}")
    return "\n".join(lines)


def _figures(found: Comparison, kind: str) -> str:
    return ", ".join(
        COMPARE_TEXT["figure"].format(
            label=label(found, row.key),
            shift=moved(row, row.shift.shift),
            base=level(row, row.base),
            candidate=level(row, row.candidate),
        )
        for row in found.rows
        if row.finding == kind
    )


def _probability(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
