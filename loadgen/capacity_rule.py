"""What a server can take, by a short closed loop: requests of each step -> did it hold -> capacity. Pure.

    records of 1, 2, 5, 10, 20, 50 in flight ─► step_of ─► capacity_of ─► LOAD_SHARE of it is the mean rate

A step is short and few answers end in it, so its throughput is the lower of two estimates that err upwards
in different places. By Little's law of the time that one answer takes: in flight / (mean TTFT + mean TPOT x
(mean tokens - 1)); too high while a queue is still growing. By the tokens that came in the step's second
half, per second and divided by the mean answer's: too high while few prompts are read. Of an answer that was
cut off at the step's end the tokens count as they came, and its length as it was asked for. Where no TTFT was
measured (answers in one piece) the throughput is the answers that ended, divided by the step's length.

Within a step the KV cache does not fill as it will under a load of long answers: the figure is a start, and
what an SLO really allows is found by python -m experiments capacity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from client.preflight import Spent
from runlog.record import RequestRecord

STEPS = (1, 2, 5, 10, 20, 50)
"""Requests in flight, step by step."""

LOAD_SHARE = 0.6
"""The mean rate of the load as a share of the capacity: a burst has room above it."""

TTFT_GROWTH = 5.0
"""Without a limit on TTFT a step holds up to this multiple of the TTFT p95 at the first step."""


@dataclass(frozen=True)
class Step:
    """What one step showed; times in seconds, None = not measured.

    `requests` were sent and `ended` of them by themselves; TTFT of a request without a token counts as the
    time that it waited. `why` says why the step did not hold, "" when it did.
    """

    in_flight: int
    requests: int
    ended: int
    throughput_rps: float | None
    ttft_mean_s: float | None
    ttft_p95_s: float | None
    tpot_mean_s: float | None
    output_tokens_mean: float
    why: str = ""

    @property
    def held(self) -> bool:
        return not self.why


@dataclass(frozen=True)
class Capacity:
    """The best throughput of the steps that held, and the mean rate chosen from it. `at_least`: the last of
    STEPS held and was the best, so that more may be possible."""

    capacity_rps: float
    at_least: bool
    rate_rps: float


@dataclass(frozen=True)
class Calibration:
    """What came of it: the verdict, the steps behind it, and what they cost."""

    capacity: Capacity
    steps: tuple[Step, ...]
    spent: Spent

    def told(self) -> dict[str, Any]:
        """As run.json keeps it."""
        return {**asdict(self.capacity), "steps": [asdict(step) for step in self.steps]}

    @property
    def answer_s(self) -> float:
        """How long one answer takes alone, by the first step."""
        first = self.steps[0]
        return first.in_flight / first.throughput_rps if first.throughput_rps else 0.0


def step_of(
    in_flight: int,
    records: Sequence[RequestRecord],
    length_s: float,
    asked_tokens_mean: float,
    ttft_limit_s: float | None,
    first: Step | None = None,
    streamed: bool = True,
) -> Step:
    """Judge the requests of one step of `length_s`; those that its end cut off are "cancelled".

    `asked_tokens_mean` is the mean answer that the load will ask for; `ttft_limit_s` the SLO's, None without;
    `first` the first step, which the others are held against then (None for the first itself); `streamed`
    says whether answers are asked for as streams.
    """
    ended = [record for record in records if record.outcome != "cancelled"]
    answers = [record for record in ended if record.outcome == "succeeded"]
    in_one_piece = not streamed or any(record.ttft_s is None for record in answers)
    waits = [] if in_one_piece else [_ttft_or_wait_s(record) for record in records]
    waits_s = sorted(wait_s for wait_s in waits if wait_s is not None)
    counted = [record for record in records if record.tokens_from == "usage"]
    tpots_s = [record.tpot_s for record in counted or records if record.tpot_s is not None]
    tokens = asked_tokens_mean * _share_of_asked(records)
    ttft_s, tpot_s = _mean(waits_s), _mean(tpots_s)
    if ttft_s is not None and (tpot_s is not None or tokens <= 1):
        by_time_rps = in_flight / (ttft_s + (tpot_s or 0.0) * (tokens - 1))
        throughput_rps = min(by_time_rps, _late_tokens_per_s(records, length_s) / tokens)
    else:
        throughput_rps = len(answers) / length_s
    p95_s = waits_s[ceil(0.95 * len(waits_s)) - 1] if waits_s else None
    return Step(
        in_flight=in_flight,
        requests=len(records),
        ended=len(ended),
        throughput_rps=throughput_rps or None,
        ttft_mean_s=ttft_s,
        ttft_p95_s=p95_s,
        tpot_mean_s=tpot_s,
        output_tokens_mean=tokens,
        why=_failures(ended) or _too_slow(p95_s, ttft_limit_s, first),
    )


def capacity_of(steps: Sequence[Step]) -> Capacity | None:
    """What the steps say together; None when none held or nothing was measured. The rate has three digits, so
    that it can be given again."""
    held = [step for step in steps if step.held and step.throughput_rps is not None]
    if not held:
        return None
    best = max(held, key=lambda step: step.throughput_rps or 0.0)
    capacity_rps = best.throughput_rps or 0.0
    at_least = best.in_flight == STEPS[-1]
    return Capacity(capacity_rps, at_least, float(f"{LOAD_SHARE * capacity_rps:.3g}"))


def step_line(step: Step) -> str:
    """A step in words, such as "5 in flight: 12.3 requests/s, TTFT p95 80 ms"."""
    if not step.held:
        return f"{step.in_flight} in flight does not hold: {step.why}"
    rate = "no answer ended" if step.throughput_rps is None else f"{step.throughput_rps:.3g} requests/s"
    ttft = "" if step.ttft_p95_s is None else f", TTFT p95 {step.ttft_p95_s * 1000:.0f} ms"
    return f"{step.in_flight} in flight: {rate}{ttft}"


def capacity_line(found: Capacity) -> str:
    """The verdict in words, and how the same load is asked for again."""
    least = "at least " if found.at_least else "about "
    return (
        f"capacity {least}{found.capacity_rps:.3g} requests/s; the mean rate is {LOAD_SHARE:.0%} of it, "
        f"{found.rate_rps:g} requests/s (the same load again: --rate {found.rate_rps:g})"
    )


def _ttft_or_wait_s(record: RequestRecord) -> float | None:
    """The TTFT; of a request that was cut off before its first token, how long it had waited."""
    if record.ttft_s is not None:
        return record.ttft_s
    if record.outcome != "cancelled" or record.sent_at_s is None or record.ended_at_s is None:
        return None
    return record.ended_at_s - record.sent_at_s


def _late_tokens_per_s(records: Sequence[RequestRecord], length_s: float) -> float:
    """Output tokens per second in the second half of a step, which begins with its first request; the tokens
    of one answer are taken as evenly spaced between its first and its last."""
    began_s = min((record.sent_at_s for record in records if record.sent_at_s is not None), default=0.0)
    from_s, until_s = began_s + length_s / 2, began_s + length_s
    tokens = 0.0
    for record in records:
        first_s, last_s = record.first_token_at_s, record.last_token_at_s
        if first_s is None or last_s is None:
            continue
        tokens += from_s <= first_s < until_s
        if last_s > first_s:
            within_s = max(min(last_s, until_s) - max(first_s, from_s), 0.0)
            tokens += ((record.output_tokens or 1) - 1) * within_s / (last_s - first_s)
    return tokens / (until_s - from_s)


def _share_of_asked(records: Sequence[RequestRecord]) -> float:
    """How long answers are, as a share of what was asked for; 1 where nothing says otherwise."""
    got = asked = 0
    for record in records:
        want, have = record.asked_output_tokens or 0, record.output_tokens
        if have is None or record.outcome not in ("succeeded", "cancelled"):
            continue
        got += max(have, want) if record.outcome == "cancelled" else have
        asked += want
    return got / asked if got and asked else 1.0


def _failures(ended: Sequence[RequestRecord]) -> str:
    bad = [record for record in ended if record.outcome != "succeeded"]
    if not bad:
        return ""
    kinds = Counter(f"{record.outcome} ({record.failure_class})" for record in bad)
    return ", ".join(f"{count} of {len(ended)} {kind}" for kind, count in kinds.most_common())


def _too_slow(p95_s: float | None, limit_s: float | None, first: Step | None) -> str:
    against = "the SLO's"
    if limit_s is None and first is not None and first.ttft_p95_s is not None:
        limit_s = TTFT_GROWTH * first.ttft_p95_s
        against = f"{TTFT_GROWTH:g} times that at {first.in_flight} in flight,"
    if p95_s is None or limit_s is None or p95_s <= limit_s:
        return ""
    return f"TTFT p95 {p95_s * 1000:.0f} ms is above {against} {limit_s * 1000:.0f} ms"


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
