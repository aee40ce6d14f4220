"""The report's section on what happened and what to do, and its line on the first screen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from analysis.load import Run
from analysis.numbers import count, percent, unbroken
from analysis.page import Html, Section, element, join, noted, table
from analysis.wording_diagnosis import DIAGNOSIS_TEXT


def diagnosis(run: Run, summary: Mapping[str, Any]) -> Section:
    """Each finding with its evidence, how sure it is, the harm it explains and what to try."""
    found, text = summary["diagnosis"], DIAGNOSIS_TEXT
    words = text[f"harm_{_harm(found)}"]
    parts = [
        element(
            "p",
            words.format(harmed=count(found["harmed"]), of=count(found["of"])),
            class_="reading",
        )
    ]
    if found["findings"]:
        parts.append(
            table(
                text["diagnosis_head"].split("|"),
                (_row(row) for row in found["findings"]),
                numeric=(2,),
                wide=(0, 3),
                caption=text["diagnosis_caption"],
            )
        )
    elif found["harmed"]:
        parts.append(element("p", _sentence(found["told"]), class_="reading"))
    if not found["server_samples"]:
        parts.append(element("p", text["no_server_samples"], class_="reading"))
    return Section("diagnosis", text["diagnosis"], join(parts))


def _harm(found: Mapping[str, Any]) -> str:
    """Which sentence says how much harm was done."""
    if found["harmed"]:
        return str(found["judged_by"])
    if not found["of"]:
        return "nothing"
    return "not_yet" if found["findings"] else "none"


def why(summary: Mapping[str, Any]) -> list[Html]:
    """The strongest finding and what to try first, for the first screen; nothing where no request was harmed
    and nothing was found."""
    found, text = summary["diagnosis"], DIAGNOSIS_TEXT
    if not found["harmed"] and not found["findings"]:
        return []
    label = text["why" if found["harmed"] else "note"]
    lines = [(label, found["told"]), (text["try"], found["try"])]
    told = (
        element("div", element("strong", what), " ", _flags_whole(_sentence(words)))
        for what, words in lines
        if words
    )
    return [element("div", *told, class_="why")]


def _row(row: Mapping[str, Any]) -> tuple[object, ...]:
    ratio = row["explains_ratio"]
    return (
        noted(_sentence(row["sentence"]), join(element("div", line) for line in row["evidence"])),
        DIAGNOSIS_TEXT[f"strength_{row['strength']}"],
        percent(ratio) if ratio else DIAGNOSIS_TEXT["no_harm_share"],
        element("ul", *(element("li", _flags_whole(line)) for line in row["try"]), class_="tries"),
    )


def _flags_whole(text: str) -> Html:
    """`text` in which no option, such as --max-num-seqs, is broken over two lines."""
    parts = re.split(r"(--[a-z][\w-]+)", unbroken(text))
    return join(element("span", part, class_="flag") if part.startswith("--") else part for part in parts)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
