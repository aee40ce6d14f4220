"""Where the time went and what to try next: Facts -> findings, by the table in analysis.diagnoses.

A finding's sentence, evidence and advice are in wording_diagnosis.py.

Order: the client first where it was at fault for sure or likely, because no other figure can be trusted
before that is mended; then what is sure or likely before mere hints, each by the share of the harmed requests
that show the cause's evidence; at last what did no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from analysis.diagnoses import DIAGNOSES, Diagnosis, Seen, Strength
from analysis.facts import NOTHING, Explained, Facts
from analysis.numbers import count, percent, plain, seconds
from analysis.wording_diagnosis import DIAGNOSIS_TEXT, DIAGNOSIS_WORDS


@dataclass(frozen=True)
class Finding:
    """A cause that was found. `explains`: the harmed requests that show its evidence; `evidence`, `tries`:
    sentences without a full stop."""

    key: str
    strength: Strength
    sentence: str
    evidence: tuple[str, ...]
    tries: tuple[str, ...]
    explains: Explained
    figures: Mapping[str, float | int | str | None]


BY_TIMES = ("queue", "prefill", "decode")
"""Causes told by the records' times alone: hints at most where the client made these times."""

_ORDER: dict[Strength, int] = {"strong": 0, "likely": 0, "hint": 1}


def diagnose(facts: Facts) -> list[Finding]:
    """Every finding of DIAGNOSES, in the order told above."""
    found = []
    for row in DIAGNOSES:
        seen = row.test(facts)
        if seen is None:
            continue
        explains = facts.unexplained if row.key == "unexplained" else facts.explained.get(row.key, NOTHING)
        found.append((row, _finding(row, seen, explains)))

    if any(one.key == "client" and one.strength == "strong" for _, one in found):
        found = [(row, replace(one, strength="hint") if one.key in BY_TIMES else one) for row, one in found]

    def rank(item: tuple[Diagnosis, Finding]) -> tuple[int, int, float]:
        row, one = item
        if row.about == "client" and one.strength != "hint":
            return (0, 0, 0.0)
        return (2 if row.about == "answers" else 1, _ORDER[one.strength], -(one.explains.ratio or 0.0))

    return [one for _, one in sorted(found, key=rank)]


def diagnosed(facts: Facts) -> dict[str, Any]:
    """The summary's part; docs/run_folder.md describes each key."""
    findings = diagnose(facts)
    words, first = told(facts, findings)
    return {
        "judged_by": facts.judged_by,
        "harmed": facts.harmed,
        "of": facts.of,
        "server_samples": facts.server.samples if facts.server else 0,
        "told": words,
        "try": first,
        "findings": [
            {
                "key": row.key,
                "strength": row.strength,
                "explains": row.explains.requests,
                "explains_ratio": row.explains.ratio,
                "sentence": row.sentence,
                "evidence": row.evidence,
                "try": row.tries,
                "figures": row.figures,
            }
            for row in findings
        ],
    }


def told(facts: Facts, findings: list[Finding]) -> tuple[str, str | None]:
    """What to say first, in one line, and the first thing to try; the latter None where nothing is known."""
    text = DIAGNOSIS_TEXT
    first = next((row for row in findings if row.key != "unexplained"), None)
    if first is not None and (facts.harmed == 0 or first.key == "client" or first.explains.requests):
        words = text["told_evidence" if first.evidence else "told"]
        strength = text[f"told_{first.strength}"]
        evidence = first.evidence[0] if first.evidence else ""
        return words.format(sentence=first.sentence, strength=strength, evidence=evidence), first.tries[0]
    if not facts.harmed:
        return text["told_nothing"], None
    words = text["told_no_cause"].format(harmed=facts.harmed, of=facts.of)
    return words, None if facts.server else text["try_server_metrics"]


def _finding(row: Diagnosis, seen: Seen, explains: Explained) -> Finding:
    words = DIAGNOSIS_WORDS[seen.words or row.key]
    written = {name: _written(name, value) for name, value in seen.figures.items() if value is not None}
    evidence = tuple(line for template in words.evidence if (line := _filled(template, written)))
    return Finding(
        key=row.key,
        strength=seen.strength,
        sentence=words.sentence.format_map(written),
        evidence=evidence,
        tries=words.tries,
        explains=explains,
        figures=seen.figures,
    )


def _filled(template: str, written: Mapping[str, str]) -> str:
    """The evidence line; "" when one of its figures is unknown."""
    try:
        return template.format_map(written)
    except KeyError:
        return ""


def _written(name: str, value: float | int | str) -> str:
    if isinstance(value, str):
        return value
    if name.endswith("_ratio"):
        return percent(value)
    if name.endswith("_s") and not name.endswith("_per_s"):
        return seconds(value)
    return count(value) if isinstance(value, int) else plain(value)
