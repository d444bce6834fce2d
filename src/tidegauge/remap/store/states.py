"""The states of sources: what a polled source has to know at its next poll, kept as changes beside its positions.

Invariants. A state is written in the transaction of its binding, and only when it is another than the newest one. At
an epoch the state of a source is the last one written at it or before it, in the same incarnation: a new incarnation
begins with none. A watermark never goes back within an incarnation.
"""

from __future__ import annotations

from sqlalchemy import Connection, insert, select

from tidegauge.errors.fromtime import NotCanonical
from tidegauge.remap.checked import check_watermark
from tidegauge.remap.fromtime.state import SourceState
from tidegauge.remap.store.schema import Unreadable, source_states, sources

__all__ = ["decoded", "newest", "read", "write"]


def write(
    connection: Connection,
    name: str,
    source_id: int,
    epoch: int,
    *,
    before: SourceState | None,
    after: SourceState | None,
) -> SourceState | None:
    """Keep a state that is another than the newest one, and return what is the newest then.

    Raises `WatermarkRegressed`.
    """
    if after is None or after == before:
        return before
    check_watermark(name, before, after)
    connection.execute(insert(source_states).values(source_id=source_id, epoch=epoch, state=after.encode()))
    return after


def read(connection: Connection, source_id: int, *, first: int, last: int) -> SourceState | None:
    """Return the last state written in the epochs from `first` to `last`, both included."""
    there = (source_states.c.source_id == source_id) & source_states.c.epoch.between(first, last)
    found = connection.scalar(
        select(source_states.c.state).where(there).order_by(source_states.c.epoch.desc()).limit(1)
    )
    return None if found is None else decoded(found)


def newest(connection: Connection, flow_id: int) -> dict[int, tuple[int, str]]:
    """Return the last state of each source of a flow that has one, encoded, with its epoch; by source."""
    mine = source_states.c.source_id == sources.c.id
    last = select(source_states.c.epoch).where(mine).order_by(source_states.c.epoch.desc()).limit(1)
    found = connection.execute(
        select(source_states)
        .join(sources, mine)
        .where(sources.c.flow_id == flow_id)
        .where(source_states.c.epoch == last.correlate(sources).scalar_subquery())
    )
    return {row.source_id: (row.epoch, row.state) for row in found}


def decoded(state: str) -> SourceState:
    """Return a state that is stored. Raises `Unreadable`."""
    try:
        return SourceState.decode(state)
    except NotCanonical as error:
        raise Unreadable(error.summary) from error
