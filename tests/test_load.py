"""A run folder is read as it was written; what is cut or missing is said, what is broken is refused."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.load import FEW_TEXTS, SCHEDULE_KINDS, load_run
from analysis.tables import whole_lines
from runlog.folder import RunFolderError
from runlog.record import COLUMN_KINDS, COLUMNS
from runlog.server_samples import SERVER_METRICS_CSV, SampleWriter, ServerSample
from shapes.schedule import COLUMNS as SCHEDULE_COLUMNS
from tests.run_folders import answered, cancelled, failed, not_sent, write_run


def test_schedule_columns_are_those_that_the_schedule_writes() -> None:
    assert tuple(SCHEDULE_KINDS) == SCHEDULE_COLUMNS


def test_columns_have_their_kinds_and_unknown_is_missing(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path, [answered(0, 1.0), failed(1, 2.0, output_tokens=None)]))
    assert list(run.requests.columns[: len(COLUMNS)]) == list(COLUMNS)
    kinds = {int: "Int64", float: "float64", str: "str"}
    assert {name: str(run.requests[name].dtype) for name in COLUMNS} == {
        **{name: kinds[kind] for name, kind in COLUMN_KINDS.items()},
        **dict.fromkeys(FEW_TEXTS, "category"),
    }
    assert run.requests["output_tokens"].isna().tolist() == [False, True]
    assert run.schedule["at_s"].tolist() == [1.0, 2.0]
    assert run.notices == []


def test_derived_times_hand_worked(tmp_path: Path) -> None:
    record = answered(
        0, 1.0, ttft_s=0.25, tpot_s=0.05, tokens=5, lag_s=0.004, first_answer_at_s=1.304, input_tokens=50
    )
    row = load_run(write_run(tmp_path, [record])).requests.iloc[0]
    assert row["arrived_at_s"] == 1.0
    assert row["send_lag_s"] == pytest.approx(0.004)
    assert row["ttft_s"] == 0.25
    assert row["answer_ttft_s"] == 0.3
    assert row["ttft_from_schedule_s"] == 0.254
    assert row["e2e_s"] == 0.45
    assert row["e2e_from_schedule_s"] == 0.454
    assert row["tpot_s"] == 0.05
    assert row["normalized_latency_s"] == 0.09
    assert row["normalized_ttft_s"] == 0.005


def test_derived_values_are_those_of_the_record(tmp_path: Path) -> None:
    records = [answered(0, 1.0), answered(1, 2.0, tokens=1), failed(2, 3.0), not_sent(3, 4.0)]
    run = load_run(write_run(tmp_path, records))
    for name in ("send_lag_s", "ttft_s", "ttft_from_schedule_s", "tpot_s", "e2e_s"):
        expected = [getattr(record, name) for record in records]
        expected = [math.nan if value is None else value for value in expected]
        np.testing.assert_allclose(run.requests[name], expected, atol=2e-6, err_msg=name)


def test_one_token_has_no_tpot(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path, [answered(0, 1.0, tokens=1)]))
    assert math.isnan(run.requests["tpot_s"].iloc[0])


def test_whose_fault(tmp_path: Path) -> None:
    records = [
        answered(0, 1.0),
        failed(1, 2.0),
        failed(2, 3.0, failure_class="out_of_ports"),
        cancelled(3, 4.0, age_s=1.0),
        failed(4, 5.0, failure_class="of_a_later_release"),
    ]
    whose = load_run(write_run(tmp_path, records)).requests["whose"]
    assert whose.isna().tolist() == [True, False, False, False, True]
    assert whose.dropna().tolist() == ["server", "client", "run"]


def test_texts_that_look_like_missing_values_stay_texts(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path, [failed(0, 1.0, error="None", tenant="NA", session="nan")]))
    assert run.requests[["error", "tenant", "session"]].iloc[0].tolist() == ["None", "NA", "nan"]


def test_a_cut_last_line_is_left_out_and_noticed(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [answered(0, 1.0), failed(1, 2.0, error='a "quoted",\nlong text')])
    path = folder / "requests.csv"
    whole = path.read_bytes()
    last_record = len(whole) - (whole.index(b"\n1,") + 1)
    for cut in range(1, last_record):
        path.write_bytes(whole[:-cut])
        run = load_run(folder)
        assert run.requests["arrival"].tolist() == [0], f"cut by {cut} bytes"
        assert any("cut short" in notice for notice in run.notices)


@given(st.text(alphabet='a",\n', max_size=30), st.integers(min_value=0, max_value=40))
def test_whole_lines_never_ends_inside_quotes(text: str, keep: int) -> None:
    data = text.encode()[:keep]
    whole = whole_lines(data)
    assert data.startswith(whole)
    assert whole == b"" or (whole.endswith(b"\n") and whole.count(b'"') % 2 == 0)


def test_header_only_and_empty_files(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [])
    assert len(load_run(folder).requests) == 0
    (folder / "requests.csv").write_bytes(b"")
    (folder / "events.csv").unlink()
    (folder / "schedule.csv").unlink()
    run = load_run(folder)
    assert len(run.requests) == len(run.schedule) == len(run.events) == 0
    assert any("schedule.csv" in notice for notice in run.notices)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda folder: (folder / "run.json").unlink(), "not a run folder"),
        (lambda folder: (folder / "requests.csv").unlink(), "no requests.csv"),
        (lambda folder: _set(folder, format_version=99), "format version 99"),
        (lambda folder: _set(folder, duration_s=0), "duration_s is 0"),
        (lambda folder: _swap(folder, b"succeeded", b"splendid"), "splendid"),
        (lambda folder: _swap(folder, b"1.100000", b"soon"), "soon"),
        (lambda folder: _swap(folder, b"outcome", b"result"), "no column 'outcome'"),
        (lambda folder: _swap(folder, b"r-0", b"r-0,and,more"), "requests.csv"),
    ],
)
def test_broken_folders_are_refused_in_one_line(tmp_path: Path, change, says: str) -> None:  # type: ignore[no-untyped-def]
    folder = write_run(tmp_path / "run", [answered(0, 1.0, lag_s=0.0), answered(1, 2.0)])
    change(folder)
    with pytest.raises(RunFolderError, match=says) as caught:
        load_run(folder)
    assert "\n" not in str(caught.value)


def _set(folder: Path, **values: object) -> None:
    path = folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def _swap(folder: Path, old: bytes, new: bytes) -> None:
    path = folder / "requests.csv"
    assert old in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(old, new, 1))


def test_probes_and_warmup_are_no_load(tmp_path: Path) -> None:
    records = [answered(0, 2.0), answered(None, 1.0, name="probe"), answered(1, 1.5), answered(None, 0.0)]
    run = load_run(write_run(tmp_path / "open", records))
    assert run.load["arrival"].tolist() == [1, 0], "in order of arrival, rows without one left out"
    closed = [answered(None, 2.0, name="chat"), answered(None, 1.0, name="probe")]
    assert load_run(write_run(tmp_path / "closed", closed)).load["name"].tolist() == ["chat"]


def test_the_window_ends_where_the_run_was_stopped(tmp_path: Path) -> None:
    records = [answered(0, 1.0), not_sent(1, 8.0), not_sent(2, 9.0)]
    stopped = load_run(write_run(tmp_path / "stopped", records, state="stopped"))
    assert stopped.window_s == 8.0
    whole = load_run(write_run(tmp_path / "whole", [answered(0, 1.0)]))
    assert whole.window_s == 20.0
    going_on = load_run(write_run(tmp_path / "going", [answered(0, 1.0, tokens=1)], state="running"))
    assert going_on.window_s == pytest.approx(1.101)
    assert any("had not ended" in notice for notice in going_on.notices)


def test_missing_gaps_are_noticed(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [answered(0, 1.0, gap_offset=0)])
    assert any("gaps.f32 is missing" in notice for notice in load_run(folder).notices)


def test_a_hundred_thousand_rows(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [answered(0, 1.0)])
    path = folder / "requests.csv"
    header, line = path.read_text().splitlines()
    rest = line.partition(",")[2]
    path.write_text("\n".join([header, *(f"{k},{rest}" for k in range(100_000)), ""]))
    began = time.process_time()
    run = load_run(folder)
    assert len(run.requests) == 100_000
    assert time.process_time() - began < 10, "loading is by columns, not by rows"


def test_the_servers_own_figures_are_read_when_asked_for_and_never_stop_a_report(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [answered(0, 1.0)])
    assert load_run(folder).server_metrics.empty
    path = folder / SERVER_METRICS_CSV
    with SampleWriter(folder) as samples:
        samples.append(ServerSample(1.0, running=2, waiting=None, kv_cache_used_ratio=0.5))
        samples.append(ServerSample(0.0, running=1, waiting=3))
    found = load_run(folder).server_metrics
    assert found["at_s"].tolist() == [0.0, 1.0]
    assert found["waiting"].isna().tolist() == [False, True]
    assert found["kv_cache_used_ratio"].isna().tolist() == [True, False]
    path.write_text(path.read_text(encoding="utf-8") + "2.0,5", encoding="utf-8")
    run = load_run(folder)
    assert (len(run.server_metrics), len(run.notices)) == (2, 1)
    assert "cut short" in run.notices[0]
    path.write_text("at_s,running\n1.0,many\n", encoding="utf-8")
    run = load_run(folder)
    assert run.server_metrics.empty
    assert "the server's own figures are left out" in run.notices[0]
