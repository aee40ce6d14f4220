"""`python -m bench.accuracy`: our client, through Locust and the real dispatcher, against the truth server.

Two loads. Streams: a closed loop of N users for some seconds, which shows CPU per chunk and the errors of
TTFT and gaps. A burst: N requests at one moment from one worker, which shows how far they spread at the
server. The server runs on one core and the client on another; figures are of this machine at this moment.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil

from bench.truth import NoCompiler, TrueStream, true_streams, truth_server
from client.engines import ENGINES
from experiments.launch import LaunchError, run_load
from runlog.exit_codes import ExitCode
from runlog.folder import read_gaps, read_requests
from runlog.record import RequestRecord

SERVER_CORE, CLIENT_CORE = 1, 0


@dataclass(frozen=True)
class Accuracy:
    """One run's figures; errors are the client's figure minus the truth, in milliseconds. None: nothing to
    tell.
    """

    load: str
    requests: int
    chunks_per_s: float
    offered_chunks_per_s: float | None
    cpu_us_per_chunk: float | None
    ttft_error_p50_ms: float
    ttft_error_p99_ms: float
    gap_error_p99_ms: float | None
    send_lag_p99_ms: float | None
    burst_spread_ms: float | None
    connections: int


class CpuMeter:
    """Reads the CPU time of the Locust process in the steady part of a run: its load, not its start or
    report.
    """

    def __init__(self, from_s: float, until_s: float) -> None:
        self._from_s, self._until_s = from_s, until_s
        self.window_ns: tuple[int, int] | None = None
        self.cpu_s = 0.0
        self._begun = False

    def on_line(self, line: str) -> None:
        """Begin when the run folder is made: the start moment is a second later."""
        if "run folder:" in line and not self._begun:
            self._begun = True
            threading.Thread(target=self._measure, daemon=True).start()

    def _measure(self) -> None:
        process = next(
            (child for child in psutil.Process().children() if "locust" in " ".join(child.cmdline())), None
        )
        if process is None:
            return
        time.sleep(1.0 + self._from_s)
        began_ns, began = time.monotonic_ns(), process.cpu_times()
        time.sleep(self._until_s - self._from_s)
        ended_ns, ended = time.monotonic_ns(), process.cpu_times()
        self.window_ns = (began_ns, ended_ns)
        self.cpu_s = ended.user + ended.system - began.user - began.system


def measure_streams(
    streams: int, tokens: int, ttft_ms: float, gap_ms: float, seconds: float, engine: str = "direct"
) -> Accuracy:
    """A closed loop of `streams` users for `seconds`."""
    meter = CpuMeter(2.0, seconds - 1.0)
    arguments = ["--load", "closed", "--users", str(streams), "--run-time", f"{seconds:g}s"]
    arguments += ["--engine", engine]
    records, truth, gaps = _run(arguments, tokens, ttft_ms, gap_ms, meter)
    offered = streams * tokens / (ttft_ms + (tokens - 1) * gap_ms) * 1000
    name = f"{streams} streams of {tokens} chunks"
    return _figures(name, records, truth, gaps, meter, offered=offered, burst=False)


def measure_burst(
    requests: int, tokens: int, ttft_ms: float, gap_ms: float, engine: str = "direct"
) -> Accuracy:
    """`requests` at one moment."""
    arguments = ["--shape", "salvo", "--salvo", f"3s,{requests}", "--engine", engine]
    records, truth, gaps = _run(arguments, tokens, ttft_ms, gap_ms, None)
    return _figures(f"burst of {requests}", records, truth, gaps, None, offered=None, burst=True)


def _run(
    arguments: list[str], tokens: int, ttft_ms: float, gap_ms: float, meter: CpuMeter | None
) -> tuple[list[RequestRecord], dict[str, TrueStream], dict[str, np.ndarray]]:
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    apart = len(cores) > 1
    with (
        tempfile.TemporaryDirectory() as folder,
        truth_server(ttft_ms, gap_ms, tokens, [cores[SERVER_CORE]] if apart else []) as url,
    ):
        base = [
            "--host",
            url,
            "--model",
            "truth",
            "--runs-dir",
            folder,
            "--run-name",
            "bench",
            "--slo",
            "none",
        ]
        run = run_load(
            [*base, "--input-tokens", "40", "--output-tokens", str(tokens), *arguments],
            Path(folder) / "logs",
            on_line=meter.on_line if meter else lambda line: None,
            cores=[cores[CLIENT_CORE]] if apart else [],
        )
        if run.folder is None:
            raise LaunchError(f"the run did not begin:\n{run.log.read_text()[-800:]}")
        records = [record for record in read_requests(run.folder) if record.outcome == "succeeded"]
        gaps = {record.request_id: np.array(read_gaps(run.folder, record)) for record in records}
        return records, true_streams(url), gaps


def _figures(
    load: str,
    records: list[RequestRecord],
    truth: dict[str, TrueStream],
    gaps: dict[str, np.ndarray],
    meter: CpuMeter | None,
    *,
    offered: float | None,
    burst: bool,
) -> Accuracy:
    pairs = [(record, truth[record.request_id]) for record in records]
    ttft_ms = [
        (record.ttft_s or 0.0) * 1e3 - (true.chunks_ns[0] - true.received_ns) / 1e6 for record, true in pairs
    ]
    gap_ms = [
        np.abs(gaps[record.request_id] * 1e3 - np.diff(true.chunks_ns) / 1e6)
        for record, true in pairs
        if len(gaps[record.request_id]) == len(true.chunks_ns) - 1
    ]
    errors = np.concatenate(gap_ms) if gap_ms else np.array([])
    written = np.sort(np.concatenate([np.array(true.chunks_ns) for _, true in pairs]))
    window = meter.window_ns if meter and meter.window_ns else (int(written[0]), int(written[-1]) + 1)
    chunks = int(np.searchsorted(written, window[1]) - np.searchsorted(written, window[0]))
    lags = [record.send_lag_s for record in records if record.send_lag_s is not None]
    received = [true.received_ns for _, true in pairs]
    return Accuracy(
        load=load,
        requests=len(records),
        chunks_per_s=chunks / ((window[1] - window[0]) / 1e9),
        offered_chunks_per_s=offered,
        cpu_us_per_chunk=meter.cpu_s * 1e6 / chunks if meter and meter.window_ns and chunks else None,
        ttft_error_p50_ms=float(np.quantile(ttft_ms, 0.5)),
        ttft_error_p99_ms=float(np.quantile(ttft_ms, 0.99)),
        gap_error_p99_ms=float(np.quantile(errors, 0.99)) if len(errors) else None,
        send_lag_p99_ms=float(np.quantile(lags, 0.99)) * 1e3 if lags else None,
        burst_spread_ms=(max(received) - min(received)) / 1e6 if burst else None,
        connections=len({true.connection for _, true in pairs}),
    )


def main() -> ExitCode:
    """Measure what the arguments ask for; print one line of figures for each load, or JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy", description=__doc__)
    parser.add_argument("--streams", default="50,200", help="closed loops to try, comma-separated (50,200)")
    parser.add_argument("--bursts", default="100,500", help="bursts to try, comma-separated (100,500)")
    parser.add_argument("--tokens", type=int, default=50, help="chunks a stream (50)")
    parser.add_argument("--ttft-ms", type=float, default=200.0, help="true time to first token (200)")
    parser.add_argument("--gap-ms", type=float, default=40.0, help="true gap between chunks (40)")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a closed loop (10)")
    parser.add_argument("--engine", choices=tuple(ENGINES), default="direct", help="what sends (direct)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    asked = parser.parse_args()
    try:
        for streams in filter(None, asked.streams.split(",")):
            found = measure_streams(
                int(streams), asked.tokens, asked.ttft_ms, asked.gap_ms, asked.seconds, asked.engine
            )
            _print(found, asked.json)
        for burst in filter(None, asked.bursts.split(",")):
            found = measure_burst(int(burst), asked.tokens, asked.ttft_ms, asked.gap_ms, asked.engine)
            _print(found, asked.json)
    except (LaunchError, NoCompiler) as error:
        print(error, file=sys.stderr)
        return ExitCode.NOT_VALID
    return ExitCode.OK


def _print(found: Accuracy, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(found)), flush=True)
        return
    print(found.load)
    for name, value in asdict(found).items():
        if name != "load":
            shown = "n/a" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
            print(f"  {name:<22} {shown}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
