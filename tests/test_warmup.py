"""The warm-up: every request sent once and a few at a time, its records moved to the run's clock."""

from __future__ import annotations

from typing import Any, cast

import gevent
import pytest
from gevent.event import Event

from client.completion import Finished
from loadgen.arrival import Arrival
from loadgen.warmup import AT_ONCE, shifted, warm_up, warmup_line, warmup_requests
from runlog.record import COLUMNS, RequestRecord
from shapes.lengths import parse_lengths

INPUT, OUTPUT = parse_lengths("uniform:10-50"), parse_lengths("uniform:5-9")


def requests(count: int, worker: int = 0, seed: int = 1) -> list[Arrival]:
    return warmup_requests(count, worker, seed, INPUT, OUTPUT)


def record(number: int, ttft_s: float | None = 0.1, failure_class: str | None = None) -> RequestRecord:
    return RequestRecord(
        arrival=None,
        request_id=f"r-{number}",
        name="warmup",
        sent_at_s=10.0,
        first_token_at_s=None if ttft_s is None else 10.0 + ttft_s,
        ended_at_s=12.0,
        connect_s=0.25,
        outcome="failed" if failure_class else "succeeded",
        failure_class=failure_class,
    )


class Server:
    """Answers after a moment; knows how many it served at once."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []
        self.now = self.most = 0

    def ask(self, arrival: Arrival) -> Finished:
        self.asked.append(arrival.label)
        self.now += 1
        self.most = max(self.most, self.now)
        gevent.sleep(0.01)
        self.now -= 1
        return Finished(record(int(str(arrival.label).rpartition("-")[2])))


def test_all_are_sent_a_few_at_a_time_and_given_back_in_order() -> None:
    server = Server()
    ends = warm_up(server.ask, requests(10))
    assert [end.record.request_id for end in ends] == [f"r-{n}" for n in range(10)]
    assert server.most == AT_ONCE
    assert warm_up(server.ask, []) == []


def test_a_stop_leaves_the_rest_unsent() -> None:
    server = Server()
    ends = warm_up(server.ask, requests(50), stopped=lambda: len(server.asked) >= 5)
    assert 5 <= len(ends) == len(server.asked) < 5 + AT_ONCE


def test_requests_in_flight_end_with_their_greenlet() -> None:
    left: list[str | None] = []

    def ask(arrival: Arrival) -> Finished:
        try:
            Event().wait(60.0)
        finally:
            left.append(arrival.label)
        raise AssertionError

    warming = gevent.spawn(warm_up, ask, requests(10))
    gevent.sleep(0.05)
    warming.kill()
    assert len(left) == AT_ONCE


def test_the_requests_have_the_loads_lengths_and_belong_to_their_worker() -> None:
    mine = requests(40)
    assert all(10 <= each.input_tokens <= 50 and 5 <= each.output_tokens <= 9 for each in mine)
    assert len({each.input_tokens for each in mine}) > 5
    assert {(each.name, each.index, each.scheduled) for each in mine} == {("warmup", None, False)}
    assert mine == requests(40)
    others = requests(40, worker=1) + requests(40, seed=2)
    assert not {each.prompt_seed for each in mine} & {each.prompt_seed for each in others}
    assert not {each.label for each in mine} & {each.label for each in requests(40, worker=1)}


def test_all_moments_are_shifted_and_nothing_else() -> None:
    moments = [column for column in COLUMNS if column.endswith("_at_s")]
    before = RequestRecord(
        arrival=None,
        request_id="r",
        outcome="succeeded",
        connect_s=0.25,
        read_lag_s=0.5,
        gap_max_s=0.125,
        **cast(dict[str, Any], {name: 100.0 + place for place, name in enumerate(moments)}),
    )
    after = shifted(before, -128.0)
    assert len(moments) == 7
    for column in COLUMNS:
        change = -128.0 if column in moments else None
        value = getattr(before, column)
        assert getattr(after, column) == (value if change is None else value + change)
    assert after.ttft_s == before.ttft_s


def test_unknown_moments_stay_unknown() -> None:
    assert shifted(record(0, ttft_s=None), -11.0).first_token_at_s is None


@pytest.mark.parametrize(
    ("records", "line"),
    [
        ([record(0, 0.05), record(1, 0.08), record(2, 0.3)], "warm-up: 3 of 3 succeeded, median TTFT 80 ms"),
        ([record(0, None), record(1, None)], "warm-up: 2 of 2 succeeded"),
        (
            [record(0, 0.1), *(record(k, None, "refused") for k in (1, 2)), record(3, 9.9, "stall")],
            "warm-up: 1 of 4 succeeded, median TTFT 100 ms; 2 x refused, 1 x stall",
        ),
    ],
)
def test_one_line_says_how_it_went(records: list[RequestRecord], line: str) -> None:
    assert warmup_line(records) == line
