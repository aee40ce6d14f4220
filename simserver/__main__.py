"""`python -m simserver`: options, one ready line, and a clean stop."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

from simserver.app import Settings, SimulatedServer
from simserver.chat import ChatRules
from simserver.cost import PRESETS, Preset
from simserver.engine import Engine, Limits
from simserver.truth import TruthLog

EXIT_USAGE = 3
DEFAULT_MAX_MODEL_LEN = 32_768
KEY_VARIABLE = "SIMSERVER_API_KEY"

EXAMPLES = """\
examples
  python -m simserver --port 8000
      an 8B model on an A100, as vLLM would start it there
  python -m simserver --port 8000 --preset h100-70b-tp4 --max-num-queued-reqs 200 --log truth.csv
      four H100, requests turned away with 503 beyond 200, one CSV row per request with the server's own times
  python -m simserver --port 8000 --jitter 0 --max-num-seqs 1
      a plain queue with one server, to check against queueing theory

A prompt has as many tokens as words, plus 4 per message. An answer has max_tokens tokens, one event each.
Try it: curl -N http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\
  -d '{"stream": true, "max_tokens": 8, "messages": [{"role": "user", "content": "hello there"}]}'
"""


class Parser(argparse.ArgumentParser):
    """argparse, saying what is wrong in one line and leaving with the suite's exit code for usage."""

    def error(self, message: str) -> NoReturn:
        print(f"simserver: {message} (see python -m simserver --help)", file=sys.stderr)
        raise SystemExit(EXIT_USAGE)


def _whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """An argparse type: a whole number of at least `least` (and at most `most`), underscores allowed."""

    def convert(text: str) -> int:
        value = int(text)
        if value < least or (most is not None and value > most):
            bounds = f"at least {least}" if most is None else f"from {least} to {most}"
            raise argparse.ArgumentTypeError(f"must be {bounds}, got {value}")
        return value

    convert.__name__ = "whole number"  # argparse names the type in its message
    return convert


def _ratio(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, got {text}")
    return value


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, got {text}")
    return value


def parser() -> Parser:
    """All options of the command."""
    presets = "; ".join(f"{row.name}: {row.about}" for row in PRESETS.values())
    made = Parser(
        prog="python -m simserver",
        description="A simulated LLM server with the OpenAI chat completions API. It queues, batches and\n"
        "slows down as a real engine does; its text is made up.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    http = made.add_argument_group("HTTP")
    http.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    http.add_argument(
        "--port", type=_whole(0, 65_535), default=8000, help="0 takes any free one (default: %(default)s)"
    )
    http.add_argument("--model", default="sim-llm", help="the model's name (default: %(default)s)")
    http.add_argument(
        "--api-key",
        default=os.environ.get(KEY_VARIABLE) or None,
        metavar="KEY",
        help=f"want this bearer key under /v1, else 401; also from ${KEY_VARIABLE} (default: no key)",
    )
    http.add_argument(
        "--timeout-keep-alive",
        type=_positive,
        default=5.0,
        metavar="S",
        help="close a connection idle for S seconds, as uvicorn does (default: %(default)g)",
    )
    http.add_argument(
        "--max-num-queued-reqs",
        type=_whole(1),
        metavar="N",
        help="answer 503 while N requests are waiting or running (default: no limit, as in vLLM)",
    )
    http.add_argument(
        "--output-tokens",
        type=_whole(1),
        default=128,
        metavar="N",
        help="answer length of requests that give no max_tokens (default: %(default)s)",
    )
    http.add_argument(
        "--log",
        type=Path,
        metavar="FILE",
        help="a new CSV file: one row per request with the server's own times (received, admitted, first "
        "and last token), written when it ends",
    )

    engine = made.add_argument_group("engine (each default comes from the preset)")
    engine.add_argument("--preset", choices=PRESETS, default="a100-8b", metavar="NAME", help=presets)
    engine.add_argument(
        "--max-num-batched-tokens",
        type=_whole(1),
        metavar="N",
        help="tokens computed per step, prompts included",
    )
    engine.add_argument("--max-num-seqs", type=_whole(1), metavar="N", help="requests running at once")
    engine.add_argument(
        "--kv-cache-tokens", type=_whole(1), metavar="N", help="tokens that fit the KV cache, in blocks of 16"
    )
    engine.add_argument(
        "--max-model-len",
        type=_whole(2),
        metavar="N",
        help=f"context length: prompt plus answer (default: {DEFAULT_MAX_MODEL_LEN} or what the KV cache "
        "holds)",
    )
    engine.add_argument(
        "--jitter",
        type=_ratio,
        default=0.05,
        metavar="RATIO",
        help="noise of the step time, as its standard deviation; 0 for none (default: %(default)g)",
    )
    engine.add_argument("--seed", type=int, default=0, help="of the noise (default: %(default)s)")
    return made


def _limits(options: argparse.Namespace, preset: Preset) -> tuple[Limits, int]:
    """The engine's limits and the context length. Raises ValueError when they do not fit together."""
    limits = Limits(
        max_num_batched_tokens=options.max_num_batched_tokens or preset.max_num_batched_tokens,
        max_num_seqs=options.max_num_seqs or preset.max_num_seqs,
        kv_cache_tokens=options.kv_cache_tokens or preset.kv_cache_tokens,
    )
    max_model_len = options.max_model_len or min(DEFAULT_MAX_MODEL_LEN, limits.whole_kv_tokens)
    if max_model_len > limits.whole_kv_tokens:
        raise ValueError(
            f"--max-model-len {max_model_len} does not fit the KV cache of {limits.whole_kv_tokens} "
            "tokens: lower it or raise --kv-cache-tokens"
        )
    return limits, max_model_len


async def _serve(options: argparse.Namespace, server: SimulatedServer, about: str) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    port = await server.start(options.host, options.port)
    host = f"[{options.host}]" if ":" in options.host else options.host
    print(f"simserver: listening on http://{host}:{port} ({about})", flush=True)
    waits = [asyncio.create_task(stopping.wait()), asyncio.create_task(server.failed())]
    ended, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    await server.stop()
    if waits[1] in ended:
        waits[1].result()


def main(arguments: list[str] | None = None) -> None:
    """Run the server until SIGTERM or SIGINT; exit 3 on wrong options or an address or file not to be had."""
    made = parser()
    options = made.parse_args(arguments)
    preset = PRESETS[options.preset]
    with ExitStack() as open_files:
        try:
            limits, max_model_len = _limits(options, preset)
            truth = open_files.enter_context(TruthLog(options.log)) if options.log else None
        except FileExistsError:
            made.error(f"--log {options.log} exists already: name a new file or remove it")
        except (ValueError, OSError) as error:
            made.error(str(error))
        server = SimulatedServer(
            Settings(
                rules=ChatRules(options.model, max_model_len, options.output_tokens),
                max_num_queued_reqs=options.max_num_queued_reqs,
                api_key=options.api_key,
                timeout_keep_alive_s=options.timeout_keep_alive,
            ),
            Engine(preset.cost, limits, jitter_ratio=options.jitter, seed=options.seed),
            truth,
        )
        about = (
            f"model {options.model}, {preset.name}, {limits.max_num_batched_tokens} tokens per step, "
            f"{limits.max_num_seqs} running at most, {limits.whole_kv_tokens} KV tokens"
        )
        try:
            asyncio.run(_serve(options, server, about))
        except OSError as error:
            made.error(f"cannot listen on {options.host}:{options.port}: {error.strerror or error}")


if __name__ == "__main__":
    main()
