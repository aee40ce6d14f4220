"""Two or more runs -> what differs between them, how much, and how sure: the figures of `compare`.

Each candidate is held against the base, burst by burst (analysis.blocks), with the paired test of
analysis.paired; Holm's correction runs over every test that is shown. Unlike runs are refused
(analysis.alike).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from analysis.alike import Side, unlike
from analysis.blocks import BY_KEY, COMPARED, RECOVERY, pair
from analysis.paired import ALPHA, Shift, holm, least_pairs, pairs_to_tell, shift_of
from analysis.summary import plain
from analysis.wording_compare import UNLIKE_TEXT

Finding = Literal["better", "worse", "small", "equal", "not significant", "n too small"]

LEAST_CHANGE = 0.02
"""A significant shift below this share of the base's median is called small and is no regression."""
LEAST_POINTS = 0.005
"""The same for ratios, in absolute terms: half a percentage point."""


class UnlikeRuns(ValueError):
    """Runs that may not be compared; `reasons` holds key -> what differs, by candidate's name."""

    def __init__(self, base: str, reasons: Mapping[str, Mapping[str, str]]) -> None:
        self.reasons = reasons
        keys = sorted({key for found in reasons.values() for key in found})
        lines = [
            UNLIKE_TEXT["refused"].format(base=base, candidate=name, key=key, what=text)
            for name, found in reasons.items()
            for key, text in found.items()
        ]
        super().__init__("\n".join([*lines, UNLIKE_TEXT["allow"].format(keys=",".join(keys))]))


@dataclass(frozen=True)
class Row:
    """One figure of one candidate against the base.

    `base` and `candidate` are the medians over the bursts, `shift` their paired difference. `p_holm` is
    corrected for all tests shown. `finding`: "small" is significant and below `least_change`, "equal" is no
    burst differing. `more_bursts`: with "n too small" how many more make significance possible; with "not
    significant" an estimate of how many more would tell a shift of the size seen (None: cannot be estimated).
    """

    key: str
    unit: str
    better: str
    base: float | None
    candidate: float | None
    shift: Shift
    p_holm: float | None
    finding: Finding
    more_bursts: int | None
    differences: tuple[float, ...]


@dataclass(frozen=True)
class Comparison:
    """One candidate against the base, over `blocks` bursts (or stretches, where the load has no bursts);
    Holm's correction was for `tests`."""

    base: str
    candidate: str
    by: Literal["burst", "stretch"]
    paired_by: Literal["arrival", "block"]
    blocks: int
    tests: int
    allowed: dict[str, str]
    rows: tuple[Row, ...]

    @property
    def regressed(self) -> bool:
        return any(row.finding == "worse" for row in self.rows)


def compare(
    base: Side,
    candidates: Sequence[Side],
    allow: Sequence[str] = (),
    least_change: float = LEAST_CHANGE,
) -> list[Comparison]:
    """Hold each candidate against the base. Raises UnlikeRuns when a pair differs in what is not in `allow`.

    Figures in which no burst differs are shown and not tested: the sign-flip test is conditional on the sizes
    of the differences, so leaving out those that are all 0 keeps Holm's promise.
    """
    return compare_repeats([base], [[side] for side in candidates], allow, least_change)


def compare_repeats(
    bases: Sequence[Side],
    candidates: Sequence[Sequence[Side]],
    allow: Sequence[str] = (),
    least_change: float = LEAST_CHANGE,
) -> list[Comparison]:
    """As `compare`, of experiments that were repeated: each candidate has a run for each of `bases`, and the
    blocks of all repeats count together. Raises UnlikeRuns."""
    base = bases[0]
    differing = [_unlike(bases, runs) for runs in candidates]
    refused = {
        runs[0].name: {key: text for key, text in found.items() if key not in allow}
        for runs, found in zip(candidates, differing, strict=True)
    }
    if any(refused.values()):
        raise UnlikeRuns(base.name, {name: found for name, found in refused.items() if found})
    measured = [
        _joined([_measured(one, other) for one, other in zip(bases, runs, strict=True)])
        for runs in candidates
    ]
    shifts = {
        (number, key): shift_of(differences(*values))
        for number, found in enumerate(measured)
        for key, values in found.items()
    }
    tested = {at: shift.p for at, shift in shifts.items() if shift.p is not None and shift.moved}
    corrected = holm(tested)
    return [
        Comparison(
            base=base.name,
            candidate=runs[0].name,
            by="burst" if base.run.info.bursts else "stretch",
            paired_by="block" if base.run.closed else "arrival",
            blocks=max((len(one) for one, _ in measured[number].values()), default=0),
            tests=len(tested),
            allowed=differing[number],
            rows=tuple(
                _row(
                    key, values, shifts[number, key], corrected.get((number, key)), len(tested), least_change
                )
                for key, values in measured[number].items()
            ),
        )
        for number, runs in enumerate(candidates)
    ]


