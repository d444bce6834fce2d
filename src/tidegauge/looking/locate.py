"""From a record upstream to its rows in the tables, and from a row back to its record.

Invariant: both ways go through the timeline and nothing else. A record is in the one epoch that the remap table says
(law 1), and a row whose epoch is not that one is refused: it is not of this life of the flow.

On compacted history the epochs up to `since` cannot be told apart, so records that came in there count as of `since`,
and `exact` is false. Positions begin again with a new incarnation of a source: a position that several of them have
is looked up in the newest, and a row's in the one that its epoch belongs to.

>>> import tempfile, tidegauge as tg
>>> made = tempfile.TemporaryDirectory()
>>> folder = made.name
>>> flow = tg.Dataflow("shop", store=f"sqlite:///{folder}/shop.db")
>>> visits = flow.source("visits", tg.GeneratorSource(5, columns="id long", max_records_per_epoch=3, metadata=True))
>>> flow.sink("visits", visits, tg.DeltaSink(f"{folder}/visits"))
>>> _ = flow.run(until="caught-up", engine=tg.LocalEngine(threads=0))
>>> place = locate(flow, "visits", "shard-0", 4)
>>> place.epoch, [(table.output, table.version, table.rows) for table in place.tables]
(1, [('visits', '1', 2)])
>>> [row] = [row for row in tg.read_arrow(flow, "visits").to_pylist() if row["_offset"] == 4]
>>> origin(flow, "visits", row).place == place
True
>>> made.cleanup()
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, islice
from operator import index
from typing import Any, Final

import pyarrow as pa

from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError, brief
from tidegauge.errors.command import AmbiguousPath, PastTheEnd, RowOfAnotherLife, RowsUnreadable, UnknownPartition
from tidegauge.errors.flow import InvalidArgument, UnknownName
from tidegauge.errors.store import EpochBelowSince, NotYetBound
from tidegauge.flow.belonging import table_of
from tidegauge.flow.spec import Flow, FlowSpec
from tidegauge.looking.inspect import holds, opened, rows_of, slice_report
from tidegauge.looking.reports import SliceReport
from tidegauge.remap.fromtime.protocol import excerpt
from tidegauge.remap.store import Loaded, LoadedSource, Store
from tidegauge.sinks.columns import EPOCH
from tidegauge.sinks.protocol import Table
from tidegauge.sources.union import UnionSource
from tidegauge.sources.union.columns import SOURCE
from tidegauge.sources.union.places import split_of

__all__ = ["Holding", "Origin", "Place", "key_of", "locate", "origin"]

_PARTITION: Final = "_partition"
_OFFSET: Final = "_offset"
_COMPARED: Final = 1000
"""How many names are compared to find the nearest."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What an output's table has of an epoch.

    version: the commit that brought it, in the table's own words; None where it came without one, because the source
    has nothing in it, and where the table no longer knows. rows: of the epoch; None where they cannot be counted,
    and `error` says why. epoch: the one that its rows have there, where that is not their records' (`timestamps=`);
    `rows` are then all of that one.
    """

    output: str
    holds: bool
    version: str | None
    rows: int | None
    error: TidegaugeError | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands: upstream in a partition, with its path where it has one, on the timeline, in the tables.

    exact: whether the timeline still tells this epoch from those before it. incarnation: of the source, from 0.
    """

    source: str
    epoch: int
    partition: str
    path: str
    position: int
    minted_at: datetime | None
    published_at: datetime | None
    tables: tuple[Holding, ...]
    exact: bool = True
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a row comes from: its record's place where the row says it, else all that its epoch has of its source.

    slices: the ranges of the epoch that the record is in: one with a place, and the others with none.
    """

    output: str
    source: str
    epoch: int
    minted_at: datetime | None
    published_at: datetime | None
    place: Place | None
    slices: tuple[SliceReport, ...]

    @property
    def exact(self) -> bool:
        """Whether the very record is known."""
        return self.place is not None


def locate(flow: Flow, source: str, partition: str, position: int) -> Place:
    """Return the place of a record: its epoch, and the commit of each of the source's tables that has it.

    partition: its key, as in `_partition`, or for files their path.

    Raises `UnknownName`, `UnknownPartition`, `AmbiguousPath`, `NotYetBound`, `PastTheEnd`, `FlowNeverRan`.
    """
    _check_text("source", source)
    _check_text("partition", partition)
    number = _integer("position", position)
    if number < 0:
        raise InvalidArgument(parameter="position", value=position, expected="zero or more")
    with looking(flow.spec) as look:
        return look.locate(source, partition, number)


def origin(flow: Flow, output: str, row: Mapping[str, Any]) -> Origin:
    """Return where a row of an output comes from, given its columns by name: the record itself with `metadata=True`.

    row: needs `_epoch`. With `_partition` and `_offset` the record is found, otherwise the ranges that it is in.

    Raises `RowOfAnotherLife` for one that this flow did not write, `EpochBelowSince` for one without metadata of an
    epoch that was compacted, `UnknownName`, `FlowNeverRan`.
    """
    _check_text("output", output)
    if not isinstance(row, Mapping) or row.get(EPOCH) is None:
        raise InvalidArgument(
            parameter="row", value=row, expected=f"the columns of a row by name, {EPOCH} among them"
        )
    with looking(flow.spec) as look:
        return look.origin(output, row)


@contextmanager
def looking(flow: FlowSpec) -> Iterator[FlowSnapshot]:
    """Open the flow's store for as long as places are asked for. Raises `FlowNeverRan`."""
    with opened(flow, Env()) as store:
        yield FlowSnapshot(flow, store, store.load(flow.name))


