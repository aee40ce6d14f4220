"""The end of a run: nothing more is sent, what is in flight may end within a limit, the rest is cancelled.

Stock Locust loses the requests that are in flight when a headless distributed run ends; here each of them
leaves a record, as succeeded, failed or cancelled.
"""

from __future__ import annotations

from collections.abc import Callable

from gevent.pool import Group

CANCEL_GRACE_S = 5.0


def drain(in_flight: Group, limit_s: float, cancel_all: Callable[[], None]) -> None:
    """Wait up to `limit_s` for the requests in flight, then cancel them and wait for their records."""
    in_flight.join(timeout=limit_s)
    if len(in_flight):
        cancel_all()
        in_flight.join(timeout=CANCEL_GRACE_S)