def differences(base: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """Candidate minus base, block by block; two that both rest on failures differ by 0."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(base) & (base == candidate), 0.0, candidate - base)


def strict_json(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """The comparisons as strict JSON can hold them: infinite and unknown figures are null."""
    return [plain(asdict(one)) | {"regressed": one.regressed} for one in comparisons]


Measured = dict[str, tuple[np.ndarray, np.ndarray]]


def _unlike(bases: Sequence[Side], runs: Sequence[Side]) -> dict[str, str]:
    """What forbids the comparison in any repeat; the first repeat's words."""
    found: dict[str, str] = {}
    for base, run in zip(bases, runs, strict=True):
        found = {**unlike(base, run), **found}
    return found


def _joined(repeats: Sequence[Measured]) -> Measured:
    """The blocks of all repeats one after the other; a figure that one repeat lacks is unknown there."""
    if len(repeats) == 1:
        return repeats[0]
    length = [max((len(one) for one, _ in repeat.values()), default=0) for repeat in repeats]
    keys = dict.fromkeys(key for repeat in repeats for key in repeat)

    def side(key: str, which: int) -> np.ndarray:
        parts = [
            repeat[key][which] if key in repeat else np.full(n, math.nan)
            for repeat, n in zip(repeats, length, strict=True)
        ]
        return np.concatenate(parts)

    return {key: (side(key, 0), side(key, 1)) for key in keys}


def _measured(base: Side, candidate: Side) -> Measured:
    """key -> values per block of base and candidate; a figure that no block knows in both is left out."""
    pairs = pair(base, candidate)
    found: Measured = {}
    for row in COMPARED:
        values = np.array([row.values(one) for one in pairs], dtype=float).reshape(-1, 2)
        found[row.key] = (values[:, 0], values[:, 1])
    one, other = (
        np.array([_recovery_s(row) for row in side.summary["bursts"]]) for side in (base, candidate)
    )
    if len(one) == len(other) == len(pairs):
        found[RECOVERY.key] = (one, other)
    return {key: values for key, values in found.items() if not np.isnan(differences(*values)).all()}


def _recovery_s(burst: Mapping[str, Any]) -> float:
    """A burst's recovery; of one that had not recovered what it lasted at the least, which makes a difference
    smaller. Unknown where its aftermath was watched too shortly."""
    if burst["watched_too_short"] or burst["at_least_s"] is None:
        return math.nan
    return float(burst["at_least_s"])


def _row(
    key: str,
    values: tuple[np.ndarray, np.ndarray],
    shift: Shift,
    p_holm: float | None,
    tests: int,
    least_change: float,
) -> Row:
    """Judge one figure."""
    kind = BY_KEY[key]
    differs = differences(*values)
    known = ~np.isnan(differs)
    base, candidate = (float(np.median(side[known])) for side in values)
    finding: Finding = "not significant"
    more = None
    if shift.moved == 0:
        finding = "equal"
    elif p_holm is not None and p_holm <= ALPHA:
        up = float(np.sign(differs[known]).sum()) > 0 if not shift.shift else shift.shift > 0
        least = LEAST_POINTS if kind.unit == "ratio" else least_change * base
        small = shift.shift is not None and abs(shift.shift) < least
        finding = "small" if small else "better" if up == (kind.better == "higher") else "worse"
    elif shift.n < least_pairs(tests):
        finding, more = "n too small", least_pairs(tests) - shift.n
    else:
        needed = pairs_to_tell(differs)
        more = None if needed is None else max(1, needed - shift.n)
    return Row(
        key, kind.unit, kind.better, base, candidate, shift, p_holm, finding, more, tuple(differs.tolist())
    )
