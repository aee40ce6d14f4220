"""`make check-real`: the whole suite against a real server on this machine, our figures against its own.

vLLM on the CPU with a tiny random model shows the wire: answers, mistakes, requests turned away. SmolLM2-135M
shows a burst: TTFT, recovery and tokens must be what the server's own counters say. Everything is installed
into --folder (3 GB) and used again the next time; a fresh start takes some six minutes of two cores.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import FrameType

from bench.findings import Finding, conclude, shown
from bench.real_load import check_burst, check_forms, check_refused_run, check_turned_away
from bench.real_servers import RUNNING_AT_MOST, WAITING_LIMIT, Server, Workshop, described
from bench.real_wire import check_answers, check_mistakes
from bench.server_page import NoNames
from experiments.launch import LaunchError
from loadgen.options import api_key
from runlog.exit_codes import ExitCode

Part = Callable[..., Iterator[Finding]]
"""Takes the server and the folder of runs, the burst also the tokens of an answer."""

ON_THE_TINY_MODEL: dict[str, Part] = {
    "answers": lambda server, _: check_answers(server),
    "mistakes": lambda server, _: check_mistakes(server),
    "refused": check_refused_run,
    "forms": check_forms,
    "overload": check_turned_away,
}
ON_A_REAL_MODEL: dict[str, Part] = {"burst": check_burst}
PARTS = {**ON_THE_TINY_MODEL, **ON_A_REAL_MODEL}


def check(asked: argparse.Namespace) -> list[Finding]:
    """Start what the parts need, run them, print each finding. Raises LaunchError, OSError or NoNames when a
    server cannot be had.
    """
    workshop = Workshop(asked.folder.absolute())
    workshop.runs.mkdir(parents=True, exist_ok=True)
    found: list[Finding] = []
    for parts, server_of in ((ON_THE_TINY_MODEL, _tiny_server), (ON_A_REAL_MODEL, _model_server)):
        chosen = [name for name in parts if name in asked.only]
        if not chosen:
            continue
        own = nullcontext(described(asked.url, asked.model, api_key())) if asked.url else None
        with own or server_of(workshop, asked.engine) as server:
            for name in chosen:
                more = {"tokens": asked.burst_tokens} if name == "burst" else {}
                found += shown(parts[name](server, workshop.runs, **more))
    return found


def _tiny_server(workshop: Workshop, _: str) -> AbstractContextManager[Server]:
    model, limit = workshop.tiny_model(), ("--", "--max-num-queued-reqs", str(WAITING_LIMIT))
    venv = ("--venv", str(workshop.vllm), "--model", str(model), "--max-num-seqs", str(RUNNING_AT_MOST))
    return workshop.serve("vllm_cpu", *venv, *limit)


def _model_server(workshop: Workshop, engine: str) -> AbstractContextManager[Server]:
    if engine == "llama.cpp":
        workshop.llama_server()
        return workshop.serve("llama_cpp", "--venv", str(workshop.llama_cpp), "--", "--threads-http", "64")
    model = ("--model", str(workshop.smollm2()), "--dtype", "float32")
    return workshop.serve("vllm_cpu", "--venv", str(workshop.vllm), *model)


def _parts(text: str) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - set(PARTS):
        raise argparse.ArgumentTypeError(
            f"no part {', '.join(sorted(unknown))}: choose from {', '.join(PARTS)}"
        )
    return names


def parser() -> argparse.ArgumentParser:
    """All options of the command."""
    made = argparse.ArgumentParser(
        prog="python -m bench.check_real",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        exit_on_error=False,
    )
    made.add_argument(
        "--folder", type=Path, default=Path("build/real"), help="environments, models, runs (%(default)s)"
    )
    made.add_argument(
        "--only", type=_parts, default=list(PARTS), metavar="PARTS", help=f"some of {','.join(PARTS)}"
    )
    made.add_argument(
        "--engine",
        choices=("vllm", "llama.cpp"),
        default="vllm",
        help="what serves the burst; llama.cpp is compiled first, five minutes (%(default)s)",
    )
    made.add_argument(
        "--url",
        help="check a server that runs already instead; its key is taken from LOAD_API_KEY. overload needs"
        " one that turns requests away, burst one that queues",
    )
    made.add_argument(
        "--burst-tokens",
        type=int,
        default=12,
        help="tokens of each answer around the burst; a faster server needs more, such as 32 (%(default)s)",
    )
    made.add_argument("--model", default="my-llm", help="with --url: the model's name there (%(default)s)")
    return made


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: list[str] | None = None) -> ExitCode:
    """Check, print the table, and exit by the project's codes: 0 all passed, 2 not, 3 usage, 130
    interrupted."""
    try:
        asked = parser().parse_args(arguments)
    except argparse.ArgumentError as error:
        print(f"check_real: {error} (see --help)", file=sys.stderr)
        return ExitCode.USAGE
    signal.signal(signal.SIGTERM, _interrupted)
    began = time.monotonic()
    try:
        code = conclude(check(asked))
    except (LaunchError, NoNames, OSError, subprocess.CalledProcessError) as error:
        print(f"check_real: {error}", file=sys.stderr)
        return ExitCode.NOT_VALID
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    print(f"took {time.monotonic() - began:.0f} s on {os.cpu_count()} cores", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
