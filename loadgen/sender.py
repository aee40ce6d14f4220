"""Between the dispatcher and the client: an arrival becomes a request, its end becomes a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, cast

from client.completion import Finished, Limits, Request, Target
from client.endpoints import Prompt, request_body
from client.engines import ENGINES, Call, arming
from client.reader import ConnectionPool
from loadgen.arrival import Arrival
from loadgen.assignment import Assignment
from loadgen.options import api_key
from loadgen.prompts import synthetic_prompt
from runlog.record import RequestRecord

PromptOf = Callable[[Arrival, str], Prompt]
"""What a user makes of an arrival and the run's id."""


def synthetic(arrival: Arrival, run_id: str) -> str:
    """Words in the length that the arrival asks for, different in every request and run."""
    words = arrival.input_tokens if arrival.input_words is None else arrival.input_words
    return synthetic_prompt(words, arrival.prompt_seed, run_id)


@dataclass(frozen=True, eq=False)
class Armed:
    """A request that waits for its moment; `size_bytes` is what it holds in memory."""

    completion: Call
    size_bytes: int

    @property
    def succeeded(self) -> bool:
        """The answer has ended, and well."""
        finished = self.completion.finished
        return finished is not None and finished.record.outcome == "succeeded"


class StreamSender:
    """One worker's requests in one run. `keep` takes every request's end.

    Set before anything is armed: `start_ns`, the run's start moment, and from the Locust user that does the
    sending `prompt_of` and `extra_body`, fields that go into every request's body.
    """

    def __init__(self, assignment: Assignment, keep: Callable[[Finished], None]) -> None:
        self.start_ns = 0
        self.prompt_of: PromptOf = synthetic
        self.extra_body: Mapping[str, object] = {}
        self._assignment = assignment
        self._keep = keep
        self._limits = Limits(
            first_token_s=assignment.first_token_limit_s,
            stall_s=assignment.stall_limit_s,
            total_s=assignment.total_limit_s,
        )
        target = Target(
            assignment.target,
            assignment.model,
            api_key(),
            assignment.headers,
            endpoint=assignment.endpoint,
            api_version=assignment.api_version,
        )
        connections = cast(Literal["reuse", "fresh"], assignment.connections)
        self._pool = ConnectionPool(target, connections=connections, connect_limit_s=self._limits.connect_s)
        self._arm = arming(assignment.engine, self._pool)
        self._held_bytes = ENGINES[assignment.engine].held_bytes
        self._in_flight: set[Call] = set()

    def arm(self, arrival: Arrival) -> Armed:
        """Build the request; only sending remains. Sets the arrival's `input_words`."""
        arrival.input_words = self._assignment.calibration.words_for(arrival.input_tokens)
        body = request_body(
            self._assignment.endpoint,
            self._assignment.model,
            self.prompt_of(arrival, self._assignment.run_id),
            arrival.output_tokens,
            stream=self._assignment.stream,
            dialect=self._assignment.dialect,
            extra=self.extra_body,
        )
        request = Request(
            body=body,
            request_id=self._request_id(arrival),
            arrival=arrival.index,
            segment=arrival.segment,
            session=arrival.session,
            turn=arrival.turn,
            scheduled_at_s=arrival.at_s if arrival.scheduled else None,
            name=arrival.name,
            asked_input_tokens=arrival.input_tokens,
            asked_output_tokens=arrival.output_tokens,
            worker=self._assignment.worker,
            stream=self._assignment.stream,
        )
        call = self._arm(request, start_ns=self.start_ns, limits=self._limits)
        return Armed(call, len(body) + self._held_bytes)

    def open_ahead(self, connections: int) -> None:
        """Have that many connections, those in use included; waits until they are open."""
        self._pool.open_ahead(connections)

    def fire(self, armed: Armed) -> None:
        """Send now; never blocks."""
        self._in_flight.add(armed.completion)
        armed.completion.fire()

    def finish(self, armed: Armed) -> None:
        """Wait until the answer has ended and keep its record."""
        self._keep(self._end_of(armed))

    def ask(self, arrival: Arrival) -> Finished:
        """Send now and wait for the end, which goes to the caller instead of being kept: for the warm-up."""
        armed = self.arm(arrival)
        self.fire(armed)
        return self._end_of(armed)

    def _end_of(self, armed: Armed) -> Finished:
        try:
            return armed.completion.wait()
        finally:
            self._in_flight.discard(armed.completion)

    def not_sent(self, arrival: Arrival, failure_class: str) -> None:
        """Keep a record of a request that will not be sent."""
        record = RequestRecord(
            arrival=arrival.index,
            segment=arrival.segment,
            request_id=self._request_id(arrival),
            worker=self._assignment.worker,
            name=arrival.name,
            session=arrival.session,
            turn=arrival.turn,
            scheduled_at_s=arrival.at_s if arrival.scheduled else None,
            outcome="not_sent",
            failure_class=failure_class,
            asked_input_tokens=arrival.input_tokens,
            asked_output_tokens=arrival.output_tokens,
        )
        self._keep(Finished(record))

    def cancel_all(self) -> None:
        """The drain limit has passed: end every request that is still in flight."""
        for completion in list(self._in_flight):
            completion.cancel("drain_limit")

    def close(self) -> None:
        self._pool.close()

    def _request_id(self, arrival: Arrival) -> str:
        return f"{self._assignment.run_id}-{arrival.label or arrival.index}"
