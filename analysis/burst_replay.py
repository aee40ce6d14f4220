"""Which of our shapes and arrivals come near a stream: candidates are drawn, measured alike and compared.

    stream ──► candidates: uniform (constant, poisson, gamma), pulse and the stream's own envelope (diurnal)
           ──► each drawn over the same time ──► the least distance of IDC at 0.1, 1, 10, 60 s
                                                 and of peak / mean at 1, 10, 60 s

The distance is over scales because gaps alone mislead: two streams with one CV can differ tenfold in IDC. The
shortest scale tells clumps within a moment (gamma arrivals) from pulses of some seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis import burstiness as measure
from analysis.burst_profile import Curve, Profile
from analysis.burst_reading import Reading
from analysis.numbers import plain, seconds
from analysis.wording_burst import REPLAY
from shapes import Shape, ShapeError, ShapeSettings, make_shape
from shapes.arrivals import HIGHEST_CV, Arrivals, arrivals_named
from shapes.schedule import seed_children
from shapes.shape import LONGEST_DURATION_S

FloatArray = NDArray[np.float64]

MOST_DRAWN = 300_000
LONGEST_REPLAY_S = 86_400.0
GRID = 200_000
NEAR = math.log(1.5)
"""Mean distance of the logarithms up to which a suggestion counts as near."""

SHORT_S = 0.1
CV_UNLIKE = math.log(2)
"""Beyond it, the gaps of a suggestion are said to be unlike the stream's."""

MOST_WEIGHTS = 48
LEAST_WEIGHTS = 6
PEAKS = (1.0, 1.2, 1.35, 1.5, 1.67, 2.0, 2.5, 3.0)
PERIODS = (1.0, 1.5, 2.0, 3.0, 4.0)
AS_GOOD = 0.1
"""A simpler candidate this little farther away is preferred."""


@dataclass(frozen=True)
class Suggestion:
    """`options` of a run, and what they gave when drawn here: IDC by scale, CV, `distance` (0: the same).

    `kind`: which shape with which arrivals; of envelopes also how fine.
    """

    kind: str
    options: str
    idc: dict[float, float]
    cv: float | None
    distance: float

    @property
    def near(self) -> bool:
        return self.distance <= NEAR


@dataclass(frozen=True)
class _Candidate:
    shape: str
    settings: ShapeSettings
    arrivals: str
    cv: float | None = None

    def options(self) -> str:
        """As the command line takes them."""
        given = [f"--shape {self.shape}", f"--rate {_short(self.settings.rate_rps)}"]
        names = {
            "period": "period_s",
            "peak-ratio": "peak_ratio",
            "duty": "duty",
            "day-profile": "day_profile",
        }
        for option, name in names.items():
            value = getattr(self.settings, name)
            given += (
                [] if value is None else [f"--{option} {value if isinstance(value, str) else _short(value)}"]
            )
        given += [f"--arrivals {self.arrivals}"] + ([] if self.cv is None else [f"--cv {_short(self.cv)}"])
        return " ".join([*given, f"--duration {_short(self.settings.duration_s or 0)}"])


def suggest(profile: Profile, curve: Curve, reading: Reading, times_s: FloatArray) -> Suggestion | None:
    """The options that come nearest; None for too few arrivals or scales."""
    known = idc_by_scale(profile, curve)
    if reading.kind == "too_few" or not known:
        return None
    candidates = _candidates(profile, curve, times_s, trend=reading.kind in ("trend", "trend_clumps"))
    found = [made for one in candidates if (made := _measured(one, profile, known))]
    nearest = [min(group, key=lambda one: one.distance) for group in _by_kind(found).values()]
    least = min((one.distance for one in nearest), default=0.0)
    return next((one for one in nearest if one.distance <= least + AS_GOOD), None)


