"""A scope under construction: its nodes, the edges between them, and the facts that the scope around has to know.

Each new node gets the next number, and nodes run in the sequence of their numbers; node 0 is the world outside. A
number is given out before its node exists, so that a loop or a nested scope built meanwhile can be connected to it.

Invariant: a blueprint is laid out once, when every number has its node. Nothing is added after that.

The scope around sees an operator: of each path from an input to an output it learns the summary in its own times.
Going through a loop that counts rounds keeps the outer time, however many rounds a batch takes.

>>> from tidegauge.dataflow.order import INT
>>> from tidegauge.dataflow.order.pairs import product
>>> from tidegauge.dataflow.topology import identity_shape
>>> loop = product(INT, INT)
>>> topology = Topology(loop.order, inputs=1, outputs=1)
>>> step = topology.add(identity_shape(1, 1))
>>> topology.connect((0, 0), (step, 0)); topology.connect((step, 0), (0, 0))
>>> seen_from_outside(topology.compile(), loop) == identity_shape(1, 1)
True
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from tidegauge.dataflow.order import Order, Refinement, Summary
from tidegauge.dataflow.reachability import Change
from tidegauge.dataflow.topology import Connection, Graph, NodePlace, Port, Shape, Topology, admit
from tidegauge.errors.dataflow import InvalidGraph, ZeroCycle

__all__ = ["Blueprint", "Node", "seen_from_outside"]


class Node(Protocol):
    """What a scope asks of the operators and scopes in it."""

    @property
    def path(self) -> str:
        """The names from the dataflow down."""
        ...

    @property
    def incomplete(self) -> bool:
        """Whether it has work that keeps the dataflow alive."""
        ...

    @property
    def shape(self) -> Shape:
        """Its ports and their connections."""
        ...

    def attach(self, place: NodePlace) -> None:
        """Take its locations in the scope."""
        ...

    def initial(self) -> list[Change]:
        """Return the capabilities that it begins with, in the locations of the scope."""
        ...

    def run(self) -> list[Change]:
        """Run once and return all it did, in the locations of the scope."""
        ...


class Blueprint:
    """The nodes of a scope by number, with their names, and its edges. `path` names the scope in errors."""

    def __init__(self, path: str, order: Order[Any]) -> None:
        self.path: Final = path
        self.order: Final = order
        self.names: Final[list[str]] = [path]
        self.children: Final[list[Node | None]] = [None]
        self.edges: Final[list[tuple[Port, Port]]] = []

    def reserve(self, name: str) -> int:
        """Return the number of a new node, which is to be installed before the scope is laid out."""
        self.children.append(None)
        self.names.append(name)
        return len(self.children) - 1

    def nodes(self) -> list[tuple[int, Node]]:
        """Return the number and the node of all that is in the scope."""
        return [(number, child) for number, child in enumerate(self.children) if child is not None]

    def lay_out(self, inputs: int, outputs: int, *, zero_cycles: bool) -> Graph:
        """Return the graph of a scope with these numbers of inputs and outputs. Raises InvalidGraph, ZeroCycle."""
        topology = Topology(self.order, inputs, outputs)
        for name, child in zip(self.names[1:], self.children[1:], strict=True):
            if child is None:
                raise InvalidGraph(
                    path=f"{self.path}/{name}",
                    problem="it was begun and never finished",
                    reason="a feedback without connect(), a builder without build(), or a nested scope still open",
                    advice="finish it before the scope around it ends",
                )
            topology.add(child.shape)
        for output, inlet in self.edges:
            topology.connect(output, inlet)
        graph = topology.compile()
        if graph.idle_cycle and not zero_cycles:
            raise ZeroCycle(path=self.path, operators=[self.names[number] for number in graph.idle_cycle])
        return graph


def seen_from_outside(graph: Graph, refinement: Refinement) -> Shape:
    """Return a scope as an operator of the one around it: its paths from inputs to outputs, in outer times."""
    outer, summarize = refinement.outer, refinement.summarize
    connections: list[Connection] = []
    for connection in graph.connections:
        outward = []
        for output, inner in connection:
            least: list[Summary] = []
            for summary in inner:
                admit(outer, least, summarize(summary))
            outward.append((output, tuple(least)))
        connections.append(tuple(outward))
    world = graph.shapes[0]  # its inputs are the scope's outputs
    return Shape(world.outputs, world.inputs, tuple(connections))
