"""The HTTP side: routes, keys, errors, and one handler per request that waits for the step loop.

Built on aiohttp's low-level server, whose protocol is extended by one thing: a stamp on every read, so that a
request's time of receipt does not depend on how long the handlers before it took.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count

import orjson
from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion11, RawRequestMessage
from prometheus_client import CONTENT_TYPE_LATEST

from simserver import __version__
from simserver.admission import Admission
from simserver.answers import WORDS, TokenStream, whole_answer
from simserver.chat import ApiError, ChatRequest, ChatRules, read_chat_request
from simserver.engine import Engine
from simserver.faults import Fault, Faults
from simserver.faulty_stream import FaultyStream
from simserver.headers import fault_asked, key_fits, tenant_of
from simserver.metrics import Metrics
from simserver.receipt import Receipt, StampingProtocol
from simserver.replies import SERVER, fault_error, going_down, json, read_body, refusal, turned_away
from simserver.request import Request
from simserver.step_loop import Job, StepLoop
from simserver.truth import Outcome, TruthLog, TruthRow

MAX_BODY_BYTES = 64 * 2**20
LISTEN_BACKLOG = 4_096
STOP_GRACE_S = 0.3
CLIENT_LEFT = 499
"""The status logged for a client that left, nginx's number for it."""

_SSE = {**SERVER, "Content-Type": "text/event-stream; charset=utf-8"}

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Settings:
    """What the HTTP side needs to know. api_key: None for no key; tenant_header says who asks."""

    rules: ChatRules
    admission: Admission
    api_key: str | None
    timeout_keep_alive_s: float
    tenant_header: str = "x-tenant"
    faults: Faults = field(default_factory=Faults)


