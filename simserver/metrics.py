"""/metrics in vLLM's names, labels and buckets, plus the server's own lateness.

Gauges are those of the last step's end, as vLLM's are: what came during a step shows when it is over. Numbers
are kept as plain integers and lists, because a histogram is touched once per token; the Prometheus client
turns them into families when somebody asks.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from simserver.engine import Engine
from simserver.histograms import (
    CHOICES,
    FIRST_TOKEN_S,
    PER_TOKEN_S,
    PREEMPTIONS,
    REQUEST_S,
    STEP_TOKENS,
    Histogram,
    request_tokens,
)
from simserver.request import Request

ENGINE_LABEL = "0"
START_TIME = "process_start_time_seconds"
_LATENESS_S = tuple(
    round(decade * digit, 6) for decade in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1) for digit in (1, 1.5, 2, 3, 5, 7)
)

SUCCESS_REASONS = ("stop", "length", "abort", "error", "repetition")
REJECTION_REASONS = {
    "requests": "max_num_queued_reqs",
    "queued-tokens": "max_num_queued_tokens",
    "waiting": "max_queued_requests",
    "prefill-backlog": "prefill_backlog",
}
"""The reasons of vllm:admission_rejections by rule of admission; the first two are vLLM's own."""
VLLM_REASONS = ("max_num_queued_reqs", "max_num_queued_tokens")


