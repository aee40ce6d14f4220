"""The command's options, and what they mean for the engine. `--help` is where a user learns the policies."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from simserver.admission import ADMISSION, TOO_MANY, UNAVAILABLE, Admission, parse_admission
from simserver.engine import Engine
from simserver.faults import FAULT_HEADER, FAULTS
from simserver.policies import POLICIES, make_policy
from simserver.presets import PRESETS, Preset
from simserver.request import Limits

EXIT_USAGE = 3
DEFAULT_MAX_MODEL_LEN = 32_768
KEY_VARIABLE = "SIMSERVER_API_KEY"

EXAMPLES = """\
examples
  python -m simserver --port 8000
      an 8B model on an A100, as vLLM would start it there
  python -m simserver --port 8000 --preset h100-70b-tp4 --max-num-queued-reqs 200 --log truth.csv
      four H100, requests turned away with 503 beyond 200, one CSV row per request with the server's own times
  python -m simserver --port 8000 --policy prefill-grouping --policy-option over=4 --policy-option tokens=8192
      a scheduler that knows about bursts: larger steps while more than 4 requests wait
  python -m simserver --port 8000 --admission queued-tokens=16000 --reject-status 429
      requests turned away with 429 and Retry-After beyond 16,000 tokens of waiting prompts
  python -m simserver --port 8000 --jitter 0 --max-num-seqs 1
      a plain queue with one server, to check against queueing theory

{tables}

{faults}

A prompt has as many tokens as words, plus 4 per message. An answer has max_tokens tokens, one event each.
Try it: curl -N http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\
  -d '{{"stream": true, "max_tokens": 8, "messages": [{{"role": "user", "content": "hello there"}}]}}'
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
    made = Parser(
        prog="python -m simserver",
        description="A simulated LLM server with the OpenAI chat completions API. It queues, batches and\n"
        "slows down as a real engine does; its text is made up.",
        epilog=EXAMPLES.format(tables=tables(), faults=_fault_table()),
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
        "--output-tokens",
        type=_whole(1),
        default=128,
        metavar="N",
        help="answer length of requests that give no max_tokens (default: %(default)s)",
    )
    http.add_argument(
        "--tenant-header",
        default="x-tenant",
        metavar="NAME",
        help="header that names the tenant; without it the API key does (default: %(default)s)",
    )
    http.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="FAULT",
        help="what goes wrong on purpose, below; repeat it for several",
    )
    http.add_argument(
        "--log",
        type=Path,
        metavar="FILE",
        help="a new CSV file: one row per request with the server's own times (received, admitted, first "
        "and last token), written when it ends",
    )

    add_admission_options(made)
    add_engine_options(made)
    made.add_argument(
        "--seed", dest="jitter_seed", type=int, default=0, help="of the noise (default: %(default)s)"
    )
    return made


def add_admission_options(parser: argparse.ArgumentParser) -> None:
    """Who is turned away at the door, and how."""
    door = parser.add_argument_group("admission")
    door.add_argument(
        "--max-num-queued-reqs",
        type=_whole(1),
        metavar="N",
        help="as in vLLM; the same as --admission requests=N (default: no limit)",
    )
    door.add_argument(
        "--admission",
        action="append",
        default=[],
        metavar="RULE=LIMIT",
        help="turn requests away beyond a limit, by a rule below; repeat it for several (default: none)",
    )
    door.add_argument(
        "--reject-status",
        type=int,
        choices=(UNAVAILABLE, TOO_MANY),
        default=UNAVAILABLE,
        help="503 as vLLM and SGLang answer, or 429 with Retry-After as gateways do (default: %(default)s)",
    )


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """The options that make an engine; a simulation in virtual time takes the same."""
    engine = parser.add_argument_group("engine (each default comes from the preset)")
    engine.add_argument(
        "--preset", choices=PRESETS, default="a100-8b", metavar="NAME", help="GPU and model, below"
    )
    engine.add_argument(
        "--fit",
        type=Path,
        metavar="CSV",
        help="fit the step time to measured points instead of taking the preset's, and print its residuals; "
        "simserver/fit.py describes the file",
    )
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
    engine.add_argument(
        "--enable-prefix-caching",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="compute a prompt's beginning once for all requests that share it (default: on, as in vLLM)",
    )
    engine.add_argument(
        "--policy",
        choices=POLICIES,
        default="fcfs",
        metavar="NAME",
        help="which waiting requests start, and how large steps are, below (default: %(default)s)",
    )
    engine.add_argument(
        "--policy-option",
        action="append",
        default=[],
        metavar="OPTION=VALUE",
        help="an option of the policy, below; repeat it for several",
    )


def tables() -> str:
    """The tables of policies, admission rules and presets, for --help."""
    lines = ["policies (--policy NAME --policy-option OPTION=VALUE ...)"]
    for kind in POLICIES.values():
        lines.append(f"  {kind.name:22}{kind.summary}")
        lines += [f"      {name}={default:g}  {about}" for name, (default, about) in kind.options.items()]
    lines += ["", "admission (--admission RULE=LIMIT ...)"]
    lines += [f"  {rule.name:22}{rule.summary}" for rule in ADMISSION.values()]
    lines += ["", "presets (--preset NAME)"]
    lines += [f"  {row.name:22}{row.about}" for row in PRESETS.values()]
    return "\n".join(lines)


def _fault_table() -> str:
    lines = [f"faults (--fault NAME,SETTING=VALUE,... or the header {FAULT_HEADER} of one request)"]
    for kind in FAULTS.values():
        settings = ", ".join(f"{name}={value:g}" for name, value in kind.settings.items())
        lines += [f"  {kind.name:22}{kind.summary}", f"      {settings}"]
    return "\n".join(lines)


def admission_of(options: argparse.Namespace) -> Admission:
    """The rules of admission asked for. Raises ValueError for a rule or limit that makes no sense."""
    rules = list(options.admission)
    if options.max_num_queued_reqs is not None:
        rules.append(f"requests={options.max_num_queued_reqs}")
    return parse_admission(rules, options.reject_status)


def engine_of(options: argparse.Namespace, preset: Preset) -> Engine:
    """The engine asked for. Raises ValueError when its options do not fit together or its measurements
    cannot be fitted, OSError when they cannot be read."""
    limits = Limits(
        max_num_batched_tokens=options.max_num_batched_tokens or preset.max_num_batched_tokens,
        max_num_seqs=options.max_num_seqs or preset.max_num_seqs,
        kv_cache_tokens=options.kv_cache_tokens or preset.kv_cache_tokens,
    )
    policy = make_policy(options.policy, options.policy_option)
    cost = preset.cost
    if options.fit:
        from simserver.fit import fit, read_measurements  # numpy: only who fits waits for it

        fitted = fit(read_measurements(options.fit))
        print(f"step time fitted to {options.fit}\n{fitted.told()}", flush=True)
        cost = fitted.cost
    return Engine(cost, limits, options.jitter, options.jitter_seed, policy)


def context_length(options: argparse.Namespace, limits: Limits) -> int:
    """Prompt plus answer at most. Raises ValueError when the KV cache is too small for it."""
    length: int = options.max_model_len or min(DEFAULT_MAX_MODEL_LEN, limits.whole_kv_tokens)
    if length > limits.whole_kv_tokens:
        raise ValueError(
            f"--max-model-len {length} does not fit the KV cache of {limits.whole_kv_tokens} "
            "tokens: lower it or raise --kv-cache-tokens"
        )
    return length
