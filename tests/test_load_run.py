"""Whole runs with real Locust processes against real servers: every request accounted for, whatever the
set-up.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.launch import LoadRun, run_load, simulated_server
from runlog.exit_codes import ExitCode
from runlog.folder import read_requests, read_run_info
from runlog.record import RequestRecord
from shapes.schedule import Schedule
from tests.freezing_server import freezing_server

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A simulated server that is fast enough not to matter."""
    log = tmp_path_factory.mktemp("server") / "simserver.log"
    with simulated_server(log, "--preset", "h100-8b", "--model", "m") as url:
        yield url


def load(
    tmp_path: Path,
    host: str,
    *arguments: str,
    workers: int = 0,
    env: dict[str, str] | None = None,
    locustfile: str = "locustfiles/chat.py",
) -> LoadRun:
    base = ["--host", host, "--model", "m", "--runs-dir", str(tmp_path / "runs")]
    return run_load(
        [*base, *arguments],
        tmp_path / f"logs{workers}",
        workers=workers,
        limit_s=200,
        env=env,
        locustfile=locustfile,
    )


def folder_of(run: LoadRun) -> Path:
    assert run.folder is not None, run.log.read_text()
    return run.folder


def records_of(run: LoadRun) -> list[RequestRecord]:
    """All records, after checking that every scheduled arrival has exactly one and that the counts add up."""
    folder = folder_of(run)
    records = list(read_requests(folder))
    schedule = Schedule.from_csv((folder / "schedule.csv").read_bytes())
    assert sorted(record.arrival for record in records if record.arrival is not None) == list(
        range(len(schedule))
    )
    assert len(records) == len(schedule)
    counts = read_run_info(folder).counts
    outcomes = Counter(record.outcome for record in records)
    assert counts["planned"] == counts["kept"] == len(schedule) == counts["sent"] + outcomes["not_sent"]
    assert counts["sent"] == sum(outcomes[one] for one in ("succeeded", "failed", "rejected", "cancelled"))
    return records


SHORT_PULSE = [
    "--shape",
    "pulse",
    "--rate",
    "10",
    "--period",
    "3s",
    "--run-time",
    "6s",
    "--output-tokens",
    "5",
]


@pytest.mark.slow
def test_one_seed_fires_one_schedule_with_any_number_of_workers(server: str, tmp_path: Path) -> None:
    schedules = set()
    for workers in (0, 1, 2, 4):
        run = load(tmp_path, server, *SHORT_PULSE, "--seed", "7", workers=workers)
        records = records_of(run)
        schedule_csv = (folder_of(run) / "schedule.csv").read_bytes()
        schedules.add(schedule_csv)
        at_s = Schedule.from_csv(schedule_csv).at_s
        for record in records:
            assert record.arrival is not None
            assert record.worker == record.arrival % max(workers, 1)
            assert record.sent_at_s is not None
            assert record.scheduled_at_s == pytest.approx(at_s[record.arrival], abs=1e-6)
            assert record.sent_at_s >= at_s[record.arrival] - 1e-6
            assert record.outcome == "succeeded"
        info = read_run_info(folder_of(run))
        assert [worker.kept for worker in info.workers] == [worker.planned for worker in info.workers]
        assert (folder_of(run) / "report.html").exists()
    assert len(schedules) == 1


def test_a_server_that_freezes_does_not_slow_the_load_down(tmp_path: Path) -> None:
    """Field case A28: frozen for 5 s at 10 req/s, about 50 requests see it; a closed loop would show one."""
    with freezing_server(freeze_from_s=5, freeze_s=5) as frozen:
        arguments = ["--shape", "uniform", "--rate", "10", "--arrivals", "constant", "--run-time", "20s"]
        records = records_of(load(tmp_path, frozen.url, *arguments))
    assert len(records) == 200
    assert all(record.outcome == "succeeded" for record in records)
    ttfts_s = [record.ttft_s for record in records]
    saw_it = sum(ttft_s is not None and ttft_s > 0.3 for ttft_s in ttfts_s)
    assert 42 <= saw_it <= 55
    assert max(ttft_s for ttft_s in ttfts_s if ttft_s is not None) > 4.0


def test_200_requests_a_second_are_sent_or_the_verdict_says_otherwise(server: str, tmp_path: Path) -> None:
    """Field case A31: a plan of 200 req/s for 10 s sends 1,990 to 2,010 within the window."""
    arguments = ["--shape", "uniform", "--rate", "200", "--arrivals", "constant", "--run-time", "10s"]
    run = load(tmp_path, server, *arguments, "--output-tokens", "1", "--input-tokens", "10")
    records = records_of(run)
    assert len(records) == 2000
    in_time = sum(record.sent_at_s is not None and record.sent_at_s < 10.01 for record in records)
    verdict = json.loads((folder_of(run) / "summary.json").read_text())["verdict"]
    assert 1990 <= in_time <= 2010 or verdict == "INVALID"


@pytest.mark.parametrize(("drain", "outcome"), [("30s", "succeeded"), ("1s", "cancelled")])
def test_long_streams_in_flight_at_the_end_are_all_accounted_for(
    server: str, tmp_path: Path, drain: str, outcome: str
) -> None:
    """20 streams of some 4 s begin at 1 s; the run time ends at 2 s. Stock Locust keeps 10 of 20."""
    arguments = ["--shape", "salvo", "--salvo", "1s,20", "--run-time", "2s", "--output-tokens", "500"]
    run = load(tmp_path, server, *arguments, "--drain", drain, workers=2)
    records = records_of(run)
    assert Counter(record.outcome for record in records) == {outcome: 20}
    if outcome == "cancelled":
        assert {record.failure_class for record in records} == {"drain_limit"}
        assert all(record.output_tokens for record in records)  # what came until then is kept


