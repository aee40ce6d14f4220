"""A suite's TOML file -> Suite: which scenarios, against which variants of a server, how often.

    name = "schedulers"          # in the page and in the folder's name
    repeats = 2                  # each on schedules of its own (seed, seed + 1 ...)
    mirror = true                # A B, then B A: drift falls on both alike
    workers = 2                  # processes that send, beside the master; 0: one process does all
    cool_down_limit = 60         # s to wait at most until the server has nothing left to do
    max_requests = 50000         # caps of the whole suite; the run that would pass one is not begun
    max_tokens = 5000000

    [load]                       # options of every run, as python -m loadgen explains them; of a rate
                                 # "auto" the first run finds the figure, for all of them
    rate = 6.5
    run_time = "300s"
    [scenarios.B-pulse]          # ... and of one scenario
    shape = "pulse"
    [variants.fcfs]              # the first variant is the base
    simserver = "--policy fcfs"

A variant has exactly one of VARIANT_KINDS. `${NAME}` in a text stands for that environment variable.
"""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loadgen.options import OPTIONS

VARIANT_KINDS: dict[str, str] = {
    "simserver": "options of a simulated server that is started for it",
    "virtual": "options of the simulated engine, in virtual time: no server, no waiting",
    "url": "a server that runs already",
    "command": "a command that starts the server; `url` says where it then is",
    "compose": "a compose service to start; `url` says where it then is",
    "by_hand": "what a person is asked to do; `url` says where the server then is",
}
_MORE_KEYS = ("model", "url", "health", "ready_limit")
_STARTED = ("command", "compose", "by_hand")
_OPTIONS = {option.name: option for option in OPTIONS}
_OTHER_NAMES = {"run_time": "duration", "users": "load_users"}
_OURS = ("run_name", "runs_dir", "seed")
_VARIABLE = re.compile(r"\$\{(\w+)\}")


class SuiteError(Exception):
    """A suite file cannot be used; one line says where, what and what would be right."""


@dataclass(frozen=True)
class Variant:
    """A server to load: `kind` of VARIANT_KINDS and what it says; `url` where it is (None: `kind` knows).

    `health` is polled until it answers below 400, for `ready_limit_s` at most; None: a connection is enough.
    """

    name: str
    kind: str
    says: str
    url: str | None
    model: str
    health: str | None
    ready_limit_s: float


@dataclass(frozen=True)
class Step:
    """One run of a suite. `key` names it in suite.json."""

    repeat: int
    variant: str
    scenario: str

    @property
    def key(self) -> str:
        return f"{self.repeat + 1}/{self.variant}/{self.scenario}"


@dataclass(frozen=True)
class Suite:
    """What a suite file says. `load` and `scenarios` hold options by their names, as text; with `compose` the
    load runs in containers."""

    name: str
    repeats: int
    mirror: bool
    workers: int
    seed: int
    cool_down_limit_s: float
    max_requests: int | None
    max_tokens: int | None
    load: Mapping[str, str]
    scenarios: Mapping[str, Mapping[str, str]]
    variants: Mapping[str, Variant]
    sha256: str
    compose: bool = False

    def steps(self) -> list[Step]:
        """All runs in order: variant by variant, and the other way round in every second repeat."""
        order = []
        for repeat in range(self.repeats):
            variants = list(self.variants)
            if self.mirror and repeat % 2:
                variants.reverse()
            order += [Step(repeat, variant, scenario) for variant in variants for scenario in self.scenarios]
        return order

    def options(self, step: Step) -> dict[str, str]:
        """The options of a run by name, its scenario's before those of every run."""
        seed = str(self.seed + step.repeat)
        return {**self.load, **self.scenarios[step.scenario], "seed": seed}

    def changed(self, load: Mapping[str, str], **values: Any) -> Suite:
        """With options of every run, or fields, that were given on the command line; they win over the
        file's."""
        scenarios = {
            name: {key: value for key, value in own.items() if key not in load}
            for name, own in self.scenarios.items()
        }
        more = {key: value for key, value in values.items() if value is not None}
        text = f"{self.sha256} {sorted(load.items())} {sorted(more.items(), key=str)}"
        return replace(
            self,
            load={**self.load, **load},
            scenarios=scenarios,
            sha256=hashlib.sha256(text.encode()).hexdigest(),
            **more,
        )


def option_name(written: str) -> str | None:
    """The name of a run's option as a suite may write it; None where there is none of that name."""
    name = _OTHER_NAMES.get(written, written.replace("-", "_"))
    return name if name in _OPTIONS else None


def flag_of(name: str) -> str:
    """The flag of an option's name."""
    return _OPTIONS[name].flag


def value_of(options: Mapping[str, str], name: str) -> Any:
    """What a run makes of an option, its default where it is not given; None where neither can be read."""
    option = _OPTIONS[name]
    try:
        return option.read(options.get(name) or option.default)
    except ValueError:
        return None


