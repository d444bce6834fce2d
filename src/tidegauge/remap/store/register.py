"""What a flow is made of, by name: its sources and outputs, their columns, their failures and what they wait for.

Invariants. Names are identity (law 8), so registering is "make it so", as often as one likes; a source's columns are
set once. A failure is kept as an epoch and an error in JSON: its code and its evidence, whose texts are cut and hold
no secret (`Redaction`). A source's failure stays until it is cleared, and of several the one at the least epoch
counts, because its records never change. An output's is that of the last attempt: the steps are code, and code is
corrected between runs. What a driver waits for is all that it said last, in one transaction; nothing is decided by
it.

>>> kept({"error": "cannot reach postgresql://ada:hunter2@db/shop?sslpassword=hunter2", "epoch": 7}, Redaction())
{'error': 'cannot reach postgresql://ada:***@db/shop?sslpassword=***', 'epoch': 7}
>>> len(kept(5000 * "x", Redaction()))
1003
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
from sqlalchemy import Connection, Row, Table, delete, insert, select, update

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.flow import UnknownName
from tidegauge.errors.outputs import OutputMoved
from tidegauge.errors.redaction import Redaction
from tidegauge.errors.store import ClockChanged, SchemaChanged
from tidegauge.remap.store.backfills import forget_backfills
from tidegauge.remap.store.codes import forget_codes
from tidegauge.remap.store.columns import all_streams, decode_schema, differences, encode_schema
from tidegauge.remap.store.lease import Lease, guard
from tidegauge.remap.store.replacements import forget_replacements
from tidegauge.remap.store.schema import Unreadable, as_json, from_json, outputs, sources, stalls
from tidegauge.remap.store.starts import forget_starts
from tidegauge.remap.store.values import COLLECTED, OutputSpec, SourceSpec, Stall

__all__ = [
    "clear",
    "find",
    "get",
    "kept",
    "read_stalls",
    "record_held",
    "record_output",
    "record_schema",
    "record_source",
    "record_stalls",
    "register",
]

LONGEST: Final = 1000
"""Characters of a text that are kept."""

_ENVELOPE: Final = "envelope"
"""What a source says in its configuration of how records become rows. It counts as one of its columns: with another
one, the same columns would mean something else."""


def register(
    connection: Connection, lease: Lease, described: Mapping[str, SourceSpec], planned: Mapping[str, OutputSpec]
) -> None:
    """Make the sources and outputs known; see `Store.register`."""
    guard(connection, lease)
    stored = _rows(connection, sources, lease)
    for name, spec in described.items():
        text = None if spec.schema is None else encode_schema(spec.schema)
        known = stored.get(name)
        ever = spec.collected or (known is not None and COLLECTED in from_json(known.config))
        values = {"config": as_json({**spec.config, **({COLLECTED: True} if ever else {})}), "clock": spec.clock}
        if known is None:
            new = {"flow_id": lease.flow_id, "name": name, "schema": text, **values}
            connection.execute(insert(sources).values(**new))
            continue
        if known.clock not in (None, spec.clock):
            raise ClockChanged(source=name, stored=known.clock, declared=spec.clock)
        if (was := from_json(known.config).get(_ENVELOPE)) != (now := spec.config.get(_ENVELOPE)):
            raise SchemaChanged(source=name, differences=[f"{_ENVELOPE}: {was or 'append'} -> {now or 'append'}"])
        if spec.schema is not None and spec.streams and known.schema is not None:
            before = decode_schema(known.schema)
            every = all_streams(before, spec.schema)
            if changed := [one for one in differences(before, every) if not one.endswith(": new")]:
                raise SchemaChanged(source=name, differences=changed)
            values["schema"] = encode_schema(every)
        elif spec.schema is not None and _settle(known, spec.schema):
            values["schema"] = str(text)
        _make_so(connection, sources, known, values)
    stored = _rows(connection, outputs, lease)
    for name, plan in planned.items():
        said = {"identity": plan.identity} if plan.identity else {}
        values = {"source": plan.source, "config": as_json({**plan.config, **said})}
        known = stored.get(name)
        if known is None:
            connection.execute(insert(outputs).values(flow_id=lease.flow_id, name=name, **values))
        elif not _same_table(from_json(known.config), plan):  # nothing is known of the other one yet
            forget_backfills(connection, lease.flow_id, name)
            forget_starts(connection, lease.flow_id, name)
            forget_codes(connection, lease.flow_id, name)
            forget_replacements(connection, lease.flow_id, name)
            _make_so(connection, outputs, known, {**values, "held": None, "told": None})
        elif known.source != plan.source:
            raise OutputMoved(output=name, before=known.source, now=plan.source)
        else:
            _make_so(connection, outputs, known, values)


def _same_table(known: Mapping[str, Any], plan: OutputSpec) -> bool:
    """Whether an output writes where it wrote before: its options may change, and so may the spelling of its path.

    What it wrote may be of another kind: then it is another table, even in the same place.
    """
    config = {key: value for key, value in known.items() if key != "identity"}
    if as_json(config) == as_json(plan.config):
        return True
    return known.get("identity", "") == plan.identity != "" and config.get("kind") == plan.config.get("kind")


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


def record_source(connection: Connection, lease: Lease, source: str, epoch: int, error: TidegaugeError) -> None:
    """Note that a source has failed for good; see `Store.record_failure`."""
    guard(connection, lease)
    known = get(connection, sources, lease, source)
    if known.failure is None or epoch < known.failed_at:
        _write(connection, lease, sources, known.id, epoch, error)


def record_output(connection: Connection, lease: Lease, output: str, epoch: int, error: TidegaugeError) -> None:
    """Note that an output has failed; see `Store.record_output_failure`."""
    guard(connection, lease)
    _write(connection, lease, outputs, get(connection, outputs, lease, output).id, epoch, error)


def clear(connection: Connection, lease: Lease, table: Table, name: str) -> None:
    """Forget the failure of a source or an output; see `Store.clear_failure`."""
    guard(connection, lease)
    number = get(connection, table, lease, name).id
    connection.execute(update(table).where(table.c.id == number).values(failed_at=None, failure=None))


def kept(value: Any, redaction: Redaction) -> Any:
    """Return JSON data with every text in it cut, and without secrets."""
    if isinstance(value, dict):
        return {key: kept(item, redaction) for key, item in value.items()}
    if isinstance(value, list):
        return [kept(item, redaction) for item in value]
    if not isinstance(value, str):
        return value
    text = redaction.text(value[: 2 * LONGEST])  # cut to more than is kept: a password must not lose its "@"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _write(
    connection: Connection, lease: Lease, table: Table, number: int, epoch: int, error: TidegaugeError
) -> None:
    values = {"failed_at": epoch, "failure": as_json(kept(error.encode(), lease.redaction))}
    connection.execute(update(table).where(table.c.id == number).values(**values))


def record_stalls(connection: Connection, lease: Lease, found: Iterable[Stall]) -> None:
    """Say what a flow waits for; this replaces all that the store has of it."""
    guard(connection, lease)
    connection.execute(delete(stalls).where(stalls.c.flow_id == lease.flow_id))
    for stall in found:
        error = as_json(kept(stall.error.encode(), lease.redaction))
        row = {"flow_id": lease.flow_id, "kind": stall.kind, "name": stall.name, "since": stall.since, "error": error}
        connection.execute(insert(stalls).values(**row))


def read_stalls(connection: Connection, flow_id: int) -> list[Stall]:
    """Return what a flow waits for."""
    found = connection.execute(select(stalls).where(stalls.c.flow_id == flow_id))
    try:
        return [Stall(r.kind, r.name, r.since, TidegaugeError.decode(from_json(r.error))) for r in found]
    except (KeyError, TypeError) as error:
        raise Unreadable(f"a stall is damaged: {error}") from None
