"""CsvRun -> summary: one strict dict with every figure, and its text. Unknown is None; times in ms.

The page and the text read this dict. Every percentile carries how it is to be printed, since Locust rounds
them: never above the maximum, and marked "(rounded)" where only two figures are left of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from analysis.csv_run import CsvRun
from analysis.csv_wording import TEXT, cannot_tell, recovery_words
from analysis.locust_bursts import UNCERTAINTY_S
from analysis.locust_csv import ErrorRow, StatsRow
from analysis.locust_history import History
from analysis.locust_totals import Bounds
from analysis.numbers import UNKNOWN, count, percent, plain

ROUNDED = " (rounded)"
IN_THE_FILE = ", in the file "
MOST_NAMES = 50
TOP_NAMES = 20
MOST_ERRORS = 30
MOST_BURSTS_TOLD = 12
KEYS = re.compile(r"(?i)\bsk-[\w-]{8,}|(?<=bearer )\S{8,}|(?<=key=)[^\s&\"']{6,}|(?<=token=)[^\s&\"']{6,}")
LEAST_N = {95.0: 72, 98.0: 183, 99.0: 368, 99.9: 3688, 99.99: 36888, 99.999: 368888}
"""Least requests for a percentile to have a 95 % interval; below it the figure is one of the slowest few."""


def summarize_csv(run: CsvRun, slo: str | None = None) -> dict[str, Any]:
    """Every figure of `run`; `slo` only brings the sentence that a share cannot be computed from CSV."""
    total = run.totals
    rows = sorted(run.requests, key=lambda row: -row.requests)
    return {
        "prefix": str(run.csv.prefix),
        "files": {kind: path.name for kind, path in run.csv.files.items()},
        "partial": list(run.partial),
        "notices": list(run.notices),
        "requests": total.requests,
        "failures": total.failures,
        "failed_ratio": total.failed_ratio,
        "aggregated_requests": run.csv.aggregated.requests if run.csv.aggregated else None,
        "counted_types": _types(run.requests),
        "not_counted_types": _types(run.metrics),
        "average_ms": total.average_ms,
        "successes_average_ms": _bounds(total.successes_average_ms),
        "min_ms": total.min_ms,
        "max_ms": total.max_ms,
        "percentiles_from": total.origin,
        "percentiles": [
            {
                "level": level,
                **_told(at_level, total.max_ms),
                "n_too_small": total.requests < _least_n(level),
                "adjusted": _adjusted(total.adjusted_ms[level], total.max_ms),
            }
            for level, at_level in total.percentiles_ms.items()
        ],
        "names": [_row(row) for row in (rows if len(rows) <= MOST_NAMES else rows[:TOP_NAMES])],
        "other_names": _others(rows[TOP_NAMES:]) if len(rows) > MOST_NAMES else None,
        "metric_events": [_row(row) for row in run.metrics[:MOST_NAMES]],
        "errors": _errors(run.csv.errors),
        "other_errors": max(0, len(run.csv.errors) - MOST_ERRORS),
        "exceptions": _errors(run.csv.exceptions),
        "history": _history(run.history),
        "mixed": run.mixed,
        "baseline_ms": run.bursts.baseline_ms,
        "threshold_ms": run.bursts.threshold_ms,
        "uncertainty_s": UNCERTAINTY_S,
        "bursts": [
            {name: getattr(burst, name) for name in burst.__dataclass_fields__} for burst in run.bursts.bursts
        ],
        "recovery_words": recovery_words(run),
        "cannot_tell": cannot_tell(run, slo),
    }


def ms(value: float | None) -> str:
    """A time in ms as exact as Locust has it where it is not rounded: 0.4 ms, 1496.5 ms, 12345 ms."""
    if value is None:
        return UNKNOWN
    decimals = 2 if abs(value) < 10 else 1
    text = f"{value:.{decimals}f}".rstrip("0").rstrip(".")
    return f"{text or '0'} ms"


def rounded_ms(value: float, max_ms: float | None) -> str:
    """A percentile of Locust's: whole ms below 100, two figures above, and never more than the maximum."""
    if value == 0:
        return "< 1 ms"
    # Up to 1.1 the maximum was cut to whole ms: 97 may have been 97.7, which rounds to 98.
    if max_ms is not None and value > max_ms and not (max_ms == int(max_ms) and value <= max_ms + 1):
        return f"≤ {ms(max_ms)}{IN_THE_FILE}{value:g}{ROUNDED}"
    unit = 1000 if value >= 10_000 else 100 if value >= 1000 else 10
    return f"{ms(value)}{ROUNDED}" if value >= 100 and value % unit == 0 else ms(value)


def without_keys(text: str) -> str:
    """`text` without what looks like an API key: error texts and URLs of a test may hold one."""
    return KEYS.sub("<key>", text)


def level_name(level: float) -> str:
    return f"p{level:g}"


