"""The shape of one scope: operators, edges, and how far every path carries a time.

Operators are numbered from 1; node 0 is the world outside. Its *inputs* are the scope's outputs and its *outputs* the
scope's inputs, so that every edge runs from an output to an input. What lives at an output (a *source*) are
capabilities, what lives at an input (a *target*) are unconsumed messages; both are *locations*, small ints.

Each operator says, for each input and output that are connected, the antichain of summaries of its inner paths; edges
never change a time. `Topology.compile` lays this out as lists, refuses cycles that do not advance, and finds for
every location the least summaries to each output of the scope, from which the scope's own summaries follow.

>>> from tidegauge.dataflow.order import INT
>>> ring = Topology(INT)
>>> nodes = [ring.add(Shape(1, 1, (((0, (summary,)),),))) for summary in (None, None, 1)]
>>> for here, there in zip(nodes, nodes[1:] + nodes[:1]):
...     ring.connect((here, 0), (there, 0))
>>> graph = ring.compile()
>>> graph.describe(graph.source(1, 0)), graph.idle_cycle
((1, 'output', 0), ())
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from tidegauge.dataflow.order import NEVER, Order, Summary, compose, idle, summary_less_equal

__all__ = ["IDENTITY", "Connection", "Graph", "NodePlace", "Port", "Shape", "Topology", "admit", "identity_shape"]

Port: TypeAlias = tuple[int, int]
"""A node and one of its inputs or outputs."""
Connection: TypeAlias = tuple[tuple[int, tuple[Summary, ...]], ...]
"""What one input can cause: pairs of an output and the least summaries towards it. Absent: never."""
Successors: TypeAlias = Sequence[Sequence[tuple[int, Summary]]]
"""Where a time at each location goes next, with the summary."""
Towards: TypeAlias = tuple[tuple[int, Summary], ...]
"""The least summaries to outputs of the scope, each with its output."""
IDENTITY: tuple[Summary, ...] = (None,)


@dataclass(frozen=True, slots=True)
class Shape:
    """An operator as the tracker sees it: its ports, and the connection of each input."""

    inputs: int
    outputs: int
    connections: tuple[Connection, ...]


def identity_shape(inputs: int, outputs: int) -> Shape:
    """Return the default shape: every input may cause every output at the same time.

    >>> identity_shape(1, 2).connections
    (((0, (None,)), (1, (None,))),)
    """
    everywhere = tuple((output, IDENTITY) for output in range(outputs))
    return Shape(inputs, outputs, tuple(everywhere for _ in range(inputs)))


class NodePlace(NamedTuple):
    """The locations of a node: of its inputs, of its outputs, and of the inputs that each output feeds."""

    targets: tuple[int, ...]
    sources: tuple[int, ...]
    fed: tuple[tuple[int, ...], ...]


class Topology:
    """A scope under construction: nodes, their shapes, edges."""

    def __init__(self, order: Order[Any], inputs: int = 0, outputs: int = 0) -> None:
        self.order = order
        self._shapes: list[Shape] = [Shape(outputs, inputs, ((),) * outputs)]
        self._edges: dict[Port, list[Port]] = {}

    def add(self, shape: Shape) -> int:
        """Add a node, return its number."""
        self._shapes.append(shape)
        return len(self._shapes) - 1

    def connect(self, output: Port, inlet: Port) -> None:
        """Let what `output` sends arrive at `input`."""
        self._edges.setdefault(output, []).append(inlet)

    def compile(self) -> Graph:
        """Return the laid-out graph."""
        return Graph(self.order, self._shapes, self._edges)


class Graph:
    """A scope's graph laid out over locations, node by node, inputs before outputs.

    node: the node of each location. is_target: whether it is an input. following: where a time at the location goes
    next, with the summary. to_outputs: the least summaries to each output of the scope (none for node 0's own).
    connections: the scope's own, from each of its inputs. idle_cycle: the nodes on cycles that do not advance.
    """

    def __init__(self, order: Order[Any], shapes: list[Shape], edges: dict[Port, list[Port]]) -> None:
        self.order = order
        self.shapes = shapes
        self._first: list[int] = []
        self.node: list[int] = []
        self.is_target: list[bool] = []
        for number, shape in enumerate(shapes):
            self._first.append(len(self.node))
            self.node.extend([number] * (shape.inputs + shape.outputs))
            self.is_target.extend([True] * shape.inputs + [False] * shape.outputs)
        following: list[list[tuple[int, Summary]]] = [[] for _ in self.node]
        for number, shape in enumerate(shapes):
            for port, connection in enumerate(shape.connections):
                inner = following[self.target(number, port)]
                inner.extend((self.source(number, output), s) for output, least in connection for s in least)
        for (number, port), inputs in edges.items():
            following[self.source(number, port)].extend((self.target(*inlet), None) for inlet in inputs)
        self.following: Successors = [tuple(ends) for ends in following]
        upstream_first = _peel(self.following)
        self.cyclic = len(upstream_first) < len(self.node)
        self.idle_cycle: tuple[int, ...] = ()
        if self.cyclic:
            staying = [tuple(end for end in ends if idle(order, end[1])) for ends in self.following]
            self.idle_cycle = tuple(sorted({self.node[at] for at in _on_cycles(staying)} - {0}))
            upstream_first = _peel(staying)
        self.rank: list[int] = [len(self.node)] * len(self.node)
        for rank, at in enumerate(upstream_first):
            self.rank[at] = rank
        to_outputs = self._summaries()
        self.connections: tuple[Connection, ...] = tuple(
            tuple((o, tuple(least)) for o, least in sorted(to_outputs.get(self.source(0, port), {}).items()))
            for port in range(shapes[0].outputs)
        )
        self.to_outputs: list[Towards] = [()] * len(self.node)
        for at, found in to_outputs.items():
            if self.node[at]:
                self.to_outputs[at] = tuple((o, s) for o, least in sorted(found.items()) for s in least)

    def __len__(self) -> int:
        return len(self.node)

    def target(self, node: int, port: int) -> int:
        """Return the location of an input."""
        return self._first[node] + port

    def source(self, node: int, port: int) -> int:
        """Return the location of an output."""
        return self._first[node] + self.shapes[node].inputs + port

    def place(self, node: int) -> NodePlace:
        """Return all locations of a node."""
        first, shape = self._first[node], self.shapes[node]
        between = first + shape.inputs
        sources = tuple(range(between, between + shape.outputs))
        return NodePlace(tuple(range(first, between)), sources, tuple(map(self._fed, sources)))

    def describe(self, location: int) -> tuple[int, str, int]:
        """Return node, "input" or "output", and port of a location."""
        node = self.node[location]
        port = location - self._first[node]
        inputs = self.shapes[node].inputs
        return (node, "input", port) if port < inputs else (node, "output", port - inputs)

    def targets_of(self, node: int, port: int) -> tuple[int, ...]:
        """Return the inputs that an output feeds."""
        return self._fed(self.source(node, port))

    def _fed(self, source: int) -> tuple[int, ...]:
        return tuple([at for at, _ in self.following[source]])

    def _summaries(self) -> dict[int, dict[int, list[Summary]]]:
        """Return the antichain of summaries from each location to each output of the scope, found backwards; what
        leads to none is absent.
        """
        found: dict[int, dict[int, list[Summary]]] = {}
        if not self.shapes[0].inputs:
            return found
        before: dict[int, list[tuple[int, Summary]]] = {}
        for at, ends in enumerate(self.following):
            for to, summary in ends:
                before.setdefault(to, []).append((at, summary))
        work = deque((self.target(0, output), output, None) for output in range(self.shapes[0].inputs))
        for at, output, summary in work:
            found[at] = {output: [summary]}
        while work:
            to, output, rest = work.popleft()
            for at, summary in before.get(to, ()):
                whole = compose(self.order, summary, rest)
                if whole is not NEVER and admit(self.order, found.setdefault(at, {}).setdefault(output, []), whole):
                    work.append((at, output, whole))
        return found


def admit(order: Order[Any], least: list[Summary], summary: Summary) -> bool:
    """Insert a summary into the antichain `least`; return whether it was not already implied.

    >>> from tidegauge.dataflow.order import INT
    >>> least = [2]
    >>> admit(INT, least, 5), admit(INT, least, 1), least
    (False, True, [1])
    """
    if any(summary_less_equal(order, x, summary) for x in least):
        return False
    least[:] = [x for x in least if not summary_less_equal(order, summary, x)] + [summary]
    return True


def _peel(following: Successors) -> list[int]:
    """Return the locations that no cycle leads to, each after all that lead to it (Kahn's algorithm)."""
    waiting = [0] * len(following)
    for ends in following:
        for to, _ in ends:
            waiting[to] += 1
    peeled = [at for at, count in enumerate(waiting) if not count]
    for at in peeled:  # it grows meanwhile
        for to, _ in following[at]:
            waiting[to] -= 1
            if not waiting[to]:
                peeled.append(to)
    return peeled


def _on_cycles(following: Successors) -> set[int]:
    """Return the locations on a cycle or between two: those that a cycle leads to and that lead to one."""
    backward: list[list[tuple[int, Summary]]] = [[] for _ in following]
    for at, ends in enumerate(following):
        for to, summary in ends:
            backward[to].append((at, summary))
    return set(range(len(following))) - set(_peel(following)) - set(_peel(backward))
