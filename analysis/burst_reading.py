"""A profile in words: what kind of burstiness it is, and at which scale.

    IDC    ____/‾‾‾    how much counts vary; the scale where it rises is how long bursts last
    Allan  ____/‾‾‾    near the IDC: bursts        ________  far below it: a slow trend

The kinds are the keys of wording_burst.WORD.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.burst_profile import Band, Curve, Profile
from analysis.numbers import count, percent, plain, seconds
from analysis.wording_burst import KIND, SENTENCE, WORD

FloatArray = NDArray[np.float64]

LEAST_ARRIVALS = 20
EVEN_CV, CALM_CV, BURSTY_CV = 0.3, 0.85, 1.15
LEAST_EXCESS = 1.5
"""An IDC below this is no burst, however long the log and narrow its band."""

TREND_SHARE = 0.4
"""Allan factor / IDC: a sine has at most 0.2 at a tenth of its period, on-off pulses 0.5 and more."""

LONG_GAP = 10.0
"""Mean gaps: of a Poisson stream's time 0.05 % passes in gaps this long or longer."""

LEAST_SILENCE = 0.25
EVEN_SPREAD = 0.2
CLUMP_GAPS = 5.0


@dataclass(frozen=True)
class Silence:
    """The long gaps: their share of the time, how many, and the medians of what lies between and of them.

    `uneven`: the middle half of either kind of length spreads by more than EVEN_SPREAD of its median.
    """

    share: float
    number: int
    on_s: float
    off_s: float
    uneven: bool


@dataclass(frozen=True)
class Reading:
    """`kind` of burstiness, the scale (s) where it is `strongest_s`, and the sentences that say it.
    `silence`, where the stream has one, goes with the kind on_off."""

    kind: str
    strongest_s: float | None
    sentences: tuple[str, ...]
    silence: Silence | None = None

    @property
    def text(self) -> str:
        return " ".join(self.sentences)


def read(profile: Profile, curve: Curve, times_s: FloatArray) -> Reading:
    """The reading of one stream; `curve` and `times_s` are those of the profile."""
    silence = silence_of(times_s)
    kind, strongest_s = kind_of(profile, curve, silence)
    sentences = _sentences(profile, curve, kind, strongest_s, silence)
    return Reading(kind, strongest_s, sentences, silence if kind == "on_off" else None)


def silence_of(times_s: FloatArray) -> Silence | None:
    """None when fewer than 3 gaps are longer than LONG_GAP mean gaps."""
    gaps = np.diff(times_s)
    if len(gaps) < LEAST_ARRIVALS or not times_s[-1] > times_s[0]:
        return None
    long = gaps > LONG_GAP * float(np.mean(gaps))
    if long.sum() < 3:
        return None
    starts = np.concatenate(([times_s[0]], times_s[1:][long]))
    ends = np.concatenate((times_s[:-1][long], [times_s[-1]]))
    share = float(gaps[long].sum() / (times_s[-1] - times_s[0]))
    on_s, off_s = ends - starts, gaps[long]
    uneven = _spread(on_s) > EVEN_SPREAD or _spread(off_s) > EVEN_SPREAD
    return Silence(share, int(long.sum()), float(np.median(on_s)), float(np.median(off_s)), uneven)


def _spread(lengths_s: FloatArray) -> float:
    """The middle half's width / the median; 0 where most lengths are 0 (salvos)."""
    low_s, median_s, high_s = np.quantile(lengths_s, (0.25, 0.5, 0.75))
    return float((high_s - low_s) / median_s) if median_s > 0 else 0.0