def read_suite(path: Path) -> Suite:
    """Read a suite file. Raises SuiteError."""
    try:
        data = path.read_bytes()
        raw = tomllib.loads(data.decode("utf-8"))
    except OSError as error:
        raise SuiteError(f"{path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SuiteError(f"{path} is no TOML: {error}") from error
    return _suite_of(path, raw, hashlib.sha256(data).hexdigest())


def _suite_of(path: Path, raw: dict[str, Any], sha256: str) -> Suite:
    kinds: dict[str, tuple[type, ...]] = {
        "name": (str,),
        "repeats": (int,),
        "mirror": (bool,),
        "workers": (int,),
        "seed": (int,),
        "cool_down_limit": (int, float),
        "max_requests": (int,),
        "max_tokens": (int,),
        "load": (dict,),
        "scenarios": (dict,),
        "variants": (dict,),
    }
    for key, value in raw.items():
        if key not in kinds:
            raise SuiteError(f"{path}: unknown key {key!r}; known are {', '.join(kinds)}")
        if not isinstance(value, kinds[key]) or (isinstance(value, bool) and key != "mirror"):
            raise SuiteError(f"{path}: {key} must be {kinds[key][0].__name__}, not {value!r}")
    for key in ("scenarios", "variants"):
        if not raw.get(key):
            raise SuiteError(f"{path}: there is no [{key}.NAME]")
    if raw.get("repeats", 1) < 1 or raw.get("workers", 0) < 0:
        raise SuiteError(f"{path}: repeats must be at least 1 and workers at least 0")
    return Suite(
        name=raw.get("name", path.stem),
        repeats=raw.get("repeats", 1),
        mirror=raw.get("mirror", True),
        workers=raw.get("workers", 0),
        seed=raw.get("seed", 1),
        cool_down_limit_s=float(raw.get("cool_down_limit", 60)),
        max_requests=raw.get("max_requests"),
        max_tokens=raw.get("max_tokens"),
        load=_options(path, "load", raw.get("load", {})),
        scenarios={
            _name(path, name): _options(path, f"scenarios.{name}", own)
            for name, own in raw["scenarios"].items()
        },
        variants={_name(path, name): _variant(path, name, own) for name, own in raw["variants"].items()},
        sha256=sha256,
    )


def _name(path: Path, name: str) -> str:
    if not re.fullmatch(r"[\w.+-]{1,40}", name):
        raise SuiteError(
            f"{path}: the name {name!r} would not do as part of a folder's; letters, digits and . _ + - do"
        )
    return name


def _options(path: Path, where: str, given: Any) -> dict[str, str]:
    """Options of a run as text, by the names of loadgen's options."""
    if not isinstance(given, dict):
        raise SuiteError(f"{path}, [{where}]: must be a table of options")
    options = {}
    for key, value in given.items():
        name = option_name(key)
        if name is None or name in _OURS:
            raise SuiteError(
                f"{path}, [{where}]: {key!r} is no option of a run here; python -m loadgen explains them all"
            )
        if isinstance(value, bool):
            value = str(value).lower()
        if not isinstance(value, (str, int, float)):
            raise SuiteError(f"{path}, [{where}]: {key} must be a text or a number, not {value!r}")
        options[name] = _filled(path, where, str(value))
    return options


def _variant(path: Path, name: str, given: Any) -> Variant:
    where = f"variants.{name}"
    if not isinstance(given, dict):
        raise SuiteError(f"{path}, [{where}]: must be a table")
    unknown = [key for key in given if key not in (*VARIANT_KINDS, *_MORE_KEYS)]
    if unknown:
        known = ", ".join((*VARIANT_KINDS, *_MORE_KEYS))
        raise SuiteError(f"{path}, [{where}]: unknown key {unknown[0]!r}; known are {known}")
    kinds = [key for key in VARIANT_KINDS if key in given and key != "url"]
    kind = kinds[0] if kinds else "url"
    if len(kinds) > 1 or kind not in given:
        raise SuiteError(f"{path}, [{where}]: needs exactly one of {', '.join(VARIANT_KINDS)}")
    if kind in _STARTED and "url" not in given:
        raise SuiteError(f"{path}, [{where}]: {kind} needs url, where the server then is")
    texts = {key: _filled(path, where, str(value)) for key, value in given.items() if key != "ready_limit"}
    return Variant(
        name=name,
        kind=kind,
        says=texts[kind],
        url=texts.get("url"),
        model=texts.get("model", "sim-llm" if kind in ("simserver", "virtual") else ""),
        health=texts.get("health"),
        ready_limit_s=float(given.get("ready_limit", 600)),
    )


def _filled(path: Path, where: str, text: str) -> str:
    """`text` with its environment variables."""

    def value(found: re.Match[str]) -> str:
        try:
            return os.environ[found[1]]
        except KeyError:
            raise SuiteError(f"{path}, [{where}]: the environment variable {found[1]} is not set") from None

    return _VARIABLE.sub(value, text)
