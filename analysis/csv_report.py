"""CSV files of a Locust run -> one self-contained HTML page, and a text for the terminal.

SECTIONS is the page in order; each renders for an empty, a torn and a huge run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.csv_chart import HEIGHT, MOST_POINTS, history_figure
from analysis.csv_run import CsvRun, load_csv_run
from analysis.csv_summary import (
    IN_THE_FILE,
    MOST_BURSTS_TOLD,
    ROUNDED,
    between,
    counted_words,
    level_name,
    ms,
    summarize_csv,
)
from analysis.csv_wording import TEXT
from analysis.numbers import UNKNOWN, count, percent, plain
from analysis.page import Html, Section, element, figure, join, noted, page, table
from runlog.folder import write_text_atomically

LEAST_ROWS = 3
NAME_LEVELS = (50.0, 90.0, 95.0, 99.0)
LONGEST_NAME = 300
MOST_BURST_ROWS = 100


def write_csv_report(
    prefix: Path,
    out: Path | None = None,
    request_types: Collection[str] | None = None,
    slo: str | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Write the page for the run at `prefix` and return its path and the summary; without `out` it stands
    beside the files as PREFIX_report.html.

    Raises LocustCsvError for files that are none of Locust's, OSError where one cannot be read or written.
    """
    run = load_csv_run(prefix, request_types)
    found = summarize_csv(run, slo)
    path = out or run.csv.prefix.with_name(f"{run.csv.prefix.name or 'locust'}_report.html")
    write_text_atomically(path, csv_report_html(run, found))
    return path, found


def csv_report_html(run: CsvRun, found: Mapping[str, Any]) -> str:
    """The page as the text of one HTML file that needs no network."""
    sections = [make(run, found) for make in SECTIONS]
    return page(TEXT["title"].format(prefix=run.csv.prefix.name), _header(run, found), sections)


def _header(run: CsvRun, found: Mapping[str, Any]) -> Html:
    badges = [element("span", TEXT["badge_csv"], class_="badge warn")]
    if run.partial:
        badges.append(element("span", TEXT["badge_partial"], class_="badge bad"))
    history = found["history"]
    when = TEXT["when"].format(**history, span=plain(history["duration_s"])) if history else ""
    reasons = [*found["partial"], *found["notices"]]
    box = element("ul", *(element("li", line) for line in reasons), class_="reasons warn") if reasons else ""
    return join(
        [
            element("h1", *badges, run.csv.prefix.name),
            element("p", _answer(found), class_="answer"),
            element("p", " ".join([when, counted_words(dict(found))]), class_="aside"),
            box,
        ]
    )


def _recovered_words(found: Mapping[str, Any]) -> str:
    """What to say of the bursts in the first sentence: the longest upper bound, and how many were not "
    "seen."""
    bursts = found["bursts"]
    if not bursts or found["threshold_ms"] is None:
        return ""
    seen = [row["recovery_at_most_s"] for row in bursts if row["recovery_at_most_s"] is not None]
    if not seen:
        return TEXT["answer_not_seen"].format(all=len(bursts))
    return TEXT["answer_recovery_1" if len(bursts) == 1 else "answer_recovery"].format(
        n=len(seen), all=len(bursts), time=plain(max(seen))
    )


def _answer(found: Mapping[str, Any]) -> str:
    if not found["requests"]:
        return TEXT["answer_nothing"]
    levels = {row["level"]: row["text"] for row in found["percentiles"]}
    return TEXT["answer_percentiles" if levels else "answer_average"].format(
        n=count(found["requests"]),
        failed=percent(found["failed_ratio"]),
        p50=_nearest(levels, 50),
        p95=_nearest(levels, 95),
        average=ms(found["average_ms"]),
        how=TEXT["answer_how"] if found["failures"] else "",
    ) + _recovered_words(found)


def _nearest(levels: Mapping[float, str], wanted: float) -> str:
    near = min(levels, key=lambda level: abs(level - wanted), default=None)
    if near is None:
        return UNKNOWN
    return levels[near] if near == wanted else f"{levels[near]} ({level_name(near)})"


def limits(run: CsvRun, found: Mapping[str, Any]) -> Section:
    """The box of what such files cannot tell."""
    items = [element("li", line) for line in found["cannot_tell"]]
    return Section("limits", TEXT["limits"], element("ul", *items, class_="reasons warn"))


