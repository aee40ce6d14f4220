"""Who is it? Gathers what the clues need, and no more requests than it takes."""

from __future__ import annotations

from dataclasses import replace

from client.clues import PAGES, VERSION_PAGES, Evidence, Server, server_of
from client.exchange import exchange
from client.reader import ConnectionPool


def recognise(pool: ConnectionPool, seen: Evidence, limit_s: float) -> Server | None:
    """The pool's server from what it has shown. An unknown one is asked for PAGES until a clue fits; a known
    one for its version where that is a page. Each GET waits `limit_s` at most. Blocks this greenlet; never
    raises."""
    for page in PAGES:
        server = server_of(seen)
        if server is not None:
            wanted = VERSION_PAGES.get(server.kind)
            if server.version is None and wanted is not None and wanted not in seen.pages:
                return server_of(_with_page(pool, seen, wanted, limit_s))
            return server
        seen = _with_page(pool, seen, page, limit_s)
    return server_of(seen)


def _with_page(pool: ConnectionPool, seen: Evidence, page: str, limit_s: float) -> Evidence:
    answer = exchange(pool, pool.target.page_request(page), limit_s)
    said = answer.json if answer.status == 200 else None
    return replace(seen, pages={**seen.pages, page: said if isinstance(said, dict) else {}})
