"""What a check found: one line each, and the exit code of all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from runlog.exit_codes import ExitCode

_WIDTH = 44


@dataclass(frozen=True)
class Finding:
    """One claim, whether it holds, and the figures that show it. `holds` is None where the server under check
    cannot tell: it has no such field or counter.
    """

    claim: str
    holds: bool | None
    seen: str

    def line(self) -> str:
        """The finding as a row of the table."""
        word = {True: "PASS", False: "FAIL", None: "n/a "}[self.holds]
        return f"{word}  {self.claim:<{_WIDTH}}  {self.seen}".rstrip()


def shown(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Print each finding as it comes and hand it on."""
    for finding in findings:
        print(finding.line(), flush=True)
        yield finding


def conclude(findings: Iterable[Finding]) -> ExitCode:
    """Print how many passed; NOT_VALID when one failed or there was none."""
    verdicts = [finding.holds for finding in findings]
    failed = verdicts.count(False)
    passed, untold = verdicts.count(True), verdicts.count(None)
    print(f"\n{passed} passed, {failed} failed, {untold} cannot be told", flush=True)
    return ExitCode.NOT_VALID if failed or not passed else ExitCode.OK
