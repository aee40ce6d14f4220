"""One small exchange beside the load: a request, and its whole answer kept as it came."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson
from gevent.event import Event

from client.reader import ConnectionPool, Ending
from client.wire import ConnectError

_MOST_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Answer:
    """A whole answer; or, with `status` None, why there is none. Headers by lower-case name. The body may
    repeat a prompt: it stays out of `repr`."""

    status: int | None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)
    why_not: str | None = None

    @property
    def json(self) -> object:
        """The body parsed, None where it is no JSON."""
        try:
            parsed: object = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None
        return parsed


class _Kept:
    """A reader.Sink that keeps a small answer as it is."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body_bytes = bytearray()
        self.ended = Event()
        self.ending: Ending = "failed"

    def begin(self, status: int, headers: dict[str, str]) -> None:
        self.status = status
        self.headers = headers

    def body(self, piece: bytes, stamp_ns: int, handled_ns: int) -> None:
        self.body_bytes += piece[: max(_MOST_BYTES - len(self.body_bytes), 0)]

    def end(self, ending: Ending, detail: str) -> None:
        self.ending = ending
        self.ended.set()


def exchange(pool: ConnectionPool, message: bytes, limit_s: float) -> Answer:
    """Send `message` (see Target.get_request, post_request) and wait for the answer, within `limit_s` for the
    connection and again for the answer. Blocks this greenlet; never raises for what the server does."""
    try:
        connection = pool.take() or pool.open(limit_s)
    except ConnectError as error:
        return Answer(None, why_not=str(error))
    kept = _Kept()
    try:
        connection.send(message)
        connection.read_answer(kept, kept.end)
        whole = kept.ended.wait(limit_s) and kept.ending == "complete"
    except OSError as error:
        connection.close()
        return Answer(None, why_not=f"cannot send: {error.strerror or error}")
    except BaseException:
        connection.close()
        raise
    if not whole:
        connection.close()
        return Answer(None, why_not="no whole answer")
    pool.give_back(connection)
    return Answer(kept.status, kept.headers, bytes(kept.body_bytes))
