"""The laws of every source (`tidegauge.sources.protocol`), as plain functions over a bench.

A bench is a source and its upstream, with the words that the laws need of it: records are added, spoilt, taken away.
It knows by itself which records lie in a range, and is asked for that: a source is never compared with itself. A law
takes a fresh bench and raises `AssertionError` where the source breaks it. What a bench cannot do (nobody can shorten
a generator) it says by returning False or None, and that part of the law holds for want of cases.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import Any, Final, Protocol, TypeAlias
from weakref import ref

import pyarrow as pa
import pytest

from tidegauge.errors.base import Definite, TidegaugeError
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.remap.mint import checked_observation
from tidegauge.remap.operator import recreated
from tidegauge.sources.protocol import BadRecord, GoingOn, Source, Split, from_time_of

__all__ = ["LAWS", "Chooser", "SourceBench", "cuts_change_nothing", "memory_is_bounded"]

NAME: Final = "it"
LARGEST_BATCH: Final = 16 << 20
"""Bytes of a batch, at most."""

Row: TypeAlias = dict[str, Any]
Chooser: TypeAlias = Callable[[Sequence[int]], Sequence[int]]
"""Chooses some of the positions at which a range may be cut."""


class SourceBench(Protocol):
    """A source on an upstream of its own. secrets: texts that nobody may find in the source."""

    source: Source
    secrets: Sequence[str]

    @property
    def now(self) -> datetime:
        """The time at which all that was added is there to be bound."""
        ...

    def add(self, count: int) -> None:
        """Append that many records to upstream."""
        ...

    def cuts(self, partition: str, bound: Bound) -> Sequence[int]:
        """The positions of a partition between two records, from 0 to its bound end."""
        ...

    def records(self, piece: Slice, bound: Bound) -> list[Row]:
        """The records of a slice, by what was added."""
        ...

    def ranges(self, split: Any) -> list[tuple[str, int, int]]:
        """What a split covers: partition, lower, upper."""
        ...

    def spoil(self) -> bytes | None:
        """Append a record that cannot be decoded, and return its bytes."""
        ...

    def shorten(self) -> bool:
        """Take away some records that are bound."""
        ...

    def recreate(self) -> None:
        """Put another upstream in its place: other records, as many of them. The source may be another one, too."""
        ...


def looked(bench: SourceBench, bound: Bound) -> Observation:
    """What the source observes, checked as in a flow."""
    return checked_observation(NAME, from_time_of(bench.source), bound, bench.source.probe(bound, now=bench.now))


def bind(source: Source, bound: Bound, observed: Observation) -> Bound:
    """What is bound after an observation, through the store's JSON."""
    return Bound(
        frontier=observed.upper,
        details={**bound.details, **json.loads(json.dumps({p: dict(d) for p, d in observed.details.items()}))},
        schema=bound.schema or observed.schema or source.schema,
        identity=bound.identity or observed.identity,
        state=observed.state or bound.state,
    )


def slices(bound: Bound, since: Frontier = ORIGIN, epoch: int = 0) -> list[Slice]:
    """The slices of an epoch."""
    return [Slice(NAME, epoch, p, lower, upper) for p, (lower, upper) in bound.frontier.since(since).items()]


def all_bound(bench: SourceBench) -> Bound:
    """Bind all that upstream has."""
    bound = Bound()
    while (observed := looked(bench, bound)).more or observed.upper != bound.frontier:
        bound = bind(bench.source, bound, observed)
    return bound


def none(record: BadRecord) -> None:
    raise AssertionError(record)


def batches(
    source: Source, splits: Sequence[Split], on_bad: Callable[[BadRecord], None] = none
) -> Iterator[pa.RecordBatch]:
    """What tasks yield, which have copies of the source and the splits."""
    source, splits = pickle.loads(pickle.dumps((source, splits)))
    for split in splits:
        yield from source.read(split, on_bad)


def rows(source: Source, splits: Sequence[Split], on_bad: Callable[[BadRecord], None] = none) -> list[Row]:
    return [row for batch in batches(source, splits, on_bad) for row in batch.to_pylist()]


def counted(found: Sequence[Row]) -> Counter[str]:
    return Counter(map(repr, found))


