"""Loads by Locust against a real server: before a load, in one piece, turned away, and a burst."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from analysis.load import load_run
from analysis.recovery import HOLD_S
from analysis.summary import summarize
from bench.findings import Finding
from bench.real_servers import Server
from bench.server_page import Page, QueueSample, QueueWatch, fetch_page, queue_gone_at_s
from client.preflight import preflight
from client.target import Target
from experiments.launch import LaunchError, last_lines, run_load
from runlog.exit_codes import ExitCode
from runlog.folder import read_requests, read_run_info
from runlog.record import RequestRecord

SALVO = "1s,40,1s,20"
"""The second salvo finds the queue full: vLLM says so by a status, and in the first by an error event."""

FORMS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("one piece", "chat", ("--no-stream", "true")),
    ("completions", "completions", ()),
    ("responses", "responses", ()),
)
"""Name, endpoint and options of the loads that are not streamed chat."""

BURST = 30
BEFORE_S, AFTER_S = 20.0, 40.0
WIDTH_S = 0.1
"""Length of the burst: 30 requests within it are as good as at once."""

SLOW_S = 1.0
"""A small request (8 tokens) takes 0.4 s on two free cores."""

TOO_LATE = "the load ends too early for this server to show it: ask for fewer --burst-tokens"

LEAST_RISE = 5.0
AGREE_WITHIN_S = 3.0
TTFT_WITHIN = 0.10
_SETTLE_S = 1.0


@dataclass(frozen=True)
class LoadResult:
    """A load that has ended, as our report tells it and as the server's pages before and after do.

    `preflight` has the requests, input_tokens and output_tokens that the run sent before its load: the server
    counts them, the records don't. `started_s` is the load's start on the wall clock.
    """

    summary: dict[str, Any]
    records: list[RequestRecord]
    started_s: float
    before: Page
    after: Page
    preflight: dict[str, int]
    samples: list[QueueSample]


def load(
    server: Server, runs: Path, name: str, *options: str, endpoint: str = "chat", watch: bool = False
) -> LoadResult:
    """Run Locust with locustfiles/chat.py and these options against the server. Raises LaunchError when no
    run came about.
    """
    before = fetch_page(server.url, server.key)
    gauge = QueueWatch(server.url, server.names.waiting, server.key) if watch else None
    with gauge or nullcontext():
        run = run_load(
            [
                *("--host", server.url, "--model", server.model, "--runs-dir", str(runs), "--run-name", name),
                *("--slo", "none", "--dialect", "vllm", "--endpoint", endpoint, *options),
            ],
            runs / "logs" / name,
            env={"LOAD_API_KEY": server.key or ""},
        )
        time.sleep(_SETTLE_S)
    after = fetch_page(server.url, server.key)
    if run.folder is None:
        raise LaunchError(f"the run {name} did not begin:\n{last_lines(run.log)}")
    info = read_run_info(run.folder)
    return LoadResult(
        summary=summarize(load_run(run.folder)),
        records=list(read_requests(run.folder)),
        started_s=datetime.fromisoformat(info.started_at or "").timestamp(),
        before=before,
        after=after,
        preflight=info.server["preflight"],
        samples=gauge.samples if gauge else [],
    )


def check_refused_run(server: Server, runs: Path) -> Iterator[Finding]:
    """A run for a model that is not served sends no load and ends with its exit code."""
    run = run_load(
        ["--host", server.url, "--model", "no-such-model", "--run-time", "5s", "--runs-dir", str(runs)],
        runs / "logs" / "refused",
        env={"LOAD_API_KEY": server.key or ""},
    )
    said = "is not served at" in run.log.read_text(errors="replace")
    good = run.exit_code == ExitCode.PREFLIGHT_REFUSED and said and run.folder is None
    seen = f"exit code {run.exit_code}, {'with' if said else 'without'} the reason"
    yield Finding("run: refused before any load", good, seen)


def check_forms(server: Server, runs: Path) -> Iterator[Finding]:
    """A small load in each form but the usual one: all succeed, tokens are the server's."""
    for form, endpoint, more in FORMS:
        target = Target(server.url, server.model, server.key, endpoint=endpoint)
        if preflight(target, dialect="vllm").refused == "no_endpoint":
            yield Finding(f"{form}: every request succeeds", None, f"this server has no {target.path}")
            continue
        options = ("--run-time", "4s", "--rate", "4", "--output-tokens", "16", *more)
        found = load(server, runs, form.replace(" ", "-"), *options, endpoint=endpoint)
        yield from _all_succeeded(found, form)
        timed, records = sum(row.ttft_s is not None for row in found.records), len(found.records)
        expected = 0 if "--no-stream" in more else records
        yield Finding(f"{form}: TTFT where there is a stream", timed == expected, f"{timed} of {records}")
        yield from _same_tokens(server, found, form)


