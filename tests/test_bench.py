"""The bench runs and counts rightly; its figures are of the machine and are not judged here."""

from __future__ import annotations

import shutil

import pytest

from bench.accuracy import measure_burst, measure_streams

pytestmark = pytest.mark.skipif(
    not (shutil.which("cc") or shutil.which("gcc")), reason="the truth server needs a C compiler"
)


def test_a_burst_is_counted_and_compared() -> None:
    found = measure_burst(requests=20, tokens=5, ttft_ms=50, gap_ms=10)
    assert found.requests == found.connections == 20
    assert found.burst_spread_ms is not None
    assert found.gap_error_p99_ms is not None
    assert abs(found.ttft_error_p50_ms) < 25  # an error against the true 50 ms, not a time of its own


def test_streams_reuse_their_connections_and_their_cpu_is_told() -> None:
    found = measure_streams(streams=5, tokens=10, ttft_ms=50, gap_ms=10, seconds=5)
    assert found.requests > 5 * 10
    assert found.connections == 5
    assert found.cpu_us_per_chunk is not None
    assert found.cpu_us_per_chunk > 0
