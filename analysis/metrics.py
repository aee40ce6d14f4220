"""What is measured per request, and how it is summed up: METRICS, exact quantiles and their intervals.

Quantiles are numpy's default ("linear", type 7): with the n values sorted, position (n - 1) q, interpolated
between neighbours. They are taken over the raw records, never over buckets, so none can lie above the
maximum. Latencies are taken over successes; beside each stands the failure-adjusted figure, in which a
failure is infinitely slow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import pandas as pd

QUANTILES: dict[str, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99_9": 0.999}
_TAIL = 0.025  # on each side of a 95 % interval


@dataclass(frozen=True)
class Metric:
    """One figure per request.

    `over`: whose values count, "succeeded" requests or all that were "sent". `since`: the column with the
    moment that it counts from, where it is the time to one moment of the answer (so that an unfinished
    request has at least its age); None for rates and gaps.
    """

    key: str
    label: str
    unit: str
    what: str
    column: str
    over: Literal["succeeded", "sent"] = "succeeded"
    since: str | None = None
    better: Literal["lower", "higher"] = "lower"


def _metric(
    key: str,
    label: str,
    what: str,
    unit: str = "s",
    over: Literal["succeeded", "sent"] = "succeeded",
    since: str | None = None,
) -> Metric:
    return Metric(key, label, unit, what, column=key, over=over, since=since)


METRICS: tuple[Metric, ...] = (
    _metric(
        "ttft_s",
        "TTFT",
        "from just before the request is sent to its first generated output",
        since="sent_at_s",
    ),
    _metric("tpot_s", "TPOT", "(last token - first token) / (output tokens - 1); none below two tokens"),
    _metric("e2e_s", "E2E", "from just before the request is sent to its last output", since="sent_at_s"),
    _metric(
        "answer_ttft_s",
        "answer TTFT",
        "from sending to the first output that is not reasoning",
        since="sent_at_s",
    ),
    _metric(
        "ttft_from_schedule_s",
        "TTFT from schedule",
        "from the scheduled moment to the first output: send lag and connecting are in it",
        since="scheduled_at_s",
    ),
    _metric(
        "e2e_from_schedule_s",
        "E2E from schedule",
        "from the scheduled moment to the last output: send lag and connecting are in it",
        since="scheduled_at_s",
    ),
    _metric("normalized_latency_s", "normalized latency", "E2E per output token", unit="s/token"),
    _metric("normalized_ttft_s", "normalized TTFT", "TTFT per input token", unit="s/token"),
    _metric(
        "gap_p99_s", "chunk gap p99", "the p99 of each request's gaps between streamed events (not per token)"
    ),
    _metric("connect_s", "connect", "time to open a connection, where a new one was needed", over="sent"),
    _metric("tls_s", "TLS handshake", "the part of connecting that TLS took", over="sent"),
    _metric(
        "send_lag_s",
        "send lag",
        "sent minus scheduled, without connecting: the load generator's own fault",
        over="sent",
    ),
    _metric(
        "read_lag_s",
        "read lag",
        "how long the first or last token of a request lay received before it was handled",
        over="sent",
    ),
)
BY_KEY: dict[str, Metric] = {metric.key: metric for metric in METRICS}


@dataclass(frozen=True)
class Quantile:
    """A quantile with its 95 % interval.

    None = unknown. `not_met`: the quantile falls on a failure, so no finite time holds. `n_too_small`: below
    the least n at which an interval exists, and not to be shown as a figure.
    """

    value: float | None
    low: float | None
    high: float | None
    n_too_small: bool
    not_met: bool = False


@dataclass(frozen=True)
class Distribution:
    """n, mean, min, max and QUANTILES of one metric; all None at n = 0."""

    n: int
    mean: float | None
    min: float | None
    max: float | None
    quantiles: dict[str, Quantile]


def exact_quantile(ordered: np.ndarray, q: float) -> float:
    """The q-quantile (numpy's "linear") of values sorted in ascending order, +inf allowed; nan when there are
    none.

    Between a finite value and +inf it is +inf: a quantile that rests on a failure is not met.
    """
    if len(ordered) == 0:
        return math.nan
    position = (len(ordered) - 1) * q
    below = math.floor(position)
    share = position - below
    low, high = float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
    if share == 0 or low == high:
        return low
    return min(low + share * (high - low), high)


def least_n(q: float) -> int:
    """The fewest values at which a two-sided 95 % order-statistic interval of the q-quantile exists.

    The largest of n values lies below the quantile with probability q^n, which must not exceed 2.5 %
    (p95 72, p99 368, p99.9 3,688).
    """
    return math.ceil(math.log(_TAIL) / math.log(max(q, 1 - q)))


@lru_cache(maxsize=1024)
def interval_ranks(n: int, q: float) -> tuple[int, int] | None:
    """1-based ranks of the order statistics that bound the q-quantile with 95 % confidence; None when n is
    too small.

    The number of values below the quantile is binomial(n, q); ranks are its 2.5 % quantile and its 97.5 %
    quantile + 1 (no assumption about the distribution, but independent requests).
    """
    if n < 1:
        return None
    deviation = math.sqrt(n * q * (1 - q))
    first = max(0, math.floor(n * q - 12 * deviation - 20))
    last = min(n, math.ceil(n * q + 12 * deviation + 20))
    k = np.arange(first, last)
    steps = np.log((n - k) / (k + 1)) + math.log(q / (1 - q))  # log of P(k + 1) / P(k)
    log_mass = np.concatenate(([0.0], np.cumsum(steps)))
    mass = np.exp(log_mass - log_mass.max())
    below = np.cumsum(mass) / mass.sum()
    low = first + int(np.searchsorted(below, _TAIL))
    high = first + int(np.searchsorted(below, 1 - _TAIL)) + 1
    return (low, high) if low >= 1 and high <= n else None


def quantile_of(ordered: np.ndarray, q: float) -> Quantile:
    """The q-quantile of sorted values with its interval. The median is shown from one value on."""
    value = exact_quantile(ordered, q)
    ranks = interval_ranks(len(ordered), q)
    low, high = (float(ordered[rank - 1]) for rank in ranks) if ranks else (math.nan, math.nan)
    return Quantile(
        value=_finite(value),
        low=_finite(low),
        high=_finite(high),
        n_too_small=len(ordered) == 0 or (q > 0.5 and len(ordered) < least_n(q)),
        not_met=math.isinf(value),
    )


def distribution(values: np.ndarray) -> Distribution:
    """Sum up values; NaN (unknown) is left out, +inf (a failure) counts."""
    return distribution_of(np.sort(values[~np.isnan(values)]))


def distribution_of(ordered: np.ndarray) -> Distribution:
    """Sum up known values in ascending order."""
    n = len(ordered)
    return Distribution(
        n=n,
        mean=_finite(float(ordered.mean())) if n else None,
        min=_finite(float(ordered[0])) if n else None,
        max=_finite(float(ordered[-1])) if n else None,
        quantiles={name: quantile_of(ordered, q) for name, q in QUANTILES.items()},
    )


def values_of(requests: pd.DataFrame, metric: Metric) -> np.ndarray:
    """The metric's values over the requests that it counts, NaN where unknown."""
    counted = (
        requests["outcome"] == "succeeded"
        if metric.over == "succeeded"
        else requests["outcome"] != "not_sent"
    )
    return requests.loc[counted, metric.column].to_numpy(dtype=float, na_value=np.nan)


def adjusted_values_of(requests: pd.DataFrame, metric: Metric) -> np.ndarray:
    """The successes' values and +inf for every request that was decided without succeeding.

    Requests that the run itself cut off are in neither: nobody knows how they would have ended.
    """
    return np.concatenate([values_of(requests, metric), np.full(failures_in(requests), math.inf)])


def failures_in(requests: pd.DataFrame) -> int:
    """How many requests were decided without succeeding."""
    return int((decided(requests) & (requests["outcome"] != "succeeded")).sum())


def decided(requests: pd.DataFrame) -> pd.Series[bool]:
    """True for requests with an end of their own: succeeded, failed, rejected, or not sent through our own
    fault.

    False for those that the run itself cancelled or never sent (drain limit, stop).
    """
    by_run = requests["whose"] == "run"
    cancelled = (requests["outcome"] == "cancelled") & (by_run | requests["whose"].isna())
    return ~(cancelled | ((requests["outcome"] == "not_sent") & by_run))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
