"""How many plain words make a prompt of so many tokens, learned from the server's own counts. Pure.

    tokens = overhead + rate x words

The overhead is the chat template's (and a system prompt's, where the server adds one); the rate is the
tokenizer's, about 1 for common words. Two prompts of different sizes give both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SIZES = (32, 256)
"""Words in the prompts that are counted: far enough apart for the rate, small enough to cost little."""

_PLAUSIBLE_RATE = (0.1, 20.0)


@dataclass(frozen=True)
class PromptCalibration:
    """Tokens of an empty prompt, and tokens per word. The default takes a word for a token."""

    overhead_tokens: float = 0.0
    tokens_per_word: float = 1.0

    def words_for(self, tokens: int) -> int:
        """Words of a prompt that the server counts as nearly `tokens`: at least one."""
        return max(1, round((tokens - self.overhead_tokens) / self.tokens_per_word))

    def tokens_of(self, words: int) -> float:
        """What the server counts for so many words, on average."""
        return self.overhead_tokens + self.tokens_per_word * words


UNCALIBRATED = PromptCalibration()


def fit(points: Sequence[tuple[int, int]]) -> PromptCalibration | None:
    """The straight line with the least squared error through (words, tokens); an overhead is never negative.

    None when the points cannot tell (fewer than two sizes) or are no count of words: a rate outside 0.1 to 20
    tokens per word.
    """
    if len({words for words, _ in points}) < 2:
        return None
    mean_words = sum(words for words, _ in points) / len(points)
    mean_tokens = sum(tokens for _, tokens in points) / len(points)
    shared = sum((words - mean_words) * (tokens - mean_tokens) for words, tokens in points)
    rate = shared / sum((words - mean_words) ** 2 for words, _ in points)
    overhead = mean_tokens - rate * mean_words
    if overhead < 0:
        overhead = 0.0
        rate = sum(words * tokens for words, tokens in points) / sum(words**2 for words, _ in points)
    lowest, highest = _PLAUSIBLE_RATE
    return PromptCalibration(overhead, rate) if lowest <= rate <= highest else None
