"""client_load.csv: how busy each worker was in each second of the run; written as the run goes.

A second lasts from `second` to `second + 1` after the start moment. Readers get along without the file.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

CLIENT_LOAD_CSV = "client_load.csv"
CLIENT_LOAD_KINDS: dict[str, type] = {
    "worker": int,
    "second": int,
    "cpu_ratio": float,
    "loop_lag_p99_s": float,
    "loop_lag_max_s": float,
    "in_flight": int,
}
"""Each column's type. `cpu_ratio` is of one core; `in_flight` is counted at the second's end."""


class ClientLoadLog:
    """Appends to client_load.csv; the file is made with the first row, so that no rows means no file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / CLIENT_LOAD_CSV

    def add(self, worker: int, seconds: Iterable[Sequence[float]]) -> None:
        """Seconds of one worker: [second, cpu_ratio, loop_lag_p99_s, loop_lag_max_s, in_flight]."""
        rows = [
            [worker, int(s), f"{cpu:.4f}", f"{p99:.6f}", f"{most:.6f}", int(n)]
            for s, cpu, p99, most, n in seconds
        ]
        if not rows:
            return
        fresh = not self._path.exists()
        with open(self._path, "a", newline="", encoding="utf-8") as file:
            lines = csv.writer(file)
            if fresh:
                lines.writerow(CLIENT_LOAD_KINDS)
            lines.writerows(rows)
