"""The SLO grammar, and attainment on hand-made requests: failures miss, what was cut off is left out."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.load import load_run
from analysis.slo import (
    SLO_METRICS,
    SloError,
    attainment,
    judge,
    parse_slo,
    percentile_result,
    wilson_interval,
)
from runlog.record import RequestRecord
from tests.run_folders import answered, cancelled, failed, not_sent, unstreamed, write_run


def load_of(folder: Path, *records: RequestRecord) -> pd.DataFrame:
    return load_run(write_run(folder, records)).load


def met_of(folder: Path, text: str, *records: RequestRecord) -> tuple[int, int, int]:
    found = attainment(judge(load_of(folder, *records), parse_slo(text).per_request))
    return found.met, found.decided, found.left_out


def test_joint_limits_without_a_share_only_report() -> None:
    slo = parse_slo("ttft<1s,tpot<50ms")
    assert [(limit.metric.key, limit.limit_s) for limit in slo.per_request] == [
        ("ttft_s", 1.0),
        ("tpot_s", 0.05),
    ]
    assert slo.share is None
    assert not slo.gates
    assert slo.ttft_limit_s() == 1.0


def test_shares_percentiles_and_spelling() -> None:
    slo = parse_slo(" TTFT <= 500 ms , e2e<30s@99.5% , p99.9(ttft_from_schedule) < 2s ")
    assert slo.share == pytest.approx(0.995)
    assert [limit.text for limit in slo.per_request] == ["ttft<=500ms", "e2e<30s"]
    assert slo.percentiles[0].quantile == pytest.approx(0.999)
    assert slo.percentiles[0].metric.key == "ttft_from_schedule_s"
    assert slo.gates
    assert parse_slo("p95(tpot)<50ms").gates


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "''"),
        ("ttft<1s,", "''"),
        ("ttft", "'ttft'"),
        ("ttft>1s", "'ttft>1s'"),
        ("ttft<1", "unit"),
        ("ttft<1h", "unit"),
        ("ttft<0ms", "above 0"),
        ("ttft<1.2.3s", "'1.2.3'"),
        ("tfft<1s", "unknown metric 'tfft'"),
        ("send_lag<1s", "unknown metric 'send_lag'"),
        ("p95(ttft<1s", "cannot read"),
        ("ttft)<1s", "cannot read"),
        ("p0(ttft)<1s", "above 0"),
        ("p101(ttft)<1s", "at most 100"),
        ("ttft<1s@0%", "above 0"),
        ("ttft<1s@99%,tpot<50ms@95%", "two different shares"),
        ("p95(ttft)<1s@99%", "both a percentile and a share"),
    ],
)
def test_a_wrong_slo_is_told_in_one_line_that_names_the_part(text: str, names: str) -> None:
    with pytest.raises(SloError, match="SLO") as caught:
        parse_slo(text)
    assert names in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(alphabet="tfpo(e2)<>=@%,.0159sm x", max_size=25))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        slo = parse_slo(text)
    except SloError:
        return
    assert slo.per_request or slo.percentiles


@pytest.mark.parametrize("name", sorted(SLO_METRICS))
def test_every_slo_metric_can_be_limited(tmp_path: Path, name: str) -> None:
    load = load_of(tmp_path, answered(0, 0.0), failed(1, 1.0))
    found = attainment(judge(load, parse_slo(f"{name}<1000s").per_request))
    assert (found.met, found.decided) == (1, 2)


def test_on_the_limit_is_met_and_a_microsecond_above_is_not(tmp_path: Path) -> None:
    times = [0.1 + 0.3 * k for k in range(50)]  # differences of these are rarely exact in floating point
    on = [answered(k, at_s, ttft_s=0.7, tpot_s=0.05) for k, at_s in enumerate(times)]
    assert met_of(tmp_path / "on", "ttft<700ms,tpot<50ms", *on) == (50, 50, 0)
    above = [answered(k, at_s, ttft_s=0.700002, tpot_s=0.05) for k, at_s in enumerate(times)]
    assert met_of(tmp_path / "above", "ttft<700ms", *above) == (0, 50, 0)


def test_limits_hold_jointly(tmp_path: Path) -> None:
    records = [
        answered(0, 0.0, ttft_s=0.5, tpot_s=0.02),
        answered(1, 1.0, ttft_s=1.5, tpot_s=0.02),
        answered(2, 2.0, ttft_s=0.5, tpot_s=0.09),
        answered(3, 3.0, ttft_s=0.5, tokens=1),
    ]
    assert met_of(tmp_path / "joint", "ttft<1s,tpot<50ms", *records) == (2, 4, 0)
    assert met_of(tmp_path / "tpot", "tpot<50ms", *records) == (3, 4, 0), "one token: no TPOT to miss"


def test_failures_miss_and_cut_off_requests_wait(tmp_path: Path) -> None:
    records = [
        answered(0, 0.0),
        failed(1, 1.0),
        failed(2, 2.0, outcome="rejected", failure_class="http_429"),
        not_sent(3, 3.0, "sent_too_late"),
        not_sent(4, 4.0, "run_stopped"),
        cancelled(5, 5.0, age_s=0.4),
        cancelled(6, 6.0, age_s=1.4),
        cancelled(7, 7.0, age_s=9.0, first_token_at_s=7.5, last_token_at_s=8.0),
    ]
    # 0 met; 1, 2, 3 and the cut-off 6, already past 1 s without a token, missed; 4, 5 and 7 undecided
    assert met_of(tmp_path / "ttft", "ttft<1s", *records) == (1, 5, 3)
    # by E2E both old cancelled ones are past 1 s
    assert met_of(tmp_path / "e2e", "e2e<1s", *records) == (1, 6, 2)


def test_a_cut_off_request_has_no_final_tpot(tmp_path: Path) -> None:
    record = cancelled(0, 0.0, age_s=9.0, first_token_at_s=0.5, last_token_at_s=8.0, output_tokens=2)
    assert met_of(tmp_path, "tpot<50ms", record) == (0, 0, 1)


def test_what_was_not_measured_is_left_out_and_never_met(tmp_path: Path) -> None:
    streamed, slow = answered(0, 0.0), answered(1, 1.0, ttft_s=2.0)
    quick, long = unstreamed(answered(2, 2.0)), unstreamed(answered(3, 3.0, ttft_s=9.0))
    records = (streamed, slow, quick, long)
    assert met_of(tmp_path / "ttft", "ttft<1s", *records) == (1, 2, 2)
    assert met_of(tmp_path / "tpot", "tpot<50ms", *records) == (2, 2, 2)
    assert met_of(tmp_path / "gap", "gap_p99<50ms", *records) == (2, 2, 2)
    assert met_of(tmp_path / "e2e", "e2e<5s", *records) == (3, 4, 0), "the end of a whole answer is known"
    assert met_of(tmp_path / "both", "ttft<1s,e2e<5s", *records) == (1, 3, 1), "it has missed a limit anyway"
    one = unstreamed(answered(4, 4.0, tokens=1))
    assert met_of(tmp_path / "one", "tpot<50ms", streamed, one) == (2, 2, 0), "one token has no TPOT to miss"


@pytest.mark.parametrize("text", ["ttft<1s", "answer_ttft<1s", "ttft_from_schedule<1s", "tpot<50ms"])
def test_a_limit_measured_for_no_success_decides_nothing(tmp_path: Path, text: str) -> None:
    records = [unstreamed(answered(k, float(k))) for k in range(9)]
    assert met_of(tmp_path / "alone", text, *records, failed(9, 9.0)) == (0, 0, 10)
    assert met_of(tmp_path / "both", f"{text},e2e<1ms", *records) == (0, 0, 9)
    metric, _, limit = text.partition("<")
    found = percentile_result(
        load_of(tmp_path / "p95", *records, failed(9, 9.0)),
        parse_slo(f"p95({metric})<{limit}").percentiles[0],
    )
    assert (found.met, found.value_s, found.n) == (None, None, 0)


@pytest.mark.parametrize(
    ("lacking", "slow", "holds"), [(1, 0, True), (3, 0, None), (0, 3, False), (1, 2, None)]
)
def test_a_gate_holds_only_whatever_the_unmeasured_were(
    tmp_path: Path, lacking: int, slow: int, holds: bool | None
) -> None:
    """100 requests of which 98 % must be below 1 s."""
    records = [answered(k, k / 10, ttft_s=2.0 if k >= 100 - slow else 0.1) for k in range(100)]
    records[:lacking] = [unstreamed(record) for record in records[:lacking]]
    load = load_of(tmp_path, *records)
    assert attainment(judge(load, parse_slo("ttft<1s").per_request)).holds(0.98) is holds
    assert percentile_result(load, parse_slo("p97.5(ttft)<1s").percentiles[0]).met is holds


def test_field_case_a_hundred_at_147_ms(tmp_path: Path) -> None:
    records = [answered(k, 0.1 * k, ttft_s=0.147) for k in range(100)]
    load = load_of(tmp_path, *records)
    slo = parse_slo("ttft<148ms,p99(ttft)<147ms")
    assert attainment(judge(load, slo.per_request)).ratio == 1.0
    result = percentile_result(load, slo.percentiles[0])
    assert result.value_s == 0.147
    assert result.met is True


def test_percentile_limits_count_failures_as_infinite(tmp_path: Path) -> None:
    records = [answered(k, 0.1 * k) for k in range(90)] + [failed(90 + k, 10 + 0.1 * k) for k in range(10)]
    load = load_of(tmp_path / "some", *records)
    p50, p95 = parse_slo("p50(ttft)<1s,p95(ttft)<1s").percentiles
    assert percentile_result(load, p50).met is True
    result = percentile_result(load, p95)
    assert (result.met, result.value_s, result.n) == (False, None, 100)
    assert percentile_result(load_of(tmp_path / "none"), p50).met is None


def test_attainment_of_nothing_is_unknown(tmp_path: Path) -> None:
    found = attainment(judge(load_of(tmp_path), parse_slo("ttft<1s").per_request))
    assert (found.met, found.decided, found.ratio, found.low, found.high) == (0, 0, None, None, None)


def test_wilson_interval_hand_worked() -> None:
    # (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n) at p = 0.9, n = 100, z = 1.959964
    low, high = wilson_interval(90, 100)
    assert low == pytest.approx(0.825634, abs=1e-6)
    assert high == pytest.approx(0.944771, abs=1e-6)
    assert wilson_interval(0, 10)[0] == 0.0
    assert wilson_interval(10, 10)[1] == pytest.approx(1.0)


@given(st.integers(min_value=1, max_value=10_000), st.data())
def test_wilson_interval_holds_the_ratio(n: int, data: st.DataObject) -> None:
    met = data.draw(st.integers(min_value=0, max_value=n))
    low, high = wilson_interval(met, n)
    assert low is not None
    assert high is not None
    assert 0 <= low <= met / n + 1e-12
    assert met / n - 1e-12 <= high <= 1
