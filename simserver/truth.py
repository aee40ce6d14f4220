"""The server's own record of each completion request, for checking a client against it (`--log
FILE`).

One CSV row per request, written when it ends. A request is received at the moment its last byte
reached this process (headers and body), taken before any parsing, so that the spread of a burst is
the network's and the sender's, not the server's. All `*_monotonic_s` columns are this machine's
monotonic clock, which other processes on the same machine share on Linux; `received_at_s` is the
same moment as Unix time. An empty field is unknown or never happened. A request with several
choices has one row: the first of its first tokens, the last of its last ones, and the tokens of all
together.

gateway: `passed`, or why the gateway turned the request away (queue_timeout, requests ...); empty
without one. passed_monotonic_s: when it let the request through.

outcome: finished | cancelled (the client left before all was sent) | stopped (the server went
down) | rejected (no room, see status) | refused (a bad request: see status) | faulted (a fault was
asked for and ended it). Neither prompts nor answers are written."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Literal

from simserver.answers import Answer
from simserver.receipt import Receipt

Outcome = Literal["finished", "cancelled", "stopped", "rejected", "refused", "faulted"]


@dataclass(frozen=True, slots=True)
class TruthRow:
    """One request as the server saw it; the fields are the file's columns."""

    request_id: str
    received_at_s: float
    received_monotonic_s: float
    admitted_monotonic_s: float | None
    first_token_monotonic_s: float | None
    last_token_monotonic_s: float | None
    ended_monotonic_s: float
    prompt_tokens: int | None
    asked_output_tokens: int | None
    output_tokens: int
    preemptions: int
    status: int
    outcome: Outcome
    gateway: str | None = None
    passed_monotonic_s: float | None = None


def row_of(
    receipt: Receipt,
    answer: Answer | None,
    ended_monotonic_s: float,
    status: int,
    outcome: Outcome,
    gateway: str | None = None,
    passed_monotonic_s: float | None = None,
) -> TruthRow:
    """The row of a request that has ended; `answer` is None when it never came to the engine."""
    sequences = answer.sequences if answer else ()
    last = [one.last_token_at_s for one in sequences if one.last_token_at_s is not None]
    return TruthRow(
        request_id=receipt.request_id,
        received_at_s=receipt.at_s,
        received_monotonic_s=receipt.monotonic_s,
        admitted_monotonic_s=_first(one.admitted_at_s for one in sequences),
        first_token_monotonic_s=_first(one.first_token_at_s for one in sequences),
        last_token_monotonic_s=max(last, default=None),
        ended_monotonic_s=ended_monotonic_s,
        prompt_tokens=answer.asked.prompt_tokens if answer else None,
        asked_output_tokens=answer.tokens if answer else None,
        output_tokens=sum(one.emitted_tokens for one in sequences),
        preemptions=sum(one.preemptions for one in sequences),
        status=status,
        outcome=outcome,
        gateway=gateway,
        passed_monotonic_s=passed_monotonic_s,
    )


def _first(moments: Iterable[float | None]) -> float | None:
    return min((moment for moment in moments if moment is not None), default=None)


class TruthLog:
    """Writes rows as they come, one line each, so that a reader may follow.

    Raises FileExistsError when the file is there already, and OSError when it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._file = open(path, "x", newline="", buffering=1, encoding="utf-8")  # noqa: SIM115
        self._columns = [column.name for column in fields(TruthRow)]
        self._rows = csv.writer(self._file)
        self._rows.writerow(self._columns)

    def write(self, row: TruthRow) -> None:
        self._rows.writerow(_as_text(getattr(row, name)) for name in self._columns)

    def __enter__(self) -> TruthLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def _as_text(value: object) -> object:
    """Seconds to the microsecond; unknown as an empty field; the rest as it is."""
    if value is None:
        return ""
    return f"{value:.6f}" if isinstance(value, float) else value
