"""Writing links of a flow's history (`remap.history`) into the store, many epochs at once.

A link says the same wherever it is read, so a timeline that comes from elsewhere (the flow's tables, a flow that is
followed) is written as its links. Invariant: what `chain.read_links` reads back of the epochs are the links that were
written. The caller has the lease, and writes the timeline itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Table, bindparam, delete, func, insert, select, update

from tidegauge.remap.history import Beginning, Link, Moves
from tidegauge.remap.store.schema import (
    as_json,
    changes,
    incarnations,
    partitions,
    seals,
    source_states,
    sources,
)

__all__ = ["insert_rows", "write_moves"]

_PIECE: Final = 10_000


def write_moves(connection: Connection, source_id: int, moves: Sequence[tuple[Link, Moves]]) -> None:
    """Write what links have of one source, in their order. Of its failure the caller knows."""
    details = {key: detail for _, one in moves for key, detail in one.details.items()}
    for _, one in moves:
        if one.begun:  # the facts of partitions are those of the newest incarnation
            details = dict(one.details)
        elif one.details:
            details |= one.details
    wanted = {key for _, one in moves for key in one.positions} | details.keys()
    ids = {
        row.key: row.id
        for row in connection.execute(
            select(partitions.c.key, partitions.c.id).where(partitions.c.source_id == source_id)
        )
    }
    insert_rows(connection, partitions, [{"source_id": source_id, "key": key} for key in sorted(wanted - ids.keys())])
    ids = {
        row.key: row.id
        for row in connection.execute(
            select(partitions.c.key, partitions.c.id).where(partitions.c.source_id == source_id)
        )
    }
    mine = sources.c.id == source_id
    if any(one.begun for _, one in moves):  # what the store has of the source is of an older upstream: see `begin`
        connection.execute(update(sources).where(mine).values(identity=None))
        connection.execute(delete(seals).where(seals.c.source_id == source_id))
        connection.execute(update(partitions).where(partitions.c.source_id == source_id).values(detail=None))
    if details:
        change = update(partitions).where(partitions.c.id == bindparam("number")).values(detail=bindparam("text"))
        connection.execute(change, [{"number": ids[key], "text": as_json(detail)} for key, detail in details.items()])
    rows = [
        {"source_id": source_id, "epoch": link.epoch, "partition_id": ids[key], "position": position}
        for link, one in moves
        for key, position in one.positions.items()
    ]
    insert_rows(connection, changes, rows)
    told = [
        {"source_id": source_id, "epoch": k.epoch, "state": one.state} for k, one in moves if one.state is not None
    ]
    insert_rows(connection, source_states, told)
    begun = [_beginning(source_id, link.epoch, life) for link, one in moves for life in one.begun]
    insert_rows(connection, incarnations, begun)
    ends = [link.epoch for link, one in moves if one.sealed]
    later = max((link.epoch for link, one in moves if one.begun), default=-1)
    if ends and ends[-1] >= later:
        connection.execute(delete(seals).where(seals.c.source_id == source_id))
        connection.execute(insert(seals).values(source_id=source_id, epoch=ends[-1]))
    _tell(connection, source_id, moves)


def _tell(connection: Connection, source_id: int, moves: Sequence[tuple[Link, Moves]]) -> None:
    """Write what the links say of the source itself: its columns, its upstream, when it had moved by `since`."""
    mine = sources.c.id == source_id
    schema = next((one.schema for _, one in moves if one.schema), None)
    if schema is not None:
        connection.execute(update(sources).where(mine, sources.c.schema.is_(None)).values(schema=schema))
    identity = next((one.identity for _, one in reversed(moves) if one.identity or one.begun), None)
    if identity:
        connection.execute(update(sources).where(mine).values(identity=identity))
        last = select(func.max(incarnations.c.number)).where(incarnations.c.source_id == source_id).scalar_subquery()
        newest = (incarnations.c.source_id == source_id) & (incarnations.c.number == last)
        connection.execute(update(incarnations).where(newest).values(identity=identity))
    if moves[0][0].whole:
        connection.execute(update(sources).where(mine).values(folded=moves[0][1].moved))


def _beginning(source_id: int, epoch: int, life: Beginning) -> dict[str, Any]:
    return {
        "source_id": source_id,
        "number": life.number,
        "began_at": epoch,
        "identity": life.identity or None,
        "at": datetime.fromisoformat(life.at),
        "reason": life.reason,
    }


def insert_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows in pieces; none for none."""
    for first in range(0, len(rows), _PIECE):
        connection.execute(insert(table), rows[first : first + _PIECE])
