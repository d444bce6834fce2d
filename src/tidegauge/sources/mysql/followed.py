"""What a subscription works with: the server, the tables, and how to look at them.

Invariant: what `look` lets pass can be followed without loss, as far as the server tells.

>>> from tidegauge.sources.mysql.address import ServerAddress
>>> from tidegauge.sources.mysql.server import DistantBinlogServer
>>> from tidegauge.sources.mysql.servers import MARIADB_SERVER
>>> from tidegauge.sources.mysql.sessions import ServerPlace
>>> server = DistantBinlogServer(ServerPlace(ServerAddress("ada", "db", 3306, "shop"), None), "shop/db")
>>> BinlogSetup(server, "db", MARIADB_SERVER, {"orders": ("shop", "orders")}, {}, SourceFolder("my")).names
{'shop.orders': 'orders'}
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tidegauge.errors.base import Transient
from tidegauge.errors.mysqlsource import BinlogClosed, BinlogTableUnfit
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.mysql.catalog import FollowedTable, ServerLook, changed, check_server
from tidegauge.sources.mysql.gathering import FILED_FROM
from tidegauge.sources.mysql.server import BinlogServer
from tidegauge.sources.mysql.servers import ServerKind

__all__ = ["PIECE_BYTES", "BinlogSetup"]

PIECE_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class BinlogSetup:
    """What a subscription works with. tables: database and name of the table of each stream. columns: as declared.

    source: its name in the flow. kind: what the server was when it was looked at first. filed: bytes of a table's
    changes in one transaction from which on they are written to files. piece: bytes of first rows that are one piece:
    a task decodes it at once, and it is noted as read."""

    server: BinlogServer
    source: str
    kind: ServerKind
    tables: Mapping[str, tuple[str, str]]
    columns: Mapping[str, pa.Schema]
    folder: SourceFolder
    filed: int = FILED_FROM
    piece: int = PIECE_BYTES

    @property
    def names(self) -> dict[str, str]:
        """The streams, by the whole names of their tables."""
        return {".".join(table): stream for stream, table in self.tables.items()}

    def look(self, *, begun: bool) -> ServerLook:
        """Look at the server and the tables, and raise what keeps the server from being followed.

        begun: the flow needs what the log has had since: raises `BinlogClosed` where the server goes on without it.
        """
        found = self.server.look(list(self.tables.values()))
        if begun:
            self._written(found)
        check_server(self.server.shown, found)
        return found

    def log_end(self) -> Frontier:
        """Return how far the log goes by now. Raises `BinlogClosed` where the server goes on without it."""
        found = self.server.look([])
        self._written(found)
        return self.kind.end(self.server.shown, found.settings)

    def _written(self, found: ServerLook) -> None:
        if found.closed:
            raise BinlogClosed(source=self.server.shown)

    def changed(self, found: ServerLook, *, begun: bool, awaited: Collection[str]) -> dict[str, str]:
        """Return the streams whose tables are not those that were declared, with why; raise what keeps a table from
        being followed.

        begun: the first rows are there, so what else keeps a table from being followed is a change of it. awaited:
        streams whose tables have not joined, see `unfit`.
        """
        others = {
            stream: changed(self.server.shown, table, self.columns[str(table)], begun=begun)
            for stream, table in zip(self.tables, found.tables, strict=True)
            if stream not in awaited
        }
        return {stream: why for stream, why in others.items() if why}

    def unfit(self, table: FollowedTable) -> Transient | None:
        """Return why the first rows of a table that was added cannot be read at present, None where they can."""
        try:
            why = changed(self.server.shown, table, self.columns[str(table)], begun=False)
        except Transient as error:
            return error
        remedy = f"make {table} what it was when it was declared, or take it out of tables="
        return (
            BinlogTableUnfit(table=str(table), source=self.server.shown, detail=why, remedy=remedy) if why else None
        )
