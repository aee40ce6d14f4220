"""What servers disagree on in a request: one table.

What they all take is the standard body (endpoints.py). A row says what is known of one kind of server beyond
it: how an answer is made exactly as long as asked, and which standard fields it calls otherwise or refuses.
Unknown fields are ignored by most servers; transformers serve, TensorRT-LLM and Mistral refuse the whole
request. So nothing is sent beyond the standard unless a dialect is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Dialect:
    """What one kind of server takes, told in `summary`.

    `force` makes an answer as long as asked: fields of a chat or text completion, and of a response where
    `forces_responses`. `takes_min_tokens`: so does `min_tokens` (not in a response). `max_tokens_field` names
    the longest answer in chat. `takes_stream_options`: usage is asked for so; without, the server counts
    unasked.
    """

    name: str
    summary: str
    force: Mapping[str, object] = field(default_factory=dict)
    takes_min_tokens: bool = False
    forces_responses: bool = False
    max_tokens_field: str = "max_tokens"
    takes_stream_options: bool = True


_IGNORE_EOS = {"ignore_eos": True}

DIALECTS: dict[str, Dialect] = {
    row.name: row
    for row in (
        Dialect("openai", "the standard as most servers take it, length as the model likes"),
        # "Unsupported parameter: 'max_tokens' is not supported with this model": GPT-5 and the o models, at
        # OpenAI and Azure (koosoli/ESPHomeDesigner#379, OpenHands#11662); the others take both names.
        Dialect(
            "openai-hosted",
            "OpenAI's own and Azure's, with max_completion_tokens",
            max_tokens_field="max_completion_tokens",
        ),
        # ResponsesRequest has ignore_eos, and no min_tokens (vllm/entrypoints/openai/responses/protocol.py)
        Dialect("vllm", "exact lengths", force=_IGNORE_EOS, takes_min_tokens=True, forces_responses=True),
        Dialect("sglang", "exact lengths", force=_IGNORE_EOS, takes_min_tokens=True),
        # ignore_eos and min_tokens in tensorrt_llm/serve/openai_protocol.py, which refuses unknown fields
        Dialect("tensorrt-llm", "exact lengths", force=_IGNORE_EOS, takes_min_tokens=True),
        # ignore_eos in lmdeploy/serve/openai/protocol.py; the least length has another name
        Dialect("lmdeploy", "exact lengths", force=_IGNORE_EOS),
        Dialect("llama.cpp", "exact lengths", force=_IGNORE_EOS),
        # ignore_eos_token is not offered over HTTP (text-generation-inference#1304, #1944)
        Dialect("tgi", "text-generation-inference: no way to force a length"),
        # seen: 422 for each field that it does not know; usage comes with the finish reason, unasked
        Dialect("transformers", "transformers serve: refuses unknown fields, no way to force a length"),
        # passes fields on: what they do depends on the server behind
        Dialect("litellm", "LiteLLM's proxy: the standard, for any server behind it"),
        # 422 "Extra inputs are not permitted" for stream_options, usage comes unasked (avante.nvim#2347,
        # anon-kode#53), and for max_completion_tokens (eca#231)
        Dialect("mistral", "Mistral's own: without stream_options", takes_stream_options=False),
    )
}


_REFUSED_FIELDS = {"max_completion_tokens": "openai-hosted", "stream_options": "mistral"}


def dialect_asked_for(said: str) -> str | None:
    """The dialect that a server asks for when it turns a standard request away with these words: they name
    the field that it wants instead, or does not know. None when they name neither."""
    return next((dialect for field, dialect in _REFUSED_FIELDS.items() if field in said), None)
