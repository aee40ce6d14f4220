"""When a request came: stamped as its bytes are read, before anything is made of them."""

from __future__ import annotations

import time
from dataclasses import dataclass

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Receipt:
    """When a request had been received whole: Unix time and the monotonic clock. `number` counts
    from 0; `prefix` says which endpoint it came to."""

    prefix: str
    number: int
    at_s: float
    monotonic_s: float

    @property
    def request_id(self) -> str:
        return f"{self.prefix}{self.number:016x}"


class StampingProtocol(web.RequestHandler):
    """aiohttp's HTTP protocol, which also notes when it last read bytes.

    Once a request's body is complete, that is the moment its last byte came.
    """

    read_at_s = 0.0
    read_monotonic_s = 0.0

    def data_received(self, data: bytes) -> None:
        self.read_monotonic_s = time.monotonic()
        self.read_at_s = time.time()
        super().data_received(data)
