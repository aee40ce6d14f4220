"""Turn a GGUF file into a Hugging Face folder (weights, config, tokenizer, chat template) that vLLM loads.

  VENV/bin/python bench/servers/gguf_to_hf.py --gguf FILE --out DIR

Run it with the Python of an environment that has torch, transformers, gguf and accelerate: vllm_cpu.py's,
after `pip install gguf accelerate`. For architectures that transformers reads from GGUF (llama, qwen2, ...).
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def convert(gguf: Path, folder: Path, dtype: str) -> None:
    """Read `gguf`, undo its quantization and write the model into `folder`."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.quantization_config import GgufConfig

    where, name = str(gguf.parent), gguf.name
    tokenizer = AutoTokenizer.from_pretrained(where, gguf_file=name)
    model = AutoModelForCausalLM.from_pretrained(
        where,
        gguf_file=name,
        dtype=getattr(torch, dtype),
        quantization_config=GgufConfig(dequantize=True),
    )
    # what is left of the quantization would be saved, and refused on loading
    for attribute in ("hf_quantizer", "quantization_method"):
        if hasattr(model, attribute):
            setattr(model, attribute, None)
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))


def main() -> None:
    """Convert what the arguments name."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--gguf", type=Path, required=True, help="file to read")
    made.add_argument("--out", type=Path, required=True, help="folder to write")
    made.add_argument(
        "--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"), help="(bfloat16)"
    )
    asked = made.parse_args()
    convert(asked.gguf.absolute(), asked.out, asked.dtype)


if __name__ == "__main__":
    main()
