"""Figures by name, tenant and input length, and which tenant hurts which."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.groups import BANDS, OTHERS
from analysis.load import load_run
from analysis.summary import summarize
from runlog.record import RequestRecord
from tests.run_folders import answered, cancelled, failed, write_run


def test_groups_hand_worked(tmp_path: Path) -> None:
    records = [answered(k, k / 10, ttft_s=0.1, name="chat", input_tokens=100) for k in range(80)]
    records += [answered(80 + k, 10 + k / 10, ttft_s=2.0, name="code", input_tokens=512) for k in range(9)]
    records += [failed(89, 15.0, name="code", asked_input_tokens=40_000)]
    found = summarize(load_run(write_run(tmp_path, records)), "ttft<1s")["groups"]
    chat, code = found["name"]
    assert (chat["group"], chat["requests"], chat["errors"]) == ("chat", 80, 0)
    assert (chat["ttft"]["p95"]["value"], chat["ttft"]["p95"]["n_too_small"]) == (pytest.approx(0.1), False)
    assert (code["requests"], code["errors"], code["error_ratio"]) == (10, 1, 0.1)
    assert (code["ttft"]["p50"]["value"], code["ttft"]["p95"]["n_too_small"]) == (pytest.approx(2.0), True)
    assert (chat["attainment"]["ratio"], code["attainment"]["decided"], code["attainment"]["met"]) == (
        1.0,
        10,
        0,
    )
    assert [(row["group"], row["requests"]) for row in found["input_tokens"]] == [
        ("0 to 127", 80),
        ("512 to 2047", 9),
        ("32768 and more", 1),
    ]
    assert found["tenant"] == [], "nobody has a tenant"
    assert BANDS[1] == "128 to 511"


def test_what_did_not_succeed_or_is_unknown_has_its_place(tmp_path: Path) -> None:
    """Of tenant a: 2 answers, a failure after its first token, a rejection, one cut off. One request of
    nobody and of unknown length is in no group."""
    records = [
        answered(0, 0.0, ttft_s=0.1, tenant="a", input_tokens=100),
        answered(1, 1.0, ttft_s=0.1, tenant="a", input_tokens=100),
        failed(2, 2.0, tenant="a", asked_input_tokens=100, first_token_at_s=2.9),
        failed(3, 3.0, tenant="a", asked_input_tokens=100, outcome="rejected"),
        cancelled(4, 4.0, age_s=1.0, tenant="a", asked_input_tokens=100),
        answered(5, 5.0, tenant="b", input_tokens=600),
        failed(6, 6.0, asked_input_tokens=None),
    ]
    found = summarize(load_run(write_run(tmp_path, records)))["groups"]
    a, b = found["tenant"]
    assert (a["requests"], a["errors"], a["error_ratio"]) == (5, 2, 0.5), "one was cut off: neither"
    assert (a["ttft"]["p50"]["value"], a["ttft"]["p99"]["value"]) == pytest.approx((0.1, 0.1))
    assert (b["group"], b["requests"]) == ("b", 1)
    assert [(row["group"], row["requests"]) for row in found["input_tokens"]] == [
        ("0 to 127", 5),
        ("512 to 2047", 1),
    ]


def test_many_names_end_in_others(tmp_path: Path) -> None:
    records, number = [], 0
    for name in range(25):
        for _ in range(30 - name):
            records.append(answered(number, number / 100, name=f"n{name:02}"))
            number += 1
    rows = summarize(load_run(write_run(tmp_path, records)))["groups"]["name"]
    assert [row["group"] for row in rows] == [*(f"n{k:02}" for k in range(20)), OTHERS]
    assert rows[-1]["requests"] == sum(30 - k for k in range(20, 25))
    assert sum(row["requests"] for row in rows) == number


def two_tenants() -> list[RequestRecord]:
    """a: 2/s for 120 s; b: 1/s, and 40 more in the second from 40 s. While b bursts and 10 s after, a's TTFT
    is 3 s, else 0.1 s; b's own is 1 s then."""
    rows = [(k / 2, "a", 3.0 if 40 <= k / 2 < 51 else 0.1) for k in range(240)]
    rows += [(k + 0.25, "b", 1.0 if 40 <= k < 51 else 0.1) for k in range(120)]
    rows += [(40 + k / 40, "b", 1.0) for k in range(40)]
    return [
        answered(number, at_s, ttft_s=ttft_s, tenant=tenant)
        for number, (at_s, tenant, ttft_s) in enumerate(sorted(rows))
    ]


def test_who_hurts_whom(tmp_path: Path) -> None:
    folder = write_run(tmp_path, two_tenants(), duration_s=120.0)
    a, b = summarize(load_run(folder), "ttft<1s")["tenants"]
    assert (a["tenant"], a["requests"], a["bursts"]) == ("a", 240, 0)
    assert (b["tenant"], b["requests"], b["bursts"], b["burst_s"]) == ("b", 160, 1, 1.0)
    assert (a["quiet"]["requests"], a["others"]["requests"], a["own"]["requests"]) == (218, 22, 0)
    assert (a["quiet"]["ttft"]["p95"]["value"], a["others"]["ttft"]["p50"]["value"]) == pytest.approx(
        (0.1, 3.0)
    )
    assert (a["quiet"]["attainment"]["ratio"], a["others"]["attainment"]["ratio"]) == (1.0, 0.0)
    (by,) = a["by"]
    assert (by["tenant"], by["requests"]) == ("b", 22)
    assert (b["own"]["requests"], b["others"]["requests"], b["by"]) == (51, 0, [])
    assert b["quiet"]["requests"] == 109


def test_a_request_in_two_bursts_counts_for_its_own_tenant_alone(tmp_path: Path) -> None:
    """a bursts at 40 s, b at 45 s: from 45 s on a's requests are in both, and its own comes first."""
    rows = [(k / 2, "a") for k in range(240)] + [(k + 0.25, "b") for k in range(120)]
    rows += [(40 + k / 40, "a") for k in range(40)] + [(45 + k / 40, "b") for k in range(40)]
    records = [answered(number, at_s, tenant=tenant) for number, (at_s, tenant) in enumerate(sorted(rows))]
    a, b = summarize(load_run(write_run(tmp_path, records, duration_s=120.0)))["tenants"]
    assert (a["tenant"], a["bursts"], b["bursts"]) == ("a", 1, 1)
    assert (a["own"]["requests"], a["others"]["requests"]) == (40 + 2 * 11, 2 * 5)
    assert [(row["tenant"], row["requests"]) for row in a["by"]] == [("b", 10)]
    assert (b["own"]["requests"], b["others"]["requests"]) == (40 + 11, 5)
    assert [(row["tenant"], row["requests"]) for row in b["by"]] == [("a", 5)]


def test_the_twenty_greatest_tenants_have_rows(tmp_path: Path) -> None:
    names = [f"t{place:02}" for place in range(22) for _ in range(30 - place)]
    records = [answered(k, k / 100, tenant=name) for k, name in enumerate(names)]
    rows = summarize(load_run(write_run(tmp_path, records)))["tenants"]
    assert [row["tenant"] for row in rows] == [f"t{place:02}" for place in range(20)]


def test_one_tenant_hurts_nobody(tmp_path: Path) -> None:
    records = [answered(k, k / 10, tenant="a") for k in range(50)]
    found = summarize(load_run(write_run(tmp_path, records)))
    assert (found["tenants"], found["groups"]["tenant"]) == ([], [])
