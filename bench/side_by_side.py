"""`python -m bench.side_by_side`: our client and other load generators, same loads, same server.

Each run has a server of its own on one core and the client, pinned, on the others asked for. Everything is
run `--repeats` times, forwards and backwards in turn; ratios are taken within a repeat, since a machine's
speed moves between hours. Without a peer only our client is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from bench import tokenizer
from bench.comparison import (
    TAIL_S,
    WARM_S,
    Figures,
    cpu_ratio,
    order,
    table,
)
from bench.loads import LOADS, Load
from bench.one_run import ClientFailed, Contender, heed_nice, measure
from bench.peers import OURS, PEERS
from bench.truth import NoCompiler
from runlog.exit_codes import ExitCode


class NotInstalled(Exception):
    """A peer's Python does not have the peer; the message says what to install."""


def contenders(pythons: Mapping[str, Path]) -> list[Contender]:
    """Ours, and the peers whose Python is given. Raises NotInstalled."""
    found = [Contender(name, client, Path(sys.executable), "") for name, client in OURS.items()]
    for name, python in pythons.items():
        client = PEERS[name]
        found.append(Contender(name, client, python, _version(client.package or name, python)))
    return found


def _version(package: str, python: Path) -> str:
    ask = f"from importlib.metadata import version; print(version({package!r}))"
    advice = (
        f"install it: python3 -m venv FOLDER && FOLDER/bin/pip install {package}, then give FOLDER/bin/python"
    )
    try:
        answer = subprocess.run([str(python), "-I", "-c", ask], capture_output=True, text=True)
    except OSError as error:
        raise NotInstalled(f"{python} is no Python that runs ({error}); for {package}, {advice}") from None
    if answer.returncode:
        raise NotInstalled(f"{python} does not have {package}; {advice}")
    return answer.stdout.strip()


def compare(
    found: Sequence[Contender],
    loads: Sequence[Load],
    repeats: int,
    seconds: float,
    tell: Callable[[str], None],
    on_run: Callable[[Figures], None],
) -> list[str]:
    """Run every client under every load; each run's figures go to `on_run`. Returns what failed."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    by_name = {contender.name: contender for contender in found}
    total, done, failures, began_s = repeats * len(loads) * len(found), 0, [], time.monotonic()
    with tempfile.TemporaryDirectory() as made, _pinned(cores[-1:]):
        words = Path(made) / "tokenizer"
        _make_tokenizer(found, words)
        for repeat in range(repeats):
            for load in loads:
                for name in order(list(by_name), repeat):
                    left_s = (time.monotonic() - began_s) / done * (total - done) if done else None
                    about = "" if left_s is None else f", about {left_s:.0f} s left"
                    tell(f"run {done + 1} of {total}: {name}, {load.name}{about}")
                    try:
                        on_run(measure(by_name[name], load, repeat, seconds, cores, words))
                    except ClientFailed as error:
                        failures.append(str(error))
                        tell(str(error))
                    done += 1
    return failures


@contextmanager
def _pinned(cores: Sequence[int]) -> Iterator[None]:
    """Keep this program off the client's core while the block lasts."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _make_tokenizer(found: Sequence[Contender], folder: Path) -> None:
    peer = next((contender for contender in found if contender.client.needs_tokenizer), None)
    if peer is not None:
        made = subprocess.run(
            [str(peer.python), "-I", tokenizer.__file__, str(folder)], capture_output=True, text=True
        )
        if made.returncode:
            raise NotInstalled(f"{peer.python} could not make a tokenizer:\n{made.stderr[-800:]}")


class _Parser(argparse.ArgumentParser):
    """A wrong argument ends with one line and our usage code."""

    def error(self, message: str) -> NoReturn:
        self.exit(int(ExitCode.USAGE), f"{self.prog}: {message}. See --help.\n")


def _program(text: str) -> Path:
    """A Python's path as given: the links of an environment are not followed, or it would be left."""
    return Path(text).absolute()


def main() -> ExitCode:
    """Compare what the arguments ask for; print a table, and each run as a line of JSON where asked.

    Ended early, it stops what it started and prints the table of what it has.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    heed_nice()
    parser = _Parser(prog="python -m bench.side_by_side", description=__doc__)
    for name in PEERS:
        parser.add_argument(f"--{name}", type=_program, metavar="PYTHON", help=f"a Python that has {name}")
    parser.add_argument("--loads", default=",".join(LOADS), help=f"of: {', '.join(LOADS)} (all)")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of a closed loop (8)")
    parser.add_argument("--repeats", type=int, default=2, help="forwards and backwards in turn (2)")
    parser.add_argument("--quick", action="store_true", help="once: about a minute a client")
    parser.add_argument("--base", help="client that CPU is compared with (the first peer)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write each run, a JSON object a line")
    asked = parser.parse_args()
    pythons = {name: python for name in PEERS if (python := getattr(asked, name.replace("-", "_")))}
    names = [name.strip() for name in asked.loads.split(",")]
    repeats, seconds = 1 if asked.quick else asked.repeats, asked.seconds
    base = asked.base or next(iter(pythons), None)
    if wrong := _wrong(names, base, [*OURS, *pythons], seconds):
        parser.error(wrong)
    runs: list[Figures] = []

    def keep(run: Figures) -> None:
        runs.append(run)
        if asked.json:  # anew each time: a run's base may come after it
            ratios = [{"base": base, "cpu_ratio": cpu_ratio(one, base, runs)} for one in runs]
            lines = [json.dumps({**asdict(one), **ratio}) for one, ratio in zip(runs, ratios, strict=True)]
            asked.json.write_text("\n".join(lines) + "\n")

    if not hasattr(os, "sched_setaffinity"):
        print("the comparison needs Linux: it pins programs to cores and reads /proc", file=sys.stderr)
        return ExitCode.NOT_VALID
    try:
        failures = compare(
            contenders(pythons), [LOADS[name] for name in names], repeats, seconds, _tell, keep
        )
    except (NotInstalled, NoCompiler) as error:
        print(error, file=sys.stderr)
        return ExitCode.NOT_VALID
    except KeyboardInterrupt:
        print(table(runs, base))
        return ExitCode.INTERRUPTED
    print(table(runs, base))
    return ExitCode.NOT_VALID if failures else ExitCode.OK


def _wrong(loads: Sequence[str], base: str | None, clients: Sequence[str], seconds: float) -> str | None:
    """What cannot be done as asked, with what can."""
    if unknown := [name for name in loads if name not in LOADS]:
        return f"no load is named {', '.join(unknown)}; there are: {', '.join(LOADS)}"
    if base not in (None, *clients):
        return f"--base {base} is not measured here; measured are: {', '.join(clients)}"
    if seconds < WARM_S + TAIL_S + 1:
        return f"--seconds {seconds:g} leaves no steady part: give {WARM_S + TAIL_S + 1:g} or more"
    return None


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
