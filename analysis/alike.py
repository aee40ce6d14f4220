"""May two runs be compared? UNLIKE is the table of what forbids it; each row says what differs, or nothing.

A difference between runs is only the server's when nothing else differed: the same requests at the same
moments, asked in the same way, answered at the same length, from caches as warm, and both runs sound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from analysis.lengths import off
from analysis.load import Run
from analysis.numbers import percent, plain
from analysis.wording_compare import UNLIKE_TEXT

MOST_CACHED_OFF = 0.01
"""Of the prompt tokens: from 1 % on, cache hits are worth a warning in one run and a refusal between two."""

SETTINGS = (
    "endpoint engine api_version dialect header body connections no_stream input_tokens output_tokens "
    "first_token_limit stall_limit total_limit warmup virtual"
).split()
"""Options of run.json that change what is asked of the server, or when an answer counts as failed."""


@dataclass(frozen=True)
class Side:
    """One run of a comparison: as read, its summary, and what to call it (its name unless `called`)."""

    run: Run
    summary: Mapping[str, Any]
    called: str = ""

    @property
    def name(self) -> str:
        return self.called or str(self.run.info.name or self.run.info.run_id)


@dataclass(frozen=True)
class Unlike:
    """Something that two runs must share. `key` is what `--allow` takes; `differs` says how they differ, None
    when they don't."""

    key: str
    differs: Callable[[Side, Side], str | None]


def unlike(base: Side, candidate: Side) -> dict[str, str]:
    """key -> what differs, of every row that forbids the comparison; empty when the runs are alike."""
    found = {row.key: row.differs(base, candidate) for row in UNLIKE}
    return {key: text for key, text in found.items() if text is not None}


def _verdict(base: Side, candidate: Side) -> str | None:
    bad = [side for side in (base, candidate) if side.summary["verdict"] != "VALID"]
    return _joined(
        UNLIKE_TEXT["verdict"].format(
            name=side.name, verdict=side.summary["verdict"], why="; ".join(side.summary["verdict_reasons"])
        )
        for side in bad
    )


def _amended(base: Side, candidate: Side) -> str | None:
    changed = [
        side for side in (base, candidate) if any(s.get("author") != "plan" for s in side.run.info.segments)
    ]
    return _joined(UNLIKE_TEXT["amended"].format(name=side.name) for side in changed)


def _schedule(base: Side, candidate: Side) -> str | None:
    one, other = base.run.info, candidate.run.info
    if one.load != other.load:
        return UNLIKE_TEXT["load"].format(base=one.load, candidate=other.load)
    same = (
        one.users_curve == other.users_curve and one.duration_s == other.duration_s
        if base.run.closed
        else one.schedule_sha256 is not None and one.schedule_sha256 == other.schedule_sha256
    )
    if same:
        return None
    planned = ("shape", "arrivals", "seed", "mean_rate_rps", "duration_s")
    parts = [
        UNLIKE_TEXT["one_setting"].format(what=name, base=getattr(one, name), candidate=getattr(other, name))
        for name in planned
        if getattr(one, name) != getattr(other, name)
    ]
    return UNLIKE_TEXT["schedule"].format(what=", ".join(parts) or UNLIKE_TEXT["schedule_hash"])


def _settings(base: Side, candidate: Side) -> str | None:
    one, other = base.run.info.options, candidate.run.info.options
    return _joined(
        UNLIKE_TEXT["one_setting"].format(what=name, base=one.get(name), candidate=other.get(name))
        for name in SETTINGS
        if str(one.get(name) or "") != str(other.get(name) or "")
    )


def _model(base: Side, candidate: Side) -> str | None:
    one, other = base.run.info.model, candidate.run.info.model
    if one == other:
        return None
    return UNLIKE_TEXT["one_setting"].format(what="model", base=one, candidate=other)


def _lengths(base: Side, candidate: Side) -> str | None:
    parts = []
    for side in ("input", "output"):
        one, other = (run.summary["lengths"][side]["got_mean"] for run in (base, candidate))
        if one and other and off(one, other):
            parts.append(UNLIKE_TEXT["lengths"].format(side=side, base=plain(one), candidate=plain(other)))
    return _joined(parts)


def _cached(base: Side, candidate: Side) -> str | None:
    one, other = (run.summary["tokens"]["cached_input_ratio"] or 0.0 for run in (base, candidate))
    if abs(one - other) <= MOST_CACHED_OFF + 1e-9:
        return None
    return UNLIKE_TEXT["cached"].format(base=percent(one), candidate=percent(other))


def _joined(parts: Any) -> str | None:
    return "; ".join(parts) or None


UNLIKE: tuple[Unlike, ...] = (
    Unlike("verdict", _verdict),
    Unlike("amended", _amended),
    Unlike("schedule", _schedule),
    Unlike("settings", _settings),
    Unlike("model", _model),
    Unlike("lengths", _lengths),
    Unlike("cached", _cached),
)
