"""Every option of a run, declared once: the same on the command line, in the environment, in locust.conf and
in the web form.

An option arrives as text from all four, so it is read from text in one place, here, with one kind of message
when it is wrong. The API key is no option: it is read from the environment (LOAD_API_KEY or OPENAI_API_KEY)
on each worker, so that it never crosses the wire or appears in the web form.
"""

from __future__ import annotations

import os
import re
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from client.dialects import DIALECTS
from loadgen.probes import parse_probes
from loadgen.valves import Valves
from shapes import SHAPES, ShapeSettings
from shapes.arrivals import ARRIVALS
from shapes.errors import LoadRuleError
from shapes.lengths import Lengths, parse_lengths

API_KEY_VARIABLES = ("LOAD_API_KEY", "OPENAI_API_KEY")
DEFAULT_DURATION_S = 120.0


class OptionError(Exception):
    """An option is wrong; one line says which, why, and what would be right."""


@dataclass(frozen=True)
class Option:
    """One option. `read` turns its text into a value and raises ValueError with the reason; empty text means
    the default, and where there is none, not given.
    """

    flag: str
    default: str
    help: str
    read: Callable[[str], Any] = str
    choices: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def env_var(self) -> str:
        return f"LOAD_{self.name.upper()}"


_UNITS_S = {"": 1.0, "s": 1.0, "ms": 0.001, "m": 60.0, "min": 60.0, "h": 3600.0}


def seconds(text: str) -> float:
    """Seconds from "20", "20s", "500ms", "2m" or "1h"."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|)", text.strip())
    if not found:
        raise ValueError(f"{text!r} is not a time; write 20s, 500ms or 2m")
    return float(found[1]) * _UNITS_S[found[2]]


def number(text: str) -> float:
    """A finite number that is not negative."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not 0 <= value < float("inf"):
        raise ValueError(f"{text!r} must be a finite number, 0 or more")
    return value


def positive(text: str) -> float:
    """A finite number above 0."""
    value = number(text)
    if value == 0:
        raise ValueError(f"{text!r} must be above 0")
    return value


def ratio(text: str) -> float:
    """A number above 0 and at most 1."""
    value = positive(text)
    if value > 1:
        raise ValueError(f"{text!r} must be above 0 and at most 1")
    return value


def yes(text: str) -> bool:
    """True for "true"."""
    return text == "true"


def whole(text: str) -> int:
    """A whole number that is not negative."""
    if not re.fullmatch(r"\d+", text.strip()):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


YES_OR_NO = ("false", "true")
_SHAPES_HELP = "; ".join(f"{name}: {kind.summary}" for name, kind in SHAPES.items())
_ARRIVALS_HELP = "; ".join(f"{name}: {kind.summary}" for name, kind in ARRIVALS.items())

