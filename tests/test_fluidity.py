"""Token deadlines missed, and pooled chunk gaps, from gaps.f32."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import gaps as gaps_of_run
from analysis.fluidity import NO_LIMIT, Streams, missed_deadlines
from analysis.gaps import pooled
from analysis.load import load_run
from analysis.metrics import exact_quantile
from analysis.summary import summarize
from runlog.folder import GAPS_F32, REQUESTS_CSV, RecordWriter
from runlog.record import RequestRecord
from tests.run_folders import answered, failed, write_run


def by_the_book(first_s: float, gaps_s: Sequence[float], first_due_s: float, due_s: float) -> tuple[int, int]:
    """(missed, deadlines) of one stream, token by token, as the definition has it."""
    missed = deadlines = 0
    slack_s = 0.0
    for place, took_s in enumerate([first_s, *gaps_s]):
        limit_s = first_due_s if place == 0 else due_s
        if took_s <= limit_s + slack_s + 1e-6:
            slack_s = max(slack_s + limit_s - took_s, 0.0)
            deadlines += 1
            continue
        lost = (
            1 + (took_s - first_due_s + 1e-6) // due_s if place == 0 else (took_s - slack_s + 1e-6) // due_s
        )
        missed += int(lost)
        deadlines += int(lost)
        slack_s = 0.0
    return missed, deadlines


def streams(folder: Path, rows: Sequence[tuple[float, Sequence[float]]], due_s: float) -> Streams:
    """Write the rows' gaps to a file; (TTFT, gaps) each."""
    counts = np.array([len(row) for _, row in rows])
    with open(folder / GAPS_F32, "wb") as file:
        for _, row in rows:
            file.write(np.array(row, dtype="<f4").tobytes())
    return Streams(
        first_s=np.array([first for first, _ in rows]),
        offset=np.cumsum(counts) - counts,
        count=counts,
        longest_s=np.array([max(row) for _, row in rows]),
        deadline_s=np.full(len(rows), due_s),
    )


def test_hand_worked(tmp_path: Path) -> None:
    """Due after 1 s and then every 0.1 s. a: 0.5 s early, so a pause of 0.5 s is no miss; the next of 0.35 s
    has 0.1 s of slack left and misses (0.35 - 0.1) // 0.1 = 2. b: 0.25 s late, 1 + 2 missed; then on time."""
    rows = [(0.5, [0.5, 0.35, 0.05]), (1.25, [0.1, 0.1]), (1.0, [0.05, 0.1])]
    missed, due = missed_deadlines(tmp_path / GAPS_F32, streams(tmp_path, rows, 0.1), 0.1, 1.0)
    assert missed.tolist() == [2, 3, 0]
    assert due.tolist() == [1 + 1 + 2 + 1, 3 + 2, 3]
    free, _ = missed_deadlines(tmp_path / GAPS_F32, streams(tmp_path, rows, 0.1), 0.1, None)
    # without a first deadline nothing is spared: (0.5 // 0.1) = 5 and 0.35 // 0.1 = 3
    assert free.tolist() == [8, 0, 0]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 3000).map(lambda ms: ms / 1000),
            st.lists(st.integers(0, 400).map(lambda ms: ms / 1000), min_size=1, max_size=30),
        ),
        min_size=1,
        max_size=20,
    ),
    block=st.integers(1, 80),
)
def test_all_at_once_is_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float, list[float]]], block: int
) -> None:
    folder = tmp_path_factory.mktemp("gaps")
    table = streams(folder, rows, 0.07)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("analysis.fluidity.BLOCK", block)
        missed, due = missed_deadlines(folder / GAPS_F32, table, 0.07, 0.5)
    stored = [np.array(row, dtype="<f4").astype(float) for _, row in rows]
    expected = [
        by_the_book(first, list(row), 0.5, 0.07) for (first, _), row in zip(rows, stored, strict=True)
    ]
    assert list(zip(missed.tolist(), due.tolist(), strict=True)) == expected


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.floats(0, 1e4, width=32), min_size=1, max_size=300),
    block=st.integers(1, 50),
    q=st.floats(0, 1),
)
def test_pooled_quantiles_are_exact(values: list[float], block: int, q: float) -> None:
    stored = np.array(values, dtype=np.float32)
    n, mean, found = pooled(
        lambda: (stored[k : k + block] for k in range(0, len(stored), block)), (q, 0.5, 1.0)
    )
    ordered = np.sort(stored.astype(float))
    assert n == len(values)
    assert mean == pytest.approx(ordered.mean(), rel=1e-9)
    assert found == pytest.approx([exact_quantile(ordered, part) for part in (q, 0.5, 1.0)], rel=1e-12)
    assert found[2] == ordered[-1]


