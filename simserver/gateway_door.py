"""The gateway over HTTP: requests wait in its queue, are turned away in OpenAI's words, and are
counted in /metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from simserver.errors import ApiError
from simserver.gateway import Caller, Gateway, Refused, Standing, Visit

STATES = ("closed", "half-open", "open")


class GatewayDoor:
    """Lets requests through one gateway in real time. Each that `enter` returns must `leave`."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._waiting: dict[Visit, asyncio.Event] = {}
        self._shut = False

    async def enter(self, caller: Caller, prompt_tokens: int, output_tokens: int) -> Visit:
        """Wait until the request is let through, or the door is shut. Raises ApiError when it is
        turned away."""
        visit = self._gateway.enter(caller, prompt_tokens, output_tokens, time.monotonic())
        if visit.waits:
            await self._wait(visit)
        if visit.refused is not None:
            raise refusal_of(visit.refused)
        return visit

    def leave(self, visit: Visit, failed: bool | None) -> None:
        """A request has ended; `failed` as the breaker takes it."""
        self._tell(self._gateway.leave(visit, failed, time.monotonic()))

    def shut(self) -> None:
        """The server ends: nobody waits any longer."""
        self._shut = True
        self._tell(list(self._waiting))

    def headers(self, caller: Caller) -> dict[str, str]:
        """OpenAI's x-ratelimit headers, three for each rate."""
        told = self._gateway.standings(caller, time.monotonic())
        return {
            name: value for rate, standing in told.items() for name, value in _rate_headers(rate, standing)
        }

    def capped(self, tokens: int, param: str | None) -> int:
        """As Gateway.capped. Raises ApiError when so many are refused."""
        most = self._gateway.capped(tokens, param)
        if isinstance(most, Refused):
            raise refusal_of(most)
        return most

    async def _wait(self, visit: Visit) -> None:
        moved = self._waiting[visit] = asyncio.Event()
        try:
            while visit.waits and not self._shut:
                with suppress(TimeoutError):
                    await asyncio.wait_for(moved.wait(), max(0.0, visit.until_s - time.monotonic()))
                self._tell(self._gateway.late(time.monotonic()))
        except asyncio.CancelledError:
            self.leave(visit, None)  # its client has left
            raise
        finally:
            del self._waiting[visit]

    def _tell(self, moved: list[Visit]) -> None:
        for visit in moved:
            self._waiting[visit].set()


def refusal_of(refused: Refused) -> ApiError:
    """What its client is told."""
    return ApiError(
        refused.status,
        refused.message,
        refused.kind,
        refused.param,
        refused.retry_after_s,
        code=refused.code,
        gateway_reason=refused.reason,
    )


def _rate_headers(rate: str, standing: Standing) -> list[tuple[str, str]]:
    return [
        (f"x-ratelimit-limit-{rate}", str(standing.limit)),
        (f"x-ratelimit-remaining-{rate}", str(standing.remaining)),
        (f"x-ratelimit-reset-{rate}", reset_text(standing.reset_s)),
    ]


def reset_text(seconds: float) -> str:
    """A time as OpenAI writes it: `20ms`, `1.5s`, `6m0s`."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    minutes, rest_s = divmod(round(seconds, 3), 60)
    told = f"{rest_s:.3f}".rstrip("0").rstrip(".") + "s"
    return f"{int(minutes)}m{told}" if minutes else told


class GatewayMetrics(Collector):
    """What /metrics says about the gateway, under a prefix of our own."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        gateway, breaker = self._gateway, self._gateway.breaker
        for name, about, value in (
            ("requests_in_flight", "Requests behind the gateway.", gateway.in_flight),
            ("requests_waiting", "Requests in the gateway's queue.", gateway.waiting),
        ):
            yield GaugeMetricFamily(f"simserver_gateway_{name}", about, value=value)
        for name, about, value in (
            ("requests_passed", "Requests let through.", gateway.passed),
            ("max_tokens_clamped", "Requests whose longest answer was lowered.", gateway.clamped),
        ):
            yield CounterMetricFamily(f"simserver_gateway_{name}", about, value=value)
        rejections = CounterMetricFamily(
            "simserver_gateway_rejections", "Requests turned away.", labels=("reason", "status")
        )
        for (reason, status), number in sorted(gateway.refused.items()):
            rejections.add_metric((reason, str(status)), number)
        yield rejections
        if breaker is not None:
            yield CounterMetricFamily(
                "simserver_gateway_breaker_opened",
                "Times the circuit breaker opened.",
                value=breaker.times_opened,
            )
            state = GaugeMetricFamily(
                "simserver_gateway_breaker_state", "1 for the state it is in.", labels=("state",)
            )
            for name in STATES:
                state.add_metric((name,), breaker.state(time.monotonic()) == name)
            yield state
