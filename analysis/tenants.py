"""Who hurts whom: what each tenant gets while another one bursts, against when nobody does.

A tenant's bursts are found in its own arrivals (analysis.found_bursts), and hurt from their start until 10 s
after their end, while the queue they leave drains. Each request falls in one of three times of its tenant:

    own       its own tenant bursts, or did within 10 s
    others    not so, but another tenant does or did
    quiet     neither

`by` parts the others' time by tenant; where two burst at once a request counts for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.found_bursts import found_bursts
from analysis.groups import MOST_GROUPS, Columns, figures, ranked
from analysis.phases import Window

AFTERMATH_S = 10.0


def tenants(load: pd.DataFrame, columns: Columns, window_s: float) -> list[dict[str, Any]]:
    """A row a tenant, those with most requests first, at most 20; [] for fewer than two."""
    tenant, names = ranked(load["tenant"])
    if len(names) < 2:
        return []
    names = names[:MOST_GROUPS]
    at_s = load["arrived_at_s"].to_numpy(dtype=float)
    bursts = [found_bursts(at_s[tenant == place], window_s) for place in range(len(names))]
    hurting = np.array([during(at_s, windows) for windows in bursts])
    anybody = hurting.any(axis=0)
    rows = []
    for place, name in enumerate(names):
        mine, own = tenant == place, hurting[place]
        rows.append(
            {
                "tenant": name,
                "requests": int(mine.sum()),
                "bursts": len(bursts[place]),
                "burst_s": sum(end_s - start_s for start_s, end_s in bursts[place]),
                "quiet": figures(columns, mine & ~anybody),
                "others": figures(columns, mine & ~own & anybody),
                "own": figures(columns, mine & own),
                "by": [
                    {"tenant": names[other], **figures(columns, mine & ~own & hurting[other])}
                    for other in range(len(names))
                    if other != place and bursts[other]
                ],
            }
        )
    return rows


def during(at_s: np.ndarray, bursts: Sequence[Window]) -> np.ndarray:
    """Which of the times lie in a burst or at most 10 s after it."""
    found = np.zeros(len(at_s), dtype=bool)
    for start_s, end_s in bursts:
        found |= (at_s >= start_s) & (at_s < end_s + AFTERMATH_S)
    return found
