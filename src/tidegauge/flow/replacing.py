"""Replacing the table of an output, by one of other code or of the same: which are under way, and which are over.

    the store says      the table says                  then
    to be replaced      rows of another edition         a late output fills it, hidden, beside the old rows
    to be replaced      rows of this edition            it is replaced: what the store still says of it goes
    to be replaced      nothing                         there is nothing to replace: it begins as any output does
    to be replaced,     rows of another edition         the flow has other code than was decided: it does not
    by other code                                       count here, and a change of code is refused as ever

The edition is drawn when people decide, and carried by the commit that puts the new rows in the place of the old.
So the table itself says whether that commit was made, by this driver or another, and whether the store has heard.

Invariant: until that commit the old table is as it was, for all readers, and the output is a late one that shows
nothing new. So a crash leaves the old rows with the plan, or the new rows with a decision that the next opening ends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from contextlib import suppress

from tidegauge.errors.base import Transient
from tidegauge.flow.spec import FlowSpec
from tidegauge.job.code import OutputCode, changes, code_of
from tidegauge.job.plan import OutputPlan
from tidegauge.reclock.slices import begins
from tidegauge.remap.history import agree
from tidegauge.remap.store import CodeRecord, Lease, Loaded, Replacement, Store
from tidegauge.sinks.protocol import OutputId, Replaceable, Table
from tidegauge.sources.push.source import PushedSource

__all__ = ["codes_after", "concluded", "hindrance", "intended", "made", "replaced", "under_way", "withdrawn"]


def intended(plan: OutputPlan, found: Replacement) -> bool:
    """Whether an output has the code that is to replace its table, as far as that can be compared."""
    code = OutputCode.decode(found.code)
    return code is not None and not changes(code, code_of(plan))


def made(table: Table, found: Replacement) -> bool:
    """Whether a table has been replaced."""
    return isinstance(table, Replaceable) and bool(table.edition) and agree(table.edition, found.edition)


def hindrance(flow: FlowSpec, loaded: Loaded, output: str) -> str:
    """Return why the past of an output cannot be made again, as far as the store knows; "" if it can."""
    plan, known = flow.outputs[output], loaded.outputs[output]
    source = loaded.sources[plan.source]
    if isinstance(flow.sources[plan.source], PushedSource):
        return f"source {plan.source!r} pushes its records, so nobody can read them again"
    if source.began_at > known.begins:
        return (
            f"source {plan.source!r} goes on with an upstream that was recreated at epoch {source.began_at}, and the "
            "table holds earlier epochs, which nobody can read again"
        )
    if begins(known.begins, since=loaded.flow.since, folded=source.folded) is None:
        return (
            f"it begins at epoch {known.begins}, which was compacted since and can no longer be told from the epochs "
            f"before {loaded.flow.since}"
        )
    return ""


def under_way(flow: FlowSpec, loaded: Loaded) -> dict[str, Replacement]:
    """Return the replacements of outputs that this flow carries out."""
    return {
        name: found
        for name, found in loaded.decisions.replacements.items()
        if name in flow.outputs and intended(flow.outputs[name], found) and not hindrance(flow, loaded, name)
    }


def replaced(table: Table, found: Replacement | None) -> Table:
    """Return what an output writes to: its table, or the one that is to take its place."""
    if found is None or not table.upper or not isinstance(table, Replaceable):
        return table
    return table.replacement(found.edition)


def withdrawn(table: Table, found: Replacement) -> None:
    """See that a driver which began with a replacement, and is asleep, makes it no more. Before the store forgets it.

    Raises `TableUpperMismatch` where one just has.
    """
    if isinstance(table, Replaceable) and table.upper and not made(table, found):
        seen = found.edition + table.edition  # another one each time: it may have begun since the last
        table.withdraw(hashlib.blake2b(seen.encode(), digest_size=16).hexdigest())


def concluded(
    flow: FlowSpec, store: Store, lease: Lease, loaded: Loaded, *, away: Collection[str] = frozenset()
) -> Loaded:
    """End the replacements that are over, and return what the store then has of the flow.

    One whose table is away at present is left alone. away: those that are known to be, and are not tried.
    """
    ended = False
    for name, found in loaded.decisions.replacements.items():
        if name not in flow.outputs or name not in loaded.outputs or name in away:
            continue
        table: Table | None = None
        with suppress(OSError, Transient):
            table = flow.outputs[name].sink.open(OutputId(flow.name, name, loaded.flow.incarnation))
        if table is not None and made(table, found):
            store.end_replacement(lease, found, codes_after(found, loaded.outputs[name].begins))
            ended = True
        elif table is not None and not table.upper and not loaded.outputs[name].held:
            store.end_replacement(lease, found)
            ended = True
    return store.load(flow.name) if ended else loaded


def codes_after(found: Replacement, first: int) -> tuple[CodeRecord, ...]:
    """Return which code has made the rows of a table that was replaced. first: the epoch that it begins with."""
    return (CodeRecord(first, found.code, found.at),)
