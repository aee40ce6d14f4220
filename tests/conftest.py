"""What several test files start: a simulated server in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from client.engines import ENGINES
from experiments.launch import simulated_server

StartServer = Callable[..., str]


@pytest.fixture
def start_simserver(tmp_path: Path) -> Iterator[StartServer]:
    """A function that starts `python -m simserver` with the given options and returns its base URL."""
    with ExitStack() as running:

        def start(*options: str) -> str:
            log = tmp_path / f"simserver_{len(list(tmp_path.glob('simserver_*')))}.log"
            return running.enter_context(simulated_server(log, *options))

        yield start


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """The test runs once with each engine."""
    return str(request.param)
