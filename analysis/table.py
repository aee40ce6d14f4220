"""Summaries as text: a table with the runs side by side, and the list of checks with the SLO beneath.

ROWS is the table beneath the runs' names: a label and what to show of a summary; LEVEL_COLUMNS is that of a
run in steps, a row a level. Unknown is "n/a"; a percentile with too few values behind it is "n too small";
one that falls on a failure is "not met".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

from analysis import table_client as client
from analysis.numbers import UNKNOWN, percent, plain, seconds

WIDTH = 110
MOST_BURST_ROWS = 12
MOST_FINDINGS = 3
NO_SUCH_BURST = "-"
Summary = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """A line of the table: what it shows of one summary. An empty line goes before one that `opens_block`;
    one `of_bursts` is left out where no run has any."""

    label: str
    show: Callable[[Summary], str]
    opens_block: bool = False
    of_bursts: bool = False


def side_by_side(summaries: Sequence[Summary]) -> str:
    """The table of one or several runs, at most 110 columns wide; runs that do not fit follow below, and
    after them the levels of each run in steps."""
    blocks, taken = [], 0
    name = _names(summaries)
    lines = [Row("run", name), *table_rows(summaries)]
    label_width = max(len(row.label) for row in lines)
    while taken < len(summaries):
        columns = [_column(summaries[taken], lines)]
        while taken + len(columns) < len(summaries):
            wider = [*columns, _column(summaries[taken + len(columns)], lines)]
            if label_width + sum(2 + max(map(len, column)) for column in wider) > WIDTH:
                break
            columns = wider
        blocks.append(_block(lines, columns, label_width))
        taken += len(columns)
    told = [client.bound_words(summary, name(summary)) for summary in summaries]
    blocks += [fill(words, WIDTH) for words in told if words]
    blocks += [diagnosis_lines(summary, name(summary)) for summary in summaries]
    blocks += [level_table(summary, name(summary)) for summary in summaries if summary["levels"]]
    return "\n\n".join(blocks)


def _column(summary: Summary, rows: Sequence[Row]) -> list[str]:
    return [row.show(summary) for row in rows]


def _block(rows: Sequence[Row], columns: Sequence[Sequence[str]], label_width: int) -> str:
    widths = [max(map(len, column)) for column in columns]
    text: list[str] = []
    for number, row in enumerate(rows):
        if all(column[number] == NO_SUCH_BURST for column in columns):
            continue
        if row.opens_block and text:
            text.append("")
        cells = "".join(f"  {column[number]:>{width}}" for column, width in zip(columns, widths, strict=True))
        text.append(f"{row.label:<{label_width}}{cells}")
    return "\n".join(text)


def table_rows(summaries: Sequence[Summary]) -> list[Row]:
    """ROWS with one row per burst of the run that has most (above 12 only the sum over bursts)."""
    most = max((len(summary["bursts"]) for summary in summaries), default=0)
    bursts = [_burst_row(index) for index in range(most)] if most <= MOST_BURST_ROWS else []
    place = next(index for index, row in enumerate(ROWS) if row.label.startswith("recovery")) + 1
    return [row for row in (*ROWS[:place], *bursts, *ROWS[place:]) if most or not row.of_bursts]


def _names(summaries: Sequence[Summary]) -> Callable[[Summary], str]:
    """What to call each run: its name, or its id where it has none or others bear the same."""
    borne = Counter(summary["name"] for summary in summaries)

    def name(summary: Summary) -> str:
        own = summary["name"] if borne[summary["name"]] == 1 else ""
        return _short(own or summary["run_id"])

    return name


def level_table(summary: Summary, name: str) -> str:
    """The levels of a run in steps, a row each, under `name`."""
    rows = [
        tuple(LEVEL_COLUMNS),
        *(tuple(show(row) for show in LEVEL_COLUMNS.values()) for row in summary["levels"]),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    unit = "users" if summary["load"] == "closed" else "req/s"
    lines = [f"levels in {unit}: {name}"]
    lines += ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(lines)


def diagnosis_lines(summary: Summary, name: str) -> str:
    """What happened and what to try in a run, under its name: the strongest findings, a line or two each."""
    found = summary["diagnosis"]
    lines = [f"{name}: what happened ({found['harmed']} of {found['of']} requests harmed)"]
    for row in found["findings"][:MOST_FINDINGS]:
        share = f", explains {percent(row['explains_ratio'])}" if row["explains_ratio"] else ""
        told = f"{row['sentence']} ({row['strength']}{share}). Try: {row['try'][0]}"
        lines.append(fill(told, WIDTH, initial_indent="  - ", subsequent_indent="    "))
    if not found["findings"]:
        lines.append(fill(found["told"], WIDTH, initial_indent="  ", subsequent_indent="  "))
    return "\n".join(lines)


def check_lines(summary: Summary) -> str:
    """The verdict, every check with what it found, and the SLO's limits, as text."""
    lines = [f"{summary['run_id']}: {summary['verdict']}"]
    for check in summary["checks"]:
        lines.append(f"  {_mark(check):<8} {check['name']}: {check['detail']}")
        if check["advice"]:
            lines.append(f"  {'':<8} -> {check['advice']}")
    lines += [f"  note     {notice}" for notice in summary["notices"]]
    return "\n".join([*lines, *slo_lines(summary["slo"])])


