"""The programs of `examples/dataflow`: the same result on one worker and on several. Cases C63 to C66 and C68."""

from __future__ import annotations

import runpy
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from examples.dataflow.bfs import breadth_first
from examples.dataflow.join import join
from examples.dataflow.pagerank import pagerank, shares
from examples.dataflow.union_find import union_find
from examples.dataflow.word_count import word_count
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge.dataflow import INT, DeterministicCluster, EventQueue, Messages, Product, Worker

RunOn: TypeAlias = Callable[[Callable[[Worker], Any]], list[Any]]

EXAMPLES = Path(__file__).parents[2] / "examples" / "dataflow"


def mine(worker: Worker, items: list[Any]) -> list[Any]:
    """Return the part of the input that a worker reads."""
    return items[worker.index :: worker.peers]


def together(queues: list[EventQueue]) -> list[tuple[Any, Any]]:
    """Return the records on all workers, each with its time, in the order of times and then of records."""
    return sorted(
        (event.stamp[0], record)
        for queue in queues
        for event in queue.drain()
        if isinstance(event, Messages)
        for record in event.batch
    )


def test_c63_breadth_first(run_on: RunOn) -> None:
    edges = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (4, 0), (5, 6)]

    def build(worker: Worker) -> EventQueue:
        with worker.dataflow("search") as scope:
            roots = scope.to_stream([[0]] if worker.index == 0 else [])
            return breadth_first(scope.to_stream([mine(worker, edges)]), roots).capture()

    assert together(run_on(build)) == [(1, (0, 0)), (2, (1, 0)), (2, (2, 0)), (3, (3, 1)), (4, (4, 3))]


def ranks_at(changes: list[tuple[int, tuple[int, int]]], time: int) -> list[int]:
    ranks = dict.fromkeys(range(4), 1000)
    ranks.update(change for at, change in changes if at <= time)
    return list(ranks.values())


def test_c64_pagerank(run_on: RunOn) -> None:
    edges = [((0, 1), 1), ((0, 2), 1), ((1, 2), 1), ((2, 0), 1), ((3, 2), 1)]

    def build(worker: Worker) -> EventQueue:
        with worker.dataflow("pagerank") as scope:
            feed, stream = scope.input("edges")
            queue = pagerank(stream).capture()
        feed.send(mine(worker, edges))
        feed.advance_to(1000)
        if worker.index == 0:
            feed.send([((1, 3), 1)])
        feed.close()
        return queue

    changes = together(run_on(build))
    assert ranks_at(changes, 1) == [1833, 1417, 3082, 1000]
    assert ranks_at(changes, 2) == [3568, 1764, 3776, 1000]
    assert ranks_at(changes, 10) == [7575, 4045, 8143, 1000]
    assert ranks_at(changes, 35) == ranks_at(changes, 1000) == [8845, 4681, 9414, 1000]
    assert ranks_at(changes, 1001) == [8845, 4681, 7468, 2950]
    assert ranks_at(changes, 1014) == ranks_at(changes, 9999) == [8163, 4397, 8590, 2830]
    assert {time for time, _ in changes} <= {*range(36), *range(1001, 1015)}


@given(st.integers(0, 10_000), st.dictionaries(st.integers(0, 9), st.integers(1, 3), min_size=1))
def test_c64_what_a_node_hands_on_is_five_sixths_as_evenly_as_can_be(rank: int, targets: dict[int, int]) -> None:
    single = shares(rank, Counter(targets.keys()))
    assert sum(single.values()) == rank * 5 // 6
    assert max(single.values()) - min(single.values()) <= 1
    several = shares(rank, Counter(targets))
    assert several == {target: targets[target] * share for target, share in single.items()}


UNION = [(0, 1), (2, 3), (1, 0), (4, 5), (1, 3), (0, 2), (5, 4)]


def test_c65_union_find_on_one_worker() -> None:
    def build(worker: Worker) -> EventQueue:
        with worker.dataflow("components") as scope:
            return union_find(scope.to_stream([UNION])).capture()

    [queue] = DeterministicCluster(seed=0).run(build)
    [batch] = [event.batch for event in queue.drain() if isinstance(event, Messages)]
    assert batch == [(0, 1), (2, 3), (4, 5), (0, 2)]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))), st.integers(1, 3), st.integers(0, 9))
