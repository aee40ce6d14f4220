"""The report's lower sections: what a doubting reader looks up. Failures, slowest requests, checks, settings,
terms.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.load import Run
from analysis.metrics import METRICS
from analysis.numbers import UNKNOWN, count, known, percent, plain, seconds
from analysis.page import Html, Section, copyable, element, join, noted, table
from analysis.sections_calibration import calibration
from analysis.terms import TERMS
from analysis.wording import OUTCOME, TEXT, WHOSE

MOST_SLOW = 10
LONGEST_TEXT = 300

_SECRET_OPTION = re.compile(r"(?i)api[-_]?key|secret|password|authorization|bearer")


def failures(run: Run, summary: Mapping[str, Any]) -> Section:
    """Whatever did not succeed, by class and by text."""
    rows = summary["failures"]
    if not rows:
        return Section("failures", TEXT["failures"], element("p", TEXT["no_failures"]))
    by_class = table(
        TEXT["failures_head"].split("|"),
        (
            (
                noted(element("code", row.get("class") or TEXT["unnamed"]), row.get("meaning") or ""),
                WHOSE.get(row.get("whose"), UNKNOWN),
                count(row.get("count")),
                percent(row.get("share")),
                _shortened(row.get("example")),
            )
            for row in rows
        ),
        numeric=(2, 3),
        wide=(4,),
        caption=TEXT["failures_caption"],
    )
    return Section("failures", TEXT["failures"], join([by_class, _by_text(summary["error_texts"])]))


def _by_text(found: Mapping[str, Any]) -> Html:
    """Error texts that differ only in ids and numbers are one row; the most frequent, and the rest as one."""
    rows: list[tuple[object, ...]] = [
        (count(row["count"]), row["class"], row["example"]) for row in found["groups"]
    ]
    if not rows:
        return Html("")
    if found["other_kinds"]:
        others = TEXT["other_texts"].format(kinds=count(found["other_kinds"]))
        rows.append((count(found["other_count"]), "", others))
    made = table(TEXT["texts_head"].split("|"), rows, numeric=(0,), wide=(2,), caption=TEXT["texts_caption"])
    return join([element("h3", TEXT["texts"]), made])


def slowest(run: Run, summary: Mapping[str, Any]) -> Section:
    """The requests with the longest time to first token, counted from their scheduled moment."""
    load = run.load
    wait_s = load["ttft_from_schedule_s"].fillna(load["ttft_s"])
    longest_s = wait_s.dropna().nlargest(MOST_SLOW)
    rows = load.loc[longest_s.index].assign(wait_s=longest_s)
    if rows.empty:
        return Section("slowest", TEXT["slowest"], element("p", TEXT["no_answers"]))
    made = table(
        TEXT["slowest_head"].split("|"),
        (
            (
                _cell(row["arrival"]),
                seconds(row["arrived_at_s"]),
                seconds(row["wait_s"]),
                seconds(row["send_lag_s"]),
                seconds(row["tpot_s"]),
                seconds(row["e2e_s"]),
                _cell(row["input_tokens"]),
                _cell(row["output_tokens"]),
                _cell(row["in_flight_at_send"]),
                OUTCOME.get(row["outcome"], row["outcome"]),
            )
            for row in rows.to_dict("records")
        ),
        numeric=range(1, 9),
        caption=TEXT["slowest_caption"].format(shown=count(len(rows)), all=count(int(wait_s.notna().sum()))),
    )
    return Section("slowest", TEXT["slowest"], made)


def checks(run: Run, summary: Mapping[str, Any]) -> Section:
    """The table of checks behind the verdict, failed ones with what to do about them."""
    made = table(
        TEXT["checks_head"].split("|"),
        (
            (
                noted(row["name"], row["asks"]),
                _result(row["passed"], row["severity"]),
                in_unit(row["value"], row["unit"]),
                _limit(row),
                noted(row["detail"], TEXT["advice"].format(advice=row["advice"]) if row["advice"] else ""),
            )
            for row in summary["checks"]
        ),
        numeric=(2, 3),
        wide=(4,),
        caption=TEXT["checks_caption"],
    )
    return Section("checks", TEXT["checks"], made)


def _limit(row: Mapping[str, Any]) -> str:
    if known(row["limit"]) is None:
        return UNKNOWN
    kind = "at_least" if row["at_least"] else "below" if row["below"] else "at_most"
    return TEXT[f"limit_{kind}"].format(limit=in_unit(row["limit"], row["unit"]))


def _result(passed: bool | None, severity: str) -> Html:
    if passed is None:
        return element("span", TEXT["check_unknown"], class_="soft")
    if passed:
        return element("span", TEXT["check_passed"], class_="badge good")
    if severity == "warn":
        return element("span", TEXT["check_warned"], class_="badge warn")
    return element("span", TEXT["check_failed"], class_="badge bad")


def in_unit(value: Any, unit: str) -> str:
    """A check's value or limit with its unit."""
    if unit == "s":
        return seconds(value)
    return percent(value) if unit == "ratio" else plain(value)


