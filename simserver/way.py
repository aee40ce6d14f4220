"""One request's way through gateway and server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simserver.gateway import Visit
from simserver.receipt import Receipt


def no_headers() -> dict[str, str]:
    return {}


@dataclass(slots=True)
class Way:
    """Where a request has come so far. visit: at the gateway, None without one. failed: whether the
    gateway takes its end for a failure of the server, None when it says nothing about it.
    rate_headers: what the gateway adds to the answer's head, as things stand then."""

    receipt: Receipt
    visit: Visit | None = None
    failed: bool | None = None
    rate_headers: Callable[[], dict[str, str]] = no_headers

    @property
    def reached_server_s(self) -> float:
        """When the server got it: as it came, unless it waited in the gateway's queue."""
        visit = self.visit
        if visit is None or visit.passed_at_s is None or visit.passed_at_s == visit.arrived_at_s:
            return self.receipt.monotonic_s
        return visit.passed_at_s
