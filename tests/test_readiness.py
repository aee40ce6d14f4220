"""Sockets are read at once, or together when much comes; pairs of real sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import gevent
import pytest
from gevent.event import Event

from client import readiness
from client.readiness import Readiness, worth_waiting
from client.wire import Wire


@pytest.mark.parametrize(
    ("ready", "expecting", "worth"),
    [(0, 100, False), (1, 100, True), (10, 100, True), (11, 100, False), (1, 9, False), (0, 0, False)],
)
def test_waiting_for_more_is_worth_it_when_few_of_many_are_ready(
    ready: int, expecting: int, worth: bool
) -> None:
    assert worth_waiting(ready, expecting) is worth


class Pair:
    """A watched socket and its other end: `ping` gives it a byte and waits until that was read."""

    def __init__(self, watched: Readiness) -> None:
        self.near, self.far = socket.socketpair()
        self.read = Event()
        self._watched = watched
        watched.add(self.near.fileno(), self._on_ready)

    def _on_ready(self) -> None:
        assert self.near.recv(1) == b"."
        self.read.set()

    def ping(self, limit_s: float) -> bool:
        self.read.clear()
        self.far.send(b".")
        return self.read.wait(limit_s)

    def close(self) -> None:
        self._watched.remove(self.near.fileno())
        self.near.close()
        self.far.close()


@pytest.fixture
def slow_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for more takes most of a second, so that it shows."""
    monkeypatch.setattr(readiness, "LOOK_EVERY_S", 0.8)


@pytest.fixture
def pair() -> Iterator[Pair]:
    watched = Readiness()
    with ExitStack() as closing:
        made = Pair(watched)
        closing.callback(made.close)
        yield made


@pytest.mark.usefixtures("slow_ticks")
@pytest.mark.parametrize(
    ("expecting", "stamps", "waits"), [(100, "kernel", True), (5, "kernel", False), (100, "user", False)]
)
def test_much_that_comes_is_read_together_if_no_figure_suffers(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, expecting: int, stamps: str, waits: bool
) -> None:
    monkeypatch.setattr(Wire, "stamps", stamps)
    pair._watched.expecting = expecting
    read_at_once = [pair.ping(0.4) for _ in range(5)]
    assert read_at_once[0]
    assert all(read_at_once) is not waits
    if waits:
        assert pair.read.wait(4.0)  # read in the end, and not by another ping


@pytest.mark.usefixtures("slow_ticks")
def test_when_nothing_more_comes_the_next_is_read_at_once_again(pair: Pair) -> None:
    pair._watched.expecting = 100
    assert not all(pair.ping(0.4) for _ in range(5))
    gevent.sleep(2.0)  # read at one tick; at the next there is nothing
    assert pair.ping(0.4)


def test_one_that_is_read_may_close_another_that_is_ready() -> None:
    watched, ended = Readiness(), Event()
    ends = [socket.socketpair() for _ in range(2)]

    def close_both() -> None:
        assert not ended.is_set()  # the second is not read any more
        for near, _ in ends:
            watched.remove(near.fileno())
            near.close()
        ended.set()

    for near, far in ends:
        watched.add(near.fileno(), close_both)
        far.send(b".")
    assert ended.wait(5.0)
    for _, far in ends:
        far.close()


def test_without_epoll_each_socket_is_watched_by_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "_new_epoll", None)
    pair = Pair(Readiness())
    assert [pair.ping(5.0) for _ in range(3)] == [True] * 3
    pair.close()
