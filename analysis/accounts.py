"""Where every request went: counts, throughput, failures and tokens."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.lengths import off
from analysis.load import Run
from analysis.masking import shortened
from analysis.trust import recorded_twice
from runlog.failures import failure_class
from runlog.record import OUTCOMES


def counts(run: Run) -> dict[str, int]:
    """scheduled = sent + not_sent + missing - twice (a closed loop schedules nothing);
    sent = succeeded + failed + rejected + cancelled."""
    load = run.load
    outcomes: dict[str, int] = {name: int((load["outcome"] == name).sum()) for name in OUTCOMES}
    arrivals = run.requests["arrival"].dropna()
    in_window = (load["outcome"] == "succeeded") & (load["ended_at_s"] <= run.window_s)
    return {
        "scheduled": len(run.schedule),
        "sent": len(load) - outcomes["not_sent"],
        **outcomes,
        "missing": int((~run.schedule["arrival"].dropna().isin(arrivals)).sum()),
        "twice": int(arrivals.duplicated().sum()) if not run.closed else recorded_twice(run),
        "outside_load": len(run.requests) - len(load),
        "probes": len(run.probes),
        "warmups": run.warmups,
        "finished_in_window": int(in_window.sum()),
        "finished_in_drain": outcomes["succeeded"] - int(in_window.sum()),
    }


def throughput(run: Run) -> dict[str, float | None]:
    """Rates over the measured window; finished requests are those that ended in it, without the drain."""
    load, window_s = run.load, run.window_s
    in_window = (load["outcome"] == "succeeded") & (load["ended_at_s"] <= window_s)
    finished = load.loc[in_window, ["output_tokens", "input_tokens"]]
    amounts = {
        "scheduled_per_s": float((run.schedule["at_s"] < window_s).sum()) if len(run.schedule) else None,
        "sent_per_s": float((load["sent_at_s"] < window_s).sum()),
        "requests_per_s": float(len(finished)),
        "output_tokens_per_s": _total(finished["output_tokens"]),
        "input_tokens_per_s": _total(finished["input_tokens"]),
    }
    return {
        key: None if amount is None or window_s <= 0 else amount / window_s for key, amount in amounts.items()
    }


def _total(column: pd.Series[Any]) -> float | None:
    """The sum of what is known; None when there are values and none is known."""
    return float(column.sum()) if column.notna().any() or not len(column) else None


def error_ratio(load: pd.DataFrame) -> float | None:
    """(failed + rejected) / all that were sent and had an end of their own."""
    errors = int(load["outcome"].isin(("failed", "rejected")).sum())
    ended = errors + int((load["outcome"] == "succeeded").sum())
    return errors / ended if ended else None


def failures(load: pd.DataFrame, kinds: pd.DataFrame) -> list[dict[str, Any]]:
    """Failure classes, the commonest first, with an example of the commonest kind of error text each.

    `kinds` is masking.error_kinds of the load.
    """
    rows = []
    for name, number in sorted(value_counts(load["failure_class"]).items()):
        mine = kinds[kinds["failure_class"] == name]
        try:
            known = failure_class(name)
            whose, meaning = known.whose, known.meaning
        except KeyError:
            whose, meaning = None, None
        rows.append(
            {
                "class": name,
                "whose": whose,
                "meaning": meaning,
                "count": number,
                "share": number / len(load),
                "kinds": len(mine),
                "example": shortened(str(mine["example"].iloc[0])) if len(mine) else None,
            }
        )
    return sorted(rows, key=lambda row: -row["count"])


def value_counts(column: pd.Series[Any]) -> dict[str, int]:
    return {str(value): int(count) for value, count in column.dropna().value_counts().items() if count}


_OF_TOKENS = (
    *("asked_input_tokens", "asked_output_tokens", "input_tokens", "output_tokens", "output_events"),
    *("tokens_from", "cached_tokens", "tpot_s", "ttft_s"),
)
"""What `tokens` looks at: of a million requests, rows of all columns take seconds to pick."""


def tokens(load: pd.DataFrame) -> dict[str, Any]:
    """Over successes: what was asked for beside what came, who counted, tokens per event and cached input."""
    done = load.loc[load["outcome"] == "succeeded", list(_OF_TOKENS)]
    asked, got = done["asked_output_tokens"].astype("float64"), done["output_tokens"].astype("float64")
    both = asked.gt(0) & got.notna()
    asked_of_both, got_of_both = asked[both], got[both]
    events = done["output_events"].astype("float64")
    by_usage = done["tokens_from"] == "usage"
    cached = done["cached_tokens"].notna()
    inputs = float(done.loc[cached, "input_tokens"].sum())
    return {
        "asked_input_mean": done["asked_input_tokens"].astype("float64").mean(),
        "input_mean": done["input_tokens"].astype("float64").mean(),
        "asked_output_mean": asked.mean(),
        "output_mean": got.mean(),
        "got_over_asked_median": (got_of_both / asked_of_both).median(),
        "off_by_more_than_5_percent_ratio": off(asked_of_both, got_of_both).mean() if both.any() else None,
        "tokens_from": value_counts(done["tokens_from"]),
        "tokens_per_event": got[by_usage].sum() / events[by_usage].sum()
        if events[by_usage].sum() > 0
        else None,
        "without_tpot": int(done["tpot_s"].isna().sum()),
        "without_ttft": int(done["ttft_s"].isna().sum()),
        "cached_input_ratio": float(done.loc[cached, "cached_tokens"].sum()) / inputs if inputs else None,
        "delivered_by_unsuccessful": int(load.loc[load["outcome"] != "succeeded", "output_tokens"].sum()),
    }
