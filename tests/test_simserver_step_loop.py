"""The step loop on a clock of its own decides as virtual time does, and lets no burst hold it up."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from simserver.answers import Answer
from simserver.asked import Rules, read_asked
from simserver.cost import CostModel
from simserver.endpoints import ENDPOINTS
from simserver.engine import Engine
from simserver.exchange import Exchange
from simserver.faults import Faults
from simserver.metrics import Metrics
from simserver.request import Limits, Request
from simserver.script import scripts
from simserver.step_loop import StepLoop
from simserver.turns import Turns
from simserver.virtual import run_virtually

TICK_S = 1e-6
RULES = Rules("m", 1_000, 10)


class Clock:
    """Time that passes where somebody waits, and a microsecond each time it is asked for."""

    now_s = 100.0

    def __call__(self) -> float:
        self.now_s += TICK_S
        return self.now_s


class ClockedLoop(asyncio.SelectorEventLoop):
    """An event loop on a Clock: nothing waits in earnest."""

    def __init__(self, clock: Clock) -> None:
        self._own_clock = clock

        class Waiting(selectors.SelectSelector):
            def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
                clock.now_s += timeout or 0.0
                return super().select(0)

        super().__init__(Waiting())

    def time(self) -> float:
        return self._own_clock()


def engine(jitter: float = 0.0) -> Engine:
    return Engine(CostModel(0.01, 0.0, 1e-4), Limits(200, 4, 1_600), jitter_ratio=jitter, seed=3)


def exchange(prompt: int, output: int, arrived_at_s: float) -> Exchange:
    body = b'{"prompt": "%b", "max_tokens": %d}' % (b"w " * prompt, output)
    asked = read_asked(body, ENDPOINTS["completions"], RULES)
    sequence = Request("r", prompt, output, arrived_at_s)
    return Exchange(Answer("r", 0, asked, RULES, scripts(asked, RULES, 0), [sequence]))


def served(load: Sequence[tuple[float, int, int]], jitter: float) -> list[Request]:
    """The requests (gap before it in seconds, prompt tokens, output tokens), served by the step loop."""
    clock = Clock()
    kept: list[Request] = []

    async def serve() -> None:
        of = engine(jitter)
        steps = StepLoop(of, Metrics(of, "m", 8192), Faults(), clock(), clock)
        stepping = asyncio.create_task(steps.run())
        ends = []
        for gap_s, prompt, output in load:
            await asyncio.sleep(gap_s)
            made = exchange(prompt, output, clock())
            kept.extend(made.answer.sequences)
            steps.submit(made)
            ends.append(made.ended)
        await asyncio.gather(*ends)
        stepping.cancel()

    with asyncio.Runner(loop_factory=lambda: ClockedLoop(clock)) as runner:
        runner.run(serve())
    return kept


LOADS = st.lists(
    st.tuples(st.floats(0, 0.05), st.integers(1, 300), st.integers(1, 20)), min_size=1, max_size=20
)


@given(LOADS, st.sampled_from([0.0, 0.1]))
@settings(max_examples=60, deadline=None)
def test_what_the_step_loop_received_gets_the_steps_of_virtual_time(
    load: list[tuple[float, int, int]], jitter: float
) -> None:
    real = served(load, jitter)
    again = [Request("r", one.prompt_tokens, one.output_tokens, one.arrived_at_s) for one in real]
    run_virtually(engine(jitter), again)
    for one, other in zip(real, again, strict=True):
        assert one.admitted_at_s is not None
        assert other.admitted_at_s is not None
        assert abs(one.admitted_at_s - other.admitted_at_s) < 1e-6, "the same step"
        for late, due in (
            (one.first_token_at_s, other.first_token_at_s),
            (one.last_token_at_s, other.last_token_at_s),
        ):
            assert late is not None
            assert due is not None
            assert -1e-6 < late - due < 1e-4, "never early, and late by some readings of the clock"
        assert one.preemptions == other.preemptions


def test_one_piece_of_a_bursts_work_is_done_in_each_round_in_order() -> None:
    done: list[tuple[int, int]] = []
    rounds = 0

    async def count_rounds() -> None:
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    async def work(turns: Turns, number: int) -> None:
        await turns.turn()
        done.append((number, rounds))

    async def burst() -> None:
        turns = Turns()
        counting = asyncio.create_task(count_rounds())
        working = [asyncio.create_task(work(turns, number)) for number in range(20)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        working[9].cancel()  # its client has left
        await asyncio.wait(working)
        alone = asyncio.create_task(work(turns, 20))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert alone.done(), "who comes alone goes first, at once"
        counting.cancel()

    asyncio.run(burst())
    assert [number for number, _ in done] == [number for number in range(21) if number != 9]
    assert len({at for _, at in done}) == len(done), "each in a round of its own"
