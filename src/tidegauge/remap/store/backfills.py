"""Backfills: the plan of an output that gets its past before anybody sees it, and the units of it that are staged.

Invariants. A plan is made once, before any work for it, with the cutover that it keeps until it ends: the newest
epoch that is bound by then. With it comes a hold on its start, and on the epoch before that where the two can be told
apart, so that no compaction folds epochs together while some of them are staged; both end in one transaction. Units
are in order and lie apart from each other; between two of them the output's source holds nothing. One is of whole
epochs, or of a part of one. They are of the output's present steps: where these have changed none counts.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, get_args

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    ForeignKey,
    PrimaryKeyConstraint,
    Row,
    String,
    Table,
    Text,
    delete,
    insert,
    select,
)

from tidegauge.errors.flow import InvalidArgument
from tidegauge.remap.start import StampMode
from tidegauge.remap.store.columns import decode_schema, encode_schema
from tidegauge.remap.store.lease import Lease, guard
from tidegauge.remap.store.schema import (
    Instant,
    Name,
    Unreadable,
    as_json,
    count,
    from_json,
    holds,
    metadata,
)
from tidegauge.remap.store.values import Backfill, BackfillPlan, BackfillUnit

__all__ = [
    "add_unit",
    "backfills",
    "begin_backfill",
    "end_backfill",
    "forget_backfills",
    "metadata",
    "read_backfills",
    "units",
]

backfills: Final = Table(
    "backfills",
    metadata,
    Column("flow_id", ForeignKey("flows.id"), nullable=False),
    Column("output", Name, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("cutover", BigInteger, nullable=False),
    Column("mode", String(8), nullable=False),
    Column("steps", String(32), nullable=False),
    Column("at", Instant, nullable=False),
    PrimaryKeyConstraint("flow_id", "output"),
    sqlite_with_rowid=False,
)
"""The outputs whose past is being staged, hidden: the epochs from `start` to `cutover`, both included.

They become visible together, and the row goes. `steps` tells the output's steps from others; `mode` is `faithful`
if every row has the epoch of its record, else `collapse` or `as_of`: see `starts`.
"""

units: Final = Table(
    "units",
    metadata,
    Column("flow_id", ForeignKey("flows.id"), nullable=False),
    Column("output", Name, nullable=False),
    Column("lower", BigInteger, nullable=False),
    Column("part", BigInteger, nullable=False, server_default="0"),
    Column("upper", BigInteger, nullable=False),
    Column("partition", Name, nullable=False, server_default=""),
    Column("position", BigInteger, nullable=False, server_default="0"),
    Column("job", String(32), nullable=False),
    Column("columns", Text, nullable=False),
    Column("files", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    PrimaryKeyConstraint("flow_id", "output", "lower", "part"),
    sqlite_with_rowid=False,
)
"""The staged parts of backfills: the epochs `[lower, upper)` of an output, with the files as JSON, and their columns.

