"""An answer over HTTP as it comes: redirects followed without their bodies, and a body unpacked piece by piece.

The client would take in the whole body of a redirect, however large. Of a body that is packed it would give what
there is: one that was cut off would pass for a whole one, and of several members, as `cat a.gz b.gz` makes them, only
the first would be read. And it bounds each read of a connection, but not how many there are: a server that sends the
headers, or the sizes of chunks, byte by byte would hold it for ever. So all of that is done here.

Invariant: all of a body comes out, or an error. Nothing is held but a piece, and the caller gets one for each piece
that came in, empty as it may be: so it can look at its clock.

>>> packed = zlib.compress(b"one")
>>> b"".join(unpacked([packed[:5], packed[5:]], "deflate"))
b'one'
>>> b"".join(unpacked([packed[:-1]], "deflate"))
Traceback (most recent call last):
ValueError: its packed bytes are cut off
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Final

__all__ = ["PACKINGS", "AnswerDeadline", "AnswerOverdue", "TooManyRedirects", "answered", "unpacked"]

PACKINGS: Final = "gzip, deflate"
"""How a body may be packed, as `Accept-Encoding` says it."""
REDIRECTS: Final = 10
_PIECE: Final = 1 << 20
_LAYERS: Final = 2
_GZIP, _ZLIB, _BARE = 31, 15, -15


class TooManyRedirects(ValueError):
    """Redirects that lead on and on."""


class AnswerOverdue(ValueError):
    """An answer that has not come in time."""


@dataclass
class AnswerDeadline:
    """When the connections of a client are read no more. Its requests have it as their extension `trace`.

    clock: seconds that never go back. end: of that clock.
    """

    clock: Callable[[], float]
    end: float = inf

    def __call__(self, event: str, told: Mapping[str, Any]) -> None:
        """Hear of a connection, which counts as two where it becomes an encrypted one."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            stream = told["return_value"]
            stream.read = partial(self._read, stream.read)

    def _read(self, read: Callable[..., bytes], size: int, timeout: float | None = None) -> bytes:
        left = self.end - self.clock()
        if left <= 0:
            raise AnswerOverdue("its headers, or the rest of it, did not come in time")
        return read(size, timeout=left if timeout is None else min(left, timeout))


def answered(client: Any, request: Any, *, stays: Callable[[str, str], None]) -> Any:
    """Return the first answer that is no redirect, which is to be closed.

    stays: is given from where to where one leads, and raises if it must not be followed.

    Raises `TooManyRedirects`, `ValueError` for a redirect that leads to no address, and what the client raises.
    """
    for _ in range(REDIRECTS + 1):
        answer = client.send(request, stream=True, follow_redirects=False)
        if not answer.has_redirect_location:
            return answer
        answer.close()
        if (request := answer.next_request) is None:
            raise ValueError("it leads to an address that is none")
        stays(str(answer.url), str(request.url))
    raise TooManyRedirects(f"it leads on from one address to another, more than {REDIRECTS} times")


def unpacked(pieces: Iterable[bytes], packing: str) -> Iterator[bytes]:
    """Yield a body as it was before it was packed. packing: its `Content-Encoding`. Raises `ValueError`."""
    layers = [name for one in packing.split(",") if (name := one.strip().lower()) not in ("", "identity")]
    if len(layers) > _LAYERS:
        raise ValueError(f"it is packed {len(layers)} times")
    found = iter(pieces)
    for name in reversed(layers):
        if name not in ("gzip", "x-gzip", "deflate"):
            raise ValueError(f"it is packed as {name!r:.40}, for which nobody asked")
        found = _inflated(found, _ZLIB if name == "deflate" else _GZIP)
    return found


def _inflated(pieces: Iterator[bytes], form: int) -> Iterator[bytes]:
    inflate: Any = None
    ended = False
    try:
        for piece in pieces:
            yield b""
            left, full = piece, False
            while left or full:
                if inflate is None:
                    left = left.lstrip(b"\0") if ended else left  # what fills up after the end
                    if not left:
                        break
                    inflate = zlib.decompressobj(_BARE if form == _ZLIB and left[0] & 15 != 8 else form)
                data = inflate.decompress(left, _PIECE)
                yield data
                left, full = inflate.unconsumed_tail, len(data) == _PIECE
                if inflate.eof:
                    left, full, inflate, ended = inflate.unused_data, False, None, True
    except zlib.error as error:
        raise ValueError(f"its packed bytes are none: {error}") from None
    if inflate is not None:
        raise ValueError("its packed bytes are cut off")
