"""Where the outputs of a flow begin: settled once, durable before any work, and never again while a table holds rows.

    the store knows where   the flow says       the table holds rows    the table holds nothing
    it begins
    yes                     the same            it stays                it stays
    yes                     something else      refused                 settled anew
    no                      nothing             with its source         with its source
    no                      something           refused                 settled

A store that was put back to before the output was made knows of no start, and has not seen the table: then the table
is asked, whose commits tell where it begins. So does a table from which a store is recovered.

Invariant: no restart, backup, recovery or change of the flow moves the beginning of a table that holds rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial

from tidegauge.errors.history import DamagedHistory
from tidegauge.errors.outputs import StartChanged
from tidegauge.flow.spec import FlowSpec
from tidegauge.job.durable import left_behind
from tidegauge.job.plan import OutputPlan
from tidegauge.remap.history import Link
from tidegauge.remap.start import StartRecord, start_text
from tidegauge.remap.store import Lease, Loaded, LoadedOutput, Store
from tidegauge.sinks.protocol import Table

__all__ = ["settled", "stays", "told"]


def stays(plan: OutputPlan, known: LoadedOutput) -> bool:
    """Whether an output begins where the store knows it to begin."""
    return _said(plan) == (None if known.start is None else known.start.said)


def settled(
    flow: FlowSpec, loaded: Loaded, store: Store, lease: Lease, tables: Mapping[str, Table], *, now: datetime
) -> dict[str, StartRecord]:
    """Return where the outputs with these tables begin; those that begin with their source are left out.

    New ones are durable by then. Raises `StartNotThere`, `StartChanged`.
    """
    found: dict[str, StartRecord] = {}
    for name, table in tables.items():
        plan, known = flow.outputs[name], loaded.outputs[name]
        start = known.start
        if start is None and table.upper and not known.held:
            with suppress(DamagedHistory):  # a flow that names a start is then refused, as the store knows of none
                start = told(name, table.links())
        if _said(plan) != (None if start is None else start.said):
            if table.upper:
                now_said, before = (None if s is None else s.said for s in (plan.start, start))
                raise StartChanged(output=name, now=_text(now_said), before=_text(before))
            start = None
            if plan.start is not None:
                source = loaded.sources[plan.source].table
                epoch = plan.start.epoch(name, source, times=partial(store.times, flow.name), now=now)
                start = StartRecord(plan.start.said, epoch)
                if pieces := left_behind(loaded, plan.source, epoch):
                    raise start.gone(name, last=pieces[-1].epoch)
        if start != known.start:
            store.record_start(lease, name, start)
        if start is not None:
            found[name] = start
    return found


def told(output: str, links: Iterable[Link]) -> StartRecord | None:
    """Return where an output begins, by the links that its table has; None where that is with its source."""
    return next((link.starts[output] for link in links if output in link.starts), None)


def _said(plan: OutputPlan) -> str | None:
    return None if plan.start is None else plan.start.said


def _text(said: str | None) -> str:
    return "the start of its source" if said is None else start_text(said)
