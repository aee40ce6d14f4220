"""server_metrics.csv: what the server said of itself while a run went on, one row per moment."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from types import TracebackType

SERVER_METRICS_CSV = "server_metrics.csv"


@dataclass(frozen=True, slots=True)
class ServerSample:
    """The server at one moment; None is unknown. `*_total` count since the server's start.

    at_s: seconds since the run's start moment. running, waiting: requests in the batch and in the queue.
    kv_cache_used_ratio: 0 to 1.
    """

    at_s: float
    running: int | None = None
    waiting: int | None = None
    kv_cache_used_ratio: float | None = None
    preemptions_total: int | None = None
    prompt_tokens_total: int | None = None
    generation_tokens_total: int | None = None
    rejections_total: int | None = None


SAMPLE_COLUMNS: tuple[str, ...] = tuple(item.name for item in fields(ServerSample))
_FLOATS = ("at_s", "kv_cache_used_ratio")


class SampleWriter:
    """Appends samples to a folder's server_metrics.csv. Raises FileExistsError when it is there already."""

    def __init__(self, folder: Path) -> None:
        self._file = open(folder / SERVER_METRICS_CSV, "x", newline="", encoding="utf-8")  # noqa: SIM115
        self._csv = csv.writer(self._file)
        self._csv.writerow(SAMPLE_COLUMNS)

    def append(self, sample: ServerSample) -> None:
        """One row; seconds to the microsecond."""
        self._csv.writerow(
            "" if value is None else f"{value:.6f}" if isinstance(value, float) else value
            for value in astuple(sample)
        )

    def __enter__(self) -> SampleWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._file.close()


def read_samples(folder: Path) -> Iterator[ServerSample]:
    """The samples of a folder in order; none when it has no such file. Raises ValueError for a bad cell."""
    try:
        with open(folder / SERVER_METRICS_CSV, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                yield ServerSample(
                    **{
                        name: float(row[name]) if name in _FLOATS else int(row[name])
                        for name in SAMPLE_COLUMNS
                        if row.get(name)
                    }  # type: ignore[arg-type]
                )
    except FileNotFoundError:
        return
