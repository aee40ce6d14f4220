"""Every sentence of the report from Locust CSV: what the files say, and plainly what they cannot."""

from __future__ import annotations

from analysis.csv_run import CsvRun
from analysis.locust_bursts import HOLD_S, UNCERTAINTY_S
from analysis.numbers import count, percent, plain

TEXT: dict[str, str] = {
    "counted": "{n} requests (by type: {counted}).",
    "not_counted": "Not counted as requests: {left_out}; --request-types GET,POST chooses others.",
    "mixed": "Locust's Aggregated row counts {n}, metric events among them, and is not used.",
    "not_met": "not met",
    "title": "Locust CSV: {prefix}",
    "badge_partial": "PARTIAL",
    "badge_csv": "FROM LOCUST CSV",
    "when": "{began} to {ended} ({span} s).",
    "answer_percentiles": "{n} requests, {failed} of them failed. The median was {p50}, the p95 {p95}{how}.",
    "answer_average": "{n} requests, {failed} of them failed. The average was {average}{how}.",
    "answer_how": ", failed requests included",
    "answer_recovery_1": " The burst was recovered from in at most {time} s.",
    "answer_recovery": " Of {all} bursts {n} were seen to be recovered from, in at most {time} s each.",
    "answer_not_seen": " Bursts found: {all}; no recovery was seen.",
    "answer_nothing": "No request is in these files, so there is nothing to say about the server.",
    "over_time": "Over time",
    "over_time_caption": "Rebuilt from the differences of Locust's counts; each figure stands at the moment "
    "its "
    "requests ended. {percentiles} Where no request ended there is a gap, not 0.",
    "caption_bursts_users": "Orange: bursts, found in the number of users.",
    "caption_bursts_counts": "Orange: bursts, found in the counts of ended requests.",
    "caption_window": "p50 and p95 are Locust's, over about the 10 s before.",
    "caption_mean_only": "The mean is of what ended in each interval; the file's percentiles are not shown "
    "over "
    "time because they are totals since the start.",
    "caption_no_percentiles": "The file has no percentiles.",
    "caption_events": "Counts here are of all events, metric events included, for the history has no rows by "
    "name; a mean of them would mean nothing.",
    "thinned": "{shown} of {all} rows' worth of points are drawn: rates are averages and percentiles the "
    "highest "
    "of their neighbours.",
    "no_history": "There is no _stats_history.csv, so nothing can be said about the course of the run.",
    "short_history": "The history has too few rows to show the course of the run.",
    "axis_time": "time since the start of the run (s)",
    "axis_users": "users",
    "axis_rate": "ended<br>requests/s",
    "axis_events": "events/s",
    "axis_times": "response<br>time (ms)",
    "axis_failures": "failures/s",
    "line_users": "users",
    "line_rate": "ended per second",
    "line_mean": "mean of what ended",
    "line_percentile": "{level} of 10 s",
    "line_failures": "failures per second",
    "percentiles": "Percentiles",
    "percentiles_head": "percentile|in the file, failures with the time they took|failures as infinite",
    "percentiles_caption": "All requests. {origin} (rounded): only two figures are left of it.",
    "origin_aggregated": "From Locust's Aggregated row.",
    "origin_one row": "From the one row that counts as requests.",
    "origin_several rows": "Bounds from the rows by name, whose percentiles cannot be joined.",
    "origin_none": "There are none.",
    "n_too_small": "n too small",
    "names": "By name",
    "names_head": "type and name|requests|failed|average|min|{levels}|max",
    "names_caption": "Request rows, most requests first; times of failed requests are among them, and Locust "
    "has rounded the percentiles.",
    "others": "others ({n} names)",
    "metrics": "Metric events",
    "metrics_caption": "Rows that Locust lists like requests but that are measurements of some; values as "
    "fired, "
    "taken to be ms.",
    "failures": "Failures",
    "no_failures": "No failure is in these files.",
    "failures_untold": "{n} requests failed; the file that would say how (_failures.csv) is not there or "
    "empty.",
    "failures_head": "count|type and name|error",
    "failures_caption": "As Locust recorded them, most frequent first.",
    "exceptions_head": "count|exception in the test's own code",
    "other_errors": "{n} further kinds of error are not shown.",
    "recovery": "Bursts and recovery",
    "bursts_head": "burst|from – to|peak|requests ended in it|worst 10 s median|recovery, upper bound",
    "bursts_caption": "Recovery counts from a burst's end, or from its start where it was found in the "
    "counts.",
    "no_bursts": "No burst was found: neither the users nor the ended requests rose to twice their quiet "
    "level "
    "and fell again.",
    "method": "Back = the median of Locust's 10 s windows stays within {limit} for {hold} s; quiet windows "
    "had "
    "a median of {base}. The figure is an upper bound and may be up to {more} s too high (−0/+{more} s: 10 s "
    "window, 3 s reports of workers, 1 s rows); nothing is subtracted.",
    "counts_source": "The bursts were found in the counts of ended requests, which stay high until a queue "
    "is "
    "worked off, so their recovery counts from the burst's start.",
    "no_recovery_cumulative": "No recovery can be given: the percentiles in this history are totals since "
    "the "
    "start, which a burst moves for the rest of the run. Run Locust with --csv-full-history to get windows.",
    "no_recovery_absent": "No recovery can be given: the history has no percentiles.",
    "no_recovery_baseline": "No recovery can be given: there are too few quiet windows to compare with.",
    "recovery_line": "burst {n} ({start} – {end} s): recovery ≤ {time} s, an upper bound (−0/+{more} s)",
    "censored_line": "burst {n} ({start} – {end} s): recovery not seen in the {watched} s watched",
    "at_most": "≤ {time} s",
    "not_seen": "not seen in {watched} s",
    "unknown_recovery": "cannot be given",
    "mostly_failed": "half or more failed",
    "files": "Files",
    "files_head": "what|file",
    "runs_head": "run in the history|began|ended|events counted",
    "runs_caption": "The counts started afresh {n} times (statistics reset, or a new test in the web UI). "
    "The "
    "last run with a request is reported.",
    "cut_rows": "{n} rows after the end of the run were cut.",
    "limits": "What these files cannot tell",
}

