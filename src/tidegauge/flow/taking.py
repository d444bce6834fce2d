"""Which outputs get what they lack from the table of another one, when a flow is opened.

It is derived from the tables alone: whatever an output lacks and the other table holds, it reads there. Such an
output is late until it holds what the other table held by then, whatever the timeline says: the source may have gone
on with another upstream, and the timeline then holds nothing of the one before.

Invariant: an epoch is read there only where the table has its rows in that epoch, or where they are one epoch for
both.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegauge.errors.outputs import PastNotThere
from tidegauge.flow.spec import FlowSpec
from tidegauge.remap.round import Failure
from tidegauge.remap.start import StartRecord
from tidegauge.remap.store import Loaded
from tidegauge.sinks.protocol import Table

__all__ = ["taking_from_tables"]


def taking_from_tables(
    flow: FlowSpec,
    loaded: Loaded,
    tables: Mapping[str, Table],
    uppers: Mapping[str, int],
    failed: Mapping[str, Failure],
    starts: Mapping[str, StartRecord],
) -> dict[str, int]:
    """Return the open outputs that get what they lack from another's table, with the first epoch that it lacks.

    If that table is away, it is waited for, and the epoch is the first that is not published. Raises `PastNotThere`
    for a table that does not have the epochs one by one, `OutputIsNoTable` for a topic.
    """
    found: dict[str, int] = {}
    for name, lower in uppers.items():
        plan = flow.outputs[name]
        past = plan.past
        ends = failed[plan.source].epoch if plan.source in failed else loaded.flow.upper
        if past is None:
            continue
        if past not in tables:
            if lower < min(loaded.flow.published, ends):  # it is waited for
                found[name] = loaded.flow.published
            continue
        if lower >= min(tables[past].upper, ends):
            continue
        tables[past].uris([])
        theirs, own = starts.get(past), starts.get(name)
        if theirs is not None and lower < theirs.epoch:
            why = f"that begins at epoch {theirs.epoch}, and this output lacks epoch {lower}"
            raise PastNotThere(output=name, table=past, why=why)
        if theirs is not None and max(loaded.flow.since, 0 if own is None else own.stamp) < theirs.stamp > lower:
            why = f"the epochs up to {theirs.stamp} are one there"
            raise PastNotThere(output=name, table=past, why=why)
        found[name] = tables[past].upper
    return found
