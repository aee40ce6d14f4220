"""POLICIES: the contract that every row keeps, each row's own rule by hand, and what they do to a burst."""

from __future__ import annotations

import random
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simserver.accounts import Accounts
from simserver.cost import CostModel
from simserver.engine import Engine
from simserver.policies import POLICIES, expected_arrivals, make_policy
from simserver.policy import Policy
from simserver.presets import PRESETS
from simserver.request import Limits, Request
from simserver.virtual import run_virtually

ONE_SECOND = CostModel(floor_s=1.0)


def engine(policy: str, *options: str, budget: int = 100, seqs: int = 100, kv: int = 160_000) -> Engine:
    return Engine(ONE_SECOND, Limits(budget, seqs, kv), policy=make_policy(policy, options))


def request(name: str, prompt: int, output: int = 1, at_s: float = 0.0, **more: object) -> Request:
    return Request(name, prompt, output, at_s, **more)  # type: ignore[arg-type]


def step(of: Engine, now_s: float) -> dict[str, int]:
    """Run one step of a second: tokens computed by request."""
    scheduled = of.schedule(now_s)
    assert scheduled is not None
    of.complete(scheduled, now_s + 1.0)
    return {one.request_id: count for one, count in scheduled.work}


def submit(to: Engine, *requests: Request) -> None:
    for one in requests:
        to.submit(one)


# --- the contract


def bursty_load(seed: int, count: int = 120) -> list[Request]:
    """Two bursts over a trickle; three tenants, priorities, and prompts of all lengths."""
    draw = random.Random(seed)
    found, at_s = [], 0.0
    for index in range(count):
        at_s += draw.expovariate(40.0 if index % 60 < 30 else 4.0)
        found.append(
            Request(
                f"{index}",
                draw.choice((20, 200, 900, 3_000)),
                draw.randint(1, 40),
                at_s,
                tenant=draw.choice(("a", "b", None)),
                priority=draw.choice((-1, 0, 5)),
            )
        )
    return found


def serve(policy: Policy, seed: int, seqs: int = 8, kv: int = 8_000) -> tuple[Engine, list[Request]]:
    load = bursty_load(seed)
    of = Engine(PRESETS["a100-8b"].cost, Limits(512, seqs, kv), jitter_ratio=0.1, seed=seed, policy=policy)
    run_virtually(of, load)
    return of, load


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_policy_serves_everything_once_and_frees_all_of_it(name: str, seed: int) -> None:
    of, load = serve(make_policy(name), seed)
    assert all(one.emitted_tokens == one.output_tokens for one in load)
    assert (of.running, of.waiting, of.kv_cache_used_ratio) == (0, 0, 0)
    assert of.totals.generation_tokens == sum(one.output_tokens for one in load)
    assert of.totals.prompt_tokens == sum(one.prompt_tokens for one in load)
    for one in load:
        assert one.admitted_at_s is not None
        assert one.first_token_at_s is not None
        assert one.last_token_at_s is not None
        assert one.arrived_at_s <= one.admitted_at_s < one.first_token_at_s <= one.last_token_at_s


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_is_the_same_by_seed(name: str) -> None:
    runs = [[one.last_token_at_s for one in serve(make_policy(name), seed)[1]] for seed in (3, 3, 4)]
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize("name", [name for name, kind in POLICIES.items() if not kind.starves])
def test_where_it_is_promised_nobody_is_overtaken_for_ever(name: str) -> None:
    """More short prompts than the engine can ever serve, and one long one in their midst."""
    long = Request("long", 2_500, 4, 1.0, tenant="busy")
    others = [Request(str(index), 300, 20, index * 0.02, tenant="busy") for index in range(1_500)]
    load = sorted([long, *others], key=lambda one: one.arrived_at_s)
    of = Engine(PRESETS["a100-8b"].cost, Limits(512, 16, 40_000), policy=make_policy(name))
    run_virtually(of, load, until_s=30.0)
    assert of.waiting > 100, "the load must be too much"
    assert long.finished


