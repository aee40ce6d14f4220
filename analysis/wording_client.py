"""The report's labels and sentences about the load generator itself; a part of wording.TEXT."""

from __future__ import annotations

LOAD_GENERATOR_TEXT: dict[str, str] = {
    "load_generator": "How far to trust the load generator",
    "load_generator_head": "measure|value|limit|what it says",
    "load_generator_caption": "Its own error in this run. What is over a limit is among the checks above.",
    "three": "{p50} / {p99} / {max}",
    "two": "{first} / {second}",
    "no_limit": "–",
    "own_bound": "seconds as the bottleneck",
    "own_bound_value": "{seconds} of {of} s",
    "own_bound_says": "seconds in which a worker's CPU, event loop, read lag or send lag passed its limit; "
    "hatched in the time line",
    "own_send_lag": "send lag, p50 / p99 / max",
    "own_send_lag_says": "sent − scheduled, less connecting; above {gross} at p99 the run is void",
    "own_read_lag": "read lag, p50 / p99 / max",
    "own_read_lag_says": "from the kernel's receive stamp to our reading it, at the first or last token; "
    "times are the kernel's, so this is not in them while it stays below a chunk gap",
    "own_no_read_lag_says": "there were no kernel stamps, so the event loop's lag is in the times and is "
    "judged instead",
    "own_stamps": "receive stamps",
    "own_stamps_says": "kernel: exact whatever we are doing; user: taken when we got round to reading",
    "own_crowded": "receives with several events",
    "own_crowded_value": "{share} ({events} events a receive)",
    "own_crowded_says": "events in one receive share its stamp: single chunk gaps are as coarse as that, and "
    "a TTFT can be late by one lump",
    "own_tiny_gaps": "chunk gaps below 0.1 ms",
    "own_loop_lag": "event loop lag, p99 / max",
    "own_loop_lag_says": "of the worst worker; {limit} as the p99 of any one second",
    "own_cpu": "CPU, busiest second / mean",
    "own_cpu_says": "of one core, of the busiest worker",
    "own_cpu_free_says": "of one core, of the busiest worker: it had CPU to spare by its own count, so other "
    "processes took the cores or something blocked its event loop",
    "own_connections": "connections",
    "own_connections_says": "connecting took {p50} / {p99} / {max} (p50 / p99 / max){tls}; requests sent "
    "again because a kept connection had been closed: {again}",
    "own_connections_kept": "no request had to wait for one{tls}; requests sent again because a kept "
    "connection had been closed: {again}",
    "own_tls": ", with TLS",
    "own_tls_took": ", of it TLS {p50} / {p99} / {max}",
    "share_of": "{name} {share}",
    "count_of": "{count} {name}",
    "workers": "Workers",
    "workers_head": "worker|planned|kept|CPU, busiest second|CPU, mean|loop lag p99|loop lag, max|"
    "as the bottleneck|clock uncertainty|lost at",
    "workers_caption": "Each worker's share of the load and its own error; CPU is of one core.",
    "not_lost": "–",
    "bars_client_bound": "load generator was the bottleneck",
    "client_bound_hover": "{start} – {end} s: the load generator was the bottleneck<br>{why}",
    "client_bound_why": "worker {worker}: {why}",
    "worker_unknown": "unknown",
    "client_bound_caption": "Hatched grey: seconds in which the load generator itself was the bottleneck; "
    "their figures are not the server's.",
    "sent_at_once": "At sending: planned for one moment, {whose} requests left within {spread}.",
    "sent_one": "the burst's",
    "sent_each": "each burst's",
    "sent_late": "At sending: requests of bursts left {p50} late at the median (of the worst burst), "
    "{max} at most.",
    "sent_fresh": "{share} of the run's requests opened a connection of their own{tls}, which took {p50} at "
    "the median and {p99} at p99; a request leaves when its connection is open, so such a burst is less "
    "exact than over kept connections.",
    "sent_tls": "Requests went over TLS, which costs CPU at sending and makes a burst a little less exact.",
}
