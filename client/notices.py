"""What to know before the figures of a load are read, seen in the answer to its first request: one table.

All rows that apply are told; none of them keeps the load from beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from client.clues import Server
from client.dialects import DIALECTS
from client.seen import Seen, named


@dataclass(frozen=True)
class Answered:
    """A first request that was answered, and what was asked for: tokens, by which dialect, as a stream?

    `server`: its kind, where it was recognised; `sought`: the dialect is what that kind understands, not what
    the user named; `force_refused`: how the server turned the dialect's fields away; `uncounted`: why its
    prompts could not be counted.
    """

    seen: Seen
    asked_tokens: int
    dialect: str
    stream: bool
    server: Server | None = None
    sought: bool = False
    force_refused: str | None = None
    uncounted: str | None = None

    @property
    def tokens(self) -> int:
        return self.seen.record.output_tokens or 0

    @property
    def contradicted(self) -> bool:
        """The user named a dialect, and the server looks like one that speaks another."""
        server = self.server
        return (
            not self.sought
            and self.dialect != "openai"
            and server is not None
            and server.dialect != self.dialect
        )

    @property
    def counted(self) -> bool:
        return self.seen.record.tokens_from == "usage"

    @property
    def came_at_once(self) -> bool:
        record = self.seen.record
        events, gaps = record.output_events or 0, record.gap_count or 0
        return self.tokens >= self.asked_tokens // 2 and (
            events == 1 or (gaps > 0 and record.gap_zeros == gaps)
        )


@dataclass(frozen=True)
class Notice:
    """Something to know before the figures are read: when it is the case, and its line."""

    kind: str
    applies: Callable[[Answered], bool]
    text: Callable[[Answered], str]


def _models_line(answer: Answered) -> str:
    models = answer.seen.models
    why = models.why_not if models else None
    return f"no list of models at {answer.seen.target.models_url_told} ({why}); nothing depends on it"


def _unlisted_line(answer: Answered) -> str:
    models, target = answer.seen.models, answer.seen.target
    listed = named(models.names) if models and models.names else "none"
    return (
        f"the server answers for the model {target.model!r} although it lists {listed}:"
        f" it may serve whatever it has under any name"
    )


def _short_line(answer: Answered) -> str:
    said = f"the answer ended after {answer.tokens} of {answer.asked_tokens} tokens"
    if answer.force_refused is None and DIALECTS[answer.dialect].force:
        return f"{said} although the dialect {answer.dialect} forces the length: lengths will vary"
    if not answer.sought and answer.server and DIALECTS[answer.server.dialect].force:
        return f"{said}: lengths will vary; --dialect {answer.server.dialect} makes them as asked"
    return f"{said}: lengths will vary, --output-tokens is a limit only"


def _contradicted_line(answer: Answered) -> str:
    server = answer.server
    assert server is not None
    return (
        f"--dialect {answer.dialect}, but the server looks like {server} (by {server.by}):"
        f" --dialect {server.dialect} would fit it"
    )


NOTICES: tuple[Notice, ...] = (
    Notice(
        "server_unknown",
        lambda answer: answer.sought and answer.server is None,
        lambda _: (
            "the kind of server is not known, so nothing forces answers to their length; --dialect names it:"
            f" {', '.join(name for name, row in DIALECTS.items() if row.force)}"
        ),
    ),
    Notice("dialect_contradicted", lambda answer: answer.contradicted, _contradicted_line),
    Notice(
        "force_refused",
        lambda answer: answer.force_refused is not None,
        lambda answer: (
            f"the server refuses what forces an answer's length ({answer.force_refused}):"
            f" requests go without it"
        ),
    ),
    Notice(
        "prompts_uncounted",
        lambda answer: answer.uncounted is not None,
        lambda answer: f"prompt lengths are estimates, a word for a token: {answer.uncounted}",
    ),
    Notice(
        "not_streamed",
        lambda answer: answer.stream and answer.seen.finished.streamed is False,
        lambda _: "the server answers in one piece though a stream was asked for: no TTFT and no TPOT",
    ),
    Notice(
        "no_output_yet",
        lambda answer: answer.seen.failed == "empty_answer",
        lambda answer: (
            f"the first {answer.asked_tokens} tokens held no output (hidden reasoning?): allow longer answers"
        ),
    ),
    Notice(
        "usage_missing",
        lambda answer: answer.seen.failed != "empty_answer" and not answer.counted,
        lambda _: "the server does not count tokens (no usage): events are counted instead, an estimate",
    ),
    Notice(
        "buffered",
        lambda answer: answer.seen.finished.streamed is True and answer.came_at_once,
        lambda answer: (
            f"all {answer.tokens} tokens came in one piece: something buffers the stream, or the server"
            f" sends many tokens an event; TTFT and TPOT will not show single tokens"
        ),
    ),
    Notice(
        "too_long",
        lambda answer: answer.counted and answer.tokens > answer.asked_tokens,
        lambda answer: (
            f"{answer.tokens} tokens came where {answer.asked_tokens} were the limit: --output-tokens"
            f" does not bound what a run can spend"
        ),
    ),
    Notice(
        "too_short", lambda answer: answer.counted and 0 < answer.tokens < answer.asked_tokens, _short_line
    ),
    Notice(
        "model_unlisted",
        lambda answer: bool(
            answer.seen.models and answer.seen.models.holds(answer.seen.target.model) is False
        ),
        _unlisted_line,
    ),
    Notice(
        "no_model_list",
        lambda answer: answer.seen.models is not None and answer.seen.models.names is None,
        _models_line,
    ),
)


def notices_of(answer: Answered) -> tuple[str, ...]:
    """The lines of all rows that apply, in the table's order."""
    return tuple(row.text(answer) for row in NOTICES if row.applies(answer))
