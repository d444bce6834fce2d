"""The tracker: from the messages and capabilities that exist, what may still arrive where.

A *pointstamp* is a time at a location. It *could result in* another when some path carries its time to one at or
before the other's. The tracker keeps two mutable antichains for each location: `pointstamps`, those there, and
`implications`, the times that these and everything upstream imply here. The implications at an input are its
frontier.

Invariant: after `propagate`, the frontier of `implications[l]` is the minimal elements of all `s(t)` for a pointstamp
`t` that is on its own location's frontier and a path summary `s` from there to `l`.

Only changes of frontiers travel, never counts: a change that does not move a frontier costs one dict update. Where
the graph has no cycle, locations are visited once each, upstream first. With cycles, changes are taken in the order
of their times: along a path times only grow and each cycle advances, so a time is met at a location when all that
could change it is in. (The sort order being a linear extension of the order is what makes this true of partial
orders.) Times that do not compare can be taken at once.

`Keeper` holds the outputs of failed operators where they are.

>>> from tidegauge.dataflow.order import INT
>>> from tidegauge.dataflow.topology import Shape, Topology
>>> ring = Topology(INT)
>>> nodes = [ring.add(Shape(1, 1, (((0, (summary,)),),))) for summary in (None, None, 1)]
>>> for here, there in zip(nodes, nodes[1:] + nodes[:1]):
...     ring.connect((here, 0), (there, 0))
>>> tracker = Tracker(ring.compile())
>>> tracker.update([(tracker.graph.source(1, 0), 17, 1)])
>>> moved, _ = tracker.propagate()
>>> [dict(moved[tracker.graph.target(node, 0)]) for node in nodes]
[{18: 1}, {17: 1}, {17: 1}]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Final, TypeAlias

from tidegauge.dataflow.frontier import ChangeBatch, Outstanding, mutable_antichain
from tidegauge.dataflow.order import Order, Refinement, Time, advance, minimal
from tidegauge.dataflow.order.search import WIDE
from tidegauge.dataflow.topology import Graph

__all__ = ["Change", "FailedNode", "Keeper", "Moved", "Tracker"]

Change: TypeAlias = tuple[int, Time, int]
"""A location, a time, and by how much its count changes."""
Moved: TypeAlias = dict[int, list[tuple[Time, int]]]
"""For each location, the changes of a frontier, each time once."""


class Tracker:
    """The dynamic state of one scope's progress.

    total: the sizes of all pointstamp frontiers together, 0 when nothing is outstanding. buffered: the counts by
    location that the next `propagate` applies, for others to see whether there are any.
    """

    def __init__(self, graph: Graph) -> None:
        order = graph.order
        self.graph = graph
        self.pointstamps: dict[int, Outstanding[Time]] = {}  # most inputs never have one at all
        self.implications: list[Outstanding[Time]] = [mutable_antichain(order) for _ in graph.node]
        self.total = 0
        self.buffered: dict[int, dict[Time, int]] = {}
        self._outputs: list[ChangeBatch[Time]] = [ChangeBatch() for _ in range(graph.shapes[0].inputs)]
        self._spread: Callable[[Moved], Moved] = self._by_time if graph.cyclic else self._by_rank

    def update(self, changes: Iterable[Change]) -> None:
        """Note that counts change; that takes effect with the next `propagate`."""
        buffered = self.buffered
        for location, time, delta in changes:
            counts = buffered.get(location)
            if counts is None:
                buffered[location] = {time: delta}
            else:
                counts[time] = counts.get(time, 0) + delta

    def propagate(self) -> tuple[Moved, list[ChangeBatch[Time]]]:
        """Apply the noted changes. Return how the implied frontier of each location changed, and the times that
        pointstamps within the scope now imply for each output of it (to be drained by the caller).
        """
        graph, order = self.graph, self.graph.order
        seeds: Moved = {}
        for location, counts in self.buffered.items():
            if not any(counts.values()):
                continue  # what was sent there was taken in the same turn
            times = self.pointstamps.get(location)
            if times is None:
                times = self.pointstamps[location] = mutable_antichain(order)
            changes = times.update(counts.items())
            if not changes:
                continue
            seeds[location] = changes
            for _, delta in changes:
                self.total += delta
            for output, summary in graph.to_outputs[location]:
                for time, delta in changes:
                    result = advance(order, time, summary)
                    if result is not None:
                        self._outputs[output].add(result, delta)
        self.buffered.clear()
        return (self._spread(seeds) if seeds else {}), self._outputs

    def _by_rank(self, pending: Moved) -> Moved:
        """Without cycles: visit each location once, when everything upstream of it has been."""
        order, rank, following, implications = (
            self.graph.order,
            self.graph.rank,
            self.graph.following,
            self.implications,
        )
        moved: Moved = {}
        joined: set[int] = set()
        heap = [(rank[location], location) for location in pending]
        heap.sort()
        while heap:
            location = heappop(heap)[1]
            changes = implications[location].update(pending.pop(location))
            if not changes:
                continue
            moved[location] = changes
            for to, summary in following[location]:
                onward = changes
                if summary is not None:
                    results = [(advance(order, time, summary), delta) for time, delta in changes]
                    onward = [(time, delta) for time, delta in results if time is not None]
                waiting = pending.get(to)
                if waiting is None:
                    pending[to] = onward
                    heappush(heap, (rank[to], to))
                elif to in joined:
                    waiting.extend(onward)
                else:  # what waits may be the list of another location too
                    joined.add(to)
                    pending[to] = waiting + onward
        return moved

    def _by_time(self, seeds: Moved) -> Moved:
        """With cycles: take the changes in the sort order of their times, and where these are many all at once that
        are minimal among them; of one location after another.
        """
        order, rank, following = self.graph.order, self.graph.rank, self.graph.following
        moved: dict[int, ChangeBatch[Time]] = {}
        pending = _Pending(order)
        for location, changes in seeds.items():
            for time, delta in changes:
                pending.add(time, location, delta)
        while wave := pending.take():
            due: dict[int, list[tuple[Time, int]]] = {}
            for time, counts in wave.items():
                for location, delta in counts.items():
                    due.setdefault(location, []).append((time, delta))
            heap = [(rank[location], location) for location in due]
            heapify(heap)
            while heap:
                location = heappop(heap)[1]
                changes = self.implications[location].update(due.pop(location))
                if not changes:
                    continue
                moved.setdefault(location, ChangeBatch()).extend(changes)
                for to, summary in following[location]:
                    for time, delta in changes:
                        result = advance(order, time, summary)
                        if result is None:
                            continue
                        if result not in wave:
                            pending.add(result, to, delta)
                        elif to in due:
                            due[to].append((result, delta))
                        else:
                            due[to] = [(result, delta)]
                            heappush(heap, (rank[to], to))
        return {location: batch.drain() for location, batch in moved.items() if batch}

    def holders(self) -> Iterator[tuple[int, Time, int]]:
        """Yield the pointstamps `(location, time, count)` that hold back a frontier: none upstream implies less."""
        for location, times in sorted(self.pointstamps.items()):
            for time in times.elements():
                if not self.implications[location].less_than(time):
                    yield location, time, times.count_for(time)


class _Pending:
    """Changes that wait for their times to come: by time, the locations with their counts.

    What `take` returns has no earlier change to come: no other time that waits is before one of these, and what a
    change leads to is at its own time or later. One time alone, the first in sort order, is always such. Of many, all
    that are minimal are, and are taken together: each location of a wide frontier then settles its changes at once.
    To find them costs a look at everything that waits. Where they were few, the next ones are taken one by one, and
    twice as many each time, so that a long chain of times costs little more than its sorting.
    """

    __slots__ = ("_alone", "_counts", "_heap", "_order", "_serial", "_taken")

    def __init__(self, order: Order[Any]) -> None:
        self._order = order
        self._counts: dict[Time, ChangeBatch[int]] = {}
        self._heap: list[tuple[Any, int, Time]] = []
        self._serial = count()
        self._alone = 0  # so many are to be taken one by one before all are looked at again
        self._taken = 0  # so many of them have been

    def add(self, time: Time, location: int, delta: int) -> None:
        """Have one more change wait."""
        counts = self._counts.get(time)
        if counts is None:
            counts = self._counts[time] = ChangeBatch()
            heappush(self._heap, (self._order.sort_key(time), next(self._serial), time))
        counts.add(location, delta)

    def take(self) -> dict[Time, ChangeBatch[int]]:
        """Return the changes whose times have come, none when nothing waits."""
        counts = self._counts
        if len(counts) >= WIDE and self._taken >= self._alone:
            wave = minimal(self._order, counts)
            self._alone = 0 if len(wave) ** 2 >= len(counts) else 2 * self._alone + 1
            self._taken = 0
            return {time: counts.pop(time) for time in wave}
        self._taken += 1
        while self._heap:
            time = heappop(self._heap)[2]
            if time in counts:  # it may have been taken with others
                return {time: counts.pop(time)}
        return {}


@dataclass(frozen=True, slots=True)
class FailedNode:
    """A node that failed: its outputs, each with the times at which it is kept, and the known reason."""

    number: int
    outputs: Mapping[int, Collection[Time]]
    why: str


class Keeper:
    """Outputs of one scope that are kept where they are, for good: those of operators that raised.

    Such an operator publishes nothing more. What it holds and has not taken keeps its outputs, but it may hold
    nothing at all: then they would go on with its inputs, and end. So each output gets a pointstamp that nobody takes
    away.

    That is no part of the progress protocol, for it is derived from a frontier and not from a capability. Each worker
    does it for itself, before anything else is applied, at the times that the output had where the operator failed;
    where a worker knows already that one of them is over, at the frontier there. So no frontier goes back by it.

    at: the times by location. why: the known reasons, by node.

    >>> from tidegauge.dataflow.order import INT, same
    >>> from tidegauge.dataflow.topology import Topology, identity_shape
    >>> topology = Topology(INT, outputs=1)
    >>> _ = topology.add(identity_shape(0, 1)); topology.connect((1, 0), (0, 0))
    >>> tracker = Tracker(topology.compile())
    >>> output = tracker.graph.source(1, 0)
    >>> tracker.update([(output, 3, 1)]); _ = tracker.propagate()
    >>> Keeper(tracker, same(INT)).keep(FailedNode(1, {0: (3,)}, "it raised"), staying=lambda port: set())
    {0: {3}}
    >>> tracker.update([(output, 3, -1)]); _ = tracker.propagate()
    >>> tracker.implications[output].elements()
    (3,)
    """

    def __init__(self, tracker: Tracker, refinement: Refinement) -> None:
        self.at: Final[dict[int, set[Time]]] = {}
        self.why: Final[dict[int, str]] = {}
        self._tracker: Final = tracker
        self._refinement: Final = refinement

    def keep(self, node: FailedNode, staying: Callable[[int], set[Time]]) -> dict[int, set[Time]]:
        """Keep the outputs of a node. Return the outputs of the scope that they lead to, with times of the scope
        around it, where they are to be kept as well: it would go on before it hears of this.

        staying: the times at which an output is kept in any case.
        """
        tracker, graph = self._tracker, self._tracker.graph
        self.why.setdefault(node.number, node.why)
        leading: dict[int, set[Time]] = {}
        for port, times in node.outputs.items():
            location = graph.source(node.number, port)
            here = tracker.implications[location]
            still = {time for time in times if here.less_equal(time)}
            if len(still) < len(times):
                still.update(here.elements())
            at = self.at.setdefault(location, set())
            for time in still - at - staying(port):
                at.add(time)
                tracker.update([(location, time, 1)])
            for time in times:
                for output, summary in graph.to_outputs[location]:
                    if (result := advance(graph.order, time, summary)) is not None:
                        leading.setdefault(output, set()).add(self._refinement.to_outer(result))
        return leading
