"""A suite's matrix in words: the price of burstiness, what differs between variants, the table as text."""

from __future__ import annotations

from analysis.compare_words import sentence
from analysis.matrix import Figures, Matrix
from analysis.metrics import Quantile
from analysis.numbers import UNKNOWN, percent, plain, seconds
from analysis.wording_matrix import MATRIX_TEXT as TEXT
from runlog.folder import RunInfo

LEAST_BURSTS = 8
"""Below this many bursts an interval over bursts cannot be had (analysis.paired.least_pairs)."""
LEAST_POINTS = 0.0005
LEAST_EVEN_SHARE = 0.9
"""When fewer requests meet the SLO without any burst, the rate is too high to show what bursts cost."""
SHAPE_OPTIONS: dict[str, tuple[str, ...]] = {
    "pulse": ("period", "peak_ratio", "duty", "width", "base", "lead"),
    "mixed": ("period", "peak_ratio", "duty", "lead"),
    "salvo": ("salvo",),
    "diurnal": ("amplitude", "day_profile"),
    "steps": ("levels",),
}
"""Each shape's own options, as the page tells them; the others mean nothing to it."""


def sentences(found: Matrix) -> list[str]:
    """What a suite says: first whether its runs can be believed, then which variants differ and in what, what
    each bursty scenario costs, and last where no difference was found."""
    different: list[str] = []
    alike: list[str] = []
    for scenario, rows in found.comparisons.items():
        for row in rows:
            moved = any(one.finding in ("better", "worse") for one in row.rows)
            words = TEXT["differs"].format(scenario=scenario, sentence=sentence(row))
            (different if moved else alike).append(words)
    refused = [TEXT["refused"].format(scenario=s, why=why) for s, why in found.refused.items()]
    costs = [words for variant in found.variants for words in prices(found, variant)]
    return [*_doubt(found), *different, *refused, *costs, *alike] or [TEXT["nothing_yet"]]


def _doubt(found: Matrix) -> list[str]:
    verdicts = [verdict for row in found.figures.values() for verdict in row.verdicts]
    bad = sum(verdict != "VALID" for verdict in verdicts)
    return [TEXT["doubt"].format(count=bad, all=len(verdicts))] if bad else []


def prices(found: Matrix, variant: str) -> list[str]:
    """The price of burstiness on one variant: each scenario with bursts against the first without, at the
    same mean rate."""
    rows = [found.figures[s, variant] for s in found.scenarios if (s, variant) in found.figures]
    even = next((row for row in rows if not row.bursts and row.offered_rps), None)
    if even is None or even.offered_rps is None:
        return []
    busy = _busy_without_bursts(even)
    bursty = [
        (row, _costs(even, row))
        for row in rows
        if row.bursts and row.offered_rps and abs(row.offered_rps / even.offered_rps - 1) < 0.01
    ]
    told = [
        TEXT["price"].format(
            rate=plain(even.offered_rps),
            scenario=row.scenario,
            even=even.scenario,
            variant=variant,
            few=TEXT["few_bursts"].format(n=row.bursts) if row.bursts < LEAST_BURSTS else "",
            costs=", ".join([*(costs or [TEXT["no_cost"]]), *_hurts(row)]),
        )
        for row, costs in bursty
        if costs or row.recovery_s or not busy
    ]
    return [busy, *told] if busy and bursty else told


def _busy_without_bursts(even: Figures) -> str:
    """That the server was too busy without bursts to show what they cost; empty where it was not."""
    share = even.attainment.ratio if even.attainment else None
    if share is None or share >= LEAST_EVEN_SHARE:
        return ""
    return TEXT["busy"].format(even=even.scenario, variant=even.variant, share=percent(share))


def about(found: Matrix) -> list[str]:
    """What was run: each scenario's shape, then what all runs share, such as the server and the SLO."""
    firsts = {row.scenario: row.first for row in reversed(found.figures.values())}
    lines = [
        TEXT["scenario"].format(name=name, shape=_shape(firsts[name]))
        for name in found.scenarios
        if name in firsts
    ]
    for key in ("target", "model", "slo", "duration", "input_tokens", "output_tokens", "seed"):
        values = {_told(row.first, key) for row in found.figures.values()}
        if len(values) == 1 and (value := values.pop()):
            lines.append(TEXT[f"about_{key}"].format(value=value))
    return lines


