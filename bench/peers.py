"""The clients of the comparison: how each is started on a load, and what it recorded of each request.

Ours are Locust with the default workload, one row an engine; the peers are programs in environments of their
own, each given by its Python. Every client gets one worker process: the figures are per core.

A peer's output is read as its version in the README writes it. All parsing is on text or JSON in memory, so
that it can be checked on captured samples.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.loads import Load
from client.engines import ENGINES
from experiments.launch import REPOSITORY
from runlog.folder import read_gaps, read_requests

PROMPT = "the quick brown fox jumps over the lazy dog and " * 4
PROMPT_TOKENS = 40
REQUESTS_PER_S_AT_MOST = 1000  # of a peer that must be told how many requests to send
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


@dataclass(frozen=True)
class Setting:
    """What a client needs to be started: the load, the server, for how long, and a folder for its output.

    `python` is the peer's own; `tokenizer` is a folder that it can load one from without a network.
    """

    load: Load
    url: str
    seconds: float
    folder: Path
    python: Path
    tokenizer: Path

    def program(self, name: str) -> str:
        """A command that the peer's package installed beside its Python."""
        return str(self.python.parent / name)


@dataclass(frozen=True)
class Command:
    """What to run, with what added to the environment."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Measured:
    """One request that succeeded, as the client recorded it, by the id that the server knows it by.

    A client keeps all gaps between chunks, or their mean, or neither.
    """

    request_id: str
    ttft_ms: float
    gaps_ms: tuple[float, ...] | None = None
    mean_gap_ms: float | None = None


@dataclass(frozen=True)
class Client:
    """One row: the package that has it (None: ours), how it is started, how its output is read, and whether
    it wants a tokenizer.
    """

    package: str | None
    command: Callable[[Setting], Command]
    read: Callable[[Path], list[Measured]]
    needs_tokenizer: bool = False


# --- ours ---


def ours(*extra: str) -> Client:
    """Our client with further Locust options."""

    def command(setting: Setting) -> Command:
        load = setting.load
        shape = ["--shape", "salvo", "--salvo", f"3s,{load.streams}"]
        loop = ["--load", "closed", "--users", str(load.streams), "--run-time", f"{setting.seconds:g}s"]
        return Command(
            [
                *(sys.executable, "-m", "locust", "-f", str(REPOSITORY / "locustfiles" / "chat.py")),
                *("--headless", "--only-summary", "--host", setting.url, "--model", "truth", "--slo", "none"),
                *("--runs-dir", str(setting.folder), "--run-name", "bench"),
                *("--input-tokens", str(PROMPT_TOKENS), "--output-tokens", str(load.chunks)),
                *(shape if load.once else loop),
                *extra,
            ]
        )

    return Client(None, command, read_ours)


def read_ours(folder: Path) -> list[Measured]:
    """The records of the run folder in `folder`."""
    run = _only_file(folder, "requests.csv").parent
    return [
        Measured(
            record.request_id,
            record.ttft_s * 1e3,
            gaps_ms=tuple(gap_s * 1e3 for gap_s in read_gaps(run, record)),
        )
        for record in read_requests(run)
        if record.outcome == "succeeded" and record.ttft_s is not None
    ]


# --- GuideLLM ---


def guidellm_command(setting: Setting) -> Command:
    """A concurrent profile for some seconds, or the throughput profile for a burst."""
    load, data = setting.load, setting.folder / "data.jsonl"
    rounds = 1 if load.once else setting.seconds / load.answer_s + 2
    row = {"prompt": PROMPT, "output_tokens_count": load.chunks, "prompt_tokens_count": PROMPT_TOKENS}
    data.write_text((json.dumps(row) + "\n") * max(round(load.streams * rounds), 256))
    profile = f"kind=concurrent,streams={load.streams}"
    limit = f"kind=max_duration,seconds={setting.seconds:g}"
    if load.once:
        profile = f"kind=throughput,max_concurrency={load.streams}"
        limit = f"kind=max_requests,count={load.streams}"
    return Command(
        [
            *(setting.program("guidellm"), "run", "--disable-console"),
            *("--backend", f"kind=openai_http,target={setting.url},model=truth"),
            *("--profile", profile, "--constraint", limit, "--data", f"kind=json_file,path={data}"),
            *("--tokenizer", f"kind=huggingface_auto,model={setting.tokenizer}"),
            *("--output", f"kind=json,path={setting.folder / 'guidellm.json'}"),
        ],
        {**OFFLINE, "GUIDELLM__MAX_WORKER_PROCESSES": "1"},
    )


def read_guidellm(folder: Path) -> list[Measured]:
    """`guidellm.json`."""
    return parse_guidellm(json.loads((folder / "guidellm.json").read_text()))


def parse_guidellm(report: Mapping[str, Any]) -> list[Measured]:
    """The successful requests of a report's first benchmark. It keeps the server's id, and of the gaps their
    mean.
    """
    return [
        Measured(
            request["response_id"],
            request["time_to_first_token_ms"],
            mean_gap_ms=request.get("inter_token_latency_ms"),
        )
        for request in report["benchmarks"][0]["requests"]["successful"]
        if request.get("time_to_first_token_ms") is not None
    ]


# --- AIPerf ---


def aiperf_command(setting: Setting) -> Command:
    """`aiperf profile` with a concurrency. It refuses a local tokenizer when told to be offline."""
    load = setting.load
    limit = ["--benchmark-duration", f"{setting.seconds:g}", "--benchmark-grace-period", "0"]
    if load.once:
        limit = ["--request-count", str(load.streams)]
    return Command(
        [
            *(setting.program("aiperf"), "profile", "-m", "truth", "--url", setting.url),
            *("--endpoint-type", "chat", "--streaming", "--concurrency", str(load.streams), *limit),
            *("--tokenizer", str(setting.tokenizer), "--use-server-token-count", "--num-prompts", "64"),
            *("--isl", str(PROMPT_TOKENS), "--osl", str(load.chunks)),
            *("--workers-max", "1", "--record-processors", "1", "--ui", "none"),
            *("--artifact-dir", str(setting.folder), "--export-level", "records"),
            *("--no-server-metrics", "--no-gpu-telemetry"),
        ]
    )


def read_aiperf(folder: Path) -> list[Measured]:
    """`profile_export.jsonl`, wherever in the folder it stands."""
    return parse_aiperf(_only_file(folder, "profile_export.jsonl").read_text().splitlines())


def parse_aiperf(lines: Iterable[str]) -> list[Measured]:
    """One record a line; the id is the one that AIPerf sent as x-request-id."""
    found = []
    for line in lines:
        record = json.loads(line)
        metrics = record["metrics"]
        if "time_to_first_token" not in metrics:
            continue
        gaps_ms = metrics.get("inter_chunk_latency", {}).get("value")
        found.append(
            Measured(
                record["metadata"]["x_request_id"],
                metrics["time_to_first_token"]["value"],
                gaps_ms=tuple(gaps_ms) if gaps_ms else None,
            )
        )
    return found


# --- inference-perf ---


def inference_perf_command(setting: Setting) -> Command:
    """A stage of concurrent load. It is told a number of requests, not a time, and its mock data always asks
    for 30 tokens: a header tells the truth server the load's number.
    """
    load = setting.load
    count = load.streams
    if not load.once:
        per_s = min(load.streams / load.answer_s, REQUESTS_PER_S_AT_MOST)
        count = max(round(per_s * (setting.seconds + 1)), load.streams)
    settings = setting.folder / "settings.yml"
    stage = {"num_requests": count, "concurrency_level": load.streams}
    settings.write_text(  # JSON is YAML
        json.dumps(
            {
                "api": {
                    "type": "chat",
                    "streaming": True,
                    "headers": {"x-truth-tokens": str(load.chunks)},
                },
                "data": {"type": "mock"},
                "load": {
                    "type": "concurrent",
                    "stages": [stage],
                    "num_workers": 1,
                    "worker_max_concurrency": load.streams,
                },
                "server": {
                    "type": "vllm",
                    "model_name": "truth",
                    "base_url": setting.url,
                    "ignore_eos": True,
                },
                "tokenizer": {"pretrained_model_name_or_path": str(setting.tokenizer)},
                "report": {"request_lifecycle": {"summary": True, "per_stage": False, "per_request": True}},
                "storage": {"local_storage": {"path": str(setting.folder)}},
            }
        )
    )
    program = setting.program("inference-perf")
    return Command([program, "-c", str(settings), "--log-level", "ERROR"], OFFLINE)


def read_inference_perf(folder: Path) -> list[Measured]:
    """`per_request_lifecycle_metrics.json`, wherever in the folder it stands."""
    return parse_inference_perf(
        json.loads(_only_file(folder, "per_request_lifecycle_metrics.json").read_text())
    )


def parse_inference_perf(requests: Iterable[Mapping[str, Any]]) -> list[Measured]:
    """The chunks' times are kept, and the chunks, which hold the id that the server gave."""
    found = []
    for request in requests:
        response = request["info"].get("response_metrics") or {}
        times_s = response.get("chunk_times")
        if times_s:
            found.append(
                Measured(
                    json.loads(response["response_chunks"][0])["id"],
                    (times_s[0] - request["start_time"]) * 1e3,
                    gaps_ms=tuple((late - early) * 1e3 for early, late in pairwise(times_s)),
                )
            )
    return found


