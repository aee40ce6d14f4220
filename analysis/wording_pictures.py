"""The words of the report's figures and of the page around them; a part of the table in wording.py."""

from __future__ import annotations

PICTURES_TEXT: dict[str, str] = {
    # around the page
    "skip": "Skip to the figures",
    "theme": "Light / dark",
    "print": "Print",
    "copy": "Copy",
    "copied": "Copied",
    "copy_failed": "Select it and copy by hand",
    "reset_zoom": "Reset zoom",
    # the time line
    "ttft_band": "p50 to p95",
    "axis_server": "requests at<br>the server",
    "axis_kv": "KV cache<br>in use",
    "line_waiting": "waiting",
    "line_running": "running",
    "line_kv": "KV cache in use",
    "dots_preempted": "preemptions",
    "hover_kv": "%{y:.1%}<extra>KV cache in use</extra>",
    "hover_preempted": "%{customdata} preemptions until %{x:.1f} s<extra></extra>",
    "server_caption": "Waiting, running and KV cache are what the server said of itself ({samples} samples).",
    "failures_all": "Every one of the {all} requests that did not succeed is counted in its row.",
    # bursts side by side
    "panels_caption": "TTFT of each burst's requests by the time since its start, on shared axes. Shaded: "
    "the burst; the upright line: recovered, or drained.",
    "panels_threshold": "Dashed: the threshold that recovery is judged by.",
    "panels_hardest": "The {shown} hardest of {all} bursts (longest recovery, then highest peak), in order "
    "of time.",
    "panels_thinned": "At most {most} dots a panel, the lowest and highest among them.",
    "panel_title": "<b>burst {number}</b> at {at}: {end}",
    "panel_recovered": "{time}",
    "panel_censored": "> {time}",
    "panel_not_seen": "not seen",
    "panel_all": "median of all bursts",
    "panel_dots": "requests",
    "panel_lost": "not succeeded",
    "panel_median": "median of this burst",
    "hover_lost": "not succeeded, at %{x:.2f} s<extra></extra>",
    "hover_panel_dot": "TTFT %{y:.3s}s, at %{x:.2f} s<extra></extra>",
    # distributions
    "ecdf_words": "Share of all decided requests that succeeded within each time; failures are what is "
    "missing at the top.",
    "ttft_ecdf_caption": "Time to first token",
    "tpot_ecdf_caption": "Time per output token",
    "e2e_ecdf_caption": "End to end",
    "axis_e2e_s": "E2E (s, log scale)",
    "curve": "{name} (n={n})",
    "curve_at_limit": "{name}: {share} ≤ {limit} (n={n})",
    "curves_lost": "Not succeeded: {parts}.",
}
