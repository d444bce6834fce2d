"""The store: one object over one database, with one method for each thing that a flow has to know or to make durable.

Invariants (laws 2 and 3). Every method that writes is one transaction that begins by checking the lease, and is
durable when it returns. Each is marked as an effect of the `Env`, and can be repeated after a crash before or after
it.

>>> import tempfile
>>> from datetime import UTC, datetime
>>> from tidegauge.remap.frontier import Frontier
>>> env = Env()
>>> store = Store.open(f"sqlite:///{tempfile.mkdtemp()}/shop.db", env=env)
>>> lease = store.acquire("shop", holder=Holder.current(env))
>>> store.register(lease, sources={"orders": SourceSpec({"kind": "file"})}, outputs={})
>>> bound = Proposal(frontier=Frontier({"p0": 5}))
>>> store.append(lease, expected=0, at=datetime(2026, 11, 20, 17, tzinfo=UTC), proposals={"orders": bound})
0
>>> store.load("shop").sources["orders"].table.epoch_of("p0", 4)
0
>>> lease.release(); store.close()
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import pyarrow as pa

from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError
from tidegauge.remap.binding import Proposal
from tidegauge.remap.store import append as timeline
from tidegauge.remap.store import failures, read, register
from tidegauge.remap.store.connect import Database, exists
from tidegauge.remap.store.lease import Holder, Lease, acquire, holding
from tidegauge.remap.store.migrate import migrate
from tidegauge.remap.store.schema import outputs as output_rows
from tidegauge.remap.store.schema import sources as source_rows
from tidegauge.remap.store.values import EpochRecord, FlowRecord, Loaded, OutputSpec, SourceSpec

__all__ = ["Store"]


class Store:
    """An open store. Several may be open on one database, in one process or in many."""

    def __init__(self, database: Database, env: Env) -> None:
        self._database: Final = database
        self._env: Final = env
        self._heads: Final[dict[int, timeline.Head]] = {}

    @staticmethod
    def open(url: str, *, env: Env) -> Store:
        """Open the store at `sqlite:///PATH` or `postgresql://...`; a new one is made, with its folder.

        Raises `InvalidStoreUrl`, `StoreNotWritable`, `NotAStore`, `StoreTooNew`, `StoreDriverMissing`, or one of the
        transient `StoreBusy` and `StoreFailed`.
        """
        database = Database(url, sleep=env.sleep)
        try:
            migrate(database, env)
        except BaseException:
            database.close()
            raise
        return Store(database, env)

    @staticmethod
    def exists(url: str) -> bool:
        """Whether `open` would find a database rather than make one. Raises `InvalidStoreUrl`."""
        return exists(url)

    def close(self) -> None:
        """Close the connections. What was written stays."""
        self._database.close()

    @property
    def url(self) -> str:
        """Where the store is, without secrets."""
        return self._database.url

    def flow(self, name: str) -> FlowRecord | None:
        """Return a flow, or None when it was never run."""
        with self._database.reading() as connection:
            return read.find_flow(connection, name)

    def holder(self, flow_name: str) -> str:
        """Return who has the flow's lease, for people; "" when nobody has, or its process is known to be gone."""
        with self._database.reading() as connection:
            return holding(connection, self._env, flow_name)

    def load(self, flow_name: str) -> Loaded:
        """Return all that is known of a flow. Raises `UnknownName`, or `DamagedStore`."""
        with self._database.reading() as connection:
            return read.load(connection, flow_name)

    def epochs(
        self, flow_name: str, *, first: int | None = None, last: int | None = None, limit: int | None = None
    ) -> list[EpochRecord]:
        """Return the epochs from `first` to `last`, both included, ascending; with a limit, the newest of them."""
        with self._database.reading() as connection:
            return read.read_epochs(connection, flow_name, first=first, last=last, limit=limit)

    def epoch_at(self, flow_name: str, time: datetime) -> int | None:
        """Return the last published epoch that was minted at or before a time (with its timezone), or None."""
        with self._database.reading() as connection:
            return read.read_epoch_at(connection, flow_name, time)

    def acquire(self, flow_name: str, *, holder: Holder) -> Lease:
        """Take the flow's lease; a flow begins to exist by it. Raises `FlowAlreadyRunning` with who has it.

        A holder that asks again gets the lease that it has.
        """
        return acquire(self._database, self._env, flow_name, holder)

    def register(self, lease: Lease, *, sources: Mapping[str, SourceSpec], outputs: Mapping[str, OutputSpec]) -> None:
        """Make the flow's sources and outputs known, and their present configurations. Others stay as they are.

        Raises `SchemaChanged` when a declared schema is not the one that the source was started with, and
        `OutputMoved` when an output has another source than before and the same table.
        """
        with self._env.effect("register"), self._database.writing() as connection:
            register.register(connection, lease, sources, outputs)

    def record_schema(self, lease: Lease, source: str, schema: pa.Schema) -> None:
        """Set the columns of a source, once. Raises `SchemaChanged` when they were set to others."""
        with self._env.effect("record schema"), self._database.writing() as connection:
            register.record_schema(connection, lease, source, schema)

    def append(self, lease: Lease, *, expected: int, at: datetime, proposals: Mapping[str, Proposal]) -> int:
        """Bind the epoch `expected` to the proposed frontiers, and return it. The first epoch is 0.

        Sources without a proposal keep their frontier. `at` is the time of minting; what is kept never goes back.
        Raises `UpperMismatch` when the flow's upper is not `expected`, `LeaseLost`, `FrontierRegressed`,
        `UnknownName`; then nothing was written.
        """
        with self._env.effect("append bindings"):
            with self._database.writing() as connection:
                head = timeline.append(
                    connection, lease, self._heads.get(lease.flow_id), expected=expected, at=at, proposals=proposals
                )
            self._heads[lease.flow_id] = head
        return expected

    def publish(self, lease: Lease, *, expected: int, upper: int, at: datetime) -> None:
        """Publish the epochs `[expected, upper)`. Raises `UpperMismatch` when others are published, or
        `LeaseLost`."""
        with self._env.effect("publish"), self._database.writing() as connection:
            timeline.publish(connection, lease, expected=expected, upper=upper, at=at)

    def advance_since(self, lease: Lease, since: int) -> None:
        """Make the epochs below `since` indistinguishable, which frees their bindings. Not undone by a smaller one.

        Raises `SinceTooFar` beyond the last published epoch: resuming at `published` needs that one to be distinct.
        """
        with self._env.effect("advance since"), self._database.writing() as connection:
            timeline.advance_since(connection, lease, since)

    def record_failure(self, lease: Lease, source: str, epoch: int, error: TidegaugeError) -> None:
        """Note that a source has failed for good from an epoch on. It stays until it is cleared.

        Of several, the one at the least epoch counts; of those, the first.
        """
        with self._env.effect("record failure"), self._database.writing() as connection:
            failures.record_source(connection, lease, source, epoch, error)

    def clear_failure(self, lease: Lease, source: str) -> None:
        """Forget the failure of a source, because its cause is gone."""
        with self._env.effect("record failure"), self._database.writing() as connection:
            failures.clear(connection, lease, source_rows, source)

    def record_output_failure(self, lease: Lease, output: str, epoch: int, error: TidegaugeError) -> None:
        """Note that an output has failed at an epoch, for a reason of its own. The last failure counts."""
        with self._env.effect("record output failure"), self._database.writing() as connection:
            failures.record_output(connection, lease, output, epoch, error)

    def clear_output_failure(self, lease: Lease, output: str) -> None:
        """Forget the failure of an output, because its table holds the epoch at which it had failed."""
        with self._env.effect("record output failure"), self._database.writing() as connection:
            failures.clear(connection, lease, output_rows, output)
