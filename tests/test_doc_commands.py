"""The documents' commands can be typed as they stand: modules, options and files exist, and both READMEs say
the same. tests/e2e/test_doc_commands.py runs those that can run anywhere."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import runpy
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from experiments.suite_file import read_suite
from tests.documents import NEEDS, REPOSITORY, Block, blocks, commands, documents

ROOMS = ("analysis", "bench", "experiments", "loadgen", "locustfiles", "shapes", "simserver", "tests", "docs")
OTHERS_MODULES = ("sglang.launch_server", "venv")
OTHERS_PROGRAMS = (
    *("cat", "cd", "curl", "export", "mkdir", "pip", "ssh", "git"),
    *("litellm", "llama-server", "llmock", "vllm", "vllm-router"),
)
READ_ALL = """
import json, sys
from loadgen.as_read import as_read
for arguments in json.load(sys.stdin):
    try:
        as_read(arguments)
        print(json.dumps(None))
    except SystemExit as error:
        print(json.dumps(f"exit {error.code}"))
    except Exception as error:
        print(json.dumps(str(error)))
"""


def ids(document: Path) -> str:
    return str(document.relative_to(REPOSITORY))


def of_a_document(document: Path) -> list[tuple[Block, list[str]]]:
    """All commands of a document, each with its block and without "..."; indented prose is left out."""
    variables: dict[str, str] = {}
    found = []
    for block in blocks(document):
        if block.language in ("bash", "console") or (block.language == "indented" and is_shell(block)):
            said = commands(block, variables)
            found += [(block, [word for word in words if word != "..."]) for words in said]
    return found


def is_shell(block: Block) -> bool:
    """An indented block is one of commands when it begins with a program of ours or one that we know."""
    first = re.sub(r"^(\w+=\S* )*", "", block.text).split()
    return bool(first) and (first[0] in PROGRAMS or first[0] in OTHERS_PROGRAMS)


# --- what each program's words must be -------------------------------------------------------------------


class Parsed(Exception):
    """Raised in place of going on, once the arguments have been read."""


def parse(module: str, arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Have `python -m MODULE` read its arguments and do no more; what is wrong with them, or None."""
    real: Callable[..., Any] = argparse.ArgumentParser.parse_known_args
    depth = 0
    read: list[list[str]] = []

    def only_parse(self: argparse.ArgumentParser, *given: Any, **named: Any) -> Any:
        nonlocal depth
        depth += 1
        try:
            namespace, rest = real(self, *given, **named)
        finally:
            depth -= 1
        if depth:
            return namespace, rest
        read.append([] if getattr(namespace, "command", "") == "doctor" else rest)
        raise Parsed

    said: list[str] = []
    with monkeypatch.context() as patched, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the module was imported before
        patched.setattr(argparse.ArgumentParser, "parse_known_args", only_parse)
        patched.setattr(argparse.ArgumentParser, "_print_message", lambda self, text, *_: said.append(text))
        patched.setattr(sys, "argv", [module, *arguments])
        try:
            runpy.run_module(module, run_name="__main__")
        except Parsed:
            return f"unknown: {' '.join(read[0])}" if read[0] else None
        except SystemExit as error:
            return "".join(said) if error.code else None
    return None


def check_python(words: list[str], monkeypatch: pytest.MonkeyPatch) -> str | None:
    if words[1:2] != ["-m"]:
        return None
    module, arguments = words[2], words[3:]
    if module in OTHERS_MODULES:
        return None
    if module.partition(".")[0] not in ROOMS or importlib.util.find_spec(module) is None:
        return f"there is no module {module}"
    return parse(module, arguments, monkeypatch)


def check_make(words: list[str], monkeypatch: pytest.MonkeyPatch) -> str | None:
    made = re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    targets = [word for word in words[1:] if "=" not in word]
    return next((f"nothing makes {name}" for name in targets if name not in made), None)


def check_docker(words: list[str], monkeypatch: pytest.MonkeyPatch) -> str | None:
    if words[1:2] != ["compose"]:
        return None
    text = (REPOSITORY / "docker-compose.yml").read_text().partition("\nservices:\n")[2]
    services = re.findall(r"^  ([a-z-]+):", text, re.MULTILINE)
    named = re.findall(r"--scale (\S+?)=|(?:stop|logs|restart) (\S+)", " ".join(words))
    return next((f"no service {one or two}" for one, two in named if (one or two) not in services), None)


