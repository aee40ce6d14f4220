"""What passes through the engine: requests, the steps that work on them, and the limits of both."""

from __future__ import annotations

from dataclasses import dataclass, field

BLOCK_TOKENS = 16


def blocks_for(tokens: int) -> int:
    """KV-cache blocks that hold `tokens` tokens."""
    return -(-tokens // BLOCK_TOKENS)


@dataclass(frozen=True)
class Limits:
    """What one step and the memory can hold. Raises ValueError when a limit leaves no room for any work."""

    max_num_batched_tokens: int
    max_num_seqs: int
    kv_cache_tokens: int

    def __post_init__(self) -> None:
        for name in ("max_num_batched_tokens", "max_num_seqs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.kv_cache_tokens < BLOCK_TOKENS:
            raise ValueError(
                f"kv_cache_tokens must hold one block of {BLOCK_TOKENS}, got {self.kv_cache_tokens}"
            )

    @property
    def blocks(self) -> int:
        """Blocks in the KV cache."""
        return self.kv_cache_tokens // BLOCK_TOKENS

    @property
    def whole_kv_tokens(self) -> int:
        """KV-cache tokens in whole blocks."""
        return self.blocks * BLOCK_TOKENS


@dataclass(slots=True, eq=False)
class Request:
    """One completion: what is asked and how far the engine has got. Times: seconds on the driver's clock.

    `tenant` is who asks, for policies that divide the server; `priority` as in vLLM: the lower, the sooner.
    `block_hashes` names the whole blocks of the prompt (prefix.py); without them nothing is shared.
    """

    request_id: str
    prompt_tokens: int
    output_tokens: int
    arrived_at_s: float
    tenant: str | None = None
    priority: int = 0
    block_hashes: tuple[int, ...] = ()
    computed_tokens: int = 0
    emitted_tokens: int = 0
    known_tokens: int = field(init=False)
    """Tokens whose keys and values the next answer token needs: the prompt and the answer so far."""
    blocks: int = 0
    shared_blocks: list[int] = field(default_factory=list)
    """Hashes of those of its blocks that other requests may share."""
    cached_prompt_tokens: int = 0
    """Prompt tokens that were found in the prefix cache when the request was first admitted."""
    preemptions: int = 0
    admitted_at_s: float | None = None
    """Start of the first step that worked on it."""
    first_token_at_s: float | None = None
    last_token_at_s: float | None = None
    aborted: bool = False

    def __post_init__(self) -> None:
        self.known_tokens = self.prompt_tokens

    @property
    def finished(self) -> bool:
        return self.emitted_tokens >= self.output_tokens

    @property
    def decoding(self) -> bool:
        """Its next token needs one more computed token only; otherwise a prompt (or a recompute) is left."""
        return self.emitted_tokens > 0 and self.known_tokens - self.computed_tokens == 1


@dataclass(frozen=True, slots=True)
class Step:
    """One step as scheduled: (request, tokens computed for it) in order, and its length in seconds."""

    started_at_s: float
    duration_s: float
    tokens: int
    work: list[tuple[Request, int]]


@dataclass(slots=True)
class Totals:
    """Counts since the start. Prompt tokens count once per request, at its first answer token.

    Prefix queries and hits are tokens, counted at each admission; cached prompt tokens those of the first.
    """

    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    generation_tokens: int = 0
    preemptions: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
