"""The HTTP side: routes, keys, connections, and the life of one server from start to stop or crash.

Built on aiohttp's low-level server, whose protocol is extended by one thing: a stamp on every read,
so that a request's time of receipt does not depend on how long the handlers before it took."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from ssl import SSLContext

import orjson
from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from prometheus_client import CONTENT_TYPE_LATEST

from simserver import __version__
from simserver.admission import Admission
from simserver.asked import Rules
from simserver.endpoints import ENDPOINTS
from simserver.engine import Engine
from simserver.faults import Faults
from simserver.gateway_rules import GatewayRules
from simserver.headers import key_fits
from simserver.receipt import StampingProtocol
from simserver.replies import (
    MAX_BODY_BYTES,
    SERVER,
    going_down,
    json,
    key_refused,
    no_such_path,
    refusal,
    wrong_method,
)
from simserver.serving import Serving
from simserver.truth import TruthLog

LISTEN_BACKLOG = 4_096
STOP_GRACE_S = 0.3

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Settings:
    """What the HTTP side needs to know. api_key: None for no key; tenant_header says who asks; tls:
    None for plain HTTP; gateway: None for none before the server."""

    rules: Rules
    admission: Admission
    api_key: str | None
    timeout_keep_alive_s: float
    tenant_header: str = "x-tenant"
    faults: Faults = field(default_factory=Faults)
    tls: SSLContext | None = None
    gateway: GatewayRules | None = None


@dataclass(frozen=True)
class Origin:
    """What outlives a crash: from when the faults' times count, and the requests' numbers."""

    started_s: float = field(default_factory=time.monotonic)
    numbers: Iterator[int] = field(default_factory=count)


class SimulatedServer:
    """One engine behind HTTP. `start` it inside a running event loop, then `stop` it, or let it
    `crash`."""

    def __init__(self, settings: Settings, engine: Engine, truth: TruthLog | None, origin: Origin) -> None:
        self._settings = settings
        self._serving = Serving(
            settings.rules,
            settings.admission,
            settings.gateway,
            settings.faults,
            settings.tenant_header,
            engine,
            truth,
            origin.started_s,
            origin.numbers,
        )
        self._started_at = int(time.time())
        self._routes: dict[tuple[str, str], Handler] = {
            ("GET", "/v1/models"): self._models,
            ("GET", "/health"): self._health,
            ("GET", "/version"): self._version,
            ("GET", "/metrics"): self._metrics_page,
        }
        for row in ENDPOINTS.values():
            self._routes["POST", row.path] = partial(self._serving.serve, row)

    async def start(self, host: str, port: int) -> int:
        """Listen and begin stepping; returns the port. Raises OSError when the address cannot be had."""
        loop = asyncio.get_running_loop()

        def make_request(
            message: RawRequestMessage,
            payload: StreamReader,
            protocol: web.RequestHandler,
            writer: AbstractStreamWriter,
            task: asyncio.Task[None],
        ) -> web.BaseRequest:
            return web.BaseRequest(
                message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES
            )

        # handler_cancellation: a client that leaves cancels its handler, which frees its KV cache.
        self._http = web.Server(self._handle, request_factory=make_request, handler_cancellation=True)
        self._listener = await loop.create_server(
            lambda: StampingProtocol(
                self._http,
                loop=loop,
                keepalive_timeout=self._settings.timeout_keep_alive_s,
            ),
            host,
            port,
            backlog=LISTEN_BACKLOG,
            ssl=self._settings.tls,
        )
        self._stepping = asyncio.create_task(self._serving.steps.run())
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Within a second: nothing new, an error event in every open stream, all connections closed."""
        self._serving.ending = "stopped"
        self._listener.close()
        self._stepping.cancel()
        self._serving.give_up(going_down())
        await asyncio.sleep(0)
        await self._http.shutdown(STOP_GRACE_S)

    async def crash(self) -> None:
        """As if the process had been killed: no word to anybody, all connections reset, nobody listens."""
        self._listener.close()
        self._stepping.cancel()
        for connection in list(self._http.connections):
            if connection.transport is not None:
                connection.transport.abort()
        self._serving.give_up(going_down())
        await asyncio.sleep(0)
        await self._http.shutdown(0)

    async def failed(self) -> None:
        """Wait until the step loop dies, which it never should, and raise what killed it."""
        await self._stepping

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        handler = self._routes.get((request.method, path))
        if handler is None:
            methods = [method for method, known in self._routes if known == path]
            return wrong_method(methods) if methods else refusal(no_such_path(path))
        if path.startswith("/v1/") and not key_fits(request.headers, self._settings.api_key):
            return refusal(key_refused())
        response = await handler(request)
        if path.startswith("/v1/"):
            self._serving.metrics.http[path, request.method, f"{response.status // 100}xx"] += 1
        return response

    async def _models(self, request: web.BaseRequest) -> web.StreamResponse:
        rules = self._settings.rules
        model = {
            "id": rules.model,
            "object": "model",
            "created": self._started_at,
            "owned_by": "simserver",
            "root": rules.model,
            "parent": None,
            "max_model_len": rules.max_model_len,
        }
        return json(200, orjson.dumps({"object": "list", "data": [model]}))

    async def _health(self, request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(headers=SERVER)

    async def _version(self, request: web.BaseRequest) -> web.StreamResponse:
        return json(200, orjson.dumps({"version": f"simserver-{__version__}"}))

    async def _metrics_page(self, request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(
            body=self._serving.metrics.page(), headers={**SERVER, "Content-Type": CONTENT_TYPE_LATEST}
        )
