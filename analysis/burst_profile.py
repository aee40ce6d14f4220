"""Everything that is measured of how bursty one stream of arrivals is, with the reasons for what is not.

    times, window, tokens  ──►  profile()  ──►  Profile: figures, Poisson bands, reasons, a curve over scales

A figure whose scale does not fit the window, or whose stamps are too coarse, is None, and `unmeasured` says
why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis import burstiness as measure
from analysis import poisson_band as band
from analysis.numbers import count, plain, seconds
from analysis.wording_burst import UNMEASURED

FloatArray = NDArray[np.float64]
Band = tuple[float, float]

LOCAL_WINDOWS_S = (60, 300)
LAGS = (1, 2, 5, 10, 30)
LEAST_WINDOWS = 4
"""A scale is measured up to a quarter of the window: over fewer than 4 windows a variance says nothing."""

MOST_WINDOWS = 20_000_000
"""More windows than this are not counted: a stray stamp years away would fill the memory."""

LONGEST_STEP = 0.5
"""Stamps this many mean gaps apart or more leave no gaps to measure: rounding to a step adds step^2 / 6 to
the variance of the gaps, 4 % of a Poisson stream's at half a mean gap."""

LEAST_STEPS_IN_WINDOW = 3
WHOLE_STEPS_BELOW = 30
"""Windows of coarse stamps: from 3 steps on, and whole steps below 30, else some windows hold one more."""

CURVE_DIGITS = (1.0, 2.0, 5.0)


@dataclass(frozen=True, eq=False)
class Counts:
    """Arrivals, or their tokens, per window: one array for each scale (s) that can be measured."""

    of: Mapping[int, FloatArray]

    def by_scale(self, measured: Callable[..., float | None], *unit: float) -> dict[int, float | None]:
        """The measure at each of WINDOWS_S; None where it cannot be measured."""
        return {
            scale: measured(self.of[scale], *unit) if scale in self.of else None
            for scale in measure.WINDOWS_S
        }


@dataclass(frozen=True)
class TokenProfile:
    """The measures of counts with each arrival weighted by its tokens; dicts go by scale in seconds."""

    total: float
    idc: dict[int, float | None]
    allan_factor: dict[int, float | None]
    peak_over_mean: dict[int, float | None]
    poisson_95: dict[str, dict[int, Band | None]]


@dataclass(frozen=True, eq=False)
class Curve:
    """IDC and Allan factor over scales, as arrays of one length (NaN where unknown), each with its band."""

    scale_s: FloatArray
    idc: FloatArray
    allan_factor: FloatArray
    idc_band: FloatArray
    allan_band: FloatArray


@dataclass(frozen=True)
class Profile:
    """What `profile` found; None where there is too little to say, and `unmeasured` has the reason.

    n arrivals at `rate_rps` (req/s) over `window_s`; `stamp_step_s` is the step of coarse stamps, else None.
    `cv`, `goh_barabasi_b` and `memory` are of the gaps, `local_cv` by window in seconds; `idc`,
    `allan_factor` and `peak_over_mean` of the counts, by scale in seconds; `count_acf` of the counts per
    second and `gap_acf` of the gaps, by lag. `tokens`: by kind of token. `poisson_95`: what a Poisson stream
    of the same size shows, by measure (and by scale). `unmeasured`: measure or scale -> reason.
    """

    n: int
    rate_rps: float
    window_s: float
    stamp_step_s: float | None
    cv: float | None
    local_cv: dict[int, float | None]
    idc: dict[int, float | None]
    allan_factor: dict[int, float | None]
    peak_over_mean: dict[int, float | None]
    count_acf_1s: float | None
    count_acf: dict[int, float | None]
    gap_acf: dict[int, float | None]
    goh_barabasi_b: float | None
    memory: float | None
    tokens: dict[str, TokenProfile] = field(default_factory=dict)
    poisson_95: dict[str, object] = field(default_factory=dict)
    unmeasured: dict[str, str] = field(default_factory=dict)


