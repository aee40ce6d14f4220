"""The truth server: a C program that writes streams on a clock and records when it wrote each chunk.

Its stamps and the client's are on one CLOCK_MONOTONIC, so a client's figure can be compared with what
happened.
"""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from experiments.launch import free_port, stop

SOURCE = Path(__file__).with_name("truth_server.c")


class NoCompiler(Exception):
    """The truth server needs a C compiler."""


@dataclass(frozen=True)
class TrueStream:
    """One request as the server saw it: when it arrived, on which connection, when each chunk was written
    (ns).
    """

    request_id: str
    received_ns: int
    connection: int
    chunks_ns: tuple[int, ...]


def build(folder: Path, tls: bool = False) -> Path:
    """Compile the server into `folder`. Raises NoCompiler without one, or for TLS without OpenSSL's
    headers.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NoCompiler("the truth server needs a C compiler: install gcc")
    program = folder / "truth_server"
    with_tls = ["-DTLS", "-lssl", "-lcrypto"] if tls else []
    made = subprocess.run([compiler, "-O2", "-o", str(program), str(SOURCE), *with_tls], check=False)
    if made.returncode:
        raise NoCompiler("the truth server could not be compiled" + (": install libssl-dev" if tls else ""))
    return program


def make_certificate(folder: Path) -> Path:
    """A new certificate for 127.0.0.1 and its key, in one file: the server's, and whom the client trusts.

    Raises NoCompiler without the openssl program.
    """
    if shutil.which("openssl") is None:
        raise NoCompiler("a certificate needs the openssl program: install openssl")
    key, certificate, both = folder / "key.pem", folder / "certificate.pem", folder / "both.pem"
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", *kind, *name, *files], check=True, capture_output=True)
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    return both


@contextmanager
def truth_server(
    ttft_ms: float, gap_ms: float, tokens: int, cores: Sequence[int] = (), certificate: Path | None = None
) -> Iterator[str]:
    """Run the server on a free port of 127.0.0.1 while the block lasts; yields its base URL.

    With a `certificate` (see make_certificate) it speaks TLS.
    """
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        options = ["--ttft-ms", f"{ttft_ms:g}", "--itl-ms", f"{gap_ms:g}", "--tokens", str(tokens)]
        options += ["--tls", str(certificate)] if certificate else []
        pin = ["taskset", "-c", ",".join(map(str, cores))] if cores and shutil.which("taskset") else []
        program = build(Path(folder), tls=certificate is not None)
        command = [*pin, str(program), "--port", str(port), *options]
        server = subprocess.Popen(command, preexec_fn=_before_all_others)
        url = f"{'https' if certificate else 'http'}://127.0.0.1:{port}"
        try:
            _wait_until_up(url, certificate)
            yield url
        finally:
            stop(server)


def _before_all_others() -> None:
    """Real-time priority where it is allowed (root): the truth must not be late because a machine is busy."""
    with suppress(AttributeError, OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def _wait_until_up(url: str, certificate: Path | None) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            _get(f"{url}/stats", certificate)
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def true_streams(url: str, certificate: Path | None = None) -> dict[str, TrueStream]:
    """What the server recorded so far, by request id."""
    found = {}
    for line in _get(f"{url}/truth", certificate).splitlines():
        request_id, received, connection, _, _, _, _, *chunks = line.split()
        start_ns = int(received)
        written = tuple(start_ns + round(float(at_us) * 1000) for at_us in chunks)
        found[request_id] = TrueStream(request_id, start_ns, int(connection), written)
    return found


@dataclass(frozen=True)
class ServerStats:
    """Totals since the server started, the requests being answered now, and its own worst lateness."""

    chunks: int
    requests: int
    active: int
    late_ms: float


def server_stats(url: str) -> ServerStats:
    """What the server has done so far; cheap enough to ask while a load runs."""
    chunks, requests, active, late_us, _ = _get(f"{url}/stats", None).split()
    return ServerStats(int(chunks), int(requests), int(active), float(late_us) / 1000)


def _get(url: str, certificate: Path | None) -> str:
    context = ssl.create_default_context(cafile=certificate) if certificate else None
    with urllib.request.urlopen(url, timeout=30, context=context) as answer:
        text: str = answer.read().decode()
        return text
