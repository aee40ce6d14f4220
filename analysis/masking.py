"""Error texts that say the same: masked of what differs from request to request, then counted as one.

Masked are quoted parts, UUIDs, and every word that holds a digit (numbers, times, hexadecimal, addresses and
ports, request ids), with such words joined to it by . : , / or a hyphen. What is left is the text that the
server's programmer wrote.

    request 7f3a9c1e took 31.5 ms on 10.0.0.1:8000, see 'req-1'   →   request # took # ms on #, see …
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import pandas as pd

MOST_GROUPS = 50
LONGEST_READ = 400
LONGEST_MASKED = 300
LONGEST_EXAMPLE = 200

QUOTED, DIFFERS = "…", "#"
_ANY_DIGIT = str.maketrans("123456789", "0" * 9)  # all are masked alike; so words repeat and are looked up
# No part gives back what it has taken and texts are cut at a length, so the time is linear in the text. What
# stands in for a part is no part itself and makes none of its neighbours, so masking again changes nothing.
_QUOTED = re.compile(r"""["][^"]*+["]|[`][^`]*+[`]|[“][^”]*+[”]|['](?<![\w#].)[^']*+[']""")
_DIFFERS = re.compile(
    r"""(?<!\w) [0-9a-fA-F]{8} (?: -[0-9a-fA-F]{4} ){3} -[0-9a-fA-F]{12} (?!\w)
    | (?<!\w) [^\W\d]*+ \d \w*+ (?: [-.:,/] [^\W\d]*+ \d \w*+ )*+
    """,
    re.VERBOSE,
)


def mask(text: str) -> str:
    """`text` in one line without what differs; at most LONGEST_MASKED characters. Masking it again changes
    nothing."""
    line = _QUOTED.sub(QUOTED, text[:LONGEST_READ].translate(_ANY_DIGIT))
    words = [word if word.isalpha() and len(word) < 8 else _masked(word) for word in line.split()]
    return " ".join(words)[:LONGEST_MASKED].rstrip()


@lru_cache(maxsize=4096)
def _masked(word: str) -> str:
    """One word, that is what stands between blanks, without what differs."""
    return _DIFFERS.sub(DIFFERS, word)


def error_kinds(load: pd.DataFrame) -> pd.DataFrame:
    """The error texts of a run's load by kind, the commonest first.

    Columns: `failure_class`, `text` (masked), `count`, `example` (the commonest of them).
    """
    lost = (load["outcome"] != "succeeded") & load["error"].notna()
    failed = load.loc[lost, ["failure_class", "error"]]
    names = failed["failure_class"].astype("str").fillna("")
    seen = failed["error"].groupby([names, failed["error"]], sort=False).size()
    kinds = pd.DataFrame(
        {
            "failure_class": seen.index.get_level_values(0),
            "text": [mask(text) for text in seen.index.get_level_values(1)],
            "count": seen.to_numpy(),
            "example": seen.index.get_level_values(1),
        }
    ).sort_values("count", ascending=False, kind="stable")
    groups = kinds.groupby(["failure_class", "text"], sort=False, as_index=False)
    found: pd.DataFrame = groups.agg(count=("count", "sum"), example=("example", "first"))
    return found.sort_values("count", ascending=False, kind="stable", ignore_index=True)


def error_texts(kinds: pd.DataFrame) -> dict[str, Any]:
    """The summary's part: the commonest of `error_kinds`, and the rest as one."""
    shown, rest = kinds.head(MOST_GROUPS), kinds.iloc[MOST_GROUPS:]
    return {
        "groups": [
            {"class": name, "text": text, "count": int(number), "example": shortened(example)}
            for name, text, number, example in shown.itertuples(index=False)
        ],
        "other_kinds": len(rest),
        "other_count": int(rest["count"].sum()),
    }


def shortened(text: str) -> str:
    """`text` in one line of at most LONGEST_EXAMPLE characters."""
    line = " ".join(text[: 4 * LONGEST_EXAMPLE].split())
    return line if len(line) <= LONGEST_EXAMPLE else line[: LONGEST_EXAMPLE - 1] + "…"
