"""Reading a flow back: everything at the start of a run, the timeline for people.

Invariant: each call sees one consistent view of the database. Bindings are taken from the database's own cursor in
pieces, because a million rows are too many to make objects of; who has loaded a flow before reads those that are new
(`growing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
from sqlalchemy import Connection, Row, bindparam, select

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.flow import UnknownName
from tidegauge.errors.store import DamagedStore, EpochBelowSince, EpochNotMinted
from tidegauge.remap.binding import Detail, EarlierColumns
from tidegauge.remap.fromtime.polled import SourceState
from tidegauge.remap.log import columns_of_rows
from tidegauge.remap.store import incarnations
from tidegauge.remap.store.backfills import read_backfills
from tidegauge.remap.store.chain import digest_before
from tidegauge.remap.store.codes import read_codes
from tidegauge.remap.store.columns import decode_schema
from tidegauge.remap.store.decisions import read_decisions
from tidegauge.remap.store.earlier import read_earlier
from tidegauge.remap.store.growing import goes_on, grown
from tidegauge.remap.store.losses import read_gaps
from tidegauge.remap.store.register import read_stalls
from tidegauge.remap.store.schema import (
    Unreadable,
    changes,
    count,
    flows,
    from_json,
    outputs,
    partitions,
    seals,
    sources,
    timeline,
)
from tidegauge.remap.store.starts import read_starts
from tidegauge.remap.store.values import EpochRecord, FlowRecord, Incarnation, Loaded, LoadedOutput, LoadedSource
from tidegauge.remap.table import LARGEST, RemapTable
from tidegauge.remap.times import EpochTimes

__all__ = [
    "find_flow",
    "load",
    "load_tables",
    "read_epoch_at",
    "read_epochs",
    "read_flow",
    "read_state",
    "read_times",
]

_PIECE: Final = 20_000
_CHANGES: Final = (
    select(changes.c.epoch, changes.c.partition_id, changes.c.position)
    .where(changes.c.source_id == bindparam("source"))
    .order_by(changes.c.epoch, changes.c.partition_id)
)
"""Of one source; made once, which takes longer than to run it."""


def find_flow(connection: Connection, name: str) -> FlowRecord | None:
    """Return a flow, or None."""
    row = connection.execute(select(flows).where(flows.c.name == name)).one_or_none()
    if row is None:
        return None
    return FlowRecord(row.id, row.name, row.incarnation, count(row.upper), count(row.published), count(row.since))


def read_flow(connection: Connection, name: str) -> FlowRecord:
    """Return a flow. Raises `UnknownName`."""
    flow = find_flow(connection, name)
    if flow is None:
        known = connection.scalars(select(flows.c.name).order_by(flows.c.name)).all()
        raise UnknownName(kind="flow", name=name, known=[str(one) for one in known])
    return flow


def load(connection: Connection, name: str) -> Loaded:
    """Return all that is known of a flow. Raises `UnknownName`, or `DamagedStore` for bindings that go back."""
    flow = read_flow(connection, name)
    return _loaded(connection, flow, _whole(connection, flow, _sources(connection, flow), facts=True))


def load_tables(connection: Connection, name: str, known: Loaded | None) -> Loaded:
    """Return what `load` returns, without the facts of partitions; see `Store.load_tables`."""
    flow = read_flow(connection, name)
    found = _sources(connection, flow)
    tables = None if known is None else _grown(connection, flow, found, known)
    return _loaded(connection, flow, tables or _whole(connection, flow, found, facts=False))


def _loaded(connection: Connection, flow: FlowRecord, found: Mapping[str, LoadedSource]) -> Loaded:
    begun, made_by = read_starts(connection, flow.id), read_codes(connection, flow.id)
    found_outputs = connection.execute(select(outputs).where(outputs.c.flow_id == flow.id).order_by(outputs.c.name))
    return Loaded(
        flow=flow,
        sources=found,
        outputs={
            row.name: LoadedOutput(
                source=row.source,
                config=from_json(row.config),
                failure=_failure(row),
                held=0 if row.held is None else count(row.held),
                start=begun.get(row.name),
                codes=made_by.get(row.name, ()),
            )
            for row in found_outputs
        },
        gaps=read_gaps(connection, flow.name),
        stalls=read_stalls(connection, flow.id),
        backfills=read_backfills(connection, flow.id),
        decisions=read_decisions(connection, flow.id),
        digest=digest_before(connection, flow.id, flow.incarnation, flow.upper),
    )


@dataclass(frozen=True, slots=True)
class _Sources:
    """What there is of a flow's sources but their bindings. By the source's number, but `rows`."""

    rows: Sequence[Row[Any]]
    lives: Mapping[int, tuple[Incarnation, ...]]
    states: Mapping[int, tuple[int, str]]
    sealed: Mapping[int, int]
    earlier: Mapping[int, tuple[EarlierColumns, ...]]

    def source(
        self, row: Row[Any], table: RemapTable, past: tuple[RemapTable, ...], details: Mapping[str, Detail]
    ) -> LoadedSource:
        """Return a source, given the tables of its incarnations."""
        lives, last = self.lives.get(row.id, ()), self.states.get(row.id)
        began = lives[-1].began_at if lives else 0
        return LoadedSource(
            table=table,
            details=details,
            schema=None if row.schema is None else _schema(row.schema),
            failure=_failure(row),
            config=from_json(row.config),
            identity=row.identity or "",
            folded=None if row.folded is None else count(row.folded),
            state=None if last is None or last[0] < began else incarnations.decoded(last[1]),
            incarnations=lives,
            past=past,
            earlier=self.earlier.get(row.id, ()),
        )


def _sources(connection: Connection, flow: FlowRecord) -> _Sources:
    mine = select(sources).where(sources.c.flow_id == flow.id).order_by(sources.c.name)
    return _Sources(
        rows=connection.execute(mine).all(),
        lives=incarnations.read_all(connection, flow.id),
        states=incarnations.newest_states(connection, flow.id),
        sealed={row.source_id: row.epoch for row in connection.execute(select(seals))},
        earlier=read_earlier(connection, flow.id),
    )


def _whole(connection: Connection, flow: FlowRecord, found: _Sources, *, facts: bool) -> dict[str, LoadedSource]:
    """Return the sources with all their bindings. facts: those of partitions as well."""
    partitions_of = _partitions(connection, flow.id)
    whole = {}
    for row in found.rows:
        parts = partitions_of.get(row.id, ())
        began = [one.began_at for one in found.lives.get(row.id, ())]
        keys = {part.id: part.key for part in parts}
        *past, table = _tables(connection, flow, row, keys, began, found.sealed.get(row.id))
        told = {part.key: from_json(part.detail) for part in parts if facts and part.detail is not None}
        whole[row.name] = found.source(row, table, tuple(past), told)
    return whole


def _grown(
    connection: Connection, flow: FlowRecord, found: _Sources, known: Loaded
) -> dict[str, LoadedSource] | None:
    """Return the sources with the known bindings and those since; None where they do not go on from these."""
    lives = {row.name: found.lives.get(row.id, ()) for row in found.rows}
    sealed = {row.name: found.sealed.get(row.id) for row in found.rows}
    if not goes_on(connection, known, flow, lives, sealed):
        return None
    tables = {}
    for row in found.rows:
        before = known.sources[row.name]
        table = grown(connection, row.id, before.table, upper=flow.upper, sealed_at=sealed[row.name])
        if table is None:
            return None
        tables[row.name] = found.source(row, table, before.past, {})
    return tables


def _partitions(connection: Connection, flow_id: int) -> dict[int, list[Any]]:
    """Return the partitions of a flow's sources, by the source's number."""
    columns = (partitions.c.source_id, partitions.c.id, partitions.c.key, partitions.c.detail)
    mine = partitions.c.source_id == sources.c.id
    found: dict[int, list[Any]] = {}
    for row in connection.execute(select(*columns).join(sources, mine).where(sources.c.flow_id == flow_id)):
        found.setdefault(row.source_id, []).append(row)
    return found


def _tables(
    connection: Connection,
    flow: FlowRecord,
    row: Row[Any],
    keys: Mapping[int, str],
    began: list[int],
    sealed_at: int | None,
) -> Iterator[RemapTable]:
    """Yield the tables of a source's incarnations in their order; the last one is that of the present."""
    if began != sorted(began) or began[-1:] > [flow.upper]:
        raise DamagedStore(source=row.name, detail=f"its incarnations begin at the epochs {began}")
    names, *columns = columns_of_rows(row.name, keys, _changes(connection, row.id))
    cuts = [0, *columns[0].searchsorted(began).tolist(), len(columns[0])]
    for number, ((first, last), upper) in enumerate(zip(pairwise(cuts), [*began, flow.upper], strict=True)):
        yield RemapTable.of_columns(
            row.name,
            names,
            *(column[first:last] for column in columns),
            upper=upper,
            since=min(flow.since, upper),
            sealed_at=sealed_at if number == len(began) else None,
        )


