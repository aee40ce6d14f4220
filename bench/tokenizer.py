"""Write a tiny tokenizer that the peers can load without a network: one id a word.

    PEER_PYTHON bench/tokenizer.py FOLDER

It runs with a peer's own Python, which has `tokenizers` and `transformers`; ours has neither.
"""

from __future__ import annotations

import importlib
import sys

SPECIAL = ("<unk>", "<s>", "</s>", "<pad>")
WORDS = (*"the quick brown fox jumps over lazy dog and".split(), *(f"w{number}" for number in range(4000)))


def write(folder: str) -> None:
    """Save the tokenizer into `folder`."""
    tokenizers = importlib.import_module("tokenizers")
    transformers = importlib.import_module("transformers")
    ids = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token="<unk>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    unknown, begin, end, padding = SPECIAL
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token=unknown, bos_token=begin, eos_token=end, pad_token=padding
    ).save_pretrained(folder)


if __name__ == "__main__":
    write(sys.argv[1])
