"""Who a worker is: the code it runs. A master takes only workers that run the same, so that a run is one
thing.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from client import clock

_ROOMS = ("client", "loadgen", "runlog", "shapes")
_REPOSITORY = Path(__file__).resolve().parent.parent


def code_digest(locustfiles: Sequence[str] = ()) -> str:
    """A digest of this suite's sources and of the locustfiles as they lie on this machine now."""
    digest = hashlib.sha256()
    for locustfile in locustfiles:
        with suppress(OSError):
            digest.update(Path(locustfile).read_bytes())
    for room in _ROOMS:
        for source in sorted((_REPOSITORY / room).rglob("*.py")):
            digest.update(source.relative_to(_REPOSITORY).as_posix().encode())
            digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def identity(locustfiles: Sequence[str]) -> dict[str, Any]:
    """What a process is: place, clock, code and Locust version. Taken once, before the code can change."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "boot_id": clock.BOOT_ID,
        "code": code_digest(locustfiles),
        "locust": version("locust"),
    }


def stranger(own: dict[str, Any], said: dict[str, Any], busy_with: str | None) -> str | None:
    """Why a worker cannot take part under a master that is `own`, with what to do; None when it can."""
    if busy_with is not None:
        return f"it is still busy with run {busy_with}; wait for it to end or use another port"
    if said["locust"] != own["locust"]:
        return f"it runs Locust {said['locust']}, the master {own['locust']}; install the same on both"
    if said["code"] != own["code"]:
        return f"its code differs (digest {said['code']}, here {own['code']}); use the same checkout"
    return None
