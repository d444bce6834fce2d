"""The tables of the store. They are documented and meant to be queried with plain SQL, best through the `views`.

Invariants: instants are text in UTC with microseconds (`2026-11-20T17:00:00.000000Z`), so that they sort and read the
same in every database; JSON is text; positions and epochs are 64-bit integers. Nothing is pickled, no secret is here.
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
    "LONGEST_NAME",
    "Instant",
    "Name",
    "Unreadable",
    "as_json",
    "changes",
    "count",
    "flows",
    "from_json",
    "holds",
    "incarnations",
    "leases",
    "losses",
    "metadata",
    "outputs",
    "partitions",
    "pauses",
    "seals",
    "source_states",
    "sources",
    "stalls",
    "store_layout",
    "timeline",
]

LAYOUT: Final = 14
"""The version of these tables. `migrate` has the way from each older one."""

LONGEST_NAME: Final = 1024
"""Bytes of a name in UTF-8. An entry of a PostgreSQL index must be shorter than 2700."""


class Unreadable(ValueError):
    """A stored value that no version has written. `Database` says it in our words."""


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
        return value.astimezone(UTC).isoformat(timespec="microseconds")[:26] + "Z"

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Return the datetime of a stored text."""
        if value is None:
            return None
        try:
            if (value[10], value[26:]) == ("T", "Z"):  # a tenth of what `strptime` takes
                return datetime.fromisoformat(value)
        except (ValueError, TypeError, IndexError):
            pass
        raise Unreadable(f"{value!r} is no time")


class Name(TypeDecorator[str]):
    """A name that every database returns unchanged: Unicode text without NUL, and short enough to be in an index."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ARG002
        """Return the name. Raises `InvalidArgument` for one that some database would refuse, or cut."""
        if value is not None and ("\0" in value or _length(value) > LONGEST_NAME):
            raise InvalidArgument(
                parameter="name", value=value, expected=f"at most {LONGEST_NAME} bytes of Unicode, none of them NUL"
            )
        return value

    def process_result_value(self, value: Any | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Return the stored name."""
        if value is not None and not isinstance(value, str):
            raise Unreadable(f"{value!r} is no name")
        return value


def _length(name: str) -> int:
    """Return the bytes of a name in UTF-8, more than any name may have where half a character is in it."""
    try:
        return len(name.encode())
    except UnicodeEncodeError:
        return LONGEST_NAME + 1


