"""Any log with a time column -> arrival times: CSV, TSV or JSON lines, from any tool.

    2023-11-16 18:17:03.97,4808,10     {"timestamp": 27482, "input_length": 6955}     1700000000123,150
          ISO 8601                           milliseconds from some start              milliseconds since 1970

The time column is found by its name, its unit by the name's end or by the size of the numbers; lines that
cannot be read are counted and named. What was assumed is in `notices`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.log_table import ArrivalLogError, LogTable
from analysis.numbers import count, percent, seconds
from analysis.wording_burst import LOG
from runlog.record import OUTSIDE_THE_LOAD

FloatArray = NDArray[np.float64]

TIME_COLUMNS = (
    "sent_at_s", "at_s", "arrived_at_s", "arrived_at", "arrival_time", "arrival_timestamp", "timestamp",
    "time_stamp", "ts", "time", "datetime", "date_time", "date", "sent_at", "scheduled_at_s", "start_time",
    "started_at",
    "created_at", "created", "request_time", "invocation_time", "start_offset_s", "t_s", "t",
)  # fmt: skip
"""Names of a time column, the best first; compared in lower case, words joined by `_`."""

TIME_ENDINGS = ("_timestamp", "_at", "_at_s", "_at_ms", "_time", "_ts")

TOKEN_COLUMNS = {
    "input": (
        "asked_input_tokens", "input_tokens", "contexttokens", "context_tokens", "prompt_tokens",
        "input_length", "request_tokens", "num_prefill_tokens", "prompt_len", "input_len",
    ),
    "output": (
        "asked_output_tokens", "output_tokens", "generatedtokens", "generated_tokens", "completion_tokens",
        "output_length", "response_tokens", "num_decode_tokens", "output_len",
    ),
}  # fmt: skip

PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9, "min": 1 / 60, "h": 1 / 3600, "d": 1 / 86_400}
UNIT_ENDINGS = {
    "_s": "s", "_sec": "s", "_seconds": "s", "_ms": "ms", "_millis": "ms", "_us": "us", "_micros": "us",
    "_ns": "ns", "_nanos": "ns", "minute": "min", "minutes": "min", "hour": "h", "day": "d",
}  # fmt: skip
EPOCH_FROM = ((1e17, "ns"), (1e14, "us"), (1e11, "ms"), (1e8, "s"))
"""From this size on a number is a moment since 1970 in that unit (1973 to 5138 in each)."""

UNITS = {
    "s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds", "min": "minutes",
    "h": "hours", "d": "days", "iso": "dates",
}  # fmt: skip
DATE_FORMATS = (
    "%d/%b/%Y:%H:%M:%S %z", "%Y/%m/%d %H:%M:%S", "%Y/%m/%d %H:%M:%S.%f", "%m/%d/%Y %H:%M:%S",
    "%d.%m.%Y %H:%M:%S",
)  # fmt: skip
"""Of web servers' access logs, and dates with slashes (month first) or points (day first)."""

NAMED_BAD_LINES = 3
LONG_STEP_MS = 100


@dataclass(frozen=True, eq=False)
class ArrivalLog:
    """The arrivals of one log: `times_s` from the first one on, sorted; `tokens` of each by kind or column.

    `span_s` from the first to the last. `read_as` tells the column and its unit; `notices` what a reader of
    the figures should know.
    """

    path: Path
    times_s: FloatArray
    span_s: float
    tokens: dict[str, FloatArray]
    read_as: str
    notices: tuple[str, ...]