def _mark(check: Mapping[str, Any]) -> str:
    if check["passed"] is None:
        return "no data"
    return "ok" if check["passed"] else {"warn": "WARNING"}.get(check["severity"], "FAILED")


def slo_lines(slo: Summary | None) -> list[str]:
    """The SLO and whether it was met, why it cannot be judged, and each limit."""
    if slo is None:
        return ["  SLO      none given (--slo)"]
    says = {True: "met", False: "MISSED", None: "reported only" if not slo["gates"] else "cannot be judged"}
    lines = [f"  SLO      {slo['text']}: {says[slo['met']]}"]
    if slo["unjudged"]:
        lines.append(f"  {'':<8} -> {slo['unjudged']}")
    lines += [f"  {'':<8} {limit['text']}: {_of_decided(limit)}" for limit in slo["limits"]]
    if len(slo["limits"]) > 1:
        lines.append(f"  {'':<8} all limits together: {_of_decided(slo['attainment']['whole'])}")
    for row in slo["percentiles"]:
        value = "not met by any time" if row["value_s"] is None and row["n"] else seconds(row["value_s"])
        lines.append(f"  {'':<8} {row['text']}: {value} over {row['n']} requests, {says[row['met']]}")
    return lines


def _of_decided(part: Mapping[str, Any]) -> str:
    left_out = f", {part['left_out']} left out" if part["left_out"] else ""
    return f"{percent(part['ratio'])} ({part['met']} of {part['decided']} decided{left_out})"


def quantile_text(quantile: Mapping[str, Any], interval: bool = True) -> str:
    """A percentile with its 95 % interval: "1.22 s (1.02 to 1.40 s)"."""
    if quantile["not_met"]:
        return "not met"
    if quantile["value"] is None:
        return UNKNOWN
    if quantile["n_too_small"]:
        return "n too small"
    value = seconds(quantile["value"])
    if not interval or quantile["low"] is None or quantile["high"] is None:
        return value
    return f"{value} ({seconds(quantile['low'])} to {seconds(quantile['high'])})"


def recovery_text(burst: Mapping[str, Any]) -> str:
    """A burst's recovery: "4 s", "≥ 6 s (censored)", "drained in 2.1 s", or n/a when nothing was answered."""
    drain = burst["method"] == "drain"
    if burst["recovery_s"] is not None:
        return f"{'drained in ' if drain else ''}{seconds(burst['recovery_s'])}"
    if burst["at_least_s"] is not None:
        short = burst["watched_too_short"]
        why = f"watched {seconds(burst['observed_s'])} only" if short else "censored"
        return f"≥ {seconds(burst['at_least_s'])} ({why})"
    return UNKNOWN


def _metric_row(key: str, name: str, quantile: str) -> Row:
    def show(summary: Summary) -> str:
        chosen = summary["lead_ttft"] if key == "ttft_s" else key
        return quantile_text(summary["metrics"][chosen][quantile])

    return Row(f"{name} {quantile}", show, opens_block=key != "ttft_s" and quantile == "p50")


def _lead(summary: Summary) -> str:
    return "the scheduled moment" if summary["lead_ttft"] == "ttft_from_schedule_s" else "sending"


def _burst_row(index: int) -> Row:
    def show(summary: Summary) -> str:
        if index >= len(summary["bursts"]):
            return NO_SUCH_BURST
        burst = summary["bursts"][index]
        return f"{recovery_text(burst)}, at {burst['start_s']:.1f} s"

    return Row(f"  burst {index + 1}", show)


def _rate(key: str, unit: str) -> Callable[[Summary], str]:
    def show(summary: Summary) -> str:
        value = summary["throughput"][key]
        return UNKNOWN if value is None else f"{plain(value)} {unit}"

    return show


def _attainment(part: str) -> Callable[[Summary], str]:
    def show(summary: Summary) -> str:
        slo = summary["slo"]
        if slo is None:
            return UNKNOWN
        found = slo["attainment"][part]
        if not found["decided"]:
            return UNKNOWN
        return f"{percent(found['ratio'])} ({found['met']}/{found['decided']})"

    return show


def _goodput(key: str) -> Callable[[Summary], str]:
    def show(summary: Summary) -> str:
        slo = summary["slo"]
        value = slo[key] if slo else None
        return UNKNOWN if value is None else f"{plain(value)} req/s"

    return show


