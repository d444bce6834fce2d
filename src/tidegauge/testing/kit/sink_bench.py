"""What a sink is checked on: the sink, a place of its own, and the hands that the laws need there.

Two members are needed, `sink` and `rows`. Every other hand has a protocol of its own.

>>> class Bench:
...     def __init__(self, sink): self.sink = sink
...     def rows(self): return []
>>> isinstance(Bench(None), SinkBench), isinstance(Bench(None), Removes)
(True, False)

    member      what the laws do with it
    sink        check it
    rows        compare the rows that a reader sees
    layouts     write the same rows, with each of them on a place of its own
    remove      remove the place, as somebody might who knows nothing of Tidegauge
    ways        reach the same place by other ways; `elsewhere` is another place
    secrets     look for them in all that the sink shows
    close       tidy up after each law

The kit writes rows of three columns (`ROWS`). With them it works on real files, tables and servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, runtime_checkable

import pyarrow as pa

from tidegauge.sinks.protocol import Sink
from tidegauge.testing.kit.rows import Row

__all__ = ["ROWS", "LaidOut", "Placeable", "Removes", "SinkBench"]

ROWS: Final = pa.schema([("user", pa.string()), ("amount", pa.float64()), ("_epoch", pa.int64())])
"""The columns that the kit writes."""


@runtime_checkable
class SinkBench(Protocol):
    """A sink on a place of its own, where there is nothing yet."""

    @property
    def sink(self) -> Sink:
        """The sink that is checked."""
        ...

    def rows(self) -> Sequence[Row]:
        """Return the rows that a reader sees who knows nothing of Tidegauge, in any order.

        None while there is no table. The kit wrote the columns `user`, `amount` and `_epoch`; it compares those that
        the first row has, and `_epoch` should be one of them. Where rows take on a column, `note`, rows have it too.
        """
        ...


@runtime_checkable
class Removes(Protocol):
    """A bench whose place can be removed."""

    def remove(self) -> None:
        """Remove it, as somebody might who knows nothing of Tidegauge."""
        ...


@runtime_checkable
class LaidOut(Protocol):
    """A bench whose sink writes files that rows may lie in otherwise."""

    def layouts(self) -> Sequence[Sink]:
        """Return sinks to the same place with other layouts: parted, sorted, in small files. One is used at most."""
        ...


@runtime_checkable
class Placeable(Protocol):
    """A bench that knows the place by several ways."""

    def ways(self) -> Sequence[Sink]:
        """Return sinks to the same place that were configured otherwise, such as by a symbolic link."""
        ...

    def elsewhere(self) -> Sink:
        """Return a sink to another place."""
        ...
