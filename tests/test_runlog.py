"""The run folder's types: rows survive a round trip; cut lines and foreign folders are told clearly."""

from __future__ import annotations

import dataclasses
import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlog.exit_codes import MEANING, PRECEDENCE, ExitCode, first_of
from runlog.failures import FAILURE_CLASSES, failure_class
from runlog.folder import (
    RecordWriter,
    RunFolderError,
    RunInfo,
    WorkerInfo,
    create_folder,
    read_gaps,
    read_requests,
    read_run_info,
    write_run_info,
)
from runlog.record import COLUMN_KINDS, COLUMNS, OUTCOMES, RequestRecord, from_row, to_row

FULL = RequestRecord(
    arrival=3,
    request_id="r-3",
    worker=1,
    attempts=1,
    scheduled_at_s=1.0,
    sent_at_s=1.002,
    first_token_at_s=1.25,
    last_token_at_s=2.25,
    ended_at_s=2.26,
    outcome="succeeded",
    output_tokens=11,
)
INFO = RunInfo(
    run_id="r",
    name="pulse",
    target="http://127.0.0.1:1",
    model="m",
    shape="pulse",
    arrivals="poisson",
    seed=7,
    duration_s=80.0,
    drain_s=30.0,
    workers=[WorkerInfo(0, "here", 42, cpu_peak_ratio=0.5)],
    counts={"planned": 3},
)


def test_derived_times_by_hand() -> None:
    assert FULL.send_lag_s == pytest.approx(0.002)
    assert FULL.ttft_s == pytest.approx(0.248)
    assert FULL.ttft_from_schedule_s == pytest.approx(0.25)
    assert FULL.e2e_s == pytest.approx(1.248)
    assert FULL.tpot_s == pytest.approx(0.1)


def test_opening_a_connection_is_no_send_lag_of_ours() -> None:
    connected = dataclasses.replace(FULL, connection="new", connect_s=0.0015)
    assert connected.send_lag_s == pytest.approx(0.0005)
    assert dataclasses.replace(connected, attempts=2).send_lag_s == pytest.approx(0.002)


def test_no_tpot_below_two_tokens_and_none_where_a_time_is_unknown() -> None:
    assert dataclasses.replace(FULL, output_tokens=1).tpot_s is None
    assert dataclasses.replace(FULL, output_tokens=None).tpot_s is None
    assert dataclasses.replace(FULL, first_token_at_s=None).ttft_s is None


texts = st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), min_size=1)
values = {
    int: st.integers(0, 2**53),
    float: st.floats(0, 1e5).map(lambda x: round(x, 6)),
    str: texts,
}


@st.composite
def records(draw: st.DrawFn) -> RequestRecord:
    cells = {name: draw(st.none() | values[kind]) for name, kind in COLUMN_KINDS.items()}
    required = {"request_id": draw(texts), "outcome": draw(st.sampled_from(OUTCOMES)), "name": draw(texts)}
    required |= {"segment": draw(values[int]), "attempts": draw(values[int])}
    return RequestRecord(**(cells | required))


@given(records())
def test_a_row_survives_the_round_trip(record: RequestRecord) -> None:
    assert from_row(dict(zip(COLUMNS, to_row(record), strict=True))) == record


def test_an_unknown_outcome_is_refused() -> None:
    with pytest.raises(ValueError, match="outcome 'vanished'"):
        from_row({"request_id": "x", "outcome": "vanished"})


def write(folder: Path, *records: RequestRecord) -> None:
    with RecordWriter(folder) as writer:
        for record in records:
            writer.append(record)


def test_records_and_gaps_come_back(tmp_path: Path) -> None:
    first = dataclasses.replace(FULL, gap_count=2)
    second = dataclasses.replace(FULL, arrival=4, error='a, "quoted"\nline', gap_count=1)
    with RecordWriter(tmp_path) as writer:
        writer.append(first, struct.pack("<2f", 0.5, 0.25))
        writer.append(second, struct.pack("<f", 0.125))
    kept = list(read_requests(tmp_path))
    assert [record.gap_offset for record in kept] == [0, 2]
    assert kept[1].error == second.error
    assert list(read_gaps(tmp_path, kept[1])) == [0.125]


