"""The tracker against a definition of reachability, then the cases C19 to C23 and C57."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep

from tidegauge.dataflow import INT, Bounded, Product
from tidegauge.dataflow.order import Order, advance
from tidegauge.dataflow.reachability import Tracker
from tidegauge.dataflow.topology import Graph, Shape, Topology, identity_shape

PAIRS = Product(INT, INT)


def step(summary: Any, order: Order[Any] = INT) -> Shape:
    return Shape(1, 1, (((0, (order.normal(summary),)),),))  # type: ignore[attr-defined]


def ring(*summaries: int, close: bool = True) -> Graph:
    topology = Topology(INT)
    nodes = [topology.add(step(summary)) for summary in summaries]
    for here, there in zip(nodes, nodes[1:] + nodes[:1] if close else nodes[1:], strict=close):
        topology.connect((here, 0), (there, 0))
    return topology.compile()


def test_c19_a_time_goes_round_a_ring() -> None:
    tracker = Tracker(ring(0, 0, 1))
    graph = tracker.graph
    first, second, third = (graph.target(node, 0) for node in (1, 2, 3))
    tracker.update([(graph.source(1, 0), 17, 1)])
    moved, _ = tracker.propagate()
    assert {at: dict(moved[at]) for at in (first, second, third)} == {first: {18: 1}, second: {17: 1}, third: {17: 1}}
    tracker.update([(graph.source(1, 0), 17, -1)])
    moved, _ = tracker.propagate()
    assert {at: dict(moved[at]) for at in (first, second, third)} == {
        first: {18: -1},
        second: {17: -1},
        third: {17: -1},
    }
    assert tracker.total == 0


def test_c20_a_ring_without_advance_is_found_when_it_closes() -> None:
    line = Topology(INT)
    for _ in range(3):
        line.add(step(0))
    line.connect((1, 0), (2, 0))
    line.connect((2, 0), (3, 0))
    assert line.compile().idle_cycle == ()
    line.connect((3, 0), (1, 0))
    assert line.compile().idle_cycle == (1, 2, 3)


def test_c20_only_the_operators_of_the_cycle_are_named() -> None:
    topology = Topology(INT)
    for _ in range(4):
        topology.add(step(0))
    for here, there in ((1, 2), (2, 3), (3, 2), (3, 4)):
        topology.connect((here, 0), (there, 0))
    assert topology.compile().idle_cycle == (2, 3)


def test_c21_crossed_connections_need_not_be_a_cycle() -> None:
    topology = Topology(INT)
    node = topology.add(Shape(2, 2, (((0, (None,)),), ((1, (1,)),))))
    topology.connect((node, 0), (node, 1))
    topology.connect((node, 1), (node, 0))
    assert topology.compile().idle_cycle == ()


def test_c22_a_loop_of_product_times() -> None:
    topology = Topology(PAIRS, inputs=0, outputs=1)
    source = topology.add(Shape(0, 1, ()))
    concat = topology.add(identity_shape(2, 1))
    feedback = topology.add(step((0, 1), PAIRS))
    topology.connect((source, 0), (concat, 0))
    topology.connect((feedback, 0), (concat, 1))
    topology.connect((concat, 0), (feedback, 0))
    topology.connect((concat, 0), (0, 0))
    tracker = Tracker(topology.compile())
    graph = tracker.graph
    names = {
        "t0": graph.target(0, 0), "s1": graph.source(1, 0), "t20": graph.target(2, 0), "t21": graph.target(2, 1),
        "s2": graph.source(2, 0), "t3": graph.target(3, 0), "s3": graph.source(3, 0),
    }  # fmt: skip

    def play(*updates: tuple[str, Any, int]) -> tuple[dict[str, dict[Any, int]], dict[Any, int]]:
        for name, time, delta in updates:
            tracker.update([(names[name], time, delta)])
        moved, outputs = tracker.propagate()
        seen = {name: dict(moved[at]) for name, at in names.items() if moved.get(at)}
        return seen, dict(outputs[0].drain())

    moved, output = play(("s1", (0, 0), 1))
    start = {"t0": (0, 0), "s1": (0, 0), "t20": (0, 0), "t21": (0, 1), "s2": (0, 0), "t3": (0, 0), "s3": (0, 1)}
    assert moved == {name: {time: 1} for name, time in start.items()}
    assert output == {(0, 0): 1}

    moved, output = play(("s1", (0, 0), -1), ("s1", (1, 0), 1))
    assert moved == {name: {(0, i): -1, (1, i): 1} for name, (_, i) in start.items()}
    assert output == {(0, 0): -1, (1, 0): 1}

    moved, output = play(("t21", (0, 3), 1))
    assert moved == {"t0": {(0, 3): 1}, "t21": {(0, 3): 1}, "s2": {(0, 3): 1}, "t3": {(0, 3): 1}, "s3": {(0, 4): 1}}
    assert output == {(0, 3): 1}

    moved, output = play(("t21", (0, 3), -1), ("t3", (0, 3), 1))
    assert moved == {name: {(0, 3): -1, (0, 4): 1} for name in ("t0", "t21", "s2")}
    assert output == {(0, 3): -1, (0, 4): 1}

    moved, output = play(("t3", (0, 3), -1), ("t21", (0, 4), 1))
    assert moved == {"t3": {(0, 3): -1, (0, 4): 1}, "s3": {(0, 4): -1, (0, 5): 1}}
    assert output == {}

    moved, output = play(("t21", (0, 4), -1))
    assert moved == {
        "t0": {(0, 4): -1},
        "t21": {(0, 4): -1},
        "s2": {(0, 4): -1},
        "t3": {(0, 4): -1},
        "s3": {(0, 5): -1},
    }
    assert output == {(0, 4): -1}

    moved, output = play(("s1", (1, 0), -1))
    assert moved == {name: {(1, i): -1} for name, (_, i) in start.items()}
    assert output == {(1, 0): -1}
    assert tracker.total == 0


def test_c23_a_scope_keeps_its_least_paths() -> None:
    topology = Topology(INT, inputs=1, outputs=1)
    split = topology.add(Shape(1, 2, (((0, (None,)), (1, (2,))),)))
    late = topology.add(step(5))
    join = topology.add(identity_shape(2, 1))
    topology.connect((0, 0), (split, 0))
    topology.connect((split, 0), (late, 0))
    topology.connect((late, 0), (join, 0))
    topology.connect((split, 1), (join, 1))
    topology.connect((join, 0), (0, 0))
    assert topology.compile().connections == (((0, (2,)),),)


def test_c57_many_unconnected_ports_cost_what_they_are() -> None:
    ports = 5000
    topology = Topology(INT, inputs=ports, outputs=ports)
    node = topology.add(Shape(ports, ports, tuple(((port, (None,)),) for port in range(ports))))
    for port in range(ports):
        topology.connect((0, port), (node, port))
        topology.connect((node, port), (0, port))
    graph = topology.compile()
    assert sum(map(len, graph.following)) == 3 * ports
    assert graph.connections == tuple(((port, (None,)),) for port in range(ports))


def test_a_time_that_cannot_cross_a_path_implies_nothing_behind_it() -> None:
    topology = Topology(Bounded(3))
    first, second = topology.add(step(2)), topology.add(step(0))
    topology.connect((first, 0), (second, 0))
    tracker = Tracker(topology.compile())
    tracker.update([(tracker.graph.target(first, 0), 2, 1)])
    tracker.propagate()
    assert tracker.implications[tracker.graph.target(second, 0)].is_empty()


def implied(graph: Graph, counts: dict[tuple[int, Any], int], limit: int) -> list[set[Any]]:
    """By definition: carry every pointstamp along every path, keep what is minimal."""
    order = graph.order
    reached: list[set[Any]] = [set() for _ in graph.node]
    work = [(at, time) for (at, time), count in counts.items() if count > 0]
    while work:
        at, time = work.pop()
        if time not in reached[at]:
            reached[at].add(time)
            for to, summary in graph.following[at]:
                result = advance(order, time, summary)
                if result is not None and sum(result if isinstance(result, tuple) else (result,)) < limit:
                    work.append((to, result))
    return [{a for a in seen if not any(b != a and order.less_equal(b, a) for b in seen)} for seen in reached]


@deep(150)
@given(st.data())
def test_implied_frontiers_are_what_paths_say(data: st.DataObject) -> None:
    loops = data.draw(st.booleans())
    order: Order[Any] = PAIRS if data.draw(st.booleans()) else INT
    times = st.tuples(st.integers(0, 3), st.integers(0, 3)) if order is PAIRS else st.integers(0, 5)
    topology = Topology(order)
    size = data.draw(st.integers(2, 5))
    later = (0, 1) if order is PAIRS else 1
    nodes = []
    for number in range(size):
        least = (order.normal(later if loops and number == 0 else None),)  # type: ignore[attr-defined]
        reached = [data.draw(st.sampled_from([(0,), (1,), (0, 1)])) for _ in range(3)]
        nodes.append(topology.add(Shape(3, 2, tuple(tuple((port, least) for port in ports) for ports in reached))))
    for number, node in enumerate(nodes):
        for port in range(3):
            below = nodes[:number] if number else (nodes if loops else [])
            if below:
                output = (data.draw(st.sampled_from(below)), data.draw(st.integers(0, 1)))
                topology.connect(output, (node, port))
    graph = topology.compile()
    assert not graph.idle_cycle
    tracker = Tracker(graph)
    counts: dict[tuple[int, Any], int] = {}
    for _ in range(data.draw(st.integers(1, 4))):
        for _ in range(data.draw(st.integers(1, 4))):
            at, time = data.draw(st.integers(0, len(graph) - 1)), data.draw(times)
            delta = data.draw(st.sampled_from([1, 1, -1]))
            counts[at, time] = counts.get((at, time), 0) + delta
            tracker.update([(at, time, delta)])
        before = [set(seen.elements()) for seen in tracker.implications]
        moved, _ = tracker.propagate()
        expected = implied(graph, counts, limit=30)
        assert [set(seen.elements()) for seen in tracker.implications] == expected
        for at, (was, now) in enumerate(zip(before, expected, strict=True)):
            assert set(moved.get(at, ())) == {(time, 1) for time in now - was} | {(time, -1) for time in was - now}
        assert (tracker.total == 0) == (not any(count > 0 for count in counts.values()))
