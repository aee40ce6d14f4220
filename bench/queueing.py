"""`python -m bench.queueing`: the simulated engine against queueing theory, up to a load of 0.9.

One running request, prompts only: a queue with one server. Mean waiting time of `--seeds` runs of
`--requests` arrivals each, with its 95 % interval over the seeds, beside the formula for Poisson arrivals:

    M/D/1   rho S / (2 (1 - rho))         M/M/1   rho S / (1 - rho)
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from statistics import fmean, stdev

from simserver.cost import CostModel
from simserver.engine import Engine
from simserver.request import Limits, Request
from simserver.virtual import run_virtually

SERVICE_S = 0.02
TOKENS = 10_000


def arrivals(load: float, count: int, seed: int, *, exponential: bool) -> Iterator[Request]:
    """Poisson arrivals at `load` / SERVICE_S per second; prompts of TOKENS tokens, or exponential ones."""
    draw = random.Random(seed)
    now_s = 0.0
    for index in range(count):
        now_s += draw.expovariate(load / SERVICE_S)
        tokens = max(1, round(draw.expovariate(1 / TOKENS))) if exponential else TOKENS
        yield Request(str(index), tokens, 1, now_s)


def mean_wait_s(load: float, count: int, seed: int, *, exponential: bool) -> float:
    """Mean time from arrival to the start of the service."""
    cost = CostModel(floor_s=0.0, per_token_s=SERVICE_S / TOKENS)
    engine = Engine(cost, Limits(10**6, 1, 10**6))
    waited_s = 0.0

    def on_step(gained: list[Request], now_s: float) -> None:
        nonlocal waited_s
        for one in gained:
            assert one.admitted_at_s is not None
            waited_s += one.admitted_at_s - one.arrived_at_s

    run_virtually(engine, arrivals(load, count, seed, exponential=exponential), on_step=on_step)
    return waited_s / count


def main() -> None:
    """Print a row for each queue and load."""
    parser = argparse.ArgumentParser(prog="python -m bench.queueing", description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--requests", type=int, default=100_000, help="arrivals of a run")
    options = parser.parse_args()
    print(
        f"{'queue':6} {'rho':>4} {'formula ms':>11} {'measured ms':>12} {'+-':>6} {'error':>7} {'CPU s':>6}"
    )
    for exponential in (False, True):
        for load in (0.5, 0.7, 0.9):
            began_s = time.process_time()
            waits_s = [
                mean_wait_s(load, options.requests, seed, exponential=exponential)
                for seed in range(options.seeds)
            ]
            expected_s = load * SERVICE_S / (1 - load) / (1 if exponential else 2)
            spread_s = 1.96 * stdev(waits_s) / len(waits_s) ** 0.5 if len(waits_s) > 1 else 0.0
            print(
                f"{'M/M/1' if exponential else 'M/D/1':6} {load:4} {expected_s * 1e3:11.2f} "
                f"{fmean(waits_s) * 1e3:12.2f} {spread_s * 1e3:6.2f} {fmean(waits_s) / expected_s - 1:+7.1%} "
                f"{time.process_time() - began_s:6.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