def _failure(row: Row[Any]) -> tuple[int, TidegaugeError] | None:
    if row.failure is None:
        return None
    try:
        return count(row.failed_at), TidegaugeError.decode(from_json(row.failure))
    except (KeyError, TypeError):
        raise Unreadable(f"{row.failure!r} is no error") from None


def _schema(text: str) -> pa.Schema:
    try:
        return decode_schema(text)
    except (ValueError, KeyError, TypeError):
        raise Unreadable(f"{text!r} describes no columns") from None


def _changes(connection: Connection, source_id: int) -> Iterator[Sequence[tuple[int, int, int]]]:
    result = connection.execute(_CHANGES, {"source": source_id})
    cursor = result.cursor
    while cursor is not None and (piece := cursor.fetchmany(_PIECE)):
        yield piece
    result.close()


def read_state(connection: Connection, name: str, source: str, epoch: int) -> SourceState | None:
    """Return the state that a source had at an epoch; see `Store.state_at`."""
    flow = read_flow(connection, name)
    known = {
        row.name: row.id
        for row in connection.execute(select(sources.c.id, sources.c.name).where(sources.c.flow_id == flow.id))
    }
    if source not in known:
        raise UnknownName(kind="source", name=source, known=sorted(known))
    if epoch < flow.since:
        raise EpochBelowSince(source=source, epoch=epoch, since=flow.since)
    if epoch >= flow.upper:
        raise EpochNotMinted(source=source, epoch=epoch, upper=flow.upper)
    began = [one.began_at for one in incarnations.read(connection, known[source]) if one.began_at <= epoch]
    state = incarnations.state_at(connection, known[source], first=max(began, default=0), last=epoch)
    return None if state is None else incarnations.decoded(state)


