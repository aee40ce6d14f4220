"""The client's side of a run in virtual time: a schedule's requests in, one record each out.

A virtual client sends at the exact moment, sees each token the moment it is made, and gives up by the same
limits as the real one (first token, whole answer). A prompt has as many tokens as were asked for, the chat
template's among them, as over HTTP, where the preflight learns how many words make them. Before the server
there may be a gateway, the same one as over HTTP; it tells callers apart by tenant, for all have one API key
and one address here.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import ceil

import numpy as np
from numpy.typing import NDArray

from client.server_errors import ServerError, is_rejection
from runlog.record import Outcome, RequestRecord
from shapes.schedule import Schedule
from simserver.admission import TOO_MANY, Admission
from simserver.chat import TOKENS_PER_MESSAGE
from simserver.engine import Engine
from simserver.gateway import Caller, Gateway, Refused, Visit
from simserver.request import Request

Keep = Callable[[RequestRecord, bytes], None]
FloatArray = NDArray[np.float32]

READ_AT_ONCE = 8_192
"""Arrivals that are taken from the schedule's arrays at a time, so that few are Python numbers at once."""

SHORTEST_PROMPT = TOKENS_PER_MESSAGE + 1
"""Tokens of a message of one word: less is not sent, whatever was asked for."""


@dataclass(frozen=True)
class Patience:
    """When a client gives up on a request, in seconds after sending it."""

    first_token_s: float
    total_s: float


@dataclass(slots=True)
class _Open:
    """A request under way: its place in the schedule, what was in flight when it came, its tokens' times.

    answered_at_s: when the server took it, which sends the headers then; None as long as it waits in the
    gateway's queue, where it is a `visit`."""

    arrival: int
    in_flight: int
    sent_at_s: float
    visit: Visit | None = None
    answered_at_s: float | None = None
    tokens_at_s: array[float] = field(default_factory=lambda: array("d"))

    def gaps_s(self) -> FloatArray:
        """From token to token, as the run folder keeps them."""
        return np.diff(np.frombuffer(self.tokens_at_s)).astype("<f4")


