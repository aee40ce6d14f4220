"""What the report says of the load generator: how far to trust it, and how exactly its bursts left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.client_bound import MOST_CPU_RATIO, MOST_LOOP_LAG_S, whole_seconds
from analysis.load import Run
from analysis.lumps import MOST_TINY_GAPS_RATIO
from analysis.numbers import UNKNOWN, count, percent, plain, seconds
from analysis.page import Html, Section, element, join, noted, table
from analysis.trust import ON_TIME_S
from analysis.wording import TEXT

MOST_WORKERS = 64
MOSTLY_FRESH = 0.5
SAME_MOMENT_S = 0.001


def load_generator(run: Run, summary: Mapping[str, Any]) -> Section:
    """The run's own error in one table, when it was the bottleneck, and its workers."""
    own = summary["own_error"]
    bound = own["client_bound"]
    told = element("p", _sentence(bound["told"]), class_="reading")
    made = table(
        TEXT["load_generator_head"].split("|"),
        [*_timing_rows(own), *_machine_rows(own)],
        numeric=(1, 2),
        wide=(3,),
        caption=TEXT["load_generator_caption"],
    )
    return Section("load_generator", TEXT["load_generator"], join([told, made, _workers(run, own)]))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _timing_rows(own: Mapping[str, Any]) -> list[tuple[object, ...]]:
    bound, seen = own["client_bound"], own["receives"]
    kernel = bool(own["stamps"].get("kernel"))
    bound_value = TEXT["own_bound_value"].format(seconds=bound["seconds"], of=whole_seconds(bound["of_s"]))
    crowded = TEXT["own_crowded_value"].format(
        share=percent(seen["crowded_ratio"]), events=plain(seen["events_per_receive"])
    )
    return [
        (TEXT["own_bound"], bound_value, _at_most("0 s"), TEXT["own_bound_says"]),
        (
            TEXT["own_send_lag"],
            _three(own["send_lag_s"]),
            _at_most(seconds(ON_TIME_S)),
            TEXT["own_send_lag_says"].format(gross=seconds(own["sent_in_time_limit_s"])),
        ),
        (
            TEXT["own_read_lag"],
            _three(own["read_lag_s"]),
            _at_most(seconds(own["read_lag_limit_s"])),
            TEXT["own_read_lag_says" if kernel else "own_no_read_lag_says"],
        ),
        (TEXT["own_stamps"], _shares(own["stamps"]), TEXT["no_limit"], TEXT["own_stamps_says"]),
        (
            TEXT["own_crowded"],
            crowded if seen["receives"] else UNKNOWN,
            TEXT["no_limit"],
            TEXT["own_crowded_says"],
        ),
        (
            TEXT["own_tiny_gaps"],
            percent(seen["tiny_gap_ratio"]),
            _at_most(percent(MOST_TINY_GAPS_RATIO)),
            seen["told"],
        ),
    ]


def _machine_rows(own: Mapping[str, Any]) -> list[tuple[object, ...]]:
    loop = TEXT["two"].format(first=seconds(own["loop_lag_p99_s"]), second=seconds(own["loop_lag_max_s"]))
    cpu = TEXT["two"].format(first=percent(own["cpu_peak_ratio"]), second=percent(own["cpu_mean_ratio"]))
    limit = _at_most(seconds(MOST_LOOP_LAG_S))
    windows = own["client_bound"]["windows"]
    blocked = any(row["loop_lag_p99_s"] is not None and row["cpu_ratio"] is None for row in windows)
    cpu_free = blocked and own["cpu_peak_ratio"] is not None and own["cpu_peak_ratio"] <= MOST_CPU_RATIO
    cpu_says = TEXT["own_cpu_free_says" if cpu_free else "own_cpu_says"]
    return [
        (TEXT["own_loop_lag"], loop, limit, TEXT["own_loop_lag_says"].format(limit=limit)),
        (TEXT["own_cpu"], cpu, _at_most(percent(MOST_CPU_RATIO)), cpu_says),
        (TEXT["own_connections"], _connections(own), TEXT["no_limit"], _connecting(own)),
    ]


