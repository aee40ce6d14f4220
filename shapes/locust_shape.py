"""Shapes as Locust knows them: a LoadTestShape class per row of SHAPES. The only file here that imports
Locust.

With this suite's users (`loadgen.users`) the load is an open-loop plan drawn from the shape: the class says
which shape, the options say its figures, and the number of Locust users is one per worker. With any other
Locust user the rate is read as a number of users, so `class Pulses(PulseShape): settings =
ShapeSettings(rate_rps=50, ...)` gives 50 users on average, in pulses. Locust asks once a second and stops
users in mid-request when the number falls, so for bursts that must be exact use the open-loop plan.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from locust import LoadTestShape

from shapes import SHAPES, ShapeSettings
from shapes.shape import Shape

_Tick = tuple[int, float] | None


class PlannedShape(LoadTestShape):
    """What all shape classes share: ask the run that is led by this suite, or else read the rate as users."""

    abstract = True
    use_common_options = True  # --run-time is honoured, so Locust must offer it
    shape_name: ClassVar[str | None] = None
    settings: ClassVar[ShapeSettings] = ShapeSettings(duration_s=120.0)

    def tick(self) -> _Tick:
        """Users wanted now and the spawn rate, or None at the end."""
        run = getattr(self.runner.environment, "load_run", None) if self.runner else None
        if run is not None:
            wanted: _Tick = run.tick()
            return wanted
        shape = self.shape()
        elapsed_s = float(LoadTestShape.get_run_time(self))
        if elapsed_s >= shape.duration_s:
            return None
        users = round(float(shape.rate_at(elapsed_s)))
        return users, float(max(users, 1))

    def shape(self) -> Shape:
        """The rule of time behind the class, with its own `settings` and Locust's --run-time if given."""
        options = self.runner.environment.parsed_options if self.runner else None
        run_time_s = getattr(options, "run_time", None)
        settings = replace(self.settings, duration_s=float(run_time_s)) if run_time_s else self.settings
        return SHAPES[self.shape_name or "uniform"].make(settings)


class ChosenShape(PlannedShape):
    """The shape that the option --shape names."""


def _shape_class(name: str) -> type[PlannedShape]:
    return type(
        _class_name(name),
        (PlannedShape,),
        {"shape_name": name, "__doc__": SHAPES[name].summary, "__module__": __name__},
    )


def _class_name(shape_name: str) -> str:
    return f"{shape_name.title().replace('_', '')}Shape"


SHAPE_CLASSES: dict[str, type[PlannedShape]] = {_class_name(name): _shape_class(name) for name in SHAPES}
"""PulseShape, MixedShape, DiurnalShape, ...: import them by name from this module."""


def __getattr__(name: str) -> type[PlannedShape]:
    try:
        return SHAPE_CLASSES[name]
    except KeyError:
        raise AttributeError(f"{__name__} has no {name}; it has {', '.join(SHAPE_CLASSES)}") from None
