"""The documents' ```bash blocks, run: in a clean copy of the tree, in order, one shell per document."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.launch import simulated_server
from tests.documents import MODEL, REPOSITORY, SERVER, Block, blocks, documents

LIMIT_S = 240
ALL_RUN = "every block was run"
RUNNABLE = [
    document
    for document in documents()
    if document.name
    != "README.zh-CN.md"  # the commands of README.md: tests/test_doc_commands.py holds it to them
    and any(block.runs for block in blocks(document))
]
SHELL = """
on_error() {
  code=$?
  case "$code $BASH_COMMAND" in
    1\\ *"analysis compare"*|1\\ *"experiments suite"*|2\\ *locust*) ;;
    *) echo "exit code $code of the command in the block of line $BLOCK: $BASH_COMMAND"; exit $code ;;
  esac
}
trap on_error ERR
"""
"""What ends the shell: any exit code but two that are answers. Compare and suite say by 1 that something is
worse; a run says by 2 that a busy machine made its figures invalid."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(LIMIT_S + 30)]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files that git has or would take."""
    copy = tmp_path_factory.mktemp("docs") / "tree"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (REPOSITORY / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, copy / name)
    return copy


def script(document: Path, runnable: list[Block], server: str) -> str:
    parts = [f"BLOCK={block.line}\n{block.text.replace(SERVER, server)}" for block in runnable]
    return "\n".join([SHELL, *parts, f"echo {ALL_RUN}"])


@pytest.mark.parametrize("document", RUNNABLE, ids=lambda document: document.name)
def test_the_commands_do_what_the_document_says(document: Path, tree: Path, tmp_path: Path) -> None:
    runnable = [block for block in blocks(document) if block.runs]
    environ = {
        key: value for key, value in os.environ.items() if not key.startswith(("LOAD_", "LOCUST_", "OPENAI_"))
    }
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
    with simulated_server(tmp_path / "server.log", "--model", MODEL, "--preset", "a100-8b") as server:
        shell = subprocess.Popen(
            ["bash", "-c", script(document, runnable, server)],
            cwd=tree,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = shell.communicate(timeout=LIMIT_S)
        finally:
            if shell.poll() is None:
                os.killpg(shell.pid, signal.SIGKILL)
                shell.communicate()
    assert said.splitlines()[-1] == ALL_RUN, said[-3000:]
    assert "Traceback" not in said, said[-3000:]
    made = {path.name for path in (tree / "runs").rglob("*.html")}
    assert made & {"report.html", "matrix.html", "comparison.html"}
