"""`python -m bench.coverage`: do 95 % intervals hold the truth, and is recovery's time right?

Intervals: `--runs` simulated runs each. Independent requests for order statistics (exponential TTFT) and
Wilson. For bursts a cheap correlated model: a burst's share of requests that meet the SLO is drawn from a
beta distribution (intraclass correlation 1 / (a + b + 1)), its size is Poisson(130).

Recovery: one queue, 10 arrivals/s, 50/s for 10 s, deterministic service such that the queue needs 14.4 s on
average to drain; each estimator against the moment at which the same run's queue was first empty.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from analysis.clusters import burst_interval
from analysis.metrics import quantile_of
from analysis.recovery import first_held_window
from analysis.slo import wilson_interval
from analysis.waits import Waits, windowed_medians

BASE_RPS, PEAK_RPS, LEAD_S, WIDTH_S, AFTER_S = 10.0, 50.0, 30.0, 10.0, 60.0
DRAIN_S = 14.4
SERVED_PER_S = (PEAK_RPS * WIDTH_S + BASE_RPS * DRAIN_S) / (WIDTH_S + DRAIN_S)
BASE_TTFT_S, ANSWER_S, TOLERANCE_S = 0.035, 2.0, 0.2
BETAS = {
    "0.5": (2.0, 2.0),
    "0.9": (4.5, 0.5),
    "0.9, bursts alike": (45.0, 5.0),
    "0.95": (4.75, 0.25),
    "0.98": (4.9, 0.1),
    "0.99": (4.95, 0.05),
    "0.99, bursts alike": (99.0, 1.0),
}


def held(low: float | None, high: float | None, truth: float) -> bool:
    """Whether an interval was given and holds the truth."""
    return low is not None and high is not None and low <= truth <= high


def order_statistics(runs: int, n: int, q: float, rng: np.random.Generator) -> float:
    """Coverage of the interval of the q-quantile of n exponential values."""
    truth = -math.log(1 - q)
    rows = (quantile_of(np.sort(rng.exponential(size=n)), q) for _ in range(runs))
    return sum(held(row.low, row.high, truth) for row in rows) / runs


def wilson(runs: int, n: int, p: float, rng: np.random.Generator) -> float:
    """Coverage of Wilson's interval over n independent requests."""
    return sum(held(*wilson_interval(int(met), n), p) for met in rng.binomial(n, p, runs)) / runs


def by_burst(runs: int, bursts: int, ab: tuple[float, float], rng: np.random.Generator) -> list[float]:
    """Coverage of the burst-level and of the request-level interval, the share of runs that have no
    burst-level one, its mean width, the share of runs whose misses sit in few bursts, the mean design effect.
    """
    truth = ab[0] / sum(ab)
    good, naive, none = 0, 0, 0
    effects, widths, few = [], [], 0
    for _ in range(runs):
        size = rng.poisson(130, bursts) + 1
        met = rng.binomial(size, rng.beta(*ab, bursts))
        found = burst_interval(met, size)
        naive += held(*wilson_interval(int(met.sum()), int(size.sum())), truth)
        if found.low is None or found.high is None:
            none += 1
            continue
        widths.append(found.high - found.low)
        few += found.few
        good += held(found.low, found.high, truth)
        effects.append(found.design_effect or 0.0)
    shares = [good / max(runs - none, 1), naive / runs, none / runs]
    return [*shares, float(np.mean(widths)), few / runs, float(np.mean(effects))]


