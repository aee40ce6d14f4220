"""Who fires what: everything has one owner, and a lost worker's rest goes round the others."""

from __future__ import annotations

import numpy as np
import pytest

from loadgen.shares import Shares

AT_S = np.arange(20) * 0.5  # 0 ... 9.5 s


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_arrival_has_one_owner(workers: int) -> None:
    shares = Shares(AT_S, workers)
    owned = [k for worker in range(workers) for k in shares.of(worker).tolist()]
    assert sorted(owned) == list(range(20))
    assert shares.of(0, 2.0, 4.0).tolist() == [k for k in range(4, 8) if k % workers == 0]


def test_a_lost_workers_rest_goes_round_the_others_from_2_s_ahead() -> None:
    shares = Shares(AT_S, 3)
    moved = shares.hand_over(1, [0, 2], now_s=3.0)
    assert moved.tolist() == [10, 13, 16, 19]  # k mod 3 = 1, due at 5 s or later
    assert [shares.owner(int(k)) for k in moved] == [0, 2, 0, 2]
    assert shares.of(1).tolist() == [1, 4, 7]


def test_what_was_handed_over_can_be_handed_over_again() -> None:
    shares = Shares(AT_S, 3)
    shares.hand_over(1, [0, 2], now_s=0.0)
    shares.hand_over(2, [0], now_s=2.0)
    assert shares.of(0, 4.0).tolist() == list(range(8, 20))


def test_with_nobody_left_nothing_moves() -> None:
    assert Shares(AT_S, 1).hand_over(0, [], now_s=0.0).tolist() == []