A row with a `partition` is a part of the epoch `lower`, which is its `upper` as well: of its slices, in the order of
the partitions' names, from where the row before ends up to `position` of that one. `part` counts the rows of an epoch
from 0. No run removes these files until the backfill ends.
"""


def owner(output: str) -> str:
    """Return the owner of the hold that a plan has."""
    return f"backfill of {output}"


def begin_backfill(
    connection: Connection,
    lease: Lease,
    output: str,
    *,
    start: int,
    steps: str,
    at: datetime,
    mode: StampMode = "faithful",
) -> Backfill:
    """Make the plan of an output unless it has one, and return it with its units; see `Store.begin_backfill`."""
    flow = guard(connection, lease)
    known = read_backfills(connection, lease.flow_id).get(output)
    if known is not None and (known.plan.start, known.plan.steps) == (start, steps):
        return known
    forget_backfills(connection, lease.flow_id, output)
    if not 0 <= start < flow.upper:
        raise InvalidArgument(parameter="start", value=start, expected=f"a bound epoch, below {flow.upper}")
    plan = BackfillPlan(output, start, flow.upper - 1, mode, steps)
    row = {"start": start, "cutover": plan.cutover, "mode": plan.mode, "steps": steps, "at": at}
    connection.execute(insert(backfills).values(flow_id=lease.flow_id, output=output, **row))
    held = {"owner": owner(output), "epoch": start - 1 if start > flow.since else start, "at": at}
    connection.execute(delete(holds).where(holds.c.flow_id == lease.flow_id, holds.c.owner == owner(output)))
    connection.execute(insert(holds).values(flow_id=lease.flow_id, **held))
    return Backfill(plan, ())


def add_unit(connection: Connection, lease: Lease, output: str, unit: BackfillUnit) -> None:
    """Record that a unit is staged, unless it is recorded; see `Store.add_unit`."""
    guard(connection, lease)
    mine = _of(units, lease.flow_id, output)
    plan = connection.execute(select(backfills).where(_of(backfills, lease.flow_id, output))).one_or_none()
    newest = (units.c.lower.desc(), units.c.part.desc())
    last = connection.execute(select(units).where(mine).order_by(*newest).limit(1)).one_or_none()
    before = None if last is None else _unit(last)
    if before == unit:
        return
    begin, end = ((-1, "", 0), -1) if plan is None else ((plan.start, "", 0), plan.cutover + 1)
    begin = begin if before is None else before.end
    if not _follows(unit, begin, end):
        value, expected = [unit.lower, *unit.end], f"epochs from {list(begin)} on, before {end}, or a part of one"
        raise InvalidArgument(parameter="unit", value=value, expected=expected)
    row = {
        "lower": unit.lower,
        "part": last.part + 1 if last is not None and last.lower == unit.lower else 0,
        "upper": unit.upper,
        "partition": unit.partition,
        "position": unit.position,
        "job": unit.job,
        "columns": encode_schema(unit.schema),
        "files": as_json({"files": [dict(file) for file in unit.files]}),
        "rows": unit.rows,
    }
    connection.execute(insert(units).values(flow_id=lease.flow_id, output=output, **row))


def _follows(unit: BackfillUnit, begin: tuple[int, str, int], end: int) -> bool:
    """Whether a unit is of whole epochs or a part of one, and comes after `begin` and before `end`."""
    inside, part = begin[1:] != ("", 0), unit.end[1:] != ("", 0)
    of_one = unit.upper == unit.lower if part else not inside or unit.upper == unit.lower + 1
    next_one = unit.lower == begin[0] if inside else unit.lower >= begin[0]
    return of_one and next_one and max(begin, (unit.lower, "", 0)) < unit.end <= (end, "", 0)


def end_backfill(connection: Connection, lease: Lease, output: str) -> None:
    """Forget the plan of an output, its units and its hold; see `Store.end_backfill`."""
    guard(connection, lease)
    forget_backfills(connection, lease.flow_id, output)


def forget_backfills(connection: Connection, flow_id: int, *outputs: str) -> None:
    """Forget the plans of these outputs, with all that they have."""
    for output in outputs:
        gone = connection.execute(delete(backfills).where(_of(backfills, flow_id, output)))
        if gone.rowcount:
            _forget_units(connection, flow_id, output)
            connection.execute(delete(holds).where(holds.c.flow_id == flow_id, holds.c.owner == owner(output)))


def read_backfills(connection: Connection, flow_id: int) -> dict[str, Backfill]:
    """Return the plans of a flow, each with its units in order, by output."""
    plans = connection.execute(select(backfills).where(backfills.c.flow_id == flow_id)).all()
    if not plans:
        return {}
    found: dict[str, list[BackfillUnit]] = {}
    for row in connection.execute(
        select(units).where(units.c.flow_id == flow_id).order_by(units.c.lower, units.c.part)
    ):
        found.setdefault(row.output, []).append(_unit(row))
    return {row.output: Backfill(_plan(row), tuple(found.get(row.output, ()))) for row in plans}


def _plan(row: Row[Any]) -> BackfillPlan:
    if row.mode not in get_args(StampMode):
        raise Unreadable(f"{row.mode!r} is no mode of a backfill")
    return BackfillPlan(row.output, count(row.start), count(row.cutover), row.mode, row.steps)


def _unit(row: Row[Any]) -> BackfillUnit:
    try:
        schema, files = decode_schema(row.columns), tuple(from_json(row.files)["files"])
    except (ValueError, KeyError, TypeError):
        raise Unreadable(f"the unit {row.lower} of the backfill of {row.output!r} is damaged") from None
    return BackfillUnit(
        count(row.lower),
        count(row.upper),
        *(row.job, schema, files, count(row.rows)),
        *(row.partition, count(row.position)),
    )


def _forget_units(connection: Connection, flow_id: int, output: str) -> None:
    connection.execute(delete(units).where(_of(units, flow_id, output)))


def _of(table: Any, flow_id: int, output: str) -> Any:
    return (table.c.flow_id == flow_id) & (table.c.output == output)
