"""Repairing an output's table: the epochs that others have damaged are read once more and replaced.

By law 1 an epoch's rows are a function of its bindings, which the store has. So nothing is guessed and nothing is
merged: whatever is left of damaged epochs is removed, and the epochs are put in whole. The same code rewrites all
epochs from one on, if somebody asks for it, or if the table's history parts from the store's.

Invariant: before the commit nothing is changed but for staged files; after it the table is exactly as the flow would
have written it. A folder is mended commit by commit. If anything of even one epoch cannot be had, repair says so and
begins nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from tidegauge.env import Env
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.repair import (
    EpochsUnknown,
    ForeignRows,
    HistoriesPart,
    OnlyAppended,
)
from tidegauge.errors.sinks import TableWentBack
from tidegauge.flow.belonging import agreed, check
from tidegauge.flow.renewing import renewing
from tidegauge.flow.runner import RENEW_EVERY, chosen
from tidegauge.flow.seen import whole
from tidegauge.flow.spec import Flow, FlowSpec
from tidegauge.job.plan import Engine
from tidegauge.looking.inspect import opened
from tidegauge.maintenance.rereading import Rereading
from tidegauge.maintenance.resume import leased
from tidegauge.remap.store import Loaded, Store
from tidegauge.sinks.mending import Mendable, Mending, Ranges, TableDamage, joined
from tidegauge.sinks.protocol import OutputId, StagedFile

__all__ = ["Repaired", "repair"]


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair came to.

    epochs: those that were written anew, each range from its first to its last. rows: how many were written. removed:
    files of others that were taken out. upper: the first epoch that the table does not hold now. changed: whether
    anything was. begun_anew: nothing of the table is there, and the next run writes it anew.
    """

    flow: str
    output: str
    epochs: tuple[tuple[int, int], ...]
    rows: int
    removed: tuple[str, ...]
    upper: int
    changed: bool = True
    begun_anew: bool = False


def repair(
    flow: Flow,
    output: str,
    *,
    from_epoch: int | None = None,
    remove_foreign: bool = False,
    engine: Literal["spark", "local"] | Engine = "spark",
    spark: Any = None,
    env: Env | None = None,
) -> Repaired:
    """Rewrite the epochs that an output's table lacks, and no others; see the module. Not while the flow runs.

    Args:
        flow: the flow that writes the table.
        output: the name of the output.
        from_epoch: also rewrite all epochs from this one on. With 0 for a missing table, the next run rewrites it;
            this is the only repair for a topic.
        remove_foreign: remove the files that others have written. False, because they belong to somebody: a table
            that has any is then refused.
        engine: as for `Dataflow.run`.
        spark: as for `Dataflow.run`.
        env: the world, for tests.

    Raises `TableWentBack` for a table that is away, `ForeignRows`, `EpochsGone`, `EpochsCompacted`, `EpochsUnknown`,
    `HistoriesPart`, `OnlyAppended`; `StoreBehindTable` and `HistoriesDiffer` if the table has another history and you
    give no epoch; `FlowAlreadyRunning`, `FlowNeverRan`, `UnknownName`, and whatever running the flow raises for the
    source and the steps.
    """
    spec = flow.spec
    sink = spec.output(output).sink
    if not isinstance(sink, Mendable) and from_epoch != 0:
        raise OnlyAppended(output=output)
    if from_epoch is not None and (type(from_epoch) is not int or from_epoch < 0):
        raise InvalidArgument(parameter="from_epoch", value=from_epoch, expected="an epoch, counted from 0")
    env = env or Env()
    picked, ours = chosen(engine, spark)
    with ExitStack() as resources:
        if ours:
            resources.callback(picked.close)
        store = resources.enter_context(opened(spec, env))
        lease = resources.enter_context(leased(store, spec.name, env))
        lost = resources.enter_context(renewing(lease, every=RENEW_EVERY))
        loaded = store.load(spec.name)
        owner = OutputId(spec.name, output, loaded.flow.incarnation)
        table = sink.mend(owner) if isinstance(sink, Mendable) else None
        try:
            whole(table or sink.open(owner), owner, sink, held=_held(loaded, output))
        except TableWentBack:
            if from_epoch != 0:
                raise
            store.record_held(lease, {output: None})
            return Repaired(spec.name, output, (), 0, (), 0, begun_anew=True)
        if table is None:
            raise OnlyAppended(output=output)
        damage, epochs, upper = _wanted(spec, output, table, store, loaded, from_epoch)
        if damage.foreign and not remove_foreign:
            raise ForeignRows(
                table=_place(spec, output), output=f"{spec.name}:{output}", files=_files(damage.foreign)
            )
        removed = tuple(sorted(damage.foreign))
        if not epochs and not removed:
            return Repaired(spec.name, output, (), 0, (), upper, changed=False)
        rereading = Rereading(spec, output, table, store, loaded, picked, env)
        plan = rereading.plan(epochs, upper)
        files: list[StagedFile] = []
        try:
            rows = rereading.stage(plan, files)
            if lost:
                raise lost[0]
            with env.effect("commit output"):
                lease.confirm()  # a table knows nothing of who may write
                table.replace(
                    epochs,
                    upper,
                    rereading.schema,
                    files,
                    write=rereading.mark + env.unique()[-16:],
                    told=partial(store.history, spec.name, whole=False),
                )
            store.record_told(lease, output, 0)  # commits that were replaced may have told of losses
        except BaseException:
            table.discard(files)
            raise
        anew = tuple((one.start, min(one.stop, upper) - 1) for one in epochs if one.start < upper)
        return Repaired(spec.name, output, anew, rows, removed, upper)


def _held(loaded: Loaded, output: str) -> int:
    return loaded.outputs[output].held if output in loaded.outputs else 0


def _wanted(
    flow: FlowSpec, output: str, table: Mending, store: Store, loaded: Loaded, from_epoch: int | None
) -> tuple[TableDamage, Ranges, int]:
    """Return the faults of a table, the epochs that are replaced for it, and those that it then holds."""
    damage, epochs, upper = table.damage, table.damage.epochs, table.upper
    if damage.unknown and from_epoch != 0:
        raise EpochsUnknown(table=_place(flow, output), output=f"{flow.name}:{output}", files=damage.unknown)
    if from_epoch is None:
        check(store, flow, output, table)
    elif from_epoch >= upper:
        expected = f"one of the epochs before {upper}, which the table holds"
        raise InvalidArgument(parameter="from_epoch", value=from_epoch, expected=expected)
    else:
        parted = agreed(store, flow.name, table)
        if from_epoch > parted:
            raise HistoriesPart(output=output, epoch=from_epoch, parted=parted)
        epochs, upper = joined([*epochs, range(from_epoch, upper)]), min(upper, loaded.flow.upper)
    return damage, table.whole(epochs), upper


def _files(files: Mapping[str, str]) -> str:
    return ", ".join(f"{path} ({what})" for path, what in sorted(files.items()))


def _place(flow: FlowSpec, output: str) -> str:
    return flow.outputs[output].sink.identity
