"""Deadlines: none too early, none lost, each told once."""

from __future__ import annotations

import gevent
import pytest

from client.clock import monotonic_ns
from client.deadlines import STEP_NS, Deadlines


def test_each_is_called_once_and_not_before_its_moment() -> None:
    deadlines, called = Deadlines(), []
    due = {n: monotonic_ns() + n * 30_000_000 for n in range(8)}
    for n, due_ns in due.items():
        deadlines.set(due_ns, lambda n=n: called.append((n, monotonic_ns())))
    gevent.sleep(0.6)
    assert sorted(n for n, _ in called) == list(due)
    assert all(at_ns >= due[n] for n, at_ns in called)
    steps = [due[n] // STEP_NS for n, _ in called]
    assert steps == sorted(steps)


def test_a_dropped_one_is_not_called_and_a_later_one_still_is() -> None:
    deadlines, called = Deadlines(), []
    now_ns = monotonic_ns()
    dropped = deadlines.set(now_ns, lambda: called.append("dropped"))
    deadlines.drop(dropped)
    deadlines.drop(dropped)
    kept = deadlines.set(now_ns, lambda: called.append("kept"))
    gevent.sleep(0.2)
    deadlines.drop(kept)
    deadlines.set(monotonic_ns() + 10_000_000, lambda: called.append("later"))
    gevent.sleep(0.2)
    assert called == ["kept", "later"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_that_fails_takes_no_other_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    deadlines, called = Deadlines(), []

    def fail() -> None:
        raise ValueError("on purpose")

    now_ns = monotonic_ns()
    for on_late in (fail, lambda: called.append(1), fail, lambda: called.append(2)):
        deadlines.set(now_ns, on_late)
    gevent.sleep(0.2)
    assert sorted(called) == [1, 2]
    assert "on purpose" in capsys.readouterr().err
