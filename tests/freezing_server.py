"""A completion server that answers at once, except while it is frozen: then answers wait for the thaw."""

from __future__ import annotations

import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

ANSWER = b"".join(
    b"data: %s\n\n" % event
    for event in (
        b'{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}',
        b'{"choices":[{"index":0,"delta":{"content":"one"}}]}',
        b'{"choices":[{"index":0,"delta":{"content":" two"},"finish_reason":"stop"}]}',
        b'{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}',
        b"[DONE]",
    )
)


class FreezingServer(socketserver.ThreadingTCPServer):
    """Frozen from `freeze_from_s` for `freeze_s` seconds, counted from its second completion: the load's
    first.

    The first is the preflight's.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 500
    allow_reuse_address = True

    def __init__(self, freeze_from_s: float, freeze_s: float) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self._freeze_from_s, self._freeze_s = freeze_from_s, freeze_s
        self._completions = 0
        self._first_at = 0.0
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def wait_while_frozen(self) -> None:
        with self._lock:
            self._completions += 1
            if self._completions == 2:
                self._first_at = time.monotonic()
            if self._completions < 2:
                return
        frozen_since = time.monotonic() - self._first_at - self._freeze_from_s
        if 0 <= frozen_since < self._freeze_s:
            time.sleep(self._freeze_s - frozen_since)


class _Answer(socketserver.StreamRequestHandler):
    server: FreezingServer

    def handle(self) -> None:
        while head := self._read_head():
            if b"content-length" not in head:
                self.wfile.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                continue
            self.rfile.read(int(head[b"content-length"]))
            self.server.wait_while_frozen()
            self.wfile.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%s"
                % (len(ANSWER), ANSWER)
            )

    def _read_head(self) -> dict[bytes, bytes]:
        head: dict[bytes, bytes] = {}
        while (line := self.rfile.readline().strip()) or not head:
            if not line:
                return {}
            name, _, value = line.partition(b":")
            head[name.lower()] = value.strip()
        return head


@contextmanager
def freezing_server(freeze_from_s: float, freeze_s: float) -> Iterator[FreezingServer]:
    """Run the server in threads of this process while the block lasts."""
    with FreezingServer(freeze_from_s, freeze_s) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
