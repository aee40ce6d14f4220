"""Closed loop: users wake together at the moment itself, go on while they are active, and are never cut."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import gevent
import pytest
from gevent.event import Event
from hypothesis import given
from hypothesis import strategies as st

from client import clock
from client.completion import Finished
from experiments.launch import free_port
from loadgen.arrival import Arrival
from loadgen.assignment import Assignment
from loadgen.closed_loop import ClosedLoop, activations
from loadgen.sender import StreamSender
from loadgen.user_requests import user_requests
from loadgen.warmup import warm_up, warmup_requests
from runlog.record import RequestRecord
from shapes.lengths import Lengths, parse_lengths
from tests.conftest import StartServer

Changes = Sequence[tuple[float, int]]
REQUEST_OF = user_requests(1, parse_lengths("10"), parse_lengths("5"))


@dataclass
class Body:
    arrival: Arrival
    size_bytes: int = 100
    succeeded: bool = False
    ended: Event = field(default_factory=Event)


@dataclass
class FakeSender:
    """Remembers what it was told; an answer takes `answer_s` or ends badly when it is cancelled."""

    answer_s: float = 0.05
    succeeds: bool = True
    start_ns: int = 0
    armed: list[Arrival] = field(default_factory=list)
    sent: list[tuple[float, Arrival]] = field(default_factory=list)
    unsent: list[tuple[Arrival, str]] = field(default_factory=list)
    asking: list[str | None] = field(default_factory=list)
    most: int = 0
    most_connections: int = 0
    cancelled: int = 0
    cancel: Event = field(default_factory=Event)

    def arm(self, arrival: Arrival) -> Body:
        self.armed.append(arrival)
        return Body(arrival)

    def open_ahead(self, connections: int) -> None:
        self.most_connections = max(self.most_connections, connections)

    def fire(self, armed: Body) -> None:
        assert armed.arrival.session not in self.asking, "a user has one request at a time"
        self.asking.append(armed.arrival.session)
        self.most = max(self.most, len(self.asking))
        self.sent.append(((clock.monotonic_ns() - self.start_ns) / 1e9, armed.arrival))

    def finish(self, armed: Body) -> None:
        armed.succeeded = not self.cancel.wait(self.answer_s) and self.succeeds
        self.asking.remove(armed.arrival.session)

    def not_sent(self, arrival: Arrival, failure_class: str) -> None:
        self.unsent.append((arrival, failure_class))

    def cancel_all(self) -> None:
        self.cancelled += len(self.asking)
        self.cancel.set()

    def turns(self, user: int) -> list[int | None]:
        return [arrival.turn for _, arrival in self.sent if arrival.session == str(user)]


def started(
    sender: FakeSender,
    changes: Changes,
    duration_s: float,
    drain_s: float = 5.0,
    worker: int = 0,
    workers: int = 1,
    late_s: float = -0.02,
) -> ClosedLoop:
    loop = ClosedLoop(
        sender, changes, REQUEST_OF, worker=worker, workers=workers, duration_s=duration_s, drain_s=drain_s
    )
    sender.start_ns = clock.monotonic_ns() - round(late_s * 1e9)
    loop.start(sender.start_ns)
    return loop


def until(condition: Callable[[], bool]) -> None:
    with gevent.Timeout(20.0):
        while not condition():
            gevent.sleep(0.01)


# --- the rules ---


@st.composite
def changes_of_users(draw: st.DrawFn) -> Changes:
    levels = draw(st.lists(st.integers(0, 40), max_size=8))
    return [(float(at_s), users) for at_s, users in enumerate(levels)]


@given(changes_of_users(), st.integers(1, 5))
def test_the_workers_users_together_follow_the_plan(changes: Changes, workers: int) -> None:
    woken = sorted(each for worker in range(workers) for each in activations(changes, worker, workers))
    plan = []
    for (_, before), (at_s, users) in itertools.pairwise([(0.0, 0), *changes]):
        plan += [(at_s, user) for user in range(before, users)]
    assert woken == plan
    for worker in range(workers):
        assert {user % workers for _, user in activations(changes, worker, workers)} <= {worker}


def test_a_users_request_depends_on_seed_user_and_turn_alone() -> None:
    lengths = parse_lengths("uniform:10-90"), parse_lengths("lognormal:50,0.5,max=200")
    one, same, other = user_requests(7, *lengths), user_requests(7, *lengths), user_requests(8, *lengths)
    places = [(user, turn) for user in range(20) for turn in range(3)]
    drawn = [one(*place) for place in places]
    assert drawn == [same(*place) for place in reversed(places)][::-1]
    assert all(10 <= each.input_tokens <= 90 and 1 <= each.output_tokens <= 200 for each in drawn)
    assert len({each.prompt_seed for each in [*drawn, *(other(*place) for place in places)]}) == 120
    assert (drawn[4].index, drawn[4].session, drawn[4].turn, drawn[4].label) == (None, "1", 1, "u1-1")


def test_another_rule_for_answers_leaves_the_prompts_alone() -> None:
    one = user_requests(7, Lengths("normal", 100, 30), Lengths("constant", 5))(3, 4)
    other = user_requests(7, Lengths("normal", 100, 30), Lengths("normal", 50, 20))(3, 4)
    assert (one.input_tokens, one.prompt_seed) == (other.input_tokens, other.prompt_seed)


# --- the loop ---


def test_a_pulse_wakes_its_users_at_once_and_parks_them_after_their_answers() -> None:
    sender = FakeSender(answer_s=0.04)
    loop = started(sender, [(0.0, 2), (0.3, 30), (0.6, 2), (1.0, 30), (1.3, 0)], 1.3)
    loop.run()
    woken = [(sent_s, each) for sent_s, each in sender.sent if each.scheduled]
    assert Counter(each.at_s for _, each in woken) == {0.0: 2, 0.3: 28, 1.0: 28}
    assert all(sent_s >= each.at_s for sent_s, each in woken)
    places = [place for place, (_, each) in enumerate(sender.sent) if each.at_s == 0.3 and each.scheduled]
    assert places == list(range(places[0], places[0] + 28))  # nothing came in between: one burst
    assert sender.most == 30
    assert all(each.session in ("0", "1") for sent_s, each in sender.sent if 0.7 < sent_s < 1.0)
    assert sender.cancelled == 0
    assert not sender.unsent
    assert loop.fired == len(sender.sent)
    assert loop.in_flight == 0
    for user in range(30):
        assert sender.turns(user) == list(range(len(sender.turns(user))))
        assert len(sender.turns(user)) >= 2


def test_requests_and_connections_are_ready_before_the_moment() -> None:
    sender = FakeSender()
    loop = started(sender, [(0.0, 0), (1.5, 60), (1.501, 0), (60.0, 70)], 90.0)
    running = gevent.spawn(loop.run)
    until(lambda: sender.most_connections == 60 and len(sender.armed) == 60)
    assert [(each.session, each.at_s) for each in sender.armed] == [(str(user), 1.5) for user in range(60)]
    assert sender.sent == []
    until(lambda: len(sender.sent) == 60)
    assert sender.armed == [each for _, each in sender.sent]
    loop.stop("run_stopped")
    running.get(timeout=10)
    assert not sender.unsent


def test_a_request_that_outlasts_the_fall_is_not_cut_and_its_user_goes_on_if_it_is_active_again() -> None:
    sender = FakeSender(answer_s=0.5)
    loop = started(sender, [(0.0, 5), (0.1, 0), (0.2, 5), (0.9, 0)], 0.9)
    loop.run()
    assert sender.cancelled == 0
    assert [each.turn for _, each in sender.sent] == [0] * 5 + [1] * 5
    assert not any(each.scheduled for _, each in sender.sent[5:])  # they followed on their answers


def test_each_worker_sends_for_its_own_users() -> None:
    sender = FakeSender()
    started(sender, [(0.0, 2), (0.1, 9)], 0.6, worker=1, workers=3).run()
    assert {each.session for _, each in sender.sent} == {"1", "4", "7"}


def test_nobody_sends_after_the_end_and_what_is_in_flight_may_finish() -> None:
    sender = FakeSender(answer_s=0.6)
    started(sender, [(0.0, 20)], 0.5, drain_s=30.0).run()
    assert len(sender.sent) == 20
    assert (sender.cancelled, sender.asking) == (0, [])


def test_what_outlasts_the_drain_limit_is_cancelled_once() -> None:
    sender = FakeSender(answer_s=600.0)
    loop = started(sender, [(0.0, 20)], 0.5, drain_s=0.2)
    loop.run()
    assert (sender.cancelled, len(sender.sent), loop.in_flight) == (20, 20, 0)


def test_a_stop_ends_the_run_without_users_that_were_still_to_come() -> None:
    sender = FakeSender(answer_s=0.1)
    loop = started(sender, [(0.0, 3), (50.0, 9)], 60.0)
    running = gevent.spawn(loop.run)
    until(lambda: len(sender.sent) >= 6)
    loop.stop("run_stopped")
    sent = len(sender.sent)
    running.get(timeout=10)
    assert (len(sender.sent), sender.cancelled, sender.unsent) == (sent, 0, [])


def test_a_stop_before_the_start_moment_sends_nothing() -> None:
    sender = FakeSender()
    loop = ClosedLoop(sender, [(0.0, 3)], REQUEST_OF, worker=0, workers=1, duration_s=1.0, drain_s=1.0)
    running = gevent.spawn(loop.run)
    gevent.sleep(0.05)
    loop.stop("run_stopped")
    running.get(timeout=10)
    assert (sender.sent, sender.unsent) == ([], [])


def test_users_that_could_not_be_woken_within_the_run_are_told() -> None:
    sender = FakeSender()
    started(sender, [(0.5, 2), (0.6, 0), (0.7, 1), (2.0, 5)], 1.0, late_s=5.0).run()
    assert [(each.label, each.at_s, why) for each, why in sender.unsent] == [
        ("u0-0", 0.5, "sent_too_late"),
        ("u1-0", 0.5, "sent_too_late"),
        ("u0-1", 0.7, "sent_too_late"),
    ]
    assert sender.sent == []


def test_a_user_whose_requests_fail_at_once_does_not_spin() -> None:
    sender = FakeSender(answer_s=0.0, succeeds=False)
    started(sender, [(0.0, 3)], 1.0).run()
    for user in range(3):
        assert 2 <= len(sender.turns(user)) <= 3  # at 0, 0.2 and 0.6 s


def test_a_pause_ends_with_the_run() -> None:
    sender = FakeSender(answer_s=0.0, succeeds=False)
    loop = started(sender, [(0.0, 3)], 60.0)
    running = gevent.spawn(loop.run)
    until(lambda: len(sender.sent) == 9 and loop.in_flight == 0)  # and now they pause for 0.8 s
    loop.stop("run_stopped")
    stopped_ns = clock.monotonic_ns()
    running.get(timeout=10)
    assert len(sender.sent) == 9
    assert clock.monotonic_ns() - stopped_ns < 0.7e9


def test_an_error_in_a_users_prompt_ends_the_run_and_is_raised() -> None:
    class Failing(FakeSender):
        def arm(self, arrival: Arrival) -> Body:
            if arrival.turn == 2:
                raise KeyError("no third prompt")
            return super().arm(arrival)

    sender = Failing()
    with pytest.raises(KeyError, match="no third prompt"):
        started(sender, [(0.0, 4)], 60.0).run()
    assert sender.asking == []


# --- with the client, against a server ---


@contextmanager
def stream_sender(url: str, kept: list[Finished], stream: bool = True) -> Iterator[StreamSender]:
    assignment = Assignment(
        run_id="run",
        user_class="Chat",
        runs_dir="",
        worker=0,
        workers=1,
        target=url,
        model="sim-llm",
        endpoint="chat",
        engine="direct",
        api_version=None,
        dialect="openai",
        connections="reuse",
        gaps="all",
        stream=stream,
        duration_s=2.0,
        drain_s=30.0,
        first_token_limit_s=60.0,
        stall_limit_s=30.0,
        total_limit_s=600.0,
        load="closed",
        users=[],
        warmup=0,
        probes_rps=None,
        seed=1,
        input_lengths=parse_lengths("10"),
        output_lengths=parse_lengths("10"),
    )
    sender = StreamSender(assignment, keep=kept.append)
    try:
        yield sender
    finally:
        sender.close()


def run_users(sender: StreamSender, changes: Changes, duration_s: float, output_tokens: str) -> None:
    rule = user_requests(1, parse_lengths("10"), parse_lengths(output_tokens))
    loop = ClosedLoop(sender, changes, rule, worker=0, workers=1, duration_s=duration_s, drain_s=30.0)
    sender.start_ns = clock.monotonic_ns() + 500_000_000
    loop.start(sender.start_ns)
    loop.run()
    assert loop.in_flight == 0


def most_in_flight(records: Sequence[RequestRecord], start_s: float, end_s: float) -> int:
    """The most requests in flight together at any moment of a window."""
    sent = [(each.sent_at_s or 0.0, each.ended_at_s or 0.0) for each in records]
    moments = [start_s, *(began for began, _ in sent if start_s <= began < end_s)]
    return max(sum(began <= moment < ended for began, ended in sent) for moment in moments)


def test_two_pulses_of_users_reach_their_number_and_none_is_cut(start_simserver: StartServer) -> None:
    kept: list[Finished] = []
    with stream_sender(start_simserver("--jitter", "0"), kept) as sender:
        run_users(sender, [(0.0, 2), (1.0, 10), (2.0, 2), (3.0, 10), (4.0, 0)], 4.0, "30")
    records = [finished.record for finished in kept]
    assert {record.outcome for record in records} == {"succeeded"}
    assert most_in_flight(records, 0.0, 1.0) == 2
    assert most_in_flight(records, 1.0, 2.0) == 10
    assert most_in_flight(records, 3.0, 4.0) == 10
    woken = [record for record in records if record.scheduled_at_s is not None]
    assert Counter(record.scheduled_at_s for record in woken) == {0.0: 2, 1.0: 8, 3.0: 8}
    assert {record.connection for record in woken} == {"reused"}  # opened ahead
    assert {record.session for record in records} == {str(user) for user in range(10)}
    assert len({record.request_id for record in records}) == len(records)
    for record in records:
        assert record.request_id == f"run-u{record.session}-{record.turn}"
        assert record.arrival is None
        assert record.ttft_s is not None
        assert record.sent_at_s is not None
        assert record.sent_at_s < 4.5


def test_answers_in_one_piece_have_an_end_but_no_first_token(start_simserver: StartServer) -> None:
    kept: list[Finished] = []
    with stream_sender(start_simserver(), kept, stream=False) as sender:
        run_users(sender, [(0.0, 3)], 0.5, "5")
    assert len(kept) >= 3
    for finished in kept:
        record = finished.record
        assert (record.outcome, record.output_tokens, finished.streamed) == ("succeeded", 5, False)
        assert (record.ttft_s, record.tpot_s) == (None, None)
        assert record.e2e_s == pytest.approx((record.ended_at_s or 0.0) - (record.sent_at_s or 0.0))


def test_a_server_that_is_not_there_is_asked_again_but_not_hammered() -> None:
    kept: list[Finished] = []
    with stream_sender(f"http://127.0.0.1:{free_port()}", kept) as sender:
        run_users(sender, [(0.0, 4)], 1.0, "5")
    assert {finished.record.failure_class for finished in kept} == {"refused"}
    assert 8 <= len(kept) <= 12


def test_the_warm_up_is_handed_back_and_leaves_open_connections(start_simserver: StartServer) -> None:
    kept: list[Finished] = []
    with stream_sender(start_simserver(), kept) as sender:
        requests = warmup_requests(5, 0, 1, parse_lengths("10"), parse_lengths("3"))
        ends = [finished.record for finished in warm_up(sender.ask, requests)]
        run_users(sender, [(0.0, 1)], 0.5, "3")
    assert [end.request_id for end in ends] == [f"run-warmup-0-{n}" for n in range(5)]
    assert {(end.outcome, end.name, end.scheduled_at_s) for end in ends} == {("succeeded", "warmup", None)}
    assert {finished.record.name for finished in kept} == {"chat"}
    assert ends[0].connection == "new"
    assert kept[0].record.connection == "reused"
