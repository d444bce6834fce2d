"""PageRank in whole numbers: ranks flow along the edges of a graph that changes, until nothing moves any more.

A node hands five sixths of its rank to the nodes that its edges lead to, as evenly as whole numbers can be. When its
rank or its edges change it takes back what it gave, and gives anew: only the difference is sent, and arrives at the
next time. A node acts on differences when they add up to 6 or more, and so the flow comes to rest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, TypeAlias

from tidegauge.dataflow import OperatorContext, OperatorInput, OperatorOutput, Stash, Stream, Worker, execute, records

EDGES = [(0, 1), (0, 2), (1, 2), (2, 0), (3, 2)]
START, ENOUGH = 1000, 6

Edge: TypeAlias = tuple[int, int]
Changes: TypeAlias = list[tuple[Any, int]]
"""Things with by how much there is more of them: edges with their number, nodes with their rank."""


def pagerank(edges: Stream[Changes]) -> Stream[list[tuple[int, int]]]:
    """Return the ranks of nodes, `(node, rank)`, whenever they change. Each node begins with 1000.

    edges: changes `((source, target), by how much there is more of it)`, at any time.
    """
    handle, arriving = edges.scope.feedback(1)
    by_source = edges.exchange(records.route(lambda change: change[0][0]))
    flow = by_source.binary(arriving.exchange(records.route(itemgetter(0))), "pagerank", rank)
    handle.connect(flow.map(itemgetter(1)).filter(bool))
    return flow.map(itemgetter(0)).filter(bool)


def rank(context: OperatorContext) -> Callable[[OperatorInput, OperatorInput, OperatorOutput], None]:
    """Send, at each time, the nodes whose rank has changed and what is to be added to the ranks of others."""
    context.capabilities[0].drop()
    stash: Stash[tuple[Changes, Changes]] = Stash(lambda: ([], []))
    targets: defaultdict[int, Counter[int]] = defaultdict(Counter)
    ranks: defaultdict[int, int] = defaultdict(lambda: START)
    owed: Counter[int] = Counter()

    def change(edges: Changes, arrived: Changes) -> tuple[list[tuple[int, int]], Changes]:
        sent: Counter[int] = Counter()
        changed: list[tuple[int, int]] = []
        for (source, target), more in added(edges):
            sent.subtract(shares(ranks[source], targets[source]))
            targets[source][target] += more
            sent.update(shares(ranks[source], targets[source]))
        for node, more in added(arrived):
            owed[node] += more
            if abs(owed[node]) >= ENOUGH:
                sent.subtract(shares(ranks[node], targets[node]))
                ranks[node] += owed.pop(node)
                sent.update(shares(ranks[node], targets[node]))
                changed.append((node, ranks[node]))
        return changed, added(sent.items())

    def step(edges: OperatorInput, arriving: OperatorInput, output: OperatorOutput) -> None:
        for side, inlet in enumerate((edges, arriving)):
            for message, batch in inlet.drain():
                stash.at(message.time, message.retain)[side].extend(batch)
        for held, changes in stash.ready([edges.frontier, arriving.frontier]):
            output.give(held, change(*changes))
            held.drop()

    return step


def shares(rank: int, targets: Counter[int]) -> dict[int, int]:
    """Return what each target gets of a node's rank: the first ones get one more where it does not come out even.

    >>> shares(1000, Counter([1, 2]))
    {1: 417, 2: 416}
    """
    among = sorted(+targets)
    if not among:
        return {}
    share, rest = divmod(rank * 5 // 6, len(among))
    return {target: targets[target] * (share + (place < rest)) for place, target in enumerate(among)}


def added(changes: Iterable[tuple[Any, int]]) -> Changes:
    """Return the sum of the changes of each thing, in the order of the things, without those that come to nothing."""
    total: Counter[Any] = Counter()
    for thing, more in changes:
        total[thing] += more
    return sorted((thing, more) for thing, more in total.items() if more)


def main() -> None:
    """Rank a small graph on two workers."""

    def build(worker: Worker) -> list[tuple[int, int, int]]:
        ranked: list[tuple[int, int, int]] = []
        with worker.dataflow("pagerank") as scope:
            edges = scope.to_stream([[(edge, 1) for edge in EDGES[worker.index :: worker.peers]]])
            pagerank(edges).inspect(lambda stamp, batch: ranked.extend((*stamp, *pair) for pair in batch))
        return ranked

    changes = sorted(one for ranked in execute(build, peers=2) for one in ranked)
    last = {node: rank for _, node, rank in changes}
    print(f"at rest from time {changes[-1][0]} on: {last}")


if __name__ == "__main__":
    main()