def test_a_cut_last_line_is_left_out_and_a_broken_one_before_it_is_told(tmp_path: Path) -> None:
    write(tmp_path, FULL, dataclasses.replace(FULL, arrival=4))
    path = tmp_path / "requests.csv"
    path.write_bytes(path.read_bytes()[:-9])
    assert [record.arrival for record in read_requests(tmp_path)] == [3]
    path.write_text(path.read_text().replace("succeeded", "vanished", 1) + "\r\n")
    with pytest.raises(RunFolderError, match="line 2: outcome 'vanished'"):
        list(read_requests(tmp_path))


def test_a_run_never_writes_over_another(tmp_path: Path) -> None:
    write(tmp_path, FULL)
    with pytest.raises(RunFolderError, match="never writes over"):
        RecordWriter(tmp_path)
    folder, run_id = create_folder(tmp_path, "x")
    assert create_folder(tmp_path, "x") == (tmp_path / "x-2", "x-2")
    assert (folder.name, run_id) == ("x", "x")


def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="choose another --runs-dir"):
        create_folder(tmp_path / "file", "x")


def test_run_info_survives_and_foreign_ones_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"has no run\.json"):
        read_run_info(tmp_path)
    write_run_info(tmp_path, INFO)
    assert read_run_info(tmp_path) == INFO
    path = tmp_path / "run.json"
    path.write_text(path.read_text().replace('"format_version": 1', '"format_version": 99'))
    with pytest.raises(RunFolderError, match="format version 99; this program reads version 1"):
        read_run_info(tmp_path)
    for text, why in [("{", "cannot be read"), ("[]", "JSON object"), ('{"format_version": 1}', "lacks")]:
        path.write_text(text)
        with pytest.raises(RunFolderError, match=why):
            read_run_info(tmp_path)


def test_every_exit_code_has_a_meaning_and_a_place() -> None:
    assert set(MEANING) == set(PRECEDENCE) == set(ExitCode)
    assert first_of([]) is ExitCode.OK
    assert first_of([ExitCode.SLO_MISSED, ExitCode.NOT_VALID, ExitCode.OK]) is ExitCode.NOT_VALID
    assert first_of([ExitCode.INTERRUPTED, ExitCode.USAGE]) is ExitCode.USAGE


def test_failure_classes_by_name() -> None:
    assert failure_class("http_503").whose == "server"
    assert FAILURE_CLASSES["out_of_files"].whose == "client"
    with pytest.raises(KeyError):
        failure_class("http_")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("bursts", [["2", 4]], r"bursts\[0\]\[0\] is '2'; it must be a number"),
        ("bursts", [[2.0]], r"bursts\[0\] is \[2.0\]; it must be two numbers"),
        ("bursts", "none", "bursts is 'none'; it must be a list"),
        ("rate_curve", [[0, None]], r"rate_curve\[0\]\[1\] is None"),
        ("users_curve", [[0, float("inf")]], r"users_curve\[0\]\[1\] is inf"),
        ("segments", [{"start_s": 0, "end_s": "x"}], r"segments\[0\]\.end_s is 'x'"),
        ("workers", [{"index": 0, "host": "h", "pid": "p"}], r"workers\[0\]\.pid is 'p'; it must be a whole"),
        ("counts", {"planned": "3"}, r"counts\.planned is '3'"),
        ("seed", 1.5, "seed is 1.5"),
        ("drain_s", True, "drain_s is True"),
        ("slo", None, "slo is None; it must be a text"),
        ("duration_s", 10**400, "int too large"),
        ("load", "ajar", "load is 'ajar'; it must be one of open, closed"),
    ],
)
def test_a_wrong_value_in_run_json_is_one_line(tmp_path: Path, name: str, value: object, says: str) -> None:
    raw = dataclasses.asdict(INFO) | {name: value}
    (tmp_path / "run.json").write_text(json.dumps(raw))
    with pytest.raises(RunFolderError, match=says) as refused:
        read_run_info(tmp_path)
    assert "\n" not in str(refused.value)
    assert str(tmp_path / "run.json") in str(refused.value)
