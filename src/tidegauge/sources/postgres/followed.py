"""What a subscription works with: the database, the tables, the slot, and how to look at them.

Invariant: what `see` and `check` let pass can be followed without loss, as far as the catalog tells.

>>> from tidegauge.sources.postgres.server import DistantServer
>>> from tidegauge.sources.postgres.sessions import DatabasePlace
>>> place = DatabasePlace("postgresql://ada@db/shop", None)
>>> tables = {"orders": ("public", "orders")}
>>> ReplicationSetup(DistantServer(place), "db", place, "shop", "shop", tables, {}, SourceFolder("pg"), 2).names
{'public.orders': 'orders'}
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from tidegauge.errors.base import Transient
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.postgres.catalog import CatalogLook, PublishedTable
from tidegauge.sources.postgres.checks import changed_tables, check_server, check_tables
from tidegauge.sources.postgres.notes import FollowedNotes
from tidegauge.sources.postgres.server import AnsweringServer
from tidegauge.sources.postgres.sessions import DatabasePlace
from tidegauge.sources.postgres.snapshot import SnapshotTask

__all__ = ["ReplicationSetup"]

_AGAIN: Final = 0.02


@dataclass(frozen=True, slots=True)
class ReplicationSetup:
    """What a subscription works with. source: its name in the flow. place: for those who read first rows. tables:
    schema and name of the table of each stream."""

    server: AnsweringServer
    source: str
    place: DatabasePlace
    publication: str
    slot: str
    tables: Mapping[str, tuple[str, str]]
    columns: Mapping[str, pa.Schema]
    folder: SourceFolder
    connections: int
    spill: int | None = None
    """Bytes of a transaction from which on it is written to files; None for `gathering.SPILL`."""
    rate: int | None = None
    """Rows a second that first rows are read at, at most."""
    keeps_partitions: bool = False
    """Whether a table goes on when its partitions take their rows along."""

    @property
    def names(self) -> dict[str, str]:
        """The streams, by the whole names of their tables."""
        return {".".join(place): stream for stream, place in self.tables.items()}

    def see(self, *, patience: float = 0.0) -> CatalogLook:
        """Look at the catalog, and raise what keeps the server from being followed.

        patience: seconds to wait for the server to see that the last reader of the slot has gone.
        """
        server = self.server
        until = server.clock.monotonic() + patience
        with server.looking() as look:
            while True:
                found = look(self.publication, list(self.tables.values()), self.slot)
                if found.slot is None or found.slot.active is None or server.clock.monotonic() > until:
                    break
                server.clock.sleep(_AGAIN)
        check_server(self.place.shown, found)
        return found

    def first_rows(
        self,
        tables: Mapping[str, PublishedTable],
        snapshot: str,
        *,
        folder: SourceFolder,
        since: int,
        at: int,
        streaming: bool = False,
    ) -> SnapshotTask:
        """Return the task to read the tables of some streams. snapshot: its name. For the rest see `SnapshotTask`."""
        streams = {stream: (table, self.columns[str(table)]) for stream, table in tables.items()}
        return SnapshotTask(
            self.place,
            folder,
            self.publication,
            self.slot,
            snapshot,
            since,
            at,
            streams,
            self.connections,
            self.rate,
            streaming,
        )

    def unfit(self, found: CatalogLook, names: Collection[str]) -> Mapping[str, Transient]:
        """Return of these tables those that cannot be followed at present, with why."""
        wrong: dict[str, Transient] = {}
        for name in names:
            tables = tuple(table for table in found.tables if str(table) == name)
            alone = replace(found, tables=tables, missing=tuple(one for one in found.missing if one == name))
            try:
                check_tables(self.place.shown, self.publication, alone)
            except Transient as error:
                wrong[name] = error
        return wrong

    def check(
        self,
        found: CatalogLook,
        oids: Mapping[str, int],
        notes: FollowedNotes,
        awaited: Collection[str] = (),
    ) -> Mapping[str, str]:
        """Return the tables that are not those that were declared, with why; raise what keeps others from it.

        oids: the server's numbers of them, as far as known. awaited: tables that have not joined, see `unfit`.
        """
        declared = {".".join(place): self.columns[".".join(place)] for place in self.tables.values()}
        old = self.server.old_rows(notes.partitions.questions(found))
        of_partitions = notes.partitions.changed(found, old)
        same = tuple(table for table in found.tables if oids.get(str(table), table.oid) == table.oid)
        of_notes = notes.changed(replace(found, tables=same), declared)  # one made again has a place in the log
        changed = {**of_partitions, **of_notes, **changed_tables(oids, declared, found)}
        apart = {*changed, *awaited}
        others = tuple(table for table in found.tables if str(table) not in apart)
        missing = tuple(name for name in found.missing if name not in apart)
        check_tables(self.place.shown, self.publication, replace(found, tables=others, missing=missing))
        return {name: why for name, why in changed.items() if name not in awaited}