def queue(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
    """(arrivals, TTFTs, seconds after the burst at which its queue was first empty) of one run."""
    end_s = LEAD_S + WIDTH_S
    spans = [(0.0, LEAD_S, BASE_RPS), (LEAD_S, end_s, PEAK_RPS), (end_s, end_s + AFTER_S, BASE_RPS)]
    at_s = np.sort(np.concatenate([rng.uniform(a, b, rng.poisson(rate * (b - a))) for a, b, rate in spans]))
    service_s = 1 / SERVED_PER_S
    served = np.arange(len(at_s)) * service_s
    starts = np.maximum.accumulate(at_s - served) + served
    waits_s = starts - at_s
    after = np.flatnonzero((at_s >= end_s) & (waits_s <= service_s))
    return at_s, waits_s + BASE_TTFT_S, float(at_s[after[0]] - end_s)


def estimates(at_s: np.ndarray, ttft_s: np.ndarray) -> dict[str, float]:
    """Seconds after the burst's end, by estimator; NaN when it never says so."""
    end_s, until_s = LEAD_S + WIDTH_S, LEAD_S + WIDTH_S + AFTER_S
    base_s = float(np.median(ttft_s[(at_s > 5) & (at_s < LEAD_S)]))
    done_s = at_s + ttft_s + ANSWER_S

    def held_from(index_s: np.ndarray, limit_s: float) -> float:
        waits = Waits(index_s, ttft_s, np.zeros(len(index_s), dtype=bool))
        found, _ = first_held_window(windowed_medians(waits, end_s, until_s), limit_s, AFTER_S)
        return math.nan if found is None else found

    seconds = np.arange(end_s, until_s)
    rolling = [
        float(np.quantile(part, 0.95)) if len(part) else math.nan
        for part in (ttft_s[(done_s > s - 10) & (done_s <= s)] for s in seconds)
    ]
    calm = [bool(np.nanmax(rolling[k : k + 10]) <= base_s + TOLERANCE_S) for k in range(len(seconds) - 10)]
    float(calm.index(True)) if True in calm else math.nan
    return {
        "by arrival, 2 s, p50 <= max(base + 0.2 s, 1.5 base)": held_from(
            at_s, max(base_s + TOLERANCE_S, 1.5 * base_s)
        ),
        "by arrival, 2 s, p50 <= 1.5 base": held_from(at_s, 1.5 * base_s),
        "by completion, 2 s, p50 <= base + 0.2 s": held_from(done_s, base_s + TOLERANCE_S),
        "last 10 s of completions, p95 <= base + 0.2 s": float(calm.index(True))
        if True in calm
        else math.nan,
    }


def recovery(runs: int, rng: np.random.Generator) -> None:
    """Print the error of each estimator."""
    errors: dict[str, list[float]] = {}
    truths = []
    for _ in range(runs):
        at_s, ttft_s, true_s = queue(rng)
        truths.append(true_s)
        for name, found_s in estimates(at_s, ttft_s).items():
            errors.setdefault(name, []).append(found_s - true_s)
    print(f"\ntrue drain: mean {np.mean(truths):.1f} s, sd {np.std(truths):.1f} s, {runs} runs")
    print("| estimator | median error s | sd s | never |\n|---|---|---|---|")
    for name, row in errors.items():
        never = int(np.isnan(row).sum())
        print(f"| {name} | {np.nanmedian(row):+.2f} | {np.nanstd(row):.2f} | {never} |")


def main() -> None:
    """Print the tables of docs/statistics.md."""
    parser = argparse.ArgumentParser(prog="python -m bench.coverage", description=main.__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng, runs = np.random.default_rng(options.seed), options.runs
    print("| independent requests | n | coverage |\n|---|---|---|")
    for n, q in ((100, 0.5), (200, 0.95), (1000, 0.99)):
        print(f"| order statistics, p{100 * q:g} | {n} | {order_statistics(runs, n, q, rng):.1%} |")
    for n, p in ((100, 0.9), (1000, 0.99)):
        print(f"| Wilson, attainment {p} | {n} | {wilson(runs, n, p, rng):.1%} |")
    print("\n| bursts | attainment | over bursts | its width | over requests | none | few | design effect |")
    print("|---|---|---|---|---|---|---|---|")
    for bursts in (8, 15, 30):
        for name, ab in BETAS.items():
            good, naive, none, width, few, effect = by_burst(runs, bursts, ab, rng)
            shares = " | ".join(f"{value:.1%}" for value in (good, width, naive, none, few))
            print(f"| {bursts} | {name} | {shares} | {effect:.0f} |")
    recovery(min(runs, 500), rng)


if __name__ == "__main__":
    main()