KIND_WORDS = {
    "window": "The percentiles in the history are those of about the last 10 s.",
    "cumulative": "The percentiles in the history are totals since the start of the run (or the run was too "
    "short "
    "to tell): they say nothing about a moment, so they are not drawn over time and give no recovery.",
    "absent": "The history has no percentiles.",
}


def cannot_tell(run: CsvRun, slo: str | None) -> list[str]:
    """What the files do not hold, most important first."""
    said = [
        "Exact percentiles: Locust rounds times to two figures from 100 ms on and to whole ms below before "
        "it "
        "takes percentiles, so one can lie above the maximum (then ≤ the maximum is printed).",
        "SLO attainment: the share of requests within a limit is not computable from rounded percentiles"
        + (f' (asked: "{slo}").' if slo else "."),
    ]
    if run.totals.failures:
        share = percent(run.totals.failed_ratio)
        said.append(
            f"Times of the successes alone: Locust's averages and percentiles hold the failed requests "
            f"({share} failed) with the time they took. Bounds are given instead."
        )
    said.append(
        "When requests were sent: everything is counted when a request ends, so a burst of slow requests "
        "shows "
        "up late, and what was still in flight at the end is missing."
    )
    if run.history is not None:
        said.append(KIND_WORDS[run.history.kind])
    if run.history is not None and run.mixed and run.history.counted == "events":
        said.append("The course of the requests alone: the history only has the total of all events.")
    said.append(
        "The last seconds: Locust does not write its files once more when it ends (1 s, up to 10 s lost)."
    )
    if not run.metrics:
        said.append("TTFT and TPOT: no such event was fired, so there are only whole response times.")
    return said


def recovery_words(run: CsvRun) -> list[str]:
    """Bursts and recoveries as lines of text, or why there are none."""
    history, found = run.history, run.bursts
    if history is None:
        return [TEXT["no_history"]]
    if not found.bursts:
        return [TEXT["no_bursts"]]
    if history.kind != "window":
        return [TEXT[f"no_recovery_{history.kind}"]]
    if found.threshold_ms is None or found.baseline_ms is None:
        return [TEXT["no_recovery_baseline"]]
    words = [
        TEXT["method"].format(
            limit=f"{plain(found.threshold_ms)} ms",
            hold=plain(HOLD_S),
            base=f"{plain(found.baseline_ms)} ms",
            more=plain(UNCERTAINTY_S),
        )
    ]
    if found.bursts[0].source == "counts":
        words.append(TEXT["counts_source"])
    for number, burst in enumerate(found.bursts[:12], 1):
        line = "recovery_line" if burst.recovery_at_most_s is not None else "censored_line"
        words.append(
            TEXT[line].format(
                n=number,
                start=plain(burst.start_s),
                end=plain(burst.end_s),
                time=plain(burst.recovery_at_most_s),
                watched=plain(burst.watched_s),
                more=plain(UNCERTAINTY_S),
            )
        )
    if len(found.bursts) > 12:
        words.append(f"... and {count(len(found.bursts) - 12)} further bursts.")
    return words
