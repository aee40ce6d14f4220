"""One completion request from its bytes to its end: parsed, let in or turned away, answered,
logged.

The same way for all endpoints; what differs between them stands in their rows (endpoints.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import orjson
from aiohttp import web
from aiohttp.http import HttpVersion11

from simserver.admission import UNAVAILABLE, Admission
from simserver.answers import Answer, AnswerStream
from simserver.asked import Asked, Rules, read_asked
from simserver.endpoints import Endpoint
from simserver.engine import Engine
from simserver.errors import ApiError
from simserver.exchange import Exchange
from simserver.faults import Fault, Faults
from simserver.faulty_stream import FaultyStream
from simserver.gateway import Gateway
from simserver.gateway_door import GatewayDoor, GatewayMetrics
from simserver.gateway_rules import GatewayRules
from simserver.headers import caller_of, fault_asked, tenant_of
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
from simserver.way import Way

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
        gateway: GatewayRules | None,
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
        self.metrics = Metrics(engine, rules.model, rules.max_model_len)
        self.steps = StepLoop(engine, self.metrics, faults, started_s)
        self._turns = Turns()
        self.ending: Outcome | None = None
        self._door: GatewayDoor | None = None
        if gateway is not None:
            behind = Gateway(gateway)
            self._door = GatewayDoor(behind)
            self.metrics.also(GatewayMetrics(behind))

    def give_up(self, error: ApiError) -> None:
        """End all requests with an error, as a server does that goes down."""
        self.steps.give_up(error)
        if self._door is not None:
            self._door.shut()

    async def serve(self, endpoint: Endpoint, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to one request, whichever it is."""
        try:
            body = await read_body(request)
        except web.HTTPRequestEntityTooLarge:
            return refusal(
                ApiError(413, f"The body is larger than {MAX_BODY_BYTES} bytes.", "Bad Request", "body")
            )
        way, door = Way(self._receipt(endpoint, request)), self._door
        await self._turns.turn()
        try:
            if door is None:
                asked = read_asked(body, endpoint, self._rules)
                return await self._serve_asked(endpoint, request, asked, way)
            asked = read_asked(body, endpoint, self._rules, door.capped)
            caller = caller_of(request.headers, self._tenant_header, request.remote)
            way.rate_headers = partial(door.headers, caller)
            way.visit = await door.enter(caller, asked.prompt_tokens, self._most_output_tokens(asked))
            return _with(await self._serve_asked(endpoint, request, asked, way), way.rate_headers())
        except ApiError as error:
            turned_away = error.gateway_reason is not None and error.status != 400
            rejected = turned_away or error.status in (503, 429)
            self._log(way, "rejected" if rejected else "refused", error.status, None, error.gateway_reason)
            return _with(refusal(error), way.rate_headers())
        finally:
            if door is not None and way.visit is not None:
                door.leave(way.visit, way.failed)

    async def _serve_asked(
        self, endpoint: Endpoint, request: web.BaseRequest, asked: Asked, way: Way
    ) -> web.StreamResponse:
        """The server's own answer, behind the gateway if there is one. Raises ApiError."""
        self._check_admission(request, asked)
        fault = self._fault_for(request, way.receipt)
        if fault is not None and fault.name in ("refuse", "error-body"):
            status = int(fault.settings.get("status", 200))
            self._log(way, "faulted", status)
            return json(status, fault_error(fault).body)

        exchange = Exchange(self._answer(asked, way, request))
        self.metrics.open_requests += 1
        left = True
        try:
            if asked.stream:
                response = await self._stream(endpoint, request, exchange, fault, way.rate_headers())
            else:
                response = await self._whole(endpoint, exchange)
            left = False
            return response
        finally:
            self.metrics.open_requests -= 1
            self.steps.abort(exchange)
            self._account(way, exchange, fault, left)

    def _most_output_tokens(self, asked: Asked) -> int:
        """The tokens that an answer may have, by which a gateway counts it beforehand."""
        most = asked.most_tokens if asked.most_named else self._rules.default_output_tokens
        return asked.choices * min(most, asked.most_tokens)

    def _receipt(self, endpoint: Endpoint, request: web.BaseRequest) -> Receipt:
        protocol = request.protocol
        assert isinstance(protocol, StampingProtocol)
        return Receipt(endpoint.id_prefix, next(self._numbers), protocol.read_at_s, protocol.read_monotonic_s)

    def _check_admission(self, request: web.BaseRequest, asked: Asked) -> None:
        """Raises ApiError where the server as a whole, not the body, is in the way."""
        if self.ending:
            raise going_down()
        if (error := self._no_room(asked, headers_are_out=False)) is not None:
            raise error

    def _no_room(self, asked: Asked, headers_are_out: bool) -> ApiError | None:
        """The refusal of a request beyond a limit of the queue.

        Like vLLM the server looks twice where it answers 503 to a stream: before the headers go out
        at the queue as it last saw it, after the last step, and when the request joins the queue at
        the queue itself. So of a burst within one step those beyond the limit get an error event in
        an answer with status 200, those who come later a 503."""
        looks_twice = asked.stream and self._admission.status == UNAVAILABLE
        if headers_are_out and not looks_twice:
            return None
        seen = looks_twice and not headers_are_out
        refused = self._admission.refusal(
            lambda: self.metrics.queue if seen else self._engine.queue, asked.prompt_tokens
        )
        if refused is None:
            return None
        self.metrics.rejected[refused.rule] += 1
        return turned_away(refused)

    def _fault_for(self, request: web.BaseRequest, receipt: Receipt) -> Fault | None:
        """What goes wrong with this request: by its own header, else by the options. Raises
        ApiError."""
        since_start_s = receipt.monotonic_s - self._started_s
        asked = fault_asked(request.headers)
        return asked or self._faults.of_request(receipt.number, since_start_s)

    def _answer(self, asked: Asked, way: Way, request: web.BaseRequest) -> Answer:
        """What will be said, and the sequences that the engine computes for it."""
        receipt = way.receipt
        written = scripts(asked, self._rules, receipt.number)
        tenant = tenant_of(request.headers, self._tenant_header)
        sequences = [
            Request(
                receipt.request_id,
                asked.prompt_of(choice).tokens,
                script.tokens,
                arrived_at_s=way.reached_server_s,
                tenant=tenant,
                priority=asked.priority,
                block_hashes=asked.prompt_of(choice).block_hashes,
            )
            for choice, script in enumerate(written)
        ]
        return Answer(receipt.request_id, int(receipt.at_s), asked, self._rules, written, sequences)

    async def _stream(
        self,
        endpoint: Endpoint,
        request: web.BaseRequest,
        exchange: Exchange,
        fault: Fault | None,
        rate_headers: dict[str, str],
    ) -> web.StreamResponse:
        """Headers go out at once, even if the request then waits; the step loop writes the
        events."""
        response = web.StreamResponse(headers={**_SSE, **rate_headers})
        chunked = request.version >= HttpVersion11
        if chunked:
            response.enable_chunked_encoding()
        await response.prepare(request)
        if request.transport is None:
            raise ConnectionResetError("the client left")
        transport, answer = request.transport, exchange.answer
        stream = AnswerStream(transport, answer, endpoint.events(answer), chunked=chunked)
        faulty = FaultyStream(stream, transport, fault, answer.tokens, exchange.fail) if fault else None
        exchange.stream = faulty or stream
        exchange.stream.greet()
        if (error := self._no_room(answer.asked, headers_are_out=True)) is not None:
            exchange.stream.write_error(error)
            exchange.fail(error)
        else:
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

    def _account(self, way: Way, exchange: Exchange, fault: Fault | None, left: bool) -> None:
        """Log and count a request that was in the engine and has ended, however it did.

        left: the client went before all was sent. The engine may have made all tokens by then: they
        count in /metrics, but such an answer was not finished.
        """
        answer, error = exchange.answer, exchange.error
        if error is not None:
            if error.status == UNAVAILABLE:
                self._log(way, "rejected", 200, exchange)
                return
            self.metrics.finished["error"] += len(answer.sequences)
            self._log(way, self.ending or "faulted", 200 if answer.asked.stream else 500, exchange)
            way.failed = way.failed or (fault is not None and fault.name == "reset")
            return
        if exchange.finished:
            for sequence, script in zip(answer.sequences, answer.scripts, strict=True):
                reason = "length" if script.finish_reason == "length" else "stop"
                self.metrics.observe_finished(sequence, reason, answer.asked.n, answer.asked.most_tokens)
        else:
            self.metrics.cancelled += len(answer.sequences)
        if left:
            self._log(way, "cancelled", CLIENT_LEFT, exchange)
        else:
            self._log(way, "finished", 200, exchange)

    def _log(
        self,
        way: Way,
        outcome: Outcome,
        status: int,
        exchange: Exchange | None = None,
        gateway_reason: str | None = None,
    ) -> None:
        """A request has ended: note what the gateway makes of it, and write it down."""
        way.failed = None if outcome == "cancelled" else status >= 500
        if self._truth is not None:
            answer = exchange.answer if exchange else None
            passed_s = way.visit.passed_at_s if way.visit else None
            gateway = gateway_reason or ("passed" if way.visit else None)
            now_s = time.monotonic()
            self._truth.write(row_of(way.receipt, answer, now_s, status, outcome, gateway, passed_s))


def _with(response: web.StreamResponse, headers: dict[str, str]) -> web.StreamResponse:
    """The response with more headers, unless they have gone out already."""
    if not response.prepared:
        response.headers.update(headers)
    return response
