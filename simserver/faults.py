"""FAULTS: what goes wrong on purpose, one row each, by option (`--fault`) or for one request by header.

A fault is written as its name and settings: `reset`, `reset,after=5,share=0.1`, `freeze,at=20,for=3`. Those
of the server take hold at `at` seconds after the start and last for `for` seconds; those of a request hit a
`share` of all requests, and with a stream, once `after` tokens have been written.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

FAULT_HEADER = "x-simserver-fault"


@dataclass(frozen=True)
class FaultKind:
    """A row of FAULTS. settings: name -> default; `of_server`: it needs no request."""

    name: str
    summary: str
    settings: Mapping[str, float]
    of_server: bool = False


_WHEN = {"at": 0.0, "for": math.inf}
_ANY = {"share": 1.0, **_WHEN}
_MID_STREAM = {"after": 3.0, **_ANY}

FAULTS: dict[str, FaultKind] = {
    row.name: row
    for row in (
        FaultKind("freeze", "no step ends from `at` on for `for` seconds", {"at": 0.0, "for": 3.0}, True),
        FaultKind("slow", "steps take `times` as long", {"times": 3.0, **_WHEN}, True),
        FaultKind(
            "crash",
            "at `at` all connections are reset; served again after `for` seconds, all counters at 0",
            {"at": 10.0, "for": 3.0},
            True,
        ),
        FaultKind("refuse", "answered with `status`", {"status": 503.0, **_ANY}),
        FaultKind("error-body", "status 200 with an error for a body", _ANY),
        FaultKind("reset", "the connection is reset mid-stream", _MID_STREAM),
        FaultKind("cut", "the stream ends without finish reason or end mark", _MID_STREAM),
        FaultKind("error-event", "an error event ends the stream", _MID_STREAM),
        FaultKind("garbage", "an event that is no JSON, then one that is no UTF-8", _MID_STREAM),
        FaultKind(
            "stall",
            "no token for `for` seconds, but keep-alive comments",
            {"after": 3.0, "share": 1.0, "for": 5.0},
        ),
        FaultKind(
            "buffer", "a proxy in between: all events come at once, at the end", {"share": 1.0, **_WHEN}
        ),
    )
}


@dataclass(frozen=True)
class Fault:
    """One fault as it was asked for: a row's name and all its settings."""

    name: str
    settings: Mapping[str, float] = field(default_factory=dict)

    def __getitem__(self, setting: str) -> float:
        return self.settings[setting]

    def holds(self, since_start_s: float) -> bool:
        """Whether it is in force so long after the server's start."""
        at_s = self.settings.get("at", 0.0)
        lasts_s = math.inf if self.name == "stall" else self.settings.get("for", math.inf)
        return at_s <= since_start_s < at_s + lasts_s


def parse_fault(text: str) -> Fault:
    """`reset,after=5` -> Fault. Raises ValueError that says what is wrong and what there is."""
    name, *parts = (part.strip() for part in text.split(","))
    if name not in FAULTS:
        raise ValueError(f"fault {name[:40]!r} is unknown: choose from {', '.join(FAULTS)}")
    settings = dict(FAULTS[name].settings)
    for part in parts:
        setting, _, value = part.partition("=")
        if setting not in settings:
            raise ValueError(f"fault {name} has no {setting[:40]!r}: it has {', '.join(settings) or 'none'}")
        try:
            settings[setting] = float(value)
        except ValueError:
            settings[setting] = math.nan
        if not 0 <= settings[setting] < math.inf or (setting == "share" and settings[setting] > 1):
            raise ValueError(f"fault {name}: {part[:40]!r} must be a number from 0 up, a share at most 1")
    if name == "refuse" and not 400 <= settings["status"] <= 599:
        raise ValueError("fault refuse: status must be from 400 to 599")
    return Fault(name, settings)


@dataclass(frozen=True)
class Faults:
    """All faults of a server, by what they strike. Times are seconds since its start."""

    listed: tuple[Fault, ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Faults:
        """Raises ValueError as `parse_fault` does."""
        return cls(tuple(parse_fault(text) for text in texts))

    def of_request(self, number: int, since_start_s: float) -> Fault | None:
        """The fault that strikes request `number` (from 0), if any: the first that holds.

        A share of 0.1 strikes every tenth request, evenly spread, the same ones every time.
        """
        for fault in self.listed:
            if FAULTS[fault.name].of_server or not fault.holds(since_start_s):
                continue
            share = fault["share"]
            if math.floor((number + 1) * share + 1e-9) > math.floor(number * share + 1e-9):
                return fault
        return None

    def frozen_until_s(self, since_start_s: float) -> float:
        """The end of the freeze that holds now, or now."""
        ends = [f["at"] + f["for"] for f in self.listed if f.name == "freeze" and f.holds(since_start_s)]
        return max(ends, default=since_start_s)

    def slowness(self, since_start_s: float) -> float:
        """What a step's time is multiplied by now."""
        return math.prod(f["times"] for f in self.listed if f.name == "slow" and f.holds(since_start_s))

    @property
    def crashes(self) -> list[Fault]:
        """The crashes to come, the first one first."""
        return sorted((f for f in self.listed if f.name == "crash"), key=lambda fault: fault["at"])