def check_turned_away(server: Server, runs: Path) -> Iterator[Finding]:
    """More at once than the server's queue limit, and more while it is full: what we call rejected is what it
    counts as rejected, however it says so.
    """
    options = ("--shape", "salvo", "--salvo", SALVO, "--output-tokens", "200")
    found = load(server, runs, "turned-away", *options)
    counts = found.summary["counts"]
    classes = Counter(record.failure_class for record in found.records if record.outcome == "rejected")
    how = ", ".join(f"{count} x {name}" for name, count in classes.most_common()) or "none"
    turned_away = found.after.since(found.before, server.names.rejected)
    if turned_away is None:
        yield Finding("overload: rejected as the server counts", None, "it counts no rejections")
    else:
        good = counts["rejected"] == turned_away > 0
        seen = f"ours {counts['rejected']} ({how}), server {turned_away:g} of {counts['scheduled']}"
        yield Finding("overload: rejected as the server counts", good, seen)
    rest = counts["succeeded"] + counts["rejected"] == counts["scheduled"]
    seen = f"{counts['succeeded']} succeeded, {counts['failed']} failed"
    yield Finding("overload: the others succeed", rest, seen)
    yield from _same_tokens(server, found, "overload")


def check_burst(server: Server, runs: Path, tokens: int = 32) -> Iterator[Finding]:
    """A calm rate, a burst, the same calm rate: TTFT, recovery and tokens as told by us and by the server.

    Each answer has `tokens`: together they decide how long the burst lasts on this server.
    """
    _tell_speed(server)
    length_s = BEFORE_S + AFTER_S
    mean = 1.0 + BURST / length_s
    found = load(
        server,
        runs,
        "burst",
        *("--shape", "pulse", "--arrivals", "constant", "--rate", f"{mean:g}"),
        *("--peak-ratio", f"{BURST / WIDTH_S / mean:.4f}", "--width", f"{WIDTH_S * 1000:g}ms"),
        *("--period", f"{length_s:g}s", "--lead", f"{BEFORE_S:g}s", "--run-time", f"{length_s:g}s"),
        *("--input-tokens", "60", "--output-tokens", str(tokens)),
        watch=True,
    )
    yield from _all_succeeded(found, "burst")
    reasons = "; ".join([*found.summary["verdict_reasons"], *found.summary["warnings"]])
    verdict = found.summary["verdict"]
    seen = f"{verdict}: {reasons}" if reasons else verdict
    yield Finding("burst: the run is VALID", verdict == "VALID", seen)
    yield from _rise_and_recovery(found)
    yield from _same_ttft(server, found)
    yield from _same_tokens(server, found, "burst")


def _tell_speed(server: Server) -> None:
    """Print what a small request takes by itself: where that is long, one a second is no calm rate."""
    target = Target(server.url, server.model, server.key)
    preflight(target, dialect="vllm")  # the first one may warm the server up
    alone = preflight(target, dialect="vllm")
    ttft_s, took_s = alone.first_token_s or 0.0, alone.duration_s or 0.0
    print(f"  a small request by itself: TTFT {ttft_s * 1000:.0f} ms, {took_s:.1f} s in all", flush=True)
    if took_s > SLOW_S:
        print("  that is slow: with one a second this machine has no calm to come back to", flush=True)


