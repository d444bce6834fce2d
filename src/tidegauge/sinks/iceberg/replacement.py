"""A table of Iceberg that is made again under its name: all of its rows change places with others in one commit.

Until that commit every reader sees the old rows, and the output writes as to a table that is not there yet. The
commit takes out every file of the current snapshot, adds the new ones, brings the table their columns, and says which
edition its rows are of. So the table itself says whether it was made.

Invariant (compare-and-replace): it is made upon a snapshot at which the output's upper and edition are those that
were seen when the table was opened, and nothing of others is open; or not at all. Who takes a replacement back gives
the old rows another edition (`withdraw`), so that no driver which began with it can make the commit any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegauge.errors.iceberg import IcebergRowsDeleted, IcebergTableUnfit
from tidegauge.errors.sinks import TableBusy, TableUpperMismatch
from tidegauge.remap.history import History, agree
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.commits import check_span, staged_status
from tidegauge.sinks.iceberg.catalog import CatalogPlace
from tidegauge.sinks.iceberg.change import TableChange, made
from tidegauge.sinks.iceberg.columns import check_fit, columns_of
from tidegauge.sinks.iceberg.fields import widened
from tidegauge.sinks.iceberg.links import keep_links
from tidegauge.sinks.iceberg.look import IcebergLook, looked
from tidegauge.sinks.iceberg.staging import HIDDEN
from tidegauge.sinks.iceberg.standing import key_text
from tidegauge.sinks.iceberg.table import ATTEMPTS, IcebergTable
from tidegauge.sinks.layout.counting import TablePartitions
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.protocol import OutputId, StagedFile, Volume

__all__ = ["IcebergSwap", "withdraw"]


@dataclass(frozen=True, slots=True)
class IcebergSwap:
    """Puts the rows of an edition in the place of those that a table has.

    lying: how the new ones lie in files. seen: the upper and the edition of the others. key: the columns of whose
    values the new ones are one for each; none for all.
    """

    place: CatalogPlace
    output: OutputId
    lying: FileLayout
    seen: tuple[int, str]
    edition: str
    key: tuple[str, ...] = ()

    def __call__(
        self,
        lower: int,
        upper: int,
        schema: pa.Schema,
        files: Sequence[StagedFile],
        *,
        remove: Sequence[StagedFile],
        write: str,
        history: History,
        changes: tuple[int, int] | None = None,
    ) -> IcebergTable:
        """Make the swap; see `Swap`. changes: the first and the last epoch of changes by key, if there are any."""
        if lower:
            raise _mismatch(self.place, self.output, lower, 0)
        check_span(lower, upper, files, remove=remove, partition=self.lying.names)
        TablePartitions(self.lying, str(self.place.name), str(self.output)).check(files, Volume.of(files), set)
        columns = widened(rows_schema(schema))
        told = {"upper": str(upper), "digest": history.digest, "edition": self.edition, "key": key_text(self.key)}
        told |= {"changed": "" if changes is None else str(changes[1])}
        spans = {} if changes is None else {"changes": "{}-{}".format(*changes)}
        for _ in range(ATTEMPTS):
            look = self._checked()
            for file in files:
                staged_status(self.place.folder, file)
            keep_links(self.place.folder, history, lower=0, upper=upper, write=write)
            change = TableChange(
                place=self.place,
                output=self.output,
                look=look,
                columns=columns,
                lying=self.lying,
                write=write,
                files=files,
                remove=None,
                summary={"lower": "0", "write": write, **told, **spans},
                properties=told,
            )
            try:
                found = made(change)
            except IcebergRowsDeleted as error:  # it fails the output, and no other
                raise IcebergTableUnfit(table=str(self.place.name), feature="delete files") from error
            if found is not None:
                return IcebergTable(self.place, self.output, self.lying, self.key)
        raise TableBusy(table=str(self.place.name), attempts=ATTEMPTS)

    def _checked(self) -> IcebergLook:
        """Return the present table. Raises unless it is the one that was opened."""
        look = looked(self.place, self.output)
        found = look.standing
        # What has this edition already holds these very files.
        if (found.upper, found.edition) != self.seen or (found.edition and agree(found.edition, self.edition)):
            raise _mismatch(self.place, self.output, 0, found.upper)
        check_fit(look.table)
        return look


def withdraw(place: CatalogPlace, output: OutputId, *, seen: tuple[int, str], edition: str) -> None:
    """Give the rows of a table another edition, and change nothing else; see `Replaceable.withdraw`.

    seen: the upper and the edition that it must have. edition: 32 hex digits.
    """
    for _ in range(ATTEMPTS):
        look = looked(place, output)
        found = look.standing
        if look.table is None or (found.upper, found.edition) != seen:
            raise _mismatch(place, output, seen[0], found.upper)
        columns = columns_of(look.table.schema())
        about: dict[str, Any] = {"place": place, "output": output, "look": look, "columns": columns, "write": edition}
        if made(TableChange(**about, lying=HIDDEN, properties={"edition": edition}, vouching=False)) is not None:
            return
    raise TableBusy(table=str(place.name), attempts=ATTEMPTS)


def _mismatch(place: CatalogPlace, output: OutputId, expected: int, actual: int) -> TableUpperMismatch:
    return TableUpperMismatch(table=str(place.name), output=str(output), expected=expected, actual=actual)
