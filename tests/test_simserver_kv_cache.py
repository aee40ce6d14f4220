"""KV blocks: what is shared, what is taken back, and that the pool never gives more than it has."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simserver.cost import CostModel
from simserver.engine import Engine
from simserver.kv_cache import KvCache
from simserver.prefix import block_hashes
from simserver.request import BLOCK_TOKENS, Limits, Request

ONE_SECOND = CostModel(floor_s=1.0)


def words(count: int, first: str = "w") -> list[str]:
    return [f"{first}{index}" for index in range(count)]


def request(name: str, prompt: list[str], output: int = 1, at_s: float = 0.0) -> Request:
    return Request(name, len(prompt), output, at_s, block_hashes=block_hashes(prompt))


def engine(kv: int = 16_000, budget: int = 1_000, seqs: int = 100) -> Engine:
    return Engine(ONE_SECOND, Limits(budget, seqs, kv))


def step(of: Engine, now_s: float) -> dict[str, int]:
    scheduled = of.schedule(now_s)
    assert scheduled is not None
    of.complete(scheduled, now_s + 1.0)
    return {one.request_id: count for one, count in scheduled.work}


# --- hashes


def test_a_block_is_named_by_its_words_and_all_words_before_it() -> None:
    one = block_hashes(words(40))
    assert len(one) == 2, "whole blocks only"
    assert block_hashes(words(32)) == one
    assert block_hashes([*words(16), "other", *words(15)])[0] == one[0]
    assert block_hashes(["other", *words(39)[1:]])[1] != one[1], "the second block depends on the first"
    assert block_hashes(["a b", *words(15)]) != block_hashes(["a", "b", *words(14)])
    assert block_hashes(words(15)) == ()


# --- sharing


def test_a_known_beginning_is_not_computed_again() -> None:
    of = engine()
    first = request("first", words(100), 2)
    of.submit(first)
    assert step(of, 0.0) == {"first": 100}
    again = request("again", [*words(64), *words(40, "x")])
    of.submit(again)
    assert step(of, 1.0) == {"first": 1, "again": 40}
    assert again.cached_prompt_tokens == 64
    assert (of.totals.prefix_queries, of.totals.prefix_hits) == (204, 64)
    assert of.totals.prompt_tokens == 204, "cached tokens are prompt tokens all the same"


def test_one_token_at_least_is_computed_so_that_there_is_an_answer() -> None:
    of = engine()
    of.submit(request("first", words(64)))
    step(of, 0.0)
    of.submit(request("same", words(64)))
    assert step(of, 1.0) == {"same": 16}


def test_two_that_begin_alike_and_run_together_hold_the_beginning_once() -> None:
    of = engine(kv=8 * BLOCK_TOKENS)
    of.submit(request("a", words(64), 9))
    step(of, 0.0)
    assert of.kv_cache_used_ratio == 4 / 8
    of.submit(request("b", [*words(48), *words(16, "x")], 9))
    step(of, 1.0)  # a takes a fifth block for its answer, b shares three and takes one
    assert of.kv_cache_used_ratio == 6 / 8


def test_in_the_same_step_the_second_of_two_alike_shares_what_the_first_computes() -> None:
    of = engine()
    of.submit(request("a", words(64)))
    of.submit(request("b", [*words(64), "more"]))
    assert step(of, 0.0) == {"a": 64, "b": 1}


def test_what_nobody_holds_stays_until_its_block_is_needed_the_longest_idle_first() -> None:
    cache = KvCache(4)
    old, new = request("old", words(32, "o")), request("new", words(32, "n"))
    for one in (old, new):
        assert cache.take(one, 32)
        one.computed_tokens = 32
        cache.release(one)
    assert (cache.free, cache.used_ratio) == (4, 0)
    third = request("third", words(17, "t"))
    assert cache.take(third, 16)
    # The end of the old prompt is forgotten before its beginning.
    assert cache.prefix_blocks(request("old again", words(33, "o"))) == 1
    assert cache.prefix_blocks(request("new again", words(33, "n"))) == 2
    assert cache.take(third, 17)
    assert cache.prefix_blocks(request("old again", words(33, "o"))) == 0


def test_a_shared_beginning_counts_as_there_when_a_request_asks_whether_it_fits() -> None:
    of = engine(kv=6 * BLOCK_TOKENS)
    of.submit(request("holder", words(64), 30))
    step(of, 0.0)
    of.submit(request("stranger", words(33, "x")))
    of.submit(request("sharer", [*words(48), *words(10, "y")]))
    assert step(of, 1.0) == {"holder": 1}, "three blocks are not there, and nobody passes"
    of.abort(next(one for one in of._waiting if one.request_id == "stranger"))
    assert step(of, 2.0) == {"holder": 1, "sharer": 10}


def test_a_preempted_request_finds_what_is_left_of_its_prompt() -> None:
    of = engine(kv=5 * BLOCK_TOKENS)
    older, younger = request("older", words(32, "o"), 20), request("younger", words(32), 20)
    of.submit(older)
    of.submit(younger)
    step(of, 0.0)
    step(of, 1.0)
    assert younger.preemptions == 1
    for now_s in range(2, 20):
        step(of, float(now_s))
    assert older.finished
    assert step(of, 20.0) == {"younger": 33 - 16}, "the end of its prompt was needed, the beginning is there"


def test_without_hashes_nothing_is_shared() -> None:
    of = engine()
    for now_s in (0.0, 1.0):
        of.submit(Request("plain", 64, 1, 0.0))
        assert step(of, now_s) == {"plain": 64}
    assert of.totals.prefix_queries == 0


# --- the pool


@settings(max_examples=120, deadline=None)
@given(
    blocks=st.integers(4, 24),
    budget=st.integers(1, 80),
    load=st.lists(
        st.tuples(st.integers(0, 6), st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=14
    ),
    aborts=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 13)), max_size=4),
)
def test_no_two_requests_hold_more_than_the_pool_has(
    blocks: int, budget: int, load: list[tuple[int, int, int]], aborts: list[tuple[int, int]]
) -> None:
    """Prompts share beginnings of 0 to 6 blocks; requests come, are preempted and leave."""
    most = blocks * BLOCK_TOKENS
    requests = []
    for index, (shared, rest, output) in enumerate(load):
        prompt = [*words(shared * BLOCK_TOKENS), *words(rest, f"r{index % 3}-")][: most // 2]
        requests.append(request(str(index), prompt, min(output, most // 2)))
    of = Engine(ONE_SECOND, Limits(budget, 5, most))
    for one in requests:
        of.submit(one)
    number = 0
    while (scheduled := of.schedule(float(number))) is not None:
        shared_now = {block for one in requests for block in one.shared_blocks}
        private = sum(one.blocks - len(one.shared_blocks) for one in requests)
        assert private + len(shared_now) <= blocks
        assert of.kv_cache_used_ratio == pytest.approx((private + len(shared_now)) / blocks)
        for one, count in scheduled.work:
            assert one.blocks * BLOCK_TOKENS >= one.computed_tokens + count
            assert len(one.shared_blocks) == len(set(one.shared_blocks)) <= one.blocks
        for _, place in (pair for pair in aborts if pair[0] == number):
            of.abort(requests[place % len(requests)])
        of.complete(scheduled, number + 1.0)
        number += 1
    assert (of.running, of.waiting, of.kv_cache_used_ratio) == (0, 0, 0)
    assert all(one.finished or one.aborted for one in requests)
