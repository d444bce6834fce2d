"""Columns that were changed since a flow ran last: those of sources, and those that outputs have by them.

A source whose declared columns differ from those that it has gets the new ones, if every output whose rows then have
others may take them on. It is settled once the tables were found to belong to the store, and nothing else is refused,
before anything is bound or staged; and kept with the positions that are bound by then (`store.earlier`). So:

    epochs that are bound, in a table or not      their records are read by the columns of before
    epochs that come later                        their records are read by the new ones
    rows of either                                have the new columns; null where records were read without

The columns of a source that infers them become others while the flow runs. Its records are gone through before they
are bound (`sources.scouting`), and where they have further columns, the flow is opened anew with these. Here it is
settled in the same way, for each column by itself. One that some output or table does not take on is ignored; people
are told why, and nothing stops.

Invariant: the columns that a record is read by are durable before the first job that knows of it, and never change.

>>> old, new = pa.schema([("n", pa.int32())]), pa.schema([("n", pa.int64()), ("note", pa.string())])
>>> refusal(old, new, "evolve"), refusal(old, new, "add")[:56]
('', "its outputs have schema='add', and so take new columns a")
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias

import pyarrow as pa

from tidegauge.backfill.plan import files_of
from tidegauge.engine import LocalEngine
from tidegauge.errors.base import TidegaugeError, Transient
from tidegauge.errors.columns import ColumnsRefused, NotEvolving, SharedColumnsRefused, SourceColumnsRefused
from tidegauge.evolution import EVOLUTIONS, Evolution, evolved, kinds, listed, wider
from tidegauge.flow.spec import FlowSpec
from tidegauge.job.code import code_of
from tidegauge.job.plan import OutputPlan
from tidegauge.remap.store import Lease, Loaded, Store
from tidegauge.remap.store.columns import all_streams, differences
from tidegauge.sinks.evolving import Evolving
from tidegauge.sinks.protocol import OutputId, Replaceable, Table
from tidegauge.sources.abilities import Evolvable
from tidegauge.sources.push.source import PushedSource, columns_within, grows, joined_columns, kept_columns
from tidegauge.sources.scouting import is_telling

__all__ = [
    "ChangedColumns",
    "OutputColumns",
    "begun_without",
    "changed_columns",
    "columns_of_steps",
    "declared",
    "evolving",
    "fencing",
    "found_columns",
    "refusal",
    "scouted_sources",
]

_TAKES: Final[Mapping[Evolution, str]] = {
    "strict": "none",
    "add": "new columns and fields within alone",
    "evolve": "new columns, fewer of them, and wider types alone",
}
OutputColumns: TypeAlias = Callable[[OutputPlan, pa.Schema], pa.Schema | None]
"""Returns the columns of an output by those of its source; None where its steps do not say, or not without Spark."""


def columns_of_steps(plan: OutputPlan, source: pa.Schema) -> pa.Schema | None:
    """Return the columns of an output as far as that can be told without Spark."""
    with suppress(TidegaugeError):
        return LocalEngine(threads=0).schema(plan, source)
    return None


def declared(flow: FlowSpec, source: str) -> pa.Schema | None:
    """Return the columns to register a source with: none where `changed_columns` decides, or the source's owner."""
    if flow.following is not None:
        return None
    may = any(plan.evolution != "strict" for plan in flow.outputs.values() if plan.source == source)
    return None if may or _tells_later(flow.sources[source]) else flow.sources[source].schema


def _tells_later(source: object) -> bool:
    """Whether a source has streams that take columns on while the flow runs."""
    return isinstance(source, PushedSource) and source.tells


