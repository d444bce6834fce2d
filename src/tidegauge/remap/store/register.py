"""What a flow is made of: its sources and outputs, and the sources' columns.

Invariants: names are identity (law 8), so registering is "make it so", as often as one likes; a source's columns are
set once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, Row, Table, insert, select, update

from tidegauge.errors.flow import UnknownName
from tidegauge.errors.store import ClockChanged, OutputMoved, SchemaChanged
from tidegauge.remap.store.columns import decode_schema, differences, encode_schema
from tidegauge.remap.store.lease import Lease, guard
from tidegauge.remap.store.schema import as_json, outputs, sources
from tidegauge.remap.store.values import OutputSpec, SourceSpec

__all__ = ["find", "get", "record_held", "record_schema", "register"]


def register(
    connection: Connection, lease: Lease, described: Mapping[str, SourceSpec], planned: Mapping[str, OutputSpec]
) -> None:
    """Make the sources and outputs known; see `Store.register`."""
    guard(connection, lease)
    stored = _rows(connection, sources, lease)
    for name, spec in described.items():
        text = None if spec.schema is None else encode_schema(spec.schema)
        values = {"config": as_json(spec.config), "clock": spec.clock}
        known = stored.get(name)
        if known is None:
            new = {"flow_id": lease.flow_id, "name": name, "schema": text, **values}
            connection.execute(insert(sources).values(**new))
            continue
        if known.clock not in (None, spec.clock):
            raise ClockChanged(source=name, stored=known.clock, declared=spec.clock)
        if spec.schema is not None and _settle(known, spec.schema):
            values["schema"] = str(text)
        _make_so(connection, sources, known, values)
    stored = _rows(connection, outputs, lease)
    for name, plan in planned.items():
        values = {"source": plan.source, "config": as_json(plan.config)}
        known = stored.get(name)
        if known is None:
            connection.execute(insert(outputs).values(flow_id=lease.flow_id, name=name, **values))
        elif known.source != plan.source and known.config == values["config"]:
            raise OutputMoved(output=name, before=known.source, now=plan.source)
        elif known.config != values["config"]:  # another table, of which nothing is known yet
            _make_so(connection, outputs, known, {**values, "held": None, "told": None})
        else:
            _make_so(connection, outputs, known, values)


def record_held(connection: Connection, lease: Lease, uppers: Mapping[str, int | None]) -> None:
    """Keep how far tables were seen to be; see `Store.record_held`."""
    guard(connection, lease)
    for name, upper in uppers.items():
        where = (outputs.c.flow_id == lease.flow_id) & (outputs.c.name == name)
        anew = {"told": None} if upper is None else {}
        connection.execute(update(outputs).where(where).values(held=upper, **anew))


def _rows(connection: Connection, table: Table, lease: Lease) -> dict[str, Row[Any]]:
    """Return the sources or the outputs of the lease's flow, by name."""
    found = connection.execute(select(table).where(table.c.flow_id == lease.flow_id))
    return {row.name: row for row in found}


def _make_so(connection: Connection, table: Table, known: Row[Any], values: Mapping[str, Any]) -> None:
    """Write what a row does not say yet."""
    changed = {column: value for column, value in values.items() if getattr(known, column) != value}
    if changed:
        connection.execute(update(table).where(table.c.id == known.id).values(**changed))


def record_schema(connection: Connection, lease: Lease, source: str, schema: pa.Schema) -> None:
    """Set the columns of a source; see `Store.record_schema`."""
    guard(connection, lease)
    known = get(connection, sources, lease, source)
    if _settle(known, schema):
        connection.execute(update(sources).where(sources.c.id == known.id).values(schema=encode_schema(schema)))


def _settle(known: Row[Any], schema: pa.Schema) -> bool:
    """Whether the columns are yet to be set. Raises `SchemaChanged` when they are, to something else."""
    if known.schema is None:
        return True
    changed = differences(decode_schema(known.schema), schema)
    if changed:
        raise SchemaChanged(source=known.name, differences=changed)
    return False


def find(connection: Connection, table: Table, lease: Lease, name: str) -> Row[Any] | None:
    """Return the row of a source or an output of the lease's flow, or None."""
    where = (table.c.flow_id == lease.flow_id) & (table.c.name == name)
    return connection.execute(select(table).where(where)).one_or_none()


def get(connection: Connection, table: Table, lease: Lease, name: str) -> Row[Any]:
    """Return the row of a source or an output of the lease's flow. Raises `UnknownName`."""
    found = find(connection, table, lease, name)
    if found is None:
        known = connection.scalars(select(table.c.name).where(table.c.flow_id == lease.flow_id)).all()
        raise UnknownName(kind=table.name.removesuffix("s"), name=name, known=sorted(known))
    return found
