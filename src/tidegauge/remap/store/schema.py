"""The tables of the store. They are documented and meant to be queried with plain SQL.

Invariants: instants are text in UTC with microseconds (`2026-11-20T17:00:00.000000Z`), so that they sort and read the
same in every database; JSON is text; positions and epochs are 64-bit integers. Nothing is pickled, no secret is here.

Which epoch holds position 1234 of partition p0 of source orders:

    SELECT min(b.epoch) FROM bindings b JOIN partitions p ON p.id = b.partition_id JOIN sources s ON s.id =
    p.source_id WHERE s.name = 'orders' AND p.key = 'p0' AND b.position > 1234;
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)

from tidegauge.errors.flow import InvalidArgument

__all__ = [
    "LAYOUT",
    "Instant",
    "as_json",
    "bindings",
    "epochs",
    "flows",
    "leases",
    "metadata",
    "outputs",
    "partitions",
    "seals",
    "sources",
    "store_layout",
]

LAYOUT: Final = 2
"""The version of these tables. `migrate` has the way from each older one."""

_FORMAT: Final = "%Y-%m-%dT%H:%M:%S.%fZ"


class Instant(TypeDecorator[datetime]):
    """A point in time: timezone-aware in Python, sortable UTC text in the database."""

    impl = String(27)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:  # noqa: ARG002
        """Return the text of an aware datetime. A naive one is refused: it names no instant."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise InvalidArgument(parameter="time", value=value.isoformat(), expected="a time with its timezone")
        return value.astimezone(UTC).strftime(_FORMAT)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Return the datetime of a stored text."""
        return None if value is None else datetime.strptime(value, _FORMAT).replace(tzinfo=UTC)


def as_json(value: Mapping[str, Any]) -> str:
    """Return JSON text with sorted keys. Raises `InvalidArgument` for what JSON cannot hold, such as NaN."""
    try:
        return json.dumps(dict(value), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(parameter="a stored value", value=str(error), expected="plain JSON values") from error


_ID = BigInteger().with_variant(Integer, "sqlite")

metadata: Final = MetaData()

store_layout: Final = Table(
    "store_layout",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("created_at", Instant, nullable=False),
)
"""One row: the version of the tables, and when they were made."""

flows: Final = Table(
    "flows",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("incarnation", String(32), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("upper", BigInteger, nullable=False, default=0),
    Column("published", BigInteger, nullable=False, default=0),
    Column("since", BigInteger, nullable=False, default=0),
)
"""The flows. Epochs below `upper` are bound, below `published` published; below `since` they are indistinguishable.

`incarnation` tells this flow from another of its name in another store, or in this one after it was removed.
"""

leases: Final = Table(
    "leases",
    metadata,
    Column("flow_id", ForeignKey("flows.id"), primary_key=True),
    Column("token", String(32), nullable=False),
    Column("holder", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("boot", Text, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("process_started", BigInteger, nullable=True),
    Column("since", Instant, nullable=False),
    Column("renewed_at", Instant, nullable=False),
)
"""Who runs a flow now: at most one driver each, renewed while it runs.

`boot` names the running kernel and the space of process ids in it, `process_started` is in clock ticks since the
boot.
"""

sources: Final = Table(
    "sources",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("flow_id", ForeignKey("flows.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("identity", Text),
    Column("config", Text, nullable=False),
    Column("schema", Text, nullable=True),
    Column("failed_at", BigInteger, nullable=True),
    Column("failure", Text, nullable=True),
    UniqueConstraint("flow_id", "name"),
)
"""The sources of a flow, known by their names. `schema` is NULL until it is known.

`identity` is what upstream said of itself when it was first bound: another one later is another upstream. `failed_at`
and `failure` (an error as JSON) say from which epoch on the source has failed for good.
"""

partitions: Final = Table(
    "partitions",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("source_id", ForeignKey("sources.id"), nullable=False),
    Column("key", Text, nullable=False),
    Column("detail", Text, nullable=True),
    UniqueConstraint("source_id", "key"),
)
"""The partitions of a source: topic-partitions, files. `detail` holds the newest facts about each, as JSON."""

bindings: Final = Table(
    "bindings",
    metadata,
    Column("source_id", ForeignKey("sources.id"), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("partition_id", ForeignKey("partitions.id"), nullable=False),
    Column("position", BigInteger, nullable=False),
    PrimaryKeyConstraint("source_id", "epoch", "partition_id"),
    Index("bindings_by_position", "partition_id", "position"),
    sqlite_with_rowid=False,
)
"""The remap tables of all sources, as changes: at `epoch` the next position of the partition became `position`.

A partition keeps its position at the epochs in which it has no row, and is at 0 before its first.
"""

seals: Final = Table(
    "seals",
    metadata,
    Column("source_id", ForeignKey("sources.id"), primary_key=True),
    Column("epoch", BigInteger, nullable=False),
)
"""The sources that have ended, with the epoch from which nothing more will ever come."""

epochs: Final = Table(
    "epochs",
    metadata,
    Column("flow_id", ForeignKey("flows.id"), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("minted_at", Instant, nullable=False),
    Column("published_at", Instant, nullable=True),
    Column("write_id", String(32), nullable=False),
    PrimaryKeyConstraint("flow_id", "epoch"),
    Index("epochs_by_time", "flow_id", "minted_at"),
    sqlite_with_rowid=False,
)
"""The timeline. `minted_at` never goes back; `published_at` is NULL until every live output holds the epoch.

`write_id` is the lease token of the run that minted the epoch.
"""

outputs: Final = Table(
    "outputs",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("flow_id", ForeignKey("flows.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("config", Text, nullable=False),
    Column("failed_at", BigInteger, nullable=True),
    Column("failure", Text, nullable=True),
    UniqueConstraint("flow_id", "name"),
)
"""The outputs of a flow. How far each is, its own table says.

`failed_at` and `failure` (an error as JSON) say at which epoch the output failed in the last run that came to it, for
a reason of its own. Once its table holds that epoch they are NULL again.
"""
