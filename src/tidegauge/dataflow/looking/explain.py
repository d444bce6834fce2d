"""Who holds a frontier back: the usual question about a dataflow that does not go on.

A frontier is held back by the capabilities and the waiting batches from which it follows: those that nothing upstream
precedes, at times that some path carries to an element of the frontier. `holders` finds them all, and for each the
probes that it holds back, with the operators on the way.

An operator that raised is a holder in any case, even where it held nothing: its outputs are kept where they were.

Invariant: while a probe is not done and nothing is left to run, some holder names it.

>>> print(Holder("shop/sink", "input", 0, 3, 2))
shop/sink: 2 batches at 3 waiting at input 0
>>> print(Holder("shop/sink", "output", 0, 3, 0, "it raised KeyError: 'tea'"))
shop/sink: output 0 kept at 3 (it raised KeyError: 'tea')
>>> print(Holder("shop/orders", "output", 0, 3, 1, before=(("shop/orders", "shop/map", "shop/count"),)))
shop/orders: 1 capability at 3 held on output 0, before the probe of shop/count via shop/map
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tidegauge.dataflow.invocation import Operator
from tidegauge.dataflow.order import Time, advance
from tidegauge.dataflow.progress import Subgraph

__all__ = ["Holder", "holders"]

_SHOWN = 3
"""How many probes are named in a line."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Capabilities held on an output, or batches that wait at an input, of an operator or of a nested scope.

    kind: "output", "input", or "operator" for one that raised and keeps nothing back, for it has no output, or all
    had come. count: on all workers together, 0 for an output that is kept where it was. note: the known reason, or
    "". before: for each probe that it holds back the paths of the operators and scopes on the way, from the holder to
    the probed stream.
    """

    path: str
    kind: str
    port: int
    time: Time
    count: int
    note: str = ""
    before: tuple[tuple[str, ...], ...] = ()

    def __str__(self) -> str:
        one, many, how = (
            ("capability", "capabilities", "held on") if self.kind == "output" else ("batch", "batches", "waiting at")
        )
        what = one if self.count == 1 else many
        note = f" ({self.note})" if self.note else ""
        if self.kind == "operator":
            return f"{self.path}: {self.note}, and is not run again"
        held = "".join(map(_shown, self.before[:_SHOWN]))
        more = f" and {len(self.before) - _SHOWN} more probes" if len(self.before) > _SHOWN else ""
        where = f"{self.count} {what} at {self.time!r} {how} {self.kind} {self.port}"
        if not self.count:
            where = f"{self.kind} {self.port} kept at {self.time!r}"
        return f"{self.path}: {where}{note}{held}{more}"


def _shown(way: tuple[str, ...]) -> str:
    between = f" via {', '.join(way[1:-1])}" if way[1:-1] else ""
    return f", before the probe of {way[-1]}{between}"


def holders(graph: Subgraph) -> Iterator[Holder]:
    """Yield the holders in a dataflow and in the scopes nested in it."""
    yield from _Walk(graph).holders(graph)


_Location: TypeAlias = tuple[Subgraph, int]
"""A location of a scope."""


class _Walk:
    """The ways through a dataflow, across the walls of its scopes."""

    def __init__(self, root: Subgraph) -> None:
        self._around: dict[Subgraph, tuple[Subgraph, int]] = {}
        self._probes: set[_Location] = set()
        self._look_at(root)

    def _look_at(self, graph: Subgraph) -> None:
        self._probes.update((graph, graph.tracker.graph.source(*output)) for output, _ in graph.watched)
        for number, child in graph.blueprint.nodes():
            if isinstance(child, Subgraph):
                self._around[child] = (graph, number)
                self._look_at(child)

    def holders(self, graph: Subgraph) -> Iterator[Holder]:
        """Yield the holders in a scope and those nested in it."""
        within = [
            holder
            for _, child in graph.blueprint.nodes()
            if isinstance(child, Subgraph)
            for holder in self.holders(child)
        ]
        named: set[int] = set()
        for location, time, total in graph.tracker.holders():
            count = total - (time in graph.keeper.at.get(location, ()))
            number, kind, port = graph.tracker.graph.describe(location)
            child = graph.children[number]
            if isinstance(child, Operator):
                note = graph.keeper.why.get(number) or _note(child, kind, port, graph.runtime.peers)
            elif isinstance(child, Subgraph) and kind == "input":
                note = "on their way into the scope"
            elif isinstance(child, Subgraph) and not any(_is_in(child.path, holder.path) for holder in within):
                note = "by what is within the scope and has not been counted yet"
            else:  # the world outside, or what the holders within a scope say better
                continue
            named.add(number)
            yield Holder(child.path, kind, port, time, count, note, tuple(self._before((graph, location), time)))
        for number, child in graph.blueprint.nodes():
            if isinstance(child, Operator) and child.fault is not None and number not in named:
                yield Holder(child.path, "operator", 0, None, 0, graph.keeper.why[number])
        yield from within

    def _before(self, place: _Location, time: Time) -> Iterator[tuple[str, ...]]:
        """Yield the way to each probe that `time` at `place` holds back: one of the shortest."""
        reached: dict[_Location, list[Time]] = {place: [time]}
        told: set[_Location] = set()
        work: deque[tuple[_Location, Time, tuple[str, ...]]] = deque([(place, time, (self._path(place),))])
        while work:
            here, now, way = work.popleft()
            if here in self._probes and here not in told and now in here[0].tracker.implications[here[1]].elements():
                told.add(here)
                yield way
            for there, later in self._onward(here, now):
                graph = there[0]
                known = reached.setdefault(there, [])
                if not any(graph.order.less_equal(earlier, later) for earlier in known):
                    known.append(later)
                    path = self._path(there)
                    work.append((there, later, way if path in (way[-1], graph.path) else (*way, path)))

    def _path(self, place: _Location) -> str:
        graph, location = place
        child = graph.children[graph.tracker.graph.node[location]]
        return graph.path if child is None else child.path

    def _onward(self, place: _Location, time: Time) -> Iterator[tuple[_Location, Time]]:
        """Yield where a time goes next: along edges, through operators, into scopes and out of them."""
        graph, location = place
        layout = graph.tracker.graph
        number, kind, port = layout.describe(location)
        child = graph.children[number]
        if kind == "input" and number == 0:
            around, inside = self._around[graph]
            yield (around, around.tracker.graph.source(inside, port)), graph.refinement.to_outer(time)
        elif kind == "input" and isinstance(child, Subgraph):
            yield (child, child.tracker.graph.source(0, port)), child.refinement.to_inner(time)
        else:
            for to, summary in layout.following[location]:
                later = advance(graph.order, time, summary)
                if later is not None:
                    yield (graph, to), later


def _is_in(scope: str, path: str) -> bool:
    return path.startswith(f"{scope}/")


def _note(operator: Operator, kind: str, port: int, peers: int) -> str:
    """Return the known reason why an operator that has not failed holds something."""
    if kind == "output":
        if operator.unpublished:
            return "changes of its capabilities wait for it to run: activate it"
        return operator.remark()
    if len(operator.inputs[port]):
        return "in its queue, for when it is activated"
    return "on their way, or at a peer" if peers > 1 else ""
