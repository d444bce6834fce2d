"""What a source is checked on: the source, an upstream of its own, and the hands that the laws need there.

Two members are needed, `source` and `add`. Every other hand has a protocol of its own: give your bench the method,
and the laws that need it are tried.

>>> class Bench:
...     def __init__(self, source): self.source = source
...     def add(self, count): return []
>>> isinstance(Bench(None), SourceBench), isinstance(Bench(None), Spoils)
(True, False)

    member      what the laws do with it
    source      check it
    add         let upstream grow, and compare the rows that are read
    spoil       append a record that cannot be decoded
    lose        take away records that are bound
    recreate    put another upstream in the place of this one
    finish      let upstream say that nothing will come any more
    leave       take upstream away, as a network does; `come_back` brings it back
    now         the time that `probe` is given, if it counts
    secrets     look for them in all that the source shows
    close       tidy up after each law
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from tidegauge.sources.protocol import Source
from tidegauge.testing.kit.rows import Row

__all__ = ["Finishes", "Leaves", "Loses", "Recreates", "SourceBench", "Spoils", "Timed", "WithSecrets"]


@runtime_checkable
class SourceBench(Protocol):
    """A source on an upstream of its own, which is empty at first."""

    @property
    def source(self) -> Source:
        """The source that is checked."""
        ...

    def add(self, count: int) -> Sequence[Row]:
        """Append that many records to upstream, and return the rows that they are to be read as, in their order.

        Rows may lack columns that are not to be compared. No two rows should be equal. A single record goes into one
        partition; of several, you choose.
        """
        ...


@runtime_checkable
class Spoils(Protocol):
    """A bench whose upstream takes records that the source cannot decode."""

    def spoil(self) -> bytes:
        """Append one, and return its raw bytes as the source is to hand them over."""
        ...


@runtime_checkable
class Loses(Protocol):
    """A bench whose upstream can lose records, as by retention."""

    def lose(self) -> None:
        """Take away one or more of the records that were added."""
        ...


@runtime_checkable
class Recreates(Protocol):
    """A bench whose upstream can be deleted and made again."""

    def recreate(self) -> None:
        """Put another upstream in its place, with as many other records. `source` may become another one, too."""
        ...


@runtime_checkable
class Finishes(Protocol):
    """A bench whose upstream can end."""

    def finish(self) -> None:
        """Let upstream say that nothing will come any more. `source` may become one that knows."""
        ...


@runtime_checkable
class Leaves(Protocol):
    """A bench whose upstream can be out of reach for a while."""

    def leave(self) -> None:
        """Take upstream out of reach, as when a network, a mount or a server is down."""
        ...

    def come_back(self) -> None:
        """Bring it back as it was."""
        ...


@runtime_checkable
class Timed(Protocol):
    """A bench whose source looks at the time."""

    @property
    def now(self) -> datetime:
        """The time at which all that was added is there to be bound."""
        ...


@runtime_checkable
class WithSecrets(Protocol):
    """A bench whose source was given secrets."""

    secrets: Sequence[str]
