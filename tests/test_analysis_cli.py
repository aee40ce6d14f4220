"""python -m analysis: what it writes and prints, and the codes it exits with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.__main__ import COMMANDS, main
from tests.run_folders import answered, failed, not_sent, unstreamed, write_run

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write_run(tmp_path / "good", [answered(k, 0.1 * k) for k in range(150)], slo="ttft<1s@99%")


@pytest.fixture
def dead(tmp_path: Path) -> Path:
    return write_run(tmp_path / "dead", [failed(k, 0.1 * k) for k in range(150)], slo="ttft<1s@99%")


def test_report_writes_both_files_and_exits_0_whatever_the_verdict(
    good: Path, dead: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(good), str(dead)]) == 0
    printed = capsys.readouterr().out
    for folder, code in ((good, 0), (dead, 2)):
        assert json.loads((folder / "summary.json").read_text(encoding="utf-8"))["exit_code"] == code
        assert (folder / "report.html").stat().st_size > 10_000
        assert str(folder / "summary.json") in printed
        assert str(folder / "report.html") in printed
    assert "verdict  VALID" in printed
    assert "verdict  INVALID: success: 0 of 150 requests succeeded" in printed


def test_summary_prints_a_table_or_json(good: Path, dead: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", str(good), str(dead)]) == 0
    table = capsys.readouterr().out
    assert "TTFT p95" in table
    assert "INVALID" in table
    assert main(["summary", "--json", str(good)]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "VALID"
    assert main(["summary", "--json", str(good), str(dead)]) == 0
    assert [found["exit_code"] for found in json.loads(capsys.readouterr().out)] == [0, 2]
    assert not (good / "summary.json").exists()


@pytest.mark.parametrize(
    ("slo", "code"),
    [(None, 0), ("ttft<10ms", 0), ("ttft<10ms@50%", 1), ("p95(e2e)<10ms", 1), ("e2e<9s@99%", 0)],
)
def test_check_exits_by_the_table(good: Path, slo: str | None, code: int) -> None:
    assert main(["check", str(good), *(["--slo", slo] if slo else [])]) == code


def test_check_prints_what_failed_and_what_to_do(
    good: Path, dead: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(good), str(dead)]) == 2, "the code that comes first in the table wins"
    printed = capsys.readouterr().out
    assert "FAILED   success: 0 of 150 requests succeeded" in printed
    assert "-> look at the failures" in printed
    assert "ttft<1s@99%: met" in printed
    assert "ttft<1s@99%: MISSED" in printed
    records = [answered(0, 1.0), not_sent(1, 2.0)]
    stopped = write_run(tmp_path / "stopped", records, state="stopped", stop_reason="interrupted")
    assert main(["check", str(stopped)]) == 130
    assert "none given" in capsys.readouterr().out


@pytest.mark.parametrize("slo", ["ttft<1s@99%", "p95(ttft)<1s", "e2e<9s,tpot<50ms@90%"])
def test_a_gate_on_what_was_not_measured_exits_1_and_says_what_to_do(
    tmp_path: Path, slo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path / "run", [unstreamed(answered(k, 0.1 * k)) for k in range(150)], slo=slo)
    assert main(["check", str(folder)]) == 1
    printed = capsys.readouterr().out
    assert f"{slo}: cannot be judged" in printed
    assert "not measured for 150 of 150 successes (needs streaming: leave --no-stream out)" in printed
    assert "MISSED" not in printed
    assert main(["report", str(folder)]) == 0
    assert f"SLO      {slo}: cannot be judged\n" in capsys.readouterr().out
    assert json.loads((folder / "summary.json").read_text(encoding="utf-8"))["exit_code"] == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["summary", "nowhere"], "nowhere is not a run folder"),
        (["check", "GOOD", "--slo", "ttft<1"], "needs a unit"),
        (["report", "GOOD", "--slo", "fast"], "cannot read 'fast'"),
        (["summary"], "RUN"),
        (["tables", "GOOD"], "tables"),
        ([], "COMMAND"),
        (["check", "GOOD", "--colour"], "--colour"),
    ],
)
def test_wrong_input_is_one_line_and_exit_3(
    good: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    given = [str(good) if argument == "GOOD" else argument for argument in arguments]
    try:
        code: object = main(given)
    except SystemExit as stop:
        code = stop.code
    printed = capsys.readouterr()
    assert code == 3
    assert printed.out == ""
    assert says in printed.err
    assert printed.err.count("\n") == 1


def test_an_unknown_version_writes_nothing_over(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    info = good / "run.json"
    info.write_text(info.read_text().replace('"format_version": 1', '"format_version": 2'))
    (good / "summary.json").write_text("kept")
    assert main(["report", str(good)]) == 3
    assert "format version 2" in capsys.readouterr().err
    assert (good / "summary.json").read_text() == "kept"


def test_a_folder_that_cannot_be_written(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (good / "summary.json").mkdir()
    assert main(["report", str(good)]) == 3
    assert "summary.json" in capsys.readouterr().err


@pytest.mark.parametrize("command", [None, *(command.name for command in COMMANDS)])
def test_help_shows_examples(command: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*([command] if command else []), "--help"])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    assert "examples:" in printed
    assert "ttft<1s,tpot<50ms@99%" in printed


def test_as_a_program_it_never_loads_locust(good: Path) -> None:
    code = (
        "import sys, analysis.__main__ as m; m.main(['summary', sys.argv[1]]); print('locust' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(good)], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout.rstrip().endswith("False")
    done = subprocess.run(
        [sys.executable, "-m", "analysis", "check", str(good)], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
