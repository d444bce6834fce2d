"""The upkeep of a table: its small files are packed, what nothing names any more goes, and readers find its end fast.

    plan      which files are worth packing together (`packing`)
    pack      their rows go into new files, and one commit lets these change places with the old ones
    remnants  files that no version within the table's retention names
    clear     they are removed
    shorten   the table's log is made short to read

Invariant: nobody sees other rows than before, at any epoch that the table could be read as of. Upkeep needs no lease:
a pack is committed only if its files are all there still, and nobody else has to expect it. So it may run beside the
flow's driver, beside itself, and be killed: then it leaves files that nothing names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from tidegauge.sinks.protocol import OutputId, StagedFile

__all__ = ["Maintainable", "Pack", "Remnant", "Upkeep"]


@dataclass(frozen=True, slots=True)
class Pack:
    """Files to be packed together, in the table's order. how: what the table wants to know of it again."""

    files: tuple[StagedFile, ...]
    how: Any = None

    @property
    def rows(self) -> int:
        """How many rows they have."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """How large they are."""
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class Remnant:
    """A file that nothing names. staged: whether it was never committed, so that a driver may still mean to."""

    path: str
    bytes: int
    staged: bool = False


class Upkeep(Protocol):
    """The present table, to be kept in shape. Of one thread at a time."""

    def files(self) -> Sequence[StagedFile]:
        """Return its present files, in its order. Raises what `Table.files` raises."""
        ...

    def plan(self) -> list[Pack]:
        """Return the packs that are worth their work now. Raises what `Table.files` raises.

        Raises `PartitionedOtherwise` and `KeptOtherwise` for a table that is not kept as the sink has it.
        """
        ...

    def stage(self, pack: Pack, *, job: str) -> list[StagedFile]:
        """Write the rows of a pack into new files. `job` is 32 hex digits. Raises `CannotPack`."""
        ...

    def commit(self, pack: Pack, files: Sequence[StagedFile], *, write: str) -> str | None:
        """Let the new files take the places of the old ones; return the table's version that does.

        None, and nothing is changed, where the table does not hold all of the old ones any more. Raises what
        `Table.commit` raises.
        """
        ...

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove staged files that will not be committed."""
        ...

    def remnants(self, retention: timedelta | None) -> list[Remnant]:
        """Return files that no version of the last while names, None for as long as the table itself says."""
        ...

    def clear(self, remnants: Sequence[Remnant]) -> None:
        """Remove remnants, but for those that the table names by now."""
        ...

    def shorten(self) -> str | None:
        """Make the log short to read; return for which version, None where it is already."""
        ...

    def end(self) -> None:
        """Wait for what it does beside the commits."""
        ...


@runtime_checkable
class Maintainable(Protocol):
    """A `Sink` whose tables can be kept in shape beside their driver."""

    def maintain(self, output: OutputId) -> Upkeep:
        """Return the present table. Raises as `Sink.open`."""
        ...
