r"""One Avro message is read by itself: slowly, and with a word on its fault.

Invariant: what `vectors` reads, this reads with the same values. It accepts more in one case only: of equal keys of a
map, the last counts.

>>> from tidegauge.sources.formats.avro.schema import node_of
>>> value(node_of("string"), b"\x06abc")
'abc'
>>> value(node_of("string"), b"\x08abc")
Traceback (most recent call last):
tidegauge.sources.formats.gather.Refused: a length of 4 where there are 3 bytes
"""

from __future__ import annotations

import struct
from typing import Any

from tidegauge.sources.formats.avro.schema import SchemaNode
from tidegauge.sources.formats.gather import Refused

__all__ = ["value"]


def value(node: SchemaNode, message: bytes) -> Any:
    """Return the value of a message as `pa.array` takes it for `node.wire`. Raises `Refused`."""
    reader = _MessageReader(message)
    found = reader.read(node)
    if reader.at < len(message):
        raise Refused(f"{len(message) - reader.at} bytes after the end of the value")
    return found


class _MessageReader:
    def __init__(self, message: bytes) -> None:
        self.message, self.at = message, 0

    def read(self, node: SchemaNode) -> Any:
        match node.kind:
            case "null":
                return None
            case "boolean":
                found = self.take(1)[0]
                if found > 1:
                    raise Refused(f"a boolean of {found}")
                return found == 1
            case "int" | "long":
                return self.number(32 if node.kind == "int" else 64)
            case "float":
                return struct.unpack("<f", self.take(4))[0]
            case "double":
                return struct.unpack("<d", self.take(8))[0]
            case "fixed":
                return self.take(node.size)
            case "bytes":
                return self.take(self.number(64))
            case "string":
                return self.text()
            case "enum":
                return node.names[self.index(len(node.names), "symbol")]
            case "union":
                branch = self.index(2 if node.null >= 0 else 1, "branch")
                return None if branch == node.null else self.read(node.inner[0])
            case "record":
                return {name: self.read(field) for name, field in zip(node.names, node.inner, strict=True)}
            case "map":
                return list({self.text(): self.read(node.inner[0]) for _ in self.items()}.items())
        return [self.read(node.inner[0]) for _ in self.items()]

    def take(self, size: int) -> bytes:
        there = len(self.message) - self.at
        if not 0 <= size <= there:
            raise Refused(f"a length of {size} where there are {there} bytes")
        self.at += size
        return self.message[self.at - size : self.at]

    def number(self, bits: int) -> int:
        found = shift = 0
        while True:
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift > 63:
                raise Refused("a number of more than ten bytes")
        found = (found >> 1) ^ -(found & 1)
        if not -(1 << (bits - 1)) <= found < 1 << (bits - 1):
            raise Refused(f"a number that has no {bits} bits")
        return found

    def index(self, count: int, what: str) -> int:
        found = self.number(64)
        if not 0 <= found < count:
            raise Refused(f"{what} {found} where there are {count}")
        return found

    def text(self) -> str:
        try:
            return self.take(self.number(64)).decode()
        except UnicodeDecodeError:
            raise Refused("a text that is not valid UTF-8") from None

    def items(self) -> Any:
        """Yield once for each item; the caller's loop reads it."""
        while count := self.number(64):
            if count < 0:
                count = -count
                self.number(64)
            if count > len(self.message) - self.at:
                raise Refused(f"{count} items where there are {len(self.message) - self.at} bytes")
            yield from range(count)
