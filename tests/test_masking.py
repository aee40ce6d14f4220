"""Error texts that differ only in ids, numbers or quoted parts are one; masking is bounded and stable."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from analysis.load import load_run
from analysis.masking import (
    LONGEST_MASKED,
    MOST_GROUPS,
    error_kinds,
    mask,
    shortened,
)
from analysis.summary import summarize
from tests.run_folders import answered, failed, write_run

HOSTILE = st.text(alphabet="ab09'\"`“”#.-:/_ …\nAé٣", max_size=900) | st.text(max_size=900)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("queue full", "queue full"),
        ("request 7f3a9c1e took 31.5 ms, see 'req-1'", "request # took # ms, see …"),
        ("uuid 123e4567-e89b-abcd-abcd-426614174000!", "uuid #!"),
        ("connect to 10.0.0.1:8000 failed", "connect to # failed"),
        ("at 2026-11-30T22:15:01.123Z: overloaded", "at #: overloaded"),
        ("chatcmpl-a8Zk3 not found", "chatcmpl-# not found"),
        ("address 0x7ffdeadbeef", "address #"),
        ("hash deadb33fcafe", "hash #"),
        ('model "my model" and `other` and “third”', "model … and … and …"),
        ("can't read what doesn't exist", "can't read what doesn't exist"),
        ("HTTP 503\n  Service   Unavailable", "HTTP # Service Unavailable"),
        ("1,024 of 2,048 tokens (12.5%)", "# of # tokens (#%)"),
        ("path /v1/models/7 and a1/b2/c3", "path /#/models/# and #"),
        ("", ""),
    ],
)
def test_what_differs_is_masked_and_words_stay(text: str, masked: str) -> None:
    assert mask(text) == masked


@given(HOSTILE)
@example("1'a'")
@example("''…''")
@example("'``")
@example("'`'a` b'")
@example("'" * 400)
@example("x1" * 200)
@example("x" * (LONGEST_MASKED - 1) + " cut at a blank")
def test_masking_twice_changes_nothing_and_length_is_bounded(text: str) -> None:
    once = mask(text)
    assert mask(once) == once
    assert len(once) <= LONGEST_MASKED
    assert "\n" not in once
    assert not any(letter in "0123456789" for letter in once)


@pytest.mark.parametrize("piece", ["'", '"', "a-", "'a", "1-", "_", "f", "1.a", "a" * 50 + "!", "“", "`"])
def test_hostile_texts_take_no_longer_than_others(piece: str) -> None:
    texts = [piece * (40_000 // len(piece)) + str(k) for k in range(100)]
    began_s = time.process_time()
    for text in texts:
        mask(text)
    assert time.process_time() - began_s < 1.0  # 4 million characters; quadratic would take minutes


def test_a_hundred_thousand_distinct_texts_are_quickly_few(tmp_path: Path) -> None:
    records = [
        failed(
            k,
            k / 1000,
            error=f"request {k:08x}-{k % 7} to 10.0.{k % 256}.1:80 after {k / 7:.3f} s: '{k}' is busy",
        )
        for k in range(100_000)
    ]
    load = load_run(write_run(tmp_path, records, duration_s=100.0)).load
    assert load["error"].nunique() == 100_000
    began_s = time.process_time()
    found = error_kinds(load)
    assert time.process_time() - began_s < 4.0  # 1 s where nothing else runs
    assert found[["failure_class", "text", "count"]].to_numpy().tolist() == [
        ["http_503", "request # to # after # s: … is busy", 100_000]
    ]


def test_the_commonest_kinds_are_told_and_the_rest_is_one_line(tmp_path: Path) -> None:
    def letters(k: int) -> str:
        return "".join("ghijklmnop"[int(digit)] for digit in f"{k:03d}")

    texts = [f"kind {letters(k)} of request {n}" for k in range(60) for n in range(61 - k)]
    records = [failed(k, k / 1000, error=text) for k, text in enumerate(texts)]
    summary = summarize(load_run(write_run(tmp_path, [*records, answered(len(texts), 19.0)])))
    found = summary["error_texts"]
    assert len(found["groups"]) == MOST_GROUPS
    assert found["groups"][0] == {
        "class": "http_503",
        "text": "kind ggg of request #",
        "count": 61,
        "example": "kind ggg of request 0",
    }
    assert (found["other_kinds"], found["other_count"]) == (10, sum(61 - k for k in range(50, 60)))
    (row,) = summary["failures"]
    assert (row["count"], row["kinds"], row["example"]) == (len(texts), 60, "kind ggg of request 0")


def test_the_commonest_text_stands_for_its_kind_and_the_commonest_kind_comes_first(tmp_path: Path) -> None:
    """Busy: 9 in one text. Full: 12 in three texts, the first of them seen once. One has no class."""
    texts = ["node 1 is full", *["shard is busy"] * 9, *["node 2 is full"] * 8, *["node 3 is full"] * 3]
    records = [failed(k, k / 10, error=text) for k, text in enumerate(texts)]
    records.append(failed(21, 3.0, error="what?", failure_class=None))
    kept = replace(answered(22, 3.1), error="a remark, no failure")
    found = error_kinds(load_run(write_run(tmp_path, [*records, kept])).load)
    assert found.to_numpy().tolist() == [
        ["http_503", "node # is full", 12, "node 2 is full"],
        ["http_503", "shard is busy", 9, "shard is busy"],
        ["", "what?", 1, "what?"],
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("two\n  lines", "two lines"),
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 199 + "…"),
    ],
)
def test_an_example_is_one_line_and_says_that_it_was_cut(text: str, expected: str) -> None:
    assert shortened(text) == expected