class Metrics(Collector):
    """Everything /metrics says about one engine serving one model."""

    def __init__(self, engine: Engine, model: str, max_model_len: int) -> None:
        self._engine = engine
        self._model = model
        self.finished: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.http: Counter[tuple[str, str, str]] = Counter()
        self.cancelled = 0
        self.schedule_slip_s = 0.0
        self.open_requests = 0
        self.look()
        tokens = request_tokens(max_model_len)
        self.time_to_first_token = Histogram(
            "vllm:time_to_first_token_seconds", "Time to first token in seconds.", FIRST_TOKEN_S
        )
        self.inter_token_latency = Histogram(
            "vllm:inter_token_latency_seconds", "Time between two tokens in seconds.", PER_TOKEN_S
        )
        self.time_per_output_token = Histogram(
            "vllm:request_time_per_output_token_seconds",
            "Mean time per output token of a request in seconds.",
            PER_TOKEN_S,
        )
        self.iteration_tokens = Histogram(
            "vllm:iteration_tokens_total", "Tokens computed per engine step.", STEP_TOKENS
        )
        self.step_lateness = Histogram(
            "simserver_step_lateness_seconds",
            "How much later than its simulated end a step's tokens were sent: the server's own fault.",
            _LATENESS_S,
        )
        self._of_request = {
            name: Histogram(f"vllm:{name}", about, edges)
            for name, about, edges in (
                ("e2e_request_latency_seconds", "Time from arrival to last token in seconds.", REQUEST_S),
                ("request_queue_time_seconds", "Time a request waited in seconds.", REQUEST_S),
                ("request_inference_time_seconds", "Time from start to last token in seconds.", REQUEST_S),
                ("request_prefill_time_seconds", "Time from start to first token in seconds.", REQUEST_S),
                ("request_decode_time_seconds", "Time from first to last token in seconds.", REQUEST_S),
                ("request_prompt_tokens", "Prompt tokens of a request.", tokens),
                ("request_generation_tokens", "Tokens generated for a request.", tokens),
                ("request_max_num_generation_tokens", "The most tokens of any of its choices.", tokens),
                ("request_params_max_tokens", "The longest answer asked for.", tokens),
                ("request_params_n", "Choices asked for.", CHOICES),
                ("request_num_preemptions", "Times a request was put back to waiting.", PREEMPTIONS),
                ("request_prefill_kv_computed_tokens", "Prompt tokens that were not cached.", tokens),
            )
        }
        self.step_writing = Histogram(
            "simserver_step_writing_seconds",
            "How long it took to write a step's tokens, from the first to the last.",
            _LATENESS_S,
        )
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._registry.register(_Process(time.time()))

    def also(self, collector: Collector) -> None:
        """Put another's metrics on the page."""
        self._registry.register(collector)

    def page(self) -> bytes:
        """The whole page in the Prometheus text format."""
        return generate_latest(self._registry)

    def look(self) -> None:
        """A step has ended, or nothing is left to do: what the gauges say from now on."""
        self.queue = self._engine.queue
        self._kv_cache_used_ratio = self._engine.kv_cache_used_ratio

    def observe_finished(self, request: Request, reason: str, n: int, max_tokens: int) -> None:
        """Account for a sequence whose answer is whole; `n` and `max_tokens` as its request gave them."""
        self.finished[reason] += 1
        first_s, last_s, admitted_s = request.first_token_at_s, request.last_token_at_s, request.admitted_at_s
        assert first_s is not None
        assert last_s is not None
        assert admitted_s is not None
        for name, value in (
            ("e2e_request_latency_seconds", last_s - request.arrived_at_s),
            ("request_queue_time_seconds", max(0.0, admitted_s - request.arrived_at_s)),
            ("request_inference_time_seconds", last_s - admitted_s),
            ("request_prefill_time_seconds", first_s - admitted_s),
            ("request_decode_time_seconds", last_s - first_s),
            ("request_prompt_tokens", request.prompt_tokens),
            ("request_generation_tokens", request.emitted_tokens),
            ("request_max_num_generation_tokens", request.emitted_tokens),
            ("request_params_max_tokens", max_tokens),
            ("request_params_n", n),
            ("request_num_preemptions", request.preemptions),
            ("request_prefill_kv_computed_tokens", request.prompt_tokens - request.cached_prompt_tokens),
        ):
            self._of_request[name].observe(value)
        if request.emitted_tokens > 1:
            self.time_per_output_token.observe((last_s - first_s) / (request.emitted_tokens - 1))

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily]:
        names, values = ("model_name", "engine"), (self._model, ENGINE_LABEL)
        yield from self._gauges(names, values)
        yield from self._counters(names, values)
        for histogram in (
            self.time_to_first_token,
            self.inter_token_latency,
            self.time_per_output_token,
            self.iteration_tokens,
            self.step_lateness,
            self.step_writing,
            *self._of_request.values(),
        ):
            family = HistogramMetricFamily(histogram.name, histogram.about, labels=names)
            family.add_metric(values, *histogram.buckets())
            yield family

    def _gauges(self, names: tuple[str, ...], values: tuple[str, ...]) -> Iterator[GaugeMetricFamily]:
        queue = self.queue
        for name, about, value in (
            ("vllm:num_requests_running", "Requests in the running batch.", queue.running),
            ("vllm:num_requests_waiting", "Requests waiting to be admitted.", queue.waiting),
            ("vllm:kv_cache_usage_perc", "KV-cache use; 1 is full.", self._kv_cache_used_ratio),
            ("simserver_open_requests", "Requests let in whose answer has not ended.", self.open_requests),
        ):
            gauge = GaugeMetricFamily(name, about, labels=names)
            gauge.add_metric(values, value)
            yield gauge
        by_reason = GaugeMetricFamily(
            "vllm:num_requests_waiting_by_reason", "Requests waiting, by reason.", labels=(*names, "reason")
        )
        by_reason.add_metric((*values, "capacity"), queue.waiting)
        by_reason.add_metric((*values, "deferred"), 0)
        yield by_reason

    def _counters(self, names: tuple[str, ...], values: tuple[str, ...]) -> Iterator[CounterMetricFamily]:
        totals = self._engine.totals
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
            ("vllm:prompt_tokens_cached", "Those of them that were cached.", totals.cached_prompt_tokens),
            ("vllm:generation_tokens", "Tokens generated.", totals.generation_tokens),
            ("vllm:prefix_cache_queries", "Prompt tokens looked up.", totals.prefix_queries),
            ("vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache.", totals.prefix_hits),
            (
                "simserver_schedule_slip_seconds",
                "Time by which the simulated schedule was moved because the process had stood still.",
                self.schedule_slip_s,
            ),
            (
                "simserver_requests_cancelled",
                "Sequences whose client left; vLLM 0.32 counts them nowhere.",
                self.cancelled,
            ),
        ):
            counter = CounterMetricFamily(name, about, labels=names)
            counter.add_metric(values, value)
            yield counter
        sources = CounterMetricFamily(
            "vllm:prompt_tokens_by_source",
            "Prompt tokens, by where they came from.",
            labels=(*names, "source"),
        )
        sources.add_metric((*values, "local_compute"), totals.prompt_tokens - totals.cached_prompt_tokens)
        sources.add_metric((*values, "local_cache_hit"), totals.cached_prompt_tokens)
        sources.add_metric((*values, "external_kv_transfer"), 0)
        yield sources
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
            if reason in VLLM_REASONS or self.rejected[rule]:
                rejections.add_metric((self._model, reason), self.rejected[rule])
        yield rejections
        http = CounterMetricFamily(
            "http_requests", "Requests by method, status and handler.", labels=("handler", "method", "status")
        )
        for which, number in sorted(self.http.items()):
            http.add_metric(which, number)
        yield http


class _Process(Collector):
    """What the Prometheus client says of the process, but for its start: a server that comes back after a
    simulated crash is a new one."""

    def __init__(self, started_at_s: float) -> None:
        self._started_at_s = started_at_s
        self._process = ProcessCollector(registry=CollectorRegistry())

    def collect(self) -> Iterator[Metric]:
        for family in self._process.collect():
            if family.name != START_TIME:
                yield family
        yield GaugeMetricFamily(
            START_TIME, "Start time of the server since the Unix epoch in seconds.", value=self._started_at_s
        )
