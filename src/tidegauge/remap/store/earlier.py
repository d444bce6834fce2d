"""The columns that sources had earlier, those of the records before the positions that were bound by then.

So the columns of a record follow from its position alone, at any time and for all readers (law 1), also after its
epoch was compacted into others. A link of the flow's history has the columns of a source with the first epoch that
binds records with them, so that a store which is lost gets this back, too (`bring_back_columns`).

Invariant: a row of `earlier_columns` is written with the columns that take effect, in one transaction, before any
record of theirs is bound. Of each partition with a position in `earlier_positions` the records before it have those
columns, unless an earlier row says so of others; a partition without one has none. Rows of incarnations that are over
say nothing of the present one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise

import pyarrow as pa
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    ForeignKey,
    PrimaryKeyConstraint,
    Table,
    Text,
    delete,
    func,
    insert,
    literal,
    select,
    update,
)

from tidegauge.remap.binding import EarlierColumns
from tidegauge.remap.history import Link, Moves
from tidegauge.remap.store.columns import decode_schema, encode_schema
from tidegauge.remap.store.lease import Lease, guard
from tidegauge.remap.store.schema import (
    Instant,
    Unreadable,
    changes,
    count,
    incarnations,
    metadata,
    partitions,
    source_states,
    sources,
)

__all__ = [
    "bring_back_columns",
    "columns_at",
    "earlier_columns",
    "earlier_positions",
    "read_earlier",
    "record_columns",
    "share_columns",
    "told_columns",
    "untold",
]

earlier_columns = Table(
    "earlier_columns",
    metadata,
    Column("source_id", ForeignKey("sources.id"), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("incarnation", BigInteger, nullable=False),
    Column("columns", Text, nullable=False),
    Column("at", Instant, nullable=False),
    PrimaryKeyConstraint("source_id", "epoch"),
    sqlite_with_rowid=False,
)
"""The columns that a source had before `epoch`, the first that was not bound when others took their place."""

earlier_positions = Table(
    "earlier_positions",
    metadata,
    Column("source_id", ForeignKey("sources.id"), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("partition_id", ForeignKey("partitions.id"), nullable=False),
    Column("position", BigInteger, nullable=False),
    PrimaryKeyConstraint("source_id", "epoch", "partition_id"),
    sqlite_with_rowid=False,
)
"""The records that had them: those of a partition before `position`. Compaction leaves it alone."""


def record_columns(connection: Connection, lease: Lease, found: Mapping[str, pa.Schema], at: datetime) -> None:
    """Let these columns of sources take effect with the first epoch that is not bound; see `Store.record_columns`."""
    upper = guard(connection, lease).upper
    for name, schema in found.items():
        where = (sources.c.flow_id == lease.flow_id) & (sources.c.name == name)
        row = connection.execute(select(sources.c.id, sources.c.schema).where(where)).one()
        text = encode_schema(schema)
        if row.schema is not None and row.schema != text:
            _keep(connection, row.id, row.schema, upper, at)
        connection.execute(update(sources).where(sources.c.id == row.id).values(schema=text))


def _keep(connection: Connection, source_id: int, columns: str, epoch: int, at: datetime) -> None:
    """Keep columns that others take the place of at an epoch. Nothing is kept where no record has them."""
    number, first = _life(connection, source_id, epoch)
    bound = (changes.c.source_id == source_id) & (changes.c.epoch >= first) & (changes.c.epoch < epoch)
    row = {"source_id": source_id, "epoch": epoch}
    there = select(earlier_columns.c.epoch).where(
        earlier_columns.c.source_id == source_id, earlier_columns.c.epoch == epoch
    )
    if connection.execute(there).first() is not None or connection.scalar(select(func.count()).where(bound)) == 0:
        return
    connection.execute(insert(earlier_columns).values(**row, incarnation=number, columns=columns, at=at))
    positions = (
        select(literal(source_id), literal(epoch), changes.c.partition_id, func.max(changes.c.position))
        .where(bound)
        .group_by(changes.c.partition_id)
    )
    connection.execute(insert(earlier_positions).from_select([*row, "partition_id", "position"], positions))


def _life(connection: Connection, source_id: int, epoch: int) -> tuple[int, int]:
    """Return the number of a source's incarnation right before an epoch, and the epoch at which it began."""
    known = select(incarnations.c.number, incarnations.c.began_at).where(
        incarnations.c.source_id == source_id, incarnations.c.began_at <= epoch
    )
    found = connection.execute(known.order_by(incarnations.c.number.desc()).limit(1)).first()
    return (0, 0) if found is None else (count(found.number), count(found.began_at))


def read_earlier(connection: Connection, flow_id: int) -> dict[int, tuple[EarlierColumns, ...]]:
    """Return the earlier columns of a flow's sources, by the source's number, in the order of time."""
    mine = select(sources.c.id).where(sources.c.flow_id == flow_id).scalar_subquery()
    rows = connection.execute(
        select(earlier_columns).where(earlier_columns.c.source_id.in_(mine)).order_by(earlier_columns.c.epoch)
    ).all()
    if not rows:
        return {}
    places: dict[tuple[int, int], dict[str, int]] = {}
    query = select(
        earlier_positions.c.source_id, earlier_positions.c.epoch, partitions.c.key, earlier_positions.c.position
    ).join(partitions, partitions.c.id == earlier_positions.c.partition_id)
    for source_id, epoch, key, position in connection.execute(query.where(earlier_positions.c.source_id.in_(mine))):
        places.setdefault((source_id, epoch), {})[key] = count(position)
    found: dict[int, tuple[EarlierColumns, ...]] = {}
    for row in rows:
        positions = places.get((row.source_id, row.epoch), {})
        one = EarlierColumns(count(row.epoch), _decoded(row.columns), count(row.incarnation), positions)
        found[row.source_id] = (*found.get(row.source_id, ()), one)
    return found


