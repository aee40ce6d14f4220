"""The sentences of the diagnosis, by cause; diagnosis.py decides which of them hold.

In each text {name} is a figure of the finding, written by its unit. An evidence line of which a figure is
unknown is left out. `tries` says what to do next: options by the names that vLLM, SGLang, llama.cpp and this
suite give them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """What one finding says: what happened (one sentence without a full stop), on what evidence, what to
    try."""

    sentence: str
    evidence: tuple[str, ...]
    tries: tuple[str, ...]


_CONTRAST = (
    "TTFT p50 {ttft_calm_s} {calm} → {ttft_crowded_s} {crowded}, TPOT p50 {tpot_calm_s} → {tpot_crowded_s}"
)
_WAITING = "the server had up to {waiting_peak} waiting and {running_peak} running"
_MORE_SERVERS = "add a replica, or let a gateway spread or pace the bursts"

DIAGNOSIS_WORDS: dict[str, Words] = {
    "client": Words(
        "the load generator itself was late, so the figures are not the server's alone",
        (
            "send lag p50 {send_lag_p50_s}, p99 {send_lag_p99_s}",
            "the load generator was the bottleneck in {bound_s} of {of_s}",
            "its busiest worker used {cpu_peak_ratio} of a core",
        ),
        (
            "start more workers (--processes, or workers on other machines than the server's) and run again",
            "keep other work off the machine that sends",
        ),
    ),
    "starved": Words(
        "the load generator was kept waiting by other work on its machine, so the figures are not the "
        "server's alone",
        (
            "send lag p50 {send_lag_p50_s}, p99 {send_lag_p99_s}",
            "the load generator was the bottleneck in {bound_s} of {of_s}",
            "its busiest worker got {cpu_peak_ratio} of a core at most",
        ),
        (
            "keep other work off the machine that sends, or send from another machine, and run again",
            "in a container: give it more CPU",
        ),
    ),
    "connecting": Words(
        "opening connections took {share_ratio} of the time to the first token",
        (
            "connecting took {connect_p50_s} (p50), {connect_p99_s} (p99) on {new} new connections",
            "of it TLS {tls_p50_s}",
        ),
        (
            "raise the server's or proxy's keep-alive time and its listen backlog, so that connections "
            "are kept",
            "end TLS nearer to the clients",
        ),
    ),
    "freeze": Words(
        "the whole server stood still {freezes} time(s), for up to {longest_s}",
        ("no stream got a token from {start_s} to {end_s} after the start; all went on in one moment",),
        (
            "look into the server's log at that moment: garbage collection, graph capture or "
            "compilation, a "
            "checkpoint, a noisy neighbour",
            "warm the server up with requests of every length before the load (--warmup)",
        ),
    ),
    "restart": Words(
        "the server was started anew during the run",
        ("its counts since the start fell back at {restarted_at_s}", "{failed} requests failed"),
        ("look into the server's log before that moment: out of memory, a crash, a rollout",),
    ),
    "failures": Words(
        "{failed} of {of} requests failed, {failed_most} of them as {failed_as}",
        (),
        ("read the error texts under Failures, and the server's log at the moments they carry",),
    ),
    "failures_at_once": Words(
        "{failed} of {of} requests failed at one time, {failed_most} of them as {failed_as}",
        ("90 % of the failures ended between {first_s} and {last_s} after the start",),
        ("look into the server's and the proxy's log at that moment: a crash, a restart, a limit reached",),
    ),
    "rejections": Words(
        "the server turned {rejected} of {of} requests away ({rejected_as})",
        (
            "{rejected_in_bursts_ratio} of them arrived in bursts",
            "it asked to come again after {retry_after_p50_s} (median of Retry-After)",
            _WAITING,
        ),
        (
            "if latency has room: raise the limit (vLLM --max-num-queued-reqs, SGLang "
            "--max-queued-requests, or "
            "the gateway's rate)",
            _MORE_SERVERS,
        ),
    ),
    "kv_cache": Words(
        "the KV cache was too small: requests waited for memory or were set aside in mid-answer",
        (
            "it was {kv_peak_ratio} full at its peak, {preemptions} preemptions",
            "it was short in {full_kv_ratio} of the samples with a queue",
            "those who waited for memory did so for {memory_waited_p50_s} (median)",
            _WAITING,
        ),
        (
            "give it more memory: vLLM --gpu-memory-utilization, SGLang --mem-fraction-static, llama.cpp "
            "--ctx-size, or --kv-cache-dtype fp8 (vLLM), more GPUs (--tensor-parallel-size)",
            "or run fewer at once: vLLM --max-num-seqs, SGLang --max-running-requests; waiting is cheaper "
            "than computing a prompt twice",
        ),
    ),
    "kv_cache_guess": Words(
        "single streams stood still in mid-answer while others went on, as when the KV cache is too small",
        ("{paused} requests paused, the longest for {longest_s}",),
        (
            "watch preemptions and KV cache use (vllm:num_preemptions, vllm:kv_cache_usage_perc); if "
            "they rise: "
            "vLLM --gpu-memory-utilization, SGLang --mem-fraction-static",
        ),
    ),
    "queue": Words(
        "requests queued for a free place in the batch: first tokens were late, tokens then came as "
        "fast as ever",
        (
            _CONTRAST,
            "those who waited did so for {waited_p50_s} (median); prompts account for {busy_ratio} of "
            "it at most",
            _WAITING,
            "the batch was full in {at_slots_ratio} of the samples with a queue; KV cache "
            "{kv_peak_ratio} full at "
            "its peak",
        ),
        (
            "while TPOT and KV cache have room: raise vLLM --max-num-seqs, SGLang --max-running-requests, "
            "llama.cpp --parallel (with --ctx-size)",
            _MORE_SERVERS,
        ),
    ),
    "queue_before": Words(
        "requests queued in front of the server's scheduler, in a proxy, its HTTP threads or its tokenizer",
        (
            _CONTRAST,
            "up to {awaiting_peak} requests waited for a first token, the server's own queue held "
            "{waiting_peak}",
        ),
        (
            "look at what lies before the scheduler: the proxy's limits, vLLM --api-server-count, "
            "llama.cpp "
            "--threads-http",
        ),
    ),
    "prefill": Words(
        "computing prompts was the bottleneck: requests waited for each other's prompts",
        (
            "prompts of {input_p50_tokens} tokens (median), at most {prompt_tokens_per_s} tokens/s computed",
            "while late requests waited, prompts kept the server busy for about {busy_ratio} of the time",
            "prompts of others took {others_ratio} of the time between the tokens of slow streams",
            _CONTRAST,
            _WAITING,
        ),
        (
            "shorten or share prompts (prefix caching), or add prefill capacity: a replica or a faster GPU",
            "trade TTFT against TPOT by the budget of a step: vLLM --max-num-batched-tokens, SGLang "
            "--chunked-prefill-size, llama.cpp --batch-size; larger helps TTFT, smaller helps TPOT",
            "vLLM --long-prefill-token-threshold keeps long prompts from blocking short ones",
        ),
    ),
    "prefill_own": Words(
        "a request's own prompt took most of its time to the first token, without any queue",
        (
            "a prompt of {input_p50_tokens} tokens (median) takes {alone_s} when alone, {alone_ratio} "
            "of the TTFT "
            "of late requests",
        ),
        (
            "shorten or share prompts (prefix caching), more GPUs (--tensor-parallel-size) or a faster "
            "one; or "
            "allow more time in the SLO",
        ),
    ),
    "decode": Words(
        "decoding was the bottleneck: the more streams at once, the slower each of them",
        (
            "TPOT {tpot_few_s} with {streams_few} streams at once → {tpot_many_s} with {streams_many}, "
            "correlation {correlation}",
            "the server ran up to {running_peak} at once",
        ),
        (
            "run fewer at once (vLLM --max-num-seqs, SGLang --max-running-requests, llama.cpp "
            "--parallel): TPOT "
            "falls, TTFT rises",
            "for both: a replica, more GPUs (--tensor-parallel-size) or smaller weights (quantization)",
        ),
    ),
    "decode_alone": Words(
        "tokens came slower than the SLO allows even with few streams: the model is too slow on this "
        "hardware",
        ("TPOT is {tpot_few_s} with {streams_few} streams at once, the SLO wants {tpot_limit_s}",),
        (
            "smaller weights (quantization), more GPUs (--tensor-parallel-size), speculative decoding; "
            "or allow "
            "more time in the SLO",
        ),
    ),
    "stale": Words(
        "kept connections turned out closed when they were used again",
        ("{sent_again} requests went again over a new connection, {stale} were lost",),
        ("let the server or proxy keep idle connections open for longer than the pauses between bursts",),
    ),
    "lumps": Words(
        "tokens came in lumps, {tiny_gap_ratio} of the chunk gaps are below 0.1 ms",
        ("made by the {lumps_made_by}",),
        (
            "read TPOT, not chunk gaps; for smooth streams switch off buffering in the proxy and lower "
            "--stream-interval (vLLM, SGLang)",
        ),
    ),
    "lumps_client": Words(
        "tokens were read in lumps, because the load generator came late: {tiny_gap_ratio} of the chunk "
        "gaps are "
        "below 0.1 ms",
        (),
        ("start more workers; read TPOT, not chunk gaps",),
    ),
    "short": Words(
        "answers were shorter than asked, so less work was done than planned",
        ("{got_mean} tokens came on average, {asked_mean} were asked for",),
        ("choose a --dialect that forces lengths (ignore_eos), and compare only runs with the same lengths",),
    ),
    "long": Words(
        "answers were longer than asked, so more work was done than planned",
        ("{got_mean} tokens came on average, {asked_mean} were asked for",),
        ("see whether the server takes the limit on tokens under another name (--dialect)",),
    ),
    "cached": Words(
        "a part of the prompts came from the server's prefix cache: TTFT is better than for fresh prompts",
        ("{cached_ratio} of the input tokens were cached, by the server's count",),
        (
            "compare only with runs of the same share, or start the server without it (vLLM "
            "--no-enable-prefix-caching, SGLang --disable-radix-cache)",
        ),
    ),
    "unexplained": Words(
        "{unexplained_ratio} of the harmed requests show the evidence of no cause known here",
        ("{unexplained} of {harmed} harmed requests",),
        ("see the slowest requests below, and the server's log at their moments",),
    ),
}

DIAGNOSIS_TEXT: dict[str, str] = {
    "diagnosis": "What happened and what to do",
    "strength_strong": "sure",
    "strength_likely": "likely",
    "strength_hint": "a hint",
    "calm_phases": "in quiet times",
    "crowded_phases": "in bursts",
    "calm_in_flight": "with few in flight",
    "crowded_in_flight": "with most in flight",
    "diagnosis_head": "what happened|how sure|harm explained|try next",
    "diagnosis_caption": "By the share of the harmed requests that show the evidence; one can show several. "
    "The load generator comes first where it was at fault.",
    "harm_slo": "{harmed} of {of} requests missed the SLO.",
    "harm_calm": "{harmed} of {of} requests were harmed: failed, or clearly slower than the run's own "
    "quickest "
    "ones (no SLO was given).",
    "harm_none": "No request was harmed: nothing stood in the way.",
    "harm_not_yet": "No request was harmed; what was seen all the same:",
    "harm_nothing": "There was no request to be harmed.",
    "no_harm_share": "–",
    "no_server_samples": "The server's own metrics were not recorded (no server_metrics.csv): queue, "
    "batch and "
    "KV cache are judged by the requests alone.",
    "told": "{strength}{sentence}",
    "told_evidence": "{strength}{sentence} ({evidence})",
    "told_strong": "",
    "told_likely": "likely, ",
    "told_hint": "perhaps, ",
    "told_nothing": "nothing stood in the way: no request was harmed",
    "told_no_cause": "{harmed} of {of} requests were harmed, and no cause known here shows in the records",
    "try_server_metrics": "record the server's own metrics, so that its queue and KV cache can be seen",
    "why": "Why:",
    "note": "Note:",
    "try": "Try:",
}
