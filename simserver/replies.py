"""Bodies that are no completion: JSON, refusals, and the words for them."""

from __future__ import annotations

from aiohttp import web

from simserver.admission import UNAVAILABLE, Refusal
from simserver.errors import ApiError
from simserver.faults import Fault

SERVER = {"Server": "simserver"}
MAX_BODY_BYTES = 64 * 2**20


async def read_body(request: web.BaseRequest) -> bytes:
    """The whole body. Raises aiohttp's HTTPRequestEntityTooLarge."""
    if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    return await request.read()


def json(status: int, body: bytes) -> web.Response:
    """A JSON answer; `body` is JSON already."""
    return web.Response(status=status, body=body, headers={**SERVER, "Content-Type": "application/json"})


def refusal(error: ApiError) -> web.Response:
    """The answer to a request that was turned away."""
    response = json(error.status, error.body)
    if error.retry_after_s is not None:
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response


def no_such_path(path: str) -> ApiError:
    return ApiError(404, f"There is nothing at {path[:200]}.", "NotFoundError")


def wrong_method(methods: list[str]) -> web.Response:
    """The answer at a path that is there, with the methods that it has."""
    response = refusal(ApiError(405, "Method Not Allowed", "BadRequestError"))
    response.headers["Allow"] = ", ".join(methods)
    return response


def key_refused() -> ApiError:
    return ApiError(401, "The API key is missing or not the right one.", "AuthenticationError")


def turned_away(refusal: Refusal) -> ApiError:
    """vLLM's words with 503; with 429 those of a gateway, and when to come back."""
    if refusal.status == UNAVAILABLE:
        return ApiError(
            503,
            "The engine is currently busy and cannot accept new requests. Please try again later or on a "
            "different instance.",
            "Service Unavailable",
        )
    after_s = refusal.retry_after_s
    return ApiError(
        429,
        f"Rate limit reached: the model is overloaded. Please try again in {after_s}s.",
        "rate_limit_error",
        retry_after_s=after_s,
    )


def fault_error(fault: Fault) -> ApiError:
    """The error of a fault that was asked for."""
    status = int(fault.settings.get("status", 500))
    return ApiError(status, f"The fault {fault.name} was asked for.", "InternalServerError")


def going_down() -> ApiError:
    """What requests are told when the server stops."""
    return ApiError(500, "The server was stopped.", "InternalServerError")