def read_epochs(
    connection: Connection, name: str, *, first: int | None, last: int | None, limit: int | None
) -> list[EpochRecord]:
    """Return the epochs from `first` to `last`, both included, ascending; with a limit, the newest of them."""
    flow = read_flow(connection, name)
    query = select(timeline.c.epoch, timeline.c.minted_at, timeline.c.published_at).where(
        timeline.c.flow_id == flow.id
    )
    if first is not None:
        query = query.where(timeline.c.epoch >= _bigint(first))
    if last is not None:
        query = query.where(timeline.c.epoch <= _bigint(last))
    found = connection.execute(query.order_by(timeline.c.epoch.desc()).limit(limit))
    return [EpochRecord(row.epoch, row.minted_at, row.published_at) for row in found][::-1]


def _bigint(epoch: int) -> int:
    """Return the epoch, or the furthest on its side that there can be: a database compares no others."""
    return max(-LARGEST, min(epoch, LARGEST))


def read_epoch_at(connection: Connection, name: str, time: datetime) -> int | None:
    """Return the last published epoch that was minted at or before a time, or None."""
    flow = read_flow(connection, name)
    there = (timeline.c.flow_id == flow.id) & (timeline.c.minted_at <= time) & (timeline.c.epoch < flow.published)
    newest_first = (timeline.c.minted_at.desc(), timeline.c.epoch.desc())
    return connection.scalar(select(timeline.c.epoch).where(there).order_by(*newest_first).limit(1))


def read_times(connection: Connection, name: str) -> EpochTimes:
    """Return when every epoch of a flow was minted."""
    flow = read_flow(connection, name)
    result = connection.execute(
        select(timeline.c.minted_at).where(timeline.c.flow_id == flow.id).order_by(timeline.c.epoch)
    )
    cursor = result.cursor
    times = EpochTimes.load([] if cursor is None else (row[0] for row in cursor.fetchall()))
    result.close()
    return times
