"""A server's /metrics page: text -> totals by name, and the queue gauge watched over time.

Label sets are summed: how many there are is the server's affair. A family that is not there is None.
"""

from __future__ import annotations

import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

SCRAPE_LIMIT_S = 30.0
"""Longer than the interval: a scrape can itself wait behind the burst."""


@dataclass(frozen=True)
class Names:
    """What one kind of server calls its figures; None where it has none. `ttft` is a histogram's name."""

    server: str
    waiting: str
    output_tokens: str
    input_tokens: str | None = None
    ttft: str | None = None
    rejected: str | None = None


NAMES: tuple[Names, ...] = (
    Names(
        "vLLM",
        waiting="vllm:num_requests_waiting",
        output_tokens="vllm:generation_tokens_total",
        input_tokens="vllm:prompt_tokens_total",
        ttft="vllm:time_to_first_token_seconds",
        rejected="vllm:admission_rejections_total",
    ),
    # llama.cpp counts only the prompt tokens that it computed, not those it had in its cache
    Names("llama.cpp", waiting="llamacpp:requests_deferred", output_tokens="llamacpp:tokens_predicted_total"),
)


class NoNames(Exception):
    """What /metrics tells is no Prometheus page, or of no kind of server in NAMES."""


@dataclass(frozen=True)
class Page:
    """The totals of one page. `minus` an earlier one tells what happened in between."""

    totals: Mapping[str, float]

    def of(self, name: str | None) -> float | None:
        """The sum over all label sets of one sample name."""
        return None if name is None else self.totals.get(name)

    def since(self, earlier: Page, name: str | None) -> float | None:
        """By how much a counter rose; a counter that was not there before began at 0."""
        now = self.of(name)
        return None if now is None else now - (earlier.of(name) or 0.0)

    def mean_since(self, earlier: Page, histogram: str | None) -> tuple[float, int] | None:
        """The mean of what a histogram took in since then, and the number; None when that was nothing."""
        if histogram is None:
            return None
        total = self.since(earlier, f"{histogram}_sum")
        count = self.since(earlier, f"{histogram}_count")
        return None if total is None or not count else (total / count, round(count))


def read_page(text: str) -> Page:
    """Read the Prometheus text format. Raises NoNames when it is something else."""
    totals: dict[str, float] = defaultdict(float)
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                totals[sample.name] += sample.value
    except ValueError as error:
        raise NoNames(f"what stands at /metrics is no Prometheus page: {error}") from error
    return Page(dict(totals))


def names_on(page: Page) -> Names:
    """Which kind of server the page is of. Raises NoNames."""
    for names in NAMES:
        if names.waiting in page.totals:
            return names
    known = ", ".join(names.server for names in NAMES)
    raise NoNames(
        f"/metrics has none of the names that are known here ({known}): such a server is not checked"
    )


def fetch_page(base_url: str, key: str | None = None) -> Page:
    """The server's page now. Raises OSError when there is none to be had, NoNames for another page."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    asked = urllib.request.Request(f"{base_url}/metrics", headers=headers)
    with urllib.request.urlopen(asked, timeout=SCRAPE_LIMIT_S) as answer:
        return read_page(answer.read().decode())


@dataclass(frozen=True)
class QueueSample:
    """How many requests waited: `asked_at_s` to `told_at_s` on the wall clock is when. None: no answer."""

    asked_at_s: float
    told_at_s: float
    waiting: float | None


def queue_gone_at_s(samples: Sequence[QueueSample], after_s: float) -> float | None:
    """The first moment from which the queue was seen empty to the end: the first empty sample after the last
    one that held something, `after_s` or later.

    None when the last sample still holds something, or none after `after_s` does.
    """
    known = [row for row in samples if row.waiting is not None and row.told_at_s >= after_s]
    held = [place for place, row in enumerate(known) if row.waiting]
    if not held or held[-1] + 1 == len(known):
        return None
    return known[held[-1] + 1].told_at_s


@dataclass
class QueueWatch:
    """Asks for the queue gauge every `every_s` in a thread while a `with` block lasts."""

    base_url: str
    gauge: str
    key: str | None = field(default=None, repr=False)
    every_s: float = 0.5
    samples: list[QueueSample] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> QueueWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.is_set():
            asked_at_s = time.time()
            try:
                waiting = fetch_page(self.base_url, self.key).of(self.gauge)
            except (OSError, NoNames):
                waiting = None
            told_at_s = time.time()
            self.samples.append(QueueSample(asked_at_s, told_at_s, waiting))
            self._over.wait(max(0.0, self.every_s - (told_at_s - asked_at_s)))
