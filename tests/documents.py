"""The documents' code blocks and the commands in them, for tests that check documents like code.

A fenced ```bash block is run by tests/e2e/test_doc_commands.py, all blocks of a document in one shell, unless
a comment before it, which no reader sees, says what it needs:

    <!-- needs: gpu, long -->

`server` stands for a server at http://127.0.0.1:8000 with a model my-llm: that block is run, for a simulated
one is started. Every block's commands are checked without running, indented ones too.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
NEEDS = ("gpu", "network", "docker", "server", "long")
SERVER = "http://127.0.0.1:8000"
MODEL = "my-llm"

_FENCE = re.compile(r"```(\w*)\s*$")
_NEEDS = re.compile(r"<!-- needs: (.+?) -->\s*$")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_ENDS_COMMAND = {"&&", "||", "|", ";", "&"}


@dataclass(frozen=True)
class Block:
    """A block of a document: where (line of its first line), its language ("indented" for one without a
    fence) and text, and what it needs."""

    document: Path
    line: int
    language: str
    text: str
    needs: frozenset[str] = frozenset()

    @property
    def runs(self) -> bool:
        return self.language == "bash" and self.needs <= {"server"}

    def __str__(self) -> str:
        return f"{self.document.relative_to(REPOSITORY)}:{self.line}"


def documents() -> list[Path]:
    """Every document of the repository."""
    found = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("bench/**/*.md")]
    return sorted(path for path in found if path.name != "CHANGELOG.md")


def blocks(document: Path) -> list[Block]:
    """The blocks of a document in order."""
    found: list[Block] = []
    lines = document.read_text(encoding="utf-8").splitlines()
    needs: frozenset[str] = frozenset()
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if comment := _NEEDS.match(line):
            needs = frozenset(word.strip() for word in comment[1].split(","))
        elif fence := _FENCE.match(line):
            end = next(k for k in range(number, len(lines)) if lines[k].startswith("```"))
            text = "\n".join(lines[number:end])
            found.append(Block(document, number + 1, fence[1], text, needs))
            number, needs = end + 1, frozenset()
        elif line.startswith("    ") and (number == 1 or not lines[number - 2].strip()):
            begin = number - 1
            while number < len(lines) and lines[number].startswith("    "):
                number += 1
            text = "\n".join(part[4:] for part in lines[begin:number])
            found.append(Block(document, begin + 1, "indented", text))
    return found


def commands(block: Block, variables: dict[str, str] | None = None) -> Iterator[list[str]]:
    """The simple commands of a block as words, without comments and assignments before them; `$NAME` stands
    for what an assignment before said (kept in `variables`). Raises ValueError for an open quotation."""
    variables = {} if variables is None else variables
    text = block.text.replace("\\\n", " ")
    lines = iter(text.split("\n"))
    for line in lines:
        while True:
            try:
                words = _words(line)
                break
            except ValueError:
                more = next(lines, None)
                if more is None:
                    raise
                line = f"{line}\n{more}"
        command: list[str] = []
        for word in [*words, ";"]:
            if word in _ENDS_COMMAND:
                if command:
                    yield command
                command = []
            elif not command and (given := _ASSIGNMENT.fullmatch(word)):
                variables[given[1]] = given[2]
            elif word.startswith("$") and word[1:] in variables:
                command += shlex.split(variables[word[1:]])
            else:
                command.append(word)


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    lexer.commenters = ""
    words = []
    for word in lexer:
        if word.startswith("#"):
            break
        words.append(word)
    return words