def over_time(run: CsvRun, found: Mapping[str, Any]) -> Section:
    """The course of the run."""
    history = run.history
    if history is None or len(history.at_s) < LEAST_ROWS:
        words = TEXT["no_history" if history is None else "short_history"]
        return Section("time", TEXT["over_time"], element("p", words))
    kind = {"window": "caption_window", "cumulative": "caption_mean_only"}.get(
        history.kind, "caption_no_percentiles"
    )
    caption = TEXT["over_time_caption"].format(percentiles=TEXT[kind])
    if run.bursts.bursts:
        caption += " " + TEXT[f"caption_bursts_{run.bursts.bursts[0].source}"]
    mixed = run.mixed and history.counted == "events"
    if mixed:
        caption += " " + TEXT["caption_events"]
    if len(history.at_s) > MOST_POINTS:
        caption += " " + TEXT["thinned"].format(shown=count(MOST_POINTS), all=count(len(history.at_s)))
    made = history_figure(history, run.bursts.bursts, mixed)
    return Section("time", TEXT["over_time"], figure("history", HEIGHT, caption), {"history": made})


def recovery(run: CsvRun, found: Mapping[str, Any]) -> Section:
    """Bursts with the upper bound of their recovery, or why it cannot be given."""
    bursts = found["bursts"]
    words = [line for line in found["recovery_words"] if not line.startswith(("burst ", "... "))]
    parts: list[object] = [element("p", line, class_="reading") for line in words]
    if bursts:
        can = run.bursts.threshold_ms is not None
        rows = [
            (
                str(number),
                f"{plain(burst['start_s'])} – {plain(burst['end_s'])} s",
                f"{plain(burst['peak'])} {'users' if burst['source'] == 'users' else 'requests/s'}",
                count(burst["ended_requests"]),
                TEXT["mostly_failed"] if burst["mostly_failed"] else ms(burst["peak_p50_ms"]),
                _recovery_cell(burst, can, found["uncertainty_s"]),
            )
            for number, burst in enumerate(bursts[:MOST_BURST_ROWS], 1)
        ]
        head = TEXT["bursts_head"].split("|")
        caption = TEXT["bursts_caption"]
        first = table(head, rows[:MOST_BURSTS_TOLD], numeric=range(2, 6), caption=caption)
        parts.append(first)
        if len(rows) > MOST_BURSTS_TOLD:
            more = table(head, rows[MOST_BURSTS_TOLD:], numeric=range(2, 6), caption=caption)
            summary = f"{len(rows) - MOST_BURSTS_TOLD} more of {len(bursts)}"
            parts.append(element("details", element("summary", summary), more))
    return Section("recovery", TEXT["recovery"], join(parts))


def _recovery_cell(burst: Mapping[str, Any], can: bool, uncertainty_s: float) -> object:
    if not can:
        return TEXT["unknown_recovery"]
    if burst["recovery_at_most_s"] is None:
        return TEXT["not_seen"].format(watched=plain(burst["watched_s"]))
    return noted(
        TEXT["at_most"].format(time=plain(burst["recovery_at_most_s"])), f"−0/+{plain(uncertainty_s)} s"
    )


def percentiles(run: CsvRun, found: Mapping[str, Any]) -> Section:
    """Percentiles of all requests as in the file, and with failures as infinite; then name by name."""
    rows: list[tuple[str, object, object]] = [
        (
            level_name(row["level"]),
            noted(row["text"], TEXT["n_too_small"] if row["n_too_small"] else ""),
            row["adjusted"],
        )
        for row in found["percentiles"]
        if row["level"] != 100 or found["max_ms"] is None
    ]
    most = ms(found["max_ms"])
    rows.append(("max", most, TEXT["not_met"] if found["failures"] else most))
    origin = TEXT[f"origin_{found['percentiles_from']}"]
    averages = [
        ("average, failures with the time they took", ms(found["average_ms"])),
        ("average of the successes alone", between(found["successes_average_ms"])),
        ("failed", f"{count(found['failures'])} ({percent(found['failed_ratio'])} failed)"),
    ]
    made = [
        table(("figure", "value"), averages, numeric=(1,), caption="All requests."),
        table(
            TEXT["percentiles_head"].split("|"),
            rows,
            numeric=(1, 2),
            caption=TEXT["percentiles_caption"].format(origin=origin),
        ),
        element("h3", TEXT["names"]),
        _name_table(found["names"], found["other_names"], TEXT["names_caption"]),
    ]
    if found["metric_events"]:
        made += [
            element("h3", TEXT["metrics"]),
            _name_table(found["metric_events"], None, TEXT["metrics_caption"]),
        ]
    return Section("percentiles", TEXT["percentiles"], join(made))