@dataclass(frozen=True, slots=True)
class FlowSnapshot:
    """The durable state of a flow at one instant, to be asked about many records. Each table is opened once."""

    flow: FlowSpec
    store: Store
    loaded: Loaded
    _tables: dict[str, Table] = field(default_factory=dict)
    _holdings: dict[tuple[str, int], Holding] = field(default_factory=dict)

    def locate(self, source: str, partition: str, position: int) -> Place:
        """Answer `locate`."""
        found = self.loaded.sources.get(source)
        if found is None:
            raise UnknownName(kind="source", name=source, known=sorted(self.loaded.sources))
        key = key_of(found, source, partition)
        for table in (found.table, *reversed(found.past)):
            if position < table.frontier[key]:
                return self._place(found, key, position, table.epoch_of(key, position))
        if found.table.sealed_at is not None:
            raise PastTheEnd(position=position, partition=key, source=source, end=found.table.frontier[key])
        raise NotYetBound(source=source, partition=key, position=position, upper=self.loaded.flow.upper)

    def origin(self, output: str, row: Mapping[str, Any]) -> Origin:
        """Answer `origin`."""
        source, epoch = self.flow.output(output).source, _integer(EPOCH, row[EPOCH])
        flow, found = self.loaded.flow, self.loaded.sources.get(source)
        if found is None or not 0 <= epoch < flow.upper:
            raise RowOfAnotherLife(output=output, epoch=epoch, detail=f"the epochs are those below {flow.upper}")
        at = max(epoch, flow.since)
        past = self._past(output)
        if past is not None and epoch in past[:-1]:
            raise RowOfAnotherLife(output=output, epoch=epoch, detail=f"the table has the epochs from {past[-1]} on")
        folded = past is not None and epoch == past[-1]
        pieces = found.slices(max(past[0], flow.since) if past is not None and folded else at, at + 1)
        place = None
        if (partition := row.get(_PARTITION)) is not None and row.get(_OFFSET) is not None:
            position, of = _integer(_OFFSET, row[_OFFSET]), row.get(SOURCE)
            own = {p.partition: self._own_name(source, p.partition, of) for p in pieces}
            pieces = [p for p in pieces if own[p.partition] == partition and p.lower <= position < p.upper]
            if pieces:
                at_epoch = pieces[0].epoch if folded else epoch
                place = self._place(found, pieces[0].partition, position, at_epoch)
        if not pieces:
            if epoch < flow.since:
                raise EpochBelowSince(source=source, epoch=epoch, since=flow.since)
            raise RowOfAnotherLife(output=output, epoch=epoch, detail=f"that has no such record of {source!r}")
        slices = tuple(slice_report(self.flow, found, piece) for piece in pieces)
        return Origin(output, source, epoch, *self._times(epoch), place, slices)

    def _own_name(self, source: str, partition: str, of: object) -> str | None:
        """Return the name that a partition has in rows; of a union, in those of its input `of` alone."""
        if not isinstance(self.flow.sources.get(source), UnionSource):
            return partition
        life, there = split_of(partition)
        return there if life.name == of else None

    def _place(self, found: LoadedSource, partition: str, position: int, epoch: int) -> Place:
        """Return the place of a record that is known to be of the epoch."""
        source = found.table.source
        return Place(
            source,
            epoch,
            partition,
            str(found.details.get(partition, {}).get("path", partition)),
            position,
            *self._times(epoch),
            tables=tuple(
                self._holding(name, epoch) for name, plan in self.flow.outputs.items() if plan.source == source
            ),
            exact=epoch > self.loaded.flow.since or self.loaded.flow.since == 0,
            incarnation=sum(one.began_at <= epoch for one in found.incarnations),
        )

    def _past(self, output: str) -> range | None:
        """Return the epochs that are one in an output's table."""
        known = self.loaded.outputs.get(output)
        return None if known is None or known.start is None else known.start.past

    def _times(self, epoch: int) -> tuple[datetime | None, datetime | None]:
        """Return when an epoch was minted and when published."""
        for record in self.store.epochs(self.flow.name, first=epoch, last=epoch):
            return record.minted_at, record.published_at
        return None, None

    def _holding(self, output: str, epoch: int) -> Holding:
        if (output, epoch) not in self._holdings:
            self._holdings[output, epoch] = self._held(output, epoch)
        return self._holdings[output, epoch]

    def _held(self, output: str, epoch: int) -> Holding:
        held, version = False, None
        try:
            if output not in self._tables:
                self._tables[output] = table_of(self.flow, output, self.loaded)
            table = self._tables[output]
            source, known = self.flow.outputs[output].source, self.loaded.outputs.get(output)
            begins, stands = (0, table.upper) if known is None else (known.begins, known.reached(table.upper))
            held = begins <= epoch < holds(self.loaded, source, stands)
            version = table.version_of(epoch)
            past = self._past(output)
            at = past[-1] if past is not None and epoch in past else epoch
            rows = rows_of(table, at, since=self.loaded.flow.since)
            return Holding(output, held, version, rows, epoch=at if at != epoch else None)
        except TidegaugeError as refused:  # one table that cannot be read does not hide the others
            return Holding(output, held, version, None, refused)
        except (OSError, pa.ArrowException) as error:
            return Holding(output, held, version, None, RowsUnreadable(output=output, detail=brief(error)))


