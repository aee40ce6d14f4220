"""Runs in virtual time: an ordinary folder, every request accounted for, the same by seed."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path

import pytest

from analysis.load import load_run
from analysis.summary import summarize
from client.calibration import SIZES, fit
from experiments.launch import REPOSITORY
from experiments.simulate import add_arguments, simulate
from loadgen.prompts import synthetic_prompt
from runlog.exit_codes import ExitCode
from runlog.folder import read_gaps, read_requests, read_run_info
from runlog.record import RequestRecord
from runlog.server_samples import ServerSample, read_samples
from simserver import chat

LOAD = ("--run-time", "40s", "--rate", "6.5", "--shape", "pulse", "--output-tokens", "20", "--seed", "3")


def run(runs_dir: Path, *options: str) -> Path:
    """Simulate in this process; returns the run folder."""
    parser = ArgumentParser()
    add_arguments(parser)
    arguments = parser.parse_args([*LOAD, "--runs-dir", str(runs_dir), *options])
    assert simulate(arguments, ["simulate"]) is ExitCode.OK
    (folder,) = runs_dir.iterdir()
    return folder


def records(folder: Path) -> list[RequestRecord]:
    return list(read_requests(folder))


def test_the_command_writes_a_folder_that_the_analysis_reads_like_any_other(tmp_path: Path) -> None:
    def python(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    ended = python("-m", "experiments", "simulate", *LOAD, "--runs-dir", str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert "virtual time, a100-8b, fcfs" in ended.stdout
    (folder,) = tmp_path.iterdir()
    checked = python("-m", "analysis", "check", str(folder))
    assert "VALID" in checked.stdout
    assert checked.returncode in (0, 1), checked.stdout
    assert python("-m", "analysis", "report", str(folder)).returncode in (0, 1)
    assert (folder / "report.html").stat().st_size > 10_000
    info = read_run_info(folder)
    assert (info.options["virtual"], info.options["policy"], info.state) == ("true", "fcfs", "finished")
    assert info.counts["planned"] == info.counts["kept"] == info.counts["succeeded"] > 200
    assert any("virtual time" in notice for notice in load_run(folder).events["text"])


def test_a_record_has_what_the_client_would_have_seen(tmp_path: Path) -> None:
    folder = run(tmp_path, "--jitter", "0")
    for record in records(folder):
        assert record.outcome == "succeeded"
        assert record.send_lag_s == 0
        assert record.ttft_s is not None
        assert record.ttft_s >= 0.0096, "no step is shorter than the preset's floor"
        assert record.input_tokens == 150, "the template's tokens are among those asked for"
        gaps_s = read_gaps(folder, record)
        assert len(gaps_s) == record.gap_count == 19
        assert sum(gaps_s) == pytest.approx(record.last_token_at_s - record.first_token_at_s, abs=1e-4)  # type: ignore[operator]
        assert max(gaps_s) == pytest.approx(record.gap_max_s, abs=1e-5)


def test_the_servers_gauges_stand_beside_second_by_second(tmp_path: Path) -> None:
    folder = run(tmp_path, "--max-num-seqs", "4", "--output-tokens", "100")
    samples = list(read_samples(folder))
    assert [sample.at_s for sample in samples] == [float(second) for second in range(len(samples))]
    assert len(samples) >= 40
    assert max(sample.running or 0 for sample in samples) == 4
    assert max(sample.waiting or 0 for sample in samples) > 4
    totals = [sample.generation_tokens_total for sample in samples]
    assert totals == sorted(totals)  # type: ignore[type-var]
    assert samples[0] == ServerSample(0.0, 0, 0, 0.0, 0, 0, 0, 0)
    load = records(folder)
    for sample in samples[5:40:5]:
        open_then = sum(one.sent_at_s <= sample.at_s < one.ended_at_s for one in load)  # type: ignore[operator]
        assert abs((sample.running or 0) + (sample.waiting or 0) - open_then) <= 4, "but for one step's ends"


def test_the_same_seeds_give_the_same_run_and_other_jitter_another(tmp_path: Path) -> None:
    def ends(name: str, *options: str) -> list[float | None]:
        return [one.ended_at_s for one in records(run(tmp_path / name, *options))]

    once = ends("once")
    assert ends("again") == once
    assert ends("other", "--jitter-seed", "5") != once


def test_every_request_is_accounted_for_when_the_server_is_too_small(tmp_path: Path) -> None:
    folder = run(
        tmp_path,
        *("--max-num-seqs", "2", "--output-tokens", "uniform:50-400", "--first-token-limit", "5s"),
        *("--total-limit", "7s", "--drain", "1s", "--admission", "waiting=40", "--reject-status", "429"),
    )
    load = records(folder)
    counts = read_run_info(folder).counts
    ends = Counter((one.outcome, one.failure_class) for one in load)
    assert set(ends) == {
        ("succeeded", None),
        ("failed", "no_first_token"),
        ("failed", "total_timeout"),
        ("rejected", "http_429"),
        ("cancelled", "drain_limit"),
    }
    assert sorted(one.arrival for one in load if one.arrival is not None) == list(range(counts["planned"]))
    assert sum(ends.values()) == counts["planned"] == counts["sent"]
    for one in load:
        assert one.ended_at_s is not None
        assert one.sent_at_s is not None
        took_s = one.ended_at_s - one.sent_at_s
        if one.failure_class == "no_first_token":
            assert took_s == pytest.approx(5.0, abs=1e-5)
            assert one.first_token_at_s is None
        elif one.failure_class == "total_timeout":
            assert took_s == pytest.approx(7.0, abs=1e-5)
        elif one.outcome == "succeeded":
            assert one.ttft_s is not None
            assert one.ttft_s <= 5.5
            assert took_s <= 7.5
    summary = summarize(load_run(folder))
    assert summary["counts"]["rejected"] == ends[("rejected", "http_429")]
    *_, last = read_samples(folder)
    assert last.rejections_total == ends[("rejected", "http_429")]


def test_a_prompt_has_the_tokens_that_the_server_counts_in_what_a_run_over_http_sends(tmp_path: Path) -> None:
    def counted(words: int) -> int:
        (tokens,) = chat.prompts({"messages": [{"role": "user", "content": synthetic_prompt(words, 7, "r")}]})
        return len(tokens)

    learned = fit([(words, counted(words)) for words in SIZES])
    assert learned is not None
    virtual = records(run(tmp_path, "--input-tokens", "uniform:1-40"))
    asked = {one.asked_input_tokens: one.input_tokens for one in virtual}
    assert asked == {tokens: counted(learned.words_for(tokens)) for tokens in range(1, 41)}
    assert asked[1] == asked[5] == 5, "the template and one word"


def test_policies_meet_the_same_schedule(tmp_path: Path) -> None:
    lengths = ("--input-tokens", "lognormal:700,0.9", "--max-num-batched-tokens", "2048")
    folders = {
        policy: run(tmp_path / policy, *lengths, "--policy", policy)
        for policy in ("fcfs", "shortest-prompt-first")
    }
    hashes = {read_run_info(folder).schedule_sha256 for folder in folders.values()}
    assert len(hashes) == 1
    means = [summarize(load_run(folder))["metrics"]["ttft_s"]["mean"] for folder in folders.values()]
    assert means[1] < 0.95 * means[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--policy", "fcfs", "--policy-option", "k=1"), "no option"),
        (("--admission", "mood=3"), "unknown"),
        (("--policy", "magic"), "invalid choice"),
        (("--shape", "pulse", "--peak-ratio", "0.5"), "peak"),
        (("--run-time", "soon"), "not a time"),
    ],
)
def test_wrong_options_cost_one_line_and_exit_code_3(options: tuple[str, ...], words: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "experiments", "simulate", *options],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == ExitCode.USAGE
    assert words in ended.stderr
    assert ended.stderr.count("\n") == 1, ended.stderr


def test_summary_of_a_virtual_run_is_strict_json(tmp_path: Path) -> None:
    json.dumps(summarize(load_run(run(tmp_path))), allow_nan=False)
