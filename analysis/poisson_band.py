"""What a Poisson stream of the same size would show: 95 % bands for the measures of burstiness.

Given their number n, the arrivals of a Poisson stream over [0, T) are n independent uniform moments. So the
bands depend on n (with weights: on the weights) and on the number K of windows alone, never on the rate.

    IDC            mean 1, variance 2 / (K - 1) (1 - q)              gamma with these two; for unit weights
                                                                     Pearson's chi-square with K - 1 / (K - 1)
    Allan factor   mean 1, variance (1 - q) (3 K - 4) / (K - 1)^2 + q (K - 2) / (2 (K - 1)^2)     gamma
    CV             CV^2 of N gaps: N^2 G / (N - 1) - N / (N - 1), G Greenwood's statistic (Moran 1947)
    peak / mean    P(max <= m) = F(m)^K, F Poisson of mean n / K     weighted: simulated
    ACF            -1 / K +- 1.96 / sqrt(K)                          (Bartlett 1946; mean: Moran 1948)

with q = sum w^4 / (sum w^2)^2, which is 1 / n for unit weights. The means and variances of the IDC and the
Allan factor are exact: both are sums over pairs of arrivals that are uncorrelated under uniform moments. The
gamma with an exact mean and variance is Box's approximation of a sum of squares (Ann. Math. Stat. 25, 1954).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Band = tuple[float, float]

Z = 1.959964
"""Normal quantile of 97.5 %."""

LEAST_PAIRS = 3.0
"""Fewest pairs of arrivals expected to share a window, over all windows: below it chance alone decides."""

STREAMS = 39
"""Simulated streams: a further one lies within their extremes in 38 of 40 cases, 95 % (Barnard 1963)."""

MOST_SIMULATED_S = 1_000_000
EXACT_SHAPE = 100.0


def idc_band(n: int, windows: int, concentration: float | None = None) -> Band | None:
    """Of the IDC over `windows`; `concentration` is q of weighted arrivals. None with too few arrivals."""
    q = 1 / n if concentration is None and n else concentration
    if q is None or windows < 2 or n * (n - 1) / 2 / windows < LEAST_PAIRS or q >= 1:
        return None
    return gamma_band(1.0, 2 / (windows - 1) * (1 - q))


def allan_band(n: int, windows: int, concentration: float | None = None) -> Band | None:
    """Of the Allan factor over `windows`; `concentration` as above. None where there is too little."""
    q = 1 / n if concentration is None and n else concentration
    if q is None or windows < 2 or n * (n - 1) / 2 / windows < LEAST_PAIRS or q >= 1:
        return None
    pairs = (1 - q) * (3 * windows - 4) / (windows - 1) ** 2
    return gamma_band(1.0, pairs + q * (windows - 2) / (2 * (windows - 1) ** 2))


def concentration(weights: FloatArray) -> float:
    """q = sum w^4 / (sum w^2)^2: one over how many arrivals the weights are worth. 1 when all are 0."""
    squares = float(np.sum(weights**2))
    return float(np.sum(weights**4)) / squares**2 if squares else 1.0


def cv_band(gaps: int) -> Band | None:
    """Of the CV of the gaps. None below 20 gaps.

    With G = sum of the squared shares of N gaps, E(G) = 2 / (N + 1) and
    Var(G) = 4 (N - 1) / ((N + 1)^2 (N + 2) (N + 3)) (Moran, JRSS B 9, 1947). CV^2 is skewed to the right;
    its logarithm is nearly normal.
    """
    n = gaps
    if n < 20:
        return None
    mean = n / (n + 1)
    variance = n**4 / (n - 1) ** 2 * 4 * (n - 1) / ((n + 1) ** 2 * (n + 2) * (n + 3))
    spread = math.log1p(variance / mean**2)
    middle = math.log(mean) - spread / 2
    low, high = (math.exp((middle + sign * Z * math.sqrt(spread)) / 2) for sign in (-1, 1))
    return low, high


def peak_band(n: int, windows: int) -> Band | None:
    """Of peak / mean of the counts: where F(m)^K passes 2.5 % and 97.5 %. None without arrivals or windows.

    The counts of a stream of known size are not quite independent; their maximum is a little lower than this.
    """
    if n == 0 or windows < 2:
        return None
    mean = n / windows
    first = max(0, math.floor(mean - 12 * math.sqrt(mean)))
    values = np.arange(first, math.ceil(mean + 12 * math.sqrt(mean)) + 40, dtype=np.float64)
    steps = np.concatenate(([0.0], np.cumsum(np.log(mean / values[1:]))))
    log_mass = first * math.log(mean) - mean - math.lgamma(first + 1) + steps
    below = np.minimum(np.cumsum(np.exp(log_mass)), 1.0) ** windows
    low, high = (float(values[np.searchsorted(below, share)]) / mean for share in (0.025, 0.975))
    return low, high


def weighted_peak_bands(
    weights: dict[str, FloatArray], scales: tuple[int, ...], duration_s: float
) -> dict[str, dict[int, Band]]:
    """Of peak / mean of weights, by name and scale: the extremes of STREAMS simulated streams (seed 0).

    Each puts the arrivals, with weights of one length, at uniform moments; seconds are drawn and added up, so
    that the scales must be whole seconds. Left out: scales with fewer than 2 windows, and all of them beyond
    MOST_SIMULATED_S.
    """
    rng, seconds = np.random.default_rng(0), int(duration_s + 1e-9)
    usable = [scale for scale in scales if seconds // scale >= 2]
    peaks: dict[str, dict[int, list[float]]] = {name: {scale: [] for scale in usable} for name in weights}
    arrivals = len(next(iter(weights.values()), ()))
    for _ in range(STREAMS if usable and seconds <= MOST_SIMULATED_S else 0):
        place = rng.integers(0, seconds, arrivals)
        for name, weight in weights.items():
            fine = np.bincount(place, weight, minlength=seconds)
            for scale in usable:
                counts = fine[: seconds // scale * scale].reshape(-1, scale).sum(axis=1)
                if counts.any():
                    peaks[name][scale].append(float(counts.max() / counts.mean()))
    return {
        name: {scale: (min(found), max(found)) for scale, found in by_scale.items() if found}
        for name, by_scale in peaks.items()
    }


def acf_band(values: int) -> Band | None:
    """Of the autocorrelation of this many independent counts or gaps, at any lag. None below 8."""
    if values < 8:
        return None
    return -1 / values - Z / math.sqrt(values), -1 / values + Z / math.sqrt(values)


def gamma_band(mean: float, variance: float) -> Band:
    """The 2.5 % and 97.5 % quantiles of the gamma distribution with this mean and variance."""
    shape, scale = mean**2 / variance, variance / mean
    return gamma_quantile(shape, 0.025, -Z) * scale, gamma_quantile(shape, 0.975, Z) * scale


def gamma_quantile(shape: float, share: float, z: float) -> float:
    """Of the gamma distribution with scale 1; `z` is the normal quantile of `share`.

    By bisection on the series of the incomplete gamma function (Abramowitz and Stegun 6.5.29); for a large
    shape by Wilson and Hilferty (PNAS 17, 1931), whose error is then below 0.01 %.
    """
    cube = 1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape))
    if shape > EXACT_SHAPE:
        return shape * cube**3
    low, high = 0.0, shape + 20 * math.sqrt(shape) + 20
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _gamma_share(shape, middle) < share else (low, middle)
    return (low + high) / 2


def _gamma_share(shape: float, x: float) -> float:
    """P(shape, x) = x^a e^-x / Gamma(a + 1) (1 + x / (a + 1) + x^2 / ((a + 1) (a + 2)) + ...)."""
    if x <= 0:
        return 0.0
    term = total = 1.0
    k = shape
    while term > 1e-12 * total:
        k += 1
        term *= x / k
        total += term
    return total * math.exp(shape * math.log(x) - x - math.lgamma(shape + 1))
