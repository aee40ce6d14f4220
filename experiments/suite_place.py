"""Where a suite's load runs: as processes of this machine, or in containers of docker-compose.yml.

A place has three doors: `serving` (a variant's server and the URL by which the load finds it), `load` (one
run to its end) and `cool_down` (wait until that server has nothing left to do).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from experiments.launch import LoadRun, run_load
from experiments.suite_compose import InCompose, compose_project
from experiments.suite_file import Suite, Variant
from experiments.suite_servers import Show, cool_down, serving

RUN_LIMIT_S = 7 * 24 * 3600.0


@dataclass(frozen=True)
class OnThisMachine:
    """Runs a suite's load as a Locust master and `workers` workers here; run folders go to `folder`."""

    folder: Path
    workers: int

    def serving(self, variant: Variant, log: Path, show: Show) -> AbstractContextManager[str | None]:
        """The variant's server while the block lasts; see suite_servers.serving."""
        return serving(variant, log, show)

    def load(self, arguments: Sequence[str], logs: Path, on_line: Callable[[str], None]) -> LoadRun:
        """One run with Locust's `arguments`, to its end. Raises LaunchError."""
        told = ("--runs-dir", str(self.folder.resolve()), *arguments)
        return run_load(told, logs, workers=self.workers, limit_s=RUN_LIMIT_S, on_line=on_line)

    def cool_down(self, url: str, limit_s: float) -> bool | None:
        """Wait until the server is idle; see suite_servers.cool_down."""
        return cool_down(url, limit_s)


Place = OnThisMachine | InCompose


def place_of(wanted: Suite, folder: Path, show: Show) -> AbstractContextManager[Place]:
    """Where the load of `wanted` runs, while the block lasts; run folders go to `folder`. Raises
    LaunchError."""
    if wanted.compose:
        return compose_project(folder, wanted.workers, RUN_LIMIT_S, show)
    return nullcontext(OnThisMachine(folder, wanted.workers))
