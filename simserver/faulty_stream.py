"""A stream with a fault in it: what is written, when, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from simserver.answers import AnswerStream
from simserver.errors import ApiError
from simserver.faults import Fault
from simserver.replies import fault_error

KEEP_ALIVE_S = 0.5
GARBAGE = (b'data: {"choices":[{"index":0,"delta":{"content":\n\n', b'data: {"choices":"\xff\xfe"}\n\n')


class FaultyStream:
    """An AnswerStream that goes wrong once `fault["after"]` tokens are out, those of all choices
    together.

    give_up ends the request early, from the server's side. `settled` waits for what is still held
    back."""

    def __init__(
        self,
        stream: AnswerStream,
        transport: asyncio.Transport,
        fault: Fault,
        tokens: int,
        give_up: Callable[[ApiError], None],
    ) -> None:
        self._stream = stream
        self._transport = transport
        self._fault = fault
        self._tokens = tokens
        self._give_up = give_up
        self._held: list[tuple[int, int]] = []
        self._written = 0
        self._stalling: asyncio.Task[None] | None = None
        self._over = False

    def greet(self) -> None:
        """Write what comes before the request has begun, unless that is held back too."""
        if self._fault.name != "buffer":
            self._stream.greet()

    def write_token(self, choice: int, count: int) -> None:
        name, after = self._fault.name, self._fault.settings.get("after", 0)
        if self._over:
            return
        self._written += 1
        written = self._written
        if name == "buffer":
            self._held.append((choice, count))
            if written == self._tokens:
                self._stream.greet()
                self._release()
        elif self._stalling is not None and not self._stalling.done():
            self._held.append((choice, count))
        elif written <= after or (written > after + 1 and name in ("garbage", "stall")):
            self._stream.write_token(choice, count)
        else:
            self._strike(choice, count)

    def write_error(self, error: ApiError) -> None:
        if not self._over:
            self._stream.write_error(error)

    async def settled(self) -> None:
        """Return when all tokens that were held back are written."""
        if self._stalling is not None:
            await self._stalling

    def _strike(self, choice: int, count: int) -> None:
        name = self._fault.name
        if name == "garbage":
            self._stream.write(list(GARBAGE))
            self._stream.write_token(choice, count)
            return
        if name == "stall":
            self._held.append((choice, count))
            self._stalling = asyncio.create_task(self._stall(self._fault["for"]))
            return
        self._over = True
        why = fault_error(self._fault)
        if name == "error-event":
            self._stream.write_error(why)
        elif name == "reset":
            self._transport.abort()
        self._give_up(why)

    async def _stall(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + seconds
        while (left_s := ends_s - loop.time()) > 0 and not self._transport.is_closing():
            self._stream.write([b": keep-alive\n\n"])
            await asyncio.sleep(min(KEEP_ALIVE_S, left_s))
        self._release()

    def _release(self) -> None:
        held, self._held = self._held, []
        for choice, count in held:
            self._stream.write_token(choice, count)
