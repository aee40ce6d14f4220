"""The connection's side of a request: when it came, stamped as its bytes are read, and what is said of
bytes that are no request."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from simserver.errors import ApiError
from simserver.replies import refusal

CLIENT_FAULTS = (HttpProcessingError, web.RequestPayloadError, ConnectionError)
"""What a client does wrong below the level of requests: no HTTP, a body that cannot be read, gone."""


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

    Once a request's body is complete, that is the moment its last byte came. What a client does
    wrong is answered like any other bad request, and not told on stderr: aiohttp would print the
    bytes, a key among them.
    """

    read_at_s = 0.0
    read_monotonic_s = 0.0

    def data_received(self, data: bytes) -> None:
        self.read_monotonic_s = time.monotonic()
        self.read_at_s = time.time()
        super().data_received(data)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if not isinstance(exc, CLIENT_FAULTS):
            return super().handle_error(request, status, exc, message)
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun, another cannot be sent")
        what = str(message or exc).lstrip("0123456789, ").removeprefix("message:").partition(":")[0].strip()
        response = refusal(ApiError(400, f"Invalid HTTP request: {what[:100]}.", "Bad Request"))
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kwargs: Any) -> None:
        if not isinstance(kwargs.get("exc_info"), CLIENT_FAULTS):
            super().log_exception(*args, **kwargs)
