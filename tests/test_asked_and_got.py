"""Lengths asked and got: the account of a run, its warning, and a run against the simulated server.

The run also shows what must not be written down: values of headers.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.load import load_run
from analysis.sections_lengths import lengths as lengths_section
from analysis.summary import summarize
from analysis.table import side_by_side
from experiments.launch import run_load
from runlog.exit_codes import ExitCode
from runlog.folder import read_requests, read_run_info
from runlog.record import RequestRecord
from tests.conftest import StartServer
from tests.run_folders import answered, failed, write_run

SECRET = "hush-4711-word"


def halves() -> list[RequestRecord]:
    """Field case A12: 128 asked for, and the server stops at 3 for half of the requests."""
    return [answered(k, 0.1 * k, tokens=128 if k % 2 else 3, asked_output_tokens=128) for k in range(100)]


def test_short_answers_are_counted_and_warned_of(tmp_path: Path) -> None:
    """Mean (3 + 128) / 2 = 65.5, median the same; half are off, and TPOT is over the tokens that came."""
    run = load_run(write_run(tmp_path, halves()))
    found = summarize(run)
    answers = found["lengths"]["output"]
    assert (answers["n"], answers["asked_mean"], answers["got_mean"]) == (100, 128, 65.5)
    assert (answers["asked_median"], answers["got_median"]) == (128, 65.5)
    assert answers["off_by_more_than_5_percent_ratio"] == 0.5
    assert found["metrics"]["tpot_s"]["mean"] == pytest.approx(0.02)
    check = next(row for row in found["checks"] if row["name"] == "answer lengths")
    assert (check["passed"], check["severity"], check["value"]) == (False, "warn", 0.48828125)
    warning = "answer lengths: answers had 65.5 tokens on average, 128 were asked for; 50 % of them are off"
    assert any(line.startswith(warning) for line in found["warnings"])
    assert found["lengths"]["input"]["off_by_more_than_5_percent_ratio"] == 0
    assert "128 / 65.5" in side_by_side([found])
    assert "65.5" in str(lengths_section(run, found).html)


@pytest.mark.parametrize(("tokens", "passed"), [(95, True), (94, False), (105, True), (106, False)])
def test_five_percent_is_the_limit(tmp_path: Path, tokens: int, passed: bool) -> None:
    records = [answered(k, 0.1 * k, tokens=tokens, asked_output_tokens=100) for k in range(20)]
    found = summarize(load_run(write_run(tmp_path, records)))
    assert next(row for row in found["checks"] if row["name"] == "answer lengths")["passed"] is passed
    assert found["lengths"]["output"]["off_by_more_than_5_percent_ratio"] == (0 if passed else 1)
    assert (not any(row["key"] == "lengths" for row in found["diagnosis"]["findings"])) is passed


def test_nothing_known_is_no_length(tmp_path: Path) -> None:
    records = [failed(0, 0.0), answered(1, 1.0, output_tokens=None, tokens_from=None)]
    found = summarize(load_run(write_run(tmp_path, records)))
    assert found["lengths"]["output"] == {"n": 0} | dict.fromkeys(
        ("asked_mean", "got_mean", "asked_median", "got_median", "off_by_more_than_5_percent_ratio")
    )
    assert next(row for row in found["checks"] if row["name"] == "answer lengths")["passed"] is None
    assert "n/a / n/a" in side_by_side([found])


@pytest.mark.timeout(180)
def test_a_run_gets_the_prompt_lengths_that_it_asks_for_and_keeps_secrets(
    tmp_path: Path, start_simserver: StartServer
) -> None:
    """With two workers, and a server that counts 4 tokens beside one for each word."""
    url = start_simserver("--preset", "h100-8b", "--model", "m")
    options = ["--host", url, "--model", "m", "--runs-dir", str(tmp_path / "runs"), "--run-time", "3s"]
    options += ["--rate", "20", "--input-tokens", "uniform:20-60", "--output-tokens", "5", "--seed", "3"]
    options += ["--header", f"X-Tenant: {SECRET}", f"--header=X-Other: {SECRET}"]
    options += ["--body", '{"temperature": 0.5}', "--warmup", "1", "--probes", "1/s"]
    run = run_load(options, tmp_path / "logs", workers=2, limit_s=120)
    assert run.exit_code in (ExitCode.OK, ExitCode.NOT_VALID)  # a busy machine may send late
    assert run.folder is not None
    info = read_run_info(run.folder)
    assert (info.server["kind"], info.server["dialect"]) == ("simserver", "vllm")
    assert info.prompt_calibration == {"overhead_tokens": 4.0, "tokens_per_word": 1.0}
    assert (info.options["dialect"], info.options["body"]) == ("auto", '{"temperature": 0.5}')
    assert info.options["header"] == "X-Tenant: …\nX-Other: …"
    records = [record for record in read_requests(run.folder) if record.arrival is not None]
    assert len(records) > 40
    assert all(record.input_tokens == record.asked_input_tokens for record in records)
    found = json.loads((run.folder / "summary.json").read_text())["lengths"]
    assert found["input"]["got_mean"] == pytest.approx(found["input"]["asked_mean"], rel=0.05)
    log = run.log.read_text()
    assert "answers are forced to their length by ignore_eos and min_tokens" in log
    places = [*run.folder.rglob("*"), *(tmp_path / "logs").iterdir()]
    assert all(SECRET.encode() not in path.read_bytes() for path in places if path.is_file())
