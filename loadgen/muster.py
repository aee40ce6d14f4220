"""Before a run: wait for the expected workers, turn strangers away, compare clocks. Too few, and no load is
sent.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import gevent
from gevent.pool import Group

from client import clock
from loadgen import messages
from loadgen.crew import Worker, compare_clocks
from loadgen.identity import stranger

if TYPE_CHECKING:
    from loadgen.link import Link  # imports Locust, which patches sockets; this file needs no Locust

logger = logging.getLogger(__name__)

MUSTER_LIMIT_S = 60.0
"""Longest wait for the expected workers to connect; --expect-workers-max-wait changes it."""


SAY_EVERY_S = 5.0


class WorkersMissing(Exception):
    """Fewer workers than expected can take part; one line says how many and what to do."""


def wait_for_workers(link: Link, limit_s: float = MUSTER_LIMIT_S) -> None:
    """Block until the expected number of workers is connected. Raises WorkersMissing after the limit."""
    deadline_ns = clock.monotonic_ns() + round(limit_s * 1e9)
    said_ns = 0
    while (connected := len(link.client_ids())) < link.expected:
        if clock.monotonic_ns() - said_ns > SAY_EVERY_S * 1e9:
            said_ns = clock.monotonic_ns()
            logger.info("waiting for workers: %d of %d connected", connected, link.expected)
        if clock.monotonic_ns() > deadline_ns:
            raise WorkersMissing(
                f"{connected} of {link.expected} expected workers connected within {limit_s:g} s: no load is "
                f"sent. "
                f"Start the missing ones (locust -f ... --worker), or expect fewer with --expect-workers"
            )
        gevent.sleep(0.1)


def muster(link: Link, workers: list[Worker]) -> list[Worker]:
    """Ask every worker who it is and what its clock says; those that may take part get their index.

    Strangers are told why and sent away. Raises WorkersMissing when fewer than expected are left.
    """
    asking = Group()
    for worker in workers:
        asking.spawn(_ask, link, worker)
    asking.join()
    crew = [worker for worker in workers if _taken(link, worker)]
    if len(crew) < max(link.expected, 1):
        raise WorkersMissing(
            f"{len(crew)} of {max(link.expected, 1)} expected workers can take part: no load is sent. "
            f"Start workers of the same code and Locust version, then run again"
        )
    for index, worker in enumerate(crew):
        worker.index = index
    return crew


def _ask(link: Link, worker: Worker) -> None:
    compare_clocks(worker, lambda number: link.tell(worker.client_id, messages.CLOCK, number=number))


def _taken(link: Link, worker: Worker) -> bool:
    if not worker.compared:
        logger.error("%s is refused: it does not answer; it runs another locustfile", worker)
        link.dismiss(worker.client_id)
        return False
    why = stranger(link.identity, worker.identity, worker.busy_with)
    if why is None:
        return True
    logger.error("%s is refused: %s", worker, why)
    link.tell(worker.client_id, messages.REFUSED, why=why)
    return False
