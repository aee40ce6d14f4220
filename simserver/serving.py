"""One completion request from its bytes to its end: parsed, let in or turned away, answered,
logged.

The same way for all endpoints; what differs between them stands in their rows (endpoints.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import orjson
from aiohttp import web
from aiohttp.http import HttpVersion11

from simserver.admission import Admission
from simserver.answers import Answer, AnswerStream
from simserver.asked import Asked, Rules, read_asked
from simserver.endpoints import Endpoint
from simserver.engine import Engine
from simserver.errors import ApiError
from simserver.exchange import Exchange
from simserver.faults import Fault, Faults
from simserver.faulty_stream import FaultyStream
from simserver.headers import fault_asked, tenant_of
from simserver.metrics import Metrics
from simserver.receipt import Receipt, StampingProtocol
from simserver.replies import (
    MAX_BODY_BYTES,
    SERVER,
    fault_error,
    going_down,
    json,
    read_body,
    refusal,
    turned_away,
)
from simserver.request import Request
from simserver.script import scripts
from simserver.step_loop import StepLoop
from simserver.truth import Outcome, TruthLog, row_of
from simserver.turns import Turns

CLIENT_LEFT = 499
"""The status logged for a client that left, nginx's number for it."""

_SSE = {**SERVER, "Content-Type": "text/event-stream; charset=utf-8"}


class Serving:
    """Serves completions with one engine. `ending` is how requests end that are open when it ends
    itself."""

    def __init__(
        self,
        rules: Rules,
        admission: Admission,
        faults: Faults,
        tenant_header: str,
        engine: Engine,
        truth: TruthLog | None,
        started_s: float,
        numbers: Iterator[int],
    ) -> None:
        self._rules = rules
        self._admission = admission
        self._faults = faults
        self._tenant_header = tenant_header
        self._engine = engine
        self._truth = truth
        self._started_s = started_s
        self._numbers = numbers
        self.metrics = Metrics(engine, rules.model)
        self.steps = StepLoop(engine, self.metrics, faults, started_s)
        self._turns = Turns()
        self.ending: Outcome | None = None

    async def serve(self, endpoint: Endpoint, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to one request, whichever it is."""
        try:
            body = await read_body(request)
        except web.HTTPRequestEntityTooLarge:
            error = ApiError(413, f"The body is larger than {MAX_BODY_BYTES} bytes.", "Bad Request", "body")
            return json(error.status, error.body)
        receipt = self._receipt(endpoint, request)
        await self._turns.turn()
        try:
            asked = read_asked(body, endpoint, self._rules)
            self._check_admission(request, asked)
            fault = self._fault_for(request, receipt)
        except ApiError as error:
            self._log(receipt, "rejected" if error.status in (503, 429) else "refused", error.status)
            return refusal(error)

        if fault is not None and fault.name in ("refuse", "error-body"):
            status = int(fault.settings.get("status", 200))
            self._log(receipt, "faulted", status)
            return json(status, fault_error(fault).body)

        exchange = Exchange(self._answer(asked, receipt, request))
        try:
            if asked.stream:
                return await self._stream(endpoint, request, exchange, fault)
            return await self._whole(endpoint, exchange)
        finally:
            self.steps.abort(exchange)
            self._account(receipt, exchange)

    def _receipt(self, endpoint: Endpoint, request: web.BaseRequest) -> Receipt:
        protocol = request.protocol
        assert isinstance(protocol, StampingProtocol)
        return Receipt(endpoint.id_prefix, next(self._numbers), protocol.read_at_s, protocol.read_monotonic_s)

    def _check_admission(self, request: web.BaseRequest, asked: Asked) -> None:
        """Raises ApiError where the server as a whole, not the body, is in the way."""
        if self.ending:
            raise going_down()
        refused = self._admission.refusal(lambda: self._engine.queue, asked.prompt_tokens)
        if refused is not None:
            self.metrics.rejected[refused.rule] += 1
            raise turned_away(refused)
        if asked.stream and request.version != HttpVersion11:
            raise ApiError(505, "Streams are chunked: ask with HTTP/1.1.", "HTTP Version Not Supported")

    def _fault_for(self, request: web.BaseRequest, receipt: Receipt) -> Fault | None:
        """What goes wrong with this request: by its own header, else by the options. Raises ApiError."""
        since_start_s = receipt.monotonic_s - self._started_s
        asked = fault_asked(request.headers)
        return asked or self._faults.of_request(receipt.number, since_start_s)

    def _answer(self, asked: Asked, receipt: Receipt, request: web.BaseRequest) -> Answer:
        """What will be said, and the sequences that the engine computes for it."""
        written = scripts(asked, self._rules, receipt.number)
        tenant = tenant_of(request.headers, self._tenant_header)
        sequences = [
            Request(
                receipt.request_id,
                asked.prompt_of(choice).tokens,
                script.tokens,
                arrived_at_s=receipt.monotonic_s,
                tenant=tenant,
                priority=asked.priority,
                block_hashes=asked.prompt_of(choice).block_hashes,
            )
            for choice, script in enumerate(written)
        ]
        return Answer(receipt.request_id, int(receipt.at_s), asked, self._rules, written, sequences)

    async def _stream(
        self, endpoint: Endpoint, request: web.BaseRequest, exchange: Exchange, fault: Fault | None
    ) -> web.StreamResponse:
        """Headers go out at once, even if the request then waits; the step loop writes the events."""
        response = web.StreamResponse(headers=_SSE)
        response.enable_chunked_encoding()
        await response.prepare(request)
        if request.transport is None:
            raise ConnectionResetError("the client left")
        transport, answer = request.transport, exchange.answer
        stream = AnswerStream(transport, answer, endpoint.events(answer))
        faulty = FaultyStream(stream, transport, fault, answer.tokens, exchange.fail) if fault else None
        exchange.stream = faulty or stream
        exchange.stream.greet()
        self.steps.submit(exchange)
        await exchange.ended
        if faulty is not None:
            await faulty.settled()
        return response

    async def _whole(self, endpoint: Endpoint, exchange: Exchange) -> web.StreamResponse:
        self.steps.submit(exchange)
        if (error := await exchange.ended) is not None:
            return json(error.status, error.body)
        return json(200, orjson.dumps(endpoint.whole(exchange.answer)))

    def _account(self, receipt: Receipt, exchange: Exchange) -> None:
        """Log and count a request that was in the engine and has ended, however it did."""
        answer, ended = exchange.answer, exchange.ended
        if exchange.finished:
            for sequence, script in zip(answer.sequences, answer.scripts, strict=True):
                reason = "length" if script.finish_reason == "length" else "stop"
                self.metrics.observe_finished(sequence, reason)
            self._log(receipt, "finished", 200, exchange)
        elif not ended.cancelled() and ended.done():
            self.metrics.finished["error"] += len(answer.sequences)
            self._log(receipt, self.ending or "faulted", 200 if answer.asked.stream else 500, exchange)
        else:
            self.metrics.finished["abort"] += len(answer.sequences)
            self._log(receipt, "cancelled", CLIENT_LEFT, exchange)

    def _log(self, receipt: Receipt, outcome: Outcome, status: int, exchange: Exchange | None = None) -> None:
        if self._truth is not None:
            answer = exchange.answer if exchange else None
            self._truth.write(row_of(receipt, answer, time.monotonic(), status, outcome))