def it_is_a_value(bench: SourceBench) -> None:
    """A source is a picklable value, which describes itself the same each time, in JSON and without secrets."""
    source = bench.source
    assert isinstance(source, Source)
    packed = pickle.dumps(source)
    copy = pickle.loads(packed)
    assert copy == source
    said = json.dumps(dict(source.describe()), sort_keys=True, allow_nan=False)
    bench.add(3)
    all_bound(bench)  # whatever it keeps of that
    assert json.dumps(dict(source.describe()), sort_keys=True) == said
    assert json.dumps(dict(copy.describe()), sort_keys=True) == said
    assert pickle.loads(pickle.dumps(source)) == source
    assert isinstance(source.unit, str)
    assert source.unit
    assert copy.schema == source.schema
    for secret in bench.secrets:
        assert secret not in said
        assert secret.encode() not in packed


def a_look_goes_on_and_never_back(bench: SourceBench) -> None:
    """A look is never before the bound frontier, says the same twice, and goes on as upstream grows."""
    nothing = looked(bench, Bound())
    assert nothing.upper.less_equal(nothing.end)
    bench.add(5)
    first = looked(bench, Bound())
    assert first.upper.follows(nothing.upper)
    assert (first.upper, first.end) == ((again := looked(bench, Bound())).upper, again.end)
    assert {p: dict(d) for p, d in first.details.items()} == {p: dict(d) for p, d in again.details.items()}
    bound = all_bound(bench)
    assert bound.frontier
    assert bound.schema is not None
    idle = looked(bench, bound)
    assert (idle.upper, idle.end, idle.more) == (bound.frontier, bound.frontier, False)
    idle = looked(bench, replace(bound, last=idle))  # by the driver that heard it
    assert (idle.upper, idle.end, idle.more) == (bound.frontier, bound.frontier, False)
    bench.add(4)
    grown = looked(bench, bound)
    assert grown.upper.follows(bound.frontier)
    assert grown.upper != bound.frontier
    assert grown.upper.less_equal(grown.end)
    assert grown.schema is None, "columns are inferred once"


def what_is_read_is_what_was_added(bench: SourceBench) -> None:
    """Epoch by epoch: a plan covers its slices, and their rows are the records of `[lower, upper)` in their order."""
    bound = Bound()
    for epoch in range(3):
        bench.add(6)
        before, bound = bound, bind(bench.source, bound, looked(bench, bound))
        bench.add(2)  # beyond what is bound: nobody reads on to whatever is newest
        for piece in slices(bound, before.frontier, epoch):
            splits = bench.source.plan([piece], bound)
            assert {split.epoch for split in splits} == {epoch}
            assert rows(bench.source, splits) == bench.records(piece, bound) != []
    assert bench.source.plan([], bound) == []


def batches_have_the_bound_columns(bench: SourceBench) -> None:
    """Every batch has exactly the schema that is bound."""
    bench.add(5)
    bound = all_bound(bench)
    assert bench.source.schema is None or bench.source.schema.equals(bound.schema)
    found = list(batches(bench.source, bench.source.plan(slices(bound), bound)))
    assert sum(batch.num_rows for batch in found) == 5
    assert all(batch.schema.equals(bound.schema) for batch in found)


