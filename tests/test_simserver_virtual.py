"""Virtual time: what happens while a step runs is seen as it was then."""

from __future__ import annotations

from simserver.cost import CostModel
from simserver.engine import Engine
from simserver.request import Limits, Request
from simserver.virtual import run_virtually


def engine() -> Engine:
    return Engine(CostModel(floor_s=1.0), Limits(100, 1, 1_600))


def test_an_arrival_and_a_sample_amid_a_step_see_the_step_run() -> None:
    of = engine()
    seen: dict[float, tuple[int, int]] = {}
    load = [Request("a", 5, 1, 0.0), Request("b", 5, 1, 0.5)]

    def sample(at_s: float) -> None:
        seen[at_s] = of.running, of.waiting

    assert run_virtually(of, load, sample_every_s=0.25, on_sample=sample) == 2.0
    assert seen[0.0] == (0, 1), "a request that comes at the moment of a sample is in it"
    assert seen[0.25] == (1, 0)
    assert seen[0.75] == (1, 1)
    assert seen[1.25] == (1, 0)
    assert [one.last_token_at_s for one in load] == [1.0, 2.0]


def test_a_closed_loop_is_made_by_what_follows_a_finished_request() -> None:
    of = engine()
    sent = [Request("0", 5, 1, 0.0)]

    def on_step(gained: list[Request], now_s: float) -> None:
        if len(sent) < 3:
            sent.append(Request(str(len(sent)), 5, 1, now_s))
            of.submit(sent[-1])

    assert run_virtually(of, sent[:1], on_step=on_step) == 3.0
    assert [one.first_token_at_s for one in sent] == [1.0, 2.0, 3.0]


def test_the_end_comes_in_the_midst_of_a_step_and_gives_no_token() -> None:
    of = engine()
    load = [Request("a", 5, 9, 0.0), Request("b", 5, 1, 2.4), Request("late", 5, 1, 9.0)]
    assert run_virtually(of, load, until_s=2.5) == 2.5
    assert load[0].emitted_tokens == 2
    assert (of.running, of.waiting) == (1, 1), "b has come, late has not"


def test_an_idle_engine_jumps_to_the_next_arrival() -> None:
    load = [Request("a", 5, 1, 0.0), Request("b", 5, 1, 1_000_000.0)]
    assert run_virtually(engine(), load) == 1_000_001.0