class SimulatedServer:
    """One engine behind HTTP. `start` it inside a running event loop, then `stop` it."""

    def __init__(self, settings: Settings, engine: Engine, truth: TruthLog | None) -> None:
        self._settings = settings
        self._truth = truth
        self._metrics = Metrics(engine, settings.rules.model)
        self._engine = engine
        self._steps = StepLoop(engine, self._metrics, settings.faults)
        self._numbers = count()
        self._started_at = int(time.time())
        self._stopping = False
        self._routes: dict[tuple[str, str], Handler] = {
            ("POST", "/v1/chat/completions"): self._chat_completions,
            ("GET", "/v1/models"): self._models,
            ("GET", "/health"): self._health,
            ("GET", "/version"): self._version,
            ("GET", "/metrics"): self._metrics_page,
        }

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
        )
        self._stepping = asyncio.create_task(self._steps.run())
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Within a second: nothing new, an error event in every open stream, all connections closed."""
        self._stopping = True
        self._listener.close()
        self._stepping.cancel()
        self._steps.give_up(going_down())
        await asyncio.sleep(0)
        await self._http.shutdown(STOP_GRACE_S)

    async def failed(self) -> None:
        """Wait until the step loop dies, which it never should, and raise what killed it."""
        await self._stepping

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        handler = self._routes.get((request.method, path))
        if handler is None:
            if any(path == known for _, known in self._routes):
                return json(405, orjson.dumps({"detail": "Method Not Allowed"}))
            return json(404, orjson.dumps({"detail": "Not Found"}))
        if path.startswith("/v1/") and not key_fits(request.headers, self._settings.api_key):
            return json(401, orjson.dumps({"error": "Unauthorized"}))
        return await handler(request)

    def _fault_for(self, request: web.BaseRequest, receipt: Receipt) -> Fault | None:
        """What goes wrong with this request: by its own header, else by the options. Raises ApiError."""
        since_start_s = receipt.monotonic_s - self._steps.started_s
        asked = fault_asked(request.headers)
        return asked or self._settings.faults.of_request(receipt.number, since_start_s)

    async def _chat_completions(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            body = await read_body(request)
        except web.HTTPRequestEntityTooLarge:
            error = ApiError(413, f"The body is larger than {MAX_BODY_BYTES} bytes.", "Bad Request", "body")
            return json(error.status, error.body)
        receipt = self._receipt(request)
        try:
            chat = read_chat_request(body, self._settings.rules)
            self._check_admission(request, chat)
            fault = self._fault_for(request, receipt)
        except ApiError as error:
            self._log(receipt, "rejected" if error.status in (503, 429) else "refused", error.status)
            return refusal(error)

        if fault is not None and fault.name in ("refuse", "error-body"):
            status = int(fault.settings.get("status", 200))
            self._log(receipt, "faulted", status)
            return json(status, fault_error(fault).body)

        asked = Request(
            receipt.request_id,
            chat.prompt_tokens,
            chat.output_tokens,
            arrived_at_s=receipt.monotonic_s,
            tenant=tenant_of(request.headers, self._settings.tenant_header),
            priority=chat.priority,
            block_hashes=chat.block_hashes,
        )
        job = Job(asked, chat, done=asyncio.get_running_loop().create_future())
        try:
            if chat.stream:
                return await self._stream(request, receipt, job, fault)
            return await self._answer(receipt, job)
        finally:
            self._steps.abort(job)
            self._account(receipt, job)

    async def _stream(
        self, request: web.BaseRequest, receipt: Receipt, job: Job, fault: Fault | None
    ) -> web.StreamResponse:
        """Headers go out at once, even if the request then waits; the step loop writes the events."""
        response = web.StreamResponse(headers=_SSE)
        response.enable_chunked_encoding()
        await response.prepare(request)
        if request.transport is None:
            raise ConnectionResetError("the client left")
        transport = request.transport
        stream = TokenStream(
            transport,
            receipt.request_id,
            int(receipt.at_s),
            self._settings.rules.model,
            job.chat,
            receipt.number % len(WORDS),
        )
        if fault is None:
            job.stream = stream
            self._steps.submit(job)
            await job.done
            return response
        faulty = FaultyStream(stream, transport, fault, job.chat.output_tokens, job.end)
        job.stream = faulty
        self._steps.submit(job)
        await job.done
        await faulty.settled()
        return response

    async def _answer(self, receipt: Receipt, job: Job) -> web.StreamResponse:
        self._steps.submit(job)
        if (error := await job.done) is not None:
            return json(error.status, error.body)
        body = whole_answer(
            receipt.request_id,
            int(receipt.at_s),
            self._settings.rules.model,
            job.chat,
            receipt.number % len(WORDS),
        )
        return json(200, body)

    def _receipt(self, request: web.BaseRequest) -> Receipt:
        protocol = request.protocol
        assert isinstance(protocol, StampingProtocol)
        return Receipt(next(self._numbers), protocol.read_at_s, protocol.read_monotonic_s)

    def _check_admission(self, request: web.BaseRequest, chat: ChatRequest) -> None:
        """Raises ApiError where the server as a whole, not the body, is in the way."""
        if self._stopping:
            raise going_down()
        refused = self._settings.admission.refusal(lambda: self._engine.queue, chat.prompt_tokens)
        if refused is not None:
            self._metrics.rejected[refused.rule] += 1
            raise turned_away(refused)
        if chat.stream and request.version != HttpVersion11:
            raise ApiError(505, "Streams are chunked: ask with HTTP/1.1.", "HTTP Version Not Supported")

    def _account(self, receipt: Receipt, job: Job) -> None:
        """Log and count a request that was in the engine and has ended, however it did."""
        if job.request.finished:
            self._metrics.observe_finished(job.request, job.chat.finish_reason)
            self._log(receipt, "finished", 200, job)
        elif not job.done.cancelled() and job.done.done():
            self._metrics.finished["error"] += 1
            outcome: Outcome = "stopped" if self._stopping else "faulted"
            self._log(receipt, outcome, 200 if job.chat.stream else 500, job)
        else:
            self._metrics.finished["abort"] += 1
            self._log(receipt, "cancelled", CLIENT_LEFT, job)

    def _log(self, receipt: Receipt, outcome: Outcome, status: int, job: Job | None = None) -> None:
        if self._truth is None:
            return
        asked = job.request if job else None
        self._truth.write(
            TruthRow(
                request_id=receipt.request_id,
                received_at_s=receipt.at_s,
                received_monotonic_s=receipt.monotonic_s,
                admitted_monotonic_s=asked.admitted_at_s if asked else None,
                first_token_monotonic_s=asked.first_token_at_s if asked else None,
                last_token_monotonic_s=asked.last_token_at_s if asked else None,
                ended_monotonic_s=time.monotonic(),
                prompt_tokens=asked.prompt_tokens if asked else None,
                asked_output_tokens=asked.output_tokens if asked else None,
                output_tokens=asked.emitted_tokens if asked else 0,
                preemptions=asked.preemptions if asked else 0,
                status=status,
                outcome=outcome,
            )
        )

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
            body=self._metrics.page(), headers={**SERVER, "Content-Type": CONTENT_TYPE_LATEST}
        )
