"""How long one engine step takes.

    T(step) = max(floor, base + per_token * tokens)
              + per_cached_token * cached_tokens + per_sequence * sequences + per_pair * pairs

tokens: prompt and answer tokens computed in the step; cached_tokens: tokens already in the KV cache of the
sequences in the step, read once by attention; sequences: how many sequences take part; pairs: for the parts
of prompts, each token times the tokens before it (the quadratic part of prefill attention). The first term
is the linear layers: flat while the weights' transfer from memory dominates, then a straight line in the
tokens. Left out: the all-reduce of tensor parallelism and CPU time outside the step, where a preset was not
fitted to a whole server.

presets.py has the coefficients by GPU and model, fit.py finds them from measured points.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CostModel:
    """The coefficients of the step-time formula, in seconds (and seconds per token, sequence or pair)."""

    floor_s: float
    base_s: float = 0.0
    per_token_s: float = 0.0
    per_cached_token_s: float = 0.0
    per_sequence_s: float = 0.0
    per_pair_s: float = 0.0

    def step_time_s(self, tokens: float, cached_tokens: float, sequences: float, pairs: float = 0.0) -> float:
        """Seconds that one step takes, without jitter."""
        linear_layers_s = max(self.floor_s, self.base_s + self.per_token_s * tokens)
        return (
            linear_layers_s
            + self.per_cached_token_s * cached_tokens
            + self.per_sequence_s * sequences
            + self.per_pair_s * pairs
        )
