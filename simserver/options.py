"""The command's options: HTTP and answers here, the engine's in engine_options.py."""

from __future__ import annotations

import argparse
import os
import ssl
import sys
from pathlib import Path
from typing import NoReturn, get_args

from simserver.asked import ReasoningField, Rules
from simserver.engine_options import (
    add_admission_options,
    add_engine_options,
    context_length,
    positive,
    whole,
)
from simserver.epilog import epilog
from simserver.request import Limits

EXIT_USAGE = 3
KEY_VARIABLE = "SIMSERVER_API_KEY"


class Parser(argparse.ArgumentParser):
    """argparse, saying what is wrong in one line and leaving with the suite's exit code for usage."""

    def error(self, message: str) -> NoReturn:
        print(f"simserver: {message} (see python -m simserver --help)", file=sys.stderr)
        raise SystemExit(EXIT_USAGE)


def parser() -> Parser:
    """All options of the command."""
    made = Parser(
        prog="python -m simserver",
        description="A simulated LLM server with the OpenAI API: chat, completions, responses. It queues,\n"
        "batches and slows down as a real engine does; its text is made up.",
        epilog=epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    http = made.add_argument_group("HTTP")
    http.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    http.add_argument(
        "--port", type=whole(0, 65_535), default=8000, help="0 takes any free one (default: %(default)s)"
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
        type=positive,
        default=5.0,
        metavar="S",
        help="close a connection idle for S seconds, as uvicorn does (default: %(default)g)",
    )
    http.add_argument(
        "--tls-cert", type=Path, metavar="FILE", help="serve HTTPS with this certificate chain (PEM)"
    )
    http.add_argument(
        "--tls-key", type=Path, metavar="FILE", help="its key, where it is not in the same file (PEM)"
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
    _add_answer_options(made)
    add_admission_options(made)
    add_engine_options(made)
    made.add_argument(
        "--seed",
        dest="jitter_seed",
        type=int,
        default=0,
        help="of the noise and of the answers' lengths (default: %(default)s)",
    )
    return made


def _add_answer_options(parser: argparse.ArgumentParser) -> None:
    """How long answers are, and how they are told."""
    answers = parser.add_argument_group("answers")
    answers.add_argument(
        "--output-tokens",
        type=whole(1),
        default=128,
        metavar="N",
        help="answer length of requests that give no max_tokens (default: %(default)s)",
    )
    answers.add_argument(
        "--output-mean",
        type=positive,
        metavar="N",
        help="let answers end by themselves after N tokens on average (geometric, seeded), as max_tokens and "
        "min_tokens allow, unless a request says ignore_eos (default: each has all its tokens)",
    )
    answers.add_argument(
        "--stream-interval",
        type=whole(1),
        default=1,
        metavar="N",
        help="tokens per streamed event, after a choice's first (default: %(default)s, as in vLLM)",
    )
    answers.add_argument(
        "--reasoning-field",
        choices=get_args(ReasoningField),
        default="reasoning",
        help="what reasoning is called in chat: vLLM's name of today or the older one (default: %(default)s)",
    )
    answers.add_argument(
        "--enable-prompt-tokens-details",
        action="store_true",
        help="tell the cached tokens in the usage of chat and completions, as in vLLM",
    )


def rules_of(options: argparse.Namespace, limits: Limits) -> Rules:
    """What is served, and how answers look. Raises ValueError as `context_length` does."""
    return Rules(
        options.model,
        context_length(options, limits),
        options.output_tokens,
        prefix_caching=options.enable_prefix_caching,
        output_mean=options.output_mean,
        seed=options.jitter_seed,
        stream_interval=options.stream_interval,
        prompt_tokens_details=options.enable_prompt_tokens_details,
        reasoning_field=options.reasoning_field,
    )


def tls_of(options: argparse.Namespace) -> ssl.SSLContext | None:
    """None for plain HTTP. Raises ValueError that names the option for files that cannot be used."""
    if options.tls_cert is None:
        if options.tls_key is not None:
            raise ValueError("--tls-key needs --tls-cert")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(options.tls_cert, options.tls_key)
    except OSError as error:  # ssl.SSLError is one
        raise ValueError(f"--tls-cert {options.tls_cert} cannot be used: {error}") from None
    return context
