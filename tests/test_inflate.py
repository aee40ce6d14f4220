"""Compressed bodies under every cut: one gzip member, many, wrapped and bare deflate."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.inflate import CODINGS, Inflate

TEXT = b"data: one\n\ndata: two\n\ndata: [DONE]\n\n"


def bare(text: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(text) + packer.flush()


BODIES = {
    "gzip": ("gzip", gzip.compress(TEXT)),
    "a member each event": (
        "gzip",
        b"".join(gzip.compress(part) for part in (TEXT[:11], TEXT[11:22], TEXT[22:])),
    ),
    "gzip and padding": ("x-gzip", gzip.compress(TEXT) + b"\0" * 8),
    "deflate": ("deflate", zlib.compress(TEXT)),
    "bare deflate": ("deflate", bare(TEXT)),
    "gzip under the other name": ("deflate", gzip.compress(TEXT)),
}


@pytest.mark.parametrize("name", BODIES)
def test_every_two_cuts_of_a_compressed_body_give_the_text(name: str) -> None:
    coding, body = BODIES[name]
    assert coding in CODINGS
    for first in range(len(body)):
        for second in range(first, len(body)):
            inflate = Inflate(coding)
            pieces = (body[:first], body[first:second], body[second:])
            assert b"".join(map(inflate.decompress, pieces)) == TEXT, (first, second)


@given(st.sampled_from(sorted(CODINGS)), st.lists(st.binary(max_size=30), max_size=4))
def test_what_is_no_compressed_body_raises_one_kind_of_error(coding: str, pieces: list[bytes]) -> None:
    inflate = Inflate(coding)
    try:
        for piece in pieces:
            assert isinstance(inflate.decompress(piece), bytes)
    except zlib.error:
        return


def test_what_is_wrapped_and_broken_is_not_taken_for_bare() -> None:
    broken = zlib.compress(TEXT)[:-4] + b"\0\0\0\0"
    with pytest.raises(zlib.error):
        Inflate("deflate").decompress(broken)
    inflate = Inflate("deflate")
    inflate.decompress(broken[:20])
    with pytest.raises(zlib.error):
        inflate.decompress(broken[20:])
    with pytest.raises(zlib.error):
        Inflate("gzip").decompress(b"this is no gzip")
