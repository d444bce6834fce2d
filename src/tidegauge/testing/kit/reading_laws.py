"""The laws of looks and reads, each a function over a bench (`kit.source_bench`).

Invariant: a law compares a source with the rows that the bench added (`kit.upstream`), never with itself, and tries
few records before many, so that its example is small.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from itertools import combinations
from typing import Any, Final
from weakref import ref

import pyarrow as pa

from tidegauge.remap.binding import Bound, Observation
from tidegauge.sources.abilities import Cuttable
from tidegauge.sources.protocol import Source
from tidegauge.testing.kit.rows import same
from tidegauge.testing.kit.source_bench import SourceBench, WithSecrets
from tidegauge.testing.kit.trial import Law, NotTried, beside, expect
from tidegauge.testing.kit.upstream import (
    at,
    bind_all,
    grow,
    look,
    none,
    read,
    read_as_added,
    read_epochs,
    slices,
)

__all__ = ["READING_LAWS", "memory_is_bounded"]

LARGEST_BATCH: Final = 16 << 20
"""Bytes of a batch, at most."""


def it_is_a_value(bench: SourceBench) -> None:
    """A source is a picklable value, which describes itself the same each time, in JSON and without secrets.

    Make it a frozen dataclass of plain values. Open connections in the methods that need them, and keep a secret as
    the name of the place that it is in.
    """
    source = bench.source
    packed = pickle.dumps(source)
    copy = pickle.loads(packed)  # noqa: S301 (our own, from the line before)
    expect(copy == source, f"a pickled copy is another value: {copy!r}, of {source!r}")
    said = _described(source)
    bench.add(3)
    bind_all(bench)  # whatever it keeps of that
    for who, described in (("it", _described(source)), ("a copy", _described(copy))):
        expect(described == said, f"after a few looks {who} describes itself as {described}, and before as {said}")
    expect(pickle.loads(pickle.dumps(source)) == source, "after a few looks a pickled copy is another value")  # noqa: S301
    expect(isinstance(source.unit, str) and source.unit, f"its unit is {source.unit!r}, and should be a word")
    expect(copy.schema == source.schema, f"the schema of a copy is {copy.schema}, and its own {source.schema}")
    for secret in bench.secrets if isinstance(bench, WithSecrets) else ():
        expect(secret not in said, "its description has a secret in it")
        expect(secret.encode() not in packed, "its pickle has a secret in it")


def _described(source: Source) -> str:
    return json.dumps(dict(source.describe()), sort_keys=True, allow_nan=False)


def a_look_goes_on_and_never_back(bench: SourceBench) -> None:
    """A look is never before the bound frontier, says the same twice, and goes on as upstream grows.

    Let `upper` be at least `bound.frontier` in each partition, and let it depend on the state of upstream, not
    on earlier questions. Infer columns only while `bound.schema` is None.
    """
    nothing = look(bench, Bound())
    bench.add(5)
    first, again = look(bench, Bound()), look(bench, Bound())
    expect(first.upper.follows(nothing.upper), f"{at(first)} with 5 records, after {at(nothing)} with none")
    same = (first.upper, first.end, _plain(first)) == (again.upper, again.end, _plain(again))
    expect(
        same,
        f"two looks at the same say {at(first)} and {at(again)}, with details {_plain(first)} and {_plain(again)}",
    )
    bound = bind_all(bench)
    expect(bound.frontier, "5 records were added to upstream, and probe says that there are none")
    expect(bound.schema is not None, "5 records were added to upstream, and nobody says what columns they have")
    for known in (bound, replace(bound, last=look(bench, bound))):
        idle = look(bench, known)
        still = (idle.upper, idle.end, idle.more) == (bound.frontier, bound.frontier, False)
        expect(still, f"all is bound, up to {dict(bound.frontier)}, and a look says {at(idle)} and more={idle.more}")
    bench.add(4)
    grown = look(bench, bound)
    expect(grown.upper.follows(bound.frontier), f"{at(grown)}, which is behind what is bound, {dict(bound.frontier)}")
    expect(grown.upper != bound.frontier, f"4 more records were added, and the upper is still {dict(grown.upper)}")
    for seen in (nothing, first, grown):
        expect(seen.upper.less_equal(seen.end), f"{at(seen)}: the upper is beyond the end")
    expect(grown.schema is None, "the columns are bound, and it infers them again")


def _plain(seen: Observation) -> dict[str, dict[str, Any]]:
    return {partition: dict(detail) for partition, detail in seen.details.items()}


def reads_give_the_records_that_were_added(bench: SourceBench) -> None:
    """The rows of an epoch are the records that were added, all of them once, in the order of their partition.

    Let `plan` cover each slice, and `read` yield the records of `[lower, upper)`, neither fewer nor more.
    """
    first = grow(bench, (1,))
    read_as_added(bench, first, (0, 1))
    one_by_one = grow(bench, (1,) * 6, since=first.bound)
    read_as_added(bench, one_by_one, range(7))
    for piece in slices(one_by_one.bound, first.bound.frontier):
        if (wanted := one_by_one.in_order(piece.partition)) is not None:
            rows = read_epochs(bench.source, bench.source.plan([piece], one_by_one.bound))[0]
            same(wanted, rows, f"of {piece.partition!r} from {piece.lower} to {piece.upper}", ordered=True)
    grown = grow(bench, (6, 1), since=one_by_one.bound)
    read_as_added(bench, grown, (0, 1, 2))
    planned = bench.source.plan([], grown.bound)
    expect(planned == [], f"a plan for no slice is {planned!r}")


def a_read_ends_where_its_range_ends(bench: SourceBench) -> None:
    """A read never goes on to records that came after its range was bound.

    Stop at `split.upper`; never read to whatever is newest.
    """
    grown = grow(bench, (4,))
    splits = bench.source.plan(slices(grown.bound), grown.bound)
    bench.add(3)
    rows = read_epochs(bench.source, splits)[0]
    same(grown.added, rows, "4 records were bound and planned, 3 more came, then the splits were read")
    read_as_added(bench, grown, (0, 1))


def batches_have_the_bound_columns(bench: SourceBench) -> None:
    """Every batch has exactly the schema that is bound.

    Build batches with `schema=bound.schema`, carried in the split where the schema is inferred.
    """
    bench.add(5)
    bound = bind_all(bench)
    declared = bench.source.schema
    expect(declared is None or declared.equals(bound.schema), f"it declares {declared}, and {bound.schema} was bound")
    for batch in read(bench.source, bench.source.plan(slices(bound), bound)):
        expect(
            batch.schema.equals(bound.schema), f"a batch has the columns {batch.schema}, and bound are {bound.schema}"
        )


def cuts_change_nothing(bench: SourceBench) -> None:
    """However the bound ranges are cut into epochs and splits, each row is read once, in its own epoch.

    Let a split depend on its slice alone. Look for positions that are off by one at the cut.
    """
    grown = grow(bench, (1, 1, 3, 1, 1, 4))
    ends = len(grown.steps)
    for few in (0, 1, ends - 1, 2):  # inner cuts
        for inner in list(combinations(range(1, ends), few))[:6]:
            read_as_added(bench, grown, (0, *inner, ends))
    for first, last in ((1, ends - 1), (2, 3), (ends - 1, ends)):  # and what is in the middle alone
        read_as_added(bench, grown, (first, last))


def it_is_cut_between_records(bench: SourceBench) -> None:
    """A slice is cut inside it, between two records, and its parts have its records, each once.

    Let `cut` return a position after the slice's first record and before its end, or None where there is none.
    """
    source = bench.source
    if not isinstance(source, Cuttable):
        raise NotTried("it has no `cut`")
    grown = grow(bench, (1, 6))
    for size in (1, 2, 3, 40):
        rows: list[Any] = []
        for piece in slices(grown.bound):
            while piece.lower < piece.upper:
                cut = source.cut(piece, size, grown.bound) if source.size(piece, grown.bound) > size else None
                where = (
                    f"{size} positions of {piece.partition!r}, from {piece.lower} to {piece.upper}, are cut at {cut}"
                )
                expect(cut is None or piece.lower < cut < piece.upper, where)
                part = replace(piece, upper=piece.upper if cut is None else cut)
                rows += read_epochs(source, source.plan([part], grown.bound))[0]
                piece = replace(piece, lower=part.upper)
        same(grown.added, rows, f"read in parts of about {size} positions")


def reading_again_gives_the_same(bench: SourceBench) -> None:
    """A split gives the same rows whenever it is read: again, after a read that was broken off, and by many at once.

    Keep nothing between calls, or give each call its own: a cursor, a connection, a file. Release it in `finally`.
    """
    grown = grow(bench, (1, 5))
    splits = bench.source.plan(slices(grown.bound), grown.bound)
    for _ in range(2):
        same(grown.added, read_epochs(bench.source, splits)[0], "read once more")
    for split in splits:
        broken_off, whole = iter(read(bench.source, [split])), iter(read(bench.source, [split]))
        next(broken_off, None)
        next(whole, None)
        broken_off.close()  # type: ignore[attr-defined]
        list(whole)
    same(grown.added, read_epochs(bench.source, splits)[0], "read after a read of it was broken off")

    def job() -> list[Any]:
        planned = bench.source.plan(slices(grown.bound), grown.bound)
        return list(read_epochs(bench.source, planned)[0])

    *found, _ = beside(job, job, job, lambda: look(bench, grown.bound))
    for rows in found:
        same(grown.added, rows, "planned and read by three at once, beside a probe")


def memory_is_bounded(bench: SourceBench, count: int) -> None:
    """A split comes in batches of a few megabytes, each made when it is asked for.

    Yield a batch as soon as you have it, and keep none. A batch may have some ten thousand rows.
    """
    if not count:
        raise NotTried("it was told to add no records for it (many=0)")
    bench.add(count)
    bound = bind_all(bench)
    made: list[ref[pa.RecordBatch]] = []
    number, size = 0, 0
    for batch in read(bench.source, bench.source.plan(slices(bound), bound), none):
        made.append(ref(batch))
        number, size = number + batch.num_rows, max(size, batch.nbytes)
        expect(size <= LARGEST_BATCH, f"a batch of {batch.num_rows} rows has {size} bytes; more than {LARGEST_BATCH}")
        kept = sum(one() is not None for one in made)
        expect(kept == 1, f"{kept} batches are in memory where one was asked for")
        del batch
    expect(number == count, f"{number} rows were read of {count} records")


READING_LAWS: Final[tuple[Law[SourceBench], ...]] = (
    it_is_a_value,
    a_look_goes_on_and_never_back,
    reads_give_the_records_that_were_added,
    a_read_ends_where_its_range_ends,
    batches_have_the_bound_columns,
    cuts_change_nothing,
    it_is_cut_between_records,
    reading_again_gives_the_same,
)
"""The laws that need nothing but a source and `add`."""
