"""The simulated server under values that no field should have, and what thousands of bad requests leave.

Bodies are drawn by hypothesis from one table of values per field: what is hostile in a field is known
here (sizes, signs, types, NaN, depth), and a schema would not say it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simserver.accounts import MOST_KNOWN, Accounts
from simserver.endpoints import ENDPOINTS
from simserver.engine_options import admission_of, engine_of
from simserver.faults import Faults
from simserver.options import EXIT_USAGE, parser, rules_of
from simserver.presets import PRESETS
from simserver.request import Request
from tests import hostile
from tests.hostile import SOUND, Server, answers_to, assert_at_rest, hostile_server, kept_alive, leave, post
from tests.test_simserver_app import gauges
from tests.test_simserver_hostile import LEAVERS, REFUSED

server, nothing_is_printed_or_left = hostile.server, hostile.nothing_is_printed_or_left

HUGE = [2**31, 2**63, 2**64, 10**30, 1e308]
NO_NUMBERS = ["1", "", [], {}, [1], True, 1.5]
BAD: dict[str, list[Any]] = {
    "n": [0, -1, *HUGE, *NO_NUMBERS],
    "max_tokens": [0, -1, -(2**63), *HUGE, *NO_NUMBERS],
    "max_completion_tokens": [0, -1, *HUGE, *NO_NUMBERS],
    "max_output_tokens": [0, -1, *HUGE, *NO_NUMBERS],
    "min_tokens": [-1, *HUGE, *NO_NUMBERS],
    "temperature": [-0.1, "hot", "inf", "nan", "", [], {}],
    "top_p": [0, 1.1, -1, "nan", []],
    "presence_penalty": [-2.1, 2.1, "much"],
    "frequency_penalty": [-2.1, 10**30, {}],
    "stream": [0, 1, "true", [], {}],
    "stream_options": [{"include_usage": True}, [], "all", 5, True],
    "stop": ["", [""], [5], 5, {}, True, ["a"] * 65],
    "priority": [2**40, -(2**40), "high", 1.5, [], True],
    "ignore_eos": [1, "yes", []],
    "simserver": [5, [], {"speed": 1}, {"reasoning_tokens": "many"}, {"tool_call": 1}],
    "messages": [[], {}, "hi", 5, [5], [[]], [{"role": 5}], [{"role": "user", "content": 5}], [None]],
    "prompt": ["", [], {}, 5, [[]], [["a"]], [None], "a " * 50, True, ["a"] * 200],
    "input": [[], {}, 5, ["hi"], [{"role": 5}], "a " * 50, [None], True],
    "instructions": [5, [], {}],
    "model": ["other", 5, [], {}, "", True],
}
OF_ONE = {
    **dict.fromkeys(("messages", "max_completion_tokens"), ("chat",)),
    "max_tokens": ("chat", "completions"),
    "n": ("chat", "completions"),
    "prompt": ("completions",),
    **dict.fromkeys(("input", "instructions", "max_output_tokens"), ("responses",)),
}
"""The fields that not every endpoint reads, and those that do."""


def answered(connection: HTTPConnection, endpoint: str, raw: bytes) -> tuple[int, Any]:
    connection.request("POST", ENDPOINTS[endpoint].path, raw)
    response = connection.getresponse()
    return response.status, json.loads(response.read())


@pytest.fixture
def kept(server: Server) -> Iterator[HTTPConnection]:
    parts = urlsplit(server.url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    yield connection
    connection.close()


@pytest.mark.parametrize("field", BAD)
def test_a_bad_value_is_refused_by_the_fields_name(kept: HTTPConnection, field: str) -> None:
    for endpoint in OF_ONE.get(field, tuple(ENDPOINTS)):
        for value in BAD[field]:
            raw = json.dumps({**SOUND[endpoint], field: value}).encode()
            status, body = answered(kept, endpoint, raw)
            assert status in (400, 404), (endpoint, value)
            assert (status == 404) == (field == "model"), (endpoint, value)
            error = body["error"]
            assert error["code"] == status
            named = {field, *(value if isinstance(value, dict) else ()), "input_tokens", "n"}
            assert any(name in (error["param"] or "") for name in named), (endpoint, value, error)


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        field: st.sampled_from(values) | st.none() | st.integers(1, 6) | st.text("a \x00é", max_size=5)
        for field, values in BAD.items()
    },
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(ENDPOINTS)), FIELDS, st.booleans())
def test_any_fields_together_are_served_or_refused(
    kept: HTTPConnection, endpoint: str, fields: dict[str, Any], sound: bool
) -> None:
    bodied = {**fields, **SOUND[endpoint], "model": None} if sound else fields
    status, body = answered(kept, endpoint, json.dumps({"max_tokens": 2, **bodied}).encode())
    assert status in (200, 400, 404)
    assert ("error" in body and body["error"] is not None) == (status != 200)


# --- nothing is left


def test_thousands_of_them_leave_nothing_behind(tmp_path: Path) -> None:
    """Memory after two thousand more is what it was after the first hundreds, within 12 MiB."""
    small = [payload for payload, _ in REFUSED.values() if len(payload) < 10_000]
    bodies = [
        {**SOUND["chat"], field: value}
        for field, values in BAD.items()
        if "chat" in OF_ONE.get(field, ("chat",))
        for value in values
    ]
    pipeline = b"".join(map(kept_alive, map(post, bodies))) + post(b"{")

    def round_of(url: str, times: int) -> None:
        for payload in small:
            answers_to(url, payload)
        for payload in LEAVERS.values():
            for how in ("close", "reset"):
                leave(url, payload, how)
        for _ in range(times):
            found = answers_to(url, pipeline)
            assert found.count(b"HTTP/1.1 40") == len(bodies) + 1
        assert_at_rest(url)

    with hostile_server(tmp_path / "log") as of:
        round_of(of.url, 5)
        before = gauges(of.url)["process_resident_memory_bytes"]
        round_of(of.url, 25)
        grown = gauges(of.url)["process_resident_memory_bytes"] - before
    assert grown < 12 * 2**20, f"{grown / 2**20:.1f} MiB more"


def test_of_the_tenants_who_left_the_last_ones_are_remembered() -> None:
    accounts = Accounts()
    stays = Request("stays", 10, 5, 0.0, tenant="stays")
    accounts.open(stays)
    for number in range(3 * MOST_KNOWN):
        one = Request(str(number), 10, 5, 0.0, tenant=f"t{number}")
        accounts.open(one)
        one.admitted_at_s, one.emitted_tokens = 0.0, 5
        accounts.close(one)
    assert len(accounts.served_tokens) <= MOST_KNOWN + 1
    assert "stays" in accounts.served_tokens
    assert accounts.served_tokens[f"t{3 * MOST_KNOWN - 1}"] == 15
    assert "t0" not in accounts.served_tokens


# --- options

VALUES = (
    "nan",
    "inf",
    "-inf",
    "-1",
    "0",
    "1e400",
    "1e308",
    "99999999999999999999",
    "",
    "x",
    "\x00",
    "=",
    "1,5",
)


FLAGS = [action.option_strings[0] for action in parser()._actions if action.nargs is None and action.metavar]


@pytest.mark.parametrize("flag", FLAGS)
def test_a_bad_option_is_told_in_words(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for value in VALUES:
        try:
            options = parser().parse_args([f"{flag}={value}"])
        except SystemExit as ended:
            told.append((ended.code, flag in capsys.readouterr().err))
            continue
        with suppress(ValueError, OSError):  # which the command tells in one line
            engine = engine_of(options, PRESETS[options.preset])
            rules_of(options, engine.limits)
            admission_of(options)
            Faults.parse(options.fault)
    assert set(told) <= {(EXIT_USAGE, True)}
