"""Every cut of every captured stream: the same events, and the same judgement, wherever a read ends.

One cut, two pieces: every position of every capture. Two cuts, three pieces: n^2 / 2 of them, 360 million
for all captures, so they are taken on skeletons. A skeleton is the capture with the inside of each field's
value left out, all but its first and last two bytes and what is not ASCII: those bytes the decoder only
copies. So a pair of cuts in a capture differs from one in its skeleton in nothing but the number of plain
bytes next to a cut inside a value; line ends, field names, colons, blanks, empty lines and characters of
several bytes are all there. That it is so is tested where it can be: every two cuts of the short captures as
they are, and cuts at random in all of them. What takes long is marked slow.
"""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from _pytest.mark import ParameterSet
from hypothesis import given, settings
from hypothesis import strategies as st

from client.endpoints import ENDPOINTS
from client.judgement import Cut, Judgement
from client.sse import EventDecoder
from runlog.failures import failure_class
from runlog.record import OUTCOMES
from tests.captures import EVENT_STREAMS, endpoint_of
from tests.test_sse import by_the_standard, decode

_VALUE = re.compile(rb"(?m)^((?:data|event|id): ?[^\r\n]{2})([^\r\n]*)([^\r\n]{2})(?=[\r\n]|\Z)")


def skeleton(body: bytes) -> bytes:
    """The body without the plain bytes inside its fields' values."""

    def shortened(line: re.Match[bytes]) -> bytes:
        return line[1] + re.sub(rb"[\x00-\x7f]+", b"", line[2]) + line[3]

    return _VALUE.sub(shortened, body)


SKELETONS = {skeleton(body): name for name, body in reversed(EVENT_STREAMS.items())}
"""Each skeleton once, with the first capture that has it."""


def long_are_slow(value: bytes | str, name: str, most: int, size: int | None = None) -> ParameterSet:
    """A test's parameter, marked slow where it is longer than `most` bytes."""
    slow = (len(value) if size is None else size) > most
    return pytest.param(value, id=name, marks=pytest.mark.slow if slow else ())


SHORT = {name: body for name, body in EVENT_STREAMS.items() if len(body) <= 450}
MIDDLING = {name: body for name, body in EVENT_STREAMS.items() if 450 < len(body) <= 900}


def test_skeletons_hold_what_the_decoder_looks_at() -> None:
    body = 'event: error\ndata: {"a": "中\u2028x"}\r\n\r\ndata:{}\n: a comment\n\ndata: [DONE]\n\n'.encode()
    short = 'event: eror\ndata: {"中\u2028"}\r\n\r\ndata:{}\n: a comment\n\ndata: [DE]\n\n'.encode()
    assert skeleton(body) == short
    assert len(EVENT_STREAMS) > 100
    assert all(
        len(by_the_standard(each)) == len(by_the_standard(skeleton(each))) for each in EVENT_STREAMS.values()
    )


@pytest.mark.parametrize("name", EVENT_STREAMS)
def test_every_cut_gives_the_same_events(name: str) -> None:
    body = EVENT_STREAMS[name]
    expected = by_the_standard(body)
    assert decode(body) == expected
    for cut in range(len(body)):
        assert decode(body[:cut], body[cut:]) == expected, cut


def assert_every_two_cuts(body: bytes) -> None:
    expected = by_the_standard(body)
    for first in range(len(body)):
        for second in range(first, len(body)):
            decoder = EventDecoder()
            events = decoder.feed(body[:first])
            events += decoder.feed(body[first:second])
            events += decoder.feed(body[second:])
            assert events == expected, (first, second)


@pytest.mark.parametrize("body", [long_are_slow(body, name, 300) for body, name in SKELETONS.items()])
def test_every_two_cuts_of_every_skeleton_give_the_same_events(body: bytes) -> None:
    assert_every_two_cuts(body)


@pytest.mark.parametrize("name", SHORT)
def test_every_two_cuts_of_short_captures_as_they_are(name: str) -> None:
    assert_every_two_cuts(SHORT[name])


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MIDDLING)
def test_every_two_cuts_of_longer_captures_as_they_are(name: str) -> None:
    assert_every_two_cuts(MIDDLING[name])


def judged(name: str, *pieces: bytes) -> tuple[object, ...]:
    """All that a judgement says of these pieces of a capture, times apart."""
    judgement = Judgement(lambda: None, ENDPOINTS[endpoint_of(name)].meaning_of)
    judgement.begin(200, {"content-type": "text/event-stream"})
    for piece in pieces:
        judgement.body(piece, 1, 2)
    return (
        judgement.verdict(None, 3),
        judgement.output_events,
        judgement.usage,
        judgement.finish_reason,
        judgement.end_mark,
        judgement.malformed_events,
        judgement.streamed,
    )


@pytest.mark.parametrize(
    "name", [long_are_slow(name, name, 2700, len(body)) for name, body in EVENT_STREAMS.items()]
)
def test_every_cut_gives_the_same_judgement(name: str) -> None:
    body = EVENT_STREAMS[name]
    expected = judged(name, body)
    for cut in range(len(body)):
        assert judged(name, body[:cut], body[cut:]) == expected, cut


@settings(deadline=None)
@given(st.sampled_from(sorted(EVENT_STREAMS)), st.lists(st.integers(0, 9999), max_size=6))
def test_cuts_at_random_places_give_the_same_judgement(name: str, cuts: list[int]) -> None:
    body = EVENT_STREAMS[name]
    assert judged(name, *cut_at(body, cuts)) == judged(name, body)


def cut_at(body: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    return [body[start:end] for start, end in pairwise(places)]


MUTATIONS = st.lists(
    st.tuples(
        st.integers(0, 9999),
        st.integers(0, 40),
        st.binary(max_size=6)
        | st.sampled_from([b"\n\n", b"\r", b"data: ", b"null", b"[]", b"{}", b'"', b"-1", b"1e999", b"\xff"]),
    ),
    max_size=4,
)


@settings(deadline=None)
@given(
    st.sampled_from(sorted(EVENT_STREAMS)),
    st.sampled_from(sorted(ENDPOINTS)),
    MUTATIONS,
    st.lists(st.integers(0, 9999), max_size=3),
    st.booleans(),
)
def test_a_spoilt_capture_still_gets_a_verdict_of_a_known_class(
    name: str, endpoint: str, mutations: list[tuple[int, int, bytes]], cuts: list[int], lost: bool
) -> None:
    body = EVENT_STREAMS[name]
    for place, dropped, put_in in mutations:
        at = place % (len(body) + 1)
        body = body[:at] + put_in + body[at + dropped :]
    judgement = Judgement(lambda: None, ENDPOINTS[endpoint].meaning_of)
    judgement.begin(200, {})
    for piece in cut_at(body, cuts):
        judgement.body(piece, 1, 2)
    verdict = judgement.verdict(Cut("connection_lost_mid_stream", "") if lost else None, 3)
    assert verdict.outcome in OUTCOMES
    assert (verdict.failure_class is None) == (verdict.outcome == "succeeded")
    if verdict.failure_class is not None:
        assert failure_class(verdict.failure_class)
    if verdict.outcome == "succeeded":
        assert judgement.complete
