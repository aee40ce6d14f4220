"""What several test files start: a simulated server in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from client.engines import ENGINES
from experiments.launch import simulated_server
from tests.report_pages import CHROMIUM, OPTIONS

StartServer = Callable[..., str]


@pytest.fixture
def start_simserver(tmp_path: Path) -> Iterator[StartServer]:
    """A function that starts `python -m simserver` with the given options and returns its base URL."""
    with ExitStack() as running:

        def start(*options: str) -> str:
            log = tmp_path / f"simserver_{len(list(tmp_path.glob('simserver_*')))}.log"
            return running.enter_context(simulated_server(log, *options))

        yield start


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window, for the tests that `needs_chromium`."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield opened
        opened.close()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """The test runs once with each engine."""
    return str(request.param)
