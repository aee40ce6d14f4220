"""The simulated server under bytes that nobody should send and clients that leave: refused in the shape
of the API's errors, nothing on stderr, nothing left behind."""

from __future__ import annotations

import json
import re
import socket
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simserver.replies import MAX_BODY_BYTES
from tests import hostile
from tests.hostile import (
    CHAT,
    CHUNKED,
    SOUND,
    WHOLE,
    Server,
    answers_to,
    assert_error,
    connect,
    hostile_server,
    kept_alive,
    leave,
    post,
    until_closed,
)

server, nothing_is_printed_or_left = hostile.server, hostile.nothing_is_printed_or_left


# --- bytes

REFUSED: dict[str, tuple[bytes, int]] = {
    "TLS at a plain port": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "no HTTP": (b"hello\r\n\r\n", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "HTTP/9.9": (b"GET /health HTTP/9.9\r\nHost: x\r\n\r\n", 400),
    "a method of 20,000 letters": (b"A" * 20_000 + b" /health HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "a NUL in the method": (b"G\x00T /health HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "a path of 100,000 letters": (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "no URL": (b"GET http://[::1 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "bytes in the path": (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "no host": (b"GET /health HTTP/1.1\r\n\r\n", 400),
    "a blank before the colon": (b"GET /health HTTP/1.1\r\nHost : x\r\n\r\n", 400),
    "a NUL in a header": (post(WHOLE, b"x-a: a\x00b"), 400),
    "a header of 100,000 letters": (post(WHOLE, b"x-a: " + b"a" * 100_000), 400),
    "5,000 headers": (post(WHOLE, *(b"x-%d: a" % number for number in range(5_000))), 400),
    "a negative length": (b"POST " + CHAT + b" HTTP/1.1\r\nHost: x\r\nContent-Length: -3\r\n\r\n", 400),
    "a length in letters": (b"POST " + CHAT + b" HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n", 400),
    "a length of 23 digits": (
        b"POST " + CHAT + b" HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 23 + b"\r\n\r\n",
        400,
    ),
    "a length and chunks": (post(WHOLE, b"Transfer-Encoding: chunked"), 400),
    "a chunk without a size": (CHUNKED + b"zz\r\nabc\r\n", 400),
    "no body": (b"POST " + CHAT + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 400),
    "what is said to be gzip": (post(b"not gzip", b"Content-Encoding: gzip"), 400),
    "no JSON": (post(b"{"), 400),
    "NaN": (post(b'{"messages": [{"role": "user", "content": "hi"}], "max_tokens": NaN}'), 400),
    "1e400": (post(b'{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1e400}'), 400),
    "depth": (post(b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"), 400),
    "a NUL in the JSON": (post(b'{"messages": [{"role": "user", "content": "\x00"}]}'), 400),
    "no UTF-8": (post(b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}'), 400),
    "half a surrogate": (post(b'{"messages": [{"role": "user", "content": "\\ud800"}]}'), 400),
    "a byte order mark": (post(b"\xef\xbb\xbf" + json.dumps(WHOLE).encode()), 400),
    "a fault of no UTF-8": (post(WHOLE, b"x-simserver-fault: \xff\xfe"), 400),
    "a prompt of a million words": (post({"prompt": "a " * 1_000_000}, path=b"/v1/completions"), 400),
    "a name of 100,000 letters": (post({**WHOLE, "model": "m" * 100_000}), 404),
    "a path that is not there": (post(WHOLE, path=b"/v1/nowhere"), 404),
    "four slashes": (b"GET //// HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404),
    "OPTIONS *": (b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404),
    "OPTIONS": (post(b"", method=b"OPTIONS"), 405),
    "PUT": (post(WHOLE, method=b"PUT"), 405),
    "GET": (post(b"", method=b"GET"), 405),
    "a body larger than allowed": (post(b" " * (MAX_BODY_BYTES + 1)), 413),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_with_an_error_object(server: Server, what: str) -> None:
    payload, status = REFUSED[what]
    assert_error(answers_to(server.url, payload), status)


def test_a_wrong_method_is_told_the_right_one_and_head_has_no_body(server: Server) -> None:
    assert b"\r\nAllow: POST\r\n" in answers_to(server.url, post(WHOLE, method=b"PUT"))
    head, _, body = answers_to(server.url, post(b"", path=b"/v1/models", method=b"HEAD")).partition(
        b"\r\n\r\n"
    )
    assert (head.split()[1], body) == (b"405", b"")
    assert b"\r\nAllow: GET" in head


def test_a_key_that_is_no_text_is_a_wrong_key(tmp_path: Path) -> None:
    with hostile_server(tmp_path / "log", "--api-key", "schlüssel") as of:
        for line in (
            b"Bearer \xff\xfe",
            b"Bearer ",
            b"\x80",
            b"Basic eA==",
            b"Bearer schl",
            b"schl\xc3\xbcssel",
        ):
            assert_error(answers_to(of.url, post(WHOLE, b"Authorization: " + line)), 401)
        assert_error(answers_to(of.url, post(WHOLE)), 401)
        right = "Authorization: Bearer schlüssel".encode()
        assert b"200 OK" in answers_to(of.url, post(WHOLE, right))


def test_an_empty_key_by_option_is_no_key(tmp_path: Path) -> None:
    with hostile_server(tmp_path / "log", "--api-key", "") as of:
        assert b"200 OK" in answers_to(of.url, post(WHOLE))


def test_what_is_odd_but_allowed_is_served(server: Server) -> None:
    for payload in (
        post(WHOLE, b"x-tenant: \xff\xfe"),
        post({**WHOLE, "stop": ["x" * 1_000_000]}),
        post({**WHOLE, "unheard of": [[[]]]}, b"Content-Encoding: unheard-of"),
        post(WHOLE, b"Expect: 100-continue"),
        post(WHOLE, http=b"1.0"),
        b"\r\n\r\n" + post(WHOLE),
    ):
        assert b"\r\n\r\n{" in answers_to(server.url, payload)
        assert b" 200 OK" in answers_to(server.url, payload)


def test_pipelined_requests_are_answered_in_order_the_bad_ones_too(server: Server) -> None:
    kept = [kept_alive(post(WHOLE)), kept_alive(post(b"{"))]
    nowhere = b"GET /v1/nowhere HTTP/1.1\r\nHost: x\r\n\r\n"
    found = answers_to(server.url, b"".join((*kept, nowhere, *kept, post(WHOLE))))
    assert re.findall(rb"HTTP/1.1 (\d+)", found) == [b"200", b"400", b"404", b"200", b"400", b"200"]


def test_a_slow_body_is_waited_for(server: Server) -> None:
    payload = post(WHOLE)
    with connect(server.url) as connection:
        for piece in (payload[:-20], payload[-20:-9], payload[-9:-1], payload[-1:]):
            connection.sendall(piece)
            time.sleep(0.1)
        assert b" 200 OK" in until_closed(connection)


def test_a_stream_for_http_1_0_is_sent_as_it_is_and_ends_with_the_connection(server: Server) -> None:
    asked = {**SOUND["chat"], "max_tokens": 5, "stream": True}
    head, _, body = answers_to(server.url, post(asked, http=b"1.0")).partition(b"\r\n\r\n")
    assert b" 200 OK" in head
    assert b"Transfer-Encoding" not in head
    *events, end = body.decode().split("\n\n")
    assert end == ""
    assert events[-1] == "data: [DONE]"
    deltas = [json.loads(event.removeprefix("data: "))["choices"][0]["delta"] for event in events[:-1]]
    assert len(deltas) == 6
    assert all(delta["content"].startswith(" ") for delta in deltas[1:])


# --- clients that leave

LEAVERS: dict[str, bytes] = {
    "amid the head": post(WHOLE)[:30],
    "amid the body": post(WHOLE)[:-5],
    "amid a chunk": CHUNKED + b"10\r\n{",
    "between chunks": CHUNKED + b"1\r\n{\r\n",
    "before the answer": post({**WHOLE, "max_tokens": 30}),
    "before the stream": post({**WHOLE, "max_tokens": 30, "stream": True}),
    "from many choices": post({**WHOLE, "max_tokens": 30, "n": 100, "stream": True}),
    "from a pipeline": kept_alive(post({**WHOLE, "max_tokens": 30})) * 3,
}


@pytest.mark.parametrize("how", ["close", "reset", "half", "later"])
@pytest.mark.parametrize("where", LEAVERS)
def test_who_leaves_takes_all_of_it_along(server: Server, where: str, how: str) -> None:
    for _ in range(5):
        leave(server.url, LEAVERS[where], how)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_request_with_some_bytes_changed_never_breaks_the_server(
    server: Server, data: st.DataObject
) -> None:
    raw = bytearray(post(WHOLE))
    for place, value in data.draw(
        st.lists(st.tuples(st.integers(0, len(raw) - 1), st.integers(0, 255)), min_size=1, max_size=3)
    ):
        raw[place] = value
    with connect(server.url) as connection:
        connection.sendall(raw[: data.draw(st.integers(1, len(raw)))])
        connection.shutdown(socket.SHUT_WR)
        found = until_closed(connection)
    assert not found or found.split()[1][:1] in (b"2", b"4"), found
