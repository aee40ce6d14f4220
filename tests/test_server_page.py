"""A metrics page read to totals, and the moment at which the queue was gone."""

from __future__ import annotations

import pytest

from bench.server_page import NoNames, Page, QueueSample, names_on, queue_gone_at_s, read_page

PAGE = """\
# HELP vllm:num_requests_waiting Waiting.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="a"} 3.0
vllm:num_requests_waiting{engine="1",model_name="a"} 4.0
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0"} 120.0
vllm:generation_tokens_created{engine="0"} 1.7e+09
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1"} 2.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"} 5.0
vllm:time_to_first_token_seconds_count{engine="0"} 5.0
vllm:time_to_first_token_seconds_sum{engine="0"} 2.5
"""
TTFT = "vllm:time_to_first_token_seconds"


def test_label_sets_are_summed_and_what_is_not_there_is_unknown() -> None:
    page = read_page(PAGE)
    assert page.of("vllm:num_requests_waiting") == 7
    assert page.of("vllm:generation_tokens_total") == 120
    assert page.of("vllm:prompt_tokens_total") is None
    assert page.of(None) is None


def test_a_difference_between_two_pages() -> None:
    page = read_page(PAGE)
    later = Page({**page.totals, "vllm:generation_tokens_total": 150, "new_total": 2})
    assert later.since(page, "vllm:generation_tokens_total") == 30
    assert later.since(page, "new_total") == 2  # a labelled counter is there from its first count on
    assert later.since(page, "never") is None


def test_the_mean_of_what_a_histogram_took_in_between() -> None:
    """5 values summing to 2.5 s before, 8 summing to 8.5 s after: three of 2 s each."""
    page = read_page(PAGE)
    later = Page({f"{TTFT}_sum": 8.5, f"{TTFT}_count": 8})
    assert later.mean_since(page, TTFT) == (2.0, 3)
    assert page.mean_since(page, TTFT) is None
    assert later.mean_since(page, "other") is None
    assert later.mean_since(page, None) is None


def test_the_kind_of_server_is_known_by_its_names() -> None:
    assert names_on(read_page(PAGE)).server == "vLLM"
    assert names_on(Page({"llamacpp:requests_deferred": 0.0})).server == "llama.cpp"
    with pytest.raises(NoNames, match=r"vLLM, llama\.cpp"):
        names_on(Page({"sglang:num_queue_reqs": 0.0}))


def test_a_page_that_is_none() -> None:
    with pytest.raises(NoNames, match="is no Prometheus page"):
        read_page("<html>not found</html>")


def watched(*waiting: float | None) -> list[QueueSample]:
    """Samples every 0.5 s from 100 s on, each answered within 0.1 s."""
    return [QueueSample(100 + k / 2, 100.1 + k / 2, held) for k, held in enumerate(waiting)]


@pytest.mark.parametrize(
    ("waiting", "gone_at_s"),
    [
        ((0, 0, 22, 14, 6, 0, 0), 102.6),
        ((0, 0, 22, 0, 6, 0, 0), 102.6),  # a dip is not the end
        ((0, 0, 22, 14, None, None, 0), 103.1),  # no answer is no zero
        ((0, 0, 22, 14, 6), None),  # still held at the end
        ((0, 0, 22, 14, None), None),
        ((0, 0, 0, 0), None),  # never held
        ((9, 9, 0, 0), None),  # only held before
        ((), None),
    ],
)
def test_the_queue_is_gone_at_the_first_empty_sample_after_the_last_that_held(
    waiting: tuple[float | None, ...], gone_at_s: float | None
) -> None:
    assert queue_gone_at_s(watched(*waiting), after_s=101.0) == gone_at_s


def test_a_scrape_asked_before_and_told_after_the_moment_counts() -> None:
    """It waited behind the burst, and tells of the burst."""
    samples = [QueueSample(99.0, 101.5, 12), QueueSample(101.5, 101.6, 0)]
    assert queue_gone_at_s(samples, after_s=101.0) == 101.6
