"""What each tenant has been served, for policies that divide the server between tenants.

A tenant that comes back after having nothing in the engine starts level with the least served of those that
are there: nobody saves up for a burst. (The counter lift of the virtual token counter: Sheng et al.,
"Fairness in Serving Large Language Models", OSDI 2024.)
"""

from __future__ import annotations

from collections import Counter

from simserver.request import Request

Tenant = str | None


class Accounts:
    """`served_tokens`: prompt and answer tokens of each tenant's ended requests, lifted as told above."""

    __slots__ = ("_open", "served_tokens")

    def __init__(self) -> None:
        self._open: Counter[Tenant] = Counter()
        self.served_tokens: dict[Tenant, float] = {}

    def open(self, request: Request) -> None:
        """A request has come."""
        tenant = request.tenant
        if not self._open[tenant]:
            level = min((self.served_tokens[other] for other in self._open if self._open[other]), default=0.0)
            self.served_tokens[tenant] = max(self.served_tokens.get(tenant, 0.0), level)
        self._open[tenant] += 1

    def close(self, request: Request) -> None:
        """A request has ended, however it did. What it did not get is not charged."""
        self._open[request.tenant] -= 1
        if request.admitted_at_s is not None:
            done = request.prompt_tokens if request.emitted_tokens else request.computed_tokens
            self.served_tokens[request.tenant] += done + request.emitted_tokens
