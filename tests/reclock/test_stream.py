"""The streaming reclock operator: the named cases, with the values that the reference gives."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.reclock.streams import Rig

from tidegauge.dataflow import INT, PARTITIONED, EventQueue, Messages, Order, Progress, Worker
from tidegauge.errors.dataflow import InvalidGraph, OperatorFailed
from tidegauge.errors.reclock import BoundTooLate, RecordBehindFrontier
from tidegauge.errors.store import EpochBelowSince, EpochNotMinted, FrontierRegressed
from tidegauge.reclock.bindings import Binding, bindings_of
from tidegauge.reclock.places import ArrowRows, Pairs
from tidegauge.reclock.pushed import PartitionedRecords
from tidegauge.reclock.room import Room
from tidegauge.reclock.stream import reclock_stream
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import GAUGE, Frontier
from tidegauge.remap.operator import Span
from tidegauge.remap.table import RemapTable
from tidegauge.remap.timeline import Timeline

either = pytest.mark.parametrize("order", [GAUGE, PARTITIONED], ids=["readings", "intervals"])


def test_t01_at_a_sealed_beginning_everything_is_in_epoch_0() -> None:
    rig = Rig().give(("a", 0)).bind(0, {}, sealed=True)
    assert rig.out() == [(0, ("a", 0))]
    assert rig.frontier() == 0
    assert rig.end().frontier() == 1


@either
def test_t02_what_is_before_the_frontier_leaves_and_what_is_at_it_waits(order: Order[object]) -> None:
    rig = Rig(order).give(("p0", 1), ("p0", 1), ("p0", 3), ("p0", 4)).bind(1000, {"p0": 4})
    assert rig.out() == [(1000, ("p0", 1)), (1000, ("p0", 1)), (1000, ("p0", 3))]
    assert rig.frontier() == 1000
    assert rig.give(("p0", 3), ("p0", 3)).out() == [(1000, ("p0", 3))] * 2
    assert rig.records.waiting == 1
    assert rig.end().frontier() == 1001
    assert rig.bind(2000, {"p0": 5}).out() == [(2000, ("p0", 4))]


@either
def test_t03_a_partition_does_not_carry_another_one_in(order: Order[object]) -> None:
    rig = Rig(order).give(("p0", 50), ("p0", 49), ("p1", 0), ("p1", 50))
    rig.bind(1000, {"p0": 50}).bind(2000, {"p0": 50, "p1": 50}).bind(3000, {"p0": 100, "p1": 50})
    assert rig.frontier() == 1000
    assert rig.out() == [(1000, ("p0", 49)), (2000, ("p1", 0)), (3000, ("p0", 50))]
    assert rig.reach({"p0": 50, "p1": 50}).frontier() == 3000
    assert rig.reach({"p0": 100, "p1": 50}).frontier() == 3001


@either
def test_t04_t10_the_walk_of_the_frontier(order: Order[object]) -> None:
    rig = Rig(order).bind(0, {})
    walk = [rig.frontier()]
    rig.bind(1000, {"1": 10}).bind(2000, {"1": 10, "2": 10})
    walk.append(rig.frontier())
    walk += [rig.reach(at).frontier() for at in ({"1": 9}, {"1": 10}, {"1": 10, "2": 10})]
    walk.append(rig.advance(3001).frontier())
    assert walk == [1, 1000, 1000, 2000, 2001, 3001]


def test_t05_what_was_bound_before_as_of_belongs_to_as_of() -> None:
    rig = Rig(as_of=1500).bind(1000, {"p0": 3}).give(*(("p0", n) for n in (1, 2, 3, 4)))
    assert (rig.out(), rig.frontier()) == ([], 1500)
    rig.bind(2000, {"p0": 5})
    assert rig.out() == [(1500, ("p0", 1)), (1500, ("p0", 2)), (2000, ("p0", 3)), (2000, ("p0", 4))]


def test_t07_epochs_that_do_not_all_compare_are_refused() -> None:
    with Worker().dataflow("flow", order=PARTITIONED) as scope:
        _, bound = scope.input("remap")
        with pytest.raises(InvalidGraph, match="are no epochs"):
            reclock_stream(bound, EventQueue(GAUGE), PartitionedRecords("s", Pairs()), Room(1))


def test_t08_records_that_cancel_each_other_both_come_out_and_what_follows_too() -> None:
    rig = Rig().bind(0, {})
    for changes in ([(("a", 0), +1)], [(("a", 0), -1), (("a", 1), +1)]):
        rig.reader.session(rig.held).give([(change, place) for place, change in changes])
        rig.worker.settle()
    assert rig.records.waiting == 3
    rig.bind(1, {"a": 1}).bind(2, {"a": 2}).worker.settle()
    sums = {1: 0, 2: 0}
    for event in rig.heard.drain():
        if isinstance(event, Messages):
            sums[event.stamp[0]] += sum(change for change, _ in event.batch)
    assert sums == {1: 0, 2: 1}


@pytest.mark.parametrize("at_once", [True, False])
def test_t09_a_thousand_bindings_before_as_of_are_kept_as_one(at_once: bool) -> None:
    rig = Rig(as_of=1000)
    bindings = [Binding(epoch, Frontier({"p0": epoch})) for epoch in range(1, 1001)]
    for batch in [bindings] if at_once else [[binding] for binding in bindings]:
        rig.remap.send(batch)
        rig.worker.settle()
        assert rig.records.open == 1
    assert rig.advance(1001).frontier() == 1000
    assert rig.give(("p0", 17), ("p0", 999)).out() == [(1000, ("p0", 17)), (1000, ("p0", 999))]


@either
def test_bindings_that_the_source_has_passed_are_forgotten(order: Order[object]) -> None:
    rig = Rig(order)
    for epoch in range(1000):
        rig.bind(epoch, {"p0": epoch + 1, "p1": 1})
    rig.worker.settle()
    assert rig.records.open == 1001
    assert rig.reach({"p0": 900, "p1": 0}).frontier() == 0
    assert rig.records.open == 101
    assert rig.reach({"p0": 900, "p1": 1}).frontier() == 900
    assert rig.records.open == 100
    assert rig.end().frontier() == 1000
    assert rig.records.open == 0


def test_t12_nothing_is_in_before_the_first_binding() -> None:
    rig = Rig().give(("p0", 6), ("p0", 8)).advance(5000)
    assert (rig.out(), rig.frontier()) == ([], 5000)
    rig = Rig().give(("p0", 6), ("p0", 8)).bind(0, {"p0": 7}).advance(5001)
    assert (rig.out(), rig.records.waiting) == ([(0, ("p0", 6))], 1)


def test_t13_a_binding_that_goes_back_stops_the_operator_where_it_is() -> None:
    rig = Rig().bind(0, {"p0": 5})
    assert rig.frontier() == 0
    with pytest.raises(OperatorFailed) as caught:
        rig.bind(1, {"p0": 4}).out()
    assert isinstance(caught.value.__cause__, FrontierRegressed)
    assert rig.end().frontier() == 0


def test_t15_idle_epochs_advance_the_frontier_without_a_binding() -> None:
    rig = Rig().bind(0, {"p0": 5}).reach({"p0": 5})
    assert [rig.advance(upper).frontier() for upper in (1, 2, 7)] == [1, 2, 7]


def test_t16_a_seal_takes_in_what_waits_and_what_comes_and_ends_with_its_source() -> None:
    rig = Rig().give(("p0", 7), ("new", 3)).bind(0, {"p0": 5}).bind(3, {"p0": 9}, sealed=True)
    assert rig.out() == [(3, ("new", 3)), (3, ("p0", 7))]
    assert rig.reach({"p0": 5}).frontier() == 3
    assert rig.give(("p0", 100), ("p0", 8)).out() == [(3, ("p0", 8)), (3, ("p0", 100))]
    assert rig.end().frontier() == 4
    rig.remap.close()
    assert rig.frontier() is None


def test_t16_a_binding_behind_the_seal_is_refused() -> None:
    with pytest.raises(OperatorFailed) as caught:
        Rig().bind(0, {"p0": 5}, sealed=True).bind(1, {"p0": 6}).out()
    assert isinstance(caught.value.__cause__, FrontierRegressed)


@pytest.mark.parametrize("bound_first", [True, False])
def test_t17_a_snapshot_rewound_to_its_slot_is_right_at_every_epoch(*, bound_first: bool) -> None:
    snapshot = [("b", 0, +1), ("c", 0, +1)]  # taken at 120, of a slot at 100
    stream = [("a", 110, -1), ("c", 115, +1), ("d", 130, +1)]
    rewound = [(row, 0, -change) for row, lsn, change in stream if lsn <= 120]
    rig = Rig()
    changes = [((row, change), ("wal", lsn)) for row, lsn, change in [*stream, *snapshot, *rewound]]
    if not bound_first:
        rig.reader.session(rig.held).give(changes)
        rig.worker.settle()
    for epoch, lsn in enumerate([1, 111, 116, 131]):
        rig.bind(epoch, {"wal": lsn})
    if bound_first:
        rig.worker.settle()
        rig.reader.session(rig.held).give(changes)
    rig.worker.settle()
    sent = [(event.stamp[0], event.batch) for event in rig.heard.drain() if isinstance(event, Messages)]
    found = [(epoch, row, change) for epoch, batch in sent for (row, change), _ in batch]
    views = [
        {row for row in "abcd" if sum(change for e, r, change in found if r == row and e <= epoch)}
        for epoch in range(4)
    ]
    assert views == [{"a", "b"}, {"b"}, {"b", "c"}, {"b", "c", "d"}]


@pytest.mark.parametrize("as_of", [0, 999, 1000])
def test_t20_a_binding_is_not_seen_before_its_epoch_is_final(as_of: int) -> None:
    rig = Rig(as_of=as_of).give(("p0", 1), ("p1", 1)).bind(0, {})
    rig.remap.advance_to(1000)
    rig.remap.send([Binding(1000, Frontier({"p0": 5}))])
    assert (rig.out(), rig.frontier()) == ([], 1000)
    rig.remap.send([Binding(1000, Frontier({"p0": 5, "p1": 5}))])
    assert rig.out() == []
    assert rig.advance(1001).out() == [(1000, ("p0", 1)), (1000, ("p1", 1))]


def test_what_becomes_final_at_once_leaves_in_the_order_of_its_epochs() -> None:
    rig = Rig().give(("p0", 8), ("p1", 2), ("p0", 1), ("p1", 9))
    for epoch, positions in ((2, {"p1": 5}), (1, {"p0": 5}), (7, {"p0": 9})):
        rig.remap.send([Binding(epoch, Frontier(positions))])
    rig.worker.settle()
    rig.advance(8).give(("p1", 3), ("p0", 4)).worker.settle()
    sent = [event.stamp[0] for event in rig.heard.drain() if isinstance(event, Messages)]
    assert sent == sorted(sent)
    assert len(sent) == 5


def test_bindings_may_come_in_any_sequence_before_they_are_final() -> None:
    rig = Rig().give(("p0", 1), ("p0", 6))
    rig.remap.send([Binding(3, Frontier({"p0": 9})), Binding(1, Frontier({"p0": 5}))])
    assert rig.advance(2).out() == [(1, ("p0", 1))]
    assert rig.advance(4).out() == [(3, ("p0", 6))]


def test_t40_bound_before_it_comes_a_snapshot_of_a_million_rows_goes_straight_through() -> None:
    rig = Rig(limit=1, layout=ArrowRows()).bind(0, {"p0": 1_000_000})
    assert rig.frontier() == 0
    rows = 0
    for start in range(0, 1_000_000, 50_000):
        positions = pa.array(range(start, start + 50_000), pa.int64())
        names = pa.DictionaryArray.from_arrays(pa.array([0] * 50_000, pa.int8()), pa.array(["p0"]))
        rig.reader.session(rig.held).give(pa.record_batch({"_partition": names, "_offset": positions}))
        rig.worker.settle()
        assert rig.records.waiting == 0
        rows += sum(len(event.batch) for event in rig.heard.drain() if isinstance(event, Messages))
    assert rows == 1_000_000


def test_t41_a_new_partition_is_in_one_epoch_from_its_first_record_on() -> None:
    rig = Rig().bind(0, {"p0": 3}).give(("p1", 0), ("p0", 2), ("p1", 4))
    assert rig.out() == [(0, ("p0", 2))]
    assert rig.bind(2000, {"p0": 3, "p1": 5}).give(("p1", 3)).out() == [(2000, ("p1", n)) for n in (0, 3, 4)]


@either
def test_a_partition_that_lags_holds_the_frontier_until_it_has_passed_its_binding(order: Order[object]) -> None:
    rig = Rig(order).bind(0, {"p0": 2}).bind(1, {"p0": 2, "p1": 2}).bind(2, {"p0": 9, "p1": 4})
    assert rig.reach({"p0": 9}).frontier() == 1
    assert rig.reach({"p0": 9, "p1": 2}).frontier() == 2
    assert rig.reach({"p0": 9, "p1": 4}).frontier() == 3


def test_when_the_bindings_end_what_is_not_bound_is_forgotten_and_makes_room() -> None:
    rig = Rig(limit=3).bind(0, {"p0": 5})
    assert rig.room.reserve(3) == 3
    rig.give(("p0", 1), ("p0", 7), ("p0", 8))
    assert (rig.out(), rig.records.waiting, rig.room.held) == ([(0, ("p0", 1))], 2, 2)
    rig.remap.close()
    assert (rig.frontier(), rig.records.waiting, rig.room.held) == (0, 0, 0)
    for n in range(10):  # were there no room for these, the reader would never get to p0@4
        assert rig.room.reserve(1) == 1
        assert (rig.give(("p1", n)).out(), rig.room.held) == ([], 0)
    assert rig.give(("p0", 4)).out() == [(0, ("p0", 4))]
    assert rig.reach({"p0": 5}).frontier() is None
    assert rig.room.reserve(2) == 2
    assert (rig.give(("p0", 5), ("p1", 11)).out(), rig.room.held) == ([], 0)


def test_t14_a_binding_of_an_epoch_that_is_final_is_refused() -> None:
    rig = Rig().bind(3, {"p0": 5})
    assert rig.frontier() == 3
    rig.remap.send([Binding(2, Frontier({"p0": 6}))])
    with pytest.raises(OperatorFailed) as caught:
        rig.out()
    assert isinstance(caught.value.__cause__, BoundTooLate)
    assert rig.end().frontier() == 3


@either
def test_a_record_behind_the_frontier_of_its_source_is_refused_not_misplaced(order: Order[object]) -> None:
    rig = Rig(order).bind(0, {"p0": 5}).bind(1, {"p0": 9}).reach({"p0": 6})
    assert rig.frontier() == 1
    assert rig.give(("p0", 6), ("p0", 5)).out() == [(1, ("p0", 5)), (1, ("p0", 6))]  # behind, but not misplaced
    with pytest.raises(OperatorFailed) as caught:
        rig.give(("p0", 4)).out()
    error = caught.value.__cause__
    assert isinstance(error, RecordBehindFrontier)
    assert (error.evidence["position"], error.evidence["passed"]) == (4, 5)
    assert rig.end().frontier() == 1


def test_progress_and_the_batches_before_it_may_come_at_once() -> None:
    queue = EventQueue(GAUGE)
    queue.append(Messages((Frontier(),), [("tea", ("p0", 4))]))
    queue.append(Progress(((Frontier(), -1), (Frontier({"p0": 5}), 1))))
    worker = Worker(lambda: 0.0, validate=True)
    with worker.dataflow("flow", order=INT) as scope:
        remap, bound = scope.input("remap")
        heard = reclock_stream(bound, queue, PartitionedRecords("s", Pairs()), Room(1)).capture()
    remap.send([Binding(0, Frontier({"p0": 5}))])
    remap.advance_to(1)
    worker.settle()
    assert [event.stamp for event in heard.drain() if isinstance(event, Messages)] == [(0,)]


def test_arrivals_of_another_order_are_refused() -> None:
    with Worker().dataflow("flow", order=INT) as scope:
        _, bound = scope.input("remap")
        with pytest.raises(InvalidGraph):
            reclock_stream(bound, EventQueue(PARTITIONED), PartitionedRecords("s", Pairs()), Room(1))


def test_who_holds_the_frontier_says_what_it_waits_for() -> None:
    rig = Rig().give(("p0", 4), ("p0", 5)).bind(0, {"p0": 4})
    assert rig.frontier() == 0
    said = [str(holder) for holder in rig.worker.explain_stuck() if "reclock s" in str(holder)]
    assert len(said) == 1
    assert "2 records of 's' wait for a binding" in said[0]
    assert "has not come further" in said[0]


def timeline_of(*positions: dict[str, int], since: int = 0) -> Timeline:
    table = RemapTable("s")
    for epoch, frontier in enumerate(positions):
        table.append(epoch, Frontier(frontier))
    table = table.compacted(since) if since else table
    return Timeline({"s": table, "other": RemapTable("other", upper=table.upper)}, upper=table.upper)


def told(timeline: Timeline, as_of: int, *spans: Span) -> list[tuple[int, Binding]]:
    """What `bindings_of` tells, with the frontier's lower bound on each message, when it hears of these spans."""
    worker = Worker(lambda: 0.0, validate=True)
    with worker.dataflow("flow", order=INT) as scope:
        remap, stream = scope.input("remap")
        heard = bindings_of(stream, timeline, "s", as_of=as_of).capture()
    for span in spans:
        remap.advance_to(span.lower)
        worker.settle()
        remap.send([span])
        remap.advance_to(span.upper)
    remap.close()
    worker.settle()
    events = [event for event in heard.drain() if isinstance(event, Messages)]
    return [(event.stamp[0], binding) for event in events for binding in event.batch]


