"""How runs end when something happens to them: killed masters and workers, signals, valves, strangers."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from experiments.launch import REPOSITORY, free_port, simulated_server, start, stop, wait_for_line
from runlog.exit_codes import ExitCode
from runlog.folder import read_requests, read_run_info
from runlog.record import RequestRecord
from shapes.schedule import Schedule
from tests.run_folders import degraded

pytestmark = pytest.mark.timeout(240)

LOCUST = ["-m", "locust", "-f", "locustfiles/chat.py"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("server") / "simserver.log"
    with simulated_server(log, "--preset", "h100-8b", "--model", "m") as url:
        yield url


class Processes:
    """A master and its workers, started one by one and ended by pid."""

    def __init__(self, folder: Path, host: str, run_time_s: int, *arguments: str, expect: int) -> None:
        self.folder = folder
        self.port = str(free_port())
        self.log = folder / "master.log"
        self.workers: list[subprocess.Popen[bytes]] = []
        self.master = start(
            [
                *[*LOCUST, "--headless", "--only-summary", "--master", "--master-bind-host", "127.0.0.1"],
                *["--master-bind-port", self.port, "--expect-workers", str(expect)],
                *["--host", host, "--model", "m", "--runs-dir", str(folder / "runs")],
                *["--rate", "20", "--output-tokens", "5", "--run-time", f"{run_time_s}s", *arguments],
            ],
            self.log,
        )

    def add_worker(self, locustfile: str = "locustfiles/chat.py", cwd: Path = REPOSITORY) -> int:
        index = len(self.workers)
        log = self.folder / f"worker{index}.log"
        with open(log, "ab") as output:
            self.workers.append(
                subprocess.Popen(
                    [
                        *[sys.executable, "-m", "locust", "-f", locustfile, "--worker"],
                        *["--master-host", "127.0.0.1", "--master-port", self.port],
                    ],
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )
        return index

    def worker_log(self, index: int) -> str:
        return (self.folder / f"worker{index}.log").read_text()

    def wait_for(self, pattern: str, limit_s: float = 60) -> re.Match[str]:
        return wait_for_line(self.master, self.log, pattern, limit_s)

    def end(self, limit_s: float = 90) -> int:
        return self.master.wait(limit_s)

    @property
    def run_folder(self) -> Path:
        return Path(re.findall(r"run folder: (.+)$", self.log.read_text(), re.MULTILINE)[-1])


@contextmanager
def distributed(
    tmp_path: Path, host: str, run_time_s: int, *arguments: str, workers: int = 2, expect: int | None = None
) -> Iterator[Processes]:
    processes = Processes(tmp_path, host, run_time_s, *arguments, expect=expect or workers)
    try:
        for _ in range(workers):
            processes.add_worker()
        yield processes
    finally:
        for process in [*processes.workers, processes.master]:
            stop(process)


def accounted(folder: Path) -> list[RequestRecord]:
    """All records, after checking that each scheduled arrival has exactly one and that the counts add up."""
    records = list(read_requests(folder))
    scheduled = len(Schedule.from_csv((folder / "schedule.csv").read_bytes()))
    arrivals = [record.arrival for record in records if record.arrival is not None]
    assert sorted(arrivals) == list(range(scheduled))
    info = read_run_info(folder)
    outcomes = Counter(record.outcome for record in records if record.name == "chat")
    assert info.counts["planned"] == info.counts["kept"] == scheduled
    assert info.counts["sent"] == scheduled - outcomes["not_sent"]
    return records


def summary_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def test_a_killed_worker_degrades_the_run_and_loses_nothing_else(server: str, tmp_path: Path) -> None:
    """Field case A41: its delivered requests are kept, the hole is told, nothing counts twice."""
    with distributed(tmp_path, server, 16, workers=4) as run:
        run.wait_for(r"uniform  5/16 s")
        run.workers[1].kill()
        assert run.end() == ExitCode.NOT_VALID
        records = accounted(run.run_folder)
        lost = [record for record in records if record.failure_class == "worker_lost"]
        assert lost
        gone = {record.worker for record in lost}
        assert len(gone) == 1
        assert any(record.outcome == "succeeded" and record.worker in gone for record in records)
        summary = summary_of(run.run_folder)
        assert degraded(summary), summary["verdict_reasons"]
        assert any("3 of 4" in reason for reason in summary["verdict_reasons"])
        assert "worker_lost" in (run.run_folder / "events.csv").read_text()


def test_with_reassign_the_others_send_what_a_lost_worker_had_left(server: str, tmp_path: Path) -> None:
    with distributed(tmp_path, server, 20, "--reassign", "true") as run:
        run.wait_for(r"uniform  5/20 s")
        run.workers[0].kill()
        run.end()
        records = accounted(run.run_folder)
        amended = [record for record in records if record.segment == 1]
        assert amended
        assert {record.outcome for record in amended} == {"succeeded"}
        info = read_run_info(run.run_folder)
        assert [row["author"] for row in info.segments] == ["plan", "reassign"]
        lost = [record for record in records if record.failure_class == "worker_lost"]
        assert len(lost) < 20 * 12 / 2  # only what was due until the loss was seen, and 2 s more
        assert "amendment" in (run.run_folder / "events.csv").read_text()


def test_a_worker_that_is_told_to_go_drains_and_reports(server: str, tmp_path: Path) -> None:
    with distributed(tmp_path, server, 14) as run:
        run.wait_for(r"uniform  5/14 s")
        run.workers[0].send_signal(signal.SIGTERM)
        assert run.end() == ExitCode.NOT_VALID
        records = accounted(run.run_folder)
        assert not [record for record in records if record.outcome in ("failed", "cancelled")]
        assert degraded(summary_of(run.run_folder))
        assert "left (it was stopped)" in run.log.read_text()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_master_drains_and_leaves_a_whole_folder(
    server: str, tmp_path: Path, how: signal.Signals
) -> None:
    with distributed(tmp_path, server, 60) as run:
        run.wait_for(r"uniform  5/60 s")
        run.master.send_signal(how)
        assert run.end() == ExitCode.INTERRUPTED
        records = accounted(run.run_folder)
        outcomes = Counter(record.outcome for record in records)
        assert set(outcomes) == {"succeeded", "not_sent"}
        info = read_run_info(run.run_folder)
        assert (info.state, info.stop_reason) == ("stopped", "interrupted")
        assert degraded(summary_of(run.run_folder))
        assert (run.run_folder / "report.html").exists()


def test_after_the_master_was_killed_workers_stop_and_recover_finds_every_record(
    server: str, tmp_path: Path
) -> None:
    with distributed(tmp_path, server, 60) as run:
        run.wait_for(r"uniform  5/60 s")
        killed_at = time.monotonic()
        run.master.kill()
        for worker in run.workers:
            worker.wait(60)
        assert time.monotonic() - killed_at < 40
        folder = run.run_folder
        for index in range(2):
            assert "the master has been silent" in run.worker_log(index)
    command = [sys.executable, "-m", "analysis", "recover", str(folder)]
    recovered = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert "never sent" in recovered.stdout, recovered.stdout + recovered.stderr
    records = accounted(folder)
    sent_at_s = [record.sent_at_s for record in records if record.sent_at_s is not None]
    assert len(sent_at_s) >= 20 * 5  # all that was sent until the kill
    assert max(sent_at_s) < 5 + 3 + 10  # and no more 10 s after it
    assert degraded(summary_of(folder))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--max-requests", "30"], "--max-requests 30 reached"),
        (["--max-total-tokens", "2000", "--input-tokens", "100"], "--max-total-tokens 2000 reached"),
    ],
)
def test_a_safety_valve_ends_the_run_with_code_5(
    server: str, tmp_path: Path, arguments: list[str], reason: str
) -> None:
    with distributed(tmp_path, server, 60, *arguments) as run:
        assert run.end() == ExitCode.SAFETY_VALVE
        records = accounted(run.run_folder)
        sent = sum(record.outcome != "not_sent" for record in records)
        assert sent == 30 if "requests" in reason else 15 <= sent < 20 * 20
        stop_reason = read_run_info(run.run_folder).stop_reason
        assert stop_reason is not None
        assert stop_reason.startswith("safety valve: ")
        assert reason in stop_reason


def test_a_run_that_mostly_fails_is_stopped(tmp_path: Path) -> None:
    log = tmp_path / "full.log"
    full = ["--preset", "h100-8b", "--model", "m", "--max-num-queued-reqs", "1"]
    with (
        simulated_server(log, *full) as url,
        distributed(tmp_path, url, 60, "--stop-at-failure-ratio", "0.5", "--output-tokens", "400") as run,
    ):
        assert run.end() == ExitCode.SAFETY_VALVE
        records = accounted(run.run_folder)
        assert Counter(record.outcome for record in records)["rejected"] >= 10


def test_when_every_worker_is_lost_the_run_is_not_called_interrupted(server: str, tmp_path: Path) -> None:
    with distributed(tmp_path, server, 30, "--run-name", "all lost") as run:
        run.wait_for(r"all lost  5/30 s")
        for worker in run.workers:
            worker.kill()
        assert run.end() == ExitCode.NOT_VALID
        assert run.run_folder.name.endswith("-all-lost")
        accounted(run.run_folder)
        info = read_run_info(run.run_folder)
        assert info.name == "all lost"
        assert info.stop_reason in (None, "all workers were lost")
        assert degraded(summary_of(run.run_folder))


def test_a_stop_while_the_first_request_hangs_ends_it_at_once(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        distributed(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}", 30, workers=1) as run,
    ):
        run.wait_for("Shape test starting")
        time.sleep(1)
        run.master.send_signal(signal.SIGTERM)
        assert run.end(30) == ExitCode.INTERRUPTED
        assert not (tmp_path / "runs").exists()


def test_too_few_workers_end_it_before_any_load(server: str, tmp_path: Path) -> None:
    """Field case A42: four expected, three came."""
    arguments = ["--expect-workers-max-wait", "6"]
    with distributed(tmp_path, server, 5, *arguments, workers=3, expect=4) as run:
        assert run.end() == ExitCode.WORKERS_MISSING
        assert "3 of 4 expected workers connected within 6 s" in run.log.read_text()
        assert not (tmp_path / "runs").exists()


def test_a_worker_of_other_code_is_refused_with_a_line_on_both_sides(server: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for room in ("client", "loadgen", "runlog", "shapes", "locustfiles", "analysis"):
        subprocess.run(["cp", "-r", str(REPOSITORY / room), str(other)], check=True)
    (other / "loadgen" / "extra.py").write_text('"""Something that the master does not have."""\n')
    with distributed(tmp_path, server, 5, workers=1, expect=2) as run:
        stranger = run.add_worker(cwd=other)
        assert run.end() == ExitCode.WORKERS_MISSING
        assert "is refused: its code differs" in run.log.read_text()
        run.workers[stranger].wait(30)
        assert "the master refuses this worker: its code differs" in run.worker_log(stranger)
        assert not (tmp_path / "runs").exists()


def test_a_worker_of_another_locustfile_is_sent_away_and_the_run_goes_on(server: str, tmp_path: Path) -> None:
    plain = tmp_path / "plain.py"
    plain.write_text("from locust import User, task\nclass Plain(User):\n    @task\n    def t(self): ...\n")
    with distributed(tmp_path, server, 6, workers=0, expect=1) as run:
        run.add_worker(str(plain))
        time.sleep(1)
        run.add_worker()
        assert run.end() in (ExitCode.OK, ExitCode.NOT_VALID, ExitCode.WORKERS_MISSING)
        assert "it does not answer; it runs another locustfile" in run.log.read_text()


def test_nothing_is_left_running(server: str, tmp_path: Path) -> None:
    with distributed(tmp_path, server, 3) as run:
        run.end()
        for worker in run.workers:
            worker.wait(30)
        pids = [worker.pid for worker in run.workers]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
