"""All options of a run, read from their texts and checked: what the plan is made from."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from loadgen.options import OPTIONS, Option, OptionError
from loadgen.valves import Valves
from shapes import SHAPES, ShapeSettings
from shapes.errors import LoadRuleError
from shapes.lengths import Lengths, parse_lengths
from shapes.shape import DEFAULT_RATE_RPS

DEFAULT_DURATION_S = 120.0


@dataclass(frozen=True)
class RunSettings:
    """All options of a run, read and checked. `duration_s` is None where the shape decides (a salvo).

    With `auto_rate` the rate in `shape_settings` stands there only until one has been measured (`at_rate`).
    """

    target: str
    model: str
    shape: str
    shape_settings: ShapeSettings
    arrivals: str
    seed: int
    input_lengths: Lengths
    output_lengths: Lengths
    dialect: str
    slo: str
    drain_s: float
    first_token_limit_s: float
    stall_limit_s: float
    total_limit_s: float
    connections: str
    run_name: str
    runs_dir: str
    load: str = "open"
    auto_rate: bool = False
    calibration_step_s: float = 4.0
    endpoint: str = "chat"
    gaps: str = "all"
    engine: str = "direct"
    api_version: str | None = None
    cv: float | None = None
    stream: bool = True
    warmup: int = 0
    probes_rps: float | None = None
    confirm_target: str = ""
    valves: Valves = field(default_factory=Valves)
    reassign: bool = False
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        """The run's name as it may stand in a folder's name and in request ids."""
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", self.run_name).strip("-.")[:60]
        return plain or self.shape

    def at_rate(self, rate_rps: float) -> RunSettings:
        """The same settings with a mean rate that has been measured."""
        return replace(self, auto_rate=False, shape_settings=replace(self.shape_settings, rate_rps=rate_rps))


def read_settings(parsed: Namespace, host: str | None, shape: str | None = None) -> RunSettings:
    """RunSettings from Locust's parsed options; `shape` overrides --shape (a picked LoadTestShape class).

    Raises OptionError for the first option that is wrong, or when the target or model is missing.
    """
    values = {option.name: _read(option, getattr(parsed, option.name, option.default)) for option in OPTIONS}
    if not host:
        raise OptionError(
            "--host is missing: give the server's base URL, such as --host http://127.0.0.1:8000"
        )
    if not values["model"]:
        raise OptionError("--model is missing: give the model's name as the server lists it at /v1/models")
    shape = shape or values["shape"]
    duration_s = float(getattr(parsed, "run_time", None) or values["duration"] or 0)
    if not duration_s and shape != "salvo":
        duration_s = DEFAULT_DURATION_S
    closed = values["load"] == "closed"
    auto_rate = values["rate"] is None
    if auto_rate:
        _check_auto_rate(shape, values["load"])
    shape_settings = ShapeSettings(
        rate_rps=values["load_users"] if closed else values["rate"] or DEFAULT_RATE_RPS,
        duration_s=duration_s or None,
        period_s=values["period"],
        peak_ratio=values["peak_ratio"],
        duty=values["duty"],
        width_s=values["width"],
        base=values["base"],
        lead_s=values["lead"],
        salvo=values["salvo"] or None,
        levels=values["levels"] or None,
        amplitude=values["amplitude"],
        day_profile=values["day_profile"] or None,
    )
    arrivals = values["arrivals"]
    try:
        return RunSettings(
            target=host,
            model=values["model"],
            shape=shape,
            shape_settings=shape_settings,
            arrivals=SHAPES[shape].arrivals if arrivals == "auto" else arrivals,
            seed=values["seed"],
            input_lengths=parse_lengths(values["input_tokens"]),
            output_lengths=parse_lengths(values["output_tokens"]),
            dialect=values["dialect"],
            slo="" if values["slo"] == "none" else values["slo"],
            drain_s=values["drain"],
            first_token_limit_s=values["first_token_limit"],
            stall_limit_s=values["stall_limit"],
            total_limit_s=values["total_limit"],
            connections=values["connections"],
            gaps=values["gaps"],
            run_name=values["run_name"] or shape,
            runs_dir=values["runs_dir"],
            load=values["load"],
            auto_rate=auto_rate,
            calibration_step_s=values["calibration_step"],
            endpoint=values["endpoint"],
            engine=values["engine"],
            api_version=values["api_version"],
            cv=values["cv"],
            stream=not values["no_stream"],
            warmup=values["warmup"],
            probes_rps=values["probes"],
            confirm_target=values["confirm_target"] or "",
            valves=Valves(
                values["max_requests"], values["max_total_tokens"], values["stop_at_failure_ratio"]
            ),
            reassign=values["reassign"],
            headers=values["header"] or {},
            body=values["body"] or {},
        )
    except LoadRuleError as error:
        raise OptionError(str(error)) from error


def _check_auto_rate(shape: str, load: str) -> None:
    if load == "closed":
        raise OptionError(
            "--rate auto is for an open load; in a closed one --load-users decides: leave one of them out"
        )
    if shape in ("salvo", "steps"):
        raise OptionError(
            f"--rate auto means nothing to the shape {shape}, which says its own rates: leave it out"
        )


def _read(option: Option, text: Any) -> Any:
    text = str(text).strip() if text is not None else ""
    text = text or option.default
    if not text:
        return None
    if option.choices and text not in option.choices:
        raise OptionError(f"{option.flag} {text!r} is unknown; choose one of {', '.join(option.choices)}")
    try:
        return option.read(text)
    except ValueError as error:
        raise OptionError(f"{option.flag}: {error}") from None
