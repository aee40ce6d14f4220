"""The import rule of docs/architecture.md: who may import whom, read from the sources."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
ROOMS = ("runlog", "shapes", "client", "telemetry", "loadgen", "analysis", "simserver", "experiments")
MAY_IMPORT: dict[str, set[str]] = {
    "runlog": set(),
    "shapes": set(),
    "simserver": set(),
    "client": {"runlog"},
    "telemetry": {"runlog", "client.clock"},
    "analysis": {"shapes", "runlog"},
    "loadgen": {"shapes", "client", "telemetry", "runlog", "analysis"},
    "experiments": set(ROOMS) | {"locustfiles"},
    "locustfiles": {"loadgen", "shapes"},
}
ONLY_IN = {
    "locust": ("loadgen", "locustfiles", "shapes/locust_shape.py"),
    "pandas": ("analysis",),
    "plotly": ("analysis",),
    "aiohttp": ("simserver",),
    "prometheus_client": ("simserver",),
}


def sources(room: str) -> list[Path]:
    return sorted((REPOSITORY / room).rglob("*.py"))


def imported_modules(source: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
            found.add(node.module)
    return found


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_the_rule_allows(room: str) -> None:
    for source in sources(room):
        for module in imported_modules(source):
            other = module.partition(".")[0]
            if other not in ROOMS or other == room:
                continue
            allowed = {other, ".".join(module.split(".")[:2])} & MAY_IMPORT[room]
            assert allowed, f"{source.relative_to(REPOSITORY)} imports {module}"


@pytest.mark.parametrize("library", ONLY_IN)
def test_a_library_is_imported_only_where_it_belongs(library: str) -> None:
    for room in MAY_IMPORT:
        for source in sources(room):
            names = {module.partition(".")[0] for module in imported_modules(source)}
            place = source.relative_to(REPOSITORY).as_posix()
            assert library not in names or place.startswith(ONLY_IN[library]), f"{place} imports {library}"


@pytest.mark.parametrize(
    "room", ["runlog", "shapes", "client.completion", "analysis.__main__", "simserver.app"]
)
def test_importing_a_room_never_imports_locust(room: str) -> None:
    """Locust patches sockets for gevent when it is imported."""
    check = f"import sys, {room}; sys.exit('locust' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], cwd=REPOSITORY).returncode == 0


def test_no_source_file_is_long() -> None:
    """A file that knows one thing fits in about 300 lines."""
    long = {
        str(source.relative_to(REPOSITORY)): lines
        for room in MAY_IMPORT
        for source in sources(room)
        if (lines := len(source.read_text().splitlines())) > 350
    }
    assert not long
