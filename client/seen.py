"""What the first request to a server showed: the facts on which refusals and notices rest."""

from __future__ import annotations

import re
from dataclasses import dataclass

from client.finished import Finished
from client.model_list import ModelList
from client.target import Limits, Target
from runlog.failures import failure_class
from runlog.record import RequestRecord

MOST_NAMED = 10
"""Models named in a message."""


@dataclass(frozen=True)
class Seen:
    """All that is known after the first request. `other_scheme_opens`: a connection came about with TLS where
    the address has none, or without TLS where it asks for it; only tried after a failure that hints at it.
    `other_endpoints`: names of ENDPOINTS that are there; only tried when the one asked for is not.
    """

    target: Target
    limits: Limits
    finished: Finished
    models: ModelList | None = None
    other_scheme_opens: bool = False
    other_endpoints: tuple[str, ...] = ()
    inside_container: bool = False
    key_variables: tuple[str, ...] = ()

    @property
    def record(self) -> RequestRecord:
        return self.finished.record

    @property
    def failed(self) -> str:
        return self.record.failure_class or ""

    @property
    def status(self) -> int:
        return self.record.status or 0

    @property
    def said(self) -> str:
        return self.record.error or ""

    @property
    def has_key(self) -> bool:
        return bool({name.lower() for name in self.target.all_headers()} & {"authorization", "api-key"})

    @property
    def is_html(self) -> bool:
        return "html" in self.finished.answer_headers.get("content-type", "")

    def facts(self) -> dict[str, object]:
        """What the table's texts may name; none of it is a secret."""
        target, record = self.target, self.record
        names = self.models.names if self.models else None
        wait_s = record.retry_after_s
        return {
            "url": target.url_told,
            "host": target.host,
            "port": target.port,
            "place": target.authority,
            "model": target.model,
            "endpoint": target.endpoint,
            "other_endpoints": " or ".join(f"--endpoint {name}" for name in self.other_endpoints),
            "status": record.status,
            "said": f": {self.said}" if self.said else "",
            "said_alone": self.said,
            "class": failure_class(self.failed).meaning if self.failed else "",
            "content_type": self.finished.answer_headers.get("content-type", "no content type"),
            "location": re.sub(r"\?.*", "", self.finished.answer_headers.get("location", "an unnamed place"))[
                :200
            ],
            "wait": f"; it asks to wait {wait_s:g} s" if wait_s else "",
            "served": named(names) if names else "it lists none",
            "key_from": " or ".join(self.key_variables) or "the key",
            "connect_s": self.limits.connect_s,
            "first_token_s": self.limits.first_token_s,
        }


def named(models: tuple[str, ...]) -> str:
    """At most MOST_NAMED names, each cut to a length that fits a line."""
    shown = [" ".join(name.split())[:80] for name in models[:MOST_NAMED]]
    more = len(models) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
