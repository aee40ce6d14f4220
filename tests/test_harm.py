"""Which requests were harmed, and by what: hand-made runs of a hundred calm requests and a few others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analysis.harm import Harm, harm
from analysis.load import load_run
from analysis.server_said import ServerSamples
from analysis.slo import judge, parse_slo
from analysis.time_parts import time_parts
from runlog.record import RequestRecord
from tests.run_folders import answered, failed, write_run

CALM = 100


def judged(folder: Path, others: list[RequestRecord], slo: str = "", calm_tpot_s: float = 0.02) -> Harm:
    """CALM answers of 0.1 s and 11 tokens, 20 ms apart, then `others`."""
    records = [answered(k, k / 10, tpot_s=calm_tpot_s, lag_s=0.0) for k in range(CALM)]
    run = load_run(write_run(folder, [*records, *others]))
    parts = time_parts(run, ServerSamples(run.server_metrics))
    if not slo:
        return harm(run, parts, None, None)
    limits = parse_slo(slo)
    return harm(run, parts, limits, judge(run.load, limits.attained_by))


def others_of(mask: np.ndarray) -> list[bool]:
    """What is said of the others; nothing may be said of the calm ones."""
    assert not mask[:CALM].any()
    return [bool(value) for value in mask[CALM:]]


def test_without_an_slo_by_the_waits_and_the_steps_of_the_run_itself(tmp_path: Path) -> None:
    """Alone is 0.1 s: 0.29 s are within 0.2 s of it, 0.31 s are not. 20 ms a token: 29 are, 31 are not."""
    found = judged(
        tmp_path,
        [
            answered(100, 12.0, ttft_s=0.29, lag_s=0.0),
            answered(101, 13.0, ttft_s=0.31, lag_s=0.0),
            answered(102, 14.0, tpot_s=0.029, lag_s=0.0),
            answered(103, 15.0, tpot_s=0.031, lag_s=0.0),
            failed(104, 16.0, after_s=0.003),
        ],
    )
    assert (found.judged_by, found.of, found.requests) == ("calm", CALM + 5, 3)
    assert others_of(found.late_first) == [False, True, False, False, False]
    assert others_of(found.slow_steps) == [False, False, False, True, False]
    assert others_of(found.lost) == [False, False, False, False, True]
    assert others_of(found.harmed) == [False, True, False, True, True]


def test_steps_of_a_few_milliseconds_rise_by_five_before_it_is_harm(tmp_path: Path) -> None:
    """4 ms a token: 8 ms are twice as many and 4 ms more, 10 ms are 6 ms more."""
    slow = [answered(100 + k, 12.0 + k, tpot_s=tpot_s, lag_s=0.0) for k, tpot_s in enumerate((0.008, 0.010))]
    assert others_of(judged(tmp_path, slow, calm_tpot_s=0.004).slow_steps) == [False, True]


def test_most_requests_slow_are_still_slow(tmp_path: Path) -> None:
    """Nine in ten: the lowest tenth is the yardstick, not the middle."""
    slow = [answered(100 + k, 12.0 + k / 100, tpot_s=0.06, lag_s=0.0) for k in range(800)]
    assert all(others_of(judged(tmp_path, slow).slow_steps))


@pytest.mark.parametrize(
    ("slo", "late", "slow"),
    [
        # waited 0.4 s; waited 0.2 s less; slow steps; both
        ("ttft<250ms", [True, True, False, True], [False] * 4),
        ("tpot<50ms", [False] * 4, [False, False, True, True]),
        ("e2e<450ms", [True, False, False, True], [False, False, True, True]),
    ],
)
def test_with_an_slo_each_limit_says_what_kind_of_harm_it_is(
    tmp_path: Path, slo: str, late: list[bool], slow: list[bool]
) -> None:
    """A whole answer that is late is laid at the wait where it waited, at the steps where these were slow."""
    others = [
        answered(100, 12.0, ttft_s=0.5, lag_s=0.0),
        answered(101, 13.0, ttft_s=0.29, lag_s=0.0),
        answered(102, 14.0, tpot_s=0.1, lag_s=0.0),
        answered(103, 15.0, ttft_s=0.5, tpot_s=0.1, lag_s=0.0),
    ]
    found = judged(tmp_path, others, slo)
    assert found.judged_by == "slo"
    assert others_of(found.late_first) == late
    assert others_of(found.slow_steps) == slow


def test_a_failure_without_a_first_token_was_late_when_its_age_was(tmp_path: Path) -> None:
    """One failed at once, one after 3 s: both missed the SLO, only the latter waited for it."""
    found = judged(tmp_path, [failed(100, 12.0), failed(101, 13.0, after_s=3.0)], "ttft<1s")
    assert others_of(found.harmed) == others_of(found.lost) == [True, True]
    assert others_of(found.late_first) == [False, True]
