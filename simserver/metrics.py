"""/metrics in vLLM's names, labels and buckets, plus the server's own lateness.

Numbers are kept as plain integers and lists, because a histogram is touched once per token; the Prometheus
client turns them into families when somebody asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from simserver.engine import Engine
from simserver.request import Request

ENGINE_LABEL = "0"
# Bucket edges in seconds, as vLLM 0.32 publishes them.
_FIRST_TOKEN_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_PER_TOKEN_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
_REQUEST_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0),
    *(240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_LATENESS_S = tuple(
    round(decade * digit, 6) for decade in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1) for digit in (1, 1.5, 2, 3, 5, 7)
)

_TOKENS = (1.0, 8.0, 16.0, 32.0, 64.0, *(128.0 * 2**power for power in range(8)))

SUCCESS_REASONS = ("stop", "length", "abort", "error")
REJECTION_REASONS = {
    "requests": "max_num_queued_reqs",
    "queued-tokens": "max_num_queued_tokens",
    "waiting": "max_queued_requests",
    "prefill-backlog": "prefill_backlog",
}
"""The reasons of vllm:admission_rejections by rule of admission; the first two are vLLM's own."""


class Histogram:
    """Counts per bucket and a sum; `observe` is a bisection and two additions."""

    __slots__ = ("_counts", "_edges", "_total", "about", "name")

    def __init__(self, name: str, about: str, edges: tuple[float, ...]) -> None:
        self.name = name
        self.about = about
        self._edges = edges
        self._counts = [0] * (len(edges) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._edges, value)] += 1
        self._total += value

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Cumulative counts by upper edge, as Prometheus wants them, and the sum of all values."""
        edges = [str(edge) for edge in self._edges] + ["+Inf"]
        reached = 0
        rows: list[tuple[str, float]] = []
        for edge, count in zip(edges, self._counts, strict=True):
            reached += count
            rows.append((edge, reached))
        return rows, self._total


class Metrics(Collector):
    """Everything /metrics says about one engine serving one model."""

    def __init__(self, engine: Engine, model: str) -> None:
        self._engine = engine
        self._model = model
        self.finished: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.schedule_slip_s = 0.0
        self.time_to_first_token = Histogram(
            "vllm:time_to_first_token_seconds", "Time to first token in seconds.", _FIRST_TOKEN_S
        )
        self.inter_token_latency = Histogram(
            "vllm:inter_token_latency_seconds", "Time between two tokens in seconds.", _PER_TOKEN_S
        )
        self.time_per_output_token = Histogram(
            "vllm:request_time_per_output_token_seconds",
            "Mean time per output token of a request in seconds.",
            _PER_TOKEN_S,
        )
        self.e2e_request_latency = Histogram(
            "vllm:e2e_request_latency_seconds", "Time from arrival to last token in seconds.", _REQUEST_S
        )
        self.request_queue_time = Histogram(
            "vllm:request_queue_time_seconds", "Time a request waited in seconds.", _REQUEST_S
        )
        self.iteration_tokens = Histogram(
            "vllm:iteration_tokens_total", "Tokens computed per engine step.", _TOKENS
        )
        self.step_lateness = Histogram(
            "simserver_step_lateness_seconds",
            "How much later than its simulated end a step's tokens were sent: the server's own fault.",
            _LATENESS_S,
        )
        self.step_writing = Histogram(
            "simserver_step_writing_seconds",
            "How long it took to write a step's tokens, from the first to the last.",
            _LATENESS_S,
        )
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def page(self) -> bytes:
        """The whole page in the Prometheus text format."""
        return generate_latest(self._registry)

    def observe_finished(self, request: Request, reason: str) -> None:
        """Account for a request whose answer is whole."""
        self.finished[reason] += 1
        first_s, last_s, admitted_s = request.first_token_at_s, request.last_token_at_s, request.admitted_at_s
        assert first_s is not None
        assert last_s is not None
        assert admitted_s is not None
        self.e2e_request_latency.observe(last_s - request.arrived_at_s)
        self.request_queue_time.observe(max(0.0, admitted_s - request.arrived_at_s))
        if request.emitted_tokens > 1:
            self.time_per_output_token.observe((last_s - first_s) / (request.emitted_tokens - 1))

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily]:
        engine, totals = self._engine, self._engine.totals
        names, values = ("model_name", "engine"), (self._model, ENGINE_LABEL)
        for name, about, value in (
            ("vllm:num_requests_running", "Requests in the running batch.", engine.running),
            ("vllm:num_requests_waiting", "Requests waiting to be admitted.", engine.waiting),
            ("vllm:kv_cache_usage_perc", "KV-cache use; 1 is full.", engine.kv_cache_used_ratio),
        ):
            gauge = GaugeMetricFamily(name, about, labels=names)
            gauge.add_metric(values, value)
            yield gauge
        for name, about, value in (
            (
                "vllm:num_preemptions",
                "Requests put back to waiting for want of KV cache.",
                totals.preemptions,
            ),
            (
                "vllm:prompt_tokens",
                "Prompt tokens of the requests that reached a token.",
                totals.prompt_tokens,
            ),
            ("vllm:generation_tokens", "Tokens generated.", totals.generation_tokens),
            ("vllm:prefix_cache_queries", "Prompt tokens looked up.", totals.prefix_queries),
            ("vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache.", totals.prefix_hits),
        ):
            counter = CounterMetricFamily(name, about, labels=names)
            counter.add_metric(values, value)
            yield counter
        success = CounterMetricFamily(
            "vllm:request_success", "Requests that ended, by reason.", labels=(*names, "finished_reason")
        )
        for reason in SUCCESS_REASONS:
            success.add_metric((*values, reason), self.finished[reason])
        yield success
        rejections = CounterMetricFamily(
            "vllm:admission_rejections",
            "Requests rejected by a queue limit, by reason.",
            labels=("model_name", "reason"),
        )
        for rule, reason in REJECTION_REASONS.items():
            if reason == "max_num_queued_reqs" or self.rejected[rule]:
                rejections.add_metric((self._model, reason), self.rejected[rule])
        yield rejections
        slips = CounterMetricFamily(
            "simserver_schedule_slip_seconds",
            "Time by which the simulated schedule was moved because the process had stood still.",
            labels=names,
        )
        slips.add_metric(values, self.schedule_slip_s)
        yield slips
        for histogram in (
            self.time_to_first_token,
            self.inter_token_latency,
            self.time_per_output_token,
            self.e2e_request_latency,
            self.request_queue_time,
            self.iteration_tokens,
            self.step_lateness,
            self.step_writing,
        ):
            family = HistogramMetricFamily(histogram.name, histogram.about, labels=names)
            family.add_metric(values, *histogram.buckets())
            yield family