def _decoded(text: str) -> pa.Schema:
    try:
        return decode_schema(text)
    except (ValueError, KeyError, TypeError):
        raise Unreadable(f"{text!r} describes no columns") from None


def _known(connection: Connection, source_id: int, first: int = 0) -> list[tuple[int, str]]:
    """Return the epochs at which the columns of a source changed, from one on, each with those before."""
    query = select(earlier_columns.c.epoch, earlier_columns.c.columns).where(
        earlier_columns.c.source_id == source_id, earlier_columns.c.epoch > first
    )
    return [(epoch, columns) for epoch, columns in connection.execute(query.order_by(earlier_columns.c.epoch))]


def columns_at(connection: Connection, source_id: int, present: str, epoch: int) -> str:
    """Return the columns that the records of an epoch have, in the store's words. present: those of now."""
    return next((columns for _, columns in _known(connection, source_id, epoch)), present)


def told_columns(
    connection: Connection, source_id: int, present: str, began: int, entered: int | None
) -> dict[int, str]:
    """Return the epochs whose links tell the columns of a source, with what they tell.

    Those are the first one that binds anything of its present incarnation, at `entered`, and the first one that
    binds records with other columns than before.
    """
    if entered is None:
        return {}
    known = [(at, columns) for at, columns in _known(connection, source_id, began) if at > entered]
    told = {entered: known[0][1] if known else present}
    for (at, _), (_, after) in pairwise([*known, (0, present)]):
        moved = _moved(connection, source_id, at)
        if moved is not None:
            told[moved] = after
    return told


def untold(connection: Connection, source_id: int) -> bool:
    """Whether nothing is bound yet of the records that have the present columns, while others have earlier ones."""
    last = connection.scalar(
        select(func.max(earlier_columns.c.epoch)).where(earlier_columns.c.source_id == source_id)
    )
    return last is not None and _moved(connection, source_id, last) is None


def _moved(connection: Connection, source_id: int, first: int) -> int | None:
    """Return the first epoch from one on that binds anything of a source."""
    found = [
        connection.scalar(
            select(func.min(table.c.epoch)).where(table.c.source_id == source_id, table.c.epoch >= first)
        )
        for table in (changes, source_states)
    ]
    return min((epoch for epoch in found if epoch is not None), default=None)


def share_columns(connection: Connection, source_id: int, owner_id: int, present: str, upper: int) -> bool:
    """Have a source get the columns that another one's records have, whose bindings it has before the epoch `upper`.

    present: those of the other one now. Changes that the other one will have bound nothing of by then come later.
    Returns whether the source has had others until now.
    """
    wanted = [(epoch, columns) for epoch, columns in _known(connection, owner_id) if epoch <= upper]
    schema = columns_at(connection, owner_id, present, upper)
    mine = sources.c.id == source_id
    before = connection.scalar(select(sources.c.schema).where(mine))
    if before == schema and _known(connection, source_id) == wanted:
        return False
    forget_after(connection, source_id, -1)
    connection.execute(update(sources).where(mine).values(schema=schema))
    theirs = (earlier_columns.c.source_id == owner_id) & (earlier_columns.c.epoch <= upper)
    others = [one for one in earlier_columns.c if one.name != "source_id"]
    names = ["source_id", *(one.name for one in others)]
    copied = select(literal(source_id), *others).where(theirs)
    connection.execute(insert(earlier_columns).from_select(names, copied))
    there, here = partitions.alias("there"), partitions.alias("here")
    places = (
        select(literal(source_id), earlier_positions.c.epoch, here.c.id, earlier_positions.c.position)
        .join(there, there.c.id == earlier_positions.c.partition_id)
        .join(here, (here.c.source_id == source_id) & (here.c.key == there.c.key))
        .where(earlier_positions.c.source_id == owner_id, earlier_positions.c.epoch <= upper)
    )
    names = ["source_id", "epoch", "partition_id", "position"]
    connection.execute(insert(earlier_positions).from_select(names, places))
    return before is not None


def forget_after(connection: Connection, source_id: int, cut: int) -> None:
    """Forget which columns others took the place of after an epoch."""
    for table in (earlier_positions, earlier_columns):
        connection.execute(delete(table).where(table.c.source_id == source_id, table.c.epoch > cut))


def bring_back_columns(
    connection: Connection, source_id: int, moves: Sequence[tuple[Link, Moves]], *, cut: int, at: datetime
) -> None:
    """Keep what links tell of the columns of a source, whose bindings from the epoch `cut` on are those of the links.

    Those are written. What the links have last is what the source has then: its flow may declare others since.
    """
    known = connection.scalar(select(sources.c.schema).where(sources.c.id == source_id)) or ""
    present = columns_at(connection, source_id, known, cut) if cut else ""
    forget_after(connection, source_id, cut if cut else -1)
    for link, one in moves:
        if one.schema and present and one.schema != present:
            _keep(connection, source_id, present, link.epoch, at)
        present = one.schema or present
    if present and present != known:
        connection.execute(update(sources).where(sources.c.id == source_id).values(schema=present))