def test_shortest_prompt_first_starves_unless_it_ages() -> None:
    def waited(*options: str) -> bool:
        long = Request("long", 2_500, 1, 0.5)
        others = [Request(str(index), 400, 1, index * 0.02) for index in range(1_500)]
        load = sorted([long, *others], key=lambda one: one.arrived_at_s)
        cost, policy = PRESETS["a100-8b"].cost, make_policy("shortest-prompt-first", options)
        run_virtually(Engine(cost, Limits(512, 16, 40_000), policy=policy), load, until_s=30.0)
        return not long.finished

    assert waited()
    assert not waited("aging=1000")


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(POLICIES)), st.integers(1, 60), st.integers(1, 6), st.integers(4, 40), st.data()
)
def test_no_policy_passes_a_limit(
    name: str, budget: int, seqs: int, blocks: int, data: st.DataObject
) -> None:
    kv = blocks * 16
    sizes = st.tuples(st.integers(1, kv // 2), st.integers(1, kv // 2), st.sampled_from("abc"))
    load = [
        Request(str(index), prompt, output, index * 0.5, tenant=tenant, priority=prompt % 3)
        for index, (prompt, output, tenant) in enumerate(data.draw(st.lists(sizes, min_size=1, max_size=12)))
    ]
    of = Engine(ONE_SECOND, Limits(budget, seqs, kv), policy=make_policy(name))
    most = max(budget, 8_192) if name == "prefill-grouping" else budget
    submit(of, *load)
    now_s = 0.0
    while of.waiting or of.running:
        start_s = of.next_start_s(now_s)
        assert start_s is not None
        scheduled = of.schedule(start_s)
        now_s = start_s
        if scheduled is None:
            continue
        assert scheduled.tokens == sum(count for _, count in scheduled.work)
        assert 0 < scheduled.tokens <= most
        assert of.running <= seqs
        assert sum(one.blocks for one in load) <= blocks
        assert all(one.arrived_at_s <= start_s for one, _ in scheduled.work)
        now_s += 1.0
        of.complete(scheduled, now_s)
    assert all(one.finished for one in load)


# --- each rule by hand


def test_short_prompts_overtake_and_a_second_of_waiting_is_worth_its_tokens() -> None:
    of = engine("shortest-prompt-first", seqs=1)
    submit(of, request("long", 90), request("short", 10, at_s=1.0))
    assert step(of, 1.0) == {"short": 10}
    of = engine("shortest-prompt-first", "aging=100", seqs=1)
    submit(of, request("long", 90), request("short", 10, at_s=1.0))
    assert step(of, 1.0) == {"long": 90}


def test_priority_orders_and_preempts_the_least_urgent_even_out_of_the_step() -> None:
    of = engine("priority", kv=4 * 16)
    least, urgent = request("least", 30, 9, priority=5), request("urgent", 32, 9, at_s=0.5, priority=1)
    submit(of, least)
    assert step(of, 0.0) == {"least": 30}
    submit(of, urgent, request("behind", 5, 1, at_s=0.5, priority=3))
    assert step(of, 1.0) == {"least": 1, "urgent": 32}, "behind waits for a block"
    # urgent grows by a block: least, though first and planned already, is put back, and nobody is admitted.
    assert step(of, 2.0) == {"urgent": 1}
    assert (least.preemptions, urgent.preemptions, of.waiting) == (1, 0, 2)
    assert step(of, 3.0) == {"urgent": 1, "behind": 5}


def test_cadence_takes_prompts_in_every_nth_step_while_answers_are_written() -> None:
    of = engine("prefill-cadence", "every=3")
    submit(of, request("a", 10, 20))
    assert step(of, 0.0) == {"a": 10}
    submit(of, request("b", 10, 20, at_s=0.5))
    assert step(of, 1.0) == {"a": 1}
    assert step(of, 2.0) == {"a": 1}
    assert step(of, 3.0) == {"a": 1, "b": 10}


def test_cadence_gives_way_when_many_wait() -> None:
    of = engine("prefill-cadence", "every=3", "escape=1")
    submit(of, request("a", 10, 20))
    step(of, 0.0)
    submit(of, request("b", 10, 20), request("c", 10, 20))
    assert step(of, 1.0) == {"a": 1, "b": 10, "c": 10}


def test_grouping_enlarges_the_step_only_while_more_than_k_wait() -> None:
    of = engine("prefill-grouping", "over=2", "tokens=300", budget=100)
    submit(of, request("a", 80), request("b", 80))
    assert step(of, 0.0) == {"a": 80, "b": 20}
    submit(of, request("c", 80), request("d", 80), request("e", 80))
    assert step(of, 1.0) == {"b": 60, "c": 80, "d": 80, "e": 80}


def test_a_capped_prompt_leaves_room_for_others_but_a_lone_one_has_all() -> None:
    of = engine("long-prompt-cap", "tokens=30", budget=100)
    submit(of, request("long", 250))
    assert step(of, 0.0) == {"long": 100}
    submit(of, request("short", 20))
    assert step(of, 1.0) == {"long": 30, "short": 20}
    assert step(of, 2.0) == {"long": 100}


def test_arrivals_are_held_until_a_gap_or_until_the_first_has_waited_long_enough() -> None:
    of = engine("arrival-gap", "gap=0.5", "hold=2")
    submit(of, request("a", 5, at_s=1.0))
    assert of.schedule(1.2) is None
    assert of.next_start_s(1.2) == 1.5
    submit(of, request("b", 5, at_s=1.4))
    assert of.next_start_s(1.5) == 1.9
    assert step(of, 1.9) == {"a": 5, "b": 5}
    for index in range(6):
        submit(of, request(str(index), 5, at_s=3 + index * 0.4))
    assert of.next_start_s(3.0) == 3.5  # nobody knows of those to come yet
    assert of.schedule(4.9) is None
    assert len(step(of, 5.0)) == 6


def test_a_full_group_starts_at_once() -> None:
    of = engine("arrival-gap", "gap=0.5", "hold=2", "most=2")
    submit(of, request("a", 5, at_s=1.0), request("b", 5, at_s=1.0))
    assert of.next_start_s(0.0) == 1.0
    assert step(of, 1.0) == {"a": 5, "b": 5}


def test_the_forecast_carries_a_rise_on() -> None:
    arrivals_s = [8.5, 9.1, 9.2, 9.3, 9.4]
    # 4 in the last second, 1 in the one before: 4 + 3 expected in the next.
    assert expected_arrivals(arrivals_s, 9.5, window=1.0, horizon=1.0) == 7
    assert expected_arrivals(arrivals_s, 10.45, window=1.0, horizon=1.0) == 0, "4 before, none now"
    assert expected_arrivals([], 9.5, window=1.0, horizon=1.0) == 0


def test_long_prompts_leave_places_for_the_arrivals_to_come() -> None:
    of = engine("reserved-slots", "long=50", "window=1", "horizon=1", seqs=3, budget=1_000)
    submit(of, request("long", 60, 5), request("short", 10, 5))  # two arrivals now: 4 more are expected
    assert step(of, 0.0) == {"short": 10}
    assert step(of, 1.5) == {"short": 1, "long": 60}, "2 before, none now: nothing is expected"


def test_the_deadline_puts_those_that_are_late_last() -> None:
    of = engine("deadline", "target=10", seqs=1)
    submit(of, request("late", 5, at_s=0.0), request("in time", 5, at_s=6.0))
    assert step(of, 11.0) == {"in time": 5}
    assert step(of, 12.0) == {"late": 5}


def test_fair_share_lets_the_least_served_tenant_go_first() -> None:
    of = engine("fair-share", budget=30, seqs=1)
    submit(of, *(request(f"busy{index}", 30, tenant="busy") for index in range(3)))
    submit(of, request("quiet", 30, at_s=0.1, tenant="quiet"))
    assert [list(step(of, float(now_s))) for now_s in range(1, 5)] == [
        ["busy0"],
        ["quiet"],
        ["busy1"],
        ["busy2"],
    ]


def test_who_comes_back_starts_level_with_the_least_served() -> None:
    accounts = Accounts()
    busy, back = request("b", 100, tenant="busy"), request("q", 10, tenant="quiet")
    accounts.open(busy)
    busy.admitted_at_s, busy.emitted_tokens = 0.0, 1
    accounts.close(busy)
    accounts.open(request("b2", 100, tenant="busy"))
    accounts.open(back)
    assert accounts.served_tokens == {"busy": 101, "quiet": 101}


def test_a_quota_holds_one_tenant_back_and_lets_others_pass() -> None:
    of = engine("quota", "running=1")
    submit(
        of, request("a1", 5, 2, tenant="a"), request("a2", 5, 2, tenant="a"), request("b1", 5, 2, tenant="b")
    )
    assert list(step(of, 0.0)) == ["a1", "b1"]
    assert list(step(of, 1.0)) == ["a1", "b1"]
    assert list(step(of, 2.0)) == ["a2"]


@pytest.mark.parametrize(
    ("name", "option", "words"),
    [
        ("sjf", "", "unknown"),
        ("fcfs", "k=1", "no option 'k'"),
        ("quota", "running=many", "number above 0"),
        ("quota", "running=0", "number above 0"),
        ("quota", "running=inf", "number above 0"),
        ("prefill-cadence", "every=-1", "number above 0"),
    ],
)
def test_a_wrong_policy_or_option_is_named(name: str, option: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_policy(name, [option] if option else [])


# --- what they do to a burst


def pulses(seed: int, rate: float = 6.5, seconds: int = 120) -> list[Request]:
    """Scenario B: every 20 s a pulse of 2.2 s at five times the mean rate, half of it between."""
    draw = random.Random(seed)
    found, at_s = [], 0.0
    while True:
        at_s += draw.expovariate(rate * 5)
        if at_s > seconds:
            return found
        in_pulse = 10.0 <= at_s % 20 < 12.22
        if in_pulse or draw.random() < 0.1:
            prompt = min(8_000, int(draw.lognormvariate(6.55, 0.5)) + 4)
            found.append(Request(str(len(found)), prompt, 60, at_s))


def ttfts(policy: str, *options: str) -> list[float]:
    preset = PRESETS["a100-8b"]
    found = []
    for seed in range(3):
        load = pulses(seed)
        limits = Limits(2_048, preset.max_num_seqs, preset.kv_cache_tokens)
        run_virtually(Engine(preset.cost, limits, policy=make_policy(policy, options)), load)
        found += [one.first_token_at_s - one.arrived_at_s for one in load if one.first_token_at_s is not None]
    return sorted(found)


def test_shortest_prompt_first_trades_the_tail_for_the_median() -> None:
    plain, shortest = ttfts("fcfs"), ttfts("shortest-prompt-first")
    most = len(plain)
    assert fmean(shortest) < 0.9 * fmean(plain)
    assert shortest[most // 2] < plain[most // 2]
    assert shortest[-1] > plain[-1]


def test_fair_share_protects_the_quiet_tenant_from_the_one_that_bursts() -> None:
    def quiet_p95(policy: str) -> float:
        load = [Request(f"q{index}", 300, 20, index * 0.5, tenant="quiet") for index in range(80)]
        load += [Request(f"b{index}", 900, 20, 10 + index * 0.02, tenant="bursty") for index in range(200)]
        load.sort(key=lambda one: one.arrived_at_s)
        preset = PRESETS["a100-8b"]
        run_virtually(Engine(preset.cost, Limits(2_048, 64, 450_000), policy=make_policy(policy)), load)
        quiet = sorted(
            one.first_token_at_s - one.arrived_at_s
            for one in load
            if one.tenant == "quiet" and one.first_token_at_s is not None
        )
        return quiet[int(0.95 * len(quiet))]

    assert quiet_p95("fcfs") > 5
    assert quiet_p95("fair-share") < 0.5