class VirtualClients:
    """All clients of one run. `keep` gets each record once, with its gaps as little-endian float32."""

    def __init__(
        self,
        schedule: Schedule,
        engine: Engine,
        admission: Admission,
        gateway: Gateway | None,
        patience: Patience,
        keep: Keep,
    ) -> None:
        self._schedule = schedule
        self._engine = engine
        self._admission = admission
        self._gateway = gateway
        self._visitors: dict[Visit, Request] = {}
        self._moved: deque[Visit] = deque()
        self._patience = patience
        self._keep = keep
        self._open: dict[Request, _Open] = {}
        self._until_first_token: deque[Request] = deque()
        self._until_end: deque[Request] = deque()
        self.rejected = 0

    def requests(self, run_id: str) -> Iterator[Request]:
        """The schedule as requests, in order."""
        schedule = self._schedule
        for first in range(0, len(schedule), READ_AT_ONCE):
            part = slice(first, first + READ_AT_ONCE)
            columns = zip(
                schedule.at_s[part].tolist(),
                schedule.asked_input_tokens[part].tolist(),
                schedule.asked_output_tokens[part].tolist(),
                schedule.tenant[part],
                strict=True,
            )
            for arrival, (at_s, input_tokens, output_tokens, tenant) in enumerate(columns, first):
                name = f"{run_id}-{arrival}"
                prompt_tokens = max(input_tokens, SHORTEST_PROMPT)
                yield Request(name, prompt_tokens, output_tokens, at_s, tenant=tenant)

    def send(self, request: Request) -> None:
        """A request's moment has come: it goes to the gateway, if there is one, and to the server."""
        now_s = request.arrived_at_s
        seen = _Open(int(request.request_id.rpartition("-")[2]), len(self._open), now_s)
        self._open[request] = seen
        self._until_first_token.append(request)
        self._until_end.append(request)
        if self._gateway is None:
            self._reach_server(request, now_s)
            return
        self._moved.extend(self._gateway.late(now_s))
        self._follow(now_s)
        most = self._gateway.capped(request.output_tokens, "max_tokens")
        if isinstance(most, Refused):
            self._turn_away(request, most, now_s)
            return
        request.output_tokens = most
        visit = self._gateway.enter(Caller(tenant=request.tenant), request.prompt_tokens, most, now_s)
        seen.visit = visit
        self._visitors[visit] = request
        if not visit.waits:
            self._moved.append(visit)
            self._follow(now_s)

    def _follow(self, now_s: float) -> None:
        """Go on with those whom the gateway has let through or turned away, and those who move then."""
        while self._moved:
            visit = self._moved.popleft()
            request = self._visitors.get(visit)
            if request is None:  # its client has given up meanwhile
                continue
            if visit.refused is not None:
                self._turn_away(request, visit.refused, min(now_s, visit.until_s))
            else:
                request.arrived_at_s = now_s
                self._reach_server(request, now_s)

    def _turn_away(self, request: Request, why: Refused, at_s: float) -> None:
        room = is_rejection(why.status, ServerError(why.message, f"{why.kind} {why.code}"))
        self.rejected += room
        self._close(
            request, "rejected" if room else "failed", at_s, why.status, why.message, why.retry_after_s
        )

    def _reach_server(self, request: Request, now_s: float) -> None:
        """The request is at the server's door: it goes to the engine, or is turned away."""
        refusal = self._admission.refusal(lambda: self._engine.queue, request.prompt_tokens)
        if refusal is not None:
            self.rejected += 1
            after_s = refusal.retry_after_s if refusal.status == TOO_MANY else None
            self._close(request, "rejected", now_s, refusal.status, None, after_s)
            return
        try:
            self._engine.submit(request)
        except ValueError:  # prompt and answer do not fit the KV cache: a server says 400
            self._close(request, "failed", now_s, 400)
            return
        self._open[request].answered_at_s = now_s

    def receive(self, gained: list[Request], now_s: float) -> None:
        """A step has ended: note its tokens, and let those give up whose limit has passed."""
        still_open = self._open
        for request in gained:
            still_open[request].tokens_at_s.append(now_s)
            if request.emitted_tokens >= request.output_tokens:
                self._close(request, "succeeded", now_s, 200)
        self._give_up(self._until_first_token, self._patience.first_token_s, "no_first_token", now_s)
        self._give_up(self._until_end, self._patience.total_s, "total_timeout", now_s)
        self._follow(now_s)

    def cut(self, at_s: float) -> None:
        """The drain is over: what is still open is cancelled."""
        if self._gateway is not None:
            self._moved.extend(self._gateway.late(at_s))
            self._follow(at_s)
        while self._open:
            self._leave(next(reversed(self._open)), "cancelled", "drain_limit", at_s, at_s)

    def _leave(self, request: Request, outcome: Outcome, why: str, at_s: float, now_s: float) -> None:
        """The client gives up, wherever its request is."""
        seen = self._open.pop(request)
        if seen.answered_at_s is not None:
            self._engine.abort(request)
        self._end(request, seen, outcome, why, at_s, None if seen.answered_at_s is None else 200)
        self._left(seen, None, now_s)

    def _close(
        self,
        request: Request,
        outcome: Outcome,
        at_s: float,
        status: int,
        error: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        """The server's or the gateway's answer has come to its end."""
        seen = self._open.pop(request)
        if seen.answered_at_s is None:
            seen.answered_at_s = at_s
        failure = None if outcome == "succeeded" else f"http_{status}"
        self._end(request, seen, outcome, failure, at_s, status, error, retry_after_s)
        self._left(seen, status >= 500, at_s)

    def _left(self, seen: _Open, failed: bool | None, now_s: float) -> None:
        """Tell the gateway of a request's end; who moves because of it is followed later."""
        if self._gateway is not None and seen.visit is not None:
            del self._visitors[seen.visit]
            self._moved.extend(self._gateway.leave(seen.visit, failed, now_s))

    def _give_up(self, queue: deque[Request], limit_s: float, why: str, now_s: float) -> None:
        """Requests are sent in order and wait equally long, so the first of the queue gives up first."""
        while queue:
            request = queue[0]
            seen = self._open.get(request)
            if seen is not None and not (why == "no_first_token" and request.emitted_tokens):
                if seen.sent_at_s + limit_s >= now_s:
                    return
                self._leave(request, "failed", why, seen.sent_at_s + limit_s, now_s)
            queue.popleft()

    def _end(
        self,
        request: Request,
        seen: _Open,
        outcome: Outcome,
        failure: str | None,
        at_s: float,
        status: int | None,
        error: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        gaps_s = seen.gaps_s()
        ordered: list[float] = np.sort(gaps_s).tolist()
        tokens = request.emitted_tokens
        answered = status == 200
        schedule, arrival = self._schedule, seen.arrival
        record = RequestRecord(
            arrival=arrival,
            segment=int(schedule.segment[arrival]),
            request_id=request.request_id,
            name=schedule.name[arrival],
            tenant=request.tenant,
            session=schedule.session[arrival],
            attempts=1,
            scheduled_at_s=seen.sent_at_s,
            sent_at_s=seen.sent_at_s,
            connection="reused",
            first_byte_at_s=seen.answered_at_s,
            first_token_at_s=request.first_token_at_s,
            first_answer_at_s=request.first_token_at_s,
            last_token_at_s=request.last_token_at_s,
            ended_at_s=at_s,
            outcome=outcome,
            failure_class=failure,
            status=status,
            error=error,
            retry_after_s=retry_after_s,
            finish_reason="length" if outcome == "succeeded" else None,
            asked_input_tokens=int(schedule.asked_input_tokens[arrival]),
            asked_output_tokens=int(schedule.asked_output_tokens[arrival]),
            input_tokens=request.prompt_tokens if outcome == "succeeded" else None,
            output_tokens=tokens if answered else None,
            cached_tokens=request.cached_prompt_tokens if outcome == "succeeded" else None,
            tokens_from="usage" if outcome == "succeeded" else ("events" if answered else None),
            output_events=tokens if answered else None,
            gap_count=len(ordered) if answered else None,
            gap_p50_s=_rank(ordered, 0.50),
            gap_p99_s=_rank(ordered, 0.99),
            gap_max_s=ordered[-1] if ordered else None,
            gap_zeros=0 if answered else None,
            in_flight_at_send=seen.in_flight,
        )
        self._keep(record, gaps_s.tobytes())


def _rank(ordered: list[float], share: float) -> float | None:
    """The nearest-rank quantile, as the client takes it."""
    return ordered[max(ceil(share * len(ordered)) - 1, 0)] if ordered else None