def _rise_and_recovery(found: LoadResult) -> Iterator[Finding]:
    burst = found.summary["bursts"][0]
    calm_s, peak_s = found.summary["recovery"]["baseline_ttft_s"], burst["peak_ttft_s"]
    rise = peak_s / calm_s if calm_s and peak_s else None
    yield Finding(
        f"burst: TTFT rises at least {LEAST_RISE:g}-fold",
        rise is not None and rise >= LEAST_RISE,
        "unknown" if rise is None else f"{calm_s * 1000:.0f} ms -> {peak_s:.2f} s, {rise:.0f}-fold",
    )
    ended_s = found.started_s + burst["end_s"]
    deepest = max((row.waiting or 0 for row in found.samples), default=0)
    gone_s = queue_gone_at_s(found.samples, ended_s)
    slowest = max((row.told_at_s - row.asked_at_s for row in found.samples), default=0.0)
    yield Finding(
        "burst: the server's queue fills and empties",
        deepest > 0 and gone_s is not None,
        f"{deepest:g} waiting at most; {len(found.samples)} scrapes, the slowest took {slowest:.2f} s",
    )
    ours_s, theirs_s = burst["recovery_s"], None if gone_s is None else gone_s - ended_s
    seen = f"by TTFT {_seconds(ours_s)} ({burst['method']}), queue empty after {_seconds(theirs_s)}"
    if ours_s is None and deepest and not time_to_recover(theirs_s):
        seen += f"; {TOO_LATE}"
    agree = ours_s is not None and theirs_s is not None and abs(ours_s - theirs_s) <= AGREE_WITHIN_S
    yield Finding(
        f"burst: recovery as by the queue, ± {AGREE_WITHIN_S:g} s",
        agree and burst["method"] == "baseline",
        seen,
    )


def time_to_recover(queue_gone_s: float | None) -> bool:
    """Was enough of the load left, once the queue was gone, for a recovery to show by TTFT?"""
    return queue_gone_s is not None and queue_gone_s + HOLD_S + AGREE_WITHIN_S <= AFTER_S


def _same_ttft(server: Server, found: LoadResult) -> Iterator[Finding]:
    claim = f"burst: mean TTFT as the server's, ± {TTFT_WITHIN:.0%}"
    theirs = found.after.mean_since(found.before, server.names.ttft)
    ours = [record.ttft_s for record in found.records if record.ttft_s is not None]
    if theirs is None or not ours:
        yield Finding(claim, None, "it has no histogram of TTFT")
        return
    mean_s = sum(ours) / len(ours)
    both = f"ours {mean_s * 1000:.0f} ms ({len(ours)}), server {theirs[0] * 1000:.0f} ms ({theirs[1]})"
    before = found.preflight["requests"]
    good = abs(mean_s / theirs[0] - 1) <= TTFT_WITHIN and theirs[1] == len(ours) + before
    yield Finding(claim, good, f"{both}, {before} of them the preflight's")


def _all_succeeded(found: LoadResult, what: str) -> Iterator[Finding]:
    counts = found.summary["counts"]
    good = counts["succeeded"] == counts["scheduled"] > 0
    other = ", ".join(f"{row['count']} x {row['class']}" for row in found.summary["failures"])
    seen = f"{counts['succeeded']} of {counts['scheduled']}{'; ' if other else ''}{other}"
    yield Finding(f"{what}: every request succeeds", good, seen)


def _same_tokens(server: Server, found: LoadResult, what: str) -> Iterator[Finding]:
    """Tokens of all records, plus those of the preflight."""
    names = server.names
    for kind, counter in (("input", names.input_tokens), ("output", names.output_tokens)):
        claim = f"{what}: {kind} tokens as the server counts"
        theirs = found.after.since(found.before, counter)
        if theirs is None:
            yield Finding(claim, None, "it does not count them so")
            continue
        before = found.preflight[f"{kind}_tokens"]
        ours = sum(getattr(record, f"{kind}_tokens") or 0 for record in found.records)
        yield Finding(claim, ours + before == theirs, f"ours {ours} + preflight {before}, server {theirs:g}")


def _seconds(value: float | None) -> str:
    return "not seen" if value is None else f"{value:.1f} s"
