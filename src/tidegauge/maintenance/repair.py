"""Repairing an output's table: the epochs that others have damaged are read once more and replaced.

By law 1 an epoch's rows are a function of its bindings, which the store has. So nothing is guessed and nothing is
merged: whatever is left of damaged epochs is removed, and the epochs are put in whole. The same code rewrites all
epochs from one on, if somebody asks for it, or if the table's history parts from the store's. A past that has one
epoch (`remap.stamps`) is rewritten in one piece.

Invariants. Before the commit nothing is changed but for staged files; after it the table is exactly as the flow would
have written it. A folder is mended commit by commit. The staged rows are those that the flow staged for these epochs,
by the same bindings, without losses recorded since, and by the same code: rows of other code are replaced only if
somebody asks for it. If anything of even one epoch cannot be had, repair says so and begins nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Literal

import pyarrow as pa

from tidegauge.env import Env
from tidegauge.errors.base import Definite, brief
from tidegauge.errors.engine import RecordUnparsable
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.history import (
    EpochsCompacted,
    EpochsGone,
    EpochsOfOtherCode,
    EpochsUnknown,
    ForeignRows,
    HistoriesPart,
    OnlyAppended,
    listed,
)
from tidegauge.errors.sinks import TableWentBack
from tidegauge.flow.belonging import agreed, check, check_since, present, whole
from tidegauge.flow.beside import renewing
from tidegauge.flow.changing import made_by_other, rewritten
from tidegauge.flow.runner import RENEW_EVERY
from tidegauge.flow.running import chosen
from tidegauge.flow.spec import Flow, FlowSpec
from tidegauge.flow.starting import told
from tidegauge.job.code import OutputCode, code_of
from tidegauge.job.durable import lacking, passed, ranges_of, without
from tidegauge.job.groups import Need
from tidegauge.job.perform import OutputSchemas, Performed, PinnedNeed, performer
from tidegauge.job.plan import Engine
from tidegauge.job.portion import job_limit
from tidegauge.looking.inspect import opened
from tidegauge.maintenance.resume import leased
from tidegauge.reclock.slices import between, span, told_apart
from tidegauge.remap.binding import Slice
from tidegauge.remap.history import History
from tidegauge.remap.start import StartRecord
from tidegauge.remap.store import CodeRecord, Loaded, Store
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.evolving import grown
from tidegauge.sinks.mending import Mending, Ranges, TableDamage, joined, mendable
from tidegauge.sinks.protocol import OutputId, StagedFile, job_mark

__all__ = ["Repaired", "Rereading", "repair"]


class Rereading:
    """Reads epochs of one output once more, and stages their rows."""

    def __init__(self, flow: FlowSpec, output: str, table: Mending, loaded: Loaded, engine: Engine, env: Env) -> None:
        plan = flow.outputs[output]
        self.mark: Final = job_mark(loaded.flow.incarnation)
        self._output: Final = output
        self._name: Final = plan.source
        self._source: Final = flow.sources[plan.source]
        self._found: Final = loaded.sources[plan.source]
        self._since: Final = loaded.flow.since
        self._links: Final = table.links
        self.start: Final = _start(loaded, output, table)
        self._gaps: Final = loaded.gaps
        self._passed: Final = passed(loaded)
        self._past: Final = _past(flow, output, loaded, self.start)
        schemas = OutputSchemas(engine)
        self.schema: Final = schemas.of(plan, self._found.bound.schema)
        self._perform: Final = performer(
            flow.outputs,
            flow.sources,
            engine,
            env,
            mark=self.mark,
            passed=self._passed,
            lacking=lacking(loaded),
            tables={output: table},
            schemas=schemas,
            stamps={} if self.start is None else {output: self.start.stamp},
            present=partial(present, flow, loaded.flow.incarnation),
            since=self._since,
        )

    def plan(self, epochs: Ranges, upper: int) -> list[list[Slice]]:
        """Return the slices to read for each range. Raises `EpochsCompacted`; `EpochsGone` for an old upstream."""
        return [self._slices(one, min(one.stop, upper)) for one in epochs]

    def _slices(self, epochs: range, stop: int) -> list[Slice]:
        begins = 0 if self.start is None else self.start.epoch
        epochs = range(min(max(epochs.start, begins), epochs.stop), epochs.stop)
        first = told_apart(epochs, since=self._since, folded=self._found.folded)
        if first is None or (epochs.start > begins and self._may_be_one(epochs)):
            raise EpochsCompacted(output=self._output, epochs=listed([epochs]), since=self._since)
        pieces = self._found.slices(first, stop) if first < stop else []
        if epochs.start in self._past[1] and stop <= self._past[1].stop:
            return pieces
        over = [piece for piece in pieces if piece.epoch < self._found.began_at]
        if gone := without(over, ranges_of(self._gaps)):
            raise self._gone({piece.epoch for piece in gone}, "they are of an incarnation of it that is over")
        return pieces[len(over) :]

    def _may_be_one(self, epochs: range) -> bool:
        """Whether the table may hold all that was compacted as the epoch `since`, while nothing moved at that one.

        One that was made after the compaction does. One that was there before has a link of an earlier epoch.
        """
        folded = self._found.folded
        here = self._since in epochs and folded is not None and folded < self._since
        return here and all(link.epoch >= self._since for link in self._links())

    def stage(self, planned: Iterable[list[Slice]], files: list[StagedFile]) -> int:
        """Stage the planned slices, into `files`, and return the number of rows. Raises `EpochsGone`."""
        rows = 0
        for pieces in planned:
            while pieces:
                upto = span(pieces, pieces[-1].epoch + 1, limit=job_limit(self._source.unit))
                some = list(between(pieces, pieces[0].epoch, upto))
                need = Need((self._output,), some[0].epoch, upto)
                past, held = self._past
                taken = past if need.lower in held and upto <= held.stop else None
                pinned = PinnedNeed(need, {self._name: some}, {self._name: self._found.bound}, past=taken)
                done = self._perform(pinned)
                if (staged := done.result.staged.get(self._output)) is not None:
                    files += staged.files
                    rows += staged.rows
                self._check(done, pieces)
                pieces = pieces[len(some) :]
        return rows

    def _check(self, done: Performed, pieces: Sequence[Slice]) -> None:
        """Raise unless all was read that is to be."""
        for failure in sorted(done.result.failures, key=lambda failure: failure.epoch):
            lost = failure.output is None and isinstance(failure.error, Definite)
            if not lost or isinstance(failure.error, RecordUnparsable):
                raise failure.error
            raise self._gone({failure.epoch, *self._unplanned(pieces)}, brief(failure.error)) from failure.error
        if done.lost:
            raise self._gone({piece.epoch for piece in done.lost}, "it had deleted them")

    def _unplanned(self, pieces: Sequence[Slice]) -> Iterator[int]:
        """Yield the epochs that the source knows, before it reads, that it cannot read."""
        for epoch, some in groupby(pieces, key=attrgetter("epoch")):
            try:
                self._source.plan(without(some, self._passed.get(self._name, ())), self._found.bound)
            except Definite:
                yield epoch

    def _gone(self, epochs: Iterable[int], detail: str) -> EpochsGone:
        found = listed(joined(range(epoch, epoch + 1) for epoch in epochs))
        return EpochsGone(output=self._output, source=self._name, epochs=found, detail=detail)


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
    engine: Literal["spark", "local", "sail"] | Engine = "spark",
    spark: Any = None,
    env: Env | None = None,
) -> Repaired:
    """Rewrite the epochs that an output's table lacks, and no others; see the module. Not while the flow runs.

    Args:
        flow: the flow that writes the table.
        output: the name of the output.
        from_epoch: also rewrite all epochs from this one on, by the present code. With 0 for a missing table, the
            next run rewrites it; this is the only repair for a topic.
        remove_foreign: remove the files that others have written. False, because they belong to somebody: a table
            that has any is then refused.
        engine: as for `Dataflow.run`.
        spark: as for `Dataflow.run`.
        env: the world, for tests.

    Raises `TableWentBack` for a table that is away, `ForeignRows`, `EpochsGone`, `EpochsCompacted`, `EpochsUnknown`,
    `HistoriesPart`, `OnlyAppended`; `StoreBehindTable` and `HistoriesDiffer` if the table has another history and you
    give no epoch; `StoreBehindCompaction` unless you give 0; `EpochsOfOtherCode` for epochs before `from_epoch`
    that other code has made than the flow has now; `FlowAlreadyRunning`, `FlowNeverRan`, `UnknownName`, and
    whatever running the flow raises for the source and the steps.
    """
    spec = flow.spec
    sink = spec.output(output).sink
    if (mending := mendable(sink)) is None and from_epoch != 0:
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
        table = None if mending is None else mending.mend(owner)
        try:
            whole(table or sink.open(owner), owner, sink, held=_held(loaded, output))
        except TableWentBack:
            if from_epoch != 0:
                raise
            store.record_held(lease, {output: None})
            return Repaired(spec.name, output, (), 0, (), 0, begun_anew=True)
        if table is None:
            raise OnlyAppended(output=output)
        start = _start(loaded, output, table)
        damage, epochs, upper = _wanted(spec, output, table, store, loaded, from_epoch, start)
        if damage.foreign and not remove_foreign:
            raise ForeignRows(
                table=_place(spec, output), output=f"{spec.name}:{output}", files=_files(damage.foreign)
            )
        removed = tuple(sorted(damage.foreign))
        if not epochs and not removed:
            return Repaired(spec.name, output, (), 0, (), upper, changed=False)
        codes, now = loaded.outputs[output].codes if output in loaded.outputs else (), code_of(spec.outputs[output])
        _check_code(output, codes, now, epochs, asked=from_epoch)
        rereading = Rereading(spec, output, table, loaded, picked, env)
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
                    _columns(spec, output, table, rereading.schema),
                    files,
                    write=rereading.mark + env.unique()[-16:],
                    told=partial(_telling, store, spec.name, output, rereading.start),
                )
            store.record_told(lease, output, 0)  # commits that were replaced may have told of losses
            if (
                from_epoch is not None
                and (made := rewritten(codes, now, first=epochs[-1].start, at=env.now())) != codes
            ):
                store.record_codes(lease, {output: made})  # after the commit: until then the old rows are there
        except BaseException:
            table.discard(files)
            raise
        anew = tuple((one.start, min(one.stop, upper) - 1) for one in epochs if one.start < upper)
        return Repaired(spec.name, output, anew, rows, removed, upper)


def _columns(flow: FlowSpec, output: str, table: Mending, rows: pa.Schema) -> pa.Schema:
    """Return the columns of a table that is mended by these rows, which may lack some where it is to evolve."""
    if flow.outputs[output].evolution != "evolve" or table.schema is None:
        return rows
    place, name = _place(flow, output), f"{flow.name}:{output}"
    return grown(table.schema, rows_schema(rows), "evolve", place=place, output=name, nests=True)


def _telling(store: Store, flow: str, output: str, start: StartRecord | None, lower: int, upper: int) -> History:
    """Return the history of epochs, with where the output begins: commits that are replaced may have told it."""
    return store.history(flow, lower, upper, whole=False).beginning(output, start)


def _start(loaded: Loaded, output: str, table: Mending) -> StartRecord | None:
    """Return where an output begins. A store that has not seen its table may be older: then the table knows."""
    known = loaded.outputs.get(output)
    return told(output, table.links()) if known is None or not known.held else known.start


def _past(flow: FlowSpec, output: str, loaded: Loaded, start: StartRecord | None) -> tuple[str | None, range]:
    """Return the output from whose table the epochs can be read that it holds one by one, and these."""
    past = flow.outputs[output].past
    if past is None or past not in loaded.outputs:
        return None, range(0)
    theirs, stamp = loaded.outputs[past].start, 0 if start is None else start.stamp
    first = 0 if theirs is None else theirs.epoch
    if theirs is not None and theirs.stamp > max(loaded.flow.since, stamp):
        first = theirs.stamp + 1
    return past, range(first, present(flow, loaded.flow.incarnation, past).upper)


def _held(loaded: Loaded, output: str) -> int:
    return loaded.outputs[output].held if output in loaded.outputs else 0


def _wanted(
    flow: FlowSpec,
    output: str,
    table: Mending,
    store: Store,
    loaded: Loaded,
    from_epoch: int | None,
    start: StartRecord | None,
) -> tuple[TableDamage, Ranges, int]:
    """Return the faults of a table, the epochs that are replaced for it, and those that it then holds."""
    damage, epochs, upper = table.damage, table.damage.epochs, table.upper
    if damage.unknown and from_epoch != 0:
        raise EpochsUnknown(table=_place(flow, output), output=f"{flow.name}:{output}", files=damage.unknown)
    if from_epoch != 0:  # an older store may tell epochs apart that the table has as one, and would lose most of it
        check_since(store, flow, output, table, loaded)
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
    return damage, table.whole(_with_past(epochs, start)), upper


def _check_code(
    output: str, known: Sequence[CodeRecord], now: OutputCode, epochs: Ranges, *, asked: int | None
) -> None:
    """Raise `EpochsOfOtherCode` for epochs of other code than the present one, unless they are asked for."""
    unasked = epochs if asked is None else [range(one.start, min(one.stop, asked)) for one in epochs]
    if (other := made_by_other(known, now, unasked)) is not None:
        first, found = other.epochs[0].start, listed(other.epochs)
        raise EpochsOfOtherCode(output=output, epochs=found, first=first, changes="; ".join(other.changes))


def _with_past(epochs: Ranges, start: StartRecord | None) -> Ranges:
    """Return the epochs with all of a past that is one epoch, where they have some of it.

    >>> from tidegauge.remap.start import StampRecord
    >>> start = StartRecord("null", 0, StampRecord('"collapse"', 4))
    >>> _with_past([range(2, 3), range(7, 9)], start), _with_past([range(5, 6)], start)
    ((range(0, 5), range(7, 9)), (range(5, 6),))
    """
    if start is None or start.past is None:
        return epochs
    return joined(range(max(one.stop, start.stamp + 1)) if one.start <= start.stamp else one for one in epochs)


def _files(files: Mapping[str, str]) -> str:
    return ", ".join(f"{path} ({what})" for path, what in sorted(files.items()))


def _place(flow: FlowSpec, output: str) -> str:
    return flow.outputs[output].sink.identity
