"""What makes and sends a request: our own client, or the official openai SDK over our connections.

    direct   the bytes are ours: one head for all requests, the body as given
    openai   the SDK makes them: its parameters, its headers, its ways with Azure

Both give their bytes to the same completion, which sends, reads and judges: the figures mean the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Protocol

import gevent

from client.completion import CancelReason, arm
from client.finished import Finished
from client.reader import ConnectionPool
from client.target import Limits, Request


@dataclass(frozen=True)
class Engine:
    """One engine; `held_bytes` is what a request that waits for its moment holds beside its body."""

    name: str
    summary: str
    held_bytes: int


ENGINES: dict[str, Engine] = {
    row.name: row
    for row in (
        Engine("direct", "our own client", 4_000),
        Engine("openai", "the official openai SDK makes each request", 40_000),
    )
}

SDK_SAYS = "the openai SDK does not make this request:"
"""How the error text of a request begins that the SDK refused to make."""


class EngineError(Exception):
    """The engine cannot be used here; one line says why and what to do."""


class Call(Protocol):
    """A request that is ready to fire: a Completion, or one that the SDK made."""

    @property
    def finished(self) -> Finished | None: ...
    def fire(self) -> None: ...
    def wait(self) -> Finished: ...
    def cancel(self, reason: CancelReason) -> None: ...


class Arm(Protocol):
    """Makes a request ready to fire; see client.completion.arm."""

    def __call__(
        self,
        request: Request,
        *,
        start_ns: int,
        limits: Limits | None = None,
        in_flight_at_send: int | None = None,
    ) -> Call: ...


def arming(engine: str, pool: ConnectionPool) -> Arm:
    """How `engine` arms requests to the pool's target. The SDK is imported here, when it is chosen; blocks
    this greenlet meanwhile.

    Raises EngineError.
    """
    if engine == "direct":
        return partial(arm, pool)
    try:
        # It takes a second of CPU, and heartbeats have to go on: a thread of its own lets them.
        made: Arm = gevent.get_hub().threadpool.apply(import_module, ("client.sdk",)).SdkEngine(pool).arm
    except ImportError as error:
        raise EngineError(
            f"--engine openai needs the openai package ({error}): pip install -r requirements.txt"
        ) from error
    return made
