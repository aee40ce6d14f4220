"""A request on its way through the engine: its sequences, where their tokens go, and how it
ended."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from simserver.answers import Answer
from simserver.errors import ApiError
from simserver.request import Request


class Stream(Protocol):
    """Where the step loop writes a request's tokens."""

    def greet(self) -> None:
        """Before the request has begun."""

    def write_token(self, choice: int, count: int) -> None:
        """Token number `count` of a choice, from 1."""

    def write_error(self, error: ApiError) -> None:
        """The server gives up on the request."""


class Exchange:
    """One request and its answer. `ended` is awaited by whoever serves it: None when the answer is
    whole, else why the server gave up on it."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.ended: asyncio.Future[ApiError | None] = asyncio.get_running_loop().create_future()
        self.stream: Stream | None = None
        self.jobs = [Job(request, choice, self) for choice, request in enumerate(answer.sequences)]
        self._left = len(self.jobs)

    @property
    def finished(self) -> bool:
        """Whether the engine has made all its tokens."""
        return all(request.finished for request in self.answer.sequences)

    @property
    def error(self) -> ApiError | None:
        """Why the server gave up on it; None while it has not."""
        ended = self.ended
        return ended.result() if ended.done() and not ended.cancelled() else None

    def one_done(self) -> None:
        """A sequence is whole; with the last one the request has ended."""
        self._left -= 1
        if not self._left:
            self._end(None)

    def fail(self, error: ApiError) -> None:
        """The server gives up on it; nothing is written. The first end holds."""
        self._end(error)

    def _end(self, error: ApiError | None) -> None:
        if not self.ended.done():
            self.ended.set_result(error)


@dataclass(slots=True, eq=False)
class Job:
    """A sequence in the engine: one choice of an exchange."""

    request: Request
    choice: int
    exchange: Exchange
    previous_token_at_s: float = 0.0
