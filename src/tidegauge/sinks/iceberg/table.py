"""The driver's side of a table of Iceberg. A commit is one of its catalog's, with the files and the upper:

    look at the table           as its catalog has it now (`look`)
    compare                     owner, upper, history, columns, and what others did (`standing`, `gaining`)
    a snapshot with the files   for epochs without rows too: else a catalog would not see that somebody was first
    columns                     those that rows have and the table lacks, if it is to take them on
    properties                  the upper, and what goes with it
    commit                      if the table's current snapshot is still the one that was looked at (`change`)

Invariant (compare-and-append): the catalog compares the snapshot, and each commit of ours makes one, so of two
drivers that looked at one upper one commits and the other looks again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pyarrow as pa

from tidegauge.errors.columns import ColumnsRefused
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.sinks import (
    FileNotHeld,
    KeptOtherwise,
    TableBusy,
    TableUpperMismatch,
)
from tidegauge.evolution import Evolution, kinds, listed, wider
from tidegauge.remap.history import NO_HISTORY, History, Link
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.commits import all_staged, check_span, expect, staged_status, still_to_do
from tidegauge.sinks.evolving import gained, grown
from tidegauge.sinks.iceberg.asof import snapshot_as_of, snapshot_of
from tidegauge.sinks.iceberg.catalog import CatalogPlace
from tidegauge.sinks.iceberg.change import TableChange, made
from tidegauge.sinks.iceberg.columns import check_fit, columns_of
from tidegauge.sinks.iceberg.fields import check_paths, widened
from tidegauge.sinks.iceberg.files import full_path, live, live_entries, paths_in, relative
from tidegauge.sinks.iceberg.gaining import check_unaltered
from tidegauge.sinks.iceberg.links import keep_links, kept_links
from tidegauge.sinks.iceberg.look import IcebergLook, looked
from tidegauge.sinks.iceberg.partitions import check_parted, partitions_in
from tidegauge.sinks.iceberg.staging import DATA, HIDDEN
from tidegauge.sinks.iceberg.standing import key_text
from tidegauge.sinks.layout.counting import TablePartitions
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.layout.values import PartitionValues
from tidegauge.sinks.location import at, gone, inside, staging
from tidegauge.sinks.protocol import OutputId, StagedFile, Volume

if TYPE_CHECKING:
    from tidegauge.sinks.replacement import TableReplacement

__all__ = ["ATTEMPTS", "IcebergTable", "discard"]

ATTEMPTS: Final = 20
_LATEST: Final = 50
"""Snapshots that are looked through before a staged file is removed."""


class IcebergTable:
    """A `Table`: the one at `place`, as the output `output` sees it.

    lying: how rows lie in its files. key: the columns of whose values it is to have one row; none, to have all.
    """

    def __init__(
        self, place: CatalogPlace, output: OutputId, lying: FileLayout = HIDDEN, key: Sequence[str] = ()
    ) -> None:
        self._place: Final = place
        self._key: Final = tuple(key)
        self._lying: Final = lying
        self._fixed: Final = {*self._key, *(one.column for one in lying.partition)}
        self._output: Final = output
        self._folder: Final = place.folder
        self._partitions: Final = TablePartitions(lying, str(place.name), str(output))
        self._how: Evolution = "strict"
        self._held = self._look()
        self._edition: Final = self._held.standing.edition

    @property
    def upper(self) -> int:
        """The first epoch that the table does not hold, by the last commit seen of it."""
        return self._held.standing.upper

    @property
    def digest(self) -> str | None:
        """The digest of the flow's history up to the upper."""
        return self._held.standing.digest

    @property
    def edition(self) -> str:
        """The edition that its rows had when it was opened, "" for the first one."""
        return self._edition

    @property
    def made(self) -> str:
        """The table's UUID."""
        return "" if self._held.table is None else str(self._held.table.metadata.table_uuid)

    @property
    def look(self) -> IcebergLook:
        """The table as it was when it was last looked at."""
        return self._held

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of the table, None where there is none."""
        return None if self._held.table is None else columns_of(self._held.table.schema())

    def evolve(self, how: Evolution) -> None:
        """Take rows of other columns in this way from now on."""
        self._how = how

    def lacking(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns that a commit of rows with this schema would add; raise what it would raise of them."""
        self._held = self._look()
        if (held := self.schema) is None:
            return ()
        return gained(held, self.taking(widened(rows_schema(schema))))

    def taking(self, columns: pa.Schema) -> pa.Schema:
        """Return the columns of the table, as it was looked at, once it has rows with these.

        Raises `IcebergTableUnfit`, `PartitionedOtherwise`, `IcebergColumnsAltered`, and as `grown`.
        """
        if self._held.table is None:
            return columns
        check_fit(self._held.table)
        check_unaltered(self._held, self._output, columns)
        check_parted(self._held.table, self._output, self._lying)
        held, name = columns_of(self._held.table.schema()), str(self._place.name)
        about: dict[str, Any] = {"place": name, "output": str(self._output), "widens": wider, "nests": True}
        after = grown(held, columns, self._how, **about)
        fixed = [one for one in held if one.name in self._fixed and after.field(one.name).type != one.type]
        if fixed:
            detail = f"{fixed[0].name!r} is of the key or of the partitions, whose types never change"
            said = {"held": listed(kinds(held)), "given": listed(kinds(columns)), "how": self._how}
            raise ColumnsRefused(table=name, output=str(self._output), detail=detail, **said)
        check_paths(after)
        return after

    def replacement(self, edition: str) -> TableReplacement:
        """Return a table that holds nothing, until its first commit takes this one's place."""
        from tidegauge.sinks.iceberg.replacement import IcebergSwap
        from tidegauge.sinks.replacement import TableReplacement

        seen = self.upper, self.edition
        return TableReplacement(self, IcebergSwap(self._place, self._output, self._lying, seen, edition))

    def withdraw(self, edition: str) -> None:
        """Give the rows that are there another edition, so that no replacement which was begun takes their place."""
        from tidegauge.sinks.iceberg.replacement import withdraw

        withdraw(self._place, self._output, seen=(self.upper, self.edition), edition=edition)

    def commit(
        self,
        lower: int,
        upper: int,
        schema: pa.Schema,
        files: Sequence[StagedFile],
        *,
        remove: Sequence[StagedFile] = (),
        write: str,
        history: History = NO_HISTORY,
        changes: tuple[int, int] | None = None,
    ) -> None:
        """Append `files` as the epochs `[lower, upper)`, or raise and change nothing; see `Table.commit`.

        changes: the first and the last epoch of changes by key that the files have, if there are any.

        Also raises `KeptOtherwise`, `StagedFileMissing`, `IcebergTableChanged`, `IcebergTableElsewhere`,
        `IcebergRowsDeleted`, `PartitionsTooSmall`, what a catalog raises, and as `taking`.
        """
        check_span(lower, upper, files, remove=remove, partition=self._lying.names)
        columns = widened(rows_schema(schema))
        for _ in range(ATTEMPTS):
            if not self.awaits(lower, upper, write=write, history=history):
                return  # its answer was lost
            look = self._held
            if look.table is None and not remove:
                self._place.create(columns, self._lying)  # and look at what is there now
                continue
            if remove and not self._takes_out(look, files, remove, rows=lower < upper):
                return
            after = self.taking(columns)
            if lower < upper:
                self._check_partitions(look, files, remove)
            for file in files:
                staged_status(self._folder, file)
            keep_links(self._folder, history, lower=lower, upper=upper, write=write)
            digest = history.digest or (look.standing.digest or "" if lower == upper else "")
            told = {"upper": str(upper), "digest": digest}
            rows = {"changed": str(upper - 1)} if remove and lower < upper else {}
            spans = {}
            if changes is not None:
                rows, spans = {"changed": str(changes[1])}, {"changes": "{}-{}".format(*changes)}
            first = lower if remove else min((file.first_epoch for file in files), default=upper)
            if changes is not None:
                first = changes[0]
            if self._key:
                rows["key"] = key_text(self._key)
            change = TableChange(
                place=self._place,
                output=self._output,
                look=look,
                columns=columns,
                gains=after,
                lying=self._lying,
                write=write,
                files=files,
                remove=frozenset(file.path for file in remove),
                summary={"lower": str(lower), "first": str(first), "write": write, **told, **rows, **spans},
                properties={**told, **rows},
            )
            if (found := made(change)) is not None:
                self._held = found
                return
        raise TableBusy(table=str(self._place.name), attempts=ATTEMPTS)

    def awaits(self, lower: int, upper: int, *, write: str, history: History) -> bool:
        """Look at the table, and return whether a commit is still to be made; raise unless it can be."""
        self._held = look = looked(self._place, self._output)
        if lower < upper and (self.upper, look.standing.write) == (upper, write):
            return False
        self._expect(lower, history)
        return True

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove staged files. Files that some snapshot names are kept, whatever the caller believes of them."""
        discard(self._place, files)

    def keep(self, files: Sequence[StagedFile]) -> bool:
        """Say whether all files are as they were staged. Only `remove_orphan_files` removes any, after days."""
        return all_staged(self._folder, files)

    def stand(self) -> None:
        """Raise `TableUpperMismatch` where nothing is left of the table."""
        if self.upper and gone(at(self._folder) / "metadata"):
            self._mismatch(self.upper, 0)

    def end(self) -> None:
        """Let go of the catalog's connections."""
        self._place.close()

    def files(self, *, as_of: int | None = None) -> list[StagedFile]:
        """Return the data files in the order of their epochs.

        Raises `IcebergRowsDeleted`, `EpochReplaced`, and `IcebergColumnsAltered`: they are read by columns' names.
        """
        look = self._look()
        if not look.standing.is_claimed:
            return []
        check_unaltered(look, self._output, columns_of(look.table.schema()))
        with self._place.asking():
            snapshot = look.snapshot if as_of is None else snapshot_as_of(look, self._output, as_of)
            return live(look.table, snapshot, self._folder)

    def volume(self) -> Volume:
        """Return how much the table holds, by the summary of its current snapshot if that says so."""
        look = self._look()
        if not look.standing.is_claimed:
            return Volume()
        return Volume.of(self.files()) if (found := look.volume) is None else found

    def uris(self, files: Sequence[StagedFile]) -> list[str]:
        """Return absolute paths, or addresses, of the files."""
        return [full_path(file.path, self._folder) for file in files]

    def version_of(self, epoch: int) -> str | None:
        """Return the id of the snapshot that brought the epoch, None where it has expired."""
        return snapshot_of(self._look(), self._output, epoch)

    def links(self) -> list[Link]:
        """Return the links that commits brought. Raises `DamagedHistory`."""
        return kept_links(self._folder) if self._look().standing.is_claimed else []

    # -- the comparison

    def _look(self) -> IcebergLook:
        return looked(self._place, self._output)

    def _expect(self, lower: int, history: History) -> None:
        # Rows of another edition are another table: even at the same upper these do not follow them.
        if self.upper != lower or self._held.standing.edition != self._edition:
            self._mismatch(lower, self.upper)
        if self._held.standing.is_claimed and (kept := self._held.standing.key) != key_text(self._key):
            said = (kept, key_text(self._key))
            held, wanted = (f"one row for each value of {text}" if text else "all rows" for text in said)
            raise KeptOtherwise(table=str(self._place.name), output=str(self._output), held=held, wanted=wanted)
        expect(self, self._output, history, mendable=False)

    def _mismatch(self, expected: int, actual: int) -> NoReturn:
        name = str(self._place.name)
        raise TableUpperMismatch(table=name, output=str(self._output), expected=expected, actual=actual)

    def _check_partitions(self, look: IcebergLook, files: Sequence[StagedFile], remove: Sequence[StagedFile]) -> None:
        """Raise `PartitionsTooSmall` where a commit would leave too many partitions of few rows."""

        def present() -> set[PartitionValues]:
            partition_of = partitions_in(look.table, self._lying)
            with self._place.asking():
                found = {partition_of(entry) for entry in live_entries(look.table, look.snapshot)}
            return {values for values in found if values is not None}

        held = look.volume
        after = None if held is None else held + Volume.of(files) - Volume.of(remove)
        self._partitions.check(files, after, present)

    def _takes_out(
        self, look: IcebergLook, files: Sequence[StagedFile], remove: Sequence[StagedFile], *, rows: bool
    ) -> bool:
        """Return whether the commit is still to be made. rows: whether it changes any."""
        if look.table is None:
            raise FileNotHeld(table=str(self._place.name), path=remove[0].path)
        with self._place.asking():
            held = {relative(one.file_path, self._folder) for one in live_entries(look.table, look.snapshot)}
        paths = [file.path for file in files]
        return still_to_do(paths, remove, held, table=str(self._place.name), replaces=not rows)


def discard(place: CatalogPlace, files: Sequence[StagedFile]) -> None:
    """Remove staged files of a table that none of its latest snapshots names.

    They were staged since the last commit of their driver. If that was made all the same, it is among these.
    """
    for file in files:
        if not file.path.startswith(f"{DATA}/"):
            raise InvalidArgument(parameter="files", value=file.path, expected="files that were staged")
        inside(place.folder, file.path)
    if not files:
        return
    named: set[str] = set()
    if (table := place.load()) is not None:
        with place.asking():
            latest = sorted(table.metadata.snapshots, key=lambda one: one.sequence_number or 0)[-_LATEST:]
            named = paths_in(table, latest, place.folder)
    there = staging(place.folder)
    for file in files:
        if file.path not in named:
            there.remove(file.path)
