"""What a user sees of the options: the explanation, misspelt variables, mistakes in an own prompt."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from loadgen.given import unknown_variables
from loadgen.options import OPTIONS, OptionError
from loadgen.speaker import the_speaker, try_prompt

REPOSITORY = Path(__file__).resolve().parent.parent


def test_every_option_is_explained() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "loadgen"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    for option in OPTIONS:
        assert f"{option.flag} " in told
        assert f"[{option.env_var}]" in told


def test_a_misspelt_variable_is_noticed_and_a_right_one_is_not() -> None:
    environ = {"LOAD_SHPE": "pulse", "LOAD_SHAPE": "pulse", "LOAD_API_KEY": "k", "LOAD_WEB_PASSWORD": "p"}
    assert unknown_variables(environ) == ["LOAD_SHPE"]


class Good:
    extra_body: dict[str, object] = {}  # noqa: RUF012

    def __init__(self, environment: object) -> None: ...

    def prompt(self, arrival: object, run_id: str) -> str:
        return "hello"


class Bad(Good):
    def prompt(self) -> str:  # type: ignore[override]
        return "hello"


class Picture(Good):
    def prompt(self, arrival: object, run_id: str) -> list[dict[str, object]]:  # type: ignore[override]
        return [{"role": "user", "content": [{"type": "image_url"}]}]


def test_a_mistake_in_an_own_prompt_is_told_before_any_load() -> None:
    try_prompt(Good, None)
    with pytest.raises(OptionError, match="the completions endpoint takes text only"):
        try_prompt(Picture, None, "completions")
    with pytest.raises(OptionError, match=r"Bad.prompt\(arrival, run_id\) failed with TypeError"):
        try_prompt(Bad, None)


def test_a_run_has_exactly_one_class_that_says_the_prompts() -> None:
    assert the_speaker([int, Good]) is Good
    with pytest.raises(OptionError, match=r"here are 2 \(Good, Bad\)"):
        the_speaker([Good, Bad])
    with pytest.raises(OptionError, match="make one from"):
        the_speaker([int])