# --- a plain loop ---


def aiohttp_loop_command(setting: Setting) -> Command:
    """Our own small program, run by any Python that has aiohttp."""
    load = setting.load
    seconds = 0.0 if load.once else setting.seconds
    numbers = (str(load.streams), str(load.chunks), f"{seconds:g}")
    program = str(REPOSITORY / "bench" / "aiohttp_loop.py")
    output = str(setting.folder / "loop.jsonl")
    return Command([str(setting.python), "-I", program, setting.url, *numbers, output])


def read_aiohttp_loop(folder: Path) -> list[Measured]:
    """`loop.jsonl`, one request a line."""
    records = [json.loads(line) for line in (folder / "loop.jsonl").read_text().splitlines()]
    return [Measured(one["request_id"], one["ttft_ms"], tuple(one["gaps_ms"])) for one in records]


def _only_file(folder: Path, name: str) -> Path:
    found = sorted(folder.rglob(name))
    if not found:
        raise FileNotFoundError(f"the client left no {name} in {folder}")
    return found[0]


OURS: dict[str, Client] = {f"ours, {engine}": ours("--engine", engine) for engine in ENGINES}
"""Our client, a row an engine."""

PEERS: dict[str, Client] = {
    "guidellm": Client("guidellm", guidellm_command, read_guidellm, needs_tokenizer=True),
    "aiperf": Client("aiperf", aiperf_command, read_aiperf, needs_tokenizer=True),
    "inference-perf": Client(
        "inference-perf", inference_perf_command, read_inference_perf, needs_tokenizer=True
    ),
    "aiohttp-loop": Client("aiohttp", aiohttp_loop_command, read_aiohttp_loop),
}
