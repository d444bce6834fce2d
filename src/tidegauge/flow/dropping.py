"""Carrying out what people decided to drop: the table if they said so, then all that the store has of the output.

The decision is durable first, and goes with the store's last word on the output. So the next
that has the lease, a driver or the command given again, finishes a drop that a crash has cut short, and nobody begins
the output anew before.

Invariant: nothing of the output is under way meanwhile. A driver that runs hears of the decision as it hears of a
pause, waits for the job and the commit of the output, and goes on without it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from contextlib import suppress
from dataclasses import replace
from typing import Final

from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.sinks import TableNotRemovable
from tidegauge.flow.away import Away
from tidegauge.flow.replacing import withdrawn
from tidegauge.flow.spec import FlowSpec
from tidegauge.job.plan import OutputPlan
from tidegauge.remap.store import Lease, Replacement, Store
from tidegauge.sinks.protocol import OutputId, Removable, Sweeping

__all__ = ["Drops", "drop_decided", "finish_drop", "removable", "without"]


def removable(flow: FlowSpec, output: str) -> Removable:
    """Return the sink of an output if it can remove tables. Raises `TableNotRemovable`, `UnknownName`."""
    sink = flow.output(output).sink
    if not isinstance(sink, Removable):
        raise TableNotRemovable(table=sink.identity, why=f"{type(sink).__name__} keeps what it was given")
    return sink


def drop_decided(flow: FlowSpec, store: Store, lease: Lease) -> Mapping[str, Exception | None]:
    """Carry out the drops that are decided. Return what hindered each; None where the output is gone.

    One whose table cannot be removed at present, or that is of other code, stays paused until somebody can.
    """
    found = dict[str, Exception | None]()
    for name, table in store.decisions(flow.name).drops.items():
        if table and name not in flow.outputs:
            continue
        try:
            finish_drop(flow, store, lease, name, table=table)
            found[name] = None
        except (OSError, TableNotRemovable) as error:
            found[name] = error
    return found


def finish_drop(flow: FlowSpec, store: Store, lease: Lease, output: str, *, table: bool) -> None:
    """Carry out one drop. Raises as `removable` and `Removable.remove`, and `OSError`."""
    if table:
        removable(flow, output).remove(OutputId(flow.name, output, lease.incarnation))
    elif output in flow.outputs:
        _sweep(flow, output, lease, store.decisions(flow.name).replacements.get(output))
    store.drop_output(lease, output)


class Drops:
    """The drops of a run that could not be carried out, each tried again after growing delays."""

    def __init__(self, store: Store, lease: Lease, *, env: Env) -> None:
        self._store: Final = store
        self._lease: Final = lease
        self._env: Final = env
        self._hindered: Final[dict[str, Away]] = {}

    @property
    def hindered(self) -> Set[str]:
        """The outputs that could not be dropped."""
        return self._hindered.keys()

    @property
    def due(self) -> bool:
        """Whether one of them may be tried again."""
        now = self._env.monotonic()
        return any(away.due(now) for away in self._hindered.values())

    def carry_out(self, flow: FlowSpec) -> frozenset[str]:
        """Carry out the decided drops. Return the outputs that are gone."""
        now, tried = self._env.monotonic(), drop_decided(flow, self._store, self._lease)
        for name, error in tried.items():
            before = self._hindered.pop(name, None)
            if error is not None:
                self._hindered[name] = before.again(error, now=now) if before else Away.first(error, now=now)
        return frozenset(name for name, error in tried.items() if error is None)


def without(flow: FlowSpec, outputs: Collection[str]) -> FlowSpec:
    """Return a flow without these outputs. Who got its past from one of their tables reads the source from now on."""
    kept = {name: plan for name, plan in flow.outputs.items() if name not in outputs}

    def apart(plan: OutputPlan) -> OutputPlan:
        after = tuple(one for one in plan.after if one in kept)
        return replace(plan, after=after, past=plan.past if plan.past in kept else None)

    return replace(flow, outputs={name: apart(plan) for name, plan in kept.items()})


def _sweep(flow: FlowSpec, output: str, lease: Lease, found: Replacement | None) -> None:
    """Remove the files staged for an output alone. A table that cannot be opened now is swept by the next run.

    found: a replacement that is dropped with it.
    """
    sink = flow.outputs[output].sink
    with suppress(OSError, TidegaugeError):
        table = sink.open(OutputId(flow.name, output, lease.incarnation))
        if found is not None:
            withdrawn(table, found)
        if isinstance(table, Sweeping) and not sink.shared:
            table.sweep(lease.renew)