def with_gaps(folder: Path, rows: Sequence[tuple[RequestRecord, Sequence[float]]], **info: Any) -> Path:
    """A run whose gaps.f32 holds these gaps."""
    write_run(folder, [record for record, _ in rows], **info)
    for name in (REQUESTS_CSV, GAPS_F32):
        (folder / name).unlink()
    with RecordWriter(folder) as writer:
        for record, gaps_s in rows:
            last = max(gaps_s, default=None)
            seen = replace(record, gap_count=len(gaps_s) if gaps_s else None, gap_max_s=last)
            writer.append(seen, array("f", gaps_s).tobytes())
    return folder


def five(number: int, at_s: float, ttft_s: float, gaps_s: Sequence[float], tokens: int) -> Any:
    record = answered(number, at_s, ttft_s=ttft_s, tokens=tokens, lag_s=0.0)
    return replace(record, output_events=len(gaps_s) + 1), gaps_s


@pytest.mark.parametrize("block", [2, 4_000_000])
def test_of_a_run(tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only successes of the load count: a failure's gaps and a probe's lie between them in the file."""
    monkeypatch.setattr(gaps_of_run, "BLOCK", block)
    rows = [
        five(0, 0.0, 0.5, [0.1, 0.1, 0.1, 0.1], 5),
        (failed(1, 1.0, first_token_at_s=1.2), [9.0, 9.0]),
        five(2, 5.0, 1.5, [0.1, 0.5, 0.1, 0.1], 5),
        (answered(None, 6.0, name="probe"), [7.0]),
        five(3, 12.0, 0.5, [0.2, 0.2], 5),
    ]
    folder = with_gaps(tmp_path, rows, bursts=[[5.0, 6.0]])
    found = summarize(load_run(folder), "ttft<1s,tpot<100ms")
    pool = found["chunk_gaps"]
    assert (pool["n"], pool["why_none"]) == (10, None)
    ordered = np.sort(np.float32([0.1, 0.1, 0.1, 0.1, 0.1, 0.5, 0.1, 0.1, 0.2, 0.2])).astype(float)
    assert pool["p50_s"] == exact_quantile(ordered, 0.5)
    assert pool["p99_s"] == pytest.approx(exact_quantile(ordered, 0.99))
    assert pool["max_s"] == pytest.approx(0.5)
    # 15 tokens in 13 events
    assert pool["tokens_per_chunk"] == pytest.approx(15 / 13)
    assert pool["note"] == "per chunk, not per token: an event holds 1.15 tokens on average"
    fluid = found["fluidity"]
    # the second: first chunk 0.5 s late, 1 + 5 missed; then 0.5 s, 5 more; the third's chunks of two are due
    # 0.2 s apart
    assert (fluid["missed"], fluid["deadlines"]) == (11, 5 + (6 + 1 + 5 + 2) + 3)
    assert (fluid["burst"]["missed"], fluid["burst"]["requests"]) == (11, 1)
    assert fluid["burst"]["missed_ratio"] == pytest.approx(11 / 14)
    assert fluid["fluid_ratio"] == pytest.approx(2 / 3)
    assert fluid["quiet"]["missed"] == 0


def test_one_token_an_event_needs_no_note(tmp_path: Path) -> None:
    folder = with_gaps(tmp_path, [five(0, 0.0, 0.5, [0.1] * 4, 5)])
    assert summarize(load_run(folder))["chunk_gaps"]["note"] is None


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    kept = with_gaps(tmp_path / "kept", [five(0, 0.0, 0.5, [0.1] * 4, 5)])
    found = summarize(load_run(kept), "ttft<1s")
    assert (found["fluidity"]["why_none"], found["fluidity"]["missed_ratio"]) == (NO_LIMIT, None)
    none = summarize(load_run(write_run(tmp_path / "none", [answered(0, 0.0)])), "tpot<50ms")
    assert none["chunk_gaps"]["why_none"] == none["fluidity"]["why_none"]
    assert "--gaps all" in none["fluidity"]["why_none"]
    (kept / GAPS_F32).write_bytes(b"\0" * 12)  # a fourth gap is missing
    assert summarize(load_run(kept))["chunk_gaps"]["n"] == 0
