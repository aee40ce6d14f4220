"""Compressed bodies, piece by piece: gzip in one member or many, deflate with its wrapping or bare.

Servers are asked not to compress (`Accept-Encoding: identity`); gateways do it all the same. A gateway that
compresses each event by itself sends many gzip members in a row; "deflate" means the zlib format, and some
send the bare stream (RFC 9110, 8.4.1.2).
"""

from __future__ import annotations

import zlib

CODINGS = frozenset({"gzip", "x-gzip", "deflate"})
"""The content codings that can be read, by lower-case name."""

_ZLIB_OR_GZIP, _BARE = 47, -15
_GZIP_MAGIC = b"\x1f\x8b"


class Inflate:
    """Takes compressed pieces, gives plain ones. `decompress` raises zlib.error for what it cannot read."""

    def __init__(self, coding: str) -> None:
        self._bare_may_come = coding == "deflate"
        self._begun = b""
        self._stream = zlib.decompressobj(_ZLIB_OR_GZIP)

    def decompress(self, piece: bytes) -> bytes:
        """The plain bytes that `piece` completes."""
        try:
            plain = self._stream.decompress(piece)
        except zlib.error:
            if not self._bare_may_come:
                raise
            self._stream = zlib.decompressobj(_BARE)
            plain = self._stream.decompress(self._begun + piece)
        if self._bare_may_come:  # a wrapping shows in the first two bytes
            self._begun += piece[:2]
            self._bare_may_come = len(self._begun) < 2
        while self._stream.eof and self._stream.unused_data.startswith(_GZIP_MAGIC):
            following = self._stream.unused_data
            self._stream = zlib.decompressobj(_ZLIB_OR_GZIP)
            plain += self._stream.decompress(following)
        return plain
