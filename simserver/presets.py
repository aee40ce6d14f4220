"""Step time, memory and usual limits by GPU and model.

Sources of the profiled presets (A100, H100)
- Linear layers: the operator profiles published with microsoft/vidur (commit 7d475133,
  data/profiling/compute), sum of the operators' medians x layers. floor = the time of 1 token. base and
  per_token = the line with the smallest largest relative error over 256, 1,024 and 4,096 tokens. Each
  preset keeps its points in `profile_s`. Residuals of the model against them, in per cent:

        preset          1 token     64     256   1,024   4,096
        a100-8b               0  -13.4    +3.1    -3.6    +3.0
        h100-8b               0   -5.1    -6.4    +6.8    -6.4
        a100-70b-tp4          0   -7.4    +4.4    -4.4    +4.3
        h100-70b-tp4          0   -6.5    +0.1    -2.1    +2.1

  The corner between the flat and the straight part is round in reality, hence the misses at 64 tokens.
- KV cache: 2 (K, V) * layers * KV heads * head size * 2 bytes = 128 KiB per token for 8B, 320 KiB for 70B
  (grouped query attention), spread over the GPUs of a tensor-parallel group. Reading it takes 1.95 times
  the bandwidth time, the factor that inference-sim (BLIS, commit f90a1e3a, defaults.yaml) trained on H100;
  bandwidth 3.35 TB/s on H100 SXM and 2.04 TB/s on A100 80 GB SXM (NVIDIA's data sheets). The A100 figures
  carry H100's factor over.
- per_sequence: 4.4 us per request and step, from the same trained constants.
- per_pair: the arithmetic of attention against that of the linear layers, times per_token. A token pair
  costs 4 * layers * heads * head size operations, a token twice the weights: 3.75e-5 for 8B (32 * 4,096;
  7e9 weights), 1.9e-5 for 70B (80 * 8,192; 69e9). DistServe's fit of OPT-13B on A100 (commit 82831f16) is
  about four times the arithmetic, so very long prompts are rather too fast here.
- KV tokens that fit: 90 % of each GPU's 80 GB less weights in 16 bit and about 2-3 GiB of activations, by
  the bytes per token above, rounded.
- Defaults of the token budget and of the running sequences: vLLM's server defaults for the GPU class
  (0.33).

Sources of the fitted presets (2080 Ti)
- The dataset agentperfbench's closed-loop runs of vLLM (Apache-2.0; bench/data/README.md), chat-medium, mean
  TPOT at 1 to 40 or 80 users. floor: one user. per_cached_token: 128 KiB at 616 GB/s (NVIDIA's data sheet)
  times 1.95. per_token: the longest pauses of the table's long-prompt runs, 0.55 to 0.6 s for a step of
  2,048 tokens (budget of vLLM's defaults). per_sequence: by least squares of the TPOT of the same closed
  loops in virtual time (bench/calibration.py prints the residuals). It is a hundred times that of the H100:
  older kernels and a slower host are in it. First tokens at few users are too soon here: what a server
  does before the first step (30 ms and more in the table) is not in an engine's step.
- KV tokens that fit: a card of 22 GB by the same arithmetic (16 GB of weights leave 3 GB), two for TP 2.
"""

from __future__ import annotations

from dataclasses import dataclass

from simserver.cost import CostModel


@dataclass(frozen=True)
class Preset:
    """One GPU and model: its step time, its memory, and the limits a vLLM server would start with."""

    name: str
    about: str
    cost: CostModel
    kv_cache_tokens: int
    max_num_batched_tokens: int
    max_num_seqs: int
    profile_s: tuple[tuple[int, float], ...] = ()
    """Measured points of the linear layers, where there are: (tokens in the step, seconds)."""


_ROWS = (
    Preset(
        name="a100-8b",
        about="A100 80 GB, Llama-3-8B",
        cost=CostModel(
            9.7e-3, 2.7e-3, 68e-6, per_cached_token_s=125e-9, per_sequence_s=4.4e-6, per_pair_s=2.55e-9
        ),
        kv_cache_tokens=450_000,
        max_num_batched_tokens=2_048,
        max_num_seqs=256,
        # vidur: A100, Llama-3-8B, TP 1.
        profile_s=((1, 9.7e-3), (64, 11.2e-3), (256, 19.5e-3), (1_024, 75e-3), (4_096, 273e-3)),
    ),
    Preset(
        name="h100-8b",
        about="H100 80 GB, 8B (linear layers as profiled for Llama-2-7B)",
        cost=CostModel(
            5.6e-3, 4.0e-3, 18e-6, per_cached_token_s=76e-9, per_sequence_s=4.4e-6, per_pair_s=0.68e-9
        ),
        kv_cache_tokens=450_000,
        max_num_batched_tokens=8_192,
        max_num_seqs=1_024,
        # vidur: H100, Llama-2-7B, TP 1; it has no 8B model there. On A100 the 8B takes 4-15 % longer.
        profile_s=((1, 5.6e-3), (64, 5.9e-3), (256, 9.2e-3), (1_024, 21e-3), (4_096, 83e-3)),
    ),
    Preset(
        name="a100-70b-tp4",
        about="4 x A100 80 GB, Llama-3-70B",
        cost=CostModel(
            24.9e-3, 11.4e-3, 163.5e-6, per_cached_token_s=78e-9, per_sequence_s=4.4e-6, per_pair_s=3.1e-9
        ),
        kv_cache_tokens=460_000,
        max_num_batched_tokens=2_048,
        max_num_seqs=256,
        # vidur: A100, Llama-3-70B, TP 4.
        profile_s=((1, 24.9e-3), (64, 26.9e-3), (256, 51e-3), (1_024, 187e-3), (4_096, 653e-3)),
    ),
    Preset(
        name="h100-70b-tp4",
        about="4 x H100 80 GB, Llama-2-70B",
        cost=CostModel(
            14.3e-3, 5.4e-3, 54e-6, per_cached_token_s=48e-9, per_sequence_s=4.4e-6, per_pair_s=1.03e-9
        ),
        kv_cache_tokens=460_000,
        max_num_batched_tokens=8_192,
        max_num_seqs=1_024,
        # vidur: H100, Llama-2-70B, TP 4.
        profile_s=((1, 14.3e-3), (64, 15.3e-3), (256, 19.2e-3), (1_024, 62e-3), (4_096, 222e-3)),
    ),
    Preset(
        name="2080ti-8b",
        about="RTX 2080 Ti 22 GB, Llama-3.1-8B (fitted to a measured curve)",
        cost=CostModel(32.5e-3, 0.0, 0.27e-3, per_cached_token_s=415e-9, per_sequence_s=0.40e-3),
        kv_cache_tokens=22_000,
        max_num_batched_tokens=2_048,
        max_num_seqs=256,
    ),
    Preset(
        name="2080tix2-8b",
        about="2 x RTX 2080 Ti 22 GB, Llama-3.1-8B (fitted to a measured curve)",
        cost=CostModel(15.5e-3, 0.0, 0.25e-3, per_cached_token_s=208e-9, per_sequence_s=0.33e-3),
        kv_cache_tokens=180_000,
        max_num_batched_tokens=2_048,
        max_num_seqs=256,
    ),
)

PRESETS: dict[str, Preset] = {row.name: row for row in _ROWS}
