"""Rows of a Locust run -> its totals: which rows are requests, and what their times say without failures.

Which rows are requests. Tests of LLM servers fire TTFT, TPOT and the like as Locust events; those are rows
like any other and enter Locust's "Aggregated". A row counts as a request
  1. where types are chosen (--request-types): if its type is among them;
  2. else, not if its name or type holds a metric's name (METRIC_WORDS) as a word, outside a URL's path;
  3. else, if its type is an HTTP method or a known protocol (PROTOCOLS);
  4. else, a type of the test's own: only where no row of the run passes 3.

What failures do. Locust's averages and percentiles hold the failed requests with the time they took. With N
requests, F of them failed, and f = F/N:
  * average of the successes: between (N avg - F max) / (N-F) and (N avg - F min) / (N-F);
  * percentile p with a failure counting as infinite: not met when f > 1-p, else between the file's own p and
    its p+f (the failures may have been the slowest, or the fastest).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from analysis.locust_csv import StatsRow

HTTP_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE"})
PROTOCOLS = HTTP_METHODS | frozenset(
    "GRPC WS WSS WEBSOCKET SOCKETIO SSE MQTT KAFKA AMQP REDIS SQL POSTGRES MYSQL MONGODB QDRANT MILVUS DNS "
    "TCP UDP XMLRPC GRAPHQL RSOCKET THRIFT SMTP FTP LDAP PLAYWRIGHT SELENIUM".split()
)
METRIC_WORDS = (
    r"ttft|tpot|itl|tbt|ttlt|ttfb|tps|"
    r"(?:first|last|next|1st)[ _-]*(?:output[ _-]*)?(?:token|chunk|byte)s?|"
    r"inter[ _-]*(?:token|chunk)|time[ _-]*(?:per|between)[ _-]*(?:output[ _-]*)?tokens?|"
    r"tokens?[ _-]*(?:/|per)[ _-]*(?:s|sec|second)|(?:input|output|prompt|completion|total)[ _-]*tokens?|"
    r"token[ _-]*(?:count|latency)|queue[ _-]*time|prefill(?:[ _-]*time)?|decode(?:[ _-]*time)?|metrics?"
)
METRIC = re.compile(rf"(?<![a-z0-9/])(?:{METRIC_WORDS})(?![a-z0-9/])", re.IGNORECASE)

Origin = Literal["aggregated", "one row", "several rows", "none"]


@dataclass(frozen=True)
class Bounds:
    """A figure known to lie between two values, both included; the same twice when it is known."""

    low: float
    high: float


@dataclass(frozen=True)
class Totals:
    """Of the request rows only. Times in ms, failures among them; percentiles rounded by Locust.

    `percentiles_ms` by level: bounds, since those of several rows cannot be joined. `adjusted_ms`: the same
    with failures as infinite, None where that is not met. `origin`: where the percentiles come from.
    """

    requests: int
    failures: int
    average_ms: float | None
    min_ms: float | None
    max_ms: float | None
    successes_average_ms: Bounds | None
    percentiles_ms: Mapping[float, Bounds]
    adjusted_ms: Mapping[float, Bounds | None]
    origin: Origin

    @property
    def failed_ratio(self) -> float | None:
        return self.failures / self.requests if self.requests else None


def split_requests(
    rows: Sequence[StatsRow], chosen_types: Collection[str] | None = None
) -> tuple[list[StatsRow], list[StatsRow]]:
    """Request rows, and rows that are metric events, each in their order."""
    if chosen_types is not None:
        chosen = {name.strip().upper() for name in chosen_types}
        picked = [row.type.strip().upper() in chosen for row in rows]
    else:
        likely = [not is_metric(row) for row in rows]
        known = [ok and row.type.strip().upper() in PROTOCOLS for ok, row in zip(likely, rows, strict=True)]
        picked = known if any(known) else likely
    return (
        [row for row, ok in zip(rows, picked, strict=True) if ok],
        [row for row, ok in zip(rows, picked, strict=True) if not ok],
    )


def is_metric(row: StatsRow) -> bool:
    """Whether a row is named after a metric. In "/v1/ttft" the word is part of a path and says nothing."""
    return bool(METRIC.search(row.type) or METRIC.search(row.name))


def totals(requests: Sequence[StatsRow], aggregated: StatsRow | None) -> Totals:
    """Totals of request rows; percentiles from Locust's total where it holds exactly these requests."""
    timed = [row for row in requests if row.requests]
    count, failures = sum(row.requests for row in timed), sum(row.failures for row in timed)
    origin: Origin = "none"
    percentiles: dict[float, Bounds] = {}
    if aggregated is not None and timed and aggregated.requests == count:
        origin, percentiles = "aggregated", _exact(aggregated)
    elif len(timed) == 1:
        origin, percentiles = "one row", _exact(timed[0])
    elif timed:
        origin, percentiles = "several rows", _between(timed)
    return Totals(
        count,
        failures,
        _weighted((row.average_ms, row.requests) for row in timed),
        min((row.min_ms for row in timed if row.min_ms is not None), default=None),
        max((row.max_ms for row in timed if row.max_ms is not None), default=None),
        _successes_average(timed),
        percentiles,
        _adjusted(percentiles, failures / count if count else 0.0),
        origin,
    )


def _exact(row: StatsRow) -> dict[float, Bounds]:
    return {level: Bounds(value, value) for level, value in row.percentiles_ms.items()}


def _between(rows: Sequence[StatsRow]) -> dict[float, Bounds]:
    """A percentile of all lies between the lowest and the highest of the rows' own."""
    levels = set.intersection(*(set(row.percentiles_ms) for row in rows))
    return {
        level: Bounds(min(times), max(times))
        for level in sorted(levels)
        if (times := [row.percentiles_ms[level] for row in rows])
    }


def _adjusted(percentiles: Mapping[float, Bounds], failed: float) -> dict[float, Bounds | None]:
    adjusted: dict[float, Bounds | None] = {}
    for level, at_level in percentiles.items():
        reached = level + failed * 100
        above = next((bounds for upper, bounds in percentiles.items() if upper >= reached - 1e-9), None)
        adjusted[level] = Bounds(at_level.low, above.high) if above and reached <= 100 + 1e-9 else None
    return adjusted


def _weighted(values: Iterable[tuple[float | None, int]]) -> float | None:
    known = [(value, weight) for value, weight in values if value is not None and weight]
    weights = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / weights if weights else None


def _successes_average(rows: Sequence[StatsRow]) -> Bounds | None:
    """Bounds of the mean over all successes: each row's own, weighted by its successes."""
    low = high = 0.0
    successes = 0
    for row in rows:
        good = row.requests - row.failures
        if not good:
            continue
        if row.average_ms is None or row.min_ms is None or row.max_ms is None:
            return None
        sum_ms = row.requests * row.average_ms
        low += max(sum_ms - row.failures * row.max_ms, good * row.min_ms)
        high += min(sum_ms - row.failures * row.min_ms, good * row.max_ms)
        successes += good
    return Bounds(low / successes, max(low, high) / successes) if successes else None
