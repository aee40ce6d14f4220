"""One request that is due: what the plan says of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Arrival:
    """Its index in schedule.csv (None for what no schedule holds), its moment, and what to ask for.

    `input_words` makes `input_tokens` of plain words on the server at hand, where that is known.
    `label` names it in its request id where there is no index. `scheduled` is False when `at_s` is no moment
    that the plan asks for. `session` and `turn` say which user sends it, and for which time, in a closed
    loop.
    """

    index: int | None
    at_s: float
    name: str
    input_tokens: int
    output_tokens: int
    prompt_seed: int
    segment: int = 0
    label: str | None = None
    scheduled: bool = True
    session: str | None = None
    turn: int | None = None
    input_words: int | None = None
