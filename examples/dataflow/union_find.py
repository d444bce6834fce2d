"""Union-find: which edges of a graph connect what was not connected before.

Every worker first reduces the edges that it has to a forest of its own, so that few are left to be sent to the one
worker that brings the forests together.
"""

from __future__ import annotations

from typing import TypeAlias

from tidegauge.dataflow import Stream, Worker, execute, records

EDGES = [(0, 1), (2, 3), (1, 0), (4, 5), (1, 3), (0, 2), (5, 4)]

Edge: TypeAlias = tuple[int, int]


def union_find(edges: Stream[list[Edge]]) -> Stream[list[Edge]]:
    """Return, for each edge that connects two components, their representatives."""
    local = edges.state_machine(Forest, unite, name="local")
    return local.exchange(records.route(lambda _: 0)).state_machine(Forest, unite, name="global")


class Forest:
    """Components of nodes. Each is a tree, of at most logarithmic depth, whose root represents it."""

    def __init__(self) -> None:
        self._above: dict[int, int] = {}
        self._height: dict[int, int] = {}

    def root(self, node: int) -> int:
        """Return what represents the component of a node."""
        while (above := self._above.get(node, node)) != node:
            node = above
        return node

    def union(self, a: int, b: int) -> None:
        """Put the lower one of two trees, given by their roots, below the other."""
        ours, theirs = self._height.get(a, 0), self._height.get(b, 0)
        if ours < theirs:
            a, b = b, a
        elif ours == theirs:
            self._height[a] = ours + 1
        self._above[b] = a


def unite(forest: Forest, edges: list[Edge]) -> tuple[Forest, list[Edge] | None]:
    """Add edges to a forest; return with it the pairs of roots that they have connected."""
    connected = []
    for a, b in edges:
        pair = forest.root(a), forest.root(b)
        if pair[0] != pair[1]:
            forest.union(*pair)
            connected.append(pair)
    return forest, connected or None


def main() -> None:
    """Count the components of a small graph on two workers."""

    def build(worker: Worker) -> list[Edge]:
        connected: list[Edge] = []
        with worker.dataflow("components") as scope:
            edges = scope.to_stream([EDGES[worker.index :: worker.peers]])
            union_find(edges).inspect(lambda _, batch: connected.extend(batch))
        return connected

    connected = execute(build, peers=2)[0]
    nodes = {node for edge in EDGES for node in edge}
    left = len(nodes) - len(connected)
    print(f"{len(nodes)} nodes, {len(connected)} of {len(EDGES)} edges connect: {left} components")


if __name__ == "__main__":
    main()
