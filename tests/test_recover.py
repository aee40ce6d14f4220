"""A run whose master died: its folder is completed from journals, counts add up, nothing is written over."""

from __future__ import annotations

import csv
import json
import struct
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.__main__ import main
from analysis.load import load_run
from analysis.recover import LOST, recover
from analysis.summary import summarize
from runlog.exit_codes import ExitCode
from runlog.folder import RecordWriter, RunFolderError, WorkerInfo, read_gaps, read_requests, read_run_info
from runlog.journal import JournalWriter, journal_path
from runlog.record import PROBE, RequestRecord, to_row
from tests.run_folders import answered, not_sent, run_info, write_run

RUN_ID = run_info().run_id
PLANNED = 40
WORKERS = [WorkerInfo(0, "here", 11), WorkerInfo(1, "there", 12)]
GAPS = struct.pack("<2f", 0.25, 0.5)


def record(k: int) -> RequestRecord:
    """Arrival k, sent by worker k mod 2 at k / 4 s, with two chunk gaps."""
    changes = {"gap_count": 2, "request_id": f"{RUN_ID}-{k}", "worker": k % 2}
    return answered(k, k / 4, **changes)


def probe(k: int, worker: int) -> RequestRecord:
    return answered(None, float(k), name=PROBE, request_id=f"{RUN_ID}-probe-{k}", worker=worker)


def broken_run(
    folder: Path, at_master: Iterable[RequestRecord], state: str = "running", **info: object
) -> Path:
    """A folder as a dead master leaves it: all arrivals scheduled, some records, no final run.json."""
    made = write_run(folder, [], [k / 4 for k in range(PLANNED)], state=state, workers=WORKERS, **info)
    for name in ("requests.csv", "gaps.f32"):
        (made / name).unlink()
    with RecordWriter(made) as writer:
        for one in at_master:
            writer.append(one, GAPS)
    return made


def journal(path: Path, records: Iterable[RequestRecord], worker: int, run_id: str = RUN_ID) -> Path:
    with JournalWriter(path, run_id, worker) as writer:
        for one in records:
            writer.append_row(to_row(one), GAPS)
    return path


def mine(worker: int, until: int = 30) -> list[RequestRecord]:
    return [record(k) for k in range(until) if k % 2 == worker]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_records_of_the_master_and_of_the_journals_and_the_rest_never_sent(tmp_path: Path) -> None:
    folder = broken_run(tmp_path / "run", [record(k) for k in range(20)])
    for worker in (0, 1):
        journal(journal_path(folder, worker, 11 + worker), [*mine(worker), probe(3, worker)], worker)
    found = recover(folder)
    assert str(found) == "20 records from requests.csv, 12 more from 2 journals, 10 never sent"
    assert found is not None
    assert found.notes == []
    info = read_run_info(folder)
    assert (info.state, info.stop_reason) == ("stopped", LOST)
    assert info.counts == {
        "planned": 40, "kept": 40, "sent": 32, "succeeded": 32, "failed": 0, "rejected": 0, "cancelled": 0,
        "not_sent": 10,
    }  # fmt: skip
    assert [(row.planned, row.kept) for row in info.workers] == [(20, 21), (20, 21)]
    run = load_run(folder)
    summary = summarize(run)
    assert summary["counts"]["scheduled"] == 40
    assert (summary["counts"]["sent"], summary["counts"]["not_sent"], summary["counts"]["probes"]) == (
        30,
        10,
        2,
    )
    assert (summary["counts"]["missing"], summary["counts"]["twice"]) == (0, 0)
    assert (summary["verdict"], summary["exit_code"]) == ("DEGRADED", ExitCode.NOT_VALID)
    assert f"({LOST})" in summary["verdict_reasons"][0]
    assert run.window_s == pytest.approx(29 / 4 + 0.001)
    assert {row.failure_class for row in read_requests(folder) if row.outcome == "not_sent"} == {
        "run_stopped"
    }


def test_gaps_come_with_their_records(tmp_path: Path) -> None:
    folder = broken_run(tmp_path / "run", [record(k) for k in range(3)])
    (folder / "gaps.f32").write_bytes(GAPS * 2 + GAPS[:3])  # the master's last gaps were cut
    journal(journal_path(folder, 0, 11), mine(0, 6), 0)
    recover(folder)
    by_arrival = {row.arrival: list(read_gaps(folder, row)) for row in read_requests(folder)}
    assert all(by_arrival[k] == [0.25, 0.5] for k in (0, 1, 2, 4)), "2 from its journal, 0 and 1 as they were"
    assert by_arrival[3] == []
    assert len((folder / "gaps.f32").read_bytes()) == 8 * 4
    assert load_run(folder).notices == []


