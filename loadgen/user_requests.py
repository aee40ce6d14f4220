"""What the synthetic users of a closed loop ask for."""

from __future__ import annotations

from collections.abc import Callable

from loadgen.arrival import Arrival
from loadgen.seeds import Stream, generators, prompt_seeds
from shapes.lengths import Lengths

_DRAWN_AT_ONCE = 128


def user_requests(
    seed: int, input_lengths: Lengths, output_lengths: Lengths
) -> Callable[[int, int], Arrival]:
    """The rule for synthetic users: lengths and prompts drawn from (seed, user, turn), so the n-th request of
    a user is the same in every run with this seed, however fast the server is.

    Making generators is the dear part, so a user's next 128 turns are drawn together.
    """
    drawn: dict[int, tuple[int, list[tuple[int, int, int]]]] = {}

    def turns(user: int, stretch: int) -> list[tuple[int, int, int]]:
        inputs, outputs, prompts = generators(seed, Stream.USERS, user, stretch)
        lengths = (
            rule.draw(rng, _DRAWN_AT_ONCE).tolist()
            for rule, rng in ((input_lengths, inputs), (output_lengths, outputs))
        )
        return list(zip(*lengths, prompt_seeds(prompts, _DRAWN_AT_ONCE), strict=True))

    def request_of(user: int, turn: int) -> Arrival:
        stretch, place = divmod(turn, _DRAWN_AT_ONCE)
        have = drawn.get(user)
        if have is None or have[0] != stretch:
            have = drawn[user] = (stretch, turns(user, stretch))
        input_tokens, output_tokens, prompt_seed = have[1][place]
        return Arrival(
            index=None,
            at_s=0.0,
            name="chat",
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            prompt_seed=prompt_seed,
            label=f"u{user}-{turn}",
            session=str(user),
            turn=turn,
            scheduled=False,
        )

    return request_of
