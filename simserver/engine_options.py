"""The options that a server and a simulation in virtual time share: engine and admission, and what
they make."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from simserver.admission import TOO_MANY, UNAVAILABLE, Admission, parse_admission
from simserver.engine import Engine
from simserver.gateway_rules import GatewayRules, parse_gateway
from simserver.policies import POLICIES, make_policy
from simserver.presets import PRESETS, Preset
from simserver.request import Limits

DEFAULT_MAX_MODEL_LEN = 32_768


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """An argparse type: a whole number of at least `least` (and at most `most`), underscores
    allowed."""

    def convert(text: str) -> int:
        value = int(text)
        if value < least or (most is not None and value > most):
            bounds = f"at least {least}" if most is None else f"from {least} to {most}"
            raise argparse.ArgumentTypeError(f"must be {bounds}, got {value}")
        return value

    convert.__name__ = "whole number"  # argparse names the type in its message
    return convert


def ratio(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, got {text}")
    return value


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text}")
    return value


def add_admission_options(parser: argparse.ArgumentParser) -> None:
    """Who is turned away: by a gateway before the server, and by the server itself at its door."""
    gateway = parser.add_argument_group("gateway")
    gateway.add_argument(
        "--gateway",
        action="append",
        default=[],
        metavar="RULE=LIMIT,SETTING=VALUE,...",
        help="put a gateway before the server, by a rule below, such as requests=10/s,burst=20; repeat it "
        "for several (default: no gateway)",
    )
    door = parser.add_argument_group("admission")
    door.add_argument(
        "--max-num-queued-reqs",
        type=whole(1),
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
        help="503 as vLLM answers, with an error event inside status 200 for streams of one instant; or 429 "
        "with Retry-After as gateways do (default: %(default)s)",
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
        type=whole(1),
        metavar="N",
        help="tokens computed per step, prompts included",
    )
    engine.add_argument("--max-num-seqs", type=whole(1), metavar="N", help="requests running at once")
    engine.add_argument(
        "--kv-cache-tokens", type=whole(1), metavar="N", help="tokens that fit the KV cache, in blocks of 16"
    )
    engine.add_argument(
        "--max-model-len",
        type=whole(2),
        metavar="N",
        help=f"context length: prompt plus answer (default: {DEFAULT_MAX_MODEL_LEN} or what the KV cache "
        "holds)",
    )
    engine.add_argument(
        "--jitter",
        type=ratio,
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


def admission_of(options: argparse.Namespace) -> Admission:
    """The rules of admission asked for. Raises ValueError for a rule or limit that makes no sense."""
    rules = list(options.admission)
    if options.max_num_queued_reqs is not None:
        rules.append(f"requests={options.max_num_queued_reqs}")
    return parse_admission(rules, options.reject_status)


def gateway_of(options: argparse.Namespace) -> GatewayRules | None:
    """The gateway asked for, None for none. Raises ValueError for a rule that makes no sense."""
    return parse_gateway(options.gateway)


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
