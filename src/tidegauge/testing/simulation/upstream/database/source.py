"""`SimulatedPostgres`: a user's `PostgresSource` over a simulated server.

The code of `sources.postgres` decides: when to make the slot, what of the first rows can be kept, where the stream
begins, which transactions are whole, what the server may be told. Only the server's answers come from memory. What
the source keeps in its folder is on a disk, as for a real one, and outlives drivers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from tidegauge.remap.binding import Bound
from tidegauge.remap.fromtime import FromTime
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.postgres.source import PostgresSource
from tidegauge.sources.postgres.subscription import Replication
from tidegauge.sources.protocol import OnBadRecord
from tidegauge.sources.push.protocol import Received
from tidegauge.testing.simulation.upstream.database.sender import SimulatedServer

__all__ = ["SimulatedPostgres"]


@dataclass(frozen=True)
class SimulatedPostgres:
    """The source. user: what the flow has. folder: where it keeps what the user's source would.

    spill: the bytes of a transaction from which on it is written to files there, None for as many as always.
    """

    user: PostgresSource
    folder: SourceFolder
    server: SimulatedServer = field(compare=False, repr=False)
    spill: int | None = None

    @property
    def unit(self) -> str:
        """Positions are places in the log."""
        return self.user.unit

    @property
    def from_time(self) -> FromTime:
        """The log's clock."""
        return self.user.from_time

    @property
    def streams(self) -> Mapping[str, pa.Schema]:
        """The columns of each table's stream."""
        return self.user.streams

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        return self.user.describe()

    def decode(self, stream: str, batch: pa.RecordBatch, on_bad_record: OnBadRecord) -> pa.RecordBatch:
        """Return the rows of chunks."""
        return self.user.decode(stream, batch, on_bad_record)

    def connect(self, start: Frontier, bound: Bound) -> MetReplication:
        """Return a subscription from a place in the log on."""
        self.server.meet("connect")
        setup = replace(self.user.setup, server=self.server, folder=self.folder, spill=self.spill)
        found = MetReplication(self.server, Replication(setup, start, bound))
        self.server.meet("connected")
        return found


class MetReplication:
    """A subscription that meets the world before and after each call."""

    def __init__(self, server: SimulatedServer, inner: Replication) -> None:
        self.identity: Final = inner.identity
        self._server: Final = server
        self._inner: Final = inner

    def receive(self, limit: int, seconds: float) -> Received | None:
        """Return the transactions that have come."""
        self._server.meet("receive")
        found = self._inner.receive(limit, seconds)
        if found is not None:
            self._server.meet("received")
        return found

    def acknowledge(self, frontier: Frontier) -> None:
        """Tell the server that everything before a frontier is durable."""
        self._server.meet("acknowledge")
        self._inner.acknowledge(frontier)
        self._server.meet("acknowledged")

    def close(self) -> None:
        """End the session."""
        self._inner.close()
