"""Mending a table: what of it is not as its output has written it, and replacing whole epochs of it.

By law 1 the rows of an epoch are a function of its bindings. So whatever is left of epochs that others have damaged
is removed from the table, and the epochs are put in again from a second reading.

Invariant: a range holds every epoch from its start to before its stop; ranges that are joined are in order, and lie
apart from each other.

>>> joined([range(5, 7), range(0, 2), range(1, 4), range(4, 5), range(9, 9)])
(range(0, 7),)
>>> within(range(5, 7), joined([range(0, 8)])), apart(range(5, 7), joined([range(0, 5), range(7, 8)]))
(True, True)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from tidegauge.errors.sinks import BrokenChain, DamagedManifest, FilesChangedByOthers, TableChangedByOthers
from tidegauge.remap.history import History, Link
from tidegauge.sinks.protocol import Applying, OutputId, Sink, StagedFile

__all__ = [
    "REPAIRABLE",
    "HistoryOf",
    "Mendable",
    "Mending",
    "Ranges",
    "TableDamage",
    "apart",
    "joined",
    "mendable",
    "within",
]

REPAIRABLE: Final = (TableChangedByOthers, FilesChangedByOthers, BrokenChain, DamagedManifest)
"""How a table is refused that others have damaged."""

Ranges: TypeAlias = tuple[range, ...]
"""Epochs: ranges that are joined."""


def joined(ranges: Iterable[range]) -> Ranges:
    """Return the epochs of all the ranges."""
    found = list[range]()
    for one in sorted((one for one in ranges if one), key=lambda one: one.start):
        if found and one.start <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, one.stop))
        else:
            found.append(one)
    return tuple(found)


def within(epochs: range, ranges: Ranges) -> bool:
    """Whether all of the epochs are in the ranges."""
    return any(one.start <= epochs.start and epochs.stop <= one.stop for one in ranges)


def apart(epochs: range, ranges: Ranges) -> bool:
    """Whether none of the epochs is in the ranges."""
    return all(epochs.stop <= one.start or one.stop <= epochs.start for one in ranges)


@dataclass(frozen=True, slots=True)
class TableDamage:
    """What of a table is not as its output has written it: files that it lacks, and files that are of others.

    Each with the operation. epochs: those with rows that are gone, or may be. unknown: the missing files whose epochs
    nothing records any more.
    """

    missing: Mapping[str, str] = field(default_factory=dict)
    foreign: Mapping[str, str] = field(default_factory=dict)
    epochs: Ranges = ()
    unknown: tuple[str, ...] = ()


class HistoryOf(Protocol):
    """Tells the history of the epochs `[lower, upper)`."""

    def __call__(self, lower: int, upper: int) -> History: ...  # noqa: D102


class Mending(Protocol):
    """The present table, believed or not.

    Between `damage` and `replace` nobody else commits, or nothing is changed.
    """

    @property
    def upper(self) -> int:
        """The first epoch that the table does not hold, by its last commit."""
        ...

    @property
    def digest(self) -> str | None:
        """The digest of the flow's history up to the upper, as `Table.digest`."""
        ...

    @property
    def schema(self) -> pa.Schema | None:
        """Its columns, None where they are not known."""
        ...

    def links(self) -> list[Link]:
        """Return the links of the flow's history that the table still has, as `Table.links`."""
        ...

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove staged files that will not be committed."""
        ...

    @property
    def damage(self) -> TableDamage:
        """Its faults."""
        ...

    def whole(self, epochs: Ranges) -> Ranges:
        """Return the epochs that are replaced when these are: a table may know of whole commits only."""
        ...

    def replace(
        self,
        epochs: Ranges,
        upper: int,
        schema: pa.Schema,
        files: Sequence[StagedFile],
        *,
        write: str,
        told: HistoryOf,
    ) -> None:
        """Take the rows of these epochs out, and the files of others, and put `files` in.

        The table then holds the epochs before `upper`, all of them as the history has them that `told` tells. Each
        file is of one of the ranges, which are `whole`. `write` names the attempt.

        Raises what `Table.commit` raises, and `TableBusy` when somebody else has committed since.
        """
        ...


@runtime_checkable
class Mendable(Protocol):
    """A `Sink` whose tables can be mended."""

    def mend(self, output: OutputId) -> Mending:
        """Return the present table, whatever others have done to it, to be mended; with the flow's lease.

        Raises `TableOfAnotherIncarnation`, and `ForeignTable` for a table that is not this output's.
        """
        ...


def mendable(sink: Sink) -> Mendable | None:
    """Return a sink as one whose tables can be mended, None if they cannot be.

    What a sink made of operations is not of single epochs: a row of one takes the place of an earlier one's.
    """
    return sink if isinstance(sink, Mendable) and not (isinstance(sink, Applying) and sink.applies) else None
