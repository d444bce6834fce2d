"""Reading a flow back: everything at the start of a run, the timeline for people.

Invariant: each call sees one consistent view of the database. Bindings are taken from the database's own cursor in
pieces, because a million rows are too many to make objects of.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, select

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.flow import UnknownName
from tidegauge.remap.binding import Detail
from tidegauge.remap.store.columns import decode_schema
from tidegauge.remap.store.schema import bindings, epochs, flows, outputs, partitions, seals, sources
from tidegauge.remap.store.values import EpochRecord, FlowRecord, Loaded, LoadedOutput, LoadedSource
from tidegauge.remap.table import RemapTable

__all__ = ["find_flow", "load", "read_epoch_at", "read_epochs", "read_flow"]

_PIECE: Final = 20_000


def find_flow(connection: Connection, name: str) -> FlowRecord | None:
    """Return a flow, or None."""
    row = connection.execute(select(flows).where(flows.c.name == name)).one_or_none()
    return None if row is None else FlowRecord(row.id, row.name, row.incarnation, row.upper, row.published, row.since)


def read_flow(connection: Connection, name: str) -> FlowRecord:
    """Return a flow. Raises `UnknownName`."""
    flow = find_flow(connection, name)
    if flow is None:
        known = connection.scalars(select(flows.c.name).order_by(flows.c.name)).all()
        raise UnknownName(kind="flow", name=name, known=list(known))
    return flow


def load(connection: Connection, name: str) -> Loaded:
    """Return all that is known of a flow. Raises `UnknownName`, or `DamagedStore` for bindings that go back."""
    flow = read_flow(connection, name)
    sealed: dict[int, int] = {row.source_id: row.epoch for row in connection.execute(select(seals))}
    found_sources = connection.execute(select(sources).where(sources.c.flow_id == flow.id).order_by(sources.c.name))
    found_outputs = connection.execute(select(outputs).where(outputs.c.flow_id == flow.id).order_by(outputs.c.name))
    return Loaded(
        flow=flow,
        sources={row.name: _source(connection, flow, row, sealed.get(row.id)) for row in found_sources.all()},
        outputs={
            row.name: LoadedOutput(
                source=row.source,
                config=json.loads(row.config),
                failure=_failure(row),
            )
            for row in found_outputs
        },
    )


def _source(connection: Connection, flow: FlowRecord, row: Row[Any], sealed_at: int | None) -> LoadedSource:
    keys: dict[int, str] = {}
    details: dict[str, Detail] = {}
    where = partitions.c.source_id == row.id
    for found in connection.execute(select(partitions.c.id, partitions.c.key, partitions.c.detail).where(where)):
        keys[found.id] = found.key
        if found.detail is not None:
            details[found.key] = json.loads(found.detail)
    return LoadedSource(
        table=RemapTable.load(
            row.name, _changes(connection, row.id, keys), upper=flow.upper, since=flow.since, sealed_at=sealed_at
        ),
        details=details,
        schema=None if row.schema is None else decode_schema(row.schema),
        failure=_failure(row),
        config=json.loads(row.config),
        identity=row.identity or "",
    )


def _failure(row: Row[Any]) -> tuple[int, TidegaugeError] | None:
    return None if row.failure is None else (row.failed_at, TidegaugeError.decode(json.loads(row.failure)))


def _changes(connection: Connection, source_id: int, keys: Mapping[int, str]) -> Iterator[tuple[int, str, int]]:
    columns = (bindings.c.epoch, bindings.c.partition_id, bindings.c.position)
    result = connection.execute(
        select(*columns).where(bindings.c.source_id == source_id).order_by(bindings.c.epoch, bindings.c.partition_id)
    )
    cursor = result.cursor
    while cursor is not None and (piece := cursor.fetchmany(_PIECE)):
        for epoch, partition, position in piece:
            yield epoch, keys[partition], position
    result.close()


def read_epochs(
    connection: Connection, name: str, *, first: int | None, last: int | None, limit: int | None
) -> list[EpochRecord]:
    """Return the epochs from `first` to `last`, both included, ascending; with a limit, the newest of them."""
    flow = read_flow(connection, name)
    query = select(epochs.c.epoch, epochs.c.minted_at, epochs.c.published_at).where(epochs.c.flow_id == flow.id)
    if first is not None:
        query = query.where(epochs.c.epoch >= first)
    if last is not None:
        query = query.where(epochs.c.epoch <= last)
    found = connection.execute(query.order_by(epochs.c.epoch.desc()).limit(limit))
    return [EpochRecord(row.epoch, row.minted_at, row.published_at) for row in found][::-1]


def read_epoch_at(connection: Connection, name: str, time: datetime) -> int | None:
    """Return the last published epoch that was minted at or before a time, or None."""
    flow = read_flow(connection, name)
    there = (epochs.c.flow_id == flow.id) & (epochs.c.minted_at <= time) & (epochs.c.epoch < flow.published)
    newest_first = (epochs.c.minted_at.desc(), epochs.c.epoch.desc())
    return connection.scalar(select(epochs.c.epoch).where(there).order_by(*newest_first).limit(1))