def profile(
    times_s: ArrayLike,
    window_s: float,
    tokens: Mapping[str, ArrayLike] | None = None,
    stamp_step_s: float | None = None,
) -> Profile:
    """All measures of the arrivals in [0, window). Times need not be sorted; those outside are left out.

    `tokens` has one number for each arrival under each name. `stamp_step_s` is the step to which the stamps
    are rounded, where that is coarse. Raises ValueError when the window is not longer than 0.
    """
    if not window_s > 0:
        raise ValueError(f"the window must be longer than 0 s, not {window_s}")
    given = np.asarray(times_s, dtype=np.float64)
    order = np.argsort(given, kind="stable")
    order = order[(given[order] >= 0) & (given[order] < window_s)]
    times = given[order]
    reasons = {
        str(scale): why for scale in measure.WINDOWS_S if (why := why_not(scale, window_s, stamp_step_s))
    }
    scales = tuple(scale for scale in measure.WINDOWS_S if str(scale) not in reasons)
    counts = Counts({scale: measure.counts_per_window(times, scale, window_s) for scale in scales})
    coarse = stamp_step_s is not None
    if coarse:
        reasons["cv"] = UNMEASURED["coarse_gaps"].format(step=seconds(stamp_step_s))
    local = () if coarse else LOCAL_WINDOWS_S
    gaps = None if coarse else measure.gaps_of(times)
    cv = None if gaps is None else measure.cv_of(gaps)
    second = counts.of[1] if 1 in counts.of and len(times) else None
    count_acf = {lag: None if second is None else measure.autocorrelation(second, lag) for lag in LAGS}
    weights = {
        name: np.nan_to_num(np.asarray(w, dtype=np.float64))[order] for name, w in (tokens or {}).items()
    }
    return Profile(
        n=len(times),
        rate_rps=float(len(times) / window_s),
        window_s=float(window_s),
        stamp_step_s=stamp_step_s,
        cv=cv,
        local_cv={
            span: measure.local_cv(times, span, window_s) if span in local else None
            for span in LOCAL_WINDOWS_S
        },
        idc=counts.by_scale(measure.idc_of),
        allan_factor=counts.by_scale(measure.allan_factor_of),
        peak_over_mean=counts.by_scale(measure.peak_over_mean_of),
        count_acf_1s=count_acf[1],
        count_acf=count_acf,
        gap_acf={lag: None if gaps is None else measure.autocorrelation(gaps, lag) for lag in LAGS},
        goh_barabasi_b=None if gaps is None or cv is None else measure.b_of_cv(cv, len(gaps)),
        memory=None if gaps is None else measure.memory_of(gaps),
        tokens=_token_profiles(times, weights, window_s, scales),
        poisson_95=_bands(len(times), window_s, reasons),
        unmeasured=reasons,
    )


def why_not(scale_s: float, window_s: float, stamp_step_s: float | None) -> str | None:
    """Why counts in windows of `scale_s` say nothing here; None when they do."""
    if window_s / scale_s < LEAST_WINDOWS - measure.ON_THE_EDGE:
        return UNMEASURED["too_long"].format(scale=seconds(scale_s), window=seconds(window_s))
    if window_s / scale_s > MOST_WINDOWS:
        return UNMEASURED["too_many"].format(scale=seconds(scale_s), most=count(MOST_WINDOWS))
    if stamp_step_s is None:
        return None
    steps = scale_s / stamp_step_s
    if steps < LEAST_STEPS_IN_WINDOW - 1e-9:
        return UNMEASURED["finer_than_stamps"].format(scale=seconds(scale_s), step=seconds(stamp_step_s))
    if steps < WHOLE_STEPS_BELOW and abs(steps - round(steps)) > 1e-6:
        return UNMEASURED["uneven_steps"].format(
            scale=seconds(scale_s), steps=plain(steps), step=seconds(stamp_step_s)
        )
    return None


def coarse_step(times_s: ArrayLike) -> float | None:
    """The step (s) of stamps too coarse to measure gaps: arrivals share stamps, nearly all (99 %) are a whole
    number of steps apart to 1 %, and the step is LONGEST_STEP mean gaps or more. None otherwise.
    """
    gaps = measure.gaps_of(times_s)
    apart = gaps[gaps > 0]
    if len(gaps) < 20 or len(apart) < 5 or len(apart) == len(gaps):
        return None
    least = float(np.quantile(apart, 0.01))
    steps = np.rint(apart / least)
    if np.mean(np.abs(apart - steps * least) <= 0.01 * steps * least) < 0.99:
        return None
    step = float(f"{np.median(apart / steps):.4g}")
    return step if step >= LONGEST_STEP * float(np.mean(gaps)) else None


