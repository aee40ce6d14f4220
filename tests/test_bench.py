"""The bench runs and counts rightly; its figures are of the machine and are not judged here."""

from __future__ import annotations

import shutil

import pytest

from bench.accuracy import measure_burst, measure_streams
from bench.own_run import Answers, closed_loop, whole_cycles

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
    assert found.delivered_ratio is not None
    assert 0 < found.delivered_ratio < 1.1


def test_users_come_in_groups_where_answers_are_long_and_whole_answers_are_measured() -> None:
    long, short = Answers(tokens=50, ttft_ms=200, gap_ms=40), Answers(tokens=1, ttft_ms=20, gap_ms=0)
    assert long.seconds == 2.16
    from_s, until_s = whole_cycles(long, 10)
    assert (from_s, round((until_s - from_s) / 2.16, 6)) == (3.16, 3)
    levels = closed_loop(400, long, 10)[-1].split(",")
    assert levels[:3] == ["20", "40", "60"]
    assert set(levels[19:]) == {"400"}
    assert "--levels" not in closed_loop(400, short, 10)