def _connections(own: Mapping[str, Any]) -> str:
    found = own["connections"]
    return (
        ", ".join(TEXT["count_of"].format(count=count(found[name]), name=name) for name in sorted(found))
        or UNKNOWN
    )


def _connecting(own: Mapping[str, Any]) -> str:
    words = TEXT["own_connections_says" if own["connect_s"]["p50"] is not None else "own_connections_kept"]
    lags = {name: seconds(value) for name, value in own["connect_s"].items()}
    tls = TEXT["own_tls"] if own["tls"] else ""
    if own["tls_s"]["p50"] is not None:
        tls = TEXT["own_tls_took"].format(**{name: seconds(value) for name, value in own["tls_s"].items()})
    return words.format(**lags, tls=tls, again=count(own["sent_again"]))


def _workers(run: Run, own: Mapping[str, Any]) -> Html:
    workers = run.info.workers
    if not workers:
        return Html("")
    rows: list[tuple[object, ...]] = [
        (
            noted(str(worker.index), f"{worker.host}, pid {worker.pid}"),
            count(worker.planned),
            count(worker.kept),
            percent(load["cpu_peak_ratio"]),
            percent(load["cpu_mean_ratio"]),
            seconds(load["loop_lag_p99_s"]),
            seconds(load["loop_lag_max_s"]),
            seconds(load["bound_s"]),
            seconds(worker.clock_uncertainty_s),
            TEXT["not_lost"] if worker.lost_at_s is None else seconds(worker.lost_at_s),
        )
        for worker, load in zip(workers[:MOST_WORKERS], own["by_worker"], strict=False)
    ]
    head = TEXT["workers_head"].split("|")
    if len(workers) > MOST_WORKERS:
        rows.append((TEXT["others"], count(len(workers) - MOST_WORKERS), *[""] * (len(head) - 2)))
    made = table(head, rows, numeric=range(1, len(head)), caption=TEXT["workers_caption"])
    return join([element("h3", TEXT["workers"]), made])


def sending_words(summary: Mapping[str, Any]) -> Html:
    """How exactly the bursts left in this run, and what connections of their own or TLS did to that."""
    own = summary["own_error"]
    sent = [row["sending"] for row in summary["bursts"] if row["sending"]["sent_spread_s"] is not None]
    words = []
    if sent and all(row["planned_spread_s"] < SAME_MOMENT_S for row in sent):
        words.append(
            TEXT["sent_at_once"].format(
                whose=TEXT["sent_one" if len(sent) == 1 else "sent_each"],
                spread=_range([row["sent_spread_s"] for row in sent]),
            )
        )
    elif late := [row for row in sent if row["send_lag_max_s"] is not None]:
        worst_s = max(row["send_lag_p50_s"] for row in late)
        most_s = max(row["send_lag_max_s"] for row in late)
        words.append(TEXT["sent_late"].format(p50=seconds(worst_s), max=seconds(most_s)))
    every = sum(own["connections"].values())
    fresh = own["connections"].get("new", 0) / every if every else 0.0
    if words and fresh >= MOSTLY_FRESH and own["connect_s"]["p50"] is not None:
        words.append(
            TEXT["sent_fresh"].format(
                share=percent(fresh),
                tls=TEXT["own_tls"] if own["tls"] else "",
                p50=seconds(own["connect_s"]["p50"]),
                p99=seconds(own["connect_s"]["p99"]),
            )
        )
    elif words and own["tls"]:
        words.append(TEXT["sent_tls"])
    return element("p", " ".join(words), class_="reading") if words else Html("")


def _range(values: list[float]) -> str:
    low, high = seconds(min(values)), seconds(max(values))
    return low if low == high else TEXT["range"].format(low=low, high=high)


def _three(lags: Mapping[str, Any]) -> str:
    if lags["p50"] is None:
        return UNKNOWN
    return TEXT["three"].format(**{name: seconds(lags[name]) for name in ("p50", "p99", "max")})


def _shares(counts: Mapping[str, int]) -> str:
    every = sum(counts.values())
    shown = [TEXT["share_of"].format(name=name, share=percent(n / every)) for name, n in counts.items()]
    return ", ".join(shown) or UNKNOWN


def _at_most(limit: str) -> str:
    return TEXT["limit_at_most"].format(limit=limit)
