"""What an answer will say: known as soon as its request is, so that a stop string's place is known
too.

Tokens are numbered from 1. First come those of the reasoning, then either text or a tool call. Each
token is one word, a space before it; the words follow each other in a fixed order from a place that
the request's number decides. A stop string ends the answer with the token that completes it, and
none of it is sent (as vLLM does unless told otherwise); it is looked for in the text alone, beyond
`min_tokens`.

Without `ignore_eos`, and where the server has a mean answer length, an answer ends by itself after
a number of tokens drawn from the geometric distribution of that mean: each token is the last with
the same chance."""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Literal

from simserver.asked import Asked, Rules

FinishReason = Literal["length", "stop", "tool_calls"]
Kind = Literal["reasoning", "content", "tool_call"]

WORDS = """
time load queue burst token batch step cache block model prompt answer stream server budget chunk prefill
decode wait run late early slow fast peak quiet wave tide river stone cloud field light sound paper metal
north south winter summer morning evening garden window bridge harbour island forest valley mountain
engine signal number letter minute second market village station journey question reason measure balance
pattern
""".split()
TEXTS = tuple(f" {word}" for word in WORDS)
"""What tokens say, plain letters all."""
_CHOICES_APART = 11
"""Words between the beginnings of two choices' texts."""

TOOL_NAME = "simulate"
_OPENS_ARGUMENTS, _CLOSES_ARGUMENTS = '{"text": "', '"}'


@dataclass(frozen=True, slots=True)
class Script:
    """One choice's answer: how many tokens, what each says, and why it ends.

    start: place of its first word in WORDS. cut: the token in which a stop string begins, and what
    comes before that in the token; all from there on is silent."""

    start: int
    tokens: int
    finish_reason: FinishReason
    stop_reason: str | None = None
    reasoning_tokens: int = 0
    tool_call: bool = False
    cut: tuple[int, str] | None = None

    def kind(self, number: int) -> Kind:
        if number <= self.reasoning_tokens:
            return "reasoning"
        return "tool_call" if self.tool_call else "content"

    def text(self, number: int) -> str:
        """What token `number` says; in a tool call a piece of its arguments."""
        word = TEXTS[(self.start + number - 1) % len(TEXTS)]
        if self.cut and number >= self.cut[0]:
            return self.cut[1] if number == self.cut[0] else ""
        if self.tool_call and number > self.reasoning_tokens:
            if number == self.reasoning_tokens + 1:
                word = _OPENS_ARGUMENTS
            if number == self.tokens:
                word += _CLOSES_ARGUMENTS
        return word

    def runs(self, first: int, last: int) -> list[tuple[Kind, str]]:
        """What tokens `first` to `last` say, those of one kind together."""
        if first == last:
            return [(self.kind(first), self.text(first))]
        numbers = range(first, last + 1)
        return [(kind, "".join(map(self.text, run))) for kind, run in groupby(numbers, self.kind)]

    @property
    def whole(self) -> dict[Kind, str]:
        """All that is said, by kind, in order."""
        return dict(self.runs(1, self.tokens))


def scripts(asked: Asked, rules: Rules, number: int) -> tuple[Script, ...]:
    """One script for each choice of request `number` (from 0)."""
    return tuple(_script(asked, rules, number, choice) for choice in range(asked.choices))


def _script(asked: Asked, rules: Rules, number: int, choice: int) -> Script:
    start = (number + choice * _CHOICES_APART) % len(WORDS)
    length = max(_own_length(asked, rules, f"{rules.seed}/{number}/{choice}"), asked.least_tokens)
    too_long = length > asked.most_tokens
    tokens = asked.most_tokens if too_long else int(length)
    finish: FinishReason = "length" if too_long else "stop"
    reasoning_tokens = min(asked.reasoning_tokens, tokens)
    if asked.tool_call and reasoning_tokens < tokens:
        return Script(start, tokens, "tool_calls", None, reasoning_tokens, tool_call=True)
    plain = Script(start, tokens, finish, None, reasoning_tokens)
    return _stopped(plain, asked) if asked.stop else plain


def _own_length(asked: Asked, rules: Rules, seed: str) -> float:
    """Tokens after which the model would end by itself; infinite when it would not."""
    if asked.ignore_eos:
        return math.inf
    if rules.output_mean is None:
        return math.inf if asked.most_named else rules.default_output_tokens
    if rules.output_mean <= 1:
        return 1
    return 1 + math.floor(math.log(1 - random.Random(seed).random()) / math.log(1 - 1 / rules.output_mean))


def _stopped(script: Script, asked: Asked) -> Script:
    """The script as it ends where the first of the stop strings is complete.

    The words repeat, so that a string that is not found within one round more than its own length
    never comes.
    """
    before = script.reasoning_tokens
    least = asked.least_tokens - before
    round_tokens = max(least, 0) + len(TEXTS) + max(map(len, asked.stop))
    texts = [script.text(number) for number in range(before + 1, script.tokens + 1)[:round_tokens]]
    text, ends = "".join(texts), list(accumulate(map(len, texts)))
    silent = ends[min(least, len(ends)) - 1] if least > 0 and ends else 0
    found = [
        (at + len(stop), at, stop)
        for stop in asked.stop
        if (at := text.find(stop, max(0, silent - len(stop) + 1))) >= 0
    ]
    if not found:
        return script
    end, at, stop = min(found)
    last, cut = bisect_left(ends, end), bisect_right(ends, at)
    begins = ends[cut - 1] if cut else 0
    return Script(
        script.start,
        tokens=before + last + 1,
        finish_reason="stop",
        stop_reason=stop,
        reasoning_tokens=before,
        cut=(before + cut + 1, text[begins:at]),
    )
