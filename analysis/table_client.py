"""The load generator's own error in the text table: a cell for each measure of one summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from analysis.client_bound import whole_seconds
from analysis.numbers import UNKNOWN, percent, seconds

Summary = Mapping[str, Any]
MOST_WORKERS = 4


def lags(key: str) -> Callable[[Summary], str]:
    """p50 / p99 / max of `send_lag_s`, `read_lag_s`, `connect_s` or `tls_s`."""

    def show(summary: Summary) -> str:
        found = summary["own_error"][key]
        return (
            UNKNOWN if found["p50"] is None else " / ".join(seconds(found[q]) for q in ("p50", "p99", "max"))
        )

    return show


def stamps(summary: Summary) -> str:
    """Who stamped what was received."""
    found = summary["own_error"]["stamps"]
    every = sum(found.values())
    return ", ".join(f"{name} {percent(n / every)}" for name, n in found.items()) or UNKNOWN


def crowded(summary: Summary) -> str:
    """The share of receives that held several events."""
    return percent(summary["own_error"]["receives"]["crowded_ratio"])


def loop_lag(summary: Summary) -> str:
    """p99 / max of how late the event loop ran."""
    own = summary["own_error"]
    if own["loop_lag_p99_s"] is None and own["loop_lag_max_s"] is None:
        return UNKNOWN
    return f"{seconds(own['loop_lag_p99_s'])} / {seconds(own['loop_lag_max_s'])}"


def cpu(summary: Summary) -> str:
    """CPU of each worker, busiest second / mean; above four workers that of the busiest."""
    rows = summary["own_error"]["by_worker"]
    if not rows or all(row["cpu_peak_ratio"] is None for row in rows):
        return UNKNOWN
    if len(rows) > MOST_WORKERS:
        own = summary["own_error"]
        return f"{percent(own['cpu_peak_ratio'])} / {percent(own['cpu_mean_ratio'])} (most of {len(rows)})"
    return ", ".join(f"{percent(row['cpu_peak_ratio'])} / {percent(row['cpu_mean_ratio'])}" for row in rows)


def bound(summary: Summary) -> str:
    """Seconds in which the load generator was the bottleneck."""
    found = summary["own_error"]["client_bound"]
    return f"{found['seconds']} of {whole_seconds(found['of_s'])} s"


def connections(summary: Summary) -> str:
    """How many were opened and kept, how many requests went again, and whether there was TLS."""
    own = summary["own_error"]
    parts = [f"{own['connections'][name]} {name}" for name in sorted(own["connections"])]
    if own["sent_again"]:
        parts.append(f"{own['sent_again']} sent again")
    if own["tls"] and parts:
        parts.append("TLS")
    return ", ".join(parts) or UNKNOWN


def bound_words(summary: Summary, name: str) -> str:
    """The sentence on client-bound seconds of one run, under its name; "" without any."""
    found = summary["own_error"]["client_bound"]
    return f"{name}: {found['told']}" if found["windows"] else ""
