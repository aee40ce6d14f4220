"""Every label and sentence of the report in one table, so that another language is another table.

Heads of tables are one text, their columns parted by "|".
"""

from __future__ import annotations

from analysis.wording_client import LOAD_GENERATOR_TEXT
from analysis.wording_pictures import PICTURES_TEXT

TEXT: dict[str, str] = {
    # the page
    "contents": "Contents",
    "footer": "Made from the records of this run alone; this page asks nothing of any network.",
    "run_line": "run {run} · model {model} · {target} · started {started}",
    "closed_line": " · closed loop: a slow server slows the load",
    "log_linear": "TTFT axis: log / linear",
    "unknown": "n/a",
    "others": "others",
    "range": "{low} – {high}",
    "todo": " → {advice}.",
    "yes": "yes",
    "no": "no",
    "hidden": "(hidden)",
    "n_too_small": "n too small",
    "not_met": "∞ (a failure)",
    "phase_whole": "whole run",
    "phase_quiet": "quiet",
    "phase_burst": "in bursts",
    "phase_recovery": "recovering",
    # the answer
    "say_no_users": "Nothing was sent, so there is nothing to say about the server.",
    "say_nothing_sent": "Nothing was sent ({scheduled} requests were scheduled), so there is nothing to say "
    "about the server.",
    "say_nothing_planned": "The plan held no request, so nothing was sent: give a higher --rate or a longer "
    "--run-time.",
    "say_too_slow": "The load generator itself was too slow, so this run does not tell what the load did to "
    "the server.",
    "say_too_slow_reached": "The load generator itself was too slow, so this run does not tell what the load "
    "did to the server: {ratio} of the planned requests were sent in time.",
    "say_no_success": "Not one of the {sent} requests sent succeeded{why}; there is no latency to report.",
    "say_mostly": " ({share} of all ended as {name})",
    "say_steady": "Under {shape} load of {load} the median TTFT was {p50} and its p95 {p95}{errors}.",
    "load_rate": "{rate} requests/s",
    "load_users": "{users} users",
    "say_bursts": "{burst} {effect}{errors}.",
    "one_salvo": "The burst of {size} requests at once",
    "each_salvo": "Each burst of {size} requests at once",
    "one_burst": "The burst",
    "each_burst": "Each burst",
    "one_burst_of": "The burst of {ratio}× the mean rate",
    "one_burst_of_users": "The burst of {ratio}× the mean number of users",
    "each_burst_of_users": "Each burst of {ratio}× the mean number of users",
    "each_burst_of": "Each burst of {ratio}× the mean rate",
    "unharmed": "left the server as it was: median TTFT {base} when quiet, {peak} in its worst two seconds",
    "raised": "raised the median TTFT from {base} (quiet) to {peak} in its worst two seconds",
    "peaked": "brought the median TTFT to {peak} in its worst two seconds",
    "peak_failed": "made at least half of the requests of its worst two seconds fail",
    "peak_unknown": "left no TTFT to judge it by",
    "hurt": "{raised} and hurt for {time} after it ended ({tail})",
    "hurt_no_longer": "{raised}, but not beyond its end ({tail})",
    "drained": "{raised} and took {time} after it ended until its last request had an answer",
    "longer": "{raised} and hurt for more than {least} after it ended ({tail})",
    "unconfirmed": "{raised}; how long it hurt was not seen ({tail})",
    "watched_too_short": "{tail}; burst {number} was watched for {observed} only, a recovery "
    "needs {hold} of calm: {advice}",
    "longer_run": "give a longer run time",
    "longer_pauses": "leave more time between bursts",
    "drained_of": "{recovered} of {all} drained",
    "recovered_of": "{recovered} of {all} bursts seen to recover",
    "and_errors": "; {ratio} of the requests failed or were rejected",
    "at_least": "> {time}",
    "not_seen": "not seen",
    "slo_met": "SLO met",
    "slo_missed": "SLO missed",
    "slo_unjudged": "SLO cannot be judged",
    "unjudged": "The SLO cannot be judged: {why}.",
    "share_demanded": "The SLO wants {share} of the requests to meet {text}; {ratio} did.",
    "percentile_demanded": "The SLO wants {text}; it was {value}.",
    # the five numbers
    "tile_slo": "SLO attainment",
    "tile_no_slo": 'no SLO was given (--slo "ttft<1s,tpot<50ms")',
    "tile_no_request_limit": "the SLO has no limit per request, only percentiles: see SLO attainment",
    "tile_none_decided": "no request had an end of its own",
    "tile_slo_interval": "95 % interval {low} – {high}",
    "tile_slo_phases": "{burst} in bursts, {quiet} quiet",
    "tile_slo_limit": "; {limit} is what was missed",
    "tile_slo_unjudged": "cannot be judged: {why}",
    "tile_ttft": "Median TTFT",
    "tile_ttft_phases": "Median TTFT of all requests, quiet → in bursts",
    "tile_ttft_bursts": "Median TTFT of all requests in bursts",
    "tile_from_schedule": ", from schedule",
    "tile_arrow": "{quiet} → {burst}",
    "tile_p95": "95 % intervals {quiet_interval} → {burst_interval}; p95 {quiet} → {burst}",
    "tile_none_measured": "none was measured",
    "tile_p50_p95": "95 % interval {interval}; p95 {p95}",
    "tile_interval": "95 % interval {low} – {high}; ",
    "more_warnings": "and {count} more warnings",
    "more_reasons": "and {count} more, in the checks",
    "tile_tpot": "Median TPOT",
    "tile_recovery": "Median recovery time",
    "tile_drain": "Median drain time",
    "tile_throughput": "Throughput (finished in the window)",
    "tile_goodput": "{goodput} req/s met the SLO (by arrival)",
    "tile_tokens": "{tokens} output tokens/s",
    "per_second": "{rate} req/s",
    "tile_errors": "Failed or rejected",
    "counted": "{count} {what}",
    "none_lost": "none lost",
    "of_sent": "{parts}; {sent} sent",
    # the time line
    "over_time": "Over time",
    "time_line_caption": "Everything stands at the moment its request arrived, except in flight, finished "
    "and the server's own. TTFT lines are over the requests that had a first token. Drag across any row to "
    "zoom all of them.",
    "shaded_caption": "Shaded: bursts (orange) and, in the TTFT row, what followed until TTFT was back "
    "(yellow, with its seconds) or, in purple, was not seen to be back.",
    "thinned": "{shown} of {all} requests are drawn as dots; the lowest and highest of every moment are "
    "among them, and the lines and bands are over all.",
    "probes_caption": "Probes (diamonds) are outside all figures of the load; recovery is judged by them "
    "where the load is silent.",
    "events_caption": "Dashed lines: events, listed below.",
    "axis_time": "time since the start of the run (s)",
    "axis_rate": "requests/s",
    "axis_in_flight": "requests<br>in flight",
    "axis_ttft": "TTFT (s)",
    "axis_failures": "failures<br>per {width} s",
    "line_planned": "planned rate",
    "line_asked": "scheduled",
    "line_sent": "sent",
    "line_finished": "finished by the server",
    "line_in_flight": "in flight",
    "line_users": "users wanted",
    "dots_probe": "probes",
    "dots_event": "events",
    "hover_probe": "probe: TTFT %{y:.3s}s<br>sent at %{x:.3f} s<extra></extra>",
    "hover_event": "%{x:.1f} s: %{customdata}<extra></extra>",
    "dots_quiet": "quiet",
    "dots_burst": "in a burst",
    "dots_recovery": "recovering",
    "ttft_p50": "p50 in {width} s",
    "ttft_p95": "p95 in {width} s",
    "hover_dot": "request %{customdata}: TTFT %{y:.3s}s<br>arrived at %{x:.3f} s<extra></extra>",
    "slo_limit": "SLO {limit}",
    "mark_recovered": "{time}",
    "mark_censored": "> {time}",
    "mark_not_seen": "not seen",
    # bursts
    "bursts": "Bursts",
    "no_bursts": "This load had no bursts; recovery does not apply.",
    "bursts_head": "burst|from – to|requests|TTFT, median of the worst 2 s|above quiet|recovery|met the SLO",
    "bursts_caption": "Recovery counts from a burst's planned end.",
    "bursts_users_head": "in flight / users wanted",
    "of_users": "{seen} / {users}",
    "other_bursts": "Bursts {first} to {last} of {all}",
    "span": "{start} – {end} s",
    "moment": "at {start} s",
    "mostly_failed": "half or more failed",
    "censored_note": "censored: watched for {observed}",
    "too_short_note": "watched for {observed} only; a recovery needs {hold} of calm: {advice}",
    "drain_note": "drain time",
    "method_baseline": "Recovered = the median TTFT of every 2 s window (by arrival, failures counting "
    "as infinite) stays "
    "within {limit} for 10 s; quiet requests had a median of {base}, counted so.",
    "method_probes": "The load is silent between bursts, so probes tell: recovered = their median TTFT in "
    "every 2 s window (failures counting as infinite) stays within {limit} for 10 s; quiet probes had a "
    "median of {base}. Peaks are the load's own.",
    "method_slo": "There were no quiet requests to compare with, so recovered = the median TTFT of "
    "every 2 s window stays "
    "within the SLO's {limit} for 10 s.",
    "method_drain": "Nothing arrived after a burst to judge recovery by, so this is the drain time: "
    "from the burst's end "
    "until the last of its requests had its first token.",
    "censored_words": "{censored} of {all} bursts are censored: the next burst or the end of the load "
    "came before "
    "recovery could be confirmed, so only a lower bound is known.",
    "axis_since_burst": "arrival, time since the burst's start (s)",
    # latency
    "latency": "Latency",
    "late_words": "Requests were not sent to the millisecond, so TTFT counts from the scheduled moment here: "
    "our own lateness is in it.",
    "no_success": "No request succeeded, so there are no latencies.",
    "axis_share": "share of requests (%)",
    "axis_ttft_s": "TTFT (s, log scale)",
    "axis_ttft_from_schedule_s": "TTFT from schedule (s, log scale)",
    "axis_tpot_s": "TPOT (s per token, log scale)",
    "percentiles_head": "metric|n|mean|p50|p90|p95|p99|p99.9|max",
    "percentiles_caption": "Whole run. Exact percentiles of the succeeded requests; below each its 95 % "
    "interval.",
    "phases_caption": "By phase of arrival, succeeded requests.",
    "adjusted": "{label}, failures as infinite",
    "metric_in_phase": "{label}, {phase}",
    "more_metrics": "Further metrics",
    # SLO
    "slo": "SLO attainment",
    "no_slo": "No SLO was given, so there is no attainment and no goodput. Give one with the run "
    '(--slo "ttft<1s,tpot<50ms") or afterwards with the report.',
    "slo_words": "A request meets the SLO when it meets every limit of {text}; on the limit is met. "
    "Failed and rejected "
    "requests have missed it.",
    "slo_head": "requests|met|decided|attainment|95 % interval|left out",
    "slo_caption": "Left out: cut off by the run itself before they had missed a limit, or not measured. The "
    "interval "
    "takes requests as "
    "independent; those of one burst are alike, so the truth is wider.",
    "limit_alone": "{text} alone, whole run",
    "goodput_words": "Goodput: {goodput} requests/s met the SLO over the measured window, {bursts} "
    "inside bursts.",
    "percentile_slo_head": "limit|value|at most|n|met",
    "percentile_slo": "Percentile limits, failures counting as infinite.",
    # burstiness
    "burstiness": "Burstiness",
    "no_burstiness": "There was no load to measure.",
    "burstiness_caption": "Of the schedule, of the moments at which requests were sent, and of those at "
    "which answers began (a queue smooths or clumps them). Poisson arrivals have CV, IDC and Allan factor 1.",
    # levels and events
    "levels": "Levels",
    "levels_head_rps": "level (req/s)",
    "levels_head_users": "level (users)",
    "levels_head": "from – to|requests|finished/s|TTFT p50|TTFT p95|TPOT p50|met the SLO|failed or rejected",
    "levels_caption": "A request belongs to the level in whose time it arrived; finished/s are the successes "
    "that ended in that time.",
    "events": "Events",
    "no_events": "Nothing happened beside the requests.",
    "events_head": "at|event|worker|what",
    "events_list_caption": "Beside the requests. Lost workers and amendments change the verdict.",
    "other_events": "{count} more of: {kinds}",
    # failures
    "failures": "Failures",
    "no_failures": "Every request succeeded.",
    "failures_head": "class|whose|count|share of the load|example",
    "failures_caption": "By class. Requests that failed are in no latency figure that is not marked so.",
    "unnamed": "unnamed",
    "texts": "By error text",
    "texts_head": "count|class|text (one example)",
    "texts_caption": "Texts that differ only in ids, numbers or quoted parts are one row.",
    "other_texts": "others: {kinds} further kinds of text",
    # slowest
    "slowest": "Slowest requests",
    "no_answers": "No request had a first token.",
    "slowest_head": "request|arrived|TTFT|send lag|TPOT|E2E|tokens in|tokens out|in flight|outcome",
    "slowest_caption": "The {shown} slowest of {all} by time to first token from the scheduled moment.",
    # checks
    "checks": "Checks",
    "checks_head": "check|result|value|limit|detail",
    "checks_caption": "A failed check makes the run INVALID, or DEGRADED where a named outside cause "
    "explains it; "
    "a warning leaves the verdict as it is.",
    "check_passed": "passed",
    "check_failed": "failed",
    "check_warned": "warning",
    "check_unknown": "no data",
    "limit_at_least": "≥ {limit}",
    "limit_below": "< {limit}",
    "limit_at_most": "≤ {limit}",
    "advice": "What next: {advice}.",
    **LOAD_GENERATOR_TEXT,
    **PICTURES_TEXT,
    # settings
    "settings": "Settings",
    "settings_head": "setting|value",
    "settings_caption": "What was run",
    "again": "Run it again",
    "options": "All options",
    "options_head": "option|value",
    "load_fact": "{shape}, {arrivals} arrivals, mean {rate} requests/s",
    "users_fact": "{shape}, closed loop, mean {users} users, peak {peak}",
    "outside_fact": "{probes} probes and {warmups} warm-up requests, in no figure of the load",
    "duration_fact": "{load} of load, up to {drain} of drain after it",
    "ended_fact": "{at} ({state})",
    "fact_run": "run",
    "fact_target": "target",
    "fact_model": "model",
    "fact_engine": "requests made by",
    "engine_direct": "the suite's own client (--engine direct)",
    "engine_openai": "the official openai SDK (--engine openai)",
    "fact_load": "load",
    "fact_outside": "beside the load",
    "fact_seed": "seed",
    "fact_duration": "duration",
    "fact_started": "started",
    "fact_ended": "ended",
    "fact_stopped": "stopped because",
    "fact_schedule": "SHA-256 of the schedule",
    "fact_versions": "versions",
    # lengths
    "lengths": "Lengths, asked and got",
    "lengths_head": "tokens|successes|asked, mean|got, mean|asked, median|got, median|off by more than 5 %",
    "lengths_input": "prompt",
    "lengths_output": "answer",
    "finish_reason": "{reason} {count}",
    "finish_reasons": "Answers ended by: {reasons}.",
    "tokens_per_event": "An event held {tokens} tokens on average, by the server's own count.",
    "lengths_caption": "Tokens that were asked for beside those that came, over the successes whose length "
    "is known. TPOT and tokens per second rest on what came.",
    # terms
    "terms": "Notes and terms",
    "notes": "Good to know about these figures",
    "words": "Terms",
    "note_window": "The measured window is {window}, the load without the drain (at most {drain}); "
    "throughput and goodput "
    "are over it.",
    "note_closed": "This is a closed loop: a slow server slows the load, so its latencies are those of fewer "
    "requests than users would send to a quick one. Figures from schedule exist only for the first request "
    "of a user's turn.",
    "note_successes": "Latency is that of the succeeded requests, in exact percentiles of the raw "
    "records. Where others "
    "failed, a second row counts each of them as infinitely slow.",
    "note_intervals": "Intervals are 95 % order-statistic intervals and take requests as independent. "
    "Where there are too "
    'few requests for one, the percentile reads "n too small" (p95 needs 72, p99 368, p99.9 3,688).',
    "note_estimated": "{estimated} of {all} token counts are estimates: the server sent no usage, so "
    "output events were "
    "counted. TPOT rests on them.",
    "note_cached": "{share} of the input tokens came from the server's prefix cache, by its own count.",
}

OUTCOME = {
    "succeeded": "succeeded",
    "failed": "failed",
    "rejected": "rejected",
    "cancelled": "cut off by the run",
    "not_sent": "not sent",
}
WHOSE = {"server": "server", "network": "network", "client": "our own machine", "run": "the run itself"}