def idc_by_scale(profile: Profile, curve: Curve) -> dict[float, float]:
    """What suggestions are compared with: the IDC by scale in seconds, of about SHORT_S too where measured;
    empty when none of the usual scales is."""
    known: dict[float, float] = {scale: value for scale, value in profile.idc.items() if value is not None}
    short = curve.scale_s < min(known, default=0)
    if not short.any():
        return known
    nearest = int(np.argmin(np.abs(np.log(curve.scale_s[short] / SHORT_S))))
    return {float(curve.scale_s[short][nearest]): float(curve.idc[short][nearest]), **known}


def _by_kind(found: list[Suggestion]) -> dict[str, list[Suggestion]]:
    """Constant, poisson, gamma, pulses, envelopes: in this order, the simplest first."""
    groups: dict[str, list[Suggestion]] = {}
    for one in found:
        groups.setdefault(one.kind, []).append(one)
    return groups


def told(suggestion: Suggestion, profile: Profile, curve: Curve, reading: Reading) -> tuple[str, ...]:
    """The suggestion in words: the options, how near they come, and what they cannot do."""
    known = idc_by_scale(profile, curve)
    scales = " / ".join(f"{scale:g}" for scale in suggestion.idc) + " s"
    made = " / ".join(plain(value) for value in suggestion.idc.values())
    here = " / ".join(plain(known[scale]) for scale in suggestion.idc)
    lines = [] if suggestion.near else [REPLAY["far"]]
    lines.append(REPLAY["to_replay"].format(options=suggestion.options))
    key = "near_no_cv" if profile.cv is None else "near"
    lines.append(
        REPLAY[key].format(
            made=made, scales=scales, made_cv=plain(suggestion.cv), here=here, here_cv=plain(profile.cv)
        )
    )
    if suggestion.cv and profile.cv and abs(math.log(suggestion.cv / profile.cv)) > CV_UNLIKE:
        lines.append(REPLAY["gaps_unlike"])
    if reading.silence is not None and "--shape pulse" not in suggestion.options:
        lines.append(REPLAY["no_pulses"].format(on=seconds(reading.silence.on_s)))
    elif reading.silence is not None and reading.silence.uneven:
        lines.append(REPLAY["irregular"])
    if profile.window_s > LONGEST_REPLAY_S and "--shape diurnal" in suggestion.options:
        lines.append(REPLAY["cut"].format(duration=seconds(LONGEST_REPLAY_S)))
    return tuple(lines)


def _candidates(profile: Profile, curve: Curve, times_s: FloatArray, trend: bool) -> Iterator[_Candidate]:
    """The simplest first; no pulses for a trend."""
    duration_s = float(_short(min(profile.window_s, LONGEST_REPLAY_S, LONGEST_DURATION_S)))
    flat = ShapeSettings(rate_rps=profile.rate_rps, duration_s=duration_s)
    yield _Candidate("uniform", flat, "constant")
    yield _Candidate("uniform", flat, "poisson")
    cvs = {float(_short(cv)) for cv in _cvs(profile) if 0.05 <= cv <= HIGHEST_CV}
    for cv in sorted(cvs):
        yield _Candidate("uniform", flat, "gamma", cv)
    if not trend:
        yield from _pulses(profile, curve, duration_s)
    for weights in (12, 24, MOST_WEIGHTS):
        table = _envelope(times_s, profile.window_s, weights)
        if table and profile.n >= 20 * weights:
            settings = ShapeSettings(rate_rps=profile.rate_rps, duration_s=duration_s, day_profile=table)
            yield _Candidate("diurnal", settings, "poisson")
            local = next((cv for cv in profile.local_cv.values() if cv is not None), None)
            if local is not None and local > 1.2:
                yield _Candidate("diurnal", settings, "gamma", float(_short(min(local, HIGHEST_CV))))


def _cvs(profile: Profile) -> Iterator[float]:
    """CVs worth a try: of the gaps, and those whose square is the IDC of short and of long windows."""
    if profile.cv is not None:
        yield profile.cv
    yield from (math.sqrt(value) for value in profile.idc.values() if value)
    yield from (math.sqrt(value) for value in profile.allan_factor.values() if value)