def test_locusts_own_table_has_ttft_and_tpot_beside_an_untouched_total(server: str, tmp_path: Path) -> None:
    run = load(tmp_path, server, *SHORT_PULSE, "--csv", str(tmp_path / "stock"), workers=2)
    requests = len(records_of(run))
    with open(tmp_path / "stock_stats.csv", newline="") as file:
        rows = {(row["Type"], row["Name"]): int(row["Request Count"]) for row in csv.DictReader(file)}
    assert rows == {
        ("POST", "chat"): requests,
        ("TTFT", "chat"): requests,
        ("TPOT", "chat"): requests,
        ("", "Aggregated"): requests,
    }


def test_options_come_from_the_environment_too_and_the_key_stays_out(server: str, tmp_path: Path) -> None:
    env = {
        "LOAD_RATE": "9",
        "LOAD_SHAPE": "mixed",
        "LOAD_OUTPUT_TOKENS": "3",
        "LOAD_API_KEY": "sk-secret-word",
    }
    run = load(tmp_path, server, "--run-time", "3s", env=env)
    records_of(run)
    info = read_run_info(folder_of(run))
    assert (info.shape, info.mean_rate_rps) == ("mixed", 9.0)
    for file in [*folder_of(run).iterdir(), run.log]:
        assert b"sk-secret-word" not in file.read_bytes(), file.name


def test_the_openai_sdk_sends_the_same_plan(server: str, tmp_path: Path) -> None:
    env = {"LOAD_ENGINE": "openai", "LOAD_API_KEY": "sk-secret-word"}
    run = load(tmp_path, server, *SHORT_PULSE, "--seed", "7", workers=2, env=env)
    records = records_of(run)
    assert {record.outcome for record in records} == {"succeeded"}
    assert {record.tokens_from for record in records} == {"usage"}
    summary = json.loads((folder_of(run) / "summary.json").read_text())
    assert summary["own_error"]["engine"] == read_run_info(folder_of(run)).options["engine"] == "openai"
    assert "the official openai SDK" in (folder_of(run) / "report.html").read_text()
    said = run.log.read_text()
    assert "HTTP Request" not in said
    assert "sk-secret-word" not in said


def test_options_come_from_a_configuration_file_too(server: str, tmp_path: Path) -> None:
    config = tmp_path / "my.conf"
    config.write_text("shape = salvo\nsalvo = 1s,7\noutput-tokens = 3\nrun-name = from a file\n")
    run = load(tmp_path, server, "--config", str(config))
    assert len(records_of(run)) == 7
    info = read_run_info(folder_of(run))
    assert (info.shape, info.name) == ("salvo", "from a file")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rate", "0"], "--rate: '0' must be above 0"),
        (["--shape", "square"], "argument --shape: invalid choice: 'square'"),
        (["--shape", "pulse", "--duty", "0.5", "--peak-ratio", "5"], "duty 0.5 x peak ratio 5 = 2.5"),
        (["--slo", "ttft<fast"], "ttft<fast"),
        (["--model", ""], "--model is missing"),
    ],
)
def test_a_wrong_option_ends_with_one_line_and_code_3_and_writes_nothing(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    run = load(tmp_path, "http://127.0.0.1:9", *arguments)
    assert run.exit_code == ExitCode.USAGE
    assert message in run.log.read_text()
    assert "Traceback" not in run.log.read_text()
    assert not (tmp_path / "runs").exists()


SPINNING = """
import gevent
from client import clock
from loadgen.users import ChatUser
from shapes.locust_shape import ChosenShape

class Chat(ChatUser):
    def __init__(self, environment):
        super().__init__(environment)
        if not SPINS:
            SPINS.append(gevent.spawn_later(3.0, spin))

SPINS = []

def spin():
    end_ns = clock.monotonic_ns() + 1_500_000_000
    while clock.monotonic_ns() < end_ns:
        pass
"""


def test_the_seconds_in_which_a_worker_burnt_its_cpu_are_marked(server: str, tmp_path: Path) -> None:
    """Field case A34: 1.5 s of spinning 3 s after the first user came; what it held up is marked."""
    locustfile = tmp_path / "spinning.py"
    locustfile.write_text(SPINNING)
    arguments = ["--shape", "uniform", "--rate", "5", "--run-time", "8s", "--output-tokens", "5"]
    run = load(tmp_path, server, *arguments, workers=1, locustfile=str(locustfile))
    records_of(run)
    folder = folder_of(run)
    with open(folder / "client_load.csv", newline="") as file:
        seconds = list(csv.DictReader(file))
    numbers = [int(row["second"]) for row in seconds]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= 8
    own = json.loads((folder / "summary.json").read_text())["own_error"]
    held_up = [row for row in own["client_bound"]["windows"] if (row["loop_lag_p99_s"] or 0) > 0.7]
    assert held_up, own["client_bound"]
    assert own["loop_lag_max_s"] > 1.0
    assert own["cpu_mean_ratio"] > 0
    report = (folder / "report.html").read_text()
    assert "The load generator was the bottleneck in" in report
    assert "hatched in the time line" in report
