"""What each tenant has been served, for policies that divide the server between tenants.

A tenant that comes back after having nothing in the engine starts level with the least served of those that
are there: nobody saves up for a burst. (The counter lift of the virtual token counter: Sheng et al.,
"Fairness in Serving Large Language Models", OSDI 2024.)
"""

from __future__ import annotations

from collections import Counter

from simserver.request import Request

Tenant = str | None
MOST_KNOWN = 1_000
"""Tenants whose tokens are remembered; beyond that who left first is forgotten, and starts anew."""


class Accounts:
    """`served_tokens`: prompt and answer tokens of each tenant's ended requests, lifted as told above."""

    __slots__ = ("_open", "served_tokens")

    def __init__(self) -> None:
        self._open: Counter[Tenant] = Counter()
        self.served_tokens: dict[Tenant, float] = {}

    def open(self, request: Request) -> None:
        """A request has come."""
        tenant = request.tenant
        if tenant not in self._open:
            level = min((self.served_tokens[other] for other in self._open), default=0.0)
            self.served_tokens[tenant] = max(self.served_tokens.get(tenant, 0.0), level)
        self._open[tenant] += 1
        self._forget()

    def close(self, request: Request) -> None:
        """A request has ended, however it did. What it did not get is not charged."""
        tenant = request.tenant
        if request.admitted_at_s is not None:
            done = request.prompt_tokens if request.emitted_tokens else request.computed_tokens
            self.served_tokens[tenant] += done + request.emitted_tokens
        self._open[tenant] -= 1
        if not self._open[tenant]:
            del self._open[tenant]
            self.served_tokens[tenant] = self.served_tokens.pop(tenant)

    def _forget(self) -> None:
        """Keep the list of tenants short: those come last who are there or left last."""
        while len(self.served_tokens) > max(MOST_KNOWN, len(self._open)):
            gone = next(tenant for tenant in self.served_tokens if tenant not in self._open)
            del self.served_tokens[gone]