def test_the_originals_stay_and_a_second_time_changes_nothing(tmp_path: Path) -> None:
    folder = broken_run(tmp_path / "run", [record(k) for k in range(4)])
    journal(journal_path(folder, 0, 11), mine(0), 0)
    before = contents(folder)
    recover(folder)
    for name in ("requests.csv", "gaps.f32", "run.json", "events.csv"):
        assert (folder / f"{name}.before-recovery").read_bytes() == before[str(folder / name)]
    after = contents(folder)
    assert recover(folder) is None
    assert contents(folder) == after
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_a_journal_that_turns_up_later_adds_what_it_has(tmp_path: Path) -> None:
    folder = broken_run(tmp_path / "run", [record(k) for k in range(10)])
    journal(journal_path(folder, 0, 11), mine(0), 0)
    first = recover(folder)
    assert first is not None
    assert "no journal of worker 1" in first.notes[0]
    missing = [row.error for row in read_requests(folder) if row.arrival in (29, 28)]
    assert missing == [None, "no record came in, and the journal of worker 1 was not found"]
    elsewhere = tmp_path / "worker machine" / "deep"
    journal(elsewhere / "worker-1-12.jsonl", mine(1), 1)
    found = recover(folder, [tmp_path / "worker machine"])
    assert found is not None
    assert (found.from_journals, found.never_sent, found.notes) == (10, 10, [])
    assert summarize(load_run(folder))["counts"]["sent"] == 30
    assert (folder / "requests.csv.before-recovery-2").exists()
    assert recover(folder, [elsewhere / "worker-1-12.jsonl"]) is None
    events = csv.reader((folder / "events.csv").read_text().splitlines())
    stops = [row for row in events if row[1] == "stopped"]
    assert len(stops) == 1
    assert "10 more from 2 journals" in stops[0][3]


def test_a_journal_that_had_served_and_was_removed_is_not_missed(tmp_path: Path) -> None:
    """Worker 0 had ended: all of its arrivals have records at the master."""
    at_master = [record(k) for k in range(PLANNED) if k % 2 == 0]
    folder = broken_run(tmp_path / "run", at_master)
    journal(journal_path(folder, 1, 12), mine(1), 1)
    found = recover(folder)
    assert found is not None
    assert (found.never_sent, found.notes) == (5, [])


def test_a_worker_that_was_lost_before_the_master(tmp_path: Path) -> None:
    folder = broken_run(tmp_path / "run", [record(k) for k in range(10)])
    with open(folder / "events.csv", "a", newline="") as events:
        csv.writer(events).writerow(["4.500", "worker_lost", 1, "worker 1 was lost"])
        events.write("5.0,worker_lo")  # cut
    recover(folder)
    classes = {row.arrival: row.failure_class for row in read_requests(folder) if row.outcome == "not_sent"}
    assert (classes[11], classes[12]) == ("worker_lost", "run_stopped")
    assert [row.lost_at_s for row in read_run_info(folder).workers] == [None, 4.5]
    assert "ran with 1 of 2 workers from 4.5 s on" in str(summarize(load_run(folder))["verdict_reasons"])


@pytest.mark.parametrize(
    ("state", "reason"), [("finished", None), ("stopped", "interrupted"), ("stopped", "safety valve: tokens")]
)
def test_a_run_that_ended_has_nothing_to_recover(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str, reason: str | None
) -> None:
    folder = write_run(tmp_path / "run", [answered(0, 1.0)], state=state, stop_reason=reason)
    journal(journal_path(folder, 0, 11), mine(0), 0)
    before = contents(folder)
    assert main(["recover", str(folder)]) == 0
    assert "nothing to recover" in capsys.readouterr().out
    assert contents(folder) == before


def test_the_command_says_what_it_found_and_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = broken_run(tmp_path / "run", [record(k) for k in range(20)])
    other = journal(tmp_path / "all" / "worker-0-9.jsonl", mine(0), 0, run_id="another run")
    journal(tmp_path / "all" / "worker-1-12.jsonl", mine(1), 1)
    assert main(["recover", str(folder), "--journals", str(other.parent)]) == 0
    printed = capsys.readouterr().out
    assert "20 records from requests.csv, 5 more from 1 journal, 15 never sent" in printed
    assert "1 journals of other runs were left aside" in printed
    assert "no journal of worker 0" in printed
    assert "verdict  DEGRADED" in printed
    assert json.loads((folder / "summary.json").read_text())["stop_reason"] == LOST
    assert "the master was lost" in (folder / "report.html").read_text(encoding="utf-8")


