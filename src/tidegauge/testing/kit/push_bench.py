"""What a source that pushes is checked on: the source, a log of its own, and the hands that the laws need there.

Two members are needed, `source` and `add`. Every other hand has a protocol of its own; those with the names of
`kit.source_bench` mean the same here.

    member      what the laws do with it
    source      check it
    add         let the log grow, and compare the records that come
    spoil       append a record that cannot be decoded
    cut         cut the connections that there are
    lose        delete the oldest record, though upstream was not told that it is durable
    restore     take away all records from a frontier on, as an older backup does
    recreate    put another log in the place of this one
    finish      let upstream say that nothing will come any more
    secrets     look for them in all that the source shows
    close       tidy up after each law
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from tidegauge.remap.frontier import Frontier
from tidegauge.sources.push.protocol import PushSource

__all__ = ["Cuts", "PushBench", "PushedRecord", "Restores"]


class PushedRecord(NamedTuple):
    """A record of the log: its stream, its place, and the row that it is to be decoded to."""

    stream: str
    partition: str
    position: int
    row: Mapping[str, Any]


@runtime_checkable
class PushBench(Protocol):
    """A source on a log of its own, which is empty at first."""

    @property
    def source(self) -> PushSource:
        """The source that is checked."""
        ...

    def add(self, count: int) -> Sequence[PushedRecord]:
        """Append that many records, and return them in the order of each partition."""
        ...


@runtime_checkable
class Cuts(Protocol):
    """A bench whose connections can be cut."""

    def cut(self) -> None:
        """Cut the connections that there are."""
        ...


@runtime_checkable
class Restores(Protocol):
    """A bench whose log can be an older one again."""

    def restore(self, end: Frontier) -> None:
        """Take away all records from `end` on, under the same identity."""
        ...
