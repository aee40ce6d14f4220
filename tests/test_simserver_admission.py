"""ADMISSION by hand: on the limit is let in, one beyond is turned away."""

from __future__ import annotations

import pytest

from simserver.admission import ADMISSION, Admission, Queue, Refusal, parse_admission
from simserver.cost import CostModel
from simserver.engine import Engine
from simserver.request import Limits, Request

QUEUE = Queue(waiting=3, running=2, waiting_tokens=500, backlog_s=1.2)


@pytest.mark.parametrize(
    ("rule", "measured"), [("requests", 6), ("waiting", 4), ("queued-tokens", 600), ("prefill-backlog", 1.2)]
)
def test_on_the_limit_is_let_in_and_beyond_it_is_not(rule: str, measured: float) -> None:
    assert ADMISSION[rule].measure(QUEUE, 100) == measured
    assert parse_admission([f"{rule}={measured}"]).refusal(lambda: QUEUE, 100) is None
    refused = parse_admission([f"{rule}={measured * 0.99}"], 429).refusal(lambda: QUEUE, 100)
    assert refused == Refusal(rule, 429, retry_after_s=2)


def test_the_first_rule_that_refuses_is_named_and_without_rules_nobody_looks() -> None:
    both = parse_admission(["waiting=9", "requests=5", "queued-tokens=10"])
    refused = both.refusal(lambda: QUEUE, 100)
    assert refused is not None
    assert (refused.rule, refused.status) == ("requests", 503)

    def never() -> Queue:
        raise AssertionError("looked")

    assert Admission().refusal(never, 100) is None


@pytest.mark.parametrize(
    "text", ["mood=3", "waiting", "waiting=", "waiting=-1", "waiting=nan", "waiting=inf"]
)
def test_a_wrong_rule_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="admission rule"):
        parse_admission([text])


def test_the_engine_counts_what_waits_and_what_is_begun() -> None:
    of = Engine(CostModel(floor_s=0.0, per_token_s=0.001), Limits(100, 1, 16_000))
    for name, prompt in (("running", 250), ("waiting", 400)):
        of.submit(Request(name, prompt, 5, 0.0))
    step = of.schedule(0.0)
    assert step is not None
    of.complete(step, 0.1)
    # 400 tokens wait, 150 of the first prompt are left, at 1,000 tokens per second.
    assert of.queue == Queue(waiting=1, running=1, waiting_tokens=400, backlog_s=pytest.approx(0.55))