def text_summary(found: dict[str, Any]) -> str:
    """The summary as lines for a terminal."""
    lines = [f"Locust CSV {found['prefix']}", f"  {counted_words(found)}"]
    lines += [f"  partial: {line}" for line in found["partial"]]
    lines += [f"  note: {line}" for line in found["notices"]]
    lines.append(f"  failed      {count(found['failures'])} ({percent(found['failed_ratio'])} failed)")
    successes = found["successes_average_ms"]
    lines.append(
        f"  average     {ms(found['average_ms'])} with failures; successes alone {between(successes)}"
    )
    lines.append(f"  min, max    {ms(found['min_ms'])}, {ms(found['max_ms'])}")
    for row in found["percentiles"]:
        if row["level"] == 100 and found["max_ms"] is not None:
            continue
        small = "  n too small" if row["n_too_small"] else ""
        adjusted = f"; failures as infinite: {row['adjusted']}" if found["failures"] else ""
        lines.append(f"  {level_name(row['level']):<11} {row['text']}{adjusted}{small}")
    lines += [
        f"  {row['type']} {' '.join(row['name'].split())}: {count(row['requests'])} events, average "
        f"{ms(row['average_ms'])}"
        + "".join(
            f", {level_name(level)} {text}" for level, text in row["percentiles"] if level in (50, 95, 99)
        )
        for row in found["metric_events"][:TOP_NAMES]
    ]
    lines += [f"  {line}" for line in found["recovery_words"]]
    lines += ["  These files cannot tell:", *(f"    - {line}" for line in found["cannot_tell"])]
    return "\n".join(lines)


def counted_words(found: dict[str, Any]) -> str:
    """How many requests, which types they are, and what Locust's total holds besides."""
    counted = ", ".join(f"{kind or 'no type'} {count(n)}" for kind, n in found["counted_types"].items())
    words = TEXT["counted"].format(n=count(found["requests"]), counted=counted or "none")
    left_out = ", ".join(f"{kind or 'no type'} {count(n)}" for kind, n in found["not_counted_types"].items())
    if left_out:
        words += " " + TEXT["not_counted"].format(left_out=left_out)
    if found["mixed"]:
        words += " " + TEXT["mixed"].format(n=count(found["aggregated_requests"]))
    return words


def between(bounds: dict[str, float] | None) -> str:
    """Bounds in words: the value, or "between a and b"."""
    if bounds is None:
        return UNKNOWN
    low, high = ms(bounds["low_ms"]), ms(bounds["high_ms"])
    return low if low == high else f"between {low} and {high}"


def _told(bounds: Bounds, max_ms: float | None) -> dict[str, Any]:
    low_ms, high_ms = (value if max_ms is None else min(value, max_ms) for value in (bounds.low, bounds.high))
    text = rounded_ms(bounds.low, max_ms)
    if low_ms < high_ms:
        text = f"between {ms(low_ms)} and {ms(high_ms)}{ROUNDED if high_ms >= 100 else ''}"
    return {"low_ms": bounds.low, "high_ms": bounds.high, "text": text}


def _adjusted(bounds: Bounds | None, max_ms: float | None) -> str:
    return TEXT["not_met"] if bounds is None else str(_told(bounds, max_ms)["text"])


def _least_n(level: float) -> int:
    return max((n for least_level, n in LEAST_N.items() if least_level <= level < 100), default=0)


def _bounds(bounds: Bounds | None) -> dict[str, float] | None:
    return None if bounds is None else {"low_ms": bounds.low, "high_ms": bounds.high}


def _types(rows: Iterable[StatsRow]) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows:
        found[row.type] = found.get(row.type, 0) + row.requests
    return found


def _row(row: StatsRow) -> dict[str, Any]:
    return {
        "type": row.type,
        "name": without_keys(row.name),
        "requests": row.requests,
        "failures": row.failures,
        "average_ms": row.average_ms,
        "min_ms": row.min_ms,
        "max_ms": row.max_ms,
        "percentiles": [
            (level, rounded_ms(value, row.max_ms)) for level, value in row.percentiles_ms.items()
        ],
    }


def _others(rows: Sequence[StatsRow]) -> dict[str, Any]:
    timed = [row for row in rows if row.average_ms is not None]
    weight = sum(row.requests for row in timed)
    return {
        "names": len(rows),
        "requests": sum(row.requests for row in rows),
        "failures": sum(row.failures for row in rows),
        "average_ms": sum((row.average_ms or 0.0) * row.requests for row in timed) / weight
        if weight
        else None,
        "max_ms": max((row.max_ms for row in rows if row.max_ms is not None), default=None),
    }


def _errors(rows: Iterable[ErrorRow]) -> list[dict[str, Any]]:
    most = sorted(rows, key=lambda row: -row.occurrences)[:MOST_ERRORS]
    return [
        {
            "type": row.type,
            "name": without_keys(row.name),
            "error": without_keys(row.error),
            "occurrences": row.occurrences,
        }
        for row in most
    ]


def _history(history: History | None) -> dict[str, Any] | None:
    if history is None:
        return None
    span_s = float(history.at_s[-1] - history.at_s[0])
    rate = history.rate_rps[np.isfinite(history.rate_rps)]
    return {
        "percentiles": history.kind,
        "counted": history.counted,
        "rows": len(history.at_s),
        "cut_rows": history.cut_rows,
        "began": _moment(float(history.at_s[0])),
        "ended": _moment(float(history.at_s[-1])),
        "duration_s": span_s,
        "mean_rps": float(history.new.sum()) / span_s if span_s > 0 else None,
        "peak_rps": float(rate.max()) if len(rate) else None,
        "peak_users": float(np.nanmax(history.users)) if np.isfinite(history.users).any() else None,
        "runs": [
            {
                "began": _moment(life.began_at_s),
                "ended": _moment(life.ended_at_s),
                "requests": life.requests,
            }
            for life in history.lives
        ],
    }


def _moment(at_s: float) -> str:
    try:
        return datetime.fromtimestamp(at_s, UTC).isoformat(sep=" ").replace("+00:00", " UTC")
    except (OverflowError, OSError, ValueError):
        return f"{plain(at_s)} s"
