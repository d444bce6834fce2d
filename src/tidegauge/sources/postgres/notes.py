"""Notes of tables, made when their first rows are read, and compared with each later look at the catalog.

    out of the publication, and back    the log has what changed meanwhile, but no server sends it
    a column of another number          it was dropped and made again, or names were swapped: older rows have other
                                        values in it, and the log has nothing of that
    partitions                          see `partitions`

Each row of a catalog has a number that no other row ever gets. A table that was put back into a publication has
another one. So has each table of a publication that was dropped and made again, also where one transaction did both:
no catalog tells that it did. A table whose list of columns was changed has another one, too, though it was in the
publication all the time; its list tells it apart.

Invariant: a table that was seen out of the publication is never followed again, whatever it looks like later.

>>> before = KnownTable(members=((7, ""),), columns={"id": 1, "who": 2})
>>> broken(before, KnownTable(((9, ""),), {"id": 1, "who": 2}), ["id", "who"])
'it was taken out of the publication, and put back, or the publication was dropped and made again'
>>> broken(before, KnownTable(((9, "1 2"),), {"id": 1, "who": 2}), ["id", "who"])
''
>>> broken(before, KnownTable(((7, ""),), {"id": 1, "who": 3}), ["id", "who"])
"its column 'who' is another one: it was dropped and made again, or its name was given to another one"
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.databases import FolderDamaged
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.postgres.catalog import CatalogLook, PublicationFacts, PublishedTable
from tidegauge.sources.postgres.partitions import FollowedPartitions, KnownPartitions

__all__ = ["FollowedNotes", "KnownTable", "broken"]

_FILE: Final = "tables.json"


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A table as it was. members: see `PublishedTable`. columns: their numbers. over: why it has ended, or empty."""

    members: tuple[tuple[int, str], ...]
    columns: Mapping[str, int]
    over: str = ""


def broken(known: KnownTable, now: KnownTable, columns: Iterable[str]) -> str:
    """Return why a table is not the one that was known, "" if it is. columns: those that are followed."""
    for name in columns:
        if name in known.columns and name in now.columns and known.columns[name] != now.columns[name]:
            said = "it was dropped and made again, or its name was given to another one"
            return f"its column {name!r} is another one: {said}"
    before, there = dict(known.members), dict(now.members)
    if before and there and before.keys().isdisjoint(there) and not {*before.values()}.isdisjoint(there.values()):
        return "it was taken out of the publication, and put back, or the publication was dropped and made again"
    return ""


def _unsaid(table: PublishedTable, publication: PublicationFacts) -> str:
    """Return why the publication does not tell all of a table at present, "" if it does."""
    if table.published is None:
        return "it was taken out of the publication"
    if table.filtered is not None:
        return "the publication had a condition on its rows"
    if table.kind == "p" and not publication.root:
        return "the publication gave its changes in the names of its partitions"
    if not (publication.inserts and publication.updates and publication.deletes and publication.truncates):
        return "the publication lacked an operation"
    return ""


@dataclass(slots=True)
class FollowedNotes:
    """The notes of one server and one incarnation of the source. keeps: see `FollowedPartitions`."""

    folder: SourceFolder
    identity: str
    incarnation: int
    keeps: bool
    partitions: FollowedPartitions = field(init=False)
    known: dict[str, KnownTable] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()
    """The tables that the last look found broken. Nothing says at which place, so nothing more of them is given."""

    def __post_init__(self) -> None:
        self.partitions = FollowedPartitions(self.folder, self.identity, self.incarnation, self.keeps)
        try:
            said = self.folder.noted(_FILE) or {}
            if (said.get("identity"), said.get("incarnation")) == (self.identity, self.incarnation):
                self.known.update({name: _read(one) for name, one in said["tables"].items()})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            detail = f"{type(error).__name__}: {error}"
            raise FolderDamaged(path=str(Path(self.folder.path, _FILE)), detail=detail) from error

    def only(self, names: Collection[str]) -> None:
        """Forget the notes of tables other than these: no row of them was given."""
        self.partitions.only(names)
        self._keep({name: one for name, one in self.known.items() if name in names})

    def begin(self, tables: Iterable[PublishedTable], partitions: Mapping[str, KnownPartitions | None]) -> None:
        """Note tables, as they were at a look before their first rows, and the partitions that these are of."""
        self.partitions.begin(partitions)
        self._keep({**self.known, **{str(table): _known(table) for table in tables}})

    def adopt(self, tables: Collection[PublishedTable], horizon: int) -> None:
        """Note tables that have rows and no note: the folder was lost, or made by an earlier version.

        It is to be done before `changed`, which takes a table without a note for one that has no rows yet.
        """
        self.partitions.adopt(tables, horizon)
        self._keep({**{str(table): _known(table) for table in tables}, **self.known})

    def changed(self, look: CatalogLook, declared: Mapping[str, pa.Schema]) -> dict[str, str]:
        """Return the tables that are not those that were noted, with why; renew the note of the others."""
        if look.publication is None:  # if it is made again, its tables have other rows of the catalog
            return {}
        found: dict[str, str] = {}
        renewed = dict(self.known)
        for table in look.tables:
            name, now = str(table), _known(table)
            if (known := self.known.get(name)) is None:
                continue
            columns = declared[name].names if name in declared else []
            over = known.over or _unsaid(table, look.publication)
            if why := over or broken(known, now, columns):
                found[name] = why
                renewed[name] = replace(known, over=over)
            else:
                followed = {one: number for one, number in known.columns.items() if one in columns}
                renewed[name] = KnownTable(now.members or known.members, {**now.columns, **followed})
        self._keep(renewed)
        self.broken = frozenset(found)
        return found

    def forget(self) -> None:
        """Forget all of it: the source begins anew."""
        self.partitions.forget()
        self._keep({})

    def _keep(self, known: Mapping[str, KnownTable]) -> None:
        if known != self.known:
            tables = {name: asdict(one) for name, one in known.items()}
            said = {"identity": self.identity, "incarnation": self.incarnation, "tables": tables}
            self.folder.note(_FILE, said, durable=True)
            self.known = dict(known)


def _known(table: PublishedTable) -> KnownTable:
    columns = {} if table.growth is None else {name: one.number for name, one in table.growth.columns.items()}
    return KnownTable(table.members, columns)


def _read(said: Mapping[str, Any]) -> KnownTable:
    return KnownTable(tuple((oid, listed) for oid, listed in said["members"]), said["columns"], said["over"])
