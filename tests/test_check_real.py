"""The real-server check: what it calls a fault, its exit codes, the program against the simulated server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench.check_real import PARTS, main
from bench.findings import Finding, conclude
from bench.real_load import time_to_recover
from bench.real_wire import ANSWERS, ASKED_TOKENS, faults
from client.finished import Finished
from experiments.launch import REPOSITORY, simulated_server
from runlog.exit_codes import ExitCode
from runlog.record import RequestRecord

STREAMED = next(row for row in ANSWERS if row.claim == "streamed")
WHOLE = next(row for row in ANSWERS if row.claim == "in one piece")
UNCOUNTED = next(row for row in ANSWERS if not row.counted)
UNFORCED = next(row for row in ANSWERS if not row.forced and row.stream)
TWO = next(row for row in ANSWERS if row.choices == 2)

RECORD = RequestRecord(
    arrival=None,
    request_id="check-1",
    outcome="succeeded",
    sent_at_s=0.0,
    first_token_at_s=0.1,
    finish_reason="length",
    output_tokens=ASKED_TOKENS,
    tokens_from="usage",
)


def test_a_good_answer_has_no_fault() -> None:
    good = Finished(RECORD, streamed=True)
    assert faults(STREAMED, good, ASKED_TOKENS) == []
    two = Finished(replace(RECORD, output_tokens=2 * ASKED_TOKENS), streamed=True)
    assert faults(TWO, two, 2 * ASKED_TOKENS) == []
    whole = Finished(replace(RECORD, first_token_at_s=None), streamed=False)
    assert faults(WHOLE, whole, ASKED_TOKENS) == []
    fewer_events = Finished(
        replace(RECORD, output_tokens=ASKED_TOKENS - 2, tokens_from="events"), streamed=True
    )
    assert faults(UNCOUNTED, fewer_events, ASKED_TOKENS) == []


@pytest.mark.parametrize(
    ("change", "made", "fault"),
    [
        ({"outcome": "failed", "failure_class": "stall"}, 16, "failed: stall"),
        ({"finish_reason": "stop"}, 16, "finish reason stop"),
        ({"first_token_at_s": None}, 16, "no TTFT"),
        ({"tokens_from": "events"}, 16, "tokens from events"),
        ({"output_tokens": 15}, 16, "not the server's count"),
        ({"output_tokens": 15}, 15, "asked for 16 tokens"),
        ({}, None, "not the server's count"),
    ],
)
def test_each_fault_is_named(change: dict[str, object], made: float | None, fault: str) -> None:
    found = faults(STREAMED, Finished(replace(RECORD, **change), streamed=True), made)  # type: ignore[arg-type]
    assert len(found) == 1
    assert fault in found[0]


def test_an_answer_whose_length_cannot_be_forced_may_be_shorter() -> None:
    shorter = Finished(replace(RECORD, output_tokens=5, finish_reason="stop"), streamed=True)
    assert faults(UNFORCED, shorter, 5) == []
    assert faults(UNFORCED, shorter, 6) == ["not the server's count"]


def test_an_answer_of_the_wrong_kind_is_a_fault() -> None:
    assert faults(STREAMED, Finished(RECORD, streamed=False), 16) == ["not streamed"]
    assert faults(WHOLE, Finished(RECORD, streamed=True), 16) == ["streamed", "a TTFT without a stream"]
    more = Finished(replace(RECORD, output_tokens=17, tokens_from="events"), streamed=True)
    assert faults(UNCOUNTED, more, 16) == ["more events with output than tokens"]


def test_a_recovery_needs_ten_seconds_of_load_after_the_queue_is_gone() -> None:
    assert time_to_recover(12.3)
    assert time_to_recover(27.0)  # 10 s of calm and 3 s of tolerance before the load ends at 40 s
    assert not time_to_recover(28.6)
    assert not time_to_recover(None)


def test_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    passed, failed, untold = Finding("a", True, ""), Finding("b", False, "1 != 2"), Finding("c", None, "")
    assert conclude([passed, untold]) == ExitCode.OK
    assert conclude([passed, failed]) == ExitCode.NOT_VALID
    assert conclude([untold]) == ExitCode.NOT_VALID  # nothing was shown
    assert "1 passed, 1 failed, 0 cannot be told" in capsys.readouterr().out
    assert failed.line().split() == ["FAIL", "b", "1", "!=", "2"]


def test_usage_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "answers,nonsense"]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "no part nonsense" in said
    assert all(part in said for part in PARTS)


@pytest.fixture
def server_with_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("LOAD_API_KEY", "sk-test")
    monkeypatch.setenv("SIMSERVER_API_KEY", "sk-test")
    with simulated_server(tmp_path / "server.log", "--max-model-len", "2048") as url:
        yield url


def check(folder: Path, url: str, model: str, parts: str) -> subprocess.CompletedProcess[str]:
    command = [
        "-m",
        "bench.check_real",
        "--folder",
        str(folder),
        "--url",
        url,
        "--model",
        model,
        "--only",
        parts,
    ]
    return subprocess.run(
        [sys.executable, *command], cwd=REPOSITORY, capture_output=True, text=True, timeout=60
    )


def test_answers_and_mistakes_on_the_simulated_server(server_with_key: str, tmp_path: Path) -> None:
    done = check(tmp_path, server_with_key, "sim-llm", "answers,mistakes")
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    assert done.stdout.count("PASS") >= 13
    assert "FAIL" not in done.stdout
    assert "sk-test" not in done.stdout + done.stderr


def test_a_wrong_model_fails_the_check(server_with_key: str, tmp_path: Path) -> None:
    done = check(tmp_path, server_with_key, "another", "answers")
    assert done.returncode == ExitCode.NOT_VALID
    assert "FAIL  answer: streamed" in done.stdout
    assert "http_404" in done.stdout


def test_no_server_is_told_in_one_line(tmp_path: Path) -> None:
    done = check(tmp_path, "http://127.0.0.1:9", "any", "answers")
    assert done.returncode == ExitCode.NOT_VALID
    assert "refused" in done.stderr
    assert "Traceback" not in done.stderr