@dataclass(frozen=True, slots=True)
class ChangedColumns:
    """The columns of sources that are to take effect, by source; and in words which are others than before.

    passed_over: all columns that were found of sources, where some are not taken on.
    """

    columns: Mapping[str, pa.Schema]
    words: tuple[str, ...] = ()
    passed_over: Mapping[str, pa.Schema] = field(default_factory=dict)

    def beside(self, other: ChangedColumns) -> ChangedColumns:
        """Return both, which are of different sources."""
        passed_over = {**self.passed_over, **other.passed_over}
        return ChangedColumns({**self.columns, **other.columns}, (*self.words, *other.words), passed_over)

    def on(self, loaded: Loaded) -> Loaded:
        """Return what a store has, with them."""
        sources = {name: replace(loaded.sources[name], schema=schema) for name, schema in self.columns.items()}
        return replace(loaded, sources={**loaded.sources, **sources})

    def recorded(self, loaded: Loaded, store: Store, lease: Lease) -> Loaded:
        """Make them durable, and return them with all that was loaded, as the store has its sources then."""
        if not self.columns:
            return loaded
        store.record_columns(lease, self.columns)
        return replace(loaded, sources=store.load(loaded.flow.name).sources)


def changed_columns(
    flow: FlowSpec, loaded: Loaded, tables: Mapping[str, Table], columns: OutputColumns
) -> ChangedColumns:
    """Return the columns of sources that are to take effect. Changes nothing.

    Columns with which nothing was bound yet can be taken back. Those of a shared source are its owner's, and have
    taken effect. Raises `SourceColumnsRefused` and `SharedColumnsRefused`.
    """
    if flow.following is not None:
        _check_shared(flow, loaded, tables, columns)
        return ChangedColumns({})
    changed: dict[str, pa.Schema] = {}
    words: list[str] = []
    for name, source in flow.sources.items():
        now, known = source.schema, loaded.sources[name]
        before = known.schema
        if now is not None and before is not None and _tells_later(source):
            now = kept_columns(before, now)
        if now is not None and before is not None and grows(source):
            now = all_streams(before, now)
            if all(one.endswith(": new") for one in differences(before, now)):
                changed[name] = now
                continue
        if now is None or (before is not None and not differences(before, now)):
            continue
        if known.columns_since == loaded.flow.upper and known.earlier:
            before = known.earlier[-1].schema
        if before is not None and (found := "; ".join(differences(before, now))):
            if why := _hindrance(flow, loaded, name, before, now, columns):
                said = {"before": listed(kinds(before)), "now": listed(kinds(now)), "differences": found}
                raise SourceColumnsRefused(source=name, why=why, **said)
            words.append(f"source {name} has other columns, from epoch {loaded.flow.upper} on: {found}")
        changed[name] = now
    return ChangedColumns(changed, tuple(words))


def _check_shared(flow: FlowSpec, loaded: Loaded, tables: Mapping[str, Table], columns: OutputColumns) -> None:
    """See that the owner has the columns that are declared here, and that outputs take on those that are new."""
    owner = "" if flow.following is None else flow.following.flow
    for name, source in flow.sources.items():
        known, now = loaded.sources[name], source.schema
        if known.schema is not None and now is not None and (found := "; ".join(differences(known.schema, now))):
            why = f"flow {owner!r} shares it, and has not taken them on: start that flow with them first"
            said = {"before": listed(kinds(known.schema)), "now": listed(kinds(now)), "differences": found}
            raise SourceColumnsRefused(source=name, why=why, **said)
    for output, plan in flow.outputs.items():
        known = loaded.sources[plan.source]
        held = tables[output].upper if output in tables else loaded.outputs[output].held
        later = [one for one in known.earlier if one.epoch >= held]
        if not held or not later or known.schema is None or plan.channel == "errors":
            continue
        was, is_now = columns(plan, later[0].schema), columns(plan, known.schema)
        if was is None or is_now is None or was == is_now:
            continue
        detail = evolved(kinds(was), kinds(is_now), plan.evolution, widens=wider, nests=True).refused
        if detail:
            said = {"before": listed(kinds(was)), "now": listed(kinds(is_now)), "how": plan.evolution}
            raise SharedColumnsRefused(
                output=output, source=plan.source, owner=owner, epoch=later[0].epoch, detail=detail, **said
            )


def scouted_sources(flow: FlowSpec) -> frozenset[str]:
    """Return the sources whose further columns are looked for in records, or told of, before these are bound."""
    wanted = {
        plan.source for plan in flow.outputs.values() if plan.evolution != "strict" and plan.channel != "errors"
    }
    own = flow.following is None
    return frozenset(
        name
        for name, source in flow.sources.items()
        if own and name in wanted and (is_telling(source) or _tells_later(source))
    )


