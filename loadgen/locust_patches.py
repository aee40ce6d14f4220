"""What Locust 2.47 gets wrong for a burst, put right from outside, each patch guarded by the code that it
replaces.

One patch so far. On every spawn message a worker asks, for each of some 56 options, whether it is a stock
one, and `argument_parser.default_args_dict()` builds a whole parser for every question: 65-116 ms of CPU
during which the worker's event loop stands still and every stream it reads stalls (runners.py,
`WorkerRunner.handle_message`). The answer never changes, so it is kept.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from locust import argument_parser, runners

from runlog.exit_codes import ExitCode

EXPECTED_DIGESTS: dict[str, str] = {
    "locust.argument_parser.default_args_dict": "e2bb0dc3de63d6ca",
    "locust.runners.WorkerRunner.handle_message": "35cce2c6ddaa5605",
}
"""Digests of the upstream code that the patch was written for; tests/test_locust_patches.py compares them."""


def upstream_digest(function: Callable[..., Any]) -> str:
    """Digest of a function's source, to notice when upstream changes what is patched."""
    return hashlib.sha256(inspect.getsource(inspect.unwrap(function)).encode()).hexdigest()[:16]


def upstream_functions() -> dict[str, Callable[..., Any]]:
    """The upstream functions that a patch replaces or rests on, by the names in EXPECTED_DIGESTS."""
    return {
        "locust.argument_parser.default_args_dict": argument_parser.default_args_dict,
        "locust.runners.WorkerRunner.handle_message": runners.WorkerRunner.handle_message,
    }


def apply() -> None:
    """Put the patches in place; doing it twice changes nothing."""
    if not hasattr(argument_parser.default_args_dict, "cache_info"):
        argument_parser.default_args_dict = functools.lru_cache(maxsize=None)(
            argument_parser.default_args_dict
        )


def exit_with_our_usage_code(parser: Any) -> None:
    """Let a wrong option end with our usage code (3) and one line, instead of argparse's 2."""

    def error(message: str) -> NoReturn:
        print(f"locust: {message}. See: python -m loadgen", file=sys.stderr)
        sys.exit(int(ExitCode.USAGE))

    parser.error = error
