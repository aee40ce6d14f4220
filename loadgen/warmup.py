"""Warm-up: a few requests per worker before the start moment, outside all figures of the load.

The first requests of a process are slow for reasons of its own: a cold client (60-90 ms were seen), cold
connections, and a server that compiles or captures for a length it has not met. They ask for the load's own
lengths, a few at a time, and their rows say how it went.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

from gevent.pool import Pool

from client.completion import Finished
from loadgen.arrival import Arrival
from loadgen.seeds import Stream, generators, prompt_seeds
from runlog.record import COLUMNS, WARMUP, RequestRecord
from shapes.lengths import Lengths

AT_ONCE = 3
"""Requests in flight per worker: enough for a batch, too few to queue."""

_MOMENTS = tuple(column for column in COLUMNS if column.endswith("_at_s"))


def warmup_requests(
    count: int, worker: int, seed: int, input_lengths: Lengths, output_lengths: Lengths
) -> list[Arrival]:
    """What worker number `worker` warms up with: the same for the same seed, and no prompt of the load's."""
    inputs, outputs, prompts = generators(seed, Stream.WARM_UP, worker)
    return [
        Arrival(None, 0.0, WARMUP, given, made, prompt, label=f"{WARMUP}-{worker}-{n}", scheduled=False)
        for n, (given, made, prompt) in enumerate(
            zip(
                input_lengths.draw(inputs, count).tolist(),
                output_lengths.draw(outputs, count).tolist(),
                prompt_seeds(prompts, count),
                strict=True,
            )
        )
    ]


def warm_up(
    ask: Callable[[Arrival], Finished],
    requests: Sequence[Arrival],
    stopped: Callable[[], bool] = lambda: False,
) -> list[Finished]:
    """Send the requests, AT_ONCE at a time, and wait for their ends; in the order of `requests`.

    `ask` sends one and waits (StreamSender.ask); what `stopped` comes before is left out. Blocks this
    greenlet, and a request whose greenlet is killed here is cancelled.
    """
    pool = Pool(AT_ONCE)
    try:
        ends = pool.map(lambda request: None if stopped() else ask(request), requests)
    finally:
        pool.kill()
    return [end for end in ends if end is not None]


def shifted(record: RequestRecord, by_s: float) -> RequestRecord:
    """The record with all its moments `by_s` later: from one clock's zero to another's.

    A warm-up ends before the start moment is known, so its times are moved there afterwards.
    """
    moments = {name: getattr(record, name) for name in _MOMENTS}
    return replace(record, **{name: at_s + by_s for name, at_s in moments.items() if at_s is not None})


def warmup_line(records: Sequence[RequestRecord]) -> str:
    """What came of it, such as "warm-up: 3 of 3 succeeded, median TTFT 80 ms".

    Failures are named with their counts, the commonest first.
    """
    good = [record for record in records if record.outcome == "succeeded"]
    line = f"warm-up: {len(good)} of {len(records)} succeeded"
    if ttft_s := [record.ttft_s for record in good if record.ttft_s is not None]:
        line += f", median TTFT {median(ttft_s) * 1000:.0f} ms"
    failures = Counter(record.failure_class for record in records if record.outcome != "succeeded")
    if failures:
        line += f"; {', '.join(f'{count} x {name}' for name, count in failures.most_common())}"
    return line
