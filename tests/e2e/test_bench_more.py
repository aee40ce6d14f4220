"""The longer measurements of the bench run and count rightly; their figures are not judged."""

from __future__ import annotations

import shutil

import pytest

from bench.accuracy import measure_burst
from bench.memory import memory_per_stream_kb

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("cc") or shutil.which("gcc")), reason="the truth server needs a C compiler"
    ),
]


def test_tls_is_measured_too() -> None:
    found = measure_burst(requests=5, tokens=3, ttft_ms=50, gap_ms=10, connections="fresh", tls=True)
    assert found.requests == found.connections == 5
    assert found.load == "burst of 5, fresh connections, TLS"


def test_memory_is_looked_at_twice() -> None:
    assert memory_per_stream_kb(few=2, many=20, level_s=2.0) is not None
