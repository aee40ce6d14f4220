"""The comparison counts rightly: peers' output, CPU of a process tree, the window, ratios and their table.

tests/data/peers holds what the peers wrote of two requests each, less prompts and answers.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from bench.comparison import Figures, NoResult, Sample, cpu_ratio, figures, order, table, window_of
from bench.loads import Load
from bench.one_run import ClientFailed, Contender, measure
from bench.peers import (
    OURS,
    PEERS,
    Client,
    Command,
    Measured,
    parse_aiperf,
    parse_guidellm,
    parse_inference_perf,
)
from bench.process_tree import ProcessTimes, family, parse_cores, parse_stat, tree_cpu_s
from bench.side_by_side import NotInstalled, compare, contenders
from bench.truth import TrueStream

DATA = Path(__file__).parent / "data" / "peers"
STREAMS = Load("2 streams", 2, 3, ttft_ms=100, gap_ms=10)

# --- what the peers wrote ---


def test_guidellm_keeps_the_servers_id_and_a_mean_gap() -> None:
    first, second = parse_guidellm(json.loads((DATA / "guidellm_0.8.1.json").read_text()))
    assert (first.request_id, second.request_id) == ("chatcmpl-1", "chatcmpl-2")
    assert first.ttft_ms == pytest.approx(933.7640 - 872.5896, abs=1e-3)  # first token - request start
    assert first.mean_gap_ms == pytest.approx((965.9173 - 933.7640) / 3, abs=1e-3)  # of 4 tokens
    assert first.gaps_ms is None


def test_aiperf_keeps_its_own_id_and_every_gap() -> None:
    first, second = parse_aiperf((DATA / "aiperf_0.13.0.jsonl").read_text().splitlines())
    assert first == Measured(
        "0d61db21-80a5-43b8-a16d-9248208eafdf", 56.059584, gaps_ms=(9.765285, 16.927373, 7.051123)
    )
    assert second.request_id == "5aefa66c-d0ac-4e28-90bd-5d8e8f8f8045"


def test_an_aiperf_record_without_a_first_token_is_left_out() -> None:
    failed = json.dumps({"metadata": {"x_request_id": "a"}, "metrics": {"error_isl": {"value": 1}}})
    assert parse_aiperf([failed]) == []


def test_inference_perf_keeps_chunk_times_and_the_servers_id() -> None:
    first, second = parse_inference_perf(json.loads((DATA / "inference_perf_0.7.0.json").read_text()))
    assert (first.request_id, second.request_id) == ("chatcmpl-1", "chatcmpl-2")
    assert first.ttft_ms == pytest.approx(572.093172 - 511.415032, abs=1e-5)
    assert first.gaps_ms == pytest.approx((16.307627, 3.460385, 10.197370), abs=1e-5)


def test_a_failed_inference_perf_request_is_left_out() -> None:
    assert parse_inference_perf([{"start_time": 1.0, "info": {"response_metrics": None}}]) == []


# --- CPU of a process tree ---


def test_a_process_is_read_whatever_its_name_holds() -> None:
    line = "42 (a) b (c) S 7 40 39 0 -1 4194304 1 2 3 4 100 20 3 1 20 0 1 0 5 6 7"
    assert parse_stat(line) == ProcessTimes(pid=42, parent=7, session=39, ticks=124)


def test_a_family_has_descendants_and_orphans_of_the_session_once_each() -> None:
    root = ProcessTimes(10, 1, 10, 5)
    child, grandchild = ProcessTimes(11, 10, 10, 7), ProcessTimes(12, 11, 12, 11)
    orphan, stranger = ProcessTimes(13, 1, 10, 13), ProcessTimes(14, 1, 14, 17)
    found = family(10, [stranger, orphan, grandchild, child, root])
    assert sorted(process.pid for process in found) == [10, 11, 12, 13]
    assert sum(process.ticks for process in found) == 5 + 7 + 11 + 13


def test_idle_time_and_guests_are_no_work() -> None:
    text = "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 100 10 20 5000 300 1 2 3 50 0\nintr 5\n"
    assert parse_cores(text) == {0: 100 + 10 + 20 + 1 + 2 + 3}


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_the_cpu_time_of_a_child_that_has_ended_is_kept() -> None:
    burn = "import time\nwhile time.process_time() < 0.4: pass"
    wait = f"""if True:
        import subprocess, sys
        subprocess.run([sys.executable, "-c", {burn!r}])
        print("done", flush=True)
        input()"""
    process = subprocess.Popen(
        [sys.executable, "-c", wait], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        used_s = tree_cpu_s(process.pid)
        process.communicate(b"\n")
    assert 0.35 < used_s < 5


# --- one run ---


def _sample(at_s: float, chunks: int = 0, requests: int = 0, active: int = 0, cpu_s: float = 0.0) -> Sample:
    return Sample(round(at_s * 1e9), chunks, requests, active, cpu_s, 2 * cpu_s)


def test_the_steady_window_leaves_out_start_and_end() -> None:
    """Load from 10 s on, for 6 s: steady from 12 to 15 s."""
    samples = [_sample(second, requests=50 if second >= 10 else 1, active=2) for second in range(20)]
    first, last = window_of(samples, STREAMS, seconds=6)
    assert (first.at_ns, last.at_ns) == (12_000_000_000, 15_000_000_000)


def test_a_client_that_ends_early_is_not_counted_as_idle() -> None:
    samples = [_sample(second, requests=50, active=2 if second <= 4 else 0) for second in range(20)]
    first, last = window_of(samples, STREAMS, seconds=10)
    assert (first.at_ns, last.at_ns) == (2_000_000_000, 4_000_000_000)


def test_a_bursts_window_goes_from_before_it_until_the_last_answer() -> None:
    burst = replace(STREAMS, once=True)
    samples = [
        _sample(0, requests=1, active=1),  # the look at the server before the load
        _sample(1, requests=1),
        _sample(2, requests=20, active=20),
        _sample(3, requests=20, active=3),
        _sample(4, requests=20),
        _sample(5, requests=20),
    ]
    first, last = window_of(samples, burst, seconds=6)
    assert (first, last) == (samples[1], samples[4])


def test_too_little_load_gives_no_result() -> None:
    with pytest.raises(NoResult, match="no load"):
        window_of([_sample(0), _sample(1, requests=1)], STREAMS, seconds=6)
    with pytest.raises(NoResult, match="--seconds"):
        window_of([_sample(0, requests=9, active=1), _sample(1, requests=9)], STREAMS, seconds=6)


def _true(request_id: str, received_ms: int, *chunks_ms: int, connection: int = 1) -> TrueStream:
    return TrueStream(request_id, received_ms * 10**6, connection, tuple(at * 10**6 for at in chunks_ms))


def test_the_figures_of_a_run_by_hand() -> None:
    """A window from 1 to 3 s in which 400 chunks were written with 0.02 s of CPU."""
    truth = {
        "a": _true("a", 1100, 1200, 1210, 1220),
        "b": _true("b", 1500, 1600, 1610, 1625, connection=2),
        "early": _true("early", 500, 600, 610, 620),
        "cut": _true("cut", 2900),
    }
    measured = [
        Measured("a", 101.0, gaps_ms=(11.0, 9.0)),  # 1 ms too long; gaps off by 1 and 1 ms
        Measured("b", 103.0, gaps_ms=(10.0, 12.0)),  # 3 ms too long; gaps off by 0 and 3 ms
        Measured("early", 999.0, gaps_ms=(99.0, 99.0)),  # before the window
        Measured("unknown", 999.0),
    ]
    window = (
        _sample(1.0, chunks=100, requests=10, cpu_s=1.0),
        _sample(3.0, chunks=500, requests=30, cpu_s=1.02),
    )
    found = figures("c", "1", STREAMS, 0, window=window, measured=measured, truth=truth, server_late_ms=0.5)
    assert (found.requests, found.connections, found.compared) == (4, 2, 2)
    assert (found.window_s, found.chunks_per_s, found.requests_per_s) == (2.0, 200.0, 10.0)
    assert found.offered_chunks_per_s == pytest.approx(2 * 3 / 0.120)
    assert found.cpu_us_per_chunk == pytest.approx(50.0)
    assert found.client_cores == pytest.approx(0.01)
    assert found.other_cores == pytest.approx(0.01)  # the cores were busy for 0.04 s
    assert found.ttft_error_p50_ms == pytest.approx(2.0)
    assert found.ttft_error_p99_ms == pytest.approx(1 + 0.99 * 2)
    assert found.gap_error_p99_ms == pytest.approx(1 + 0.97 * 2)  # of 0 1 1 3
    assert found.gaps_are == "chunk"
    assert found.burst_spread_ms is None


def test_a_mean_gap_is_held_against_the_true_mean() -> None:
    truth = {"a": _true("a", 1000, 1100, 1110, 1130)}
    found = figures(
        *("c", "1", replace(STREAMS, once=True), 0),
        window=(_sample(1.0), _sample(2.0)),
        measured=[Measured("a", 100.0, mean_gap_ms=17.5)],
        truth=truth,
        server_late_ms=0.0,
    )
    assert found.gap_error_p99_ms == pytest.approx(2.5)
    assert found.gaps_are == "mean"
    assert found.cpu_us_per_chunk is None  # no chunk in the window
    assert found.burst_spread_ms == 0.0


def test_records_of_other_requests_give_no_result() -> None:
    with pytest.raises(NoResult, match="none of its 1 records"):
        figures(
            *("c", "1", STREAMS, 0),
            window=(_sample(0.0), _sample(2.0)),
            measured=[Measured("x", 1.0)],
            truth={"a": _true("a", 1000, 1100)},
            server_late_ms=0.0,
        )


# --- several runs ---


def _run(client: str, repeat: int, cpu_us: float | None, load: str = "2 streams") -> Figures:
    return Figures(
        client=client,
        version="1.0",
        load=load,
        repeat=repeat,
        requests=20,
        connections=10,
        compared=20,
        window_s=2.0,
        requests_per_s=10.0,
        chunks_per_s=30.0,
        offered_chunks_per_s=40.0,
        cpu_us_per_chunk=cpu_us,
        client_cores=0.5,
        other_cores=0.1,
        ttft_error_p50_ms=1.0,
        ttft_error_p99_ms=2.0,
        gap_error_p99_ms=None,
        gaps_are=None,
        burst_spread_ms=None,
        server_late_ms=0.2,
    )


def test_the_order_turns_round_with_each_repeat() -> None:
    assert [order("abc", repeat) for repeat in range(3)] == [list("abc"), list("cba"), list("abc")]


def test_a_ratio_is_taken_within_a_repeat_and_a_load() -> None:
    runs = [_run("peer", 0, 200.0), _run("peer", 1, 400.0), _run("peer", 0, 50.0, load="burst")]
    mine = _run("ours", 1, 100.0)
    assert cpu_ratio(mine, "peer", runs) == 0.25
    assert cpu_ratio(_run("ours", 2, 100.0), "peer", runs) is None
    assert cpu_ratio(_run("ours", 0, None), "peer", runs) is None


def test_the_table_shows_medians_and_the_range_of_ratios() -> None:
    runs = [_run("peer", 0, 200.0), _run("ours", 0, 50.0), _run("ours", 1, 100.0), _run("peer", 1, 200.0)]
    text = table(runs, "peer")
    assert text.startswith("### 2 streams\n")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line
    ]
    by_heading = dict(zip(rows[0], rows[3], strict=True))
    assert by_heading["client"] == "ours 1.0"
    assert by_heading["µs CPU/chunk"] == "75.0"
    assert by_heading["CPU/chunk of peer's"] == "0.25–0.50"
    assert by_heading["of the offer"] == "0.75"
    assert by_heading["gap error p99 ms"] == "-"
    assert "of peer's" not in table(runs, None)


# --- the program ---

BURST = Load("burst of 8", 8, 6, ttft_ms=100, gap_ms=100, once=True)
LOOP = Contender("loop", PEERS["aiohttp-loop"], Path(sys.executable), "7")


needs_a_compiler = pytest.mark.skipif(
    not (shutil.which("cc") or shutil.which("gcc")) or not hasattr(os, "sched_setaffinity"),
    reason="the truth server needs a C compiler and Linux",
)


@needs_a_compiler
def test_a_client_is_run_and_compared_with_the_truth(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    found = measure(LOOP, BURST, 1, 3.0, cores, tmp_path)
    assert (found.client, found.version, found.load, found.repeat) == ("loop", "7", "burst of 8", 1)
    assert found.requests == found.compared == found.connections == 8
    assert 30 <= found.chunks_per_s * found.window_s <= 48
    assert found.offered_chunks_per_s is None
    assert 0 <= found.ttft_error_p50_ms < 90  # an error against the true 100 ms, not a time of its own
    assert found.burst_spread_ms is not None
    assert found.cpu_us_per_chunk is not None
    assert found.gaps_are == "chunk"


@needs_a_compiler
def test_streams_ask_again_over_their_connections(tmp_path: Path) -> None:
    load = Load("5 streams", 5, 4, ttft_ms=20, gap_ms=10)
    found = measure(LOOP, load, 0, 4.5, sorted(os.sched_getaffinity(0)), tmp_path)
    assert found.connections == 5
    assert found.requests > 5
    assert 0 < found.compared <= found.requests
    assert found.offered_chunks_per_s == pytest.approx(5 * 4 / 0.050)
    assert 0 < found.chunks_per_s < 5 * 4 / 0.050
    assert found.client_cores > 0


@needs_a_compiler
def test_a_client_that_fails_is_told_and_the_others_go_on() -> None:
    allowed = os.sched_getaffinity(0)
    failing = Client(
        None, lambda _: Command([sys.executable, "-c", "exit('no such option')"]), LOOP.client.read
    )
    broken = Contender("broken", failing, Path(sys.executable), "")
    told: list[str] = []
    runs: list[Figures] = []
    failures = compare([broken, LOOP], [BURST], 1, 3.0, told.append, runs.append)
    assert [run.client for run in runs] == ["loop"]
    assert len(failures) == 1
    assert re.search(
        r"broken gave no result .*exit status 1.*no load\nno such option", failures[0], re.DOTALL
    )
    assert told[0] == "run 1 of 2: broken, burst of 8"
    assert re.fullmatch(r"run 2 of 2: loop, burst of 8, about \d+ s left", told[2])
    assert os.sched_getaffinity(0) == allowed


@needs_a_compiler
def test_a_command_that_is_not_there_is_told(tmp_path: Path) -> None:
    absent = Client(None, lambda _: Command([str(tmp_path / "peer")]), LOOP.client.read)
    with pytest.raises(ClientFailed, match=r"peer cannot be run: .*No such file"):
        measure(
            Contender("absent", absent, Path(sys.executable), ""),
            BURST,
            0,
            3.0,
            sorted(os.sched_getaffinity(0)),
            tmp_path,
        )


def test_a_python_without_the_peer_is_told_with_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(NotInstalled, match=r"does not have guidellm; .*pip install guidellm"):
        contenders({"guidellm": Path(sys.executable)})
    with pytest.raises(NotInstalled, match=r"is no Python that runs.*pip install aiperf"):
        contenders({"aiperf": tmp_path / "python"})


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("--loads", "streams"),
            "no load is named streams; there are: streams-30, streams-50, burst, requests",
        ),
        (("--base", "vllm"), f"--base vllm is not measured here; measured are: {', '.join(OURS)}"),
        (("--seconds", "3"), "--seconds 3 leaves no steady part: give 4 or more"),
    ],
)
def test_what_cannot_be_done_is_told_before_any_run(arguments: tuple[str, str], told: str) -> None:
    command = [sys.executable, "-m", "bench.side_by_side", *arguments]
    asked = subprocess.run(command, capture_output=True, text=True)
    assert asked.returncode == 3
    assert told in asked.stderr


@needs_a_compiler
def test_ended_early_it_leaves_nothing_running() -> None:
    command = [sys.executable, "-m", "bench.side_by_side", "--loads", "burst"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
        started: list[psutil.Process] = []
        deadline = time.monotonic() + 90
        while len(started) < 2 and time.monotonic() < deadline:  # the truth server and a client
            time.sleep(0.05)
            children = psutil.Process(program.pid).children()
            with suppress(psutil.NoSuchProcess):  # the compiler ends meanwhile
                if any("locust" in one.cmdline() for one in children):
                    started = children
        program.terminate()
        program.communicate()
    assert program.returncode == 130
    assert len(started) == 2
    assert psutil.wait_procs(started, timeout=10)[1] == []
