"""The master's line to its workers, over Locust's runner. A local run's process is its own worker."""

from __future__ import annotations

from typing import Any

from locust.env import Environment
from locust.rpc import Message
from locust.runners import STATE_MISSING, LocalRunner, MasterRunner

from loadgen.identity import identity


class Link:
    """Whom the master can reach, and how."""

    def __init__(self, environment: Environment) -> None:
        assert environment.runner is not None
        self._runner = environment.runner
        self.identity = identity(environment.parsed_locustfiles or ())
        options = environment.parsed_options
        self.distributed = isinstance(self._runner, MasterRunner)
        self.expected = options.expect_workers if options and isinstance(self._runner, MasterRunner) else 1

    def client_ids(self) -> list[str]:
        """The connected workers, in the order in which they came."""
        runner = self._runner
        if isinstance(runner, MasterRunner):
            clients = runner.clients
            active = clients.ready + clients.spawning + clients.running
            return [node.id for node in sorted(active, key=lambda node: runner.worker_indexes[node.id])]
        return ["local"] if isinstance(runner, LocalRunner) else []

    def gone(self, client_id: str) -> bool:
        """Whether Locust has lost sight of a worker (no heartbeat for some 4 s, or it said goodbye)."""
        if not isinstance(self._runner, MasterRunner):
            return False
        node = self._runner.clients.get(client_id)
        return node is None or node.state == STATE_MISSING

    def tell(self, client_id: str, message: str, /, **data: Any) -> None:
        """Send one message to one worker."""
        self._runner.send_message(message, data, client_id=client_id)

    def dismiss(self, client_id: str) -> None:
        """Tell a worker that does not understand us to go; every Locust worker understands this."""
        if isinstance(self._runner, MasterRunner):
            self._runner.server.send_to_client(Message("quit", None, client_id))
