"""Profiles -> rows of text: a measure a row, a stream a column, each figure with its Poisson band.

The terminal, the picture page and the report show the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.burstiness import WINDOWS_S
from analysis.numbers import UNKNOWN, plain
from analysis.wording_burst import EXPLAINED, KIND, MEASURE

LOCAL = ("60", "300")
BY_SCALE = ("idc", "allan_factor", "peak_over_mean")
ROWS: tuple[tuple[str, str], ...] = (
    ("cv", ""),
    *(("local_cv", window) for window in LOCAL),
    *((name, str(scale)) for name in BY_SCALE for scale in WINDOWS_S),
    ("count_acf", "1"),
    ("count_acf", "10"),
    ("gap_acf", "1"),
    ("goh_barabasi_b", ""),
    ("memory", ""),
)
TOKEN_ROWS: tuple[tuple[str, str], ...] = (("idc", "10"), ("peak_over_mean", "1"))
SHORT_ROWS: tuple[tuple[str, str], ...] = (
    ("cv", ""),
    *((name, str(scale)) for name in BY_SCALE for scale in WINDOWS_S),
)

Found = Mapping[str, Any]
"""A profile as analysis.summary.plain makes it: text keys, bands as lists."""


def rows(
    profiles: Sequence[Found | None], wanted: Sequence[tuple[str, str]] = ROWS
) -> list[tuple[str, list[str], str]]:
    """(label, a cell for each profile, what the measure says); rows without any figure are left out."""
    found = []
    for name, scale in wanted:
        cells = [_cell(profile, name, scale) for profile in profiles]
        found.append((MEASURE[name].format(scale=scale), cells, EXPLAINED[name]))
    kinds = dict.fromkeys(kind for profile in profiles if profile for kind in profile["tokens"])
    for kind in kinds:
        for name, scale in TOKEN_ROWS:
            cells = [_cell(_tokens(profile, kind), name, scale) for profile in profiles]
            label = MEASURE["tokens"].format(
                measure=MEASURE[name].format(scale=scale), kind=KIND.get(kind, kind)
            )
            found.append((label, cells, EXPLAINED["tokens"]))
    return [row for row in found if set(row[1]) != {UNKNOWN}]


def _tokens(profile: Found | None, kind: str) -> Found | None:
    found: Found | None = profile["tokens"].get(kind) if profile else None
    return found


def _cell(profile: Found | None, name: str, scale: str) -> str:
    value, band = _figure(profile, name, scale)
    if value is None:
        return UNKNOWN
    return plain(value) + (f" ({plain(band[0])} – {plain(band[1])})" if band else "")


def _figure(profile: Found | None, name: str, scale: str) -> tuple[float | None, list[float] | None]:
    if profile is None:
        return None, None
    value, band = profile.get(name), profile["poisson_95"].get(name)
    value = value.get(scale) if isinstance(value, Mapping) else value
    return value, band.get(scale) if isinstance(band, Mapping) else band
