"""From bound epochs to the work list: which ranges, how many epochs at once, where to resume.

For sources that can be read by range this is all of reclocking: the slices are the work list, and no row is touched.

Invariant: everything here is a function of the remap tables and of uppers, so a restart makes the same plan again.
Nobody keeps a list of slices: what a job takes is asked of the table, which costs as much as the job has slices,
however long the history.

>>> table = RemapTable("orders")
>>> table.append(0, Frontier({"p0": 5})); table.append(1, Frontier({"p0": 9}))
>>> list(walk(table, 0, 2))
[Slice(source='orders', epoch=0, partition='p0', lower=0, upper=5),
 Slice(source='orders', epoch=1, partition='p0', lower=5, upper=9)]
>>> resumption({"orders": table}, {"raw": 2, "large": 1})
{'orders': Frontier({'p0': 5})}

On compacted history. Below `since` epochs are indistinguishable, so an output that holds nothing begins at `since`,
with all that was bound up to there; and one that holds some epochs must hold all up to `since`, because what it lacks
of them could not be told from what it has.

>>> begins(0, since=10), begins(12, since=10), begins(7, since=10, folded=6), begins(7, since=10, folded=8)
(10, 12, 11, None)
>>> as_of([0, 151], since=10), as_of([101, 151], since=10), as_of([151, 201], since=10)
(10, 100, 150)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

from tidegauge.errors.flow import InvalidArgument
from tidegauge.remap.binding import Slice
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.table import RemapTable

__all__ = ["as_of", "begins", "between", "held", "resumption", "span", "told_apart", "walk"]

_EPOCH: Final = attrgetter("epoch")


def walk(table: RemapTable, lower: int, upper: int) -> Iterator[Slice]:
    """Yield the slices of the epochs `[lower, upper)` in the order of their epochs.

    They are asked of the table in stretches, each of twice as many epochs as the one before. So if you take the first
    few of a million, few more than those are made.
    """
    epochs = 1
    while (first := table.moved_from(lower)) is not None and first < upper:
        lower = min(first + epochs, upper)
        yield from table.slices(first, lower)
        epochs *= 2


def span(slices: Iterable[Slice], upper: int, *, limit: int, most: int | None = None) -> int:
    """Return the upper of the epochs that one job takes, at most `upper`, given a source's slices in epoch order.

    As many epochs as stay within the limit of positions together, and have at most `most` slices, if that is given;
    and at least one that holds something, however large: an epoch is never split. Looks no further than it has to.

    >>> backlog = [Slice("orders", epoch, "p0", 3 * epoch, 3 * epoch + 3) for epoch in range(4)]
    >>> span(backlog, 4, limit=10), span(backlog, 4, limit=1), span(backlog, 4, limit=12), span([], 4, limit=10)
    (3, 1, 4, 4)
    >>> span(backlog, 4, limit=12, most=2), span(backlog, 4, limit=12, most=4)
    (2, 4)
    """
    if limit < 1:
        raise InvalidArgument(parameter="limit", value=limit, expected="at least one position per job")
    total, taken = 0, 0
    epoch: int
    for epoch, found in groupby(slices, key=_EPOCH):
        sizes = [piece.size for piece in found]
        size, count = sum(sizes), len(sizes)
        if total and (total + size > limit or (most is not None and taken + count > most)):
            return min(upper, epoch)
        total, taken = total + size, taken + count
    return upper


def between(slices: Sequence[Slice], lower: int, upper: int) -> Sequence[Slice]:
    """Return the slices of the epochs `[lower, upper)`, of slices in the order of their epochs."""
    return slices[bisect_left(slices, lower, key=_EPOCH) : bisect_left(slices, upper, key=_EPOCH)]


def as_of(uppers: Iterable[int | None], *, since: int | None, bound: int = 0) -> int | None:
    """Return the epoch as of which a flow is read again: the join of `since`, `bound` and the needs of its outputs.

    An output with the upper `u` reads on from the frontier at `u - 1`, the last epoch that it holds; one that holds
    nothing needs the first there is. `uppers`: None for outputs that have ended. `since`: None when the history is
    gone. `bound`: what somebody else has agreed to let go of. None when there is nothing to read.
    """
    needed = [max(upper - 1, 0) for upper in uppers if upper is not None]
    return None if since is None or not needed else max(min(needed), since, bound)


def begins(upper: int, *, since: int, folded: int | None = None) -> int | None:
    """Return the first epoch that an output whose table holds the epochs before `upper` is given next.

    `folded`: the last epoch up to `since` at which its source moved. None when it lacks epochs below `since` that can
    no longer be told from those that it holds.
    """
    if upper == 0 or upper > since:
        return max(upper, since)
    return since + 1 if folded is None or folded < upper else None


def told_apart(epochs: range, *, since: int, folded: int | None) -> int | None:
    """Return the first of these epochs to read, None where they cannot be told from others.

    folded: the last epoch up to `since` at which the source moved. If all compacted epochs are needed, they come as
    one.

    >>> told_apart(range(4, 9), since=3, folded=3), told_apart(range(2, 9), since=3, folded=1)
    (4, 4)
    >>> told_apart(range(0, 9), since=3, folded=3), told_apart(range(2, 9), since=3, folded=2)
    (3, None)
    """
    if since == 0 or epochs.start > since:
        return epochs.start
    if epochs.start == 0 and epochs.stop > since:
        return since
    return min(since + 1, epochs.stop) if folded is None or folded < epochs.start else None


def held(table: RemapTable, upper: int) -> int:
    """Return the first epoch that an output of the source lacks, whose table holds the epochs before `upper`.

    Epochs in which the source holds nothing are held without a commit.
    """
    lacking = table.moved_from(min(upper, table.upper))
    return table.upper if lacking is None else lacking


def resumption(tables: Mapping[str, RemapTable], uppers: Mapping[str, int]) -> dict[str, Frontier]:
    """Return what every output holds durably, as a frontier of each source: what may be acknowledged (law 4).

    `uppers` are the durable uppers of the outputs; the least of them decides. No outputs, nothing to acknowledge.
    """
    if not uppers:
        return {}
    least = min(uppers.values())
    return {name: table.inverse(least) for name, table in sorted(tables.items())}
