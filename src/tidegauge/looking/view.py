"""The files of an output as of a moment: what every reader begins with.

Invariant. The files hold every row of the epochs up to the view's, and its epoch is published and held by the output;
or there is an error that says why not. Rows of later epochs may be among them, so readers keep those up to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from tidegauge.engine import LocalEngine
from tidegauge.env import Env
from tidegauge.errors.base import brief
from tidegauge.errors.command import (
    BeforeStart,
    NotPublished,
    OutputHasFailed,
    OutputIsBehind,
    RowsUnreadable,
    WithinPast,
)
from tidegauge.errors.flow import NeedsSpark
from tidegauge.errors.store import EpochBelowSince
from tidegauge.flow.belonging import check, check_unseen, table_of
from tidegauge.flow.spec import FlowSpec
from tidegauge.job.functions import with_epoch
from tidegauge.looking.asof import AsOf, published_epoch
from tidegauge.looking.inspect import holds, opened
from tidegauge.objects.reading import parquet_rows
from tidegauge.operations import OP
from tidegauge.remap.start import WITH_SOURCE
from tidegauge.remap.store import Loaded, Store
from tidegauge.sinks.layout.values import PartitionValues, constants
from tidegauge.sinks.protocol import Identified, Replaceable, Resident, Table
from tidegauge.sinks.vectors import live_rows

__all__ = ["View", "reading", "view_of", "viewed"]

_EDITION: Final = 15
"""Digits of an edition that every table keeps."""


@dataclass(frozen=True, slots=True)
class View:
    """Files that hold every row of the epochs up to `epoch`, perhaps among later ones. `schema` is the table's.

    held: the rows themselves, where they are in memory; then there are no files. partitions: of each file the values
    that all of its rows have in the table's partition columns, which it need not have itself. deletions: of each file
    which of its rows are deleted. Both are empty where no file has any. sizes: of each file its bytes.

    table: what tells the table from one that was made later in its place, or whose rows were all replaced; "" before
    its first commit.
    """

    epoch: int
    uris: list[str]
    schema: pa.Schema
    held: pa.Table | None = None
    partitions: tuple[PartitionValues, ...] = ()
    deletions: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    table: str = ""

    def pieces(self) -> list[tuple[str, PartitionValues, str]]:
        """Return for each file what its rows depend on: two views that have a piece have its rows."""
        none = len(self.uris)
        return list(zip(self.uris, self.partitions or ((),) * none, self.deletions or ("",) * none, strict=True))

    def only(self, places: Sequence[int]) -> View:
        """Return some of the files, by their places."""
        return replace(
            self,
            uris=[self.uris[at] for at in places],
            partitions=tuple(self.partitions[at] for at in places) if self.partitions else (),
            deletions=tuple(self.deletions[at] for at in places) if self.deletions else (),
            sizes=tuple(self.sizes[at] for at in places) if self.sizes else (),
        )

    def rows(self, condition: Any, *, columns: list[str] | None = None) -> Any:
        """Return a scanner of the rows that meet a condition, as Arrow has it, in memory that does not grow.

        columns: which of them, None for all.
        """
        import pyarrow.dataset as ds  # here, for it loads pandas, which takes longer than all the rest

        if not self.deletions:
            return self.dataset().scanner(filter=condition, columns=columns)
        return ds.Scanner.from_batches(self._left(), schema=self.schema, filter=condition, columns=columns)

    def dataset(self) -> Any:
        """Return the rows as a dataset. Those of files that have deleted rows are in memory."""
        import pyarrow.dataset as ds

        if self.held is not None:
            return ds.dataset(self.held)
        if not self.uris:
            return ds.dataset(self.schema.empty_table())
        if not any(self.deletions):
            values = [constants(one, self.schema) for one in self.partitions]
            return parquet_rows(self.uris, self.schema, values)
        marked = [at for at, deleted in enumerate(self.deletions) if deleted]
        whole = [at for at, deleted in enumerate(self.deletions) if not deleted]
        left = self.only(marked).rows(None).to_table()
        return ds.dataset([*([self.only(whole).dataset()] if whole else []), ds.dataset(left)])

    def _left(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are left of the files."""
        for uri, values, deletions in self.pieces():
            yield from live_rows(uri, self.schema, constants(values, self.schema), deletions)