PROGRAMS: dict[str, Callable[[list[str], pytest.MonkeyPatch], str | None]] = {
    "python": check_python,
    "python3": check_python,
    "python3.12": check_python,
    "make": check_make,
    "docker": check_docker,
    "locust": lambda words, monkeypatch: None,  # all at once, below: importing Locust patches sockets
}


# --- the tests -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("document", documents(), ids=ids)
def test_every_command_can_be_typed_as_it_stands(document: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = []
    for block, words in of_a_document(document):
        if words[0] in PROGRAMS:
            why = PROGRAMS[words[0]](words, monkeypatch)
        else:
            known = words[0] in OTHERS_PROGRAMS or "/bin/" in words[0]
            why = None if known else f"{words[0]} is no program that the documents may name"
        missing = [word for word in words if word.partition("/")[0] in ROOMS and "/" in word]
        missing = [word for word in missing if "*" not in word and not (REPOSITORY / word).exists()]
        if why is None and missing:
            why = f"there is no {missing[0]}"
        if why:
            wrong.append(f"{block}: {' '.join(words)}\n    {why}")
    assert not wrong, "\n".join(wrong)


def locust_arguments(words: list[str]) -> list[str] | None:
    """What Locust gets of a command: itself, by the doctor, or as the master of compose."""
    if words[0] == "locust":
        return words[1:]
    if words[:4] == ["python", "-m", "experiments", "doctor"]:
        return [word for word in words[4:] if word != "--json"]
    if words[:2] == ["docker", "compose"] and "run" in words and "master" in words:
        return words[words.index("master") + 1 :]
    return None


def test_every_locust_command_is_read_by_locust() -> None:
    asked = [
        (f"{block}: {' '.join(words)}", arguments)
        for document in documents()
        for block, words in of_a_document(document)
        if (arguments := locust_arguments(words)) is not None
    ]
    assert len(asked) > 8
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("LOAD_", "LOCUST_"))}
    done = subprocess.run(
        [sys.executable, "-c", READ_ALL],
        cwd=REPOSITORY,
        env=environ,
        input=json.dumps([arguments for _, arguments in asked]),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = [f"{where}\n    {why}" for (where, _), why in zip(asked, answers, strict=True) if why]
    assert not wrong, "\n".join(wrong) + done.stderr


def test_suites_in_documents_can_be_read(tmp_path: Path) -> None:
    suites = [
        block
        for document in documents()
        for block in blocks(document)
        if block.language == "toml" and "[variants" in block.text
    ]
    assert suites
    for block in suites:
        (tmp_path / "suite.toml").write_text(block.text, encoding="utf-8")
        assert read_suite(tmp_path / "suite.toml").steps(), str(block)


def test_what_a_block_needs_is_of_the_list() -> None:
    for document in documents():
        said = re.findall(r"<!-- needs: (.+?) -->\n(.*)", document.read_text(encoding="utf-8"))
        assert {word.strip() for needs, _ in said for word in needs.split(",")} <= set(NEEDS)
        assert {fence for _, fence in said} <= {"```bash"}, f"{document}: the comment stands before a block"
    assert sum(block.runs for document in documents() for block in blocks(document)) >= 4


@pytest.mark.parametrize("document", documents(), ids=ids)
def test_links_and_images_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (document.parent / path) if path else document
        assert target.exists(), f"{document}: {link}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings]


def test_the_readmes_do_not_drift_apart() -> None:
    """The same commands (comments apart), images, links, tables and headings in both languages."""
    one, other = (REPOSITORY / name for name in ("README.md", "README.zh-CN.md"))
    texts = [path.read_text(encoding="utf-8") for path in (one, other)]
    assert "](README.zh-CN.md)" in texts[0].split("##")[0]
    assert "](README.md)" in texts[1].split("##")[0]

    def told(path: Path) -> list[Any]:
        return [(block.language, block.needs, list(commands(block))) for block in blocks(path)]

    assert told(one) == told(other)
    for what in (r"^(#+) ", r"!\[[^]]*\]\(([^)]+)\)", r"^(\|[-| ]+\|)$"):
        assert re.findall(what, texts[0], re.MULTILINE) == re.findall(what, texts[1], re.MULTILINE)
    rows = [len(re.findall(r"^\|", text, re.MULTILINE)) for text in texts]
    assert rows[0] == rows[1]
    links = [set(re.findall(r"\]\(((?!README)[^)#]+)", text)) for text in texts]
    assert links[0] == links[1]
    options = [set(re.findall(r"--[a-z][a-z-]+", text)) for text in texts]
    assert options[0] == options[1]
