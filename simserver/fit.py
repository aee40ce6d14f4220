"""Measured points -> a cost model: `--fit measurements.csv`.

One row a measured step, or the mean of many alike, in one of three forms; cells that a form does not need
stay empty:

    tokens, cached_tokens, sequences, step_s    a step as it is
    concurrency, context_tokens, tpot_s         decoding only: so many requests with so much context each
    prompt_tokens, ttft_s                       one prompt alone, in one step (no longer than the budget)

The fit is least squares of the relative error, with no coefficient below 0. Which points lie on the flat
part of the step time (below the corner at which the linear layers start to cost more than the transfer of
the weights) is tried out: every corner, every choice of coefficients above 0; the best by the model itself
is taken. The quadratic part of attention is not fitted.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simserver.cost import CostModel

FORMS = (
    ("tokens", "cached_tokens", "sequences", "step_s"),
    ("concurrency", "context_tokens", "tpot_s"),
    ("prompt_tokens", "ttft_s"),
)
COEFFICIENTS = ("floor_s", "base_s", "per_token_s", "per_cached_token_s", "per_sequence_s")


ALIKE = 1e-9
"""Sums of squared errors that differ by less are alike: the model with fewer coefficients is taken."""


class FitError(ValueError):
    """The measurements cannot be read or fitted; one line says what is wrong."""


@dataclass(frozen=True)
class MeasuredStep:
    """One point: what a step computed, and how long it took."""

    tokens: float
    cached_tokens: float
    sequences: float
    step_s: float


@dataclass(frozen=True)
class Fit:
    """A fitted model, its points and its error at each: model / measured - 1."""

    cost: CostModel
    points: tuple[MeasuredStep, ...]
    residuals: tuple[float, ...]

    def told(self) -> str:
        """The coefficients and residuals as text."""
        lines = [f"{name:20} {getattr(self.cost, name):.4g}" for name in COEFFICIENTS]
        lines.append(f"{'tokens':>8} {'cached':>9} {'seqs':>6} {'measured ms':>12} {'error':>8}")
        for point, residual in zip(self.points, self.residuals, strict=True):
            lines.append(
                f"{point.tokens:8.0f} {point.cached_tokens:9.0f} {point.sequences:6.0f} "
                f"{point.step_s * 1e3:12.2f} {residual:+8.1%}"
            )
        worst = max(abs(residual) for residual in self.residuals)
        mean = math.sqrt(sum(residual**2 for residual in self.residuals) / len(self.residuals))
        lines.append(f"root mean square error {mean:.1%}, worst {worst:.1%}")
        return "\n".join(lines)


def read_measurements(path: Path) -> tuple[MeasuredStep, ...]:
    """The points of a CSV file. Raises FitError that names the row, OSError when it cannot be read."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        if not any(set(form) <= set(rows.fieldnames or ()) for form in FORMS):
            forms = "; or ".join(", ".join(form) for form in FORMS)
            raise FitError(f"{path} needs a header with the columns {forms}")
        return tuple(_point(path, number, row) for number, row in enumerate(rows, start=2))


def _point(path: Path, number: int, row: dict[str, str | None]) -> MeasuredStep:
    filled = {name: cell for name, cell in row.items() if name and cell}
    form = next((form for form in FORMS if set(form) <= set(filled)), None)
    if form is None:
        raise FitError(
            f"{path}, line {number}: none of the forms is filled: {'; '.join(map(', '.join, FORMS))}"
        )
    try:
        values = [float(filled[name]) for name in form]
    except ValueError:
        raise FitError(f"{path}, line {number}: {', '.join(form)} must be numbers") from None
    if not all(0 <= value < math.inf for value in values) or values[0] == 0 or values[-1] == 0:
        raise FitError(f"{path}, line {number}: {form[0]} and {form[-1]} must be above 0, the rest not below")
    if form is FORMS[0]:
        return MeasuredStep(*values)
    if form is FORMS[1]:
        users, context, tpot_s = values
        return MeasuredStep(users, users * context, users, tpot_s)
    return MeasuredStep(values[0], 0.0, 1.0, values[1])


def fit(points: Sequence[MeasuredStep]) -> Fit:
    """The cost model with the smallest sum of squared relative errors. Raises FitError below 2 points."""
    if len(points) < 2:
        raise FitError(f"a fit needs at least 2 measured points, got {len(points)}")
    best: tuple[float, int, CostModel] | None = None
    for corner in (0.0, *sorted({point.tokens for point in points})):
        features = _features(points, corner)
        for cost in _candidates(features):
            error = sum(residual**2 for residual in _residuals(cost, points))
            used = sum(getattr(cost, name) > 0 for name in COEFFICIENTS)
            if best is None or error < best[0] - ALIKE or (error < best[0] + ALIKE and used < best[1]):
                best = error, used, cost
    assert best is not None
    return Fit(best[2], tuple(points), tuple(_residuals(best[2], points)))


def _features(points: Sequence[MeasuredStep], corner: float) -> NDArray[np.float64]:
    """Rows of the linear problem whose right side is 1: each coefficient's part over the measured time."""
    rows = []
    for point in points:
        flat = point.tokens <= corner
        linear = (1.0, 0.0, 0.0) if flat else (0.0, 1.0, point.tokens)
        rows.append([value / point.step_s for value in (*linear, point.cached_tokens, point.sequences)])
    return np.array(rows)


def _candidates(features: NDArray[np.float64]) -> Iterable[CostModel]:
    """The least-squares solution for every choice of coefficients, as far as none is negative."""
    count = features.shape[1]
    ones = np.ones(len(features))
    for size in range(1, count + 1):
        for chosen in combinations(range(count), size):
            part = features[:, chosen]
            if np.linalg.matrix_rank(part) < size:
                continue
            solution = np.linalg.lstsq(part, ones, rcond=None)[0]
            if (solution < 0).any():
                continue
            values = dict.fromkeys(COEFFICIENTS, 0.0)
            values.update(
                {COEFFICIENTS[place]: float(value) for place, value in zip(chosen, solution, strict=True)}
            )
            yield CostModel(**values)


def _residuals(cost: CostModel, points: Sequence[MeasuredStep]) -> list[float]:
    return [
        cost.step_time_s(point.tokens, point.cached_tokens, point.sequences) / point.step_s - 1
        for point in points
    ]