OPTIONS: tuple[Option, ...] = (
    Option("--model", "", "Model to ask for, as the server names it"),
    Option("--shape", "uniform", f"How the rate moves over time. {_SHAPES_HELP}", choices=tuple(SHAPES)),
    Option(
        "--load",
        "open",
        "open: requests go out at their moments, whatever the server does; closed: users, each with one "
        "request at a time, so that a slow server slows the load",
        choices=("open", "closed"),
    ),
    Option("--rate", "6", "open: mean rate in requests per second, the same for every shape", positive),
    Option("--load-users", "10", "closed: mean number of users, in the place of --rate", positive),
    Option(
        "--arrivals",
        "auto",
        f"How requests scatter round the rate. auto: constant for a salvo, else poisson; {_ARRIVALS_HELP}",
        choices=("auto", *ARRIVALS),
    ),
    Option(
        "--cv", "", "gamma arrivals: standard deviation / mean of the gaps; above 1 is burstier (2)", positive
    ),
    Option(
        "--seed",
        "1",
        "Seed of the schedule: the same seed sends the same requests at the same moments",
        whole,
    ),
    Option("--period", "", "pulse, mixed: seconds from one burst to the next (pulse 20, mixed 60)", seconds),
    Option("--peak-ratio", "", "pulse, mixed: peak rate / mean rate (pulse 5, mixed 3)", positive),
    Option("--duty", "", "pulse, mixed: share of the time in a burst, 0 to 1 (mixed 0.2)", positive),
    Option("--width", "", "pulse: seconds a burst lasts, instead of --duty or --base", seconds),
    Option("--base", "", "pulse: rate between bursts / mean rate, 0 to 1 (0.5)", number),
    Option("--lead", "", "pulse, mixed: seconds until the first burst starts (half a period)", seconds),
    Option(
        "--salvo", "", 'salvo: quiet times and counts, such as "3s,30,5s,60": 30 at once after 3 s, then 60'
    ),
    Option(
        "--levels", "", "steps: rates (open) or numbers of users (closed), one after the other: 1,10,20,50"
    ),
    Option("--amplitude", "", "diurnal: swing of the sine round the mean, 0 to 1 (0.8)", number),
    Option(
        "--day-profile", "", 'diurnal: "sine", "burstgpt" or comma-separated weights of equal parts of a day'
    ),
    Option("--input-tokens", "150", 'Prompt length in tokens: "150", "normal:150,40", "uniform:50-300", ...'),
    Option("--output-tokens", "60", "Longest answer in tokens, in the same forms; see also --dialect"),
    Option(
        "--dialect",
        "openai",
        "What the server understands beyond the standard, such as a way to force the answer's length",
        choices=tuple(DIALECTS),
    ),
    Option(
        "--slo",
        "ttft<1s,tpot<50ms",
        'Limits that a request must meet, such as "ttft<1s,tpot<50ms@99%"; or none',
    ),
    Option(
        "--drain", "30s", "Longest wait for requests in flight at the end; then they are cancelled", seconds
    ),
    Option("--first-token-limit", "60s", "A request without its first token after this has failed", seconds),
    Option("--stall-limit", "30s", "A request whose output pauses for this long has failed", seconds),
    Option("--total-limit", "600s", "A request that takes longer than this has failed", seconds),
    Option(
        "--connections",
        "reuse",
        "reuse: keep connections alive; fresh: a new connection for every request",
        choices=("reuse", "fresh"),
    ),
    Option(
        "--no-stream", "false", "true: answers in one piece; there is no time to first token", yes, YES_OR_NO
    ),
    Option("--warmup", "0", "Requests that each worker sends before the start, outside all figures", whole),
    Option(
        "--probes",
        "",
        'Small requests beside the load, such as "1/s": they show recovery where it is quiet',
        parse_probes,
    ),
    Option("--confirm-target", "", "Name the host again to load a target in the public internet"),
    Option("--max-requests", "", "Safety valve: end the run after this many requests", whole),
    Option(
        "--max-total-tokens", "", "Safety valve: end the run after this many input and output tokens", whole
    ),
    Option("--stop-at-failure-ratio", "", "Safety valve: end the run when this share failed, 0 to 1", ratio),
    Option("--reassign", "false", "true: a lost worker's requests are sent by the others", yes, YES_OR_NO),
    Option("--run-name", "", "Name of the run in its report and folder (the shape's name)"),
    Option("--runs-dir", "runs", "Folder that receives one folder per run"),
)


@dataclass(frozen=True)
class RunSettings:
    """All options of a run, read and checked. `duration_s` is None where the shape decides (a salvo)."""

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
    cv: float | None = None
    stream: bool = True
    warmup: int = 0
    probes_rps: float | None = None
    confirm_target: str = ""
    valves: Valves = field(default_factory=Valves)
    reassign: bool = False


def add_to_parser(parser: Any) -> None:
    """Declare OPTIONS on Locust's argument parser."""
    group = parser.add_argument_group("LLM load options", "What to send, when, and how to judge it.")
    for option in OPTIONS:
        group.add_argument(
            option.flag,
            default=option.default,
            choices=option.choices,
            env_var=option.env_var,
            metavar=None if option.choices else "<value>",
            help=f"{option.help} (default: {option.default or 'not set'})".replace("%", "%%"),
        )


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
    run_time_s = getattr(parsed, "run_time", None)
    duration_s = float(run_time_s) if run_time_s else None if shape == "salvo" else DEFAULT_DURATION_S
    closed = values["load"] == "closed"
    shape_settings = ShapeSettings(
        rate_rps=values["load_users"] if closed else values["rate"],
        duration_s=duration_s,
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
            run_name=values["run_name"] or shape,
            runs_dir=values["runs_dir"],
            load=values["load"],
            cv=values["cv"],
            stream=not values["no_stream"],
            warmup=values["warmup"],
            probes_rps=values["probes"],
            confirm_target=values["confirm_target"] or "",
            valves=Valves(
                values["max_requests"], values["max_total_tokens"], values["stop_at_failure_ratio"]
            ),
            reassign=values["reassign"],
        )
    except LoadRuleError as error:
        raise OptionError(str(error)) from error


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


def options_as_given(settings: Namespace) -> dict[str, str]:
    """Each option's text as the run saw it, for run.json; none of them is a secret."""
    return {option.name: str(getattr(settings, option.name, option.default)) for option in OPTIONS}


def api_key() -> str | None:
    """The target's API key from the environment, or None."""
    return next((os.environ[name] for name in API_KEY_VARIABLES if os.environ.get(name)), None)
