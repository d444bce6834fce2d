"""What a flow is made of: its sources and outputs, their columns, their failures.

Invariants: names are identity (law 8), so registering is "make it so", as often as one likes; a source's columns are
set once; a failure stays until it is cleared, so it survives a restart (of several, the one at the least
epoch counts).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, Row, Table, insert, select, update

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.flow import UnknownName
from tidegauge.errors.store import OutputMoved, SchemaChanged
from tidegauge.remap.store.columns import decode_schema, differences, encode_schema
from tidegauge.remap.store.lease import Lease, guard
from tidegauge.remap.store.schema import as_json, outputs, sources
from tidegauge.remap.store.values import OutputSpec, SourceSpec

__all__ = ["clear_failure", "record_failure", "record_output", "record_schema", "register"]


def register(
    connection: Connection, lease: Lease, described: Mapping[str, SourceSpec], planned: Mapping[str, OutputSpec]
) -> None:
    """Make the sources and outputs known; see `Store.register`."""
    guard(connection, lease)
    for name, spec in described.items():
        text = None if spec.schema is None else encode_schema(spec.schema)
        values = {"config": as_json(spec.config)}
        known = _find(connection, sources, lease, name)
        if known is None:
            new = {"flow_id": lease.flow_id, "name": name, "schema": text, **values}
            connection.execute(insert(sources).values(**new))
            continue
        if spec.schema is not None and _settle(known, spec.schema):
            values["schema"] = str(text)
        connection.execute(update(sources).where(sources.c.id == known.id).values(**values))
    for name, plan in planned.items():
        values = {"source": plan.source, "config": as_json(plan.config)}
        known = _find(connection, outputs, lease, name)
        if known is None:
            new = {"flow_id": lease.flow_id, "name": name, "upper": 0, "rows": 0, "bytes": 0, **values}
            connection.execute(insert(outputs).values(**new))
        elif known.source != plan.source and known.config == values["config"]:
            raise OutputMoved(output=name, before=known.source, now=plan.source)
        else:
            connection.execute(update(outputs).where(outputs.c.id == known.id).values(**values))


def record_schema(connection: Connection, lease: Lease, source: str, schema: pa.Schema) -> None:
    """Set the columns of a source; see `Store.record_schema`."""
    guard(connection, lease)
    known = _get(connection, sources, lease, source)
    if _settle(known, schema):
        connection.execute(update(sources).where(sources.c.id == known.id).values(schema=encode_schema(schema)))


def record_failure(connection: Connection, lease: Lease, source: str, epoch: int, error: TidegaugeError) -> None:
    """Note that a source has failed for good; see `Store.record_failure`."""
    guard(connection, lease)
    known = _get(connection, sources, lease, source)
    if known.failure is None or epoch < known.failed_at:
        values = {"failed_at": epoch, "failure": as_json(error.encode())}
        connection.execute(update(sources).where(sources.c.id == known.id).values(**values))


def clear_failure(connection: Connection, lease: Lease, source: str) -> None:
    """Forget a failure; see `Store.clear_failure`."""
    guard(connection, lease)
    known = _get(connection, sources, lease, source)
    connection.execute(update(sources).where(sources.c.id == known.id).values(failed_at=None, failure=None))


def record_output(
    connection: Connection, lease: Lease, output: str, *, upper: int, rows: int, size: int, schema: pa.Schema | None
) -> None:
    """Copy what an output's table says; see `Store.record_output`."""
    guard(connection, lease)
    known = _get(connection, outputs, lease, output)
    values: dict[str, Any] = {"upper": upper, "rows": rows, "bytes": size}
    if schema is not None:
        values["schema"] = encode_schema(schema)
    connection.execute(update(outputs).where(outputs.c.id == known.id).values(**values))


def _settle(known: Row[Any], schema: pa.Schema) -> bool:
    """Whether the columns are yet to be set. Raises `SchemaChanged` when they are, to something else."""
    if known.schema is None:
        return True
    changed = differences(decode_schema(known.schema), schema)
    if changed:
        raise SchemaChanged(source=known.name, differences=changed)
    return False


def _find(connection: Connection, table: Table, lease: Lease, name: str) -> Row[Any] | None:
    where = (table.c.flow_id == lease.flow_id) & (table.c.name == name)
    return connection.execute(select(table).where(where)).one_or_none()


def _get(connection: Connection, table: Table, lease: Lease, name: str) -> Row[Any]:
    found = _find(connection, table, lease, name)
    if found is None:
        known = connection.scalars(select(table.c.name).where(table.c.flow_id == lease.flow_id)).all()
        raise UnknownName(kind=table.name.removesuffix("s"), name=name, known=sorted(known))
    return found
