"""What several slow tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.docker_engine import built_image


@pytest.fixture(scope="session")
def image() -> Iterator[str]:
    """The suite's image, built once for all tests that run containers."""
    yield from built_image()