def cuts_change_nothing(bench: SourceBench, bound: Bound, choose: Chooser) -> None:
    """However the bound ranges are cut into slices, a plan covers each once, and the rows are the same.

    All of `bound` is cut, into an epoch a piece.
    """
    pieces: list[Slice] = []
    for partition, upper in sorted(bound.frontier.items()):
        inner = {cut for cut in choose(bench.cuts(partition, bound)) if 0 < cut < upper}
        for lower, end in pairwise([0, *sorted(inner), upper]):
            pieces.append(Slice(NAME, len(pieces), partition, lower, end))
    splits = bench.source.plan(pieces, bound)
    covered: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for split in splits:
        assert split.weight >= 0
        assert (split.lower, split.upper) == (bench.ranges(split)[0][1], bench.ranges(split)[-1][2])
        for partition, lower, upper in bench.ranges(split):
            covered.setdefault((split.epoch, partition), []).append((lower, upper))
    assert covered.keys() == {(piece.epoch, piece.partition) for piece in pieces}
    for piece in pieces:
        parts = sorted(covered[piece.epoch, piece.partition])
        assert (parts[0][0], parts[-1][1]) == (piece.lower, piece.upper)
        assert all(one[1] == two[0] for one, two in pairwise(parts))
    wanted = [row for piece in pieces for row in bench.records(piece, bound)]
    assert counted(rows(bench.source, splits)) == counted(wanted)
    if pieces:  # one by one, where the order tells
        piece = pieces[len(pieces) // 2]
        assert rows(bench.source, bench.source.plan([piece], bound)) == bench.records(piece, bound)


def fewer_records_are_an_error(bench: SourceBench) -> None:
    """Bound records that are gone are an error of whoever meets it: never fewer rows."""
    bench.add(8)
    bound = all_bound(bench)
    splits = bench.source.plan(slices(bound), bound)
    if not bench.shorten():
        return
    with pytest.raises(TidegaugeError):
        rows(bench.source, splits)
    with pytest.raises(Definite):
        bench.source.plan(slices(bound), bound)
    if isinstance(bench.source, GoingOn):
        assert not bench.source.lost(slices(bound), bound), "its user has not chosen to go on"
        assert bench.source.loss.startswith("TG-")


def another_upstream_is_refused(bench: SourceBench) -> None:
    """An upstream that is another one fails the source, at the look and at the plan, and nothing is read of it."""
    bench.add(6)
    bound = all_bound(bench)
    bench.recreate()
    try:
        observed = looked(bench, bound)
    except Definite:
        pass
    else:
        assert recreated(NAME, bound.identity, observed.identity) is not None
    with pytest.raises(Definite):
        bench.source.plan(slices(bound), bound)


def acknowledging_twice_or_less_changes_nothing(bench: SourceBench) -> None:
    """What upstream is told is told again, and less than before: all that is bound can be read as before."""
    bench.add(6)
    bound = all_bound(bench)
    pieces = slices(bound)
    wanted = [bench.records(piece, bound) for piece in pieces]
    behind = Frontier({piece.partition: bench.cuts(piece.partition, bound)[0] for piece in pieces})
    for frontier in (ORIGIN, bound.frontier, bound.frontier, behind, ORIGIN):
        bench.source.acknowledge(frontier)
    assert looked(bench, bound).upper == bound.frontier
    assert [rows(bench.source, bench.source.plan([piece], bound)) for piece in pieces] == wanted


def bad_records_are_told_and_reading_goes_on(bench: SourceBench) -> None:
    """A bad record is told with its partition, its place in the slice and its bytes; the rows around it are read."""
    bench.add(3)
    raw = bench.spoil()
    bench.add(3)
    if raw is None:
        return
    bound = all_bound(bench)
    pieces = slices(bound)
    bad: list[BadRecord] = []
    found = rows(bench.source, splits := bench.source.plan(pieces, bound), bad.append)
    assert counted(found) == counted([row for piece in pieces for row in bench.records(piece, bound)])
    assert len(bad) == 1
    record = bad[0]
    assert record.raw.strip() == raw.strip()
    assert record.partition in bound.frontier
    assert record.position >= 0
    assert record.code.startswith("TG-")
    assert record.message

    class StopReadingError(Exception):
        pass

    def stop(_record: BadRecord) -> None:
        raise StopReadingError

    with pytest.raises(StopReadingError):
        rows(bench.source, splits, stop)


def memory_is_bounded(bench: SourceBench, count: int) -> None:
    """A split comes in batches of bounded size, each made when it is asked for: the others are not there.

    The bench cuts nothing: a split has all records of its file or partition. count: so many that it has several
    batches.
    """
    bench.add(count)
    bound = all_bound(bench)
    base = pa.total_allocated_bytes()
    made: list[ref[pa.RecordBatch]] = []
    number = 0
    for batch in batches(bench.source, bench.source.plan(slices(bound), bound)):
        made.append(ref(batch))
        number += batch.num_rows
        assert batch.nbytes <= LARGEST_BATCH
        assert sum(one() is not None for one in made) == 1, "it keeps what it gave"
        assert pa.total_allocated_bytes() - base <= 2 * LARGEST_BATCH
        del batch
    assert number == count
    assert len(made) > len(bound.frontier), "too few to tell"


LAWS: Final[Mapping[str, Callable[[SourceBench], None]]] = {
    law.__name__: law
    for law in (
        it_is_a_value,
        a_look_goes_on_and_never_back,
        what_is_read_is_what_was_added,
        batches_have_the_bound_columns,
        fewer_records_are_an_error,
        another_upstream_is_refused,
        acknowledging_twice_or_less_changes_nothing,
        bad_records_are_told_and_reading_goes_on,
    )
}
"""The laws that need nothing but a bench."""
