"""`WrittenFile`: the lines that writers write to one file, wherever that is by now.

A log is rotated: it goes on under another name, or in a copy, and later lines under its old name are another file.
So a file here is its content, in any number of inodes, and a name is its present place.

Invariant: a byte that was written stays what it is, and where it is; a torn line may be taken back.

>>> file = WrittenFile(shard=0, path="/landing/a.jsonl")
>>> file.add([b'{"id": 1}\\n', b'{"id": 2}\\n'])
>>> file.write(14), file.complete, file.lines(0, 10)
(b'{"id": 1}\\n{"id', 10, (0, 1))
>>> file.write(), file.complete, file.lines(10, 20)
(b'": 2}\\n', 20, (1, 2))
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from tidegauge.sources.file.identity import digested

__all__ = ["BAD", "Harm", "HarmKind", "WrittenFile"]

HarmKind: TypeAlias = Literal["hidden", "saved", "torn", "cut", "gone"]


BAD: Final = -1
"""In place of a row's number: of a line that cannot be decoded."""


@dataclass(slots=True, eq=False)
class WrittenFile:
    """A file of lines. shard: gives it rows of its own. path: its present name. rotated: the one that it gets next.

    data: its bytes so far. rest: the bytes of a torn line that are to come. ends: where its lines end, also the
    torn one. numbers: which of the `made` rows of its shard they are. inodes: where it is, or was. partition: what a
    flow knows it as. most: how many bytes it had at most. torn: whether it ever had a torn line. gone: whether it is
    nowhere any more. due: how much of it has to arrive; None for all of its lines.
    """

    shard: int
    path: str
    rotated: str = ""
    data: bytearray = field(default_factory=bytearray)
    rest: bytes = b""
    ends: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    made: int = 0
    inodes: set[int] = field(default_factory=set)
    partition: str | None = None
    most: int = 0
    torn: bool = False
    gone: bool = False
    due: int | None = None

    def add(self, lines: Sequence[bytes], *, bad: bool = False) -> None:
        """Give it lines to be written: the next rows of its shard, or such as cannot be decoded."""
        for line in lines:
            self.numbers.append(BAD if bad else self.made)
            self.made += not bad
            self.ends.append((self.ends[-1] if self.ends else 0) + len(line))
        self.rest += b"".join(lines)

    def write(self, size: int | None = None) -> bytes:
        """Return the bytes that are written now: this many, or all that are left."""
        found, self.rest = self.rest[:size], b"" if size is None else self.rest[size:]
        self.data += found
        self.most = max(self.most, len(self.data))
        self.torn = self.torn or bool(self.rest)
        return found

    def take_back(self) -> int:
        """Give up a torn line, and return how long the file is without it."""
        end = self.complete
        self.ends = [at for at in self.ends if at <= end]
        del self.numbers[len(self.ends) :]
        del self.data[end:]
        self.rest = b""
        return end

    @property
    def complete(self) -> int:
        """The end of the complete lines."""
        return self.upto(len(self.data))

    def upto(self, position: int) -> int:
        """Return the end of the lines that are complete before a position."""
        number = bisect_right(self.ends, position)
        return self.ends[number - 1] if number else 0

    def lines(self, lower: int, upper: int) -> tuple[int, int]:
        """Return the numbers of the lines that are complete between two positions; the first is the end of one."""
        first, last = (bisect_right(self.ends, position) for position in (lower, upper))
        return first, last

    def fits(self, details: Mapping[str, Any]) -> bool:
        """Whether it is the file of a binding's details: by its inode, and by how it begins, if that is known."""
        head = int(details["head"])
        begins = not head or digested(bytes(self.data[:head])) == details["digest"]
        return begins and details["ino"] in (0, *self.inodes)


@dataclass(slots=True, eq=False)
class Harm:
    """What somebody did to a file, so that lines of it may be lost.

    partition: what the flow knew it as. size: how many bytes it had. inode: where it was to go on, 0 for a new one.
    held: how many of its bytes every table held. seen: how many the store knew of.
    """

    file: WrittenFile
    how: HarmKind
    partition: str | None
    size: int
    inode: int = 0
    held: int = 0
    seen: int = 0
