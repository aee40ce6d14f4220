"""The event-stream decoder: the standard's examples, every cut, any bytes."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from client.sse import Event, EventDecoder


def event(data: bytes, name: bytes = b"message") -> Event:
    return data, name


def decode(*pieces: bytes) -> list[Event]:
    decoder = EventDecoder()
    return [each for piece in pieces for each in decoder.feed(piece)]


def by_the_standard(body: bytes) -> list[Event]:
    """The standard's algorithm, written down plainly: on the whole body, line by line."""
    events, data, name = [], [], ""
    text = body.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    for line in re.split("\r\n|\n|\r", text)[:-1]:
        field, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if line == "":
            if data:
                joined = "\n".join(data).encode("utf-8", "surrogateescape")
                events.append(event(joined, name.encode("utf-8", "surrogateescape") or b"message"))
            data, name = [], ""
        elif field == "data":
            data.append(value)
        elif field == "event":
            name = value
    return events


CASES = {
    "plain": b"data: {}\n\ndata: [DONE]\n\n",
    "crlf": b"data: a\r\n\r\ndata: b\r\n\r\n",
    "cr": b"data: a\r\rdata: b\r\r",
    "mixed line ends": b"data: a\r\n\ndata: b\r\r\n\ndata: c\n\r\n",
    "byte order mark": b"\xef\xbb\xbfdata: a\n\ndata: b\n\n",
    "comments": b": hello\n\n:\n\ndata: a\n: in between\n\n",
    "several data lines": b"data: {\ndata: }\n\ndata:\ndata:\n\n",
    "several data lines, crlf": b"data: {\r\ndata: }\r\n\r\n",
    "no blank after the colon": b"data:a\n\ndata:  two blanks\n\n",
    "names": b"event: ping\n\nevent: error\ndata: x\n\ndata: y\n\n",
    "fields to read over": b"id: 7\nretry: 99999999999999999999\nfoo: bar\nbaz\ndata\n\ndata: z\n\n",
    "unicode": "data: 中\u2028\u0085😀\n\ndata: é\n\n".encode(),
    "ends in the middle": b"data: a\n\ndata: b\n",
    "blank lines first": b"\n\n\r\ndata: a\n\n",
}


@pytest.mark.parametrize("name", CASES)
def test_every_one_cut_gives_the_same_events(name: str) -> None:
    body = CASES[name]
    expected = by_the_standard(body)
    assert decode(body) == expected
    for cut in range(len(body) + 1):
        assert decode(body[:cut], body[cut:]) == expected, cut
    assert decode(*(body[at : at + 1] for at in range(len(body)))) == expected


@pytest.mark.parametrize(
    "name", ["plain", "crlf", "mixed line ends", "several data lines", "byte order mark"]
)
def test_every_two_cuts_give_the_same_events(name: str) -> None:
    body = CASES[name]
    expected = by_the_standard(body)
    for first in range(len(body)):
        for second in range(first, len(body)):
            assert decode(body[:first], body[first:second], body[second:]) == expected


def test_expected_values_worked_by_hand() -> None:
    assert decode(CASES["several data lines"]) == [event(b"{\n}"), event(b"\n")]
    assert decode(CASES["names"]) == [event(b"x", b"error"), event(b"y")]
    assert decode(CASES["no blank after the colon"]) == [event(b"a"), event(b" two blanks")]
    assert decode(CASES["fields to read over"]) == [event(b""), event(b"z")]
    assert decode(CASES["mixed line ends"]) == [event(b"a"), event(b"b"), event(b"c")]
    assert decode(CASES["comments"]) == [event(b"a")]


def test_an_event_is_given_out_at_a_lone_cr_without_waiting_for_more() -> None:
    decoder = EventDecoder()
    assert decoder.feed(b"data: a\r\r") == [event(b"a")]
    assert decoder.feed(b"\ndata: b\r\r") == [event(b"b")]


def test_a_last_event_without_its_blank_line_is_given_out_at_the_end_only() -> None:
    for tail in (b"data: [DONE]", b"data: [DONE]\n", b"data: [DONE]\r\n"):
        decoder = EventDecoder()
        assert decoder.feed(b"data: a\n\n" + tail) == [event(b"a")]
        assert decoder.end() == [event(b"[DONE]")]
        assert decoder.end() == []


@pytest.mark.parametrize("body", [b"data: \xff\n\n", b": \xff\n\ndata: a\n\n", b"data: \xe4\xb8\n\n"])
def test_bytes_that_are_not_utf8_are_noticed_under_any_cut(body: bytes) -> None:
    for cut in range(len(body)):
        decoder = EventDecoder()
        decoder.feed(body[:cut])
        decoder.feed(body[cut:])
        assert decoder.invalid_utf8


def test_a_character_cut_in_two_is_no_invalid_utf8() -> None:
    body = CASES["unicode"]
    for cut in range(len(body)):
        decoder = EventDecoder()
        decoder.feed(body[:cut])
        decoder.feed(body[cut:])
        assert not decoder.invalid_utf8


LIKELY = st.lists(
    st.sampled_from(
        [b"data: ", b"data", b":", b" ", b"\n", b"\r", b"\n\n", b"event: e", b"\xef\xbb\xbf", b"x", b"\xff"]
    )
).map(b"".join)


@given(st.lists(LIKELY | st.binary(max_size=40), max_size=6))
@example([b"data: \n", b"\ndata: x\n\n"])
@example([b"\xef", b"\xbb\xbfdata: x\n\n"])
def test_any_bytes_in_any_pieces_are_read_by_the_standard(pieces: list[bytes]) -> None:
    decoder = EventDecoder()
    events = [each for piece in pieces for each in decoder.feed(piece)]
    assert events == by_the_standard(b"".join(pieces))
    decoder.end()
