"""What a server says it serves: one GET of /v1/models. Not every server has it: nothing rests on it alone."""

from __future__ import annotations

from dataclasses import dataclass

import orjson
from gevent.event import Event

from client.reader import ConnectionPool, Ending
from client.wire import ConnectError

_MOST_BYTES = 1024 * 1024
_OWNERS = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama.cpp"}


@dataclass(frozen=True)
class ModelList:
    """The models' names in the server's order, or None and why there is no list.

    `server` is the kind of server where the list gives it away, by its name in dialects.DIALECTS.
    """

    names: tuple[str, ...] | None
    why_not: str | None = None
    server: str | None = None

    def holds(self, model: str) -> bool | None:
        """Is `model` among those listed? None without a list."""
        return None if self.names is None else model in self.names


class _Answer:
    """A reader.Sink that keeps a small answer as it is."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.body_bytes = bytearray()
        self.ended = Event()
        self.ending: Ending = "failed"

    def begin(self, status: int, headers: dict[str, str]) -> None:
        self.status = status

    def body(self, piece: bytes, stamp_ns: int, handled_ns: int) -> None:
        self.body_bytes += piece[: max(_MOST_BYTES - len(self.body_bytes), 0)]

    def end(self, ending: Ending, detail: str) -> None:
        self.ending = ending
        self.ended.set()


def models_served(pool: ConnectionPool, limit_s: float) -> ModelList:
    """Ask the pool's target which models it serves, within `limit_s` for the connection and again for the
    answer. Blocks this greenlet; never raises: what went wrong is told in `why_not`."""
    try:
        connection = pool.take() or pool.open(limit_s)
    except ConnectError as error:
        return ModelList(None, str(error))
    answer = _Answer()
    try:
        connection.send(pool.target.models_request())
        connection.read_answer(answer, answer.end)
        whole = answer.ended.wait(limit_s) and answer.ending == "complete"
    except OSError as error:
        connection.close()
        return ModelList(None, f"cannot send: {error.strerror or error}")
    except BaseException:
        connection.close()
        raise
    if not whole:
        connection.close()
        return ModelList(None, "no whole answer")
    pool.give_back(connection)
    if answer.status != 200:
        return ModelList(None, f"HTTP {answer.status}")
    return read_model_list(bytes(answer.body_bytes))


def read_model_list(body: bytes) -> ModelList:
    """The list out of an answer's body: {"data": [{"id": ...}, ...]}, or the bare array that some gateways
    send."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ModelList(None, "the answer is not JSON")
    rows = parsed.get("data") if isinstance(parsed, dict) else parsed
    if not isinstance(rows, list):
        return ModelList(None, "the answer holds no list")
    models = [row for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]
    owners = (row.get("owned_by") for row in models)
    server = next((_OWNERS[owner] for owner in owners if isinstance(owner, str) and owner in _OWNERS), None)
    return ModelList(tuple(row["id"] for row in models), server=server)
