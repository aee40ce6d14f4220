"""A virtual environment per server: made once, filled once, and told by a mark that it is whole."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

Install = Callable[..., None]
"""`install("a==1", "b")` runs pip in the environment; `env=` adds variables to pip's own."""


def python_of(venv: Path) -> Path:
    """The environment's Python."""
    return venv.absolute() / "bin" / "python"


def prepare(venv: Path, what: str, fill: Callable[[Install], None]) -> None:
    """Make `venv` unless it is there, and call `fill` unless it went through before under the name `what`.

    Raises subprocess.CalledProcessError when pip fails; what it printed stands above.
    """
    mark = venv.absolute() / f".installed-{what}"
    if mark.exists():
        return
    began = time.monotonic()
    if not python_of(venv).exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)

    def install(*arguments: str, env: Mapping[str, str] | None = None) -> None:
        print("pip install", *arguments, flush=True)
        command = [str(python_of(venv)), "-m", "pip", "install", "--quiet", *arguments]
        subprocess.run(command, check=True, env={**os.environ, **(env or {})})

    fill(install)
    mark.touch()
    print(f"installed {what} in {time.monotonic() - began:.0f} s", flush=True)
