"""Headers and body fields that the user adds: how they are read, and that values of headers stay secret."""

from __future__ import annotations

from argparse import Namespace

import configargparse
import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.target import Target
from loadgen.extras import headers_told, parse_body, parse_headers
from loadgen.given import add_to_parser, command_told, options_as_given
from loadgen.options import OPTIONS, OptionError
from loadgen.settings import read_settings

SECRET = "hush-4711-word"
DEFAULTS = {option.name: option.default for option in OPTIONS} | {"model": "m", "run_time": None}


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        ("X-Tenant: blue", {"X-Tenant": "blue"}),
        ("X-Tenant:blue\n\n Cookie: a=1; b=2 ", {"X-Tenant": "blue", "Cookie": "a=1; b=2"}),
        ('{"X-Tenant": "blue", "X-Time": "12:30"}', {"X-Tenant": "blue", "X-Time": "12:30"}),
        ('{"X-Tenant": "blue"}\nX-Time: 12:30', {"X-Tenant": "blue", "X-Time": "12:30"}),
    ],
)
def test_headers_are_lines_or_json(text: str, headers: dict[str, str]) -> None:
    assert parse_headers(text) == headers


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"Bearer {SECRET}", "line 1 is no header"),
        (f"X-A: b\n: {SECRET}", "line 2 is no header"),
        (f"X-A: {SECRET}\nx-a: {SECRET}", "'x-a' is given twice"),
        (f'{{"X-A": "{SECRET}"', "begins like JSON"),
        (f'{{"X-A": ["{SECRET}"]}}', "begins like JSON"),
    ],
)
def test_a_wrong_header_is_told_without_its_value(text: str, words: str) -> None:
    with pytest.raises(OptionError) as told:
        read_settings(Namespace(**(DEFAULTS | {"header": text})), "http://h")
    assert words in str(told.value)
    assert SECRET not in str(told.value)


def test_what_the_client_sets_itself_cannot_be_given() -> None:
    with pytest.raises(ValueError, match="'X-Request-Id' is set by the client itself"):
        Target("http://h", "m", headers=parse_headers("X-Request-Id: 7"))


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_and_told_without_values(text: str) -> None:
    told = headers_told(text)
    try:
        headers = parse_headers(text)
    except ValueError:
        assert told == "…"
    else:
        assert told == "\n".join(f"{name}: …" for name in headers)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("temperature=0.7", "no JSON"),
        ("[1]", "one JSON object"),
        ('{"stream": false}', "'stream' is set by --no-stream"),
        ('{"max_completion_tokens": 5}', "'max_completion_tokens' is set by --output-tokens"),
        ('{"messages": []}', "the user class, by its prompt"),
    ],
)
def test_a_body_that_cannot_be_is_told_in_one_line(text: str, words: str) -> None:
    with pytest.raises(OptionError) as told:
        read_settings(Namespace(**(DEFAULTS | {"body": text})), "http://h")
    assert str(told.value).startswith("--body: ")
    assert words in str(told.value)
    assert "\n" not in str(told.value)


def test_a_body_holds_whatever_json_holds() -> None:
    assert parse_body('{"temperature": 0.7, "stop": null, "x": {"y": [1]}}') == {
        "temperature": 0.7,
        "stop": None,
        "x": {"y": [1]},
    }


def test_a_repeated_header_adds_a_line_and_is_told_by_name() -> None:
    parser = configargparse.ArgumentParser()
    add_to_parser(parser)
    given = parser.parse_args(["--header", f"X-A: {SECRET}", "--header=X-B: 2", "--body", '{"n": 1}'])
    assert parse_headers(given.header) == {"X-A": SECRET, "X-B": "2"}
    options = options_as_given(given)
    assert (options["header"], options["body"]) == ("X-A: …\nX-B: …", '{"n": 1}')


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["--header", f"X-A: {SECRET}", "--rate", "6"], ["--header", "X-A: …", "--rate", "6"]),
        ([f"--header=X-A: {SECRET}", "--rate", "6"], ["--header=X-A: …", "--rate", "6"]),
        (["--heade", f"X-A: {SECRET}"], ["--heade", "X-A: …"]),
        (["--header", SECRET], ["--header", "…"]),
        (["--headless", "--host", "http://h"], ["--headless", "--host", "http://h"]),
    ],
)
def test_the_command_is_told_without_values_of_headers(command: list[str], told: list[str]) -> None:
    assert command_told(["locust", *command]) == ["locust", *told]