def found_columns(
    flow: FlowSpec,
    loaded: Loaded,
    tables: Mapping[str, Table],
    found: Mapping[str, pa.Schema],
    columns: OutputColumns,
) -> ChangedColumns:
    """Return which of the columns that looks have found take effect, and which are ignored. Changes nothing."""
    changed, passed_over = dict[str, pa.Schema](), dict[str, pa.Schema]()
    words: list[str] = []
    for name in found.keys() & scouted_sources(flow):
        known, all_found = loaded.sources[name].schema, found[name]
        if known is None or not set(known.names) <= set(all_found.names):
            continue
        now = known
        source, each, said = flow.sources[name], _single(known, all_found), differences
        if isinstance(source, PushedSource):
            each, said = _streamed(source, known, all_found), _differences
        for column in each:
            wanted = column.on(now)
            why = column.refused or _hindrance(flow, loaded, name, now, wanted, columns)
            if why := why or _unfit(flow, name, tables, wanted, columns):
                words.append(f"source {name} has records with {column.name!r} ({column.type}), not read: {why}")
            else:
                now = wanted
        if differing := "; ".join(said(known, now)):
            changed[name] = now
            words.append(f"source {name} has other columns, from epoch {loaded.flow.upper} on: {differing}")
        if not now.equals(all_found):
            passed_over[name] = all_found
    return ChangedColumns(changed, tuple(words), passed_over)


@dataclass(frozen=True, slots=True)
class _FoundColumn:
    """A column that records have, or one with other fields within. on: returns the columns of a source with it.

    refused: why it is not to be taken on, whatever the outputs say.
    """

    name: str
    type: pa.DataType
    on: Callable[[pa.Schema], pa.Schema]
    refused: str = ""


def _single(known: pa.Schema, found: pa.Schema) -> Iterator[_FoundColumn]:
    """Yield the columns that are new among those found, or have other fields within."""
    for column in found:
        if column.name not in known.names or not known.field(column.name).equals(column):
            yield _FoundColumn(column.name, column.type, partial(_with, column, found.names))


def _with(column: pa.Field, order: Sequence[str], now: pa.Schema) -> pa.Schema:
    mine = {one.name: one for one in now} | {column.name: column}
    return pa.schema([mine[one] for one in order if one in mine])


def _streamed(source: PushedSource, known: pa.Schema, found: pa.Schema) -> Iterator[_FoundColumn]:
    """Yield the columns that are new within streams."""
    for stream in (one for one in known.names if one in found.names):
        own = columns_within(known, stream)
        taken = {} if own is None else {name.lower(): name for name in own.names}
        for column in columns_within(found, stream) or ():
            if taken.get(column.name.lower()) == column.name:
                continue
            alike = taken.setdefault(column.name.lower(), column.name)
            on = partial(joined_columns, further={stream: pa.schema([column])})
            why = "" if alike == column.name else f"{alike!r} is the same name, in another case"
            why = why or source.refused(stream, column.name)
            yield _FoundColumn(f"{stream}.{column.name}", column.type, on, why)


def _differences(before: pa.Schema, after: pa.Schema) -> list[str]:
    """Return what differs, for people: of a stream with further columns these alone."""
    found = list[str]()
    for said in differences(before, after):
        stream = said.partition(":")[0]
        old, new = (columns_within(one, stream) if stream in one.names else None for one in (before, after))
        within = [] if old is None or new is None else differences(old, new)
        found += [f"{stream}.{one}" for one in within] or [said]
    return found


def _unfit(flow: FlowSpec, name: str, tables: Mapping[str, Table], now: pa.Schema, columns: OutputColumns) -> str:
    """Return why some output of a source, or its table, cannot have the columns, "" if all can."""
    for output, plan in flow.outputs.items():
        if plan.source != name or plan.channel == "errors":
            continue
        rows, table = columns(plan, now), tables.get(output)
        if rows is None:
            return f"the steps or the sink of output {output!r} refuse it"
        if plan.evolution == "strict" or table is None or table.schema is None:
            continue
        if isinstance(table, Evolving):
            table.evolve(plan.evolution)
            try:
                table.lacking(rows)
            except ColumnsRefused as error:
                return error.summary
    return ""


