"""A real Docker engine for tests: one command of it, and the suite's image, built once for all."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator

import pytest

from experiments.launch import REPOSITORY

BUILD_LIMIT_S = 900


def docker(*arguments: str, env: dict[str, str] | None = None, limit_s: float = 120) -> str:
    """Standard output of one docker command; AssertionError with its errors when it fails."""
    done = subprocess.run(
        ["docker", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit_s,
    )
    assert done.returncode == 0, f"docker {' '.join(arguments)}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


def built_image() -> Iterator[str]:
    """The suite's image, built for these tests and removed after them. Skips where there is no Docker engine
    with Compose v2; PYTHON_IMAGE names another base image."""
    for question in (("info",), ("compose", "version")):
        try:
            docker(*question, limit_s=20)
        except (OSError, AssertionError, subprocess.TimeoutExpired):
            pytest.skip(f"`docker {' '.join(question)}` fails: no Docker engine with Compose v2 here")
    tag = f"llm-burst-test-{uuid.uuid4().hex[:8]}"
    try:
        docker("compose", "build", "--quiet", env={"SUITE_IMAGE": tag}, limit_s=BUILD_LIMIT_S)
        yield tag
    finally:
        subprocess.run(["docker", "image", "rm", "--force", tag], capture_output=True, timeout=60)