def _told(info: RunInfo, key: str) -> str:
    if key in ("target", "model", "slo"):
        return str(getattr(info, key) or "")
    return str(info.options.get(key, ""))


def _shape(info: RunInfo) -> str:
    """The shape and those of its own options that were set."""
    told = [(name, info.options.get(name)) for name in SHAPE_OPTIONS.get(info.shape, ())]
    return ", ".join([info.shape, *(f"{name.replace('_', ' ')} {value}" for name, value in told if value)])


def _costs(even: Figures, row: Figures) -> list[str]:
    parts = []
    one, other = even.attainment, row.attainment
    if one and other and one.ratio is not None and other.ratio is not None:
        lost = one.ratio - other.ratio
        if abs(lost) >= LEAST_POINTS:
            key = "cost_attainment" if lost > 0 else "gain_attainment"
            parts.append(TEXT[key].format(points=plain(round(abs(lost) * 100, 1))))
    p99s = [figures.ttft.quantiles["p99"] for figures in (even, row)]
    if all(p99.value is not None and not p99.n_too_small for p99 in p99s):
        more = (p99s[1].value or 0.0) - (p99s[0].value or 0.0)
        key = "cost_p99" if more >= 0 else "gain_p99"
        parts.append(TEXT[key].format(seconds=seconds(abs(more))))
    return parts


def _hurts(row: Figures) -> list[str]:
    if row.recovery_s is None:
        return []
    return [TEXT["hurts" if row.recovery_s else "hurts_not"].format(seconds=seconds(row.recovery_s))]


def matrix_text(found: Matrix) -> str:
    """The sentences and the table for the terminal."""
    head = TEXT["head"].split("|")
    rows = [head, *([value for value, _ in cells(row)] for row in found.figures.values())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            f"{cell:<{width}}" if number < 2 else f"{cell:>{width}}"
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*sentences(found), "", *lines])


def cells(row: Figures) -> list[tuple[str, str]]:
    """One cell's figures as (value, note) under `head`."""
    bad = sum(verdict != "VALID" for verdict in row.verdicts)
    note = TEXT["not_valid"].format(count=bad, all=row.runs) if bad else ""
    done = TEXT["throughput_only"].format(done=plain(row.throughput_rps))
    if row.offered_rps is not None:
        done = TEXT["throughput"].format(done=plain(row.throughput_rps), offered=plain(row.offered_rps))
    attained = (UNKNOWN, "")
    if row.attainment is not None:
        low, high = percent(row.attainment.low), percent(row.attainment.high)
        attained = (percent(row.attainment.ratio), TEXT["interval"].format(low=low, high=high))
    return [
        (row.scenario, ""),
        (row.variant, note or TEXT["runs"].format(n=row.runs) if row.runs > 1 else note),
        (done, ""),
        *(_quantile(row.ttft.quantiles[name]) for name in ("p50", "p95", "p99")),
        (percent(row.error_ratio), ""),
        attained,
        _recovery(row),
    ]


def _quantile(quantile: Quantile) -> tuple[str, str]:
    if quantile.n_too_small:
        return TEXT["n_too_small"], ""
    if quantile.not_met:
        return TEXT["failures"], ""
    low, high = seconds(quantile.low), seconds(quantile.high)
    known = UNKNOWN not in (low, high)
    return seconds(quantile.value), TEXT["interval"].format(low=low, high=high) if known else ""


def _recovery(row: Figures) -> tuple[str, str]:
    if not row.bursts:
        return TEXT["no_bursts"], ""
    if row.recovery_s is None:
        return TEXT["not_seen"], TEXT["of_bursts"].format(all=row.bursts)
    note = TEXT["censored"].format(censored=row.censored, all=row.bursts) if row.censored else ""
    return seconds(row.recovery_s), note
