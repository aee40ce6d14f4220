"""Where a request's time went, as its records tell: own prompt, other prompts, slots, memory, steps.

The time to the first token is taken apart by comparing with the run's fastest requests:

    alone   max(t, k * prompt tokens), with t the 2nd percentile of TTFT and k that of TTFT per prompt token:
            what the request would have taken on an idle server
    waited  TTFT - alone
    busy    k' * (prompt tokens that had their first token while it waited, its own too) / TTFT, the share of
            the wait in which the server must have been computing prompts

with k' the smaller of k and the inverse of the highest rate at which prompts were ever computed. Both bound
the true cost of a prompt token from above, so `busy` is an upper bound: a wait that is not busy with prompts
was a wait for something else. The reason of a wait is then

    memory    the server's samples around it were short of KV cache more often than not
    prompts   it was alone for half of its TTFT, or busy for half of it (0.8 of it where samples show that all
              slots were taken)
    slots     otherwise

The time between tokens is k' * (prompt tokens of others computed in its stream) / its steps, and the rest;
of requests whose tokens were too slow the reason is `prompts` when these make half of it, else `steps`. That
is the formula of a step of continuous batching (a base, tokens, sequences) read backwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.load import Run
from analysis.metrics import exact_quantile
from analysis.server_said import ServerSamples
from analysis.users import Steps, spans

FASTEST = 0.02
HALF = 0.5
BUSY_THOUGH_SLOTS_ARE_FULL = 0.8
RATE_WINDOW_S = 0.25
WINDOW_OF_ALONE = 4.0


@dataclass(frozen=True, eq=False)
class TimeParts:
    """Arrays aligned with Run.load; NaN where unknown.

    waited_until_first_s: TTFT, or the age of a request that ended without a first token. alone_s, busy_ratio:
    see above. first_reason, step_reason: "memory", "prompts", "slots", "steps" or "". others_ratio: the share
    of the time between tokens that other requests' prompts took. decoding: how many streams were under way on
    average during its own. prompt_token_s: k'; prompt_tokens_per_s: the highest rate.
    """

    waited_until_first_s: np.ndarray
    alone_s: np.ndarray
    busy_ratio: np.ndarray
    first_reason: np.ndarray
    step_reason: np.ndarray
    others_ratio: np.ndarray
    decoding: np.ndarray
    prompt_token_s: float | None
    prompt_tokens_per_s: float | None


def time_parts(run: Run, samples: ServerSamples) -> TimeParts:
    """Take apart the times of every request of the load."""
    load = run.load
    sent_s, first_s, last_s, ended_s = (
        _floats(load[f"{name}_at_s"]) for name in ("sent", "first_token", "last_token", "ended")
    )
    prompt = _prompt_tokens(load)
    until_s = np.where(np.isnan(first_s), ended_s, first_s)
    wait_s = until_s - sent_s
    done = (load["outcome"] == "succeeded").to_numpy()
    alone_s, per_token_s = _alone(np.where(done, wait_s, np.nan), prompt)
    said = samples.said()
    computed = _Computed(run.requests)
    rate = _highest_rate(computed, float(np.nanmedian(alone_s)) if np.isfinite(alone_s).any() else 0.0)
    cost_s = min((c for c in (per_token_s, 1 / rate if rate else None) if c is not None), default=None)
    busy = np.full(len(load), np.nan)
    others = np.full(len(load), np.nan)
    if cost_s is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            busy = np.minimum(cost_s * computed.within(sent_s, until_s) / wait_s, 1.0)
            others = np.minimum(cost_s * computed.within(first_s, last_s) / (last_s - first_s), 1.0)
    least_busy = BUSY_THOUGH_SLOTS_ARE_FULL if said is not None and said.slots_were_full else HALF
    with np.errstate(invalid="ignore"):
        by_prompts = (alone_s >= HALF * wait_s) | (busy >= least_busy)
        no_memory = (samples.full_kv_share(sent_s, until_s) > HALF) & ~(alone_s >= HALF * wait_s)
    known = ~np.isnan(wait_s)
    first_reason, step_reason = (np.full(len(load), "", dtype=object) for _ in range(2))
    first_reason[known] = "slots"
    first_reason[known & by_prompts] = "prompts"
    first_reason[known & no_memory] = "memory"
    streamed = last_s > first_s
    step_reason[streamed] = "steps"
    step_reason[streamed & (np.nan_to_num(others) >= HALF)] = "prompts"
    return TimeParts(
        waited_until_first_s=wait_s,
        alone_s=alone_s,
        busy_ratio=busy,
        first_reason=first_reason,
        step_reason=step_reason,
        others_ratio=others,
        decoding=_mean_over(_decoding(run.requests), first_s, last_s),
        prompt_token_s=cost_s,
        prompt_tokens_per_s=rate,
    )


def _floats(column: pd.Series[float]) -> np.ndarray:
    return column.to_numpy(dtype=float, na_value=np.nan)


def _prompt_tokens(requests: pd.DataFrame) -> np.ndarray:
    """Prompt tokens that had to be computed: as counted, else as asked, less those from the prefix cache."""
    counted = requests["input_tokens"].fillna(requests["asked_input_tokens"])
    tokens = _floats(counted) - np.nan_to_num(_floats(requests["cached_tokens"]))
    return np.where(tokens >= 1, tokens, np.nan)


def _alone(ttft_s: np.ndarray, prompt: np.ndarray) -> tuple[np.ndarray, float | None]:
    """What each request would take on an idle server, and the cost of a prompt token in it."""
    fastest_s = _low(ttft_s)
    if fastest_s is None:
        return np.full(len(ttft_s), np.nan), None
    per_token_s = _low(ttft_s / prompt)
    if per_token_s is None:
        return np.full(len(ttft_s), fastest_s), None
    return np.maximum(fastest_s, np.nan_to_num(per_token_s * prompt)), per_token_s


def _low(values: np.ndarray) -> float | None:
    known = np.sort(values[values > 0])
    return exact_quantile(known, FASTEST) if len(known) else None


def _highest_rate(computed: _Computed, alone_s: float) -> float | None:
    """The most prompt tokens per second that had their first token, over windows long enough that one prompt
    more or less at their edges matters little."""
    width_s = max(RATE_WINDOW_S, WINDOW_OF_ALONE * alone_s)
    if not len(computed.at_s):
        return None
    tokens = computed.within(computed.at_s - width_s, computed.at_s)
    return float(tokens.max()) / width_s or None


class _Computed:
    """Prompt tokens put at the moment of their request's first token."""

    def __init__(self, requests: pd.DataFrame) -> None:
        at_s = _floats(requests["first_token_at_s"])
        tokens = np.nan_to_num(_prompt_tokens(requests))
        order = np.argsort(at_s, kind="stable")[: int(np.isfinite(at_s).sum())]
        self.at_s = at_s[order]
        self._total = np.concatenate([[0.0], np.cumsum(tokens[order])])

    def within(self, from_s: np.ndarray, until_s: np.ndarray) -> np.ndarray:
        """Tokens in each (from, until]; NaN where a bound is unknown."""
        first, last = (np.searchsorted(self.at_s, times_s, "right") for times_s in (from_s, until_s))
        unknown = np.isnan(from_s) | np.isnan(until_s)
        tokens: np.ndarray = np.where(unknown, np.nan, self._total[last] - self._total[first])
        return tokens


def _decoding(requests: pd.DataFrame) -> Steps:
    first_s = _floats(requests["first_token_at_s"])
    return spans(first_s, np.where(np.isnan(first_s), np.nan, _floats(requests["last_token_at_s"])))


def _mean_over(steps: Steps, from_s: np.ndarray, until_s: np.ndarray) -> np.ndarray:
    """The mean of a step function over each stretch; NaN for one without width."""
    if not len(steps.at_s):
        return np.full(len(from_s), np.nan)
    area = np.concatenate([[0.0], np.cumsum(steps.value[:-1] * np.diff(steps.at_s))])
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (np.interp(until_s, steps.at_s, area) - np.interp(from_s, steps.at_s, area)) / (
            until_s - from_s
        )
    result: np.ndarray = np.where(until_s > from_s, mean, np.nan)
    return result
