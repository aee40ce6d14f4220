"""`python -m bench.calibration`: the simulated server's presets against measured closed-loop curves.

Each measured row (bench/data, see its README) is N requests by `concurrency` users, each sending its next
when its last has ended. The same is done in virtual time on the preset. The table does not say how long
prompts and answers were: the answers' mean is output tokens / requests, their spread follows from the
end-to-end quantiles, and the prompts that were computed are those that fit the first tokens of 40 requests
at once (the rest of a prompt must have come from the prefix cache).
"""

from __future__ import annotations

import argparse
import csv
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist, fmean

from simserver.engine import Engine
from simserver.presets import PRESETS, Preset
from simserver.request import Limits, Request
from simserver.virtual import run_virtually

DATA = Path(__file__).parent / "data" / "measured_vllm_2080ti.csv"
PROMPT_TOKENS = 32
SEEDS = 10
CURVES = {"2080ti-8b": ("Llama-3.1-8B", "2080Ti"), "2080tix2-8b": ("Llama-3.1-8B", "2080Tix2")}


@dataclass(frozen=True)
class Measured:
    """One row of the table; times in seconds, lengths in tokens."""

    concurrency: int
    requests: int
    output_tokens: float
    sigma: float
    tpot_s: float
    ttft_s: float
    ttft_p50_s: float


@dataclass(frozen=True)
class Point:
    """One concurrency: what was measured, and the same from the preset (mean of the seeds)."""

    measured: Measured
    tpot_s: float
    ttft_s: float

    @property
    def tpot_error(self) -> float:
        """Relative: simulated / measured - 1."""
        return self.tpot_s / self.measured.tpot_s - 1

    @property
    def ttft_error(self) -> float:
        """Relative: simulated / measured - 1."""
        return self.ttft_s / self.measured.ttft_s - 1


def measured_curve(model: str, gpu: str, profile: str = "chat-medium") -> list[Measured]:
    """The rows of one curve, by concurrency. sigma: of the log of the answers' lengths, from p99 / p50."""
    with open(DATA, newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if (row["model"], row["gpu"]) == (model, gpu)]
    z99 = NormalDist().inv_cdf(0.99)
    return [
        Measured(
            concurrency=int(row["concurrency"]),
            requests=int(row["num_requests"]),
            output_tokens=float(row["output_token_throughput"]) / float(row["request_throughput"]),
            sigma=math.log(float(row["p99_e2el_ms"]) / float(row["p50_e2el_ms"])) / z99,
            tpot_s=float(row["mean_tpot_ms"]) / 1e3,
            ttft_s=float(row["mean_ttft_ms"]) / 1e3,
            ttft_p50_s=float(row["p50_ttft_ms"]) / 1e3,
        )
        for row in rows
        if row["profile"] == profile
    ]


def closed_loop(preset: Preset, measured: Measured, seed: int) -> list[Request]:
    """N requests by so many users on the preset in virtual time; all of them, ended."""
    draw = random.Random(seed)
    mu = math.log(measured.output_tokens) - measured.sigma**2 / 2
    lengths = [max(2, round(draw.lognormvariate(mu, measured.sigma))) for _ in range(measured.requests)]
    limits = Limits(preset.max_num_batched_tokens, preset.max_num_seqs, preset.kv_cache_tokens)
    engine = Engine(preset.cost, limits)
    sent: list[Request] = []

    def following(now_s: float) -> Request:
        sent.append(Request(str(len(sent)), PROMPT_TOKENS, lengths[len(sent)], now_s))
        return sent[-1]

    def on_step(gained: list[Request], now_s: float) -> None:
        for one in gained:
            if one.finished and len(sent) < measured.requests:
                engine.submit(following(now_s))

    first = [following(0.0) for _ in range(min(measured.concurrency, measured.requests))]
    run_virtually(engine, first, on_step=on_step)
    return sent


def calibrated(preset: Preset, measured: Measured, seeds: int = SEEDS) -> Point:
    """The mean TPOT and TTFT of requests, as the table has them."""
    tpots, ttfts = [], []
    for seed in range(seeds):
        for one in closed_loop(preset, measured, seed):
            assert one.first_token_at_s is not None
            assert one.last_token_at_s is not None
            tpots.append((one.last_token_at_s - one.first_token_at_s) / (one.output_tokens - 1))
            ttfts.append(one.first_token_at_s - one.arrived_at_s)
    return Point(measured, fmean(tpots), fmean(ttfts))


def table(points: Sequence[Point]) -> str:
    """Measured beside simulated, in milliseconds, with relative residuals."""
    lines = [
        f"{'users':>6} {'TPOT':>8} {'sim':>8} {'error':>7}   {'TTFT':>8} {'p50':>8} {'sim':>8} {'error':>7}"
    ]
    for point in points:
        row = point.measured
        lines.append(
            f"{row.concurrency:6} {row.tpot_s * 1e3:8.1f} {point.tpot_s * 1e3:8.1f} "
            f"{point.tpot_error:+7.1%}   {row.ttft_s * 1e3:8.0f} "
            f"{row.ttft_p50_s * 1e3:8.0f} {point.ttft_s * 1e3:8.0f} {point.ttft_error:+7.1%}"
        )
    return "\n".join(lines)


def main() -> None:
    """Print each curve; times in milliseconds."""
    parser = argparse.ArgumentParser(prog="python -m bench.calibration", description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"of the answers' lengths ({SEEDS})")
    seeds = parser.parse_args().seeds
    for name, (model, gpu) in CURVES.items():
        points = [calibrated(PRESETS[name], row, seeds) for row in measured_curve(model, gpu)]
        print(f"{name}: chat-medium, mean of requests, ms\n{table(points)}\n")


if __name__ == "__main__":
    main()
