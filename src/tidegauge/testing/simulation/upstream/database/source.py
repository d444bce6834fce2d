"""`SimulatedPostgres` and `SimulatedMySql`: a user's source of tables of a database, over a simulated server.

The code of `sources.postgres` or of `sources.mysql` decides: what of the first rows can be kept, where the stream
begins, which transactions are whole, what the server may be told. Only the server's answers come from memory. What
the source keeps in its folder is on a disk, as for a real one, and outlives drivers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import pyarrow as pa

from tidegauge.remap.binding import Bound
from tidegauge.remap.fromtime import FromTime
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.mysql.gathering import FILED_FROM
from tidegauge.sources.mysql.source import KIND_NOTE, MySqlSource
from tidegauge.sources.mysql.subscription import BinlogSubscription
from tidegauge.sources.postgres.source import PostgresSource
from tidegauge.sources.postgres.subscription import Replication
from tidegauge.sources.protocol import OnBadRecord
from tidegauge.sources.push.protocol import Received, Subscription
from tidegauge.testing.simulation.upstream.database.binlog_sender import SimulatedBinlogServer
from tidegauge.testing.simulation.upstream.database.sender import SimulatedServer

__all__ = ["SimulatedMySql", "SimulatedPostgres", "over_mysql", "over_postgres"]


class MetServer(Protocol):
    """A simulated server."""

    @property
    def meet(self) -> Callable[[str], None]: ...


@dataclass(frozen=True)
class SimulatedPostgres:
    """A source of a PostgreSQL. user: what the flow has. here: the same, with its folder in this world.

    spill: see `over_postgres`.
    """

    user: PostgresSource
    here: PostgresSource = field(compare=False, repr=False)
    server: SimulatedServer = field(compare=False, repr=False)
    spill: int | None = field(compare=False, repr=False)

    @property
    def unit(self) -> str:
        """What positions count."""
        return self.user.unit

    @property
    def from_time(self) -> FromTime:
        """The log's clock."""
        return self.user.from_time

    @property
    def streams(self) -> Mapping[str, pa.Schema]:
        """The columns of each table's stream."""
        return self.here.streams

    def having(self, tables: Sequence[str]) -> SimulatedPostgres:
        """Return the source of these tables."""
        return replace(self, user=replace(self.user, tables=tables), here=replace(self.here, tables=tables))

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        return self.user.describe()

    def later(self) -> Mapping[str, Frontier | None]:
        """Return the tables that came after the first rows of the others, with the places where they join."""
        return self.here.later()

    def decode(self, stream: str, batch: pa.RecordBatch, on_bad_record: OnBadRecord) -> pa.RecordBatch:
        """Return the rows of chunks."""
        return self.here.decode(stream, batch, on_bad_record)

    def decode_by(
        self, stream: str, batch: pa.RecordBatch, columns: pa.Schema, on_bad_record: OnBadRecord
    ) -> pa.RecordBatch:
        """Return the rows of chunks in these columns."""
        return self.here.decode_by(stream, batch, columns, on_bad_record)

    def refused(self, stream: str, column: str) -> str:
        """Return why a column that came to a table is not taken on, "" if it may be."""
        return self.here.refused(stream, column)

    def connect(self, start: Frontier, bound: Bound) -> MetSubscription:
        """Return a subscription from a place in the log on."""
        return self.connect_alone(start, bound, lambda: None)

    def connect_alone(self, start: Frontier, bound: Bound, confirm: Callable[[], None]) -> MetSubscription:
        """Return a subscription whose driver alone writes to the folder from now on."""
        setup = replace(
            self.here.setup, server=self.server, spill=self.spill, columns=self.here.followed(bound.schema)
        )

        def begin() -> Replication:
            return Replication(replace(setup, folder=setup.folder.taken_over(confirm)), start, bound)

        return MetSubscription(self.server, begin)