def _hindrance(
    flow: FlowSpec, loaded: Loaded, name: str, before: pa.Schema, now: pa.Schema, columns: OutputColumns
) -> str:
    """Return why columns of a source cannot be others from now on, "" if they can."""
    source = flow.sources[name]
    if not isinstance(source, Evolvable):
        return f"{type(source).__name__} cannot read records by the columns of before"
    if why := source.unreadable(before):
        return why
    strict: list[str] = []
    strictest = EVOLUTIONS.index("evolve")
    for output, plan in flow.outputs.items():
        if plan.source != name or plan.channel == "errors":
            continue
        known = loaded.outputs[output]
        was, is_now = columns(plan, before), columns(plan, now)
        if not (known.held or known.codes) or (was is not None and was == is_now):
            continue
        if plan.evolution == "strict":
            strict.append(repr(output))
        strictest = min(strictest, EVOLUTIONS.index(plan.evolution))
    if strict:
        return f"the rows of output {', '.join(strict)} would have others, which schema='strict' does not take on"
    return refusal(before, now, EVOLUTIONS[strictest])


def refusal(before: pa.Schema, now: pa.Schema, how: Evolution) -> str:
    """Return why the columns of a source do not become others in this way, "" if they do."""
    if not evolved(kinds(before), kinds(now), how, widens=wider, nests=True).refused:
        return ""
    return f"its outputs have schema={how!r}, and so take {_TAKES[how]}, of names that differ in more than their case"


def evolving(flow: FlowSpec, loaded: Loaded, tables: Mapping[str, Table], columns: OutputColumns) -> frozenset[str]:
    """Tell tables how they take on columns; return the outputs whose rows have some that their tables lack.

    Raises `ColumnsRefused` for rows that a table is not to take, and `NotEvolving`.
    """
    adding = set[str]()
    for name, table in tables.items():
        plan = flow.outputs[name]
        if isinstance(table, Evolving):
            table.evolve(plan.evolution)
        if plan.evolution == "strict" or table.schema is None:
            continue  # it keeps no columns of rows yet, or never does
        if not isinstance(table, Evolving):
            raise NotEvolving(output=name, how=plan.evolution, sink=type(plan.sink).__name__)
        source = loaded.sources[plan.source].schema
        rows = None if source is None else columns(plan, source)
        if rows is not None and table.lacking(rows):
            adding.add(name)
    return frozenset(adding)


def fencing(
    flow: FlowSpec, loaded: Loaded, tables: dict[str, Table], columns: OutputColumns
) -> Callable[[str], None]:
    """Return what gives a table another edition, so that no driver that has it open commits, and opens it anew.

    A table without editions is compared by its upper alone, as ever.
    """

    def fence(name: str) -> None:
        table, plan = tables[name], flow.outputs[name]
        if not (isinstance(table, Replaceable) and table.upper):
            return
        said = f"{table.edition} {table.upper} {code_of(plan).encode()}"
        table.withdraw(hashlib.blake2b(said.encode(), digest_size=16).hexdigest())
        tables[name] = plan.sink.open(OutputId(flow.name, name, loaded.flow.incarnation))
        evolving(flow, loaded, {name: tables[name]}, columns)

    return fence


def begun_without(
    flow: FlowSpec,
    loaded: Loaded,
    changed: ChangedColumns,
    tables: Mapping[str, Table],
    going_on: Collection[str],
    store: Store,
    lease: Lease,
) -> set[str]:
    """End the backfills that would go on, and whose rows lack columns that have just come; return their outputs.

    Their files were kept from the sweep. They go once the store has forgotten them.
    """
    found = {name for name in going_on if flow.outputs[name].source in changed.columns}
    for name in sorted(found):
        files = files_of(loaded.backfills[name])
        store.end_backfill(lease, name)
        with suppress(OSError, Transient):  # what stays is litter, and swept another time
            tables[name].discard(files)
    return found
