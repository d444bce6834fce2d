"""The partitions of a table that is followed through its root: what the log does not tell of them.

    a new, empty partition     its rows come as those of the root
    attached with rows         the log has nothing of these rows
    dropped, or detached       the log has nothing of the rows that went
    emptied by TRUNCATE        nothing either, for the server tells of a TRUNCATE of the root alone

So the source notes which partitions the rows that it gave are of, and looks at the catalog: a difference that took
rows away or brought some ends the table. Whether a new partition was empty is told by its rows: those that a
transaction wrote before the partition was attached carry an older number than the transaction that attached it.

Invariant: the note is durable before a row of the table is given, and is renewed only where no row came or went.

>>> one = TablePartition(7, "public", "orders_1", file=7, attached=700, command=0, made=True, empty=True)
>>> known = KnownPartitions(horizon=690, leaves=(one,))
>>> difference(known, (one,))
PartitionsDifference(lost=(), asked=())
>>> difference(known, ())
PartitionsDifference(lost=('public.orders_1 was dropped or detached',), asked=())
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tidegauge.errors.databases import FolderDamaged
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.postgres.catalog import CatalogLook, PublishedTable, RowsQuestion, TablePartition

__all__ = ["FollowedPartitions", "KnownPartitions", "PartitionsDifference", "difference"]

_FILE: Final = "partitions.json"
_EMPTIED: Final = "was emptied, by TRUNCATE or by a tool that writes all rows anew"


@dataclass(frozen=True, slots=True)
class KnownPartitions:
    """The partitions that a table had. horizon: all transactions with a lower number had ended by then."""

    horizon: int
    leaves: tuple[TablePartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionsDifference:
    """lost: the partitions whose rows are gone, with how. asked: what else is to be known of rows."""

    lost: tuple[str, ...]
    asked: tuple[RowsQuestion, ...]


def difference(known: KnownPartitions, now: Sequence[TablePartition]) -> PartitionsDifference:
    """Return what became of partitions since."""
    before, there = {one.oid: one for one in known.leaves}, {one.oid for one in now}
    lost = [f"{one.name} was dropped or detached" for one in known.leaves if one.oid not in there]
    asked: list[RowsQuestion] = []
    for one in now:
        was = before.get(one.oid)
        if was is not None and was.attached != one.attached:
            lost.append(f"{one.name} was detached, and attached again")
        if was is None or was.attached != one.attached:
            if not one.empty:
                asked.append(RowsQuestion(one, one.attached, one.command, younger=not one.made, brought=True))
            if was is None and one.made and one.file != one.oid:  # it lay there when it was made
                lost.append(f"{one.name} {_EMPTIED}")
        elif was.file != one.file:  # also if it had no row then: it may have had some since
            asked.append(RowsQuestion(one, known.horizon, 0, younger=True, brought=False))
    return PartitionsDifference(tuple(lost), tuple(asked))


@dataclass(slots=True)
class FollowedPartitions:
    """The note of the partitions, of one server and one incarnation of the source.

    keeps: whether a table goes on when partitions take their rows along.
    """

    folder: SourceFolder
    identity: str
    incarnation: int
    keeps: bool
    known: dict[str, KnownPartitions] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            said = self.folder.noted(_FILE) or {}
            if (said.get("identity"), said.get("incarnation")) == (self.identity, self.incarnation):
                self.known.update({name: _known(one) for name, one in said["tables"].items()})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            detail = f"{type(error).__name__}: {error}"
            raise FolderDamaged(path=str(Path(self.folder.path, _FILE)), detail=detail) from error

    def only(self, names: Collection[str]) -> None:
        """Forget the notes of tables other than these: no row of them was given."""
        if not self.known.keys() <= set(names):
            self._keep({name: one for name, one in self.known.items() if name in names})

    def begin(self, tables: Mapping[str, KnownPartitions | None]) -> None:
        """Note the partitions that the first rows of tables are of. None for a table that has none."""
        made = {name: found for name, found in tables.items() if found is not None}
        if made:
            self._keep({**self.known, **made})

    def adopt(self, tables: Collection[PublishedTable], horizon: int) -> None:
        """Note the partitions of tables that have no note: the folder was lost."""
        self.begin(
            {
                str(table): KnownPartitions(horizon, table.partitions)
                for table in tables
                if table.kind == "p" and str(table) not in self.known
            }
        )

    def questions(self, look: CatalogLook) -> tuple[RowsQuestion, ...]:
        """Return the questions to answer before `changed` can tell."""
        return tuple(one for found in self._differences(look).values() for one in found.asked)

    def changed(self, look: CatalogLook, old: Collection[RowsQuestion]) -> dict[str, str]:
        """Return the tables whose partitions took rows away or brought some, with how; renew the note of the others.

        old: the questions to which the answer is that there are such rows.
        """
        found: dict[str, str] = {}
        renewed = dict(self.known)
        now = {str(table): table for table in look.tables}
        for name, changes in self._differences(look).items():
            foreign = [f"{one.name} is a foreign table" for one in now[name].partitions if one.kind != "r"]
            brought = [
                f"{one.partition.name} was attached with rows" for one in old if one in changes.asked and one.brought
            ]
            emptied = [
                f"{one.partition.name} {_EMPTIED}" for one in changes.asked if not one.brought and one not in old
            ]
            gone = () if self.keeps else (*changes.lost, *emptied)
            if why := [*foreign, *gone, *brought]:
                found[name] = f"its partition {why[0]}, and the server's log has nothing of these rows"
            else:
                renewed[name] = KnownPartitions(look.horizon, now[name].partitions)
        if renewed != self.known:
            self._keep(renewed)
        return found

    def forget(self) -> None:
        """Forget all of it: the source begins anew."""
        if self.known:
            self._keep({})

    def _differences(self, look: CatalogLook) -> dict[str, PartitionsDifference]:
        return {
            str(table): difference(self.known[str(table)], table.partitions)
            for table in look.tables
            if table.kind == "p" and str(table) in self.known
        }

    def _keep(self, known: Mapping[str, KnownPartitions]) -> None:
        tables = {name: asdict(one) for name, one in known.items()}
        said = {"identity": self.identity, "incarnation": self.incarnation, "tables": tables}
        self.folder.note(_FILE, said, durable=True)
        self.known = dict(known)


def _known(said: Mapping[str, Any]) -> KnownPartitions:
    return KnownPartitions(said["horizon"], tuple(TablePartition(**one) for one in said["leaves"]))
