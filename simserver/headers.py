"""What a request's headers say: whose it is, whether its key fits, what should go wrong with it."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import blake2b

from simserver.errors import ApiError
from simserver.faults import FAULT_HEADER, FAULTS, Fault, parse_fault
from simserver.gateway import Caller


def key_fits(headers: Mapping[str, str], key: str | None) -> bool:
    """Whether the bearer key is `key`; any or none will do where there is no key."""
    if key is None:
        return True
    scheme, _, given = headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(_bytes(given), _bytes(key))


def tenant_of(headers: Mapping[str, str], tenant_header: str) -> str | None:
    """Who asks: by the tenant header, else by the API key; else unknown."""
    return headers.get(tenant_header) or key_digest(headers)


def caller_of(headers: Mapping[str, str], tenant_header: str, ip: str | None) -> Caller:
    """Who asks, as a gateway tells callers apart."""
    return Caller(key_digest(headers), headers.get(tenant_header), ip)


def key_digest(headers: Mapping[str, str]) -> str | None:
    """A digest of the API key, which is all of it that is kept; None without one."""
    key = _bytes(headers.get("Authorization", "").partition(" ")[2])
    return blake2b(key, digest_size=8).hexdigest() if key else None


def _bytes(text: str) -> bytes:
    """A header's text as it came: bytes that are no UTF-8 stand as surrogates in it."""
    return text.strip().encode("utf-8", "surrogateescape")


def fault_asked(headers: Mapping[str, str]) -> Fault | None:
    """The fault that a request asks for itself. Raises ApiError when there is no such fault."""
    asked = headers.get(FAULT_HEADER)
    if asked is None:
        return None
    try:
        fault = parse_fault(asked)
        if FAULTS[fault.name].of_server:
            raise ValueError(f"fault {fault.name} is of the whole server: start it with --fault")
    except ValueError as error:
        raise ApiError(400, str(error), "BadRequestError", FAULT_HEADER) from None
    return fault
