"""Turns: one at a time, and others get the hub between stretches."""

from __future__ import annotations

import gevent

from client.clock import monotonic_ns
from client.turns import Turns


def work(milliseconds: float) -> None:
    until_ns = monotonic_ns() + round(milliseconds * 1e6)
    while monotonic_ns() < until_ns:
        pass


def test_others_run_between_the_turns_of_a_crowd() -> None:
    turns = Turns()
    done: list[int] = []
    seen: list[int] = []

    def one(number: int) -> None:
        with turns:
            work(1.0)
            done.append(number)

    def other() -> None:
        while len(done) < 60:
            seen.append(len(done))
            gevent.sleep(0.0001)

    crowd = [gevent.spawn(one, number) for number in range(60)]
    watching = gevent.spawn(other)
    gevent.joinall([*crowd, watching], raise_error=True)
    assert sorted(done) == list(range(60))
    assert len(set(seen)) > 10  # once in two or three turns: not only before and after all of them


def test_a_failure_ends_a_turn() -> None:
    turns = Turns()
    for _ in range(2):
        try:
            with turns:
                raise OSError
        except OSError:
            pass