def settings(run: Run, summary: Mapping[str, Any]) -> Section:
    """What was run and how to run it again."""
    info = run.info
    facts: list[tuple[str, str]] = [
        ("run", info.run_id),
        ("target", info.target),
        ("model", info.model),
        ("engine", _engine_fact(info.options)),
        ("load", _load_fact(run, summary)),
        ("outside", _outside_fact(summary["counts"])),
        ("seed", str(info.seed)),
        (
            "duration",
            TEXT["duration_fact"].format(load=seconds(info.duration_s), drain=seconds(info.drain_s)),
        ),
        ("started", info.started_at or UNKNOWN),
        ("ended", TEXT["ended_fact"].format(at=info.ended_at or UNKNOWN, state=info.state)),
        ("stopped", info.stop_reason or ""),
        ("schedule", info.schedule_sha256 or UNKNOWN),
        ("versions", ", ".join(f"{name} {version}" for name, version in sorted(info.versions.items()))),
    ]
    parts: list[object] = [
        table(
            TEXT["settings_head"].split("|"),
            [(TEXT[f"fact_{name}"], text) for name, text in facts if text],
            wide=(1,),
            caption=TEXT["settings_caption"],
        )
    ]
    parts += calibration(info.rate_calibration)
    if info.command:
        parts += [
            element("h3", TEXT["again"]),
            copyable(repeatable(info.command)),
        ]
    if info.options:
        options = [(name, _option(name, value)) for name, value in sorted(info.options.items())]
        inner = table(TEXT["options_head"].split("|"), options, wide=(1,), caption=TEXT["options"])
        parts.append(element("details", element("summary", TEXT["options"]), inner))
    return Section("settings", TEXT["settings"], join(parts))


def _load_fact(run: Run, summary: Mapping[str, Any]) -> str:
    info, seen = run.info, summary["in_flight"]
    if run.closed:
        return TEXT["users_fact"].format(
            shape=info.shape, users=plain(seen["users_mean"]), peak=plain(seen["users_peak"])
        )
    return TEXT["load_fact"].format(shape=info.shape, arrivals=info.arrivals, rate=plain(info.mean_rate_rps))


def _engine_fact(options: Mapping[str, Any]) -> str:
    engine = str(options.get("engine", ""))
    return TEXT.get(f"engine_{engine}", engine)


def _outside_fact(counts: Mapping[str, int]) -> str:
    if not counts["probes"] + counts["warmups"]:
        return ""
    return TEXT["outside_fact"].format(probes=count(counts["probes"]), warmups=count(counts["warmups"]))


def repeatable(command: Sequence[str]) -> str:
    """The command as it is typed in a shell, an option a line; values of options with secrets left out."""
    shown: list[str] = []
    hide = False
    for word in command:
        option, equals, _ = word.partition("=")
        secret = option.startswith("-") and bool(_SECRET_OPTION.search(option))
        shown.append(
            TEXT["hidden"]
            if hide
            else f"{option}={TEXT['hidden']}"
            if secret and equals
            else shlex.quote(word)
        )
        hide = secret and not equals
    return re.sub(r" (?=--\w)", " \\\\\n    ", " ".join(shown))


def terms(run: Run, summary: Mapping[str, Any]) -> Section:
    """The words of this report and what is honest to know about its figures."""
    entries = [*((metric.label, metric.what) for metric in METRICS), *TERMS]
    listed = join(join([element("dt", word), element("dd", meaning)]) for word, meaning in entries)
    notes = [*dict.fromkeys([*summary["notices"], *run.notices]), *_honest(run, summary)]
    return Section(
        "terms",
        TEXT["terms"],
        join(
            [
                element("h3", TEXT["notes"]),
                element("ul", *(element("li", note) for note in notes)),
                element("h3", TEXT["words"]),
                element("dl", listed, class_="terms"),
            ]
        ),
    )


def _honest(run: Run, summary: Mapping[str, Any]) -> list[str]:
    tokens = summary["tokens"]
    estimated = tokens["tokens_from"].get("events", 0)
    notes = [
        TEXT["note_window"].format(window=seconds(summary["window_s"]), drain=seconds(run.info.drain_s)),
        TEXT["note_successes"],
        TEXT["note_intervals"],
    ]
    if run.closed:
        notes.insert(0, TEXT["note_closed"])
    if estimated:
        every = sum(tokens["tokens_from"].values())
        notes.append(TEXT["note_estimated"].format(estimated=count(estimated), all=count(every)))
    if known(tokens["cached_input_ratio"]):
        notes.append(TEXT["note_cached"].format(share=percent(tokens["cached_input_ratio"])))
    return notes


def _option(name: str, value: Any) -> str:
    if _SECRET_OPTION.search(name):
        return TEXT["hidden"]
    return UNKNOWN if value is None else str(value)


def _cell(value: Any) -> str:
    return UNKNOWN if value is None or value is pd.NA or known(value) is None else count(value)


def _shortened(text: Any) -> str:
    if text is None or text is pd.NA or text != text:
        return ""
    words = str(text)
    return words if len(words) <= LONGEST_TEXT else words[:LONGEST_TEXT] + "…"
