"""`WrittenFile`: the lines that writers write to one file, wherever that is by now.

A log is rotated: it goes on under another name, or in a copy, and later lines under its old name are another file.
So a file here is its content, in any number of inodes, and a name is its present place.

Invariant: a byte that was written stays what it is, and where it is.

>>> file = WrittenFile(shard=0, path="/landing/a.jsonl")
>>> file.add([b'{"id": 1}\\n', b'{"id": 2}\\n'])
>>> file.write(14), file.complete, file.lines(0, 10)
(b'{"id": 1}\\n{"id', 10, (0, 1))
>>> file.write(), file.complete, file.lines(10, 20)
(b'": 2}\\n', 20, (1, 2))
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegauge.sources.file.identity import digested

__all__ = ["WrittenFile"]


@dataclass(slots=True, eq=False)
class WrittenFile:
    """A file of lines. shard: gives it rows of its own. path: its present name.

    data: its bytes so far. rest: the bytes of a torn line that are to come. ends: where its lines end, also the
    torn one. inodes: where it is, or was. partition: what a flow knows it as.
    """

    shard: int
    path: str
    data: bytearray = field(default_factory=bytearray)
    rest: bytes = b""
    ends: list[int] = field(default_factory=list)
    inodes: set[int] = field(default_factory=set)
    partition: str | None = None

    def add(self, lines: Sequence[bytes]) -> None:
        """Give it lines to be written."""
        for line in lines:
            self.ends.append((self.ends[-1] if self.ends else 0) + len(line))
        self.rest += b"".join(lines)

    def write(self, size: int | None = None) -> bytes:
        """Return the bytes that are written now: this many, or all that are left."""
        found, self.rest = self.rest[:size], b"" if size is None else self.rest[size:]
        self.data += found
        return found

    @property
    def complete(self) -> int:
        """The end of the complete lines."""
        number = bisect_right(self.ends, len(self.data))
        return self.ends[number - 1] if number else 0

    def lines(self, lower: int, upper: int) -> tuple[int, int]:
        """Return the numbers of the lines between two ends."""
        first, last = (bisect_left(self.ends, position) + (position > 0) for position in (lower, upper))
        return first, last

    def fits(self, details: Mapping[str, Any]) -> bool:
        """Whether it is the file of a binding's details: by its inode, and by how it begins."""
        head = int(details["head"])
        return details["ino"] in (0, *self.inodes) and digested(bytes(self.data[:head])) == details["digest"]