def _pulses(profile: Profile, curve: Curve, duration_s: float) -> Iterator[_Candidate]:
    """Pulse trains with the stream's variance of the rate, V = (IDC(w) - 1) / (m w) for short w.

    A train of peak ratio R has V = D (R - 1)^2 / (1 - D), so its duty is D = V / (V + (R - 1)^2), for
    which R must be at least 1 + V (where the level between pulses is 0). Its Allan factor
    peaks near half the period.
    """
    if not len(curve.scale_s):
        return
    strongest_s = float(curve.scale_s[np.argmax(curve.allan_factor)])
    short = int(np.argmin(np.abs(np.log(curve.scale_s / (strongest_s / 10)))))
    spread = (float(curve.idc[short]) - 1) / (profile.rate_rps * float(curve.scale_s[short]))
    if spread <= 0.02:
        return
    for more in PEAKS:
        ratio = (1 + spread) * more
        duty = spread / (spread + (ratio - 1) ** 2)
        for times in PERIODS:
            period_s = times * strongest_s
            if period_s * 2 <= duration_s:
                yield _Candidate(
                    "pulse",
                    ShapeSettings(
                        rate_rps=profile.rate_rps,
                        duration_s=duration_s,
                        period_s=float(_short(period_s)),
                        peak_ratio=float(_short(ratio)),
                        duty=math.floor(duty * 1000) / 1000,
                    ),
                    "poisson",
                )


def _envelope(times_s: FloatArray, window_s: float, weights: int) -> str | None:
    """The stream's own course as rates at equal distances, joined by lines; None when it is empty."""
    if weights < LEAST_WEIGHTS:
        return None
    counts, _ = np.histogram(
        (times_s + window_s / weights / 2) % window_s, bins=weights, range=(0.0, window_s)
    )
    if not counts.any():
        return None
    shown = counts / counts.mean()
    return ",".join(f"{value:.2g}" for value in shown)


def _measured(candidate: _Candidate, profile: Profile, known: Mapping[float, float]) -> Suggestion | None:
    """Drawn over the stream's own time (less of it where that is more than MOST_DRAWN), and compared."""
    try:
        shape = make_shape(candidate.shape, candidate.settings)
        arrivals = arrivals_named(candidate.arrivals, candidate.cv)
    except ShapeError:
        return None
    times = _drawn(shape, arrivals)
    window_s = float(times[-1]) if len(times) == MOST_DRAWN else shape.duration_s
    idc = {scale: measure.idc(times, scale, window_s) for scale in known}
    peaks = {scale: value for scale, value in profile.peak_over_mean.items() if value is not None}
    distances = [_apart(idc[scale], known[scale]) for scale in known]
    distances += [_apart(measure.peak_over_mean(times, scale, window_s), peaks[scale]) / 2 for scale in peaks]
    shown = {scale: value for scale, value in idc.items() if value is not None}
    distance = sum(distances) / (len(known) + len(peaks) / 2)
    weights = (candidate.settings.day_profile or "").count(",")
    kind = f"{candidate.shape} {candidate.arrivals} {weights}"
    return Suggestion(kind, candidate.options(), shown, measure.cv(times), distance)


def _drawn(shape: Shape, arrivals: Arrivals) -> FloatArray:
    """As shapes.schedule draws, but on a grid of GRID steps: near enough to be measured, and quick."""
    total = float(shape.expected_until(shape.duration_s))
    events = arrivals.unit_times(seed_children(1).arrivals, total)[:MOST_DRAWN]
    grid = np.linspace(0.0, shape.duration_s, GRID + 1)
    return np.asarray(np.interp(events, np.maximum.accumulate(shape.expected_until(grid)), grid))


def _apart(one: float | None, other: float | None) -> float:
    """The distance of the logarithms of 1 + figure: below a Poisson stream's 1 differences count less."""
    return abs(math.log1p(one or 0.0) - math.log1p(other or 0.0))


def _short(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