def _asked_and_sent(measure: Callable[[Mapping[str, Any]], Any]) -> Callable[[Summary], str]:
    def show(summary: Summary) -> str:
        pair = summary["burstiness"]
        return " / ".join(
            UNKNOWN if side is None else plain(measure(side)) for side in (pair["asked"], pair["sent"])
        )

    return show


def _recovery_sum(summary: Summary) -> str:
    found = summary["recovery"]
    if not found["n"]:
        return "no bursts"
    median = "not reached" if found["median_s"] is None else seconds(found["median_s"])
    if not found["censored"]:
        return median
    return f"{median} ({found['censored']} of {found['n']} censored)"


def _requests(summary: Summary) -> str:
    counts = summary["counts"]
    if summary["load"] == "closed":
        return f"{counts['sent']}"
    return f"{counts['sent']} of {counts['scheduled']}"


def _load(summary: Summary) -> str:
    if summary["load"] == "closed":
        return _short(f"{summary['shape']}, closed loop")
    return _short(f"{summary['shape']}, {summary['arrivals']}")


def _in_flight(measure: str) -> Callable[[Summary], str]:
    def show(summary: Summary) -> str:
        found = summary["in_flight"]
        users, seen = found[f"users_{measure}"], plain(found[f"in_flight_{measure}"])
        return seen if users is None else f"{seen} of {plain(users)} users"

    return show


def _lengths(side: str) -> Callable[[Summary], str]:
    def show(summary: Summary) -> str:
        found = summary["lengths"][side]
        return f"{plain(found['asked_mean'])} / {plain(found['got_mean'])}"

    return show


def _short(text: str, most: int = 34) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


ROWS: tuple[Row, ...] = (
    Row("load", _load),
    Row("verdict", lambda summary: summary["verdict"]),
    Row("requests sent, of scheduled", _requests, opens_block=True),
    Row("throughput", _rate("requests_per_s", "req/s")),
    Row("output tokens", _rate("output_tokens_per_s", "tokens/s")),
    Row("prompt tokens asked / got", _lengths("input")),
    Row("answer tokens asked / got", _lengths("output")),
    Row("error rate", lambda summary: percent(summary["error_ratio"])),
    Row("in flight, mean", _in_flight("mean")),
    Row("in flight, peak", _in_flight("peak")),
    Row("TTFT counted from", _lead, opens_block=True),
    *(
        _metric_row(key, name, quantile)
        for key, name in (("ttft_s", "TTFT"), ("tpot_s", "TPOT"), ("e2e_s", "E2E"))
        for quantile in ("p50", "p95", "p99")
    ),
    Row("SLO attainment", _attainment("whole"), opens_block=True),
    Row("SLO attainment in bursts", _attainment("burst"), of_bursts=True),
    Row("goodput", _goodput("goodput_rps")),
    Row("goodput in bursts", _goodput("goodput_in_bursts_rps"), of_bursts=True),
    Row("recovery, median of bursts", _recovery_sum, opens_block=True, of_bursts=True),
    Row("CV asked / sent", _asked_and_sent(lambda side: side["cv"]), opens_block=True),
    Row("IDC(1 s) asked / sent", _asked_and_sent(lambda side: side["idc"].get("1"))),
    Row("peak/mean, 1 s, asked / sent", _asked_and_sent(lambda side: side["peak_over_mean"].get("1"))),
    Row("client-bound seconds", client.bound, opens_block=True),
    Row("send lag p50 / p99 / max", client.lags("send_lag_s")),
    Row("read lag p50 / p99 / max", client.lags("read_lag_s")),
    Row("receive stamps", client.stamps),
    Row("receives with several events", client.crowded),
    Row("loop lag p99 / max", client.loop_lag),
    Row("worker CPU peak / mean", client.cpu),
    Row("connections", client.connections),
    Row("connecting p50 / p99 / max", client.lags("connect_s")),
    Row("of it TLS p50 / p99 / max", client.lags("tls_s")),
)

LEVEL_COLUMNS: dict[str, Callable[[Summary], str]] = {
    "level": lambda row: plain(row["level"]),
    "requests": lambda row: str(row["requests"]),
    "req/s": lambda row: plain(row["requests_per_s"]),
    "TTFT p50": lambda row: quantile_text(row["ttft"]["p50"], interval=False),
    "TTFT p95": lambda row: quantile_text(row["ttft"]["p95"], interval=False),
    "TPOT p50": lambda row: quantile_text(row["tpot_s"]["p50"], interval=False),
    "met the SLO": lambda row: UNKNOWN if row["attainment"] is None else percent(row["attainment"]["ratio"]),
    "errors": lambda row: percent(row["error_ratio"]),
}
"""A run in steps: heading -> what to show of one level of the summary."""
