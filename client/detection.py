"""Who is it, and what has it? Gathers what the clues need, and no more requests than it takes."""

from __future__ import annotations

from dataclasses import replace

from client.clues import PAGES, VERSION_PAGES, Evidence, Server, server_of
from client.endpoints import ENDPOINTS
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


def other_endpoints(pool: ConnectionPool, limit_s: float) -> tuple[str, ...]:
    """Names of ENDPOINTS, the target's own left out, that are there: servers answer 405 to a GET of what they
    have for POST, and 404 where they have nothing. Each GET waits `limit_s` at most. Blocks this greenlet;
    never raises."""
    page = pool.target.endpoint_request
    others = [name for name in ENDPOINTS if name != pool.target.endpoint]
    return tuple(name for name in others if exchange(pool, page(name), limit_s).status == 405)


def _with_page(pool: ConnectionPool, seen: Evidence, page: str, limit_s: float) -> Evidence:
    answer = exchange(pool, pool.target.page_request(page), limit_s)
    said = answer.json if answer.status == 200 else None
    return replace(seen, pages={**seen.pages, page: said if isinstance(said, dict) else {}})
