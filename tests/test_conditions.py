"""Limits about some requests only: `where output_tokens<=200 and tenant=free`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.conditions import Condition, ConditionError, concerned, parse_conditions
from analysis.load import load_run
from analysis.slo import SloError, attainment, judge, parse_slo, percentile_result
from analysis.summary import summarize
from runlog.record import RequestRecord
from tests.run_folders import answered, cancelled, failed, write_run


def summary_of(folder: Path, records: list[RequestRecord], slo: str) -> dict[str, object]:
    return summarize(load_run(write_run(folder, records)), slo)


def test_every_relation_and_text() -> None:
    found = parse_conditions(
        " output_tokens<=200 AND input_tokens != 10 and tenant='A and B, @' and name!=chat/v1"
    )
    assert found == (
        Condition("output_tokens", "<=", 200.0),
        Condition("input_tokens", "!=", 10.0),
        Condition("tenant", "=", "A and B, @"),
        Condition("name", "!=", "chat/v1"),
    )
    assert [condition.text for condition in found] == [
        "output_tokens<=200",
        "input_tokens!=10",
        "tenant='A and B, @'",
        "name!=chat/v1",
    ]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("p95(e2e)<3s where", "cannot read the condition ''"),
        ("ttft<1s where tokens<=3", "unknown field 'tokens'"),
        ("ttft<1s where output_tokens<=many", "'many' in 'output_tokens<=many' is not a number"),
        ("ttft<1s where tenant<a", "a text"),
        ("ttft<1s where tenant=a and", "cannot read"),
        ("ttft<1s where tenant=a where name=b", '"where" twice'),
        ("where tenant=a", "cannot read ''"),
        ("ttft<1s where tenant=a b", "cannot read the condition 'tenant=a b'"),
        ("ttft<1s where tenant='a", "cannot read the condition"),
        ("ttft<1s@9%@8% where tenant=a", "cannot read"),
    ],
)
def test_a_wrong_condition_is_told_in_one_line(text: str, names: str) -> None:
    with pytest.raises(SloError, match="SLO") as caught:
        parse_slo(text)
    assert names in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(alphabet="whernamt=<>!'\" and,@19.", max_size=40))
def test_any_condition_is_read_or_refused(text: str) -> None:
    try:
        found = parse_conditions(text)
    except ConditionError:
        return
    assert parse_conditions(" and ".join(condition.text for condition in found)) == found


def test_the_share_stands_before_or_behind_the_condition() -> None:
    for text in ("ttft<1s@99% where tenant=a,tpot<50ms", "ttft<1s where tenant=a @ 99%,tpot<50ms"):
        slo = parse_slo(text)
        assert slo.share == pytest.approx(0.99)
        assert [limit.text for limit in slo.per_request] == ["ttft<1s where tenant=a", "tpot<50ms"]
    assert parse_slo('p95(e2e)<3s where name="@x"').percentiles[0].where == (Condition("name", "=", "@x"),)


def test_a_limit_is_about_its_requests_only(tmp_path: Path) -> None:
    """Of ten short answers one is slow, of five long ones all: 9 of 10 met, and p95 is that of the ten."""
    short = [answered(k, k / 2, ttft_s=2.0 if k == 3 else 0.1, tokens=11) for k in range(10)]
    long = [answered(10 + k, 5 + k / 2, ttft_s=5.0, tokens=400, tpot_s=0.001) for k in range(5)]
    load = load_run(write_run(tmp_path, short + long)).load
    slo = parse_slo("ttft<1s where output_tokens<=200,p50(ttft)<1s where output_tokens>200")
    found = attainment(judge(load, slo.per_request))
    assert (found.met, found.decided, found.left_out) == (9, 10, 0)
    tail = percentile_result(load, slo.percentiles[0])
    assert (tail.value_s, tail.n, tail.met) == (5.0, 5, False)
    both = attainment(judge(load, parse_slo("ttft<1s where output_tokens<=200,tpot<10ms").per_request))
    # tpot<10ms is about all: the short ones miss it, the long ones are held to nothing else
    assert (both.met, both.decided) == (5, 15)


def test_a_failure_is_held_to_what_it_asked_for(tmp_path: Path) -> None:
    """Three successes of 11 tokens, a failure that asked for 11 and had 3, one that asked for 400."""
    records = [
        *(answered(k, float(k)) for k in range(3)),
        failed(3, 3.0, asked_output_tokens=11, output_tokens=3),
        failed(4, 4.0, asked_output_tokens=400, output_tokens=3),
    ]
    load = load_run(write_run(tmp_path, records)).load
    found = attainment(judge(load, parse_slo("ttft<1s where output_tokens<=200").per_request))
    assert (found.met, found.decided) == (3, 4)
    limit = parse_slo("p80(ttft)<1s where output_tokens<=200").percentiles[0]
    assert (percentile_result(load, limit).n, percentile_result(load, limit).met) == (4, False)


def test_a_missing_value_is_counted_said_and_can_leave_a_gate_open(tmp_path: Path) -> None:
    """19 short answers in time and a failure of unknown length: at 95 % the gate hangs on that one."""
    records = [answered(k, k / 2) for k in range(19)] + [failed(19, 12.0)]
    found = summary_of(tmp_path, records, "ttft<1s where output_tokens<=200@95%")
    slo = found["slo"]
    assert isinstance(slo, dict)
    (limit,) = slo["limits"]
    assert (limit["where"], limit["where_unknown"]) == ("output_tokens<=200", 1)
    assert (limit["met"], limit["decided"], limit["left_out"], limit["unmeasured"]) == (19, 19, 1, 1)
    assert slo["met"] is True, "19 of 20 even if it missed"
    assert any("1 of 20 requests have no output_tokens" in note for note in found["notices"])  # type: ignore[attr-defined]
    open_ = summary_of(tmp_path / "open", records, "ttft<1s where output_tokens<=200@96%")["slo"]
    assert isinstance(open_, dict)
    assert open_["met"] is None
    assert "1 of 20 requests have no output_tokens to compare" in open_["unjudged"]


def test_a_request_that_another_limit_is_about_is_decided_all_the_same(tmp_path: Path) -> None:
    records = [answered(0, 0.0), failed(1, 1.0)]
    load = load_run(write_run(tmp_path, records)).load
    found = attainment(judge(load, parse_slo("ttft<1s,tpot<50ms where output_tokens<=200").per_request))
    assert (found.met, found.decided, found.unmeasured) == (1, 2, 0)


def test_a_limit_about_nobody_decides_nothing_and_says_so(tmp_path: Path) -> None:
    records = [replace(answered(k, float(k)), tenant="a") for k in range(5)]
    slo = summary_of(tmp_path / "b", records, "ttft<1s where tenant=b@99%")["slo"]
    assert isinstance(slo, dict)
    assert (slo["met"], slo["attainment"]["whole"]["ratio"]) == (None, None)
    assert slo["unjudged"] == "ttft<1s where tenant=b: it is about no request of this run"
    unknown = summary_of(tmp_path / "none", [answered(0, 0.0)], "p95(ttft)<1s where tenant=b")["slo"]
    assert isinstance(unknown, dict)
    assert "1 of 1 requests have no tenant to compare" in unknown["unjudged"]


def test_conditions_join_with_three_values(tmp_path: Path) -> None:
    records = [
        replace(answered(0, 0.0), tenant="a"),
        replace(answered(1, 1.0), tenant="b"),
        answered(2, 2.0),
        replace(cancelled(3, 3.0, age_s=1.0), tenant="a"),
        replace(cancelled(4, 4.0, age_s=1.0), tenant="b"),
    ]
    load = load_run(write_run(tmp_path, records)).load
    found = concerned(load, parse_conditions("tenant=a and output_tokens>0"))
    assert found.yes.tolist() == [True, False, False, False, False]
    assert found.unknown.tolist() == [False, False, True, True, False], "a failing condition settles it"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("output_tokens<20", [True, False, False, False]),
        ("output_tokens<=20", [True, True, False, False]),
        ("output_tokens=20", [False, True, False, False]),
        ("output_tokens!=20", [True, False, True, False]),
        ("output_tokens>=20", [False, True, True, False]),
        ("output_tokens>20", [False, False, True, False]),
        ("output_tokens<10.5", [True, False, False, False]),
        ("Output_Tokens<20", [True, False, False, False]),
        ("tenant=a", [True, False, False, False]),
        ("tenant!=a", [False, True, True, False]),
        ("input_tokens>=20", [False, False, False, False]),
    ],
)
def test_each_relation_at_its_limit_and_a_missing_value_is_never_met(
    tmp_path: Path, text: str, expected: list[bool]
) -> None:
    """Of 10, 20 and 30 tokens and of unknown length; tenants a, b, c and none."""
    records = [
        answered(k, float(k), tokens=10 * (k + 1), input_tokens=10, tenant=tenant)
        for k, tenant in enumerate("abc")
    ]
    records.append(failed(3, 3.0, asked_input_tokens=None))
    load = load_run(write_run(tmp_path, records)).load
    found = concerned(load, parse_conditions(text))
    assert found.yes.tolist() == expected
    assert found.unknown.tolist() == [False, False, False, True]
