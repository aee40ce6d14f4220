"""The dispatcher: every arrival fired once and in order, or accounted for; stops and limits leave nothing
behind.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import gevent
import pytest
from gevent.event import Event

from client import clock
from loadgen.arrival import Arrival
from loadgen.dispatch import ARM_BYTES_AT_MOST, Dispatcher, most_within


def arrival(index: int, at_s: float) -> Arrival:
    return Arrival(index, at_s, "chat", 10, 5, index)


@dataclass
class Body:
    size_bytes: int
    index: int


@dataclass
class FakeSender:
    """Remembers what it was told; an answer takes `answer_s` or ends when it is cancelled."""

    answer_s: float = 0.0
    body_bytes: int = 100
    armed: list[int] = field(default_factory=list)
    sent: list[tuple[int, int]] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    unsent: list[tuple[int, str]] = field(default_factory=list)
    cancelled: int = 0
    most_connections: int = 0
    cancel: Event = field(default_factory=Event)

    def arm(self, arrival: Arrival) -> Body:
        self.armed.append(arrival.index)
        return Body(self.body_bytes, arrival.index)

    def open_ahead(self, connections: int) -> None:
        self.most_connections = max(self.most_connections, connections)

    def fire(self, armed: Body) -> None:
        self.sent.append((armed.index, clock.monotonic_ns()))

    def finish(self, armed: Body) -> None:
        self.cancel.wait(self.answer_s)
        self.ended.append(armed.index)

    def not_sent(self, arrival: Arrival, failure_class: str) -> None:
        self.unsent.append((arrival.index, failure_class))

    def cancel_all(self) -> None:
        self.cancelled += 1
        self.cancel.set()

    @property
    def indices(self) -> list[int]:
        return [index for index, _ in self.sent]


def started(sender: FakeSender, duration_s: float, drain_s: float = 1.0) -> tuple[Dispatcher, int]:
    dispatcher = Dispatcher(sender, duration_s, drain_s)
    start_ns = clock.monotonic_ns() + 20_000_000
    dispatcher.start(start_ns)
    return dispatcher, start_ns


def test_all_are_sent_in_order_and_never_before_their_moment() -> None:
    sender = FakeSender()
    dispatcher, start_ns = started(sender, 1.0)
    due = [arrival(k, at_s) for k, at_s in enumerate([0.0, 0.05, 0.05, 0.05, 0.3])]
    dispatcher.add(due, last=True)
    dispatcher.run()
    assert sender.indices == [0, 1, 2, 3, 4]
    for (_, sent_ns), one in zip(sender.sent, due, strict=True):
        assert sent_ns >= start_ns + round(one.at_s * 1e9)
    assert sorted(sender.ended) == [0, 1, 2, 3, 4]
    assert sender.unsent == []
    assert dispatcher.fired == 5


def test_later_slices_are_waited_for() -> None:
    sender = FakeSender()
    dispatcher, _ = started(sender, 1.0)
    dispatcher.add([arrival(0, 0.0)], last=False)
    running = gevent.spawn(dispatcher.run)
    gevent.sleep(0.15)
    assert not running.ready()
    dispatcher.add([arrival(1, 0.1), arrival(2, 0.2)], last=True)
    running.get(timeout=10)
    assert sender.indices == [0, 1, 2]


def test_an_amendment_in_between_is_sent_in_its_place() -> None:
    sender = FakeSender()
    dispatcher, _ = started(sender, 2.0)
    dispatcher.add([arrival(0, 0.0), arrival(3, 0.6)], last=True)
    running = gevent.spawn(dispatcher.run)
    gevent.sleep(0.15)
    dispatcher.add([arrival(1, 0.3), arrival(2, 0.4)], last=True)
    running.get(timeout=10)
    assert sender.indices == [0, 1, 2, 3]
    assert sorted(sender.ended) == [0, 1, 2, 3]


def test_the_drain_counts_from_the_end_of_the_load() -> None:
    sender = FakeSender(answer_s=0.6)
    dispatcher, _ = started(sender, duration_s=1.0, drain_s=0.2)
    dispatcher.add([arrival(0, 0.0)], last=True)
    dispatcher.run()
    assert sender.cancelled == 0


def test_connections_are_opened_for_the_densest_moment_only() -> None:
    evenly = [k / 128 for k in range(100)]  # exact in binary
    assert most_within(evenly, 1 / 8) == 16
    assert most_within([*evenly, 2.0, 2.0, 2.0], 1 / 64) == 3
    assert most_within([1.0] * 500, 0.1) == 500
    assert most_within([], 0.1) == 0


def test_a_steady_load_has_connections_for_those_in_flight_together() -> None:
    sender = FakeSender(answer_s=0.2)
    dispatcher, _ = started(sender, 3.0)
    dispatcher.add([arrival(0, 0.0), *(arrival(k, 1.5 + 0.06 * k) for k in range(1, 11))], last=True)
    running = gevent.spawn(dispatcher.run)
    gevent.sleep(0.1)
    assert sender.most_connections <= 1  # nobody knows how long an answer takes
    running.get(timeout=20)
    assert 4 <= sender.most_connections < 10


def test_requests_are_armed_and_connections_opened_ahead() -> None:
    sender = FakeSender()
    dispatcher, _ = started(sender, 2.0)
    dispatcher.add([arrival(k, 0.5) for k in range(60)] + [arrival(60, 8.0)], last=True)
    running = gevent.spawn(dispatcher.run)
    gevent.sleep(0.3)
    assert sender.armed == list(range(60))  # the one at 8 s is too far ahead
    assert sender.indices == []
    assert sender.most_connections == 60
    dispatcher.stop("run_stopped")
    running.get(timeout=10)


def test_arming_is_bounded_in_memory() -> None:
    sender = FakeSender(body_bytes=ARM_BYTES_AT_MOST // 4)
    dispatcher, _ = started(sender, 2.0)
    dispatcher.add([arrival(k, 1.0) for k in range(20)], last=True)
    running = gevent.spawn(dispatcher.run)
    gevent.sleep(0.3)
    assert sender.armed == [0, 1, 2, 3]
    running.get(timeout=10)
    assert sender.indices == list(range(20))


def test_a_stop_in_a_quiet_stretch_ends_it_at_once_and_accounts_for_the_rest() -> None:
    sender = FakeSender()
    dispatcher, _ = started(sender, 60.0)
    dispatcher.add([arrival(0, 0.0), arrival(1, 50.0), arrival(2, 51.0)], last=False)
    running = gevent.spawn(dispatcher.run)
    gevent.sleep(0.1)
    dispatcher.stop("run_stopped")
    running.get(timeout=10)
    assert sender.indices == [0]
    assert sender.unsent == [(1, "run_stopped"), (2, "run_stopped")]


def test_a_stop_before_the_start_moment_sends_nothing() -> None:
    sender = FakeSender()
    dispatcher = Dispatcher(sender, 1.0, 1.0)
    dispatcher.add([arrival(0, 0.0)], last=True)
    running = gevent.spawn(dispatcher.run)
    gevent.sleep(0.05)
    dispatcher.stop("run_stopped")
    running.get(timeout=10)
    assert sender.indices == []
    assert sender.unsent == [(0, "run_stopped")]


def test_what_is_in_flight_at_the_end_may_finish() -> None:
    sender = FakeSender(answer_s=0.3)
    dispatcher, _ = started(sender, 0.1, drain_s=30.0)
    dispatcher.add([arrival(k, 0.0) for k in range(20)], last=True)
    dispatcher.run()
    assert sorted(sender.ended) == list(range(20))
    assert sender.cancelled == 0


def test_what_outlasts_the_drain_limit_is_cancelled() -> None:
    sender = FakeSender(answer_s=600.0)
    dispatcher, _ = started(sender, 0.1, drain_s=0.2)
    dispatcher.add([arrival(k, 0.0) for k in range(20)], last=True)
    dispatcher.run()
    assert sender.cancelled == 1
    assert sorted(sender.ended) == list(range(20))
    assert dispatcher.in_flight == 0


@dataclass
class FussySender(FakeSender):
    """Cannot make one of the requests."""

    bad: int = 2

    def arm(self, arrival: Arrival) -> Body:
        if arrival.index == self.bad:
            raise ValueError("a prompt of the user's own")
        return super().arm(arrival)


def test_a_request_that_cannot_be_made_costs_no_other_its_record() -> None:
    sender = FussySender(answer_s=0.3)
    dispatcher, _ = started(sender, 1.0)
    dispatcher.add([arrival(k, 0.05 * k) for k in range(5)], last=True)
    with pytest.raises(ValueError, match="of the user's own"):
        dispatcher.run()
    assert sorted(sender.ended) == [0, 1]
    assert sender.unsent == [(2, "client_error"), (3, "client_error"), (4, "client_error")]


def test_what_comes_after_the_end_is_told_as_not_sent() -> None:
    sender = FakeSender()
    dispatcher, _ = started(sender, 0.1)
    dispatcher.add([arrival(0, 0.0)], last=True)
    dispatcher.run()
    dispatcher.add([arrival(1, 0.05)], last=True)
    assert sender.unsent == [(1, "sent_too_late")]


def test_what_cannot_be_sent_within_the_run_is_accounted_for() -> None:
    sender = FakeSender()
    dispatcher = Dispatcher(sender, duration_s=1.0, drain_s=1.0)
    dispatcher.start(clock.monotonic_ns() - 10_000_000_000)
    dispatcher.add([arrival(0, 0.5), arrival(1, 0.6)], last=True)
    dispatcher.run()
    assert sender.unsent == [(0, "sent_too_late"), (1, "sent_too_late")]