def test_c65_as_many_edges_connect_as_components_become_one(edges: list[Any], peers: int, seed: int) -> None:
    def build(worker: Worker) -> EventQueue:
        with worker.dataflow("components") as scope:
            return union_find(scope.to_stream([mine(worker, edges)])).capture()

    connected = [pair for _, pair in together(DeterministicCluster(peers=peers, seed=seed).run(build))]
    assert components(connected) == components(edges)
    assert len(connected) == 10 - len(components(edges))


def components(edges: list[tuple[int, int]]) -> set[frozenset[int]]:
    of = {node: frozenset([node]) for node in range(10)}
    for a, b in edges:
        one = of[a] | of[b]
        of.update(dict.fromkeys(one, one))
    return set(of.values())


def joining(run: RunOn, order: Any, sides: list[list[tuple[Any, Any]]]) -> list[Any]:
    def build(worker: Worker) -> EventQueue:
        with worker.dataflow("join", order=order) as scope:
            inputs = [scope.unordered_input(name) for name in ("left", "right")]
            queue = join(inputs[0][2], inputs[1][2]).capture()
        for (handle, first, _), messages in zip(inputs, sides, strict=True):
            for time, batch in mine(worker, messages):
                held = first.delayed(time)
                handle.session(held).give(batch)
                held.drop()
            first.drop()
        return queue

    return together(run(build))


def test_c66_hash_join(run_on: RunOn) -> None:
    left = [(0, [(1, 10), (2, 20)]), (1, [(1, 11), (3, 30)])]
    right = [(0, [(1, 100), (3, 300)]), (1, [(2, 200)])]
    assert [(time, values) for time, (_, *values) in joining(run_on, INT, [left, right])] == [
        (0, [10, 100]),
        (1, [11, 100]),
        (1, [20, 200]),
        (1, [30, 300]),
    ]


TIMES = st.tuples(st.integers(0, 2), st.integers(0, 2))
SIDE = st.lists(st.tuples(TIMES, st.lists(st.tuples(st.integers(0, 2), st.integers()), max_size=3)), max_size=4)


@settings(deadline=None)
@given(SIDE, SIDE, st.integers(1, 3), st.integers(0, 9))
def test_c66_each_pair_comes_once_at_the_least_time_beyond_both(
    left: list[Any], right: list[Any], peers: int, seed: int
) -> None:
    order = Product(INT, INT)
    assert joining(
        lambda build: DeterministicCluster(peers=peers, seed=seed).run(build), order, [left, right]
    ) == sorted(
        (order.join(s, t), (key, a, b))
        for s, lefts in left
        for t, rights in right
        for key, a in lefts
        for other, b in rights
        if key == other
    )


def test_c68_word_count(run_on: RunOn) -> None:
    def build(worker: Worker) -> EventQueue:
        with worker.dataflow("words") as scope:
            feed, lines = scope.input("lines")
            queue = word_count(lines).capture()
        for time in range(10):
            feed.advance_to(time)
            feed.send(["round"])
        feed.close()
        return queue

    queues = run_on(build)
    counted = [(time, pair) for time, pair in together(queues)]
    peers = len(queues)
    assert counted == [(n // peers, ("round", n + 1)) for n in range(10 * peers)]


def test_c68_words_in_one_line(run_on: RunOn) -> None:
    def build(worker: Worker) -> EventQueue:
        with worker.dataflow("words") as scope:
            lines = scope.to_stream([["ebb and flood", "", "ebb"]] if worker.index == 0 else [])
            return word_count(lines).capture()

    assert together(run_on(build)) == [(0, ("and", 1)), (0, ("ebb", 1)), (0, ("ebb", 2)), (0, ("flood", 1))]


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("bfs", "4 is 3 from the root, reached from 3"),
        ("join", "time 1: 1 lock 7.1"),
        ("pagerank", "at rest from time 34 on: {0: 8845, 1: 4681, 2: 9414}"),
        ("union_find", "6 nodes, 4 of 7 edges connect: 2 components"),
        ("word_count", "time 2: the 4"),
    ],
)
def test_an_example_runs_as_a_script(script: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / f"{script}.py"), run_name="__main__")
    assert says in capsys.readouterr().out


def test_there_is_no_example_that_is_not_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {"bfs", "join", "pagerank", "union_find", "word_count"}
