"""What a server says it serves: one GET of /v1/models. Not every server has it: nothing rests on it alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from client.exchange import exchange
from client.reader import ConnectionPool


@dataclass(frozen=True)
class ModelList:
    """The models' names in the server's order, or None and why there is no list. `rows` is what the list
    says of each: servers give themselves away there."""

    names: tuple[str, ...] | None
    why_not: str | None = None
    rows: tuple[Mapping[str, object], ...] = ()

    def holds(self, model: str) -> bool | None:
        """Is `model` among those listed? None without a list."""
        return None if self.names is None else model in self.names


def models_served(pool: ConnectionPool, limit_s: float) -> ModelList:
    """Ask the pool's target which models it serves, within `limit_s` for the connection and again for the
    answer. Blocks this greenlet; never raises: what went wrong is told in `why_not`."""
    answer = exchange(pool, pool.target.models_request(), limit_s)
    if answer.status is None:
        return ModelList(None, answer.why_not)
    if answer.status != 200:
        return ModelList(None, f"HTTP {answer.status}")
    return read_model_list(answer.body)


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
    models = tuple(row for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str))
    return ModelList(tuple(row["id"] for row in models), rows=models)
