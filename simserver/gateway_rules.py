"""GATEWAY: what a gateway before the server may be told to do, one row each, as given to
`--gateway`.

A rule is written as its name, its limit and its settings: `requests=10/s,burst=20,per=key`. The
words are those of NGINX (`rate`, `burst`, `queue ... timeout`), AWS API Gateway (rate, burst) and
hosted APIs (requests and tokens per minute)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

Per = Literal["key", "tenant", "ip", "all"]
Over = Literal["clamp", "refuse"]
_PER_S = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_UNITS_S = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "min": 60.0}
FULL_STATUSES = (429, 502, 503)
LATE_STATUSES = (408, 429, 502, 503, 504)


@dataclass(frozen=True)
class Rate:
    """So much per second, and `burst` at once, for each of `per`. name: a key of MEASURES."""

    name: str
    rate_per_s: float
    burst: float
    per: Per


@dataclass(frozen=True)
class Concurrency:
    """At most `limit` requests behind the gateway; `queue` more wait for `timeout_s` at most."""

    limit: int
    queue: int
    timeout_s: float
    full_status: int
    timeout_status: int


@dataclass(frozen=True)
class TokenCap:
    """The longest answer that may be asked for; what asks for more is cut to it or refused."""

    most_tokens: int
    over: Over


@dataclass(frozen=True)
class BreakerRule:
    """As gateway_limits.Breaker takes them; one of `failures` and `ratio` is given."""

    failures: int | None
    ratio: float | None
    window_s: float
    least: int
    open_s: float


@dataclass(frozen=True)
class GatewayRules:
    """The rules in force, and as they were written."""

    rates: tuple[Rate, ...] = ()
    concurrency: Concurrency | None = None
    token_cap: TokenCap | None = None
    breaker: BreakerRule | None = None
    written: tuple[str, ...] = ()


MEASURES: dict[str, Callable[[int, int], float]] = {
    "requests": lambda prompt_tokens, output_tokens: 1,
    "tokens": lambda prompt_tokens, output_tokens: prompt_tokens + output_tokens,
    "input-tokens": lambda prompt_tokens, output_tokens: prompt_tokens,
}
"""What a request takes from a rate's bucket, by its prompt and the longest answer it asks for."""


@dataclass(frozen=True)
class RuleKind:
    """A row of GATEWAY. example: a limit; settings: name -> (what holds without it, what it
    means)."""

    name: str
    summary: str
    example: str
    settings: Mapping[str, tuple[str, str]] = field(default_factory=dict)


_RATE_SETTINGS = {
    "burst": ("the rate's number", "most at once, after a pause"),
    "per": ("key", "key, tenant, ip or all: who has a bucket of its own (API key, --tenant-header, client)"),
}

GATEWAY: dict[str, RuleKind] = {
    row.name: row
    for row in (
        RuleKind(
            "max-tokens",
            "the longest answer that may be asked for",
            "1024",
            {"over": ("clamp", "clamp: lower it, as gateways do; refuse: 400, as OpenAI's API does")},
        ),
        RuleKind(
            "requests",
            "requests per s, min or h, beyond that 429 (NGINX limit_req, AWS API Gateway, RPM of APIs)",
            "10/s",
            _RATE_SETTINGS,
        ),
        RuleKind(
            "tokens",
            "prompt plus longest answer asked for, beyond that 429 (TPM as OpenAI and Azure count it)",
            "60000/min",
            _RATE_SETTINGS,
        ),
        RuleKind(
            "input-tokens", "prompts alone (Anthropic's input tokens per minute)", "40000/min", _RATE_SETTINGS
        ),
        RuleKind(
            "breaker",
            "after so many failures in a row, or this share of them, 503 for a while, then one probe",
            "5",
            {
                "open": ("10s", "how long nobody is let through before the probe"),
                "window": ("10s", "for a share such as breaker=50%: of the requests that ended so long ago"),
                "least": ("10", "for a share: of so many requests at least"),
            },
        ),
        RuleKind(
            "concurrency",
            "requests behind the gateway at once; more wait in its queue, without an answer's headers",
            "32",
            {
                "queue": ("0", "how many may wait"),
                "timeout": ("60s", "how long each may wait"),
                "full_status": (
                    "429",
                    "queue full: 429 as SGLang's gateway, 503 as Envoy, 502 as NGINX Plus",
                ),
                "timeout_status": (
                    "503",
                    "after the wait: 503 as HAProxy, 408 as vLLM's router, 502 as NGINX Plus, 504, 429",
                ),
            },
        ),
    )
}
"""A failure is what a gateway sees as one: a status of 500 and above, a connection that breaks off.
An error event in an answer with status 200 is none."""