def read_log(
    path: Path, time_column: str | None = None, tokens_column: str | None = None, unit: str | None = None
) -> ArrivalLog:
    """Read a CSV (any usual separator), a JSON-lines file or a JSON list of objects.

    `tokens_column` is one name or several with commas; without it the usual names of input and output tokens
    are looked for. `unit`: s, ms, us or ns instead of what is detected. Raises ArrivalLogError when there is
    no time column, no readable time, or fewer than 2 of them; OSError when the file cannot be opened.
    """
    table = LogTable.read(path)
    column = _time_column(path, table, time_column)
    kinds = _token_columns(path, table, tokens_column)
    texts = table.column(column)
    notices: list[str] = []
    asked = np.array([bool(text.strip()) for text in texts])
    if "sent_at_s" in table.names and "name" in table.names:  # our own requests.csv
        outside = np.array([name in OUTSIDE_THE_LOAD for name in table.column("name")])
        if outside.any():
            notices.append(LOG["outside"].format(rows=count(outside.sum())))
        asked &= ~outside
    moments, found_unit = _moments(
        column, [text for text, wanted in zip(texts, asked, strict=True) if wanted], unit
    )
    good = np.isfinite(moments.seconds)
    rows = np.flatnonzero(asked)
    bad = [f"line {table.line(k)}: {texts[k][:24]!r}" for k in rows[~good][:NAMED_BAD_LINES]] + table.bad
    lost = int((~good).sum()) + table.bad_lines
    lines = len(texts) + table.bad_lines
    if lost:
        shown = "; ".join(bad[:NAMED_BAD_LINES])
        notices.append(LOG["bad"].format(bad=count(lost), all=count(lines), column=column, examples=shown))
    if good.sum() < 2:
        raise ArrivalLogError(
            f"{path}: column {column} holds {good.sum()} readable times in {lines} lines, 2 are needed"
            + (f" ({'; '.join(bad[:NAMED_BAD_LINES])})" if bad else "")
            + f"; name another with --time-column, of {', '.join(table.names)[:300]}"
        )
    empty = len(texts) - len(rows)
    if empty and "sent_at_s" not in table.names:
        notices.append(LOG["empty"].format(empty=count(empty), column=column))
    times = moments.seconds[good]
    if np.any(np.diff(times) < 0):
        notices.append(LOG["unsorted"])
    order = np.argsort(times, kind="stable")
    times = times[order]
    if times[-1] == times[0]:
        raise ArrivalLogError(f"{path}: all {len(times)} times in column {column} are the same moment")
    tokens = {}
    for kind, name in kinds.items():
        cells = table.column(name)
        numbers = _numbers([cells[k] for k in rows[good]])
        unknown = ~(np.isfinite(numbers) & (numbers >= 0))
        if unknown.any():
            notices.append(
                LOG["bad_tokens"].format(bad=count(unknown.sum()), all=count(len(numbers)), column=name)
            )
        tokens[kind] = np.where(unknown, 0.0, numbers)[order]
    notices += [note for note in (moments.note, *_oddities(times)) if note]
    read_as = LOG["read_as"].format(column=column, unit=UNITS[found_unit])
    return ArrivalLog(path, times - times[0], float(times[-1] - times[0]), tokens, read_as, tuple(notices))


def _plain_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_")


def _time_column(path: Path, table: LogTable, asked: str | None) -> str:
    if asked is not None:
        return _named(path, table, asked, "--time-column")
    plain = {_plain_name(name): name for name in reversed(table.names)}
    for name in TIME_COLUMNS:
        if name in plain:
            return plain[name]
    endings = [full for short, full in plain.items() if short.endswith(TIME_ENDINGS)]
    if endings:
        return endings[-1]
    if len(table.names) == 1 or table.names[0] == "column 1":
        return table.names[0]
    raise ArrivalLogError(
        f"{path}: no column is named like a time (such as timestamp, arrived_at, at_s); "
        f"name it with --time-column, of {', '.join(table.names)[:300]}"
    )


def _named(path: Path, table: LogTable, asked: str, option: str) -> str:
    for name in table.names:
        if name == asked or _plain_name(name) == _plain_name(asked):
            return name
    raise ArrivalLogError(
        f"{path}: there is no column {asked!r} ({option}), only {', '.join(table.names)[:300]}"
    )


