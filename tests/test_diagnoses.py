"""The rules of DIAGNOSES at their limits, on facts made by hand, and the order in which findings are told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from analysis.diagnoses import DIAGNOSES, Seen
from analysis.diagnosis import diagnose, told
from analysis.facts import (
    NOTHING,
    AnswerFacts,
    ClientFacts,
    ConnectFacts,
    Contrast,
    Explained,
    Facts,
    LossFacts,
    PauseFacts,
    PromptFacts,
    QueueFacts,
    StepFacts,
)
from analysis.server_said import ServerSaid

RULES = {row.key: row.test for row in DIAGNOSES}
CALM_SERVER = ServerSaid(60, 8, 10, 20, 0.5, 0.5, 0.0, 0, None)
NOTHING_WRONG = Facts(
    judged_by="slo",
    harmed=100,
    of=1000,
    explained={},
    unexplained=NOTHING,
    client=ClientFacts(0.0005, 0.002, late_limit_s=0.05, bound_s=0, of_s=60.0, cpu_peak_ratio=0.5),
    connect=ConnectFacts(0, 0.1, 0.1, None, share_ratio=0.0, sent_again=0, stale=0),
    contrast=Contrast("phases", 0.1, 2.0, 0.020, 0.030, 1.0, 10.0),
    prompts=PromptFacts(500.0, True, 1e-4, 1e4, 0.1, alone_ratio=0.1, busy_ratio=0.1, others_ratio=0.0),
    steps=StepFacts(0.05, 0.0, streams_few=10.0, streams_many=20.0, tpot_few_s=0.02, tpot_many_s=0.03),
    queue=QueueFacts(1.0, None, 0.1, awaiting_peak=10),
    losses=LossFacts(0, 0, "", None, 0, "", 0, None, None, 1000),
    pauses=PauseFacts((), 0, None),
    answers=AnswerFacts(None, None, None, None, None),
    server=CALM_SERVER,
)
TOLD = Explained(3, 0.10)
"""The fewest requests, and the least share of the harm, that queue, prefill and decode are told from."""


def facts(explained: dict[str, Explained] | None = None, **groups: Any) -> Facts:
    """NOTHING_WRONG but for fields of its groups: facts(client={"bound_s": 1}); other values replace them."""
    changes = {
        name: replace(getattr(NOTHING_WRONG, name), **value) if isinstance(value, dict) else value
        for name, value in groups.items()
    }
    return replace(NOTHING_WRONG, explained=explained or {}, **changes)


def rule(key: str, strength: str | None, words: str | None = None, **changes: Any) -> Any:
    """A case: the rule `key` finds nothing (None), or is this sure and tells it in these words."""
    shown = {name: value for name, value in changes.items() if name != "explained"}
    return pytest.param(key, strength, words, facts(**changes), id=f"{key} {strength} {shown}")


def explains(key: str, seen: Explained = TOLD, **others: Explained) -> dict[str, Explained]:
    return {key: seen, **others}


QUEUED = explains("queue")
PROMPTS = explains("prefill")
STEPS = explains("decode")
BOTH = explains("decode", prefill=TOLD)


@pytest.mark.parametrize(
    ("key", "strength", "words", "given"),
    [
        rule("client", None, client={"send_lag_p99_s": 0.010}),
        rule("client", "likely", client={"send_lag_p99_s": 0.011}),
        rule("client", "likely", client={"send_lag_p99_s": 0.050}),
        rule("client", "strong", client={"send_lag_p99_s": 0.051}),
        rule("client", "likely", client={"send_lag_p99_s": 0.051, "late_limit_s": 0.2}),
        rule("client", "hint", client={"bound_s": 1}),
        rule("client", "likely", client={"bound_s": 2}),
        rule("client", "likely", client={"bound_s": 5}),
        rule("client", "strong", client={"bound_s": 6}),
        rule("connecting", None, connect={"share_ratio": 0.19}),
        rule("connecting", "likely", connect={"share_ratio": 0.20}),
        rule("connecting", None, connect={"share_ratio": 0.60, "connect_p99_s": 0.019}),
        rule("connecting", "strong", connect={"share_ratio": 0.50, "connect_p99_s": 0.020}),
        rule("restart", None, server=None),
        rule("restart", "strong", server={"restarted_at_s": 3.0}),
        rule("freeze", "strong", pauses={"freezes": ((3.0, 5.0),)}),
        rule("kv_cache", None, server=None, pauses={"paused": 2}),
        rule("kv_cache", "hint", "kv_cache_guess", server=None, pauses={"paused": 3}),
        rule("kv_cache", None, pauses={"paused": 3}),
        rule("kv_cache", None, server={"kv_peak_ratio": 0.89, "full_kv_ratio": 0.5}),
        rule("kv_cache", None, server={"kv_peak_ratio": 0.90, "full_kv_ratio": 0.49}),
        rule("kv_cache", "hint", server={"kv_peak_ratio": 0.90, "full_kv_ratio": 0.5}),
        rule("kv_cache", "hint", server={"preemptions": 1}),
        rule(
            "kv_cache",
            "likely",
            explained=explains("kv_cache"),
            server={"kv_peak_ratio": 0.9, "full_kv_ratio": 0.5},
        ),
        rule("kv_cache", "strong", explained=explains("kv_cache"), server={"preemptions": 1}),
        rule("queue", None, explained=explains("queue", Explained(2, 0.5))),
        rule("queue", None, explained=explains("queue", Explained(50, 0.09))),
        rule("queue", "hint", explained=QUEUED),
        rule("queue", "likely", explained=QUEUED, contrast={"tpot_crowded_s": 0.025}),
        rule("queue", "hint", explained=QUEUED, contrast={"tpot_crowded_s": 0.026}),
        rule("queue", "hint", explained=QUEUED, contrast={"tpot_crowded_s": None}),
        rule("queue", "hint", explained=QUEUED, server={"at_slots_ratio": 0.79}),
        rule("queue", "strong", explained=QUEUED, server={"at_slots_ratio": 0.80}),
        rule("queue", "hint", explained=QUEUED, queue={"awaiting_peak": 49}),
        rule("queue", "likely", "queue_before", explained=QUEUED, queue={"awaiting_peak": 50}),
        rule("queue", "hint", explained=QUEUED, queue={"awaiting_peak": 4}, server={"waiting_peak": 0}),
        rule("prefill", None, explained=explains("prefill", Explained(50, 0.09))),
        rule("prefill", "likely", explained=PROMPTS, prompts={"busy_ratio": 0.59, "others_ratio": 0.59}),
        rule("prefill", "strong", explained=PROMPTS, prompts={"busy_ratio": 0.60}),
        rule("prefill", "strong", explained=PROMPTS, prompts={"others_ratio": 0.60}),
        rule("prefill", "likely", explained=PROMPTS, prompts={"busy_ratio": 0.60, "counted": False}),
        rule("prefill", "likely", "prefill_own", explained=PROMPTS, prompts={"alone_ratio": 0.5}),
        rule(
            "prefill",
            "hint",
            "prefill_own",
            explained=PROMPTS,
            prompts={"alone_ratio": 0.5, "counted": False},
        ),
        rule("prefill", "strong", explained=PROMPTS, prompts={"alone_ratio": 0.49, "busy_ratio": 0.9}),
        rule("decode", None, explained=explains("decode", Explained(2, 0.5))),
        rule("decode", "hint", explained=STEPS, steps={"correlation": 0.29}),
        rule("decode", "likely", explained=STEPS, steps={"correlation": 0.30}),
        rule("decode", "likely", explained=STEPS, steps={"correlation": 0.69}),
        rule("decode", "strong", explained=STEPS, steps={"correlation": 0.70}),
        rule("decode", "hint", explained=STEPS, steps={"tpot_few_s": 0.06, "streams_few": 5.0}),
        rule(
            "decode",
            "likely",
            "decode_alone",
            explained=STEPS,
            steps={"tpot_few_s": 0.06, "streams_few": 4.0},
        ),
        rule("decode", "hint", explained=STEPS, steps={"tpot_few_s": 0.05, "streams_few": 4.0}),
        rule("decode", "hint", explained=BOTH, steps={"correlation": 0.9}, prompts={"others_ratio": 0.30}),
        rule("decode", "strong", explained=BOTH, steps={"correlation": 0.9}, prompts={"others_ratio": 0.29}),
        rule("decode", "strong", explained=STEPS, steps={"correlation": 0.9}, prompts={"others_ratio": 0.30}),
        rule("rejections", "strong", losses={"rejected": 1}),
        rule("failures", "strong", losses={"failed": 1}),
        rule("failures", "strong", "failures_at_once", losses={"failed": 9, "first_s": 1.0, "last_s": 2.0}),
        rule("stale", "strong", connect={"stale": 1}),
        rule("stale", "strong", connect={"sent_again": 1}),
        rule("lumps", None, answers={"tiny_gap_ratio": 0.20, "lumps_made_by": "server"}),
        rule("lumps", "hint", answers={"tiny_gap_ratio": 0.21}),
        rule("lumps", "likely", answers={"tiny_gap_ratio": 0.21, "lumps_made_by": "server"}),
        rule("lumps", "likely", "lumps_client", answers={"tiny_gap_ratio": 0.21, "lumps_made_by": "client"}),
        rule("lengths", None, answers={"asked_mean": 100.0, "got_mean": 96.0}),
        rule("lengths", None, answers={"asked_mean": 100.0, "got_mean": 104.0}),
        rule("lengths", "strong", "short", answers={"asked_mean": 100.0, "got_mean": 94.0}),
        rule("lengths", "strong", "long", answers={"asked_mean": 100.0, "got_mean": 106.0}),
        rule("cached", None, answers={"cached_ratio": 0.009}),
        rule("cached", "strong", answers={"cached_ratio": 0.010}),
        rule("unexplained", None, unexplained=Explained(2, 0.9)),
        rule("unexplained", None, unexplained=Explained(19, 0.19)),
        rule("unexplained", "hint", unexplained=Explained(3, 0.20)),
    ],
)
def test_each_rule_at_its_limits(key: str, strength: str | None, words: str | None, given: Facts) -> None:
    seen = RULES[key](given)
    assert (None if seen is None else seen.strength) == strength
    assert (None if seen is None else seen.words) == words


def test_with_nothing_wrong_no_rule_finds_anything() -> None:
    assert [key for key, test in RULES.items() if test(NOTHING_WRONG)] == []


def figures_of(key: str, given: Facts) -> dict[str, Any]:
    seen = RULES[key](given)
    assert isinstance(seen, Seen)
    return seen.figures


def test_the_longest_freeze_is_told() -> None:
    found = figures_of("freeze", facts(pauses={"freezes": ((3.0, 5.0), (10.0, 14.0), (20.0, 21.5))}))
    assert found == {"freezes": 3, "start_s": 10.0, "end_s": 14.0, "longest_s": 4.0}


def test_the_share_in_bursts_is_told_of_rejections_only_where_there_are_bursts() -> None:
    lost = {"rejected": 4, "rejected_in_bursts": 3}
    assert figures_of("rejections", facts(losses=lost))["rejected_in_bursts_ratio"] == 0.75
    no_bursts = facts(losses={"rejected": 4}, contrast={"parts": "in_flight"})
    assert figures_of("rejections", no_bursts)["rejected_in_bursts_ratio"] is None


def order(given: Facts) -> list[str]:
    return [finding.key for finding in diagnose(given)]


def test_the_surer_comes_before_a_hint_and_then_the_greater_share() -> None:
    """The queue, a hint of 90 %, comes after failures (5 %) and rejections (30 %), both sure."""
    explained = {
        "queue": Explained(90, 0.9),
        "failures": Explained(5, 0.05),
        "rejections": Explained(30, 0.3),
    }
    lost = {"failed": 5, "rejected": 30}
    assert order(facts(explained, losses=lost)) == ["rejections", "failures", "queue"]
    more = explained | {"failures": Explained(40, 0.4)}
    assert order(facts(more, losses=lost)) == ["failures", "rejections", "queue"]


def test_the_client_leads_unless_it_is_a_mere_hint_and_what_did_no_harm_comes_last() -> None:
    explained = {"rejections": Explained(90, 0.9), "client": Explained(1, 0.01)}
    changes: dict[str, Any] = {"losses": {"rejected": 90}, "answers": {"cached_ratio": 0.5}}
    likely = facts(explained, client={"bound_s": 2}, **changes)
    hint = facts(explained, client={"bound_s": 1}, **changes)
    assert order(likely) == ["client", "rejections", "cached"]
    assert order(hint) == ["rejections", "client", "cached"]
    harmless = facts({"rejections": NOTHING}, queue={"awaiting_peak": 1}, **changes)
    assert order(harmless) == ["rejections", "cached"], "sure, of no harm: still before what is about answers"


def test_what_explains_no_harm_is_not_told_as_its_cause() -> None:
    """100 were harmed, all that was found is a cache that nobody was harmed by."""
    given = facts(answers={"cached_ratio": 0.5})
    words, first = told(given, diagnose(given))
    assert words == "100 of 1000 requests were harmed, and no cause known here shows in the records"
    assert first is None, "the server's own metrics are there"
    unseen = replace(given, server=None)
    assert "server's own metrics" in (told(unseen, diagnose(unseen))[1] or "")
    unharmed = replace(given, harmed=0)
    assert "cache" in told(unharmed, diagnose(unharmed))[0]
