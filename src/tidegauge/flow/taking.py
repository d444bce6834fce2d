"""Which outputs get what they lack from the table of another one, when a flow is opened.

It is derived, from the tables, the published epochs and the timeline: an output reads there what it lacks and the
other table holds, if that is published, or of an upstream that was recreated since. It is late until it holds what
the other table held by then, whatever the timeline says: that holds nothing of the upstream before. Epochs that are
not published yet are read from the source, which has them: publishing waits for this output, too.

Invariant: an epoch is read there only where the table has its rows in that epoch, or where they are one epoch for
both.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegauge.errors.outputs import PastNotThere
from tidegauge.flow.spec import FlowSpec
from tidegauge.reclock.slices import held
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
        source = loaded.sources[plan.source]
        ends = failed[plan.source].epoch if plan.source in failed else loaded.flow.upper
        lacks = held(source.table, lower) < loaded.flow.published or lower < source.began_at
        if past is None or not lacks or lower >= ends:
            continue
        if past not in tables:
            found[name] = loaded.flow.published  # it is waited for
            continue
        if lower >= tables[past].upper:
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
