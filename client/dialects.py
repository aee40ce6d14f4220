"""What servers disagree on in a request: how to ask for a length of answer, and what they refuse to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Dialect:
    """What one kind of server takes beyond the common body. `force` makes an answer as long as asked."""

    name: str
    force: Mapping[str, object] = field(default_factory=dict)
    takes_min_tokens: bool = False


DIALECTS: dict[str, Dialect] = {
    row.name: row
    for row in (
        Dialect("openai"),
        Dialect("vllm", force={"ignore_eos": True}, takes_min_tokens=True),
        Dialect("sglang", force={"ignore_eos": True}, takes_min_tokens=True),
        Dialect("llama.cpp", force={"ignore_eos": True}),
        Dialect("transformers"),  # answers 422 to every field it does not know
        Dialect("litellm"),  # passes fields on: what they do depends on the server behind
    )
}
