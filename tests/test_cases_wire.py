"""Field cases A01 to A05, the wire format of a stream, with both engines.

Orders and counts are asserted, times with wide margins.
"""

from __future__ import annotations

import zlib

import pytest

from tests.asking import DONE, WHOLE, answered, ask, assert_five_tokens, event, streamed, usage_event
from tests.byte_server import LAST_CHUNK, STREAM_HEAD, ByteServer, Step, chunk


def crlf(body: bytes) -> bytes:
    return body.replace(b"\n", b"\r\n")


def two_data_lines(body: bytes) -> bytes:
    return body.replace(b'"choices": [', b'\ndata: "choices": [')


@pytest.mark.parametrize(
    "pieces",
    [
        WHOLE,
        [crlf(each) for each in WHOLE],
        [part for each in WHOLE for part in (crlf(each)[:-1], b"\n")],
        [each.replace(b"\n", b"\r") for each in WHOLE],
        [each.replace(b"data: ", b"data:") for each in WHOLE],
        [two_data_lines(each) for each in WHOLE],
        [b"".join(WHOLE)],
        [b"".join(WHOLE)[at : at + 7] for at in range(0, len(b"".join(WHOLE)), 7)],
    ],
    ids=["plain", "crlf", "cut in crlf", "cr", "no blank", "two data lines", "one piece", "pieces of 7"],
)
def test_a01_line_ends_and_cuts(engine: str, pieces: list[bytes]) -> None:
    assert_five_tokens(streamed(*pieces, engine=engine))


def test_a02_characters_cut_in_two_are_fine_and_invalid_bytes_are_a_failure(engine: str) -> None:
    body = b"".join(
        [event(content="中"), event(content="😀"), event(content="a\u2028b"), event(finish="stop")]
    )
    wide = [at for at in range(len(body)) if body[at] & 0xC0 == 0x80]
    assert wide
    script = [[STREAM_HEAD, chunk(body[:cut]), 0.002, chunk(body[cut:]), LAST_CHUNK] for cut in wide]
    with ByteServer(lambda connection, request: script[connection]) as server:
        for _ in wide:
            finished = ask(server, engine=engine)
            assert (finished.record.outcome, finished.record.output_events) == ("succeeded", 3)
    broken = streamed(body[:60].replace("中".encode(), b"\xff") + body[60:], engine=engine)
    assert (broken.record.outcome, broken.record.failure_class) == ("failed", "malformed_stream")


def test_a03_several_events_in_one_read(engine: str) -> None:
    pairs = [chunk(event(content="a") + event(content="b")) for _ in range(6)]
    steps: list[Step] = [STREAM_HEAD]
    for pair in pairs:
        steps += [0.1, pair]
    record = answered(
        [*steps, chunk(event(finish="stop") + usage_event(12) + DONE), LAST_CHUNK], engine=engine
    ).record
    assert (record.gap_count, record.gap_zeros, record.output_tokens) == (11, 6, 12)
    assert 0.45 / 11 < (record.tpot_s or 0.0) < 1.5 / 11  # the server may be late, not early
    assert record.gap_p50_s is not None
    assert record.gap_p50_s < 0.0001


@pytest.mark.parametrize(("coding", "bits"), [("gzip", 31), ("deflate", 15)])
@pytest.mark.parametrize("flush_each", [True, False])
def test_a04_compressed_streams(engine: str, coding: str, bits: int, flush_each: bool) -> None:
    packer = zlib.compressobj(wbits=bits)
    head = STREAM_HEAD.replace(
        b"transfer", b"content-encoding: %s\r\nvia: 1.1 proxy\r\ntransfer" % coding.encode()
    )
    steps: list[Step] = [head]
    for number in range(20):
        packed = packer.compress(event(content=f"t{number}")) + (
            packer.flush(zlib.Z_SYNC_FLUSH) if flush_each else b""
        )
        steps += [0.01, *([chunk(packed)] if packed else [])]
    rest = packer.compress(event(finish="stop") + usage_event(20) + DONE) + packer.flush()
    finished = answered([*steps, chunk(rest), LAST_CHUNK], engine=engine)
    record = finished.record
    assert (record.outcome, record.output_tokens, record.output_events) == ("succeeded", 20, 20)
    assert finished.answer_headers["via"] == "1.1 proxy"
    assert record.ttft_s is not None
    assert record.e2e_s is not None
    assert (record.ttft_s > 0.9 * record.e2e_s) is not flush_each


def test_a04_a_coding_nobody_asked_for_and_one_that_is_broken(engine: str) -> None:
    for coding, body in ((b"br", b"whatever"), (b"gzip", b"this is no gzip")):
        head = STREAM_HEAD.replace(b"transfer", b"content-encoding: %s\r\ntransfer" % coding)
        record = answered([head, chunk(body), LAST_CHUNK], engine=engine).record
        assert (record.outcome, record.failure_class) == ("failed", "malformed_stream")


def test_a05_keep_alives_are_no_tokens_and_noise_is_counted(engine: str) -> None:
    noise = [b": keep-alive\n\n", b"event: ping\n\n", b"data:\n\n", b"data: : PROCESSING\n\n"]
    steps: list[Step] = [STREAM_HEAD, *map(chunk, noise), 0.2, *map(chunk, WHOLE), LAST_CHUNK]
    finished = answered(steps, engine=engine)
    assert_five_tokens(finished)
    assert finished.malformed_events == 1
    assert finished.record.ttft_s is not None
    assert finished.record.ttft_s > 0.15
    assert finished.record.first_byte_at_s is not None
    assert finished.record.first_byte_at_s < 0.15