def kind_of(profile: Profile, curve: Curve, silence: Silence | None) -> tuple[str, float | None]:
    """The kind of burstiness and the scale in seconds at which it is strongest (None where it has none)."""
    if profile.n < LEAST_ARRIVALS or not len(curve.scale_s):
        return "too_few", None
    above = (curve.idc > curve.idc_band[1]) & (curve.idc >= LEAST_EXCESS)
    cv_high = profile.cv is not None and profile.cv > max(BURSTY_CV, _upper(profile.poisson_95.get("cv")))
    if not above.any():
        if profile.cv is None:
            return ("calm", None) if np.all(curve.idc[-3:] < curve.idc_band[0][-3:]) else ("poisson", None)
        if profile.cv < EVEN_CV:
            return "even", None
        calm = profile.cv < CALM_CV and profile.cv < _lower(profile.poisson_95.get("cv"))
        return ("calm" if calm else "clumps" if cv_high else "poisson"), None
    short = curve.scale_s <= profile.window_s / 10
    if short.any():
        highest, near = float(curve.idc[short].max()), float(curve.allan_factor[short].max())
        if near < TREND_SHARE * highest:
            return ("trend_clumps" if _clumped(profile, curve) else "trend"), float(curve.scale_s[-1])
    excess = curve.idc - 1
    half_s = float(curve.scale_s[np.argmax(excess >= excess.max() / 2)])
    if half_s <= max(1.0, CLUMP_GAPS / profile.rate_rps):
        return "clumps", half_s
    if silence is not None and silence.share >= LEAST_SILENCE:
        return "on_off", silence.on_s
    return "waves", float(curve.scale_s[np.argmax(curve.allan_factor)])


def _clumped(profile: Profile, curve: Curve) -> bool:
    """Whether neighbouring short windows (about 5 mean gaps) differ too, beside the trend."""
    place = int(np.argmin(np.abs(np.log(curve.scale_s * profile.rate_rps / CLUMP_GAPS))))
    return bool(
        curve.allan_factor[place] >= LEAST_EXCESS and curve.allan_factor[place] > curve.allan_band[1][place]
    )


def _upper(band: object) -> float:
    return band[1] if isinstance(band, tuple) else 0.0


def _lower(band: object) -> float:
    return band[0] if isinstance(band, tuple) else 1.0


def headline_scale(profile: Profile) -> int | None:
    """10 s, or what is nearest to it and known."""
    return next((scale for scale in (10, 1, 60) if profile.idc.get(scale) is not None), None)


def _sentences(
    profile: Profile, curve: Curve, kind: str, strongest_s: float | None, silence: Silence | None
) -> tuple[str, ...]:
    if kind == "too_few":
        return (f"{WORD[kind]}: {SENTENCE[kind].format(n=count(profile.n))}",)
    scale_s, idc, allan, band = _headline(profile, curve)
    values: Mapping[str, str] = {
        "cv": plain(profile.cv),
        "scale": seconds(scale_s),
        "idc": plain(idc),
        "allan": plain(allan),
        "low": plain(band[0]),
        "high": plain(band[1]),
        "strongest": seconds(strongest_s),
        "silent": percent(silence.share if silence else None),
        "on": seconds(silence.on_s if silence else None),
        "off": seconds(silence.off_s if silence else None),
    }
    key = f"{kind}_counts" if profile.cv is None and f"{kind}_counts" in SENTENCE else kind
    found = [f"{WORD[kind]}: {SENTENCE[key].format(**values)}"]
    peaks = [scale for scale, peak in profile.peak_over_mean.items() if peak is not None]
    peak_scale = next((scale for scale in peaks if scale * profile.rate_rps >= 1), max(peaks, default=None))
    if peak_scale is not None:
        peak = plain(profile.peak_over_mean[peak_scale])
        found.append(
            SENTENCE["peak"].format(scale="second" if peak_scale == 1 else f"{peak_scale} s", peak=peak)
        )
    if profile.stamp_step_s is not None:
        found.append(SENTENCE["coarse"].format(step=seconds(profile.stamp_step_s)))
    for name, tokens in profile.tokens.items():
        by_tokens = tokens.idc.get(int(scale_s)) if scale_s >= 1 else None
        if by_tokens is not None and by_tokens > LEAST_EXCESS and by_tokens > 1.5 * idc:
            found.append(
                SENTENCE["tokens"].format(
                    kind=KIND.get(name, name), idc=plain(by_tokens), scale=seconds(scale_s)
                )
            )
    return tuple(found)


def _headline(profile: Profile, curve: Curve) -> tuple[float, float, float, Band]:
    """Scale, IDC, Allan factor and IDC band that the sentence speaks of, near `headline_scale`."""
    place = int(np.argmin(np.abs(np.log(curve.scale_s / (headline_scale(profile) or 10)))))
    band = (float(curve.idc_band[0][place]), float(curve.idc_band[1][place]))
    return float(curve.scale_s[place]), float(curve.idc[place]), float(curve.allan_factor[place]), band
