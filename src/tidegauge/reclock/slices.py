"""From bound epochs to the work list: which ranges, how many epochs at once, where to resume.

Invariant: everything here is a function of the remap tables and of uppers, so a restart plans what was planned
before.

>>> table = RemapTable("orders")
>>> table.append(0, Frontier({"p0": 5})); table.append(1, Frontier({"p0": 9}))
>>> plan_span({"orders": table}, 0, 2)["orders"]
[Slice(source='orders', epoch=0, partition='p0', lower=0, upper=5),
 Slice(source='orders', epoch=1, partition='p0', lower=5, upper=9)]
>>> resumption({"orders": table}, {"raw": 2, "large": 1})
{'orders': Frontier({'p0': 5})}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tidegauge.errors.flow import InvalidArgument
from tidegauge.remap.binding import Slice
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.table import RemapTable

__all__ = ["coalesce", "plan_span", "resumption", "span"]

_WINDOW: Final = 1024
"""How many epochs are looked at together: enough to be quick, few enough for a backlog of millions."""


def plan_span(tables: Mapping[str, RemapTable], lower: int, upper: int) -> dict[str, list[Slice]]:
    """Return the slices of the epochs `[lower, upper)`, by source; a source that has none is left out."""
    planned = {name: table.slices(lower, upper) for name, table in sorted(tables.items())}
    return {name: slices for name, slices in planned.items() if slices}


def coalesce(sizes: Iterable[int], limit: int) -> int:
    """Return how many epochs, of these sizes in order, one job takes: as many as stay within the limit together.

    At least one if there is any, however large: an epoch is never split. Looks no further than it has to.

    >>> coalesce([3, 3, 3, 3], limit=10), coalesce([99, 1], limit=10), coalesce([], limit=10)
    (3, 1, 0)
    """
    if limit < 1:
        raise InvalidArgument(parameter="limit", value=limit, expected="at least one position per job")
    taken = total = 0
    for size in sizes:
        total += size
        if taken and total > limit:
            break
        taken += 1
    return taken


def span(tables: Mapping[str, RemapTable], lower: int, upper: int, *, limit: int) -> int:
    """Return the upper of the epochs from `lower` on that one job takes, at most `upper`.

    The limit holds for each source on its own, because sources count in units of their own.
    """
    furthest = upper
    for table in tables.values():
        furthest = min(furthest, lower + coalesce(_sizes(table, lower, furthest), limit))
    return furthest


def resumption(tables: Mapping[str, RemapTable], uppers: Mapping[str, int]) -> dict[str, Frontier]:
    """Return what every output holds durably, as a frontier of each source: what may be acknowledged (law 4).

    `uppers` are the durable uppers of the outputs; the least of them decides. No outputs, nothing to acknowledge.
    """
    if not uppers:
        return {}
    least = min(uppers.values())
    return {name: table.inverse(least) for name, table in sorted(tables.items())}


def _sizes(table: RemapTable, lower: int, upper: int) -> Iterator[int]:
    for start in range(lower, upper, _WINDOW):
        stop = min(start + _WINDOW, upper)
        sizes = [0] * (stop - start)
        for piece in table.slices(start, stop):
            sizes[piece.epoch - start] += piece.size
        yield from sizes
