"""The bindings of a stretch of the timeline, as one Arrow table.

Invariant: one row for each change of a stored remap table, `position` being what the partition came to and `lower`
where it had been in the same incarnation; so the row stands for the records `[lower, position)`, all of them of
`epoch`.

Each question is answered by the indexes: one epoch of a million is read like one of ten. Only integers are read for
each row; names and times are read once each, and joined to them as columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
from sqlalchemy import ColumnElement, Connection, Select, func, select

from tidegauge.errors.flow import UnknownName
from tidegauge.errors.store import DamagedStore
from tidegauge.remap.index import Vector, by_partition
from tidegauge.remap.store.read import read_flow
from tidegauge.remap.store.schema import changes, incarnations, partitions, sources, timeline
from tidegauge.remap.table import LARGEST

__all__ = ["BINDINGS", "read_bindings"]

_CHANGE: Final = (changes.c.source_id, changes.c.epoch, changes.c.partition_id, changes.c.position)
_INSTANT: Final = pa.timestamp("us", "UTC")
_PIECE: Final = 20_000

BINDINGS: Final = pa.schema(
    [
        ("source", pa.string()),
        ("incarnation", pa.int64()),
        ("epoch", pa.int64()),
        ("partition", pa.string()),
        ("position", pa.int64()),
        ("lower", pa.int64()),
        ("minted_at", _INSTANT),
        ("published_at", _INSTANT),
    ]
)
"""The columns. `published_at` is null where the epoch is not published."""


def read_bindings(
    connection: Connection, name: str, *, source: str | None, first: int | None, last: int | None
) -> pa.Table:
    """Return the bindings of the epochs from `first` to `last`, both included, of one source or of all.

    Sorted by epoch, then source, then partition. Raises `UnknownName`, or `DamagedStore`.
    """
    flow = read_flow(connection, name)
    known = connection.execute(
        select(sources.c.id, sources.c.name).where(sources.c.flow_id == flow.id).order_by(sources.c.id)
    ).all()
    owners = sorted((row.name, row.id) for row in known if source in (None, row.name))
    if source is not None and not owners:
        raise UnknownName(kind="source", name=source, known=sorted(row.name for row in known))
    damaged = partial(DamagedStore, source=", ".join(name for name, _ in owners))
    lowest, highest = _epoch(first, 0), _epoch(last, LARGEST)
    these = changes.c.source_id.in_([id_ for _, id_ in owners]) & changes.c.epoch.between(lowest, highest)
    rows = _integers(_rows(connection, select(*_CHANGE).where(these)), damaged)
    moved = sorted((row.key, row.id, row.lower or 0) for row in connection.execute(_moved(these)))
    of = _places([id_ for _, id_ in owners], rows[0], damaged(detail="a binding is of a source that is not there"))
    which = _places(
        [id_ for _, id_, _ in moved], rows[2], damaged(detail="a binding is of a partition that is not there")
    )
    order = np.lexsort((which, of, rows[1]))
    of, which, (_, at, _, positions) = of[order], which[order], rows[:, order]
    lives = _lives(connection, owners, of, at)
    there = (timeline.c.flow_id == flow.id) & timeline.c.epoch.between(lowest, highest)
    instants = _rows(connection, select(timeline.c.epoch, timeline.c.minted_at, timeline.c.published_at).where(there))
    columns = (
        pa.array([name for name, _ in owners], pa.string()).take(pa.array(of)),
        lives,
        at,
        pa.array([key for key, _, _ in moved], pa.string()).take(pa.array(which)),
        positions,
        _lowers(which, lives, positions, np.array([n for *_, n in moved], np.int64)),
        *_times([*instants], at, damaged),
    )
    return pa.table([*columns], schema=BINDINGS)


def _epoch(given: int | None, otherwise: int) -> int:
    """Return the epoch, or the furthest on its side that a database compares."""
    return otherwise if given is None else max(-1, min(given, LARGEST))


def _moved(these: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    """Ask for the partitions of some bindings, and where each was before the first of them, NULL at its origin."""
    owner = (changes.c.partition_id + 0).label(
        "partition_id"
    )  # or SQLite reads all, to have them grouped by the index
    found = select(owner, func.min(changes.c.epoch).label("first")).where(these).group_by(owner).subquery()
    earlier = changes.alias("earlier")
    began = (
        select(func.coalesce(func.max(incarnations.c.began_at), 0))
        .where(incarnations.c.source_id == partitions.c.source_id, incarnations.c.began_at <= found.c.first)
        .correlate(partitions, found)
    )
    before = (
        select(earlier.c.position)
        .where(earlier.c.source_id == partitions.c.source_id, earlier.c.partition_id == partitions.c.id)
        .where(earlier.c.epoch < found.c.first)
        .where(earlier.c.epoch >= began.scalar_subquery())
        .order_by(earlier.c.epoch.desc())
        .limit(1)
    )
    return select(partitions.c.id, partitions.c.key, before.scalar_subquery().label("lower")).join(
        found, found.c.partition_id == partitions.c.id
    )


def _rows(connection: Connection, query: Select[*tuple[Any, ...]]) -> Iterator[Sequence[Any]]:
    """Yield rows as the driver gives them: there may be too many to make objects of."""
    result = connection.execute(query)
    cursor = result.cursor
    while cursor is not None and (piece := cursor.fetchmany(_PIECE)):
        yield from piece
    result.close()


def _integers(rows: Iterator[Sequence[Any]], damaged: Callable[..., DamagedStore]) -> Vector:
    """Return the bindings as columns."""
    pieces = [np.empty((0, len(_CHANGE)), np.int64)]
    while piece := list(islice(rows, _PIECE)):
        pieces.append(np.array(piece))
    if any(piece.dtype != np.int64 for piece in pieces):
        raise damaged(detail="a binding has a value that is no integer of 64 bits")
    return np.concatenate(pieces).T


def _places(known: Sequence[int], sought: Vector, otherwise: DamagedStore) -> Vector:
    """Return where each number is among those that are known, each once. Raises `otherwise` when it is not."""
    numbers = np.array(known, np.int64)
    ascending = np.argsort(numbers)
    places = numbers.searchsorted(sought, sorter=ascending)
    if len(sought) and (places.max() == len(numbers) or (numbers[ascending[places]] != sought).any()):
        raise otherwise
    return ascending[places] if len(sought) else places


def _lives(connection: Connection, owners: Sequence[tuple[str, int]], of: Vector, at: Vector) -> Vector:
    """Return the incarnation that its source was in at the epoch of each row."""
    lives = np.zeros(len(at), np.int64)
    began = select(incarnations.c.source_id, incarnations.c.number, incarnations.c.began_at)
    known = [id_ for _, id_ in owners]
    for source_id, number, epoch in connection.execute(
        began.where(incarnations.c.source_id.in_(known)).order_by(incarnations.c.number)
    ):
        lives[(of == known.index(source_id)) & (at >= epoch)] = number
    return lives


def _lowers(which: Vector, lives: Vector, positions: Vector, firsts: Vector) -> Vector:
    """Return where each row's partition was before it in its incarnation, given the rows by their epochs."""
    order = by_partition(which, len(firsts))
    owners = which[order]
    before = firsts[owners]
    np.copyto(before[1:], positions[order][:-1], where=owners[1:] == owners[:-1])
    before[1:][(owners[1:] == owners[:-1]) & (lives[order][1:] != lives[order][:-1])] = 0
    lowers = np.empty_like(before)
    lowers[order] = before
    return lowers


def _times(instants: Sequence[Sequence[Any]], at: Vector, damaged: Callable[..., DamagedStore]) -> Iterator[pa.Array]:
    """Yield when the epochs of the rows were minted, and when published."""
    known, *texts = zip(*instants, strict=True) if instants else ((), (), ())
    places = pa.array(_places(known, at, damaged(detail="an epoch is bound that was never minted")))
    for column in texts:
        try:
            yield pa.array(column, pa.string()).cast(_INSTANT).take(places)
        except pa.ArrowInvalid as error:
            raise damaged(detail=f"an epoch has a time that is none: {error}") from error
