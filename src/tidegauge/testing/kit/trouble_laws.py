"""The laws of what happens to a source upstream: records lost or spoilt, another life, an absence, an end.

Invariant: each of them needs a hand of the bench, but for acknowledging. A bench without it has the law not tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from tidegauge.errors.base import Definite, TidegaugeError, Transient, brief
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.remap.operator import recreated
from tidegauge.sources.abilities import GoingOn
from tidegauge.sources.protocol import BadRecord, Split
from tidegauge.testing.kit.rows import same
from tidegauge.testing.kit.source_bench import Finishes, Leaves, Loses, Recreates, SourceBench, Spoils
from tidegauge.testing.kit.trial import Law, LawBroken, NotTried, expect, raises
from tidegauge.testing.kit.upstream import (
    NAME,
    Grown,
    at,
    bind,
    bind_all,
    grow,
    look,
    read,
    read_as_added,
    read_epochs,
    slices,
)

__all__ = ["TROUBLE_LAWS"]


def fewer_records_are_an_error(bench: SourceBench) -> None:
    """Bound records that are gone are an error, `Definite` when they are planned again: never fewer rows.

    Count the records, and raise if the range has fewer records. Let `plan` look for the records that are still there.
    """
    if not isinstance(bench, Loses):
        raise NotTried("the bench has no `lose`")
    bench.add(8)
    bound = bind_all(bench)
    splits = bench.source.plan(slices(bound), bound)
    bench.lose()
    raises(TidegaugeError, "reading 8 bound records of which some are gone", lambda: _count(bench, splits))
    raises(
        Definite, "planning 8 bound records of which some are gone", lambda: bench.source.plan(slices(bound), bound)
    )
    if isinstance(bench.source, GoingOn):
        lost = bench.source.lost(slices(bound), bound)
        expect(not lost, f"its user has not chosen to go on without lost records, and it gives up {lost}")
        expect(bench.source.loss.startswith("TG-"), f"the code of its loss is {bench.source.loss!r}")


def _count(bench: SourceBench, splits: Sequence[Split]) -> str:
    return f"{sum(batch.num_rows for batch in read(bench.source, splits))} rows"


def another_upstream_is_refused(bench: SourceBench) -> None:
    """Another upstream under the same name is a `Definite` error at the plan, and nothing is read of it.

    Return in `Observation.identity` a value that another upstream would not have, such as an id that it was made
    with. Compare it with `bound.identity` in `plan`.
    """
    if not isinstance(bench, Recreates):
        raise NotTried("the bench has no `recreate`")
    bench.add(6)
    bound = bind_all(bench)
    bench.recreate()
    try:
        observed = look(bench, bound)
    except Definite:
        pass
    else:
        seen = recreated(NAME, bound.identity, observed.identity) is not None
        expect(seen, f"probe says that {observed.identity!r} is the same upstream as {bound.identity!r} was")
    raises(Definite, "planning ranges of the upstream before", lambda: bench.source.plan(slices(bound), bound))


def acknowledging_loses_nothing_that_is_left(bench: SourceBench) -> None:
    """Upstream is told the same again, and less than before; all beyond the acknowledged frontier can still be read.

    Let `acknowledge` only move upstream's mark on, to the frontier and not beyond, and do nothing when it is there.
    """
    grown = grow(bench, (3, 4))
    half, rest = grown.bounds[1].frontier, grown.steps[1]
    for frontier in (ORIGIN, half, half, _behind(half), ORIGIN):
        bench.source.acknowledge(frontier)
    seen = look(bench, grown.bound)
    expect(
        seen.upper == grown.bound.frontier,
        f"{at(seen)} after acknowledging {dict(half)}, of {dict(grown.bound.frontier)}",
    )
    planned = bench.source.plan(slices(grown.bound, half), grown.bound)
    same(rest, read_epochs(bench.source, planned)[0], "after 3 of 7 records were acknowledged, the rest was read")
    bench.source.acknowledge(grown.bound.frontier)
    seen = look(bench, grown.bound)
    expect(seen.upper == grown.bound.frontier, f"{at(seen)} after acknowledging all of {dict(grown.bound.frontier)}")
    more = grow(bench, (2,), since=grown.bound)
    planned = bench.source.plan(slices(more.bound, grown.bound.frontier), more.bound)
    same(more.added, read_epochs(bench.source, planned)[0], "after all was acknowledged 2 records came")


def _behind(frontier: Frontier) -> Frontier:
    return Frontier(dict(list(frontier.items())[1:]))


def bad_records_are_told_and_reading_goes_on(bench: SourceBench) -> None:
    """A record that cannot be decoded is handed over with its place and its bytes; the rows around it are read.

    Catch the error of one record, call `on_bad_record` for it, and go on with the next. Let pass what it raises.
    """
    if not isinstance(bench, Spoils):
        raise NotTried("the bench has no `spoil`")
    rows = list(bench.add(3))
    raw = bench.spoil()
    rows += bench.add(3)
    bound = bind_all(bench)
    bad: list[BadRecord] = []
    splits = bench.source.plan(slices(bound), bound)
    found = [row for batch in read(bench.source, splits, bad.append) for row in batch.to_pylist()]
    same(rows, found, "of 3 records, a bad one, and 3 more")
    expect(len(bad) == 1, f"of one bad record {len(bad)} were handed over: {bad}")
    record = bad[0]
    expect(record.raw.strip() == raw.strip(), f"the bytes of a bad record are {record.raw!r}, and it was {raw!r}")
    there = record.partition in bound.frontier and 0 <= record.position < bound.frontier[record.partition]
    expect(
        there, f"a bad record is said to be in {record.partition!r} at {record.position}, of {dict(bound.frontier)}"
    )
    expect(record.code.startswith("TG-") and record.message, f"it says {record.code!r} and {record.message!r}")

    def stop(_record: BadRecord) -> None:
        raise _Stopped

    raises(_Stopped, "reading, with an `on_bad_record` that raises,", lambda: list(read(bench.source, splits, stop)))


class _Stopped(Exception):
    pass


def an_upstream_that_is_away_may_come_back(bench: SourceBench) -> None:
    """While upstream is out of reach, a call raises `Transient` or an `OSError`, or answers as if it were there.

    Let the errors of the connection pass as an `OSError`. An upstream that is away is neither empty nor lost: no
    `Definite` error, which is for good, and never fewer rows.
    """
    if not isinstance(bench, Leaves):
        raise NotTried("the bench has no `leave` and `come_back`")
    grown = grow(bench, (4,))
    splits = bench.source.plan(slices(grown.bound), grown.bound)
    bench.leave()
    with _passing("probing"):
        seen = look(bench, grown.bound)
        expect(seen.upper == grown.bound.frontier, f"while upstream is away, {at(seen)}, of {_told(grown)}")
    with _passing("planning"):
        bench.source.plan(slices(grown.bound), grown.bound)
    with _passing("reading"):
        same(grown.added, read_epochs(bench.source, splits)[0], "while upstream is away")
    bench.come_back()
    seen = look(bench, grown.bound)
    expect(seen.upper == grown.bound.frontier, f"{at(seen)} after upstream came back, of {_told(grown)}")
    read_as_added(bench, grown, (0, 1))


def _told(grown: Grown) -> str:
    return str(dict(grown.bound.frontier))


@contextmanager
def _passing(doing: str) -> Iterator[None]:
    """Let pass what may pass."""
    try:
        yield
    except (Transient, OSError):
        pass
    except LawBroken:
        raise
    except Exception as error:
        raise LawBroken(f"{doing}, while upstream is away, raised {brief(error)}") from error


def the_end_is_the_end(bench: SourceBench) -> None:
    """When upstream has ended, the last frontier is sealed, and stays so; all records before it are read.

    Seal `upper` with the last record, not before, and say the same at every later look.
    """
    if not isinstance(bench, Finishes):
        raise NotTried("the bench has no `finish`")
    grown = grow(bench, (2, 3))
    expect(not grown.bound.frontier.sealed, f"{dict(grown.bound.frontier)} is sealed while upstream goes on")
    bench.finish()
    bound = grown.bound
    for _ in range(2):
        observed = look(bench, bound)
        expect(observed.upper.sealed, f"upstream has ended, and a look says {at(observed)}, not sealed")
        bound = bind(bench.source, bound, observed)
    read_as_added(bench, grown, (0, 1, 2))


TROUBLE_LAWS: Final[tuple[Law[SourceBench], ...]] = (
    fewer_records_are_an_error,
    another_upstream_is_refused,
    acknowledging_loses_nothing_that_is_left,
    bad_records_are_told_and_reading_goes_on,
    an_upstream_that_is_away_may_come_back,
    the_end_is_the_end,
)
"""The laws that need a hand upstream."""