def key_of(found: LoadedSource, source: str, partition: str) -> str:
    """Return the key of a partition that is given by its key or by its path.

    Raises `UnknownPartition`, or `AmbiguousPath`.
    """
    bound = {key for table in (found.table, *found.past) for key in table.frontier}
    if partition in bound or partition in found.details:
        return partition
    paths = {partition}
    with suppress(OSError):  # where this program's folder is gone, a relative path is none
        paths.add(os.path.abspath(partition))  # noqa: PTH100 - Path.resolve would follow links
    keys = [key for key, detail in found.details.items() if detail.get("path") in paths]
    if len(keys) > 1:
        raise AmbiguousPath(source=source, path=partition, partitions=sorted(keys))
    if not keys:
        there = chain(bound, (str(detail["path"]) for detail in found.details.values() if "path" in detail))
        known = islice(there, _COMPARED)
        raise UnknownPartition(source=source, partition=excerpt(partition), count=len(bound), known=known)
    return keys[0]


def _check_text(parameter: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidArgument(parameter=parameter, value=value, expected="a text")


def _integer(parameter: str, value: object) -> int:
    """Return an integer of any kind; no truth value, and no number that was rounded."""
    if not isinstance(value, bool):
        with suppress(TypeError):
            return index(value)  # type: ignore[arg-type]
    raise InvalidArgument(parameter=parameter, value=value, expected="an integer")