def curve(times_s: ArrayLike, window_s: float, stamp_step_s: float | None = None) -> Curve:
    """IDC and Allan factor at scales 1, 2, 5, 10, ... (and 60 s), from a fifth of the mean gap to a quarter
    of the window.

    The shortest scale is 10 ms at least. Scales that `why_not` refuses are left out.
    """
    times = np.asarray(times_s, dtype=np.float64)
    times = times[(times >= 0) & (times < window_s)]
    shortest = max(window_s / max(len(times), 1) / 5, 0.01)
    powers = range(math.floor(math.log10(shortest)), math.ceil(math.log10(max(window_s, shortest))) + 1)
    scales = sorted({60.0, *(round(digit * 10.0**power, 9) for power in powers for digit in CURVE_DIGITS)})
    scales = [s for s in scales if s >= shortest * 0.999 and why_not(s, window_s, stamp_step_s) is None]
    rows = []
    for scale in scales:
        counts = measure.counts_per_window(times, scale, window_s)
        if not counts.any():
            continue
        bands = (
            band.idc_band(int(counts.sum()), len(counts)),
            band.allan_band(int(counts.sum()), len(counts)),
        )
        mean = np.mean(counts)
        allan = np.mean(np.diff(counts) ** 2) / (2 * mean)
        flat = [edge for one in bands for edge in (one or (np.nan, np.nan))]
        rows.append((scale, np.var(counts, ddof=1) / mean, allan, *flat))
    found = np.array(rows, dtype=np.float64).reshape(-1, 7).T
    return Curve(found[0], found[1], found[2], found[3:5], found[5:7])


def _bands(n: int, window_s: float, reasons: Mapping[str, str]) -> dict[str, object]:
    def by_scale(of: Callable[[int, int], Band | None]) -> dict[int, Band | None]:
        return {
            scale: None if str(scale) in reasons else of(n, _windows(window_s, scale))
            for scale in measure.WINDOWS_S
        }

    gap_band = None if "cv" in reasons else band.cv_band(n - 1)
    gap_acf = None if "cv" in reasons else band.acf_band(n - 1)
    return {
        "cv": gap_band,
        "idc": by_scale(band.idc_band),
        "allan_factor": by_scale(band.allan_band),
        "peak_over_mean": by_scale(band.peak_band),
        "count_acf": None if "1" in reasons else band.acf_band(_windows(window_s, 1)),
        "gap_acf": gap_acf,
        "memory": gap_acf,
        "goh_barabasi_b": gap_band and tuple(measure.b_of_cv(edge, n - 1) for edge in gap_band),
    }


def _token_profiles(
    times: FloatArray, weights: Mapping[str, FloatArray], window_s: float, scales: tuple[int, ...]
) -> dict[str, TokenProfile]:
    known = {name: weight for name, weight in weights.items() if weight.any()}
    peaks = band.weighted_peak_bands(known, scales, window_s)
    found = {}
    for name, weight in known.items():
        n, worth, unit = len(weight), band.concentration(weight), measure.weight_unit(weight)
        counts = Counts(
            {scale: measure.counts_per_window(times, scale, window_s, weight) for scale in scales}
        )
        found[name] = TokenProfile(
            total=float(weight.sum()),
            idc=counts.by_scale(measure.idc_of, unit),
            allan_factor=counts.by_scale(measure.allan_factor_of, unit),
            peak_over_mean=counts.by_scale(measure.peak_over_mean_of),
            poisson_95={
                "idc": {scale: band.idc_band(n, _windows(window_s, scale), worth) for scale in scales},
                "allan_factor": {
                    scale: band.allan_band(n, _windows(window_s, scale), worth) for scale in scales
                },
                "peak_over_mean": {scale: peaks[name].get(scale) for scale in scales},
            },
        )
    return found


def _windows(window_s: float, scale_s: float) -> int:
    return math.floor(window_s / scale_s + measure.ON_THE_EDGE)