def test_the_remap_operators_spans_become_the_bindings_of_one_source() -> None:
    timeline = timeline_of({"p0": 5}, {"p0": 5, "p1": 2}, {"p0": 9, "p1": 2})
    everything = [Binding(0, Frontier({"p0": 5})), Binding(1, Frontier({"p1": 2})), Binding(2, Frontier({"p0": 9}))]
    assert told(timeline, 0, Span(0, 3)) == [(0, binding) for binding in everything]
    assert told(timeline, 1, Span(2, 3)) == [(0, Binding(1, Frontier({"p0": 5, "p1": 2}))), (0, everything[2])]


def test_spans_that_are_bound_later_are_told_with_the_span() -> None:
    timeline = timeline_of()
    worker = Worker(lambda: 0.0, validate=True)
    with worker.dataflow("flow", order=INT) as scope:
        remap, stream = scope.input("remap")
        heard = bindings_of(stream, timeline, "s").capture()
    worker.settle()
    for epoch, frontier in enumerate([Frontier({"p0": 5}), Frontier({"p0": 7}), Frontier({"p0": 7}, sealed=True)]):
        timeline.append(epoch, {"s": Proposal(frontier=frontier)})
        remap.send([Span(epoch, epoch + 1)])
        remap.advance_to(epoch + 1)
        worker.settle()
    events = [(e.stamp[0], e.batch) for e in heard.drain() if isinstance(e, Messages) and e.batch]
    assert events == [
        (0, [Binding(0, Frontier({"p0": 5}))]),
        (1, [Binding(1, Frontier({"p0": 7}))]),
        (2, [Binding(2, Frontier(sealed=True))]),
    ]


def test_t24_an_as_of_that_the_timeline_cannot_answer_is_refused() -> None:
    timeline = timeline_of({"p0": 5}, {"p0": 7}, {"p0": 9}, since=1)
    with pytest.raises(EpochBelowSince):
        told(timeline, 0)
    assert told(timeline, 1) == [(0, Binding(1, Frontier({"p0": 7}))), (0, Binding(2, Frontier({"p0": 9})))]
    with pytest.raises(EpochNotMinted):
        told(timeline, 3)
    assert told(timeline_of(), 0) == []