def as_json(value: Mapping[str, Any]) -> str:
    """Return JSON text with sorted keys. Raises `InvalidArgument` for what JSON cannot hold, such as NaN."""
    try:
        return json.dumps(dict(value), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(parameter="a stored value", value=str(error), expected="plain JSON values") from error


def from_json(text: Any) -> dict[str, Any]:
    """Return what `as_json` wrote. Raises `Unreadable`."""
    try:
        value = json.loads(text)
    except (TypeError, ValueError):
        value = None
    if not isinstance(value, dict):
        raise Unreadable(f"{text!r} is no JSON object")
    return value


def count(value: Any) -> int:
    """Return a stored number that cannot be negative. Raises `Unreadable`: SQLite keeps anything in any column."""
    if not isinstance(value, int) or value < 0:
        raise Unreadable(f"{value!r} is no epoch")
    return value


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
    Column("name", Name, nullable=False, unique=True),
    Column("incarnation", String(32), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("upper", BigInteger, nullable=False, default=0),
    Column("published", BigInteger, nullable=False, default=0),
    Column("since", BigInteger, nullable=False, default=0),
    Column("decisions", BigInteger, nullable=True),
    Column("rate", BigInteger, nullable=True),
)
"""The flows. Epochs below `upper` are bound, below `published` published; below `since` they are indistinguishable.

`incarnation` tells this flow from another of its name in another store, or in this one after it was removed.
`decisions` counts what people decided about its outputs while it may run; NULL for nothing. `rate`: how many rows a
second are read for late outputs; NULL for as many as there are, -1 for a rate that gives way to the live outputs.
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
"""The driver that runs a flow now: at most one each, renewed while it runs.

`boot` names the running kernel and the space of process ids in it, `process_started` is in clock ticks since the
boot.
"""

sources: Final = Table(
    "sources",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("flow_id", ForeignKey("flows.id"), nullable=False),
    Column("name", Name, nullable=False),
    Column("identity", Name),
    Column("config", Text, nullable=False),
    Column("schema", Text, nullable=True),
    Column("failed_at", BigInteger, nullable=True),
    Column("failure", Text, nullable=True),
    Column("clock", Text, nullable=True),
    Column("folded", BigInteger, nullable=True),
    UniqueConstraint("flow_id", "name"),
)
"""The sources of a flow, known by their names. `schema` is NULL until it is known, and that of the newest records.

`identity` is what upstream said of itself when it was first bound: another one later is another upstream. `failed_at`
and `failure` (an error as JSON) say from which epoch on the source has failed for good. `clock` is the kind of its
FromTime, set when it is first registered; NULL where an older version has registered it. `folded` is the last epoch
up to the flow's `since` at which the source moved; NULL while nothing was compacted, or it had not moved by then.
"""

incarnations: Final = Table(
    "incarnations",
    metadata,
    Column("source_id", ForeignKey("sources.id"), nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("began_at", BigInteger, nullable=False),
    Column("identity", Name),
    Column("at", Instant, nullable=False),
    Column("reason", Text, nullable=False),
    PrimaryKeyConstraint("source_id", "number"),
    sqlite_with_rowid=False,
)
"""The later lives of the sources' upstreams: `number` begins at the epoch `began_at`, with its partitions at 0 again.

Numbers count from 1, and greater ones do not begin earlier. A source without a row is in incarnation 0, which began
at epoch 0. The changes of a source from the greatest number's `began_at` on are those of the present incarnation.
"""

source_states: Final = Table(
    "source_states",
    metadata,
    Column("source_id", ForeignKey("sources.id"), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    PrimaryKeyConstraint("source_id", "epoch"),
    sqlite_with_rowid=False,
)
"""What sources keep in their bindings besides positions, as changes: from `epoch` on the state was `state`.

The canonical JSON of `remap.fromtime.SourceState`.
"""

partitions: Final = Table(
    "partitions",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("source_id", ForeignKey("sources.id"), nullable=False),
    Column("key", Name, nullable=False),
    Column("detail", Text, nullable=True),
    UniqueConstraint("source_id", "key"),
)
"""The partitions of a source: topic-partitions, files. `detail` holds the newest facts about each, as JSON."""

changes: Final = Table(
    "changes",
    metadata,
    Column("source_id", ForeignKey("sources.id"), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("partition_id", ForeignKey("partitions.id"), nullable=False),
    Column("position", BigInteger, nullable=False),
    PrimaryKeyConstraint("source_id", "epoch", "partition_id"),
    Index("changes_by_partition", "source_id", "partition_id", "epoch", "position"),
    sqlite_with_rowid=False,
)
"""The remap tables of all sources, as changes: at `epoch` the next position of the partition became `position`.

A partition keeps its position at epochs without a row, and is at 0 before its first one in each incarnation of its
source.
"""

seals: Final = Table(
    "seals",
    metadata,
    Column("source_id", ForeignKey("sources.id"), primary_key=True),
    Column("epoch", BigInteger, nullable=False),
)
"""The sources that have ended, with the epoch from which nothing more will ever come."""

timeline: Final = Table(
    "timeline",
    metadata,
    Column("flow_id", ForeignKey("flows.id"), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("minted_at", Instant, nullable=False),
    Column("published_at", Instant, nullable=True),
    Column("write_id", String(32), nullable=False),
    Column("digest", String(32), nullable=True),
    PrimaryKeyConstraint("flow_id", "epoch"),
    Index("timeline_by_time", "flow_id", "minted_at"),
    sqlite_with_rowid=False,
)
"""The epochs. `minted_at` never goes back; `published_at` is NULL until every live output holds the epoch.

`write_id` is drawn for each append: by it a driver recognises its own, when the answer to the commit was lost.
`digest` is that of the history up to the epoch (`remap.history`); NULL for epochs that a version without digests
bound, but the last of them.
"""

outputs: Final = Table(
    "outputs",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("flow_id", ForeignKey("flows.id"), nullable=False),
    Column("name", Name, nullable=False),
    Column("source", Name, nullable=False),
    Column("config", Text, nullable=False),
    Column("failed_at", BigInteger, nullable=True),
    Column("failure", Text, nullable=True),
    Column("held", BigInteger, nullable=True),
    Column("told", BigInteger, nullable=True),
    UniqueConstraint("flow_id", "name"),
)
"""The outputs of a flow. How far each is, its own table says.

`failed_at` and `failure` (an error as JSON) say at which epoch the output failed in the last run that came to it, for
a reason of its own. Once its table holds that epoch they are NULL again. `held`: the table at the place that `config`
names was seen to hold the epochs before it, and may hold more by now; NULL while none was. So a table that
has vanished is told from one that is yet to be made. `told`: its commits carry the losses up to this id, and
perhaps more; NULL while they carry none.
"""

holds: Final = Table(
    "holds",
    metadata,
    Column("flow_id", ForeignKey("flows.id"), nullable=False),
    Column("owner", Name, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("at", Instant, nullable=False),
    PrimaryKeyConstraint("flow_id", "owner"),
    sqlite_with_rowid=False,
)
"""Who needs old epochs to stay distinct: a flow's `since` does not pass the least `epoch` of its holds."""

pauses: Final = Table(
    "pauses",
    metadata,
    Column("flow_id", ForeignKey("flows.id"), nullable=False),
    Column("output", Name, nullable=False),
    Column("reason", String(16), nullable=False),
    Column("at", Instant, nullable=False),
    PrimaryKeyConstraint("flow_id", "output", "reason"),
    sqlite_with_rowid=False,
)
"""Why outputs are paused, since when: an output goes on when it has no row.

`reason`: `operator`, by hand; `drop` and `drop table`: it is to be dropped, with the lease. `add` pauses nothing: a
driver is to take the output in.
"""

stalls: Final = Table(
    "stalls",
    metadata,
    Column("flow_id", ForeignKey("flows.id"), nullable=False),
    Column("kind", String(6), nullable=False),
    Column("name", Name, nullable=False),
    Column("since", Instant, nullable=False),
    Column("error", Text, nullable=False),
    PrimaryKeyConstraint("flow_id", "kind", "name"),
    sqlite_with_rowid=False,
)
"""What the driver of a flow waits for at present: a `source` or an `output`, since when, and an error as JSON.

Of use while the flow is driven. The next driver takes back what one that died has left.
"""

losses: Final = Table(
    "losses",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("source_id", ForeignKey("sources.id"), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("partition", Name, nullable=False),
    Column("lower", BigInteger, nullable=False),
    Column("upper", BigInteger, nullable=False),
    Column("at", Instant, nullable=False),
    Column("code", String(16), nullable=False),
    Column("reason", Text, nullable=False),
)
"""What upstream no longer had and the user chose to go on without: the records `[lower, upper)` of a partition.

`epoch` is the one from which on they are missing, `code` that of the error which said so.
"""
