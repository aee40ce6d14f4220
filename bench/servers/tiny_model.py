"""Write a tiny Llama with random weights (config, tokenizer, chat template) that real servers load.

  VENV/bin/python bench/servers/tiny_model.py --out DIR

Needs numpy, safetensors and tokenizers: run it with the Python of a server's environment. The tokenizer is a
byte-level BPE trained on the English text that Python itself ships, so any text can be encoded, at about 2.6
characters a token. What it answers is nonsense; times and wire format are the server's own. The same
arguments give the same files.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

HIDDEN, LAYERS, HEADS, KV_HEADS, FFN = 128, 2, 2, 1, 256
HEAD = HIDDEN // HEADS  # vLLM's kernels on a CPU want 32, 64, 80, 96, ...
VOCABULARY, CONTEXT = 4096, 4096
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]
START, END, PAD = 1, 2, 3  # places in SPECIAL
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for p in m['content'] %}{{ p['text'] }}{% endfor %}{% endif %}"
    "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tokenizer(folder: Path) -> int:
    """tokenizer.json and its configuration; returns the size of the vocabulary."""
    from pydoc_data import topics

    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    made.train_from_iterator([topics.topics[name] for name in sorted(topics.topics)], trainer)
    made.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[START],
        "eos_token": SPECIAL[END],
        "pad_token": SPECIAL[PAD],
        "unk_token": SPECIAL[0],
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1))
    return int(made.get_vocab_size())


def write_config(folder: Path, vocabulary: int) -> None:
    """config.json and generation_config.json."""
    ends = {"bos_token_id": START, "eos_token_id": END, "pad_token_id": PAD}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD,
        "vocab_size": vocabulary,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "float32",
        **ends,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "generation_config.json").write_text(json.dumps(ends))


def write_weights(folder: Path, vocabulary: int) -> None:
    """model.safetensors: random, always the same."""
    import numpy as np
    from safetensors.numpy import save_file

    random = np.random.default_rng(0)
    shapes = {"model.embed_tokens.weight": (vocabulary, HIDDEN), "lm_head.weight": (vocabulary, HIDDEN)}
    norms = ["model.norm.weight"]
    for layer in (f"model.layers.{index}" for index in range(LAYERS)):
        shapes |= {
            f"{layer}.self_attn.q_proj.weight": (HEADS * HEAD, HIDDEN),
            f"{layer}.self_attn.k_proj.weight": (KV_HEADS * HEAD, HIDDEN),
            f"{layer}.self_attn.v_proj.weight": (KV_HEADS * HEAD, HIDDEN),
            f"{layer}.self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD),
            f"{layer}.mlp.gate_proj.weight": (FFN, HIDDEN),
            f"{layer}.mlp.up_proj.weight": (FFN, HIDDEN),
            f"{layer}.mlp.down_proj.weight": (HIDDEN, FFN),
        }
        norms += [f"{layer}.input_layernorm.weight", f"{layer}.post_attention_layernorm.weight"]
    weights = {
        name: (random.standard_normal(shape) * 0.05).astype(np.float32) for name, shape in shapes.items()
    }
    weights |= {name: np.ones(HIDDEN, np.float32) for name in norms}
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})


def main() -> None:
    """Write the model."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--out", type=Path, required=True, help="folder to write; made if need be")
    folder = made.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = write_tokenizer(folder)
    write_config(folder, vocabulary)
    write_weights(folder, vocabulary)


if __name__ == "__main__":
    main()