def test_places_that_are_not_there_and_foreign_versions_change_nothing(tmp_path: Path) -> None:
    folder = broken_run(tmp_path / "run", [record(0)])
    path = journal(journal_path(folder, 0, 11), mine(0), 0)
    before = contents(folder)
    with pytest.raises(RunFolderError, match="is not there"):
        recover(folder, [tmp_path / "nowhere"])
    assert contents(folder) == before
    path.write_text(path.read_text().replace('"format_version": 1', '"format_version": 7'))
    before = contents(folder)
    with pytest.raises(RunFolderError, match="format version 7"):
        recover(folder)
    assert contents(folder) == before


def test_what_a_broken_line_hides_is_told(tmp_path: Path) -> None:
    folder = broken_run(tmp_path / "run", [record(k) for k in range(6)])
    text = (folder / "requests.csv").read_text()
    (folder / "requests.csv").write_text(text.replace(f"{RUN_ID}-3,", "oops,oops,", 1))
    lines = journal(journal_path(folder, 0, 11), mine(0), 0)
    kept = lines.read_text().splitlines()
    lines.write_text("\n".join([*kept[:4], "{broken", *kept[4:]]) + "\n")
    (folder / "journals" / "worker-1-12.jsonl").write_text('{"format')
    found = recover(folder)
    assert found is not None
    assert (found.from_requests, found.from_journals, found.never_sent) == (3, 1, 36)
    notes = "\n".join(found.notes)
    assert "requests.csv is unreadable from line 5 on" in notes
    assert "worker-0-11.jsonl, line 5" in notes
    assert "broke off in its first line" in notes


def test_a_closed_loop_has_no_arrivals_to_account_for(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "run", [], load="closed", users_curve=[[0, 2]], state="running", workers=WORKERS
    )
    users = [
        answered(None, k / 4, request_id=f"u-{k}", worker=0, session="1", scheduled_at_s=None)
        for k in range(8)
    ]
    journal(journal_path(folder, 0, 11), users, 0)
    found = recover(folder)
    assert found is not None
    assert (found.from_journals, found.never_sent) == (8, 0)
    assert read_run_info(folder).counts["sent"] == 8
    assert summarize(load_run(folder))["counts"]["sent"] == 8


def test_a_not_sent_of_the_master_gives_way_to_the_journal(tmp_path: Path) -> None:
    """The master counted a lost worker's arrival out, but it had been sent; and a record written twice."""
    at_master = [record(0), record(0), not_sent(1, 0.25, "worker_lost")]
    folder = broken_run(tmp_path / "run", at_master)
    journal(journal_path(folder, 1, 12), [record(1)], 1)
    found = recover(folder)
    assert found is not None
    assert (found.from_requests, found.from_journals, found.duplicates) == (1, 1, 1)
    assert "1 duplicates dropped" in str(found)
    assert [row.outcome for row in read_requests(folder)][:2] == ["succeeded", "succeeded"]


@settings(deadline=None, max_examples=40)
@given(
    at_master=st.integers(0, 30),
    csv_share=st.floats(0, 1),
    shares=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_cut_anywhere_every_arrival_has_one_record_and_none_that_is_whole_is_lost(
    tmp_path_factory: pytest.TempPathFactory, at_master: int, csv_share: float, shares: tuple[float, float]
) -> None:
    folder = broken_run(tmp_path_factory.mktemp("cut") / "run", [record(k) for k in range(at_master)])
    path = folder / "requests.csv"
    data = path.read_bytes()
    path.write_bytes(data[: round(csv_share * len(data))])
    whole = {k for k in range(at_master) if k + 1 < path.read_bytes().count(b"\n")}
    for worker, share in enumerate(shares):
        kept = journal(journal_path(folder, worker, 11 + worker), mine(worker), worker)
        data = kept.read_bytes()
        kept.write_bytes(data[: round(share * len(data))])
        whole |= {row.arrival or 0 for row in mine(worker)[: max(0, kept.read_bytes().count(b"\n") - 1)]}
    found = recover(folder)
    rows = list(read_requests(folder))
    assert sorted(row.arrival or 0 for row in rows) == list(range(PLANNED))
    assert {row.arrival for row in rows if row.outcome == "succeeded"} == whole
    assert all(list(read_gaps(folder, row)) == [0.25, 0.5] for row in rows if row.outcome == "succeeded")
    assert found is not None
    assert found.from_requests + found.from_journals == len(whole)
    assert recover(folder) is None
