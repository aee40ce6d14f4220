"""The engine in virtual time against queueing theory: waiting, Little's law, continuous batching, a burst.

The formulas take the rate and the moments of the sample that was drawn, not those of its distribution, so
that what is compared is the queue and not the luck of the draw.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

import pytest

from simserver.admission import parse_admission
from simserver.cost import CostModel
from simserver.engine import Engine
from simserver.presets import PRESETS
from simserver.request import Limits, Request
from simserver.virtual import run_virtually

SERVICE_S = 0.02
TOKENS = 1_000


def one_at_a_time() -> Engine:
    """A queue with one server: prompts only, one running, a service time in proportion to the prompt."""
    return Engine(CostModel(floor_s=0.0, per_token_s=SERVICE_S / TOKENS), Limits(10**6, 1, 10**6))


def poisson(rate: float, count: int, tokens: Callable[[random.Random], int], seed: int = 7) -> list[Request]:
    draw = random.Random(seed)
    now_s, requests = 0.0, []
    for index in range(count):
        now_s += draw.expovariate(rate)
        requests.append(Request(str(index), tokens(draw), 1, now_s))
    return requests


def always(draw: random.Random) -> int:
    return TOKENS


def exponential(draw: random.Random) -> int:
    return max(1, round(draw.expovariate(1 / TOKENS)))


def waited_s(one: Request) -> float:
    assert one.admitted_at_s is not None
    return one.admitted_at_s - one.arrived_at_s


def lindley(requests: list[Request], services_s: list[float]) -> list[float]:
    """The wait of each: what was left of the wait and service of the one before (Lindley's recursion)."""
    waits_s = [0.0]
    for one, following, service_s in zip(requests, requests[1:], services_s, strict=False):
        waits_s.append(max(0.0, waits_s[-1] + service_s - (following.arrived_at_s - one.arrived_at_s)))
    return waits_s


@pytest.mark.parametrize("load", [0.5, 0.7])
@pytest.mark.parametrize("tokens", [always, exponential], ids=["M/D/1", "M/M/1"])
def test_the_mean_wait_is_that_of_the_formula(tokens: Callable[[random.Random], int], load: float) -> None:
    """Pollaczek and Khinchine: Wq = rate E[S^2] / (2 (1 - rho)); for M/D/1 rho S / (2 (1 - rho)), for M/M/1
    rho S / (1 - rho)."""
    requests = poisson(load / SERVICE_S, 100_000 if load > 0.6 else 40_000, tokens)
    run_virtually(one_at_a_time(), requests)
    services_s = [one.prompt_tokens * SERVICE_S / TOKENS for one in requests]
    assert list(map(waited_s, requests)) == pytest.approx(lindley(requests, services_s), abs=1e-6)
    rate = (len(requests) - 1) / (requests[-1].arrived_at_s - requests[0].arrived_at_s)
    square = fmean(service_s**2 for service_s in services_s)
    expected_s = rate * square / (2 * (1 - rate * fmean(services_s)))
    assert fmean(map(waited_s, requests)) == pytest.approx(expected_s, rel=0.03)
    plain_s = load * SERVICE_S / (1 - load) / (2 if tokens is always else 1)
    assert expected_s == pytest.approx(plain_s, rel=0.05), "the sample is like its distribution"


def test_littles_law_holds_to_the_last_digit() -> None:
    """Mean requests in the engine = arrival rate x mean time there, over a whole number of busy periods."""
    preset = PRESETS["a100-8b"]
    of = Engine(preset.cost, Limits(2_048, 32, 60_000), jitter_ratio=0.05)
    requests = [
        replace(one, output_tokens=30) for one in poisson(8.0, 2_000, lambda draw: draw.randint(10, 900))
    ]
    area, since_s = 0.0, 0.0

    def pass_time(now_s: float) -> None:
        nonlocal area, since_s
        area += (of.running + of.waiting + leaving) * (now_s - since_s)
        since_s = now_s

    leaving = 0

    def submit(one: Request) -> None:
        pass_time(one.arrived_at_s)
        of.submit(one)

    def on_step(gained: list[Request], now_s: float) -> None:
        nonlocal leaving
        leaving = sum(one.finished for one in gained)  # they were there until this moment
        pass_time(now_s)
        leaving = 0

    end_s = run_virtually(of, requests, submit=submit, on_step=on_step)
    there_s = [one.last_token_at_s - one.arrived_at_s for one in requests if one.last_token_at_s is not None]
    assert len(there_s) == len(requests)
    assert area / end_s == pytest.approx(len(requests) / end_s * fmean(there_s), rel=1e-9)


def test_every_request_is_finished_rejected_failed_or_cut() -> None:
    """Overload with a door, clients that give up, and an end in the midst of it."""
    of = Engine(PRESETS["a100-8b"].cost, Limits(512, 8, 20_000))
    door = parse_admission(["queued-tokens=4000"])
    requests = [
        replace(one, output_tokens=40) for one in poisson(12.0, 600, lambda draw: draw.randint(50, 1_500))
    ]
    rejected: list[Request] = []
    failed: list[Request] = []

    def submit(one: Request) -> None:
        if door.refusal(lambda: of.queue, one.prompt_tokens):
            rejected.append(one)
        else:
            of.submit(one)

    def on_step(gained: list[Request], now_s: float) -> None:
        for one in gained:
            if one.emitted_tokens == 20 and int(one.request_id) % 9 == 0:
                of.abort(one)
                failed.append(one)

    run_virtually(of, requests, submit=submit, on_step=on_step, until_s=30.0)
    sent = [one for one in requests if one.arrived_at_s <= 30.0]
    finished = [one for one in sent if one.finished]
    cut = of.running + of.waiting
    assert min(len(finished), len(rejected), len(failed), cut) > 0
    assert len(sent) == len(finished) + len(failed) + len(rejected) + cut
    assert of.totals.generation_tokens == sum(one.emitted_tokens for one in requests)


def test_tpot_is_that_of_the_fixed_point_of_continuous_batching() -> None:
    """Step time c0 + c1 tokens + c2 cached + c3 sequences, rate l, i tokens in, o out, context x:

        running n = l o c0 / (1 - l (o (c1 + c3 + c2 x) + i c1))        TPOT = n / (l o)

    x is what a sequence has in the cache on average over its own steps: E[o (i + o / 2)] / E[o].
    """
    c0, c1, c2, c3, rate = 7.3e-3, 22e-6, 76e-9, 5e-6, 12.0
    draw = random.Random(3)
    requests, now_s = [], 0.0
    for index in range(6_000):
        now_s += draw.expovariate(rate)
        lengths = [max(2, round(draw.lognormvariate(mu, sigma))) for mu, sigma in ((6.4, 0.9), (5.0, 0.8))]
        requests.append(Request(str(index), min(lengths[0], 16_000), lengths[1], now_s))
    cost = CostModel(0.0, base_s=c0, per_token_s=c1, per_cached_token_s=c2, per_sequence_s=c3)
    run_virtually(Engine(cost, Limits(8_192, 1_024, 450_000)), requests)
    rate = len(requests) / now_s
    i, o = fmean(one.prompt_tokens for one in requests), fmean(one.output_tokens for one in requests)
    x = fmean(one.output_tokens * (one.prompt_tokens + one.output_tokens / 2) for one in requests) / o
    running = rate * o * c0 / (1 - rate * (o * (c1 + c3 + c2 * x) + i * c1))
    spans_s = [
        one.last_token_at_s - one.first_token_at_s
        for one in requests
        if one.first_token_at_s is not None and one.last_token_at_s is not None
    ]
    tpot_s = sum(spans_s) / sum(one.output_tokens - 1 for one in requests)
    assert tpot_s == pytest.approx(running / (rate * o), rel=0.05)


def test_a_burst_piles_up_and_drains_as_the_fluid_says() -> None:
    """Base b = 0.7 mu, 10 s at p = 4 b: the backlog is w (p - mu) and drains in w (p - mu) / (mu - b)."""
    mu, width_s, start_s = 1 / SERVICE_S, 10.0, 20.0
    base, peak = 0.7 * mu, 2.8 * mu
    backlogs, recoveries_s = [], []
    for seed in range(4):
        draw = random.Random(seed)
        requests, now_s = [], 0.0
        while now_s < 150:
            now_s += draw.expovariate(peak)
            if start_s <= now_s < start_s + width_s or draw.random() < base / peak:
                requests.append(Request(str(len(requests)), TOKENS, 1, now_s))
        of = one_at_a_time()
        waiting: list[tuple[float, int]] = []
        run_virtually(
            of,
            requests,
            sample_every_s=0.1,
            on_sample=lambda at_s, of=of, waiting=waiting: waiting.append((at_s, of.waiting)),  # type: ignore[misc]
        )
        backlogs.append(max(count for _, count in waiting))
        emptied_s = next(at_s for at_s, count in waiting if at_s > start_s + width_s and count == 0)
        recoveries_s.append(emptied_s - start_s - width_s)
    backlog = width_s * (peak - mu)
    assert fmean(backlogs) == pytest.approx(backlog, rel=0.15)
    assert fmean(recoveries_s) == pytest.approx(backlog / (mu - base), rel=0.15)
