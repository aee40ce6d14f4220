"""The offered rate as points to draw: exact edges, few points."""

from __future__ import annotations

import numpy as np

from shapes.shape import FloatArray, Shape
from shapes.steps import segments_of

MOST_POINTS = 2_000
STEP_S = 1.0


def rate_curve(shape: Shape, step_s: float = STEP_S) -> list[list[float]]:
    """Points [at_s, req/s] whose polygon is the offered rate; at most MOST_POINTS of them.

    A shape with bursts or levels becomes steps: each edge is two points at one moment. A salvo of n is a
    bar of n / `step_s` that begins at its moment and lasts `step_s`, or until the next salvo if that comes
    first. Where there are too many bursts, the steps are equal and show the mean rate in each. Any other
    shape is sampled every `step_s` or finer. In every case the area of the steps is the expected number of
    arrivals.
    """
    if not shape.bursts() and len(segments_of(shape)) == 1:
        points = int(np.clip(np.ceil(shape.duration_s / step_s), 200, MOST_POINTS - 1)) + 1
        at_s = np.linspace(0.0, shape.duration_s, points)
        rates = shape.rate_at(np.minimum(at_s, np.nextafter(shape.duration_s, 0.0)))
        return _points(at_s, rates)
    edges = _edges(shape, step_s)
    if 2 * (len(edges) - 1) > MOST_POINTS:
        edges = np.linspace(0.0, shape.duration_s, MOST_POINTS // 2 + 1)
    before = shape.expected_until(np.nextafter(edges, -np.inf))
    before[-1] = shape.expected_until(shape.duration_s)
    rates = np.diff(before) / np.diff(edges)
    return _points(np.repeat(edges, 2)[1:-1], np.repeat(rates, 2))


def _points(at_s: FloatArray, rates: FloatArray) -> list[list[float]]:
    return [[at, round(rate, 9)] for at, rate in zip(at_s.tolist(), rates.tolist(), strict=True)]


def _edges(shape: Shape, step_s: float) -> FloatArray:
    """0, T, and every moment at which the drawn rate steps up or down."""
    levels = np.array([segment.start_s for segment in segments_of(shape)])
    bursts = shape.bursts()
    starts = np.array([burst.start_s for burst in bursts])
    ends = np.array(
        [burst.end_s if burst.end_s > burst.start_s else burst.end_s + step_s for burst in bursts]
    )
    following = np.append(starts[1:], shape.duration_s)
    return np.unique(np.concatenate((levels, starts, np.minimum(ends, following), [shape.duration_s])))