@dataclass(frozen=True)
class SimulatedMySql:
    """A source of a MariaDB or MySQL. user: what the flow has. here: the same, with its folder in this world.

    spill: see `over_mysql`.
    """

    user: MySqlSource
    here: MySqlSource = field(compare=False, repr=False)
    server: SimulatedBinlogServer = field(compare=False, repr=False)
    spill: int = field(compare=False, repr=False)

    @property
    def unit(self) -> str:
        """What positions count."""
        return self.user.unit

    @property
    def from_time(self) -> FromTime:
        """The log's clock."""
        return self.user.from_time

    @property
    def streams(self) -> Mapping[str, pa.Schema]:
        """The columns of each table's stream."""
        return self.here.streams

    def having(self, tables: Sequence[str]) -> SimulatedMySql:
        """Return the source of these tables."""
        return replace(self, user=replace(self.user, tables=tables), here=replace(self.here, tables=tables))

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        return self.user.describe()

    def later(self) -> Mapping[str, Frontier | None]:
        """Return the tables that came after the first rows of the others, with the positions where they join."""
        return self.here.later()

    def decode(self, stream: str, batch: pa.RecordBatch, on_bad_record: OnBadRecord) -> pa.RecordBatch:
        """Return the rows of chunks."""
        return self.here.decode(stream, batch, on_bad_record)

    def connect(self, start: Frontier, bound: Bound) -> MetSubscription:
        """Return a subscription from a place in the log on."""
        return self.connect_alone(start, bound, lambda: None)

    def connect_alone(self, start: Frontier, bound: Bound, confirm: Callable[[], None]) -> MetSubscription:
        """Return a subscription whose driver alone writes to the folder from now on."""
        source = "" if self.user.owner is None else self.user.owner[1]
        setup = replace(self.here.setup, server=self.server, source=source, filed=self.spill)

        def begin() -> BinlogSubscription:
            return BinlogSubscription(replace(setup, folder=setup.folder.taken_over(confirm)), start, bound)

        return MetSubscription(self.server, begin)


def over_postgres(
    user: PostgresSource, folder: SourceFolder, server: SimulatedServer, spill: int | None = None
) -> SimulatedPostgres:
    """Return what stands in for a source. folder: where it keeps what the user's would. spill: the bytes of a
    transaction from which on it is written to files there, None for as many as always."""
    setup = user.setup
    if folder.columns() is None:
        folder.keep_columns(setup.columns)
    here = replace(user, folder=folder.path, owner=("", ""), slot=setup.slot)
    return SimulatedPostgres(user, here, server, spill)


def over_mysql(
    user: MySqlSource, folder: SourceFolder, server: SimulatedBinlogServer, spill: int | None = None
) -> SimulatedMySql:
    """Return what stands in for a source, as `over_postgres` does. spill: of each table."""
    setup = user.setup
    if folder.columns() is None:
        folder.keep_columns(setup.columns)
        folder.note(KIND_NOTE, {"clock": setup.kind.clock.kind, "server": setup.kind.name}, durable=True)
    here = replace(user, folder=folder.path, owner=("", ""))
    return SimulatedMySql(user, here, server, FILED_FROM if spill is None else spill)


class MetSubscription:
    """A subscription that meets the world before and after each call."""

    def __init__(self, server: MetServer, begin: Callable[[], Subscription]) -> None:
        server.meet("connect")
        self._inner: Final = begin()
        server.meet("connected")
        self.identity: Final = self._inner.identity
        self._server: Final = server

    def receive(self, limit: int, seconds: float) -> Received | None:
        """Return the transactions that have come."""
        self._server.meet("receive")
        found = self._inner.receive(limit, seconds)
        if found is not None:
            self._server.meet("received")
        return found

    def acknowledge(self, frontier: Frontier) -> None:
        """Tell the source that everything before a frontier is durable."""
        self._server.meet("acknowledge")
        self._inner.acknowledge(frontier)
        self._server.meet("acknowledged")

    def close(self) -> None:
        """End the session."""
        self._inner.close()
