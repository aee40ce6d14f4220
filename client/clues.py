"""What kind of server is this? One table of clues, each of which one kind alone leaves; first match wins.

    headers  ─►  the list of models  ─►  whole answers  ─►  pages that generate nothing

A gateway's own clue goes before one of the server behind it, which it passes on. The clues were seen in
captures (tests/data/clues), but for OpenAI's, TGI's and Ollama's: those servers were not seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

Json = Mapping[str, object]


@dataclass(frozen=True)
class Kind:
    """One kind of server: its name in messages, and the row of dialects.DIALECTS that it understands."""

    name: str
    dialect: str


KINDS: dict[str, Kind] = {
    "litellm": Kind("LiteLLM", "litellm"),
    "vllm": Kind("vLLM", "vllm"),
    "sglang": Kind("SGLang", "sglang"),
    "llama.cpp": Kind("llama.cpp", "llama.cpp"),
    "transformers": Kind("transformers serve", "transformers"),
    "tgi": Kind("TGI", "tgi"),
    "ollama": Kind("Ollama", "openai"),
    "openai": Kind("OpenAI", "openai-hosted"),
    "simserver": Kind("simserver", "vllm"),
}


@dataclass(frozen=True)
class Evidence:
    """What a server has shown of itself: headers by lower-case name, rows of its list of models, whole
    answers to completions, and pages by path."""

    headers: Mapping[str, str] = field(default_factory=dict)
    models: tuple[Json, ...] = ()
    answers: tuple[Json, ...] = ()
    pages: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class Server:
    """A kind of server that was recognised: `kind` in KINDS, by which clue, and its version where known."""

    kind: str
    by: str
    version: str | None = None

    @property
    def dialect(self) -> str:
        return KINDS[self.kind].dialect

    def __str__(self) -> str:
        return KINDS[self.kind].name + (f" {self.version}" if self.version else "")


@dataclass(frozen=True)
class Clue:
    """`by` names the clue in a message; `fits` looks for it."""

    kind: str
    by: str
    fits: Callable[[Evidence], bool]


def _header(name: str, value: str | None = None) -> Callable[[Evidence], bool]:
    def fits(seen: Evidence) -> bool:
        found = seen.headers.get(name)
        return found is not None and (value is None or found.lower() == value)

    return fits


def _owner(owner: str) -> Callable[[Evidence], bool]:
    return lambda seen: any(row.get("owned_by") == owner for row in seen.models)


def _choices(seen: Evidence) -> Iterator[Json]:
    for answer in seen.answers:
        choices = answer.get("choices")
        yield from (row for row in choices if isinstance(row, dict)) if isinstance(choices, list) else ()


def _field(name: str) -> Callable[[Evidence], bool]:
    return lambda seen: any(name in answer for answer in seen.answers)


def _choice_field(name: str) -> Callable[[Evidence], bool]:
    return lambda seen: any(name in choice for choice in _choices(seen))


def _answer_says(name: str, pattern: str) -> Callable[[Evidence], bool]:
    return lambda seen: any(
        isinstance(answer.get(name), str) and re.search(pattern, str(answer[name])) for answer in seen.answers
    )


def _page(path: str, *names: str) -> Callable[[Evidence], bool]:
    return lambda seen: all(name in seen.pages.get(path, {}) for name in names)


_MODELS = "its list of models"
CLUES: tuple[Clue, ...] = (
    Clue("litellm", "its x-litellm headers", lambda seen: any("x-litellm-" in name for name in seen.headers)),
    Clue("openai", "its openai-processing-ms header", _header("openai-processing-ms")),
    Clue("llama.cpp", "its Server header", _header("server", "llama.cpp")),
    Clue("simserver", "its Server header", _header("server", "simserver")),
    Clue("tgi", "its x-compute-type header", _header("x-compute-type")),
    Clue("vllm", _MODELS, _owner("vllm")),
    Clue("sglang", _MODELS, _owner("sglang")),
    Clue("llama.cpp", _MODELS, _owner("llamacpp")),
    Clue("ollama", _MODELS, _owner("library")),
    Clue("vllm", "its answer's system_fingerprint", _answer_says("system_fingerprint", "^vllm-")),
    Clue("vllm", "its answer's prompt_token_ids", _field("prompt_token_ids")),
    Clue("sglang", "its answer's matched_stop", _choice_field("matched_stop")),
    Clue("llama.cpp", "its answer's timings", _field("timings")),
    Clue("ollama", "its answer's system_fingerprint", _answer_says("system_fingerprint", "^fp_ollama$")),
    Clue("transformers", "the @main in its answer's model", _answer_says("model", "@main$")),
    Clue("litellm", "its page /health/readiness", _page("/health/readiness", "litellm_version")),
    Clue("llama.cpp", "its page /props", _page("/props", "default_generation_settings")),
    Clue("sglang", "its page /model_info", _page("/model_info", "model_path", "is_generation")),
    Clue("sglang", "its page /get_model_info", _page("/get_model_info", "model_path", "is_generation")),
    Clue("tgi", "its page /info", _page("/info", "model_id", "max_total_tokens")),
    Clue(
        "vllm",
        "its page /version",
        lambda seen: bool(re.match(r"\d+\.\d+", str(seen.pages.get("/version", {}).get("version", "")))),
    ),
)

PAGES: tuple[str, ...] = (
    "/version",
    "/props",
    "/model_info",
    "/get_model_info",
    "/info",
    "/health/readiness",
)
"""Pages to ask an unknown server for, in this order. None generates a token, as SGLang's /health does."""

VERSION_PAGES: Mapping[str, str] = {"vllm": "/version", "simserver": "/version", "tgi": "/info"}
"""Where a known kind tells its version, which costs one GET."""

_VERSION = re.compile(r"[0-9][\w.+]{0,39}")


def server_of(seen: Evidence) -> Server | None:
    """The kind that the first fitting clue names, None where no clue fits."""
    clue = next((clue for clue in CLUES if clue.fits(seen)), None)
    return None if clue is None else Server(clue.kind, clue.by, _version(clue.kind, seen))


def _version(kind: str, seen: Evidence) -> str | None:
    texts: list[object] = [seen.pages.get(VERSION_PAGES.get(kind, ""), {}).get("version")]
    if kind == "litellm":
        texts += [seen.headers.get("x-litellm-version")]
        texts += [seen.pages.get("/health/readiness", {}).get("litellm_version")]
    if kind == "vllm":
        texts += [str(answer.get("system_fingerprint")).removeprefix("vllm-") for answer in seen.answers]
    found = (_VERSION.match(text.removeprefix("simserver-")) for text in texts if isinstance(text, str))
    return next((match[0] for match in found if match), None)
