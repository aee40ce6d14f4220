"""WHEN load is offered: pure rules of time. NumPy and the standard library only; no Locust.

SHAPES has a row for each shape. To add one: a file with the rule (see shape.py for what a shape is) and a
row here; the contract tests take it from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shapes.diurnal import diurnal
from shapes.errors import ShapeError
from shapes.mixed import mixed
from shapes.pulse import pulse
from shapes.salvo import salvo
from shapes.shape import Shape, ShapeSettings
from shapes.steps import steps
from shapes.uniform import uniform

__all__ = ["SHAPES", "Shape", "ShapeError", "ShapeKind", "ShapeSettings", "make_shape"]

_ALWAYS = ("rate_rps", "duration_s")


@dataclass(frozen=True)
class ShapeKind:
    """One row: `make` builds the shape (or raises ShapeError); `reads` names the settings that it heeds."""

    name: str
    summary: str
    make: Callable[[ShapeSettings], Shape]
    reads: tuple[str, ...]
    arrivals: str = "poisson"

    def unread(self, settings: ShapeSettings) -> tuple[str, ...]:
        """The settings that were given but mean nothing to this shape; worth a notice."""
        given = (name for name, value in vars(settings).items() if name not in _ALWAYS and value is not None)
        return tuple(name for name in given if name not in self.reads)


SHAPES: dict[str, ShapeKind] = {
    row.name: row
    for row in (
        ShapeKind("uniform", "the same rate all the time", uniform, _ALWAYS),
        ShapeKind(
            "pulse",
            "a short burst of 5 x the mean every 20 s",
            pulse,
            (*_ALWAYS, "period_s", "peak_ratio", "duty", "width_s", "base", "lead_s"),
        ),
        ShapeKind(
            "mixed",
            "80 % of the time low, 20 % a long burst of 3 x the mean",
            mixed,
            (*_ALWAYS, "period_s", "peak_ratio", "duty", "width_s", "lead_s"),
        ),
        ShapeKind(
            "salvo",
            "exact counts at exact moments: quiet 3 s, 30 at once, ...",
            salvo,
            ("duration_s", "salvo"),
            arrivals="constant",
        ),
        ShapeKind(
            "diurnal",
            "a day squeezed into the duration, as a sine or from an hour table",
            diurnal,
            (*_ALWAYS, "amplitude", "day_profile"),
        ),
        ShapeKind(
            "steps",
            "one level after another, each for an equal part of the time: 1,10,20,50",
            steps,
            ("duration_s", "levels"),
        ),
    )
}


def make_shape(name: str, settings: ShapeSettings) -> Shape:
    """The shape called `name` with these settings. Raises ShapeError for an unknown name or bad settings."""
    if name not in SHAPES:
        raise ShapeError(f"there is no shape {name[:40]!r}: choose from {', '.join(SHAPES)}")
    return SHAPES[name].make(settings)
