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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidegauge.dataflow.order import NEVER, Order, Summary, compose, summary_less_equal

__all__ = ["IDENTITY", "Connection", "Graph", "Port", "Shape", "Topology", "admit", "identity_shape"]

Port: TypeAlias = tuple[int, int]
"""A node and one of its inputs or outputs."""
Connection: TypeAlias = tuple[tuple[int, tuple[Summary, ...]], ...]
"""What one input can cause: pairs of an output and the least summaries towards it. Absent: never."""
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
        self.following: list[list[tuple[int, Summary]]] = [[] for _ in self.node]
        for number, shape in enumerate(shapes):
            for port, connection in enumerate(shape.connections):
                inner = self.following[self.target(number, port)]
                inner.extend((self.source(number, output), s) for output, least in connection for s in least)
        for (number, port), inputs in edges.items():
            self.following[self.source(number, port)].extend((self.target(*inlet), None) for inlet in inputs)
        self.idle_cycle: tuple[int, ...] = tuple(sorted({self.node[at] for at in self._cyclic(idle=True)} - {0}))
        self.cyclic = bool(self._cyclic(idle=False))
        to_outputs = self._summaries()
        self.connections: tuple[Connection, ...] = tuple(
            tuple((output, tuple(least)) for output, least in sorted(to_outputs[self.source(0, port)].items()))
            for port in range(shapes[0].outputs)
        )
        self.to_outputs: list[list[tuple[int, Summary]]] = [
            [(o, s) for o, least in sorted(found.items()) for s in least] if self.node[at] else []
            for at, found in enumerate(to_outputs)
        ]
        self.rank = self._ranks()

    def __len__(self) -> int:
        return len(self.node)

    def target(self, node: int, port: int) -> int:
        """Return the location of an input."""
        return self._first[node] + port

    def source(self, node: int, port: int) -> int:
        """Return the location of an output."""
        return self._first[node] + self.shapes[node].inputs + port

    def describe(self, location: int) -> tuple[int, str, int]:
        """Return node, "input" or "output", and port of a location."""
        node = self.node[location]
        port = location - self._first[node]
        inputs = self.shapes[node].inputs
        return (node, "input", port) if port < inputs else (node, "output", port - inputs)

    def targets_of(self, node: int, port: int) -> tuple[int, ...]:
        """Return the inputs that an output feeds."""
        return tuple(at for at, _ in self.following[self.source(node, port)])

    def _flow(self, *, idle: bool) -> list[list[int]]:
        return [[to for to, s in ends if not idle or s is None] for ends in self.following]

    def _cyclic(self, *, idle: bool) -> set[int]:
        """Return the locations on a cycle: those left without all that nothing leads to or that lead nowhere."""
        forward = self._flow(idle=idle)
        backward: list[list[int]] = [[] for _ in forward]
        for at, ends in enumerate(forward):
            for to in ends:
                backward[to].append(at)
        return set(range(len(forward))) - set(_peel(forward, backward)) - set(_peel(backward, forward))

    def _ranks(self) -> list[int]:
        """Return a number for each location, growing along every path (as far as there are no cycles)."""
        forward = self._flow(idle=self.cyclic)
        backward: list[list[int]] = [[] for _ in forward]
        for at, ends in enumerate(forward):
            for to in ends:
                backward[to].append(at)
        ranks = [len(forward)] * len(forward)
        for rank, at in enumerate(_peel(forward, backward)):
            ranks[at] = rank
        return ranks

    def _summaries(self) -> list[dict[int, list[Summary]]]:
        """Return for each location the antichain of summaries to each output of the scope, found backwards."""
        before: list[list[tuple[int, Summary]]] = [[] for _ in self.following]
        for at, ends in enumerate(self.following):
            for to, summary in ends:
                before[to].append((at, summary))
        found: list[dict[int, list[Summary]]] = [{} for _ in self.following]
        work = deque((self.target(0, output), output, None) for output in range(self.shapes[0].inputs))
        for at, output, summary in work:
            found[at][output] = [summary]
        while work:
            to, output, rest = work.popleft()
            for at, summary in before[to]:
                whole = compose(self.order, summary, rest)
                if whole is not NEVER and admit(self.order, found[at].setdefault(output, []), whole):
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


def _peel(forward: list[list[int]], backward: Iterable[list[int]]) -> Iterator[int]:
    """Yield the locations that no cycle leads to, each after all that lead to it (Kahn's algorithm)."""
    waiting = [len(ends) for ends in backward]
    ready = deque(at for at, count in enumerate(waiting) if not count)
    while ready:
        at = ready.popleft()
        yield at
        for to in forward[at]:
            waiting[to] -= 1
            if not waiting[to]:
                ready.append(to)