@contextmanager
def reading(output: str) -> Iterator[None]:
    """Read data files of an output. Raises `RowsUnreadable` for one that is missing or damaged."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise RowsUnreadable(output=output, detail=brief(error)) from error


def _check_held(loaded: Loaded, output: str, source: str, table_upper: int, epoch: int) -> None:
    if max(epoch, 0) < (since := loaded.flow.since):  # before its first epoch an output is empty
        raise EpochBelowSince(source=source, epoch=epoch, since=since)
    start = loaded.outputs[output].start
    if start is not None and max(epoch, 0) < start.epoch:
        said = "None" if start.said == WITH_SOURCE else start.said
        raise BeforeStart(output=output, start=start.epoch, said=said, as_of=epoch)
    if start is not None and start.stamps is not None and max(epoch, 0) < start.stamp:
        raise WithinPast(output=output, stamp=start.stamp, said=start.stamps.said, as_of=epoch)
    held = holds(loaded, source, loaded.outputs[output].reached(table_upper))
    if epoch < held:
        return
    for failure in (loaded.sources[source].failure, loaded.outputs[output].outstanding(table_upper)):
        if failure is not None and epoch >= failure[0]:
            raise OutputHasFailed(output=output, epoch=failure[0], as_of=epoch, detail=failure[1].summary)
    raise OutputIsBehind(output=output, upper=held, as_of=epoch)


def _columns(flow: FlowSpec, output: str, loaded: Loaded) -> pa.Schema:
    """Return the columns of a published output that holds no row yet, and so has no table.

    They are `_epoch` alone where nobody knows the source's columns yet, or only Spark knows what the steps make of
    them.
    """
    plan = flow.outputs[output]
    declared = flow.sources.get(plan.source)
    found = (None if declared is None else declared.schema) or loaded.sources[plan.source].schema
    with suppress(NeedsSpark):
        if found is not None:  # operations are applied to a table, and are no column of it
            schema = LocalEngine(threads=0).schema(plan, found)
            return pa.schema([field for field in schema if field.name != OP])
    return with_epoch(pa.schema([]))


def _told(table: Table) -> str:
    """Return what tells a table's rows from those of another one in its place, as far as it says."""
    made = table.made if isinstance(table, Identified) else ""
    edition = table.edition[:_EDITION] if made and isinstance(table, Replaceable) else ""
    return f"{made}:{edition}" if edition else made


def view_of(flow: FlowSpec, output: str, as_of: AsOf, *, env: Env | None = None) -> View:
    """Return the files of an output as of a moment (see `asof`). Raises what `read_arrow` raises."""
    flow.output(output)
    with opened(flow, env or Env()) as store:
        return viewed(flow, output, as_of, store=store, loaded=store.load(flow.name))


def viewed(
    flow: FlowSpec,
    output: str,
    as_of: AsOf,
    *,
    store: Store,
    loaded: Loaded,
    since: int = 0,
    upto: int | None = None,
) -> View:
    """Return the files of an output as of a moment, given an open store and its content.

    since, upto: the first and the last epoch whose rows are wanted; files without any are left out.
    """
    source = flow.output(output).source
    named = published_epoch(store, loaded, as_of)
    if output not in loaded.outputs or source not in loaded.sources:  # planned: it has not run yet
        raise NotPublished(as_of=f"a row of {output}", published=loaded.flow.published)
    table = table_of(flow, output, loaded)
    check(store, flow, output, table)
    check_unseen(store, flow, output, table, loaded)
    known = loaded.outputs[output]
    held = holds(loaded, source, known.reached(table.upper))
    filled = output in loaded.backfills or known.start is not None
    if named is None and filled and not table.upper and held < loaded.flow.published:
        raise OutputIsBehind(output=output, upper=held, as_of=loaded.flow.published - 1)  # not: there are no rows
    epoch = min(loaded.flow.published, held) - 1 if named is None else named
    if (past := flow.outputs[output].past) is not None and not table.upper and loaded.sources[source].began_at:
        theirs = loaded.outputs.get(past)
        if theirs is None or theirs.held:  # what that holds of an old upstream it gets; one that is dropped may, too
            raise OutputIsBehind(output=output, upper=0, as_of=epoch)
    _check_held(loaded, output, source, table.upper, epoch)
    last = epoch if upto is None else min(epoch, upto)
    while True:
        schema = table.schema or _columns(flow, output, loaded)
        with reading(output):  # a file that another program has rewritten is asked for its epochs
            files = [
                file for file in table.files(as_of=epoch) if file.first_epoch <= last and since <= file.last_epoch
            ]
        if isinstance(table, Resident):
            return View(epoch, [], schema, table.rows(files), table=_told(table))
        uris = table.uris(files)
        if table.schema in (None, schema):  # else all of its rows were replaced between the two looks
            partitions = tuple(file.partition for file in files)
            deletions = tuple(file.deletions for file in files)
            return View(
                epoch,
                uris,
                schema,
                partitions=partitions if any(partitions) else (),
                deletions=deletions if any(deletions) else (),
                sizes=tuple(file.bytes for file in files),
                table=_told(table),
            )
