"""Breadth-first search: how far each node of a graph is from the roots, as a loop that goes one edge a turn.

A node that is proposed at a time for the first time is that far away: it is found, and proposes those that its edges
lead to for the next time. That a turn is complete is known from the frontier; nobody counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from operator import itemgetter
from typing import TypeAlias

from tidegauge.dataflow import OperatorContext, OperatorInput, OperatorOutput, Stash, Stream, Worker, execute, records

EDGES = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (4, 0), (5, 6)]

Proposal: TypeAlias = tuple[int, int]
"""A node, and the node that it was reached from."""
Visit: TypeAlias = tuple[int, int, list[int]]
"""A node, the node that it was reached from, and those that its edges lead to."""


def breadth_first(edges: Stream[list[tuple[int, int]]], roots: Stream[list[int]]) -> Stream[list[Proposal]]:
    """Return the nodes that can be reached from the roots: each once, at its distance and one, with a parent.

    A root is its own parent; of several possible parents it is the least. The edges are those of one graph: they all
    come at the first time.
    """
    by_node = records.route(itemgetter(0))
    handle, proposed = edges.scope.feedback(1)
    visits = edges.exchange(by_node).binary(proposed.exchange(by_node), "visit", visit)
    handle.connect(roots.map(records.map(as_root)).concat(visits.map(records.flat_map(onward))))
    return visits.map(records.map(found))


def as_root(node: int) -> Proposal:
    """Propose a node by itself."""
    return node, node


def onward(visit: Visit) -> list[Proposal]:
    """Propose what the edges of a node lead to."""
    node, _, targets = visit
    return [(target, node) for target in targets]


def found(visit: Visit) -> Proposal:
    """Return a node with its parent."""
    node, parent, _ = visit
    return node, parent


def visit(context: OperatorContext) -> Callable[[OperatorInput, OperatorInput, OperatorOutput], None]:
    """Send a visit of each node at the first time at which the node is proposed."""
    context.capabilities[0].drop()
    targets: defaultdict[int, list[int]] = defaultdict(list)
    stash: Stash[list[Proposal]] = Stash(list)
    seen: set[int] = set()

    def step(edges: OperatorInput, proposals: OperatorInput, output: OperatorOutput) -> None:
        for _, batch in edges.drain():
            for source, target in batch:
                targets[source].append(target)
        for message, batch in proposals.drain():
            stash.at(message.time, message.retain).extend(batch)
        for held, proposed in stash.ready([edges.frontier, proposals.frontier]):
            parents = dict(sorted(proposed, reverse=True))  # of one node's the last one stays: the least
            fresh = [node for node in sorted(parents) if node not in seen]
            seen.update(fresh)
            if fresh:  # an empty batch is a batch, and would go round for ever
                output.give(held, [(node, parents[node], targets.get(node, [])) for node in fresh])
            held.drop()

    return step


def main() -> None:
    """Search a small graph from node 0, on two workers."""

    def build(worker: Worker) -> list[tuple[int, int, int]]:
        reached: list[tuple[int, int, int]] = []
        with worker.dataflow("search") as scope:
            edges = scope.to_stream([EDGES[worker.index :: worker.peers]])
            roots = scope.to_stream([[0]] if worker.index == 0 else [])
            breadth_first(edges, roots).inspect(
                lambda stamp, batch: reached.extend((*stamp, *pair) for pair in batch)
            )
        return reached

    for time, node, parent in sorted(one for reached in execute(build, peers=2) for one in reached):
        print(f"{node} is {time - 1} from the root, reached from {parent}")


if __name__ == "__main__":
    main()
