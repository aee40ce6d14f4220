"""The report's labels and sentences about intervals, groups and single bursts; a part of wording.TEXT."""

from __future__ import annotations

STATISTICS_TEXT: dict[str, str] = {
    # intervals that count bursts
    "by_burst_burst": "In bursts, counting bursts instead of requests: {low} – {high} (95 %, {bursts} "
    "bursts, design effect {effect}).",
    "by_burst_whole": "Over the whole run, counting bursts with what follows them: {low} – {high} (95 %, "
    "{bursts} bursts, design effect {effect}).",
    "by_burst_few": "Few bursts hold all that was missed (or met), so it allows for one that was not seen.",
    "by_burst_none": "No interval that counts bursts: {why}.",
    # bursts that no plan named
    "one_found_burst": "The burst found in the arrivals (none was planned)",
    "each_found_burst": "Each of {n} bursts found in the arrivals (none was planned)",
    # what bursts left behind
    "aftermath": "What each burst left behind",
    "aftermath_one": "When it ended: {what}.",
    "aftermath_several": "When a burst ended (median over bursts): {what}.",
    "aftermath_backlog_at_end": "{value} requests were in flight",
    "aftermath_drain_s": "the last of its own had its first token {value} later",
    "aftermath_degraded_request_s": "until the next burst, requests waited {value} s beyond the recovery "
    "threshold, all added up",
    "aftermath_range": " ({low} to {high})",
    "aftermath_head": "burst|in flight at its end|its last first token, after its end|requests later than "
    "the threshold|beyond it, added up (s)",
    "aftermath_queue_head": "server's queue empty, after its end",
    "aftermath_caption": "From a burst's start until the next. Added up: over these requests, what TTFT was "
    "above the threshold of recovery (request-seconds); those that failed have none.",
    "aftermath_lost": "and {lost} failed",
    "aftermath_least": "> {time}",
    "amplified": "TTFT in bursts was {times}.",
    "amplified_at": "{times} times the quiet one at {quantile}",
    # how --rate auto found the rate
    "calibration": "How the rate was found (--rate auto)",
    "calibration_found": "The best step that held reached about {capacity} requests/s; the mean rate is "
    "{share} of it: {rate} requests/s.",
    "calibration_at_least": "The last step still held, with {capacity} requests/s, so the server may take "
    "more; the mean rate is {share} of it: {rate} requests/s.",
    "calibration_head": "in flight|throughput (requests/s)|TTFT mean|TTFT p95|TPOT mean|ended / sent|held",
    "calibration_caption": "A short closed loop before the load, step by step; in no figure of the load.",
    "calibration_ended": "{ended} / {requests}",
    "calibration_held": "yes",
    "tile_by_burst": "; 95 % over bursts {low} – {high}",
}
