"""The engine's rules worked by hand, its invariants under random load, queueing theory in virtual time."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from statistics import fmean, pstdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simserver.presets
from simserver.cost import CostModel
from simserver.engine import Engine
from simserver.presets import PRESETS
from simserver.request import BLOCK_TOKENS, Limits, Request, Step

ONE_SECOND = CostModel(floor_s=1.0)


def engine(
    budget: int = 1_000, seqs: int = 100, kv: int = 16_000, cost: CostModel = ONE_SECOND, jitter: float = 0.0
) -> Engine:
    return Engine(cost, Limits(budget, seqs, kv), jitter_ratio=jitter)


def request(name: str, prompt: int, output: int, arrived_at_s: float = 0.0) -> Request:
    return Request(name, prompt, output, arrived_at_s)


def submit(to: Engine, *requests: Request) -> None:
    for one in requests:
        to.submit(one)


def step(of: Engine, now_s: float) -> tuple[dict[str, int], list[str]]:
    """Run one step: tokens computed by request, and who gained a token."""
    scheduled = of.schedule(now_s)
    assert scheduled is not None
    gained = of.complete(scheduled, now_s + scheduled.duration_s)
    return {one.request_id: count for one, count in scheduled.work}, [one.request_id for one in gained]


def run_to_end(of: Engine, requests: Sequence[Request]) -> None:
    """Drive the engine in virtual time: requests join when they have arrived, an idle engine jumps ahead."""
    now_s, upcoming = 0.0, 0
    while upcoming < len(requests) or of.waiting or of.running:
        if not of.waiting and not of.running:
            now_s = max(now_s, requests[upcoming].arrived_at_s)
        while upcoming < len(requests) and requests[upcoming].arrived_at_s <= now_s:
            of.submit(requests[upcoming])
            upcoming += 1
        scheduled = of.schedule(now_s)
        assert scheduled is not None
        now_s += scheduled.duration_s
        of.complete(scheduled, now_s)


def ttft_s(one: Request) -> float:
    assert one.first_token_at_s is not None
    return one.first_token_at_s - one.arrived_at_s


# --- one budget, chunks, order


def test_one_budget_is_spent_on_running_requests_first_and_a_long_prompt_is_chunked() -> None:
    of = engine(budget=10)
    first, second = request("first", 4, 3), request("second", 12, 2)
    submit(of, first, second)
    assert step(of, 0.0) == ({"first": 4, "second": 6}, ["first"])
    assert (of.running, of.waiting) == (2, 0)
    assert step(of, 1.0) == ({"first": 1, "second": 6}, ["first", "second"])
    assert step(of, 2.0) == ({"first": 1, "second": 1}, ["first", "second"])
    assert of.schedule(3.0) is None
    assert (first.first_token_at_s, first.last_token_at_s) == (1.0, 3.0)
    assert (second.first_token_at_s, second.last_token_at_s) == (2.0, 3.0)
    assert of.kv_cache_used_ratio == 0
    assert (of.totals.prompt_tokens, of.totals.generation_tokens) == (16, 5)


def test_a_prompt_in_chunks_holds_up_those_behind_it() -> None:
    of = engine(budget=10)
    submit(of, request("long", 25, 1), request("short", 3, 1))
    assert step(of, 0.0) == ({"long": 10}, [])
    assert step(of, 1.0) == ({"long": 10}, [])
    assert step(of, 2.0) == ({"long": 5, "short": 3}, ["long", "short"])


def test_decodes_beyond_the_budget_wait_for_the_next_step() -> None:
    of = engine(budget=2)
    submit(of, *(request(name, 1, 3) for name in "abc"))
    assert step(of, 0.0)[1] == ["a", "b"]
    assert step(of, 1.0)[1] == ["a", "b"]
    assert of.waiting == 1
    assert step(of, 2.0)[1] == ["a", "b"]
    assert step(of, 3.0)[1] == ["c"]


def test_running_requests_are_limited_and_the_next_is_the_first_that_came() -> None:
    of = engine(seqs=2)
    submit(of, request("a", 5, 1), request("b", 5, 2), request("c", 5, 1), request("d", 5, 1))
    assert step(of, 0.0)[1] == ["a", "b"]
    assert step(of, 1.0)[1] == ["b", "c"]
    assert step(of, 2.0)[1] == ["d"]


def test_a_request_never_joins_a_step_that_began_before_it_came() -> None:
    of = engine()
    submit(of, request("late", 5, 1, arrived_at_s=0.5))
    assert of.schedule(0.4) is None
    assert of.next_start_s(0.4) == 0.5
    assert step(of, 0.5)[1] == ["late"]


# --- KV cache


def test_a_full_kv_cache_preempts_the_last_running_request_which_computes_all_again() -> None:
    of = engine(kv=4 * BLOCK_TOKENS)
    older, younger, behind = request("older", 32, 20), request("younger", 32, 20), request("behind", 1, 1)
    submit(of, older, younger)
    assert step(of, 0.0)[1] == ["older", "younger"]
    assert of.kv_cache_used_ratio == 1
    submit(of, behind)
    # older needs a third block: younger gives up its two, and nobody is admitted, though one block is free.
    assert step(of, 1.0) == ({"older": 1}, ["older"])
    assert (of.running, of.waiting, of.totals.preemptions) == (1, 2, 1)
    assert of.kv_cache_used_ratio == 0.75
    # younger now stands before behind and its 33 tokens need three blocks.
    assert step(of, 2.0) == ({"older": 1}, ["older"])
    for now_s in range(3, 20):
        assert step(of, now_s)[1] == ["older"]
    assert older.finished
    assert step(of, 20.0) == ({"younger": 33, "behind": 1}, ["younger", "behind"])
    for now_s in range(21, 39):
        assert step(of, now_s)[1] == ["younger"]
    assert younger.finished
    assert (younger.preemptions, younger.first_token_at_s, younger.admitted_at_s) == (1, 1.0, 0.0)
    assert of.kv_cache_used_ratio == 0
    assert (of.totals.prompt_tokens, of.totals.generation_tokens) == (65, 41)


def test_the_last_running_request_preempts_itself() -> None:
    of = engine(kv=4 * BLOCK_TOKENS)
    submit(of, request("roomy", 17, 4), request("full", 32, 4))
    assert step(of, 0.0)[1] == ["roomy", "full"]
    assert step(of, 1.0) == ({"roomy": 1}, ["roomy"])
    assert (of.running, of.waiting) == (1, 1)


def test_a_prompt_is_admitted_only_when_all_of_it_fits() -> None:
    of = engine(budget=16, kv=4 * BLOCK_TOKENS)
    submit(of, request("holder", 16, 3), request("large", 64, 1), request("small", 1, 1))
    assert step(of, 0.0)[0] == {"holder": 16}
    # The first chunk of 15 tokens would fit, the prompt of four blocks would not; small waits behind it.
    assert step(of, 1.0)[0] == {"holder": 1}
    assert step(of, 2.0)[0] == {"holder": 1}
    assert step(of, 3.0)[0] == {"large": 16}


@pytest.mark.parametrize(("prompt", "output"), [(0, 1), (1, 0), (60, 6)])
def test_a_request_that_can_never_run_is_refused(prompt: int, output: int) -> None:
    of = engine(kv=64)
    with pytest.raises(ValueError, match="token"):
        of.submit(request("impossible", prompt, output))
    of.submit(request("just fits", 60, 5))


@pytest.mark.parametrize("limits", [(0, 1, 16), (1, 0, 16), (1, 1, 15)])
def test_limits_without_room_for_work_are_refused(limits: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"at least 1|one block"):
        Limits(*limits)


def test_abort_frees_at_once_whether_waiting_running_or_in_a_step() -> None:
    of = engine(seqs=1)
    running, waiting = request("running", 160, 9), request("waiting", 5, 5)
    submit(of, running, waiting)
    scheduled = of.schedule(0.0)
    assert scheduled is not None
    assert of.kv_cache_used_ratio == pytest.approx(10 / 1_000)
    of.abort(waiting)
    assert (of.running, of.waiting) == (1, 0)
    of.abort(running)
    of.abort(running)
    assert (of.running, of.kv_cache_used_ratio) == (0, 0)
    assert of.complete(scheduled, 1.0) == []
    assert of.totals.generation_tokens == 0
    assert of.schedule(1.0) is None


# --- invariants


@st.composite
def loads(draw: st.DrawFn) -> tuple[Limits, list[Request], list[int]]:
    kv = draw(st.integers(4, 40)) * BLOCK_TOKENS
    limits = Limits(draw(st.integers(1, 60)), draw(st.integers(1, 6)), kv)
    prompts = st.integers(1, kv // 2)
    outputs = st.integers(1, kv // 2)
    sizes = draw(st.lists(st.tuples(prompts, outputs), min_size=1, max_size=12))
    requests = [request(str(index), *size) for index, size in enumerate(sizes)]
    return limits, requests, draw(st.lists(st.integers(0, 40), max_size=4))


@settings(max_examples=80, deadline=None)
@given(loads())
def test_nothing_is_lost_and_no_limit_is_passed(load: tuple[Limits, list[Request], list[int]]) -> None:
    limits, requests, aborts = load
    of = Engine(ONE_SECOND, limits)
    submit(of, *requests)
    blocks = limits.whole_kv_tokens // BLOCK_TOKENS
    computed, number = 0, 0
    while (scheduled := of.schedule(float(number))) is not None:
        check_step(of, scheduled, limits, requests, blocks)
        computed += scheduled.tokens
        if number in aborts:
            of.abort(requests[number % len(requests)])
        of.complete(scheduled, number + 1.0)
        number += 1
    assert (of.running, of.waiting, of.kv_cache_used_ratio) == (0, 0, 0)
    assert all(one.aborted or one.emitted_tokens == one.output_tokens for one in requests)
    assert of.totals.generation_tokens == sum(one.emitted_tokens for one in requests)
    assert of.totals.preemptions == sum(one.preemptions for one in requests)
    # Each finished request computes prompt + output - 1 tokens; only preemptions and aborts add to that.
    least = sum(one.prompt_tokens + one.output_tokens - 1 for one in requests if one.finished)
    assert computed >= least
    if not of.totals.preemptions and not any(one.aborted for one in requests):
        assert computed == least


def check_step(of: Engine, scheduled: Step, limits: Limits, requests: list[Request], blocks: int) -> None:
    assert 0 < scheduled.tokens <= limits.max_num_batched_tokens
    assert len(scheduled.work) <= of.running <= limits.max_num_seqs
    held = sum(one.blocks for one in requests)
    assert held <= blocks
    assert of.kv_cache_used_ratio == pytest.approx(held / blocks)
    for one, count in scheduled.work:
        assert one.blocks * BLOCK_TOKENS >= one.computed_tokens + count
    admitted = [one.admitted_at_s for one in requests if not one.aborted]
    known = [at_s for at_s in admitted if at_s is not None]
    assert known == sorted(known), "first come, first served"


# --- time


def test_step_time_by_the_formula() -> None:
    cost = CostModel(
        floor_s=0.010, base_s=0.002, per_token_s=1e-4, per_cached_token_s=1e-6, per_sequence_s=1e-5
    )
    assert cost.step_time_s(50, 0, 1) == pytest.approx(0.010 + 1e-5)
    assert cost.step_time_s(200, 3_000, 20) == pytest.approx(0.002 + 0.020 + 0.003 + 0.0002)
    of = engine(cost=cost)
    submit(of, request("a", 200, 3))
    first = of.schedule(0.0)
    assert first is not None
    assert first.duration_s == pytest.approx(0.022 + 1e-5)
    of.complete(first, 1.0)
    second = of.schedule(1.0)
    assert second is not None
    assert second.duration_s == pytest.approx(0.010 + 200e-6 + 1e-5)


def durations(jitter: float, seed: int, count: int = 4_000) -> list[float]:
    of = Engine(ONE_SECOND, Limits(1, 1, 16_000), jitter_ratio=jitter, seed=seed)
    submit(of, request("a", 1, count))
    found = []
    for _ in range(count):
        scheduled = of.schedule(0.0)
        assert scheduled is not None
        found.append(scheduled.duration_s)
        of.complete(scheduled, 0.0)
    return found


def test_jitter_is_seeded_has_mean_one_and_its_spread_and_can_be_off() -> None:
    assert set(durations(0.0, seed=1, count=50)) == {1.0}
    noisy = durations(0.1, seed=1)
    assert noisy == durations(0.1, seed=1)
    assert noisy != durations(0.1, seed=2)
    assert fmean(noisy) == pytest.approx(1.0, abs=0.006)  # three standard errors of 4,000 steps
    assert pstdev(noisy) == pytest.approx(0.1, rel=0.07)


@pytest.mark.parametrize("name", [name for name, row in PRESETS.items() if row.profile_s])
def test_presets_reproduce_their_profiles_with_the_residuals_they_state(name: str) -> None:
    preset = PRESETS[name]
    row = re.search(rf"^ +{name} +(.+)$", simserver.presets.__doc__ or "", re.MULTILINE)
    assert row, "the docstring states the residuals"
    stated = [float(text) for text in row[1].split()]
    found = [(preset.cost.step_time_s(tokens, 0, 0) / s - 1) * 100 for tokens, s in preset.profile_s]
    assert stated == pytest.approx(found, abs=0.06)
    assert max(abs(residual) for residual in found) < 14
    assert max(abs(residual) for residual in found[2:]) < 7
    Limits(preset.max_num_batched_tokens, preset.max_num_seqs, preset.kv_cache_tokens)


def test_waiting_time_is_that_of_an_md1_queue() -> None:
    service_s, load, count = 0.02, 0.5, 40_000
    draw = random.Random(7)
    now_s, requests = 0.0, []
    for index in range(count):
        now_s += draw.expovariate(load / service_s)
        requests.append(request(str(index), 10, 1, now_s))
    of = engine(seqs=1, cost=CostModel(floor_s=service_s))
    run_to_end(of, requests)
    waited = fmean(one.admitted_at_s - one.arrived_at_s for one in requests if one.admitted_at_s is not None)
    assert waited == pytest.approx(load * service_s / (2 * (1 - load)), rel=0.04)


def test_a_burst_queues_and_drains_where_the_same_load_spread_evenly_does_not() -> None:
    preset = PRESETS["a100-8b"]
    limits = Limits(preset.max_num_batched_tokens, preset.max_num_seqs, preset.kv_cache_tokens)
    even = [request(str(index), 800, 60, index / 6.5) for index in range(130)]
    # The same 130 requests in 20 s: a base of 3.25 per s and, at 8 s, 65 more within 2 s.
    times = sorted([index / 3.25 for index in range(65)] + [8 + index / 32.5 for index in range(65)])
    bursty = [request(str(index), 800, 60, at_s) for index, at_s in enumerate(times)]
    run_to_end(Engine(preset.cost, limits), even)
    run_to_end(Engine(preset.cost, limits), bursty)
    assert max(ttft_s(one) for one in even) < 0.15
    assert max(ttft_s(one) for one in bursty if one.arrived_at_s < 8) < 0.15
    assert max(ttft_s(one) for one in bursty if one.arrived_at_s <= 10) > 1.5
    assert max(ttft_s(one) for one in bursty if one.arrived_at_s > 15) < 0.15
