"""The figures of groups of requests: by name, by tenant, by input length.

Bands of input length have fixed edges, a factor of four apart, so that two runs have the same ones. A request
belongs to the band of its counted input tokens, or where nothing was counted of those it asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.metrics import Quantile, quantile_of
from analysis.slo import Judged, attainment

BAND_EDGES = (128, 512, 2048, 8192, 32_768)
BANDS = tuple(
    f"{low} to {high - 1}" if high else f"{low} and more"
    for low, high in zip((0, *BAND_EDGES), (*BAND_EDGES, 0), strict=True)
)
MOST_GROUPS = 20
OTHERS = "others"
TTFT_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
TPOT_QUANTILES = {"p50": 0.5, "p95": 0.95}


@dataclass(frozen=True, eq=False)
class Columns:
    """What the figures of any part of a load are made of, one entry a request: TTFT and TPOT in seconds (NaN
    where it did not succeed or was not measured), `error` (failed or rejected), `ended` (these and the
    successes), and the load as judged by the SLO."""

    ttft_s: np.ndarray
    tpot_s: np.ndarray
    error: np.ndarray
    ended: np.ndarray
    joint: Judged | None


def columns_of(load: pd.DataFrame, lead_ttft: str, joint: Judged | None) -> Columns:
    """`lead_ttft` is the TTFT to show."""
    succeeded = (load["outcome"] == "succeeded").to_numpy()
    error = load["outcome"].isin(("failed", "rejected")).to_numpy()
    ttft_s, tpot_s = (
        np.where(succeeded, load[name].to_numpy(dtype=float, na_value=np.nan), np.nan)
        for name in (lead_ttft, "tpot_s")
    )
    return Columns(ttft_s, tpot_s, error, error | succeeded, joint)


def figures(columns: Columns, chosen: np.ndarray) -> dict[str, Any]:
    """`requests`, `errors`, `error_ratio`, `ttft`, `tpot_s` (over successes) and `attainment` of the requests
    where `chosen` is true."""
    errors, ended = int(columns.error[chosen].sum()), int(columns.ended[chosen].sum())
    joint = columns.joint
    return {
        "requests": int(chosen.sum()),
        "errors": errors,
        "error_ratio": errors / ended if ended else None,
        "ttft": _quantiles(columns.ttft_s[chosen], TTFT_QUANTILES),
        "tpot_s": _quantiles(columns.tpot_s[chosen], TPOT_QUANTILES),
        "attainment": None
        if joint is None
        else attainment(joint, pd.Series(chosen, index=joint.decided.index)),
    }


def _quantiles(values: np.ndarray, quantiles: dict[str, float]) -> dict[str, Quantile]:
    ordered = np.sort(values[~np.isnan(values)])
    return {name: quantile_of(ordered, q) for name, q in quantiles.items()}


def groups(load: pd.DataFrame, columns: Columns) -> dict[str, list[dict[str, Any]]]:
    """`name`, `tenant` and `input_tokens`, each a row a group, or [] where there are not two.

    Names and tenants: those with most requests first, beyond 20 as one row "others"; bands in order.
    """
    return {
        "name": _by_text(load["name"], columns),
        "tenant": _by_text(load["tenant"], columns),
        "input_tokens": _by_band(load, columns),
    }


def ranked(column: pd.Series[Any]) -> tuple[np.ndarray, list[str]]:
    """Each request's group (-1 where it has none) and the groups' texts, those with most requests first."""
    codes, texts = pd.factorize(column)
    sizes = np.bincount(codes[codes >= 0], minlength=len(texts))
    order = np.argsort(-sizes, kind="stable")
    rank = np.append(np.argsort(order), -1)
    return rank[codes], [str(texts[place]) for place in order]


def _by_text(column: pd.Series[Any], columns: Columns) -> list[dict[str, Any]]:
    group, texts = ranked(column)
    if len(texts) < 2:
        return []
    rows = [
        {"group": text, **figures(columns, group == place)} for place, text in enumerate(texts[:MOST_GROUPS])
    ]
    if len(texts) > MOST_GROUPS:
        rows.append({"group": OTHERS, **figures(columns, group >= MOST_GROUPS)})
    return rows


def _by_band(load: pd.DataFrame, columns: Columns) -> list[dict[str, Any]]:
    tokens = load["input_tokens"].fillna(load["asked_input_tokens"])
    known = tokens.notna().to_numpy()
    band = np.searchsorted(BAND_EDGES, tokens.fillna(0).to_numpy(dtype=float), side="right")
    there = np.unique(band[known])
    if len(there) < 2:
        return []
    return [{"group": BANDS[place], **figures(columns, known & (band == place))} for place in there]
