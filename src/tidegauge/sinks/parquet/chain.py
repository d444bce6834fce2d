"""The driver's side of a Parquet table: the chain of its commits, followed to its end, and the next one added.

Invariant (compare-and-append): the commits are a chain, each beginning where another ends, from epoch 0. A commit at
`lower` takes the name `from_epoch=<lower>` in one step (`parquet.ground`), which is refused when a commit has it
already. So of two drivers one wins, and the table's upper is the end of the chain. A commit that only replaces files
takes the same place in the chain, and the next one the same name with one more zero before the number.

A commit that takes files out names them in its manifest, so our readers see them go with the same step. Readers
that list the folder see them until they are moved to `_removed`, right after it, or at the next run if the driver
dies in between; for so long they see replaced rows twice. A swap (`parquet.edition`) takes all rows of before out,
and the chain goes on in a new edition, from epoch 0; a commit of an earlier edition is refused.

In an object store, which renames nothing, the manifest is the commit, and its files come into sight of those who list
the table after it (`parquet.bucket`), before the next commit: who lists it may miss the rows of the last commit for a
moment, or until the next run if the driver dies, and sees none twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tidegauge.errors.base import Transient
from tidegauge.errors.layout import PartitionedOtherwise
from tidegauge.errors.sinks import DamagedManifest, EpochReplaced, TableUpperMismatch
from tidegauge.evolution import Evolution
from tidegauge.remap.history import NO_HISTORY, History, Link
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.commits import check_span, expect, staged_status, still_to_do
from tidegauge.sinks.evolving import gained, grown
from tidegauge.sinks.layout.counting import TablePartitions
from tidegauge.sinks.layout.layout import AS_IT_COMES, FileLayout
from tidegauge.sinks.parquet.commits import Commits, take_in
from tidegauge.sinks.parquet.ground import ground_of
from tidegauge.sinks.parquet.manifest import REMOVED, Manifest, folder_name, placed, slot_of
from tidegauge.sinks.protocol import OutputId, StagedFile, Volume, job_mark

if TYPE_CHECKING:
    from tidegauge.sinks.replacement import TableReplacement

__all__ = ["ParquetChain"]

_NARROW: Final = "readers of a folder take the type of one file for all of them, and some read others wrong, or not"


class ParquetChain:
    """A `Table`: the chain of commits in `folder`, as the output `output` sees it."""

    def __init__(self, folder: str, output: OutputId, layout: FileLayout = AS_IT_COMES) -> None:
        self._layout: Final = layout
        self._folder: Final = folder
        self._output: Final = output
        self._kept: frozenset[str] = frozenset()
        self._ground: Final = ground_of(folder)
        self._now: Final = Commits(self._ground, output)
        self._now.follow()
        self._opened: Final = self._now.edition
        self._how: Evolution = "strict"
        self._partitions: Final = TablePartitions(layout, folder, str(output))

    @property
    def upper(self) -> int:
        """The first epoch that the table does not hold, by the last commit seen of it."""
        return self._now.upper

    @property
    def digest(self) -> str | None:
        """The digest of the flow's history up to the upper, None where the last commit has none."""
        return self._now.digest or None

    @property
    def schema(self) -> pa.Schema | None:
        """The present columns of the table, None before its first commit."""
        self._now.follow()
        return self._now.schema

    def evolve(self, how: Evolution) -> None:
        """Take rows of other columns in this way from now on."""
        self._how = how

    def lacking(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns that a commit of rows with this schema would add; raise what it would raise of them."""
        if (held := self.schema) is None:
            return ()
        grown_to = self._grown(self._layout.columns(rows_schema(schema)))
        return gained(held, grown_to)

    def _grown(self, columns: pa.Schema) -> pa.Schema:
        """Return the columns of the table once it has rows with these. Raises as `grown`."""
        if (held := self._now.schema) is None:
            return columns
        return grown(
            held, columns, self._how, place=self._folder, output=str(self._output), narrow=_NARROW, nests=True
        )

    @property
    def edition(self) -> str:
        """The edition that its rows had when it was opened, "" for the first one."""
        return self._opened

    @property
    def made(self) -> str:
        """The name of the attempt that made its first commit."""
        return self._now.made

    def replacement(self, edition: str) -> TableReplacement:
        """Return a table that holds nothing, until its first commit takes this one's place."""
        from tidegauge.sinks.parquet.replacement import ParquetSwap
        from tidegauge.sinks.replacement import TableReplacement

        seen = self.upper, self.edition
        return TableReplacement(self, ParquetSwap(self._folder, self._output, seen, edition, self._layout))

    def withdraw(self, edition: str) -> None:
        """Give the rows that are there another edition, so that no replacement which was begun takes their place."""
        upper = self._now.upper
        while True:
            self._now.follow()
            self._expect(upper)
            self.finish()
            if self.added(replace(self.swap(edition), anew=0), []):
                return

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
    ) -> None:
        """Append `files` as the epochs `[lower, upper)`, or raise `TableUpperMismatch` and change nothing.

        remove: files that the same commit takes out.

        Also raises `FileNotHeld`, `HistoriesDiffer`, `TableOfAnotherIncarnation`, `TableSchemaChanged`,
        `ColumnsRefused`, `StagedFileMissing`, `MisplacedRows`, `TableNotWritable` and `StagingElsewhere`; any other
        `OSError`, of a full disk for one, goes through.
        """
        check_span(lower, upper, files, remove=remove, partition=self._layout.names)
        columns = self._layout.columns(rows_schema(schema))
        self._now.follow()
        self._expect(lower)
        expect(self, self._output, history)
        self._check_partition()
        after = self._grown(columns)
        if remove and not self._is_to_do(files, remove, replaces=lower == upper):
            return
        if lower < upper:
            self._check_partitions(files)
        for file in files:
            staged_status(self._folder, file)
        self.finish()  # else those who list the folder would see its rows beside old ones
        manifest = Manifest(
            self._output,
            lower,
            upper,
            write,
            tuple(placed(file, folder_name(lower, self._now.place)) for file in files),
            None if self._now.schema is not None and after.equals(self._now.schema) else after,
            history.digest,
            removed=tuple(file.path for file in remove),
            place=self._now.place,
            edition=self._now.edition,
            partition=self._layout.names if self._now.schema is None else (),
        )
        if not self.added(manifest, files, history):
            self._now.follow()
            raise self._mismatch(lower)
        self._now.took(manifest)
        with suppress(OSError, Transient):  # the commit is made; the rest is done by the next one, or the next run
            self._bring_into_sight()

    def added(
        self,
        manifest: Manifest,
        files: Sequence[StagedFile],
        history: History = NO_HISTORY,
        *,
        swap: Manifest | None = None,
    ) -> bool:
        """Add a commit at the end of the chain; False where somebody else has.

        swap: the manifest of a swap that the commit is to be out of sight in.
        """
        return self._ground.add(manifest, files, history, swap)

    def swap(self, edition: str) -> Manifest:
        """Return the swap that would put rows of another edition in the place of those that are there now."""
        now = self._now
        now.follow()
        upper, place = now.upper, now.place
        write = job_mark(self._output.incarnation) + edition[:16]
        anew = 1 + max([place, *(one.place for one in now.commits)])
        return Manifest(
            self._output, upper, upper, write, (), None, now.digest, place=place, edition=edition, anew=anew
        )

    def begun_by(self, write: str, edition: str) -> bool:
        """Whether the table is of this edition, and this attempt has made its first commit."""
        first = self._now.read(0, self._now.base) if self._now.edition == edition else None
        return first is not None and first.write == write

    def finish(self) -> None:
        """Finish what came before: those who list the table then see the rows that are there, and no others."""
        if self._now.swap is not None:
            self._ground.finish(self._now.slot(0, self._now.base))
            self._now.follow()
        if self._now.hidden:
            self._bring_into_sight()

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove staged files. A file that was committed is safe."""
        committed = {path.rpartition("/")[2] for path in [*self._now.hidden]}
        self._ground.discard([file for file in files if file.path.rpartition("/")[2] not in committed])

    def stand(self) -> None:
        """Raise `TableUpperMismatch` where nothing is left of the table."""
        upper = self._now.upper
        if upper and self._ground.gone(self._now.slot(0, self._now.base)):
            raise TableUpperMismatch(table=self._folder, output=str(self._output), expected=upper, actual=0)

    def keep(self, files: Sequence[StagedFile]) -> bool:
        """Keep files from the sweep, also what a commit had gathered, if all are there; say whether they are."""
        there = self._ground.keep(files, job_mark(self._output.incarnation))
        self._kept = frozenset(file.path.split("/")[1] for file in files if there)
        return there

    def sweep(self, confirm: Callable[[], None]) -> None:
        """Remove what earlier drivers of this flow staged and did not commit; `attempt` has the argument.

        Files that they had taken out, and left in sight, are moved out of it; a swap that they made is finished.
        """
        if self._now.swap is not None:
            confirm()
            self.finish()
        if self._now.removed or self._now.hidden:
            confirm()
            with suppress(OSError):
                self._bring_into_sight()
        self._ground.sweep(job_mark(self._output.incarnation), confirm, kept=self._kept)

    def files(self, *, as_of: int | None = None) -> list[StagedFile]:
        """Return the committed files in commit order.

        as_of: where rows were taken out since this epoch, the files are those before; `EpochReplaced` where one
        commit holds the epoch and took them out. They stay readable as long as nobody clears `_removed`.
        """
        self._now.follow()
        later = (
            at
            for at, one in enumerate(self._now.commits)
            if one.changes and as_of is not None and as_of < one.upper - 1
        )
        change = next(later, None)
        if change is None or as_of is None:
            return list(self._now.files.values())
        if self._now.commits[change].lower <= as_of:
            raise EpochReplaced(table=self._folder, epoch=as_of)
        held: dict[str, StagedFile] = {}
        for one in self._now.commits[:change]:
            manifest = self._now.read(one.lower, one.place)
            if manifest is not None:
                take_in(held, manifest)
        away = self._ground.away(path for path in held if path not in self._now.files)
        return [_taken_out(file) if file.path in away else file for file in held.values()]

    def volume(self) -> Volume:
        """Return how much the committed files come to."""
        return Volume.of(self.files())

    def uris(self, files: Sequence[StagedFile]) -> list[str]:
        """Return absolute paths of the files."""
        now = self._now
        return self._ground.uris([file.path for file in files], first=now.slot(0, now.base), hidden=now.hidden)

    def version_of(self, epoch: int) -> str | None:
        """Return the name of the folder whose commit brought the epoch, None for one that is not held."""
        self._now.follow()
        if not 0 <= epoch < self._now.upper:
            return None
        at = bisect_right(self._now.commits, epoch, key=lambda one: one.lower)
        return next(
            folder_name(one.lower, one.place) for one in reversed(self._now.commits[:at]) if epoch < one.upper
        )

    def links(self) -> list[Link]:
        """Return the links that all commits have, those of earlier editions among them. Raises `DamagedHistory`."""
        self._now.follow()
        found = list[Link]()
        base = self._now.base
        for lower, place in {*map(slot_of, self._now.names()), (0, base)}:
            try:
                manifest = self._now.read(lower, place)
            except DamagedManifest:
                if place >= base:
                    raise
                continue  # it brings no row any more
            if manifest is not None:
                found += self._ground.links(self._now.slot(lower, place), manifest)
        return found

    # -- files that are taken out

    def _is_to_do(self, files: Sequence[StagedFile], remove: Sequence[StagedFile], *, replaces: bool) -> bool:
        """Return whether a commit that takes files out is still to be made."""
        held = {
            path.rpartition("/")[2]: path for path in self._now.files
        }  # the commit gives staged files a new folder
        paths = [held.get(file.path.rpartition("/")[2], "") for file in files]
        return still_to_do(paths, remove, self._now.files, table=self._folder, replaces=replaces)

    def _bring_into_sight(self) -> None:
        """Move files that commits have taken out away from readers that list the table, then show them new ones."""
        for path in [*self._now.removed]:
            self._ground.hide(path)
            self._now.removed.discard(path)
        if self._now.hidden:
            self._ground.show([self._now.files[path] for path in sorted(self._now.hidden)])
            self._now.hidden.clear()

    def _check_partitions(self, files: Sequence[StagedFile]) -> None:
        """Raise `PartitionsTooSmall` where the table would get too many with hardly any rows."""
        held = self._now.files
        if self._partitions.many(len(held) + len(files)):
            after = Volume.of([*held.values(), *files])
            self._partitions.check(files, after, lambda: {file.partition for file in held.values()})

    def _check_partition(self) -> None:
        """Raise `PartitionedOtherwise` for a table that is parted by others than the layout has."""
        if self._now.schema is not None and self._now.partition != self._layout.names:
            held = ", ".join(self._now.partition) or "nothing"
            output, wanted = str(self._output), self._layout.said
            raise PartitionedOtherwise(table=self._folder, output=output, held=held, wanted=wanted)

    def _expect(self, lower: int) -> None:
        """Raise unless the table ends there. Rows of another edition are another table, at the same upper too."""
        if (self._now.upper, self._now.edition) != (lower, self._opened):
            raise self._mismatch(lower)

    def _mismatch(self, expected: int) -> TableUpperMismatch:
        return TableUpperMismatch(
            table=self._folder, output=str(self._output), expected=expected, actual=self._now.upper
        )


def _taken_out(file: StagedFile) -> StagedFile:
    """Return a file that was taken out where it is now."""
    return replace(file, path=f"{REMOVED}/{file.path.rpartition('/')[2]}")
