"""Who a worker is: the code it runs. A master takes only workers that run the same, so that a run is one
thing.
"""

from __future__ import annotations

import functools
import hashlib
import os
import socket
from importlib.metadata import version
from pathlib import Path
from typing import Any

from client import clock

_ROOMS = ("client", "loadgen", "runlog", "shapes")
_REPOSITORY = Path(__file__).resolve().parent.parent


@functools.cache
def code_digest() -> str:
    """A digest of this suite's sources as they lie on this machine."""
    digest = hashlib.sha256()
    for room in _ROOMS:
        for source in sorted((_REPOSITORY / room).rglob("*.py")):
            digest.update(source.relative_to(_REPOSITORY).as_posix().encode())
            digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def identity() -> dict[str, Any]:
    """What a worker says of itself: place, clock, code and Locust version."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "boot_id": clock.BOOT_ID,
        "code": code_digest(),
        "locust": version("locust"),
    }


def stranger(said: dict[str, Any], busy_with: str | None) -> str | None:
    """Why a worker cannot take part, with what to do; None when it can."""
    if busy_with is not None:
        return f"it is still busy with run {busy_with}; wait for it to end or use another port"
    if said["locust"] != version("locust"):
        return f"it runs Locust {said['locust']}, the master {version('locust')}; install the same on both"
    if said["code"] != code_digest():
        return f"its code differs (digest {said['code']}, here {code_digest()}); use the same checkout"
    return None
