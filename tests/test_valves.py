"""Safety valves: what trips them, and what does not."""

from __future__ import annotations

import pytest

from loadgen.valves import Spent, Valves


def spent(sent: int = 0, ended: int = 0, failed: int = 0, tokens: int = 0) -> Spent:
    return Spent(sent, ended, failed, tokens)


def test_without_limits_nothing_trips() -> None:
    assert Valves().tripped(spent(10**9, 10**9, 10**9, 10**12)) is None


@pytest.mark.parametrize(
    ("valves", "below", "at"),
    [
        (Valves(max_requests=100), spent(sent=99), spent(sent=100)),
        (Valves(max_total_tokens=5000), spent(tokens=4999), spent(tokens=5000)),
        (Valves(failure_ratio=0.5), spent(ended=20, failed=9), spent(ended=20, failed=10)),
        (Valves(failure_ratio=0.5), spent(ended=19, failed=19), spent(ended=20, failed=20)),
    ],
)
def test_a_valve_trips_at_its_limit_and_not_below(valves: Valves, below: Spent, at: Spent) -> None:
    assert valves.tripped(below) is None
    why = valves.tripped(at)
    assert why is not None
    assert why.startswith("safety valve: ")
