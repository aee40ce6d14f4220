"""A request turned away, in vLLM's words and shape."""

from __future__ import annotations

from typing import Any

import orjson


class ApiError(Exception):
    """A request turned away: HTTP status, the fields of vLLM's error object, and when to try again.

    code: a word instead of the status, as hosted APIs give. gateway_reason: why the gateway did it, None when
    it was the server."""

    def __init__(
        self,
        status: int,
        message: str,
        kind: str,
        param: str | None = None,
        retry_after_s: int | None = None,
        code: str | None = None,
        gateway_reason: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
        self.gateway_reason = gateway_reason
        self.error = {"message": message, "type": kind, "param": param, "code": code or status}

    @property
    def body(self) -> bytes:
        return orjson.dumps({"error": self.error})


def invalid(where: str, why: str) -> ApiError:
    """A field that is missing or of the wrong type: `where` as in "body.messages"."""
    message = f"1 validation error:\n  {{'loc': '{where}', 'msg': '{why}'}}"
    return ApiError(400, message, "Bad Request", where)


def bad_value(name: str, value: Any, why: str) -> ApiError:
    """A field of the right type with a value that cannot be served."""
    return ApiError(400, f"{why}. (parameter={name}, value={value})", "BadRequestError", name)
