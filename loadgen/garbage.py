"""Python's garbage collector while load is sent: rare, short and out of what was there before."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_YOUNG_OBJECTS = 5_000


@contextmanager
def short_collections() -> Iterator[None]:
    """Collect once now; while the block lasts, look only at what is made in it.

    Locust, numpy and the plan are some 60,000 objects, and a walk over them was seen to take 60 ms, in which
    nothing is sent. The young ones are looked at every 5,000 instead of every 700.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
