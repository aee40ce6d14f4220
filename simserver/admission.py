"""Turning requests away at the door, as servers and gateways do: ADMISSION, one row per rule.

A rule measures what stands in the queue and refuses a request that would make it more than the limit. The
answer is 503 as from vLLM (serving.py tells when it is an error event instead), or 429 with Retry-After as
from gateways and hosted services.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

UNAVAILABLE, TOO_MANY = 503, 429


@dataclass(frozen=True, slots=True)
class Queue:
    """The engine as a rule sees it. waiting_tokens: tokens that the waiting requests have to compute;
    backlog_s: the time that these and the begun prompts would take if prompts alone were computed.
    """

    waiting: int
    running: int
    waiting_tokens: int
    backlog_s: float


@dataclass(frozen=True)
class AdmissionRule:
    """A row of ADMISSION: `measure(queue, prompt_tokens)` with the new request counted in."""

    name: str
    summary: str
    measure: Callable[[Queue, int], float]


ADMISSION: dict[str, AdmissionRule] = {
    row.name: row
    for row in (
        AdmissionRule(
            "requests",
            "requests waiting and running (vLLM's --max-num-queued-reqs, TGI's --max-concurrent-requests)",
            lambda queue, _: queue.waiting + queue.running + 1,
        ),
        AdmissionRule(
            "waiting",
            "requests waiting (SGLang's --max-queued-requests)",
            lambda queue, _: queue.waiting + 1,
        ),
        AdmissionRule(
            "queued-tokens",
            "tokens of waiting prompts (vLLM's --max-num-queued-tokens: target TTFT x prefill rate)",
            lambda queue, prompt_tokens: queue.waiting_tokens + prompt_tokens,
        ),
        AdmissionRule(
            "prefill-backlog",
            "seconds of prompt computation that stand before the request",
            lambda queue, _: queue.backlog_s,
        ),
    )
}


@dataclass(frozen=True)
class Refusal:
    """Why a request was turned away, and after how long it may be worth trying again."""

    rule: str
    status: int
    retry_after_s: int


@dataclass(frozen=True)
class Admission:
    """The rules in force: (name in ADMISSION, limit), and the status of a refusal."""

    limits: tuple[tuple[str, float], ...] = ()
    status: int = UNAVAILABLE

    def refusal(self, look: Callable[[], Queue], prompt_tokens: int) -> Refusal | None:
        """Why this request is turned away, None when it may come in. `look` is called only if needed."""
        if not self.limits:
            return None
        queue = look()
        for name, limit in self.limits:
            if ADMISSION[name].measure(queue, prompt_tokens) > limit:
                return Refusal(name, self.status, max(1, math.ceil(queue.backlog_s)))
        return None


def parse_admission(texts: Iterable[str], status: int = UNAVAILABLE) -> Admission:
    """`["requests=200", "queued-tokens=16000"]` -> Admission. Raises ValueError that names what is wrong."""
    limits = []
    for text in texts:
        name, _, value = text.partition("=")
        if name not in ADMISSION:
            raise ValueError(f"admission rule {name!r} is unknown: choose from {', '.join(ADMISSION)}")
        try:
            limit = float(value)
        except ValueError:
            limit = math.nan
        if not 0 < limit < math.inf:
            raise ValueError(f"admission rule {text!r}: give a limit above 0, such as {name}=200")
        limits.append((name, limit))
    return Admission(tuple(limits), status)