def _token_columns(path: Path, table: LogTable, asked: str | None) -> dict[str, str]:
    if asked is not None:
        return {
            name: _named(path, table, name, "--tokens-column") for name in asked.split(",") if name.strip()
        }
    plain = {_plain_name(name): name for name in reversed(table.names)}
    found = {}
    for kind, names in TOKEN_COLUMNS.items():
        here = [plain[name] for name in names if name in plain]
        if here:
            found[kind] = here[0]
    return found


@dataclass(frozen=True, eq=False)
class _Moments:
    seconds: FloatArray
    note: str = ""


def _numbers(texts: Sequence[str]) -> FloatArray:
    """Each text as a number; NaN for what is none."""
    try:
        return np.array(texts, dtype=np.float64)
    except ValueError:
        return pd.to_numeric(pd.Series(texts, dtype=object).str.strip(), errors="coerce").to_numpy(np.float64)


def _moments(column: str, texts: Sequence[str], unit: str | None) -> tuple[_Moments, str]:
    """The texts as seconds from any origin (NaN: unreadable), and the unit's name in UNITS."""
    numbers = _numbers(texts)
    numbers = np.where(np.isfinite(numbers), numbers, np.nan)
    known = numbers[np.isfinite(numbers)]
    if len(known) * 2 < len(texts) and unit is None:
        return _Moments(_dates(texts)), "iso"
    if not len(known):
        return _Moments(numbers), unit or "s"
    found, note = (unit, "") if unit else _unit(_plain_name(column), known)
    return _Moments((numbers - known.min()) / PER_SECOND[found], note), found


def _unit(column: str, numbers: FloatArray) -> tuple[str, str]:
    size = float(np.median(np.abs(numbers)))
    epoch = next((unit for least, unit in EPOCH_FROM if size >= least), None)
    ending = next((unit for end, unit in UNIT_ENDINGS.items() if column.endswith(end)), None)
    if ending:
        return ending, ""
    if epoch:
        return epoch, ""
    if np.any(numbers != np.rint(numbers)) or size > 1e15:
        return "s", ""
    apart = np.diff(np.unique(numbers))
    if len(apart) and np.quantile(apart, 0.01) >= LONG_STEP_MS and len(apart) < len(numbers) / 2:
        return "ms", LOG["assumed_ms"].format(step=count(np.median(apart)))
    return "s", LOG["assumed_seconds"]


def _dates(texts: Sequence[str]) -> FloatArray:
    """ISO 8601, else that of DATE_FORMATS which reads the most."""
    cells = pd.Series(texts, dtype="str").str.strip()
    read = pd.to_datetime(cells, format="ISO8601", errors="coerce", utc=True)
    if read.isna().mean() > 0.5:
        for form in DATE_FORMATS:
            other = pd.to_datetime(cells, format=form, errors="coerce", utc=True)
            read = other if other.notna().sum() > read.notna().sum() else read
    stamps = read.astype("datetime64[ns, UTC]")
    known = stamps.notna().to_numpy()
    ticks = stamps.to_numpy(dtype="datetime64[ns]").astype(np.int64)
    first = ticks[known].min() if known.any() else 0
    return np.where(known, (ticks - first) / 1e9, np.nan)


def _oddities(times: FloatArray) -> Iterator[str]:
    gaps = np.diff(times)
    share = float((gaps == 0).mean())
    if share > 0.02:
        yield LOG["ties"].format(share=percent(share))
    if len(gaps) > 20 and gaps.max() > 0.5 * (times[-1] - times[0]):
        yield LOG["hole"].format(gap=seconds(gaps.max()), share=percent(gaps.max() / (times[-1] - times[0])))
    apart = gaps[gaps > 0]
    if len(apart) >= 20 and apart.min() >= 60 and np.ptp(apart) < 1e-6:
        yield LOG["windows"].format(step=seconds(apart.min()))
