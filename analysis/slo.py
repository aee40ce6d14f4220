"""Service level objectives: the grammar, and how much of a run met them.

    ttft<1s,tpot<50ms            per request, jointly: a request meets the SLO when it meets every limit
    ttft<1s,tpot<50ms@99%        ... and at least 99 % of the decided requests must (this gates)
    p95(ttft)<1s                 a percentile over the run, a failure counting as infinitely slow (this gates)
    p95(e2e)<3s where output_tokens<=200    either kind, about some requests only (analysis.conditions)

Attainment = met / decided (metrics.decided). A request that no limit is about is in no count. Requests that
the run cut off are left out unless they had already missed a limit. On the limit is met. A request without a
TPOT (one token) is judged on the other limits. What was not measured is never met: such a request is left
out likewise, and of a run that measured a limit for no success nothing is decided. What is left out so can
decide a gate: it holds only when it would hold had all of them missed, and is missed only when it would be
had all of them met; in between it cannot be judged.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.conditions import (
    QUOTED,
    Condition,
    ConditionError,
    concerned,
    parse_conditions,
    split_outside_quotes,
)
from analysis.metrics import METRICS, Metric, adjusted_values_of, decided, exact_quantile
from analysis.unmeasured import never_measured, unmeasured

SLO_METRICS: dict[str, Metric] = {
    metric.key.removesuffix("_s"): metric
    for metric in METRICS
    if metric.over == "succeeded" and metric.unit == "s" and metric.better == "lower"
}
_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_LIMIT = re.compile(
    r"(?:p(?P<percentile>[\d.]+)\()?(?P<metric>[a-z0-9_]+)(?P<closing>\))?"
    r"(?P<relation><=?)(?P<value>[\d.]+)(?P<unit>[a-z]*)(?:@(?P<share>[\d.]+)(?P<sign>%?))?"
)
_COMMA = re.compile(rf"({QUOTED})|,")
_WHERE = re.compile(rf"({QUOTED})|\bwhere\b", re.IGNORECASE)
_AT = re.compile(rf"({QUOTED})|@")
_EXAMPLE = 'write it like "ttft<1s,tpot<50ms@99%" or "p95(ttft)<1s"'


Z_95 = 1.959964
"""A standard normal lies within +- this with a probability of 95 %."""


class SloError(ValueError):
    """An SLO text cannot be read; the one-line message names the part and shows a right one."""


@dataclass(frozen=True)
class Limit:
    """`metric` <= `limit_s` for each request, or for the quantile `quantile` (0-1) of the run when that is
    given; only about the requests that every condition of `where` holds for."""

    text: str
    metric: Metric
    limit_s: float
    quantile: float | None = None
    where: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Slo:
    """`per_request` limits hold jointly; `share` (0-1) of the decided requests must meet them, None = only
    reported."""

    text: str
    per_request: tuple[Limit, ...]
    share: float | None
    percentiles: tuple[Limit, ...]

    @property
    def gates(self) -> bool:
        """Whether missing it changes the exit code."""
        return self.share is not None or bool(self.percentiles)

    @property
    def attained_by(self) -> tuple[Limit, ...]:
        """The limits that each request is held to; of an SLO with percentiles alone, their times."""
        return self.per_request or self.percentiles

    def ttft_limit_s(self) -> float | None:
        """The tightest limit on TTFT, per request or percentile; None without one."""
        limits = [row.limit_s for row in self.per_request + self.percentiles if row.metric.key == "ttft_s"]
        return min(limits, default=None)


@dataclass(frozen=True)
class Attainment:
    """How many of the decided requests met the SLO, with the Wilson 95 % interval of the ratio.

    `unmeasured` of those left out ended by themselves and lack what a limit is about.
    The interval takes requests as independent; requests of one burst are alike, so the truth is wider.
    """

    met: int
    decided: int
    left_out: int
    unmeasured: int
    ratio: float | None
    low: float | None
    high: float | None

    def holds(self, share: float) -> bool | None:
        """Whether at least `share` (0-1) met it; None when that hangs on what was not measured."""
        total = self.decided + self.unmeasured
        if total and self.met / total >= share:
            return True
        return False if total and (self.met + self.unmeasured) / total < share else None


@dataclass(frozen=True)
class PercentileResult:
    """One percentile limit: the failure-adjusted value (None = infinite or unknown) and whether it was
    met."""

    limit: Limit
    value_s: float | None
    n: int
    met: bool | None


def parse_slo(text: str) -> Slo:
    """Read an SLO. Raises SloError for anything that is not exactly one; blanks and case do not matter, but
    in the names of a condition."""
    per_request: list[Limit] = []
    percentiles: list[Limit] = []
    shares: set[float] = set()
    for part in split_outside_quotes(_COMMA, text):
        plain, where = _parted(text, part)
        found = _LIMIT.fullmatch(plain)
        if not found or bool(found["percentile"]) != bool(found["closing"]):
            raise SloError(f"SLO {text!r}: cannot read {plain!r}; {_EXAMPLE}")
        limit = _limit_from(text, plain, found, where)
        (per_request if limit.quantile is None else percentiles).append(limit)
        if found["share"] is not None:
            if limit.quantile is not None:
                raise SloError(f"SLO {text!r}: {plain!r} has both a percentile and a share; give one of them")
            shares.add(_ratio(text, plain, found["share"]))
    if len(shares) > 1:
        raise SloError(
            f"SLO {text!r}: two different shares; limits per request hold jointly, so give one share"
        )
    return Slo(text, tuple(per_request), next(iter(shares), None), tuple(percentiles))


def _parted(text: str, part: str) -> tuple[str, tuple[Condition, ...]]:
    """A limit without blanks, its share behind it wherever that stood, and its conditions."""
    halves = split_outside_quotes(_WHERE, part)
    if len(halves) > 2:
        raise SloError(f'SLO {text!r}: {part.strip()!r} says "where" twice; join conditions by "and"')
    if len(halves) == 1:
        return re.sub(r"\s+", "", part).lower(), ()
    conditions, *shares = split_outside_quotes(_AT, halves[1])
    try:
        where = parse_conditions(conditions)
    except ConditionError as error:
        raise SloError(f"SLO {text!r}: {error}") from None
    return re.sub(r"\s+", "", "@".join([halves[0], *shares])).lower(), where


def _limit_from(text: str, part: str, found: re.Match[str], where: tuple[Condition, ...]) -> Limit:
    metric = SLO_METRICS.get(found["metric"])
    if metric is None:
        raise SloError(
            f"SLO {text!r}: unknown metric {found['metric']!r}; known are {', '.join(SLO_METRICS)}"
        )
    if found["unit"] not in _UNITS_S:
        raise SloError(f"SLO {text!r}: {part!r} needs a unit, ms or s")
    limit_s = _number(text, part, found["value"]) * _UNITS_S[found["unit"]]
    if limit_s <= 0:
        raise SloError(f"SLO {text!r}: the limit in {part!r} must be above 0")
    quantile = _ratio(text, part, found["percentile"]) if found["percentile"] else None
    about = f" where {' and '.join(condition.text for condition in where)}" if where else ""
    return Limit(part.partition("@")[0] + about, metric, limit_s, quantile, where)


def _ratio(text: str, part: str, digits: str) -> float:
    percent = _number(text, part, digits)
    if not 0 < percent <= 100:
        raise SloError(f"SLO {text!r}: {digits} in {part!r} must be above 0 and at most 100 per cent")
    return percent / 100


def _number(text: str, part: str, digits: str) -> float:
    try:
        return float(digits)
    except ValueError:
        raise SloError(f"SLO {text!r}: {digits!r} in {part!r} is not a number; {_EXAMPLE}") from None


@dataclass(frozen=True)
class Judged:
    """Per request (aligned with the frame that was judged): decided, met (False where not decided),
    unmeasured (ended by itself, not decided) and concerned (some limit is, or may be, about it)."""

    decided: pd.Series[bool]
    met: pd.Series[bool]
    unmeasured: pd.Series[bool]
    concerned: pd.Series[bool]


def judge(requests: pd.DataFrame, limits: tuple[Limit, ...]) -> Judged:
    """Judge each request against all `limits` jointly."""
    own_end = decided(requests)
    succeeded = requests["outcome"] == "succeeded"
    cut_off = ~own_end & (requests["outcome"] == "cancelled")
    missed, lacking, about = (pd.Series(False, index=requests.index) for _ in range(3))
    never = False
    for limit in limits:
        among = concerned(requests, limit.where)
        value = _time_or_age(requests, limit.metric, cut_off)
        missed |= ((value > limit.limit_s) | (own_end & ~succeeded)).to_numpy() & among.yes
        lacking |= (unmeasured(requests, limit.metric).to_numpy() & among.yes) | among.unknown
        about |= among.yes | among.unknown
        never = never or never_measured(requests[among.yes] if limit.where else requests, limit.metric)
    if never:
        nothing = pd.Series(False, index=requests.index)
        return Judged(nothing, nothing, own_end & about, about)
    lacking &= ~missed & about
    is_decided = about & ((own_end & ~lacking) | (cut_off & missed))
    return Judged(is_decided, is_decided & succeeded & ~missed, lacking & own_end, about)


def _time_or_age(requests: pd.DataFrame, metric: Metric, cut_off: pd.Series[bool]) -> pd.Series[float]:
    """The metric, or the request's whole time where the moment it waits for was not seen.

    For a success that is the latest moment at which it can have come; for a request that the run cut off it
    is the age that it had reached. A cut-off request has no final rate or gap, so those are unknown, as is
    what was not measured.
    """
    value = requests[metric.column].astype(float)
    if metric.since is None:
        return value.mask(cut_off)
    age = requests["ended_at_s"] - requests[metric.since]
    if metric.column.startswith("e2e"):
        value = value.mask(cut_off)
    return value.fillna(age).mask(unmeasured(requests, metric))


def attainment(judged: Judged, among: pd.Series[bool] | None = None) -> Attainment:
    """Sum up judged requests, all of them or those where `among` is true."""
    selected = judged.decided if among is None else judged.decided & among
    total = int((judged.concerned if among is None else judged.concerned & among).sum())
    n, met = int(selected.sum()), int((judged.met & selected).sum())
    lacking = int((judged.unmeasured if among is None else judged.unmeasured & among).sum())
    low, high = wilson_interval(met, n)
    return Attainment(met, n, total - n, lacking, met / n if n else None, low, high)


def percentile_result(requests: pd.DataFrame, limit: Limit) -> PercentileResult:
    """Judge a percentile limit on the failure-adjusted values; `met` is None without any decided request, or
    when it hangs on what was not measured."""
    assert limit.quantile is not None
    among = concerned(requests, limit.where)
    unknown = int((decided(requests).to_numpy() & among.unknown).sum())
    if limit.where:
        requests = requests[among.yes]
    if never_measured(requests, limit.metric):
        return PercentileResult(limit, None, 0, None)
    values = adjusted_values_of(requests, limit.metric)
    ordered = np.sort(values[~np.isnan(values)])
    value = exact_quantile(ordered, limit.quantile)
    lacking = int(unmeasured(requests, limit.metric).sum()) + unknown
    best, worst = (
        exact_quantile(np.sort(np.append(ordered, np.full(lacking, bound))), limit.quantile)
        for bound in (0.0, math.inf)
    )
    met = True if worst <= limit.limit_s else False if best > limit.limit_s else None
    return PercentileResult(limit, value if math.isfinite(value) else None, len(ordered), met)


def wilson_interval(met: float, n: float, z: float = Z_95) -> tuple[float | None, float | None]:
    """Wilson's 95 % score interval of a ratio; (None, None) at n = 0."""
    if n == 0:
        return None, None
    p = met / n
    middle = p + z * z / (2 * n)
    spread = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low, high = max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)
    return 0.0 if met == 0 else low, 1.0 if met == n else high  # whatever the last bit says