def _name_table(names: Sequence[Mapping[str, Any]], others: Mapping[str, Any] | None, caption: str) -> Html:
    known = sorted({level for row in names for level, _ in row["percentiles"]})
    shown = [level for level in NAME_LEVELS if level in known] or known[:4]
    head = TEXT["names_head"].format(levels="|".join(level_name(level) for level in shown)).split("|")
    if not shown:
        head = [name for name in head if name]
    rows: list[tuple[object, ...]] = []
    for row in names:
        texts = dict(row["percentiles"])
        rows.append(
            (
                element("span", _short(f"{row['type']} {row['name']}"), class_="wide"),
                count(row["requests"]),
                noted(count(row["failures"]), _share(row)),
                ms(row["average_ms"]),
                ms(row["min_ms"]),
                *(_time_cell(texts.get(level, UNKNOWN)) for level in shown),
                ms(row["max_ms"]),
            )
        )
    if others is not None:
        rows.append(
            (
                TEXT["others"].format(n=count(others["names"])),
                count(others["requests"]),
                noted(count(others["failures"]), _share(others)),
                ms(others["average_ms"]),
                UNKNOWN,
                *(UNKNOWN for _ in shown),
                ms(others["max_ms"]),
            )
        )
    return table(head, rows, numeric=range(1, len(head)), caption=caption)


def _time_cell(text: str) -> Html:
    """A percentile; that it is rounded stands in the caption, but where it lies above the maximum."""
    time, _, written = text.partition(IN_THE_FILE)
    return noted(time if written else time.removesuffix(ROUNDED), written)


def _share(row: Mapping[str, Any]) -> str:
    return percent(row["failures"] / row["requests"]) if row["failures"] and row["requests"] else ""


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"


def failures(run: CsvRun, found: Mapping[str, Any]) -> Section:
    """What failed, most frequent first, and exceptions of the test's own code."""
    parts: list[object] = []
    if found["errors"]:
        rows = [
            (count(row["occurrences"]), _short(f"{row['type']} {row['name']}"), _short(row["error"]))
            for row in found["errors"]
        ]
        head = TEXT["failures_head"].split("|")
        parts.append(table(head, rows, wide=(1, 2), caption=TEXT["failures_caption"]))
        if found["other_errors"]:
            parts.append(element("p", TEXT["other_errors"].format(n=count(found["other_errors"]))))
    elif not found["failures"]:
        parts.append(element("p", TEXT["no_failures"]))
    else:
        parts.append(element("p", TEXT["failures_untold"].format(n=count(found["failures"]))))
    if found["exceptions"]:
        rows = [(count(row["occurrences"]), _short(row["error"]), "") for row in found["exceptions"]]
        parts.append(table(TEXT["exceptions_head"].split("|"), [row[:2] for row in rows], wide=(1,)))
    return Section("failures", TEXT["failures"], join(parts))


def files(run: CsvRun, found: Mapping[str, Any]) -> Section:
    """The files read, and the runs that the history holds."""
    parts: list[object] = [table(TEXT["files_head"].split("|"), list(found["files"].items()))]
    history = found["history"]
    if history is not None:
        if history["cut_rows"]:
            parts.append(element("p", TEXT["cut_rows"].format(n=count(history["cut_rows"]))))
        if len(history["runs"]) > 1:
            rows = [
                (str(number), row["began"], row["ended"], count(row["requests"]))
                for number, row in enumerate(history["runs"], 1)
            ]
            caption = TEXT["runs_caption"].format(n=len(rows) - 1)
            parts.append(table(TEXT["runs_head"].split("|"), rows[-50:], numeric=(3,), caption=caption))
    return Section("files", TEXT["files"], join(parts))


SECTIONS: tuple[Callable[[CsvRun, Mapping[str, Any]], Section], ...] = (
    over_time,
    recovery,
    limits,
    percentiles,
    failures,
    files,
)
