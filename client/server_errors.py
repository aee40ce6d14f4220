"""How servers say no: the shapes of error bodies and events, and which of them turn a request away.

Nothing here raises on what a server sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import orjson


@dataclass(frozen=True, slots=True)
class ServerError:
    """An error as the server put it; `code` is its number when it gave one, in the body or as the status."""

    message: str
    kind: str = ""
    code: int | None = None


NO_MESSAGE = "error without a message"
"""Stands for the text of an error that gave none."""

REJECTION_STATUSES = {
    429: "too many requests: a rate, concurrency or queue limit (RFC 6585)",
    498: "flex tier capacity exceeded (Groq)",
    503: "service unavailable (RFC 9110): vLLM's admission limit, Ollama's full queue, a model being loaded",
    529: "overloaded (Anthropic, and gateways that pass it on)",
}
"""Statuses with which a server turns a request away for lack of room. 408 is one without a text only: see
`is_rejection`."""

_TURNED_AWAY = re.compile(
    r"queue (is )?full|overload|(at|over|no|out of|insufficient) capacity|capacity (is )?(exceeded|reached)"
    r"|too many requests|rate[ -]?limit|(currently|server|is) busy|service unavailable|pending requests"
    r"|resource exhausted|throttl",
    re.IGNORECASE,
)

_OUTAGE = re.compile(
    r"no (available|healthy) (workers?|backends?|upstreams?|replicas?|endpoints?|servers?|deployments?)"
    r"|(workers?|backends?|upstreams?|replicas?) (are|is) (unavailable|unhealthy|down)|circuits? (are )?open",
    re.IGNORECASE,
)
"""A gateway that says so with a 503 has nobody left behind it: a failure, not a want of room. Seen of
vllm-router and smg when their server was killed; "no healthy upstream" is Envoy's."""


def error_of(body: Mapping[str, object], is_error: bool = False) -> ServerError | None:
    """The error that a JSON object holds, or None. Shapes: {"error": {...}}, {"error": "text"},
    {"object": "error", ...}, {"detail": ...}; with `is_error` also a bare {"message": ...}."""
    error = body.get("error")
    if isinstance(error, dict):
        return _from_object(error)
    if error:
        return ServerError(str(error), kind=_text(body.get("error_type")), code=_code(body.get("code")))
    if body.get("object") == "error":
        return _from_object(body)
    if "detail" in body:
        return ServerError(_detail(body["detail"]))
    if is_error:
        return _from_object(body)
    return None


def error_of_body(body: bytes) -> ServerError:
    """The error of an answer that is no success: a JSON error of any shape, or the start of its text."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = None
    if isinstance(parsed, dict):
        return error_of(parsed, is_error=True) or ServerError("")
    text = re.sub(r"<[^>]*>", " ", body[:4000].decode("utf-8", "replace"))
    return ServerError(" ".join(text.split())[:400])


def is_rejection(status: int, error: ServerError | None) -> bool:
    """Did the server turn the request away for lack of room? By status, or hidden in an answer with status
    200.

    A 408 without a text is a gateway's queue that was too long: vllm-router sends it for a request that found
    no place in time, and never passes that request on (its middleware.rs; 32 of 40 within 0.5 s in a
    capture). A 408 with a text is a server's time limit: a failure, unless the text speaks of room.
    """
    if status == 408:
        return error is None or not error.message or _speaks_of_room(error)
    if error is not None and _OUTAGE.search(error.message):
        return False
    if status != 200 or error is None:
        return status in REJECTION_STATUSES
    return error.code in REJECTION_STATUSES or _speaks_of_room(error)


def _speaks_of_room(error: ServerError) -> bool:
    return _TURNED_AWAY.search(f"{error.kind} {error.message}".replace("_", " ")) is not None


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds the server asks to wait: `retry-after-ms`, or `retry-after` as seconds or as a date
    (counted from the answer's own Date). `headers` has lower-case names. None when absent or unreadable."""
    if "retry-after" not in headers and "retry-after-ms" not in headers:
        return None
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name, "")
        if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value):
            return float(value) / unit
    try:
        wait = parsedate_to_datetime(headers["retry-after"]) - parsedate_to_datetime(headers["date"])
    except (KeyError, ValueError, TypeError, OverflowError):
        return None
    return max(wait.total_seconds(), 0.0)


def _from_object(error: Mapping[str, object]) -> ServerError:
    raw_code = error.get("code")
    kind = _text(error.get("type"))
    if isinstance(raw_code, str) and not raw_code.isdigit():
        kind = f"{kind} {raw_code}".strip()
    message = _text(error.get("message"))
    return ServerError(message or kind or NO_MESSAGE, kind, _code(raw_code))


def _detail(detail: object) -> str:
    """FastAPI's detail: a text, or a list of findings of which only place and message are told (they echo
    input)."""
    if isinstance(detail, list):
        found = [item for item in detail if isinstance(item, dict)]
        return "; ".join(f"{_place(item.get('loc'))} {_text(item.get('msg'))}".strip() for item in found)
    return _text(detail)


def _place(loc: object) -> str:
    return ".".join(str(part) for part in loc) if isinstance(loc, list) else ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _code(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 6:
        return int(value)
    return value if type(value) is int else None