def parse_gateway(texts: Iterable[str]) -> GatewayRules | None:
    """`["requests=10/s,burst=20", "concurrency=8"]` -> rules; None without any. Raises ValueError
    that names what is wrong."""
    written = tuple(texts)
    rates: list[Rate] = []
    found: dict[str, Concurrency | TokenCap | BreakerRule] = {}
    for text in written:
        kind, limit, given = _parts(text)
        if kind.name in MEASURES:
            rate = _rate(text, kind.name, limit, given)
            if rate in rates:
                raise ValueError(f"gateway rule {text!r} is given twice")
            rates.append(rate)
        elif kind.name in found:
            raise ValueError(f"gateway rule {text!r}: {kind.name} can be given once only")
        elif kind.name == "concurrency":
            found[kind.name] = _concurrency(text, limit, given)
        elif kind.name == "max-tokens":
            over = cast(Over, _choice(text, "over", given.get("over", "clamp"), get_args(Over)))
            found[kind.name] = TokenCap(_count(text, kind.name, limit), over)
        else:
            found[kind.name] = _breaker(text, limit, given)
    if not written:
        return None
    return GatewayRules(
        tuple(rates),
        cast("Concurrency | None", found.get("concurrency")),
        cast("TokenCap | None", found.get("max-tokens")),
        cast("BreakerRule | None", found.get("breaker")),
        written,
    )


def _parts(text: str) -> tuple[RuleKind, str, dict[str, str]]:
    """A rule's kind, its limit and the settings given with it."""
    (name, _, limit), *settings = (part.strip().partition("=") for part in text.split(","))
    if name not in GATEWAY:
        raise ValueError(f"gateway rule {name[:40]!r} is unknown: choose from {', '.join(GATEWAY)}")
    kind = GATEWAY[name]
    if not limit:
        raise ValueError(f"gateway rule {text[:80]!r}: give a limit, such as {name}={kind.example}")
    given = {}
    for setting, _, value in settings:
        if setting not in kind.settings:
            raise ValueError(
                f"gateway rule {name} has no {setting[:40]!r}: it has {', '.join(kind.settings) or 'none'}"
            )
        given[setting] = value
    return kind, limit, given


def _rate(text: str, name: str, limit: str, given: Mapping[str, str]) -> Rate:
    amount, _, unit = limit.partition("/")
    per_s = _PER_S.get(unit)
    if per_s is None:
        raise ValueError(f"gateway rule {text!r}: write the rate as 10/s, 600/min or 9000/h")
    number = _number(text, name, amount)
    burst = _number(text, "burst", given["burst"]) if "burst" in given else max(1.0, number)
    if burst < 1:
        raise ValueError(f"gateway rule {text!r}: burst must be at least 1, or nothing is ever let in")
    per = cast(Per, _choice(text, "per", given.get("per", "key"), get_args(Per)))
    return Rate(name, number / per_s, burst, per)


def _concurrency(text: str, limit: str, given: Mapping[str, str]) -> Concurrency:
    full = _choice(text, "full_status", given.get("full_status", "429"), map(str, FULL_STATUSES))
    late = _choice(text, "timeout_status", given.get("timeout_status", "503"), map(str, LATE_STATUSES))
    return Concurrency(
        _count(text, "concurrency", limit),
        _count(text, "queue", given.get("queue", "0"), least=0),
        _seconds(text, "timeout", given.get("timeout", "60s")),
        int(full),
        int(late),
    )


def _breaker(text: str, limit: str, given: Mapping[str, str]) -> BreakerRule:
    ratio = _number(text, "breaker", limit.removesuffix("%")) / 100 if limit.endswith("%") else None
    if ratio is not None and ratio > 1:
        raise ValueError(f"gateway rule {text!r}: a share is 100% at most")
    if ratio is None and ("window" in given or "least" in given):
        raise ValueError(f"gateway rule {text!r}: window and least belong to a share, such as breaker=50%")
    return BreakerRule(
        _count(text, "breaker", limit) if ratio is None else None,
        ratio,
        _seconds(text, "window", given.get("window", "10s")),
        _count(text, "least", given.get("least", "10")),
        _seconds(text, "open", given.get("open", "10s")),
    )


def _number(text: str, name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise ValueError(f"gateway rule {text!r}: {name} must be a number above 0")
    return number


def _count(text: str, name: str, value: str, least: int = 1) -> int:
    if not value.isdecimal() or int(value) < least:
        raise ValueError(f"gateway rule {text!r}: {name} must be a whole number of at least {least}")
    return int(value)


def _seconds(text: str, name: str, value: str) -> float:
    """`5`, `5s`, `500ms` or `2m` in seconds."""
    parts = re.fullmatch(r"([0-9.]+)([a-z]*)", value)
    unit_s = _UNITS_S.get(parts[2]) if parts else None
    if parts is None or unit_s is None:
        raise ValueError(f"gateway rule {text!r}: write {name} as 5s, 500ms or 2m")
    return _number(text, name, parts[1]) * unit_s


def _choice(text: str, name: str, value: str, choices: Iterable[str]) -> str:
    known = list(choices)
    if value not in known:
        raise ValueError(f"gateway rule {text!r}: {name} must be one of {', '.join(known)}")
    return value
