"""What waits is bounded, the reader stops when there is no room, and what waits keeps little else in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.reclock.streams import Place, Rig, arrow, pairs, places_of

from tidegauge.dataflow import INT, Messages, OperatorContext, OperatorOutput, Worker
from tidegauge.errors.dataflow import OperatorFailed
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.reclock import RecordBehindFrontier, RoomClosed, TooMuchUnbound, UnplacedRecords
from tidegauge.reclock.bindings import Binding
from tidegauge.reclock.places import ArrowRows, Ints, Layout, Pairs
from tidegauge.reclock.pushed import PartitionedRecords
from tidegauge.reclock.room import Room
from tidegauge.reclock.stream import reclock_stream
from tidegauge.remap.frontier import GAUGE, Frontier
from tidegauge.remap.table import LARGEST

Reader = Callable[[OperatorContext], Callable[[OperatorOutput], None]]


def polite(upstream: list[Place], room: Room, most: int) -> Reader:
    """A reader that reads what it was granted, at most `most` records at once, and waits when that is less."""

    def build(context: OperatorContext) -> Callable[[OperatorOutput], None]:
        held, read = context.capabilities[0], 0
        room.attach(context.sync_activator())

        def step(output: OperatorOutput) -> None:
            nonlocal read
            if not held.held:
                return
            granted = room.reserve(most)
            batch = upstream[read : read + granted]
            room.release(granted - len(batch))
            read += len(batch)
            if batch:
                output.give(held, pairs(batch))
                held.downgrade(Frontier({"p0": read}))
            if read == len(upstream):
                held.drop()
            elif granted == most:
                context.activator.activate()

        return step

    return build


@pytest.mark.parametrize(("limit", "most"), [(1, 1), (1, 7), (10, 3), (10, 10), (64, 7)])
def test_a_reader_stops_at_the_limit_and_goes_on_as_records_get_their_epochs(limit: int, most: int) -> None:
    upstream = [("p0", n) for n in range(100)]
    room, worker = Room(limit), Worker(lambda: 0.0, validate=True)
    pushed = PartitionedRecords("s", Pairs())
    with worker.dataflow("source", order=GAUGE) as scope:
        arrivals = scope.source("reader", polite(upstream, room, most)).capture()
    with worker.dataflow("flow", order=INT) as scope:
        remap, bound = scope.input("remap")
        heard = reclock_stream(bound, arrivals, pushed, room).capture()

    def settle() -> None:
        while not worker.idle:
            worker.step()
            assert pushed.waiting <= room.held <= limit

    settle()
    assert room.held == limit
    for epoch, position in enumerate(range(0, 101, 5)):
        remap.send([Binding(epoch, Frontier({"p0": position}))])
        remap.advance_to(epoch + 1)
        settle()
        assert room.held == min(limit, 100 - position)
    events = [event for event in heard.drain() if isinstance(event, Messages)]
    assert [place for event in events for place in places_of(event.batch)] == upstream
    assert all(place[1] // 5 + 1 == event.stamp[0] for event in events for place in places_of(event.batch))


def test_t40_a_reader_that_asks_for_no_room_is_stopped_at_the_limit() -> None:
    rig = Rig(limit=10).bind(0, {}).give(*(("p0", n) for n in range(10)))
    assert rig.frontier() == 1
    with pytest.raises(OperatorFailed) as caught:
        rig.give(("p0", 10)).out()
    error = caught.value.__cause__
    assert isinstance(error, TooMuchUnbound)
    assert (error.evidence["waiting"], error.evidence["limit"]) == (11, 10)
    assert rig.bind(1, {"p0": 20}).frontier() == 1


def test_what_waits_for_as_of_counts_too() -> None:
    rig = Rig(as_of=5, limit=10)
    with pytest.raises(OperatorFailed):
        rig.give(*(("p0", n) for n in range(11))).out()


def test_every_reader_that_shares_the_room_is_woken_when_there_is_some() -> None:
    room, worker = Room(4), Worker(lambda: 0.0, validate=True)
    heard, remaps = [], []
    for name in ("tea", "salt"):
        with worker.dataflow(f"source {name}", order=GAUGE) as scope:
            arrivals = scope.source("reader", polite([("p0", n) for n in range(20)], room, 3)).capture()
        with worker.dataflow(f"flow {name}", order=INT) as scope:
            remap, bound = scope.input("remap")
            heard.append(reclock_stream(bound, arrivals, PartitionedRecords(name, Pairs()), room).capture())
            remaps.append(remap)
    worker.settle()
    for remap in remaps:
        remap.send([Binding(0, Frontier({"p0": 20}))])
        remap.advance_to(1)
        worker.settle()
    sent = [sum(len(event.batch) for event in queue.drain() if isinstance(event, Messages)) for queue in heard]
    assert (sent, room.held) == ([20, 20], 0)


def waiting_for_room(room: Room) -> tuple[Worker, list[BaseException], threading.Thread]:
    """A reader of a worker of its own, asleep in a thread of its own, because there is no room."""
    worker, heard = Worker(lambda: 0.0), list[BaseException]()
    with worker.dataflow("source", order=GAUGE) as scope:
        scope.source("reader", polite([("p0", n) for n in range(20)], room, 3)).capture()
    worker.settle()

    def sleep() -> None:
        try:
            while worker.step_or_park(60):
                pass
        except OperatorFailed as failed:
            heard.append(failed.__cause__ or failed)

    thread = threading.Thread(target=sleep)
    thread.start()
    return worker, heard, thread


def test_a_reader_that_waits_for_room_is_woken_and_told_when_the_flow_ends() -> None:
    room = Room(1)
    _, heard, thread = waiting_for_room(room)
    room.close("the flow has ended")
    thread.join(30)
    assert not thread.is_alive()
    assert [(type(error), error.evidence) for error in heard if isinstance(error, RoomClosed)] == [
        (RoomClosed, {"wanted": 3, "why": "the flow has ended"})
    ]
    room.release(1)
    with pytest.raises(RoomClosed, match=r"TG-0564.*the flow has ended"):
        room.reserve(1)


def test_a_reader_that_waits_for_room_is_told_when_the_operator_that_would_make_some_fails() -> None:
    rig = Rig(limit=2)
    _, heard, thread = waiting_for_room(rig.room)
    with pytest.raises(OperatorFailed, match="TG-0562"):
        rig.bind(0, {}).give(("p1", 0), ("p1", 1), ("p1", 2)).out()
    thread.join(30)
    assert not thread.is_alive()
    assert [str(error.evidence["why"])[:8] for error in heard if isinstance(error, RoomClosed)] == ["TG-0562,"]


@pytest.mark.parametrize("records", [-1, -(10**6)])
def test_less_than_no_room_is_neither_reserved_nor_released(records: int) -> None:
    room = Room(10)
    assert room.reserve(4) == 4
    with pytest.raises(InvalidArgument):
        room.reserve(records)
    with pytest.raises(InvalidArgument):
        room.release(records)
    assert room.held == 4


def test_a_limit_that_lets_nothing_through_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        Room(0)


def test_many_readers_share_the_room_and_never_have_more_of_it_than_there_is() -> None:
    room, seen = Room(50), []

    def read() -> None:
        for wanted in range(1, 400):
            granted = room.reserve(wanted % 20 + 1)
            seen.append(room.held)
            room.release(granted)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(seen) <= 50
    assert (room.held, room.reserve(1000)) == (0, 50)


def address(batch: pa.RecordBatch) -> int:
    """Where the rows of a batch begin in memory."""
    return int(batch["row"].buffers()[1].address + 8 * batch["row"].offset)


def test_a_sorted_batch_is_sliced_without_a_copy() -> None:
    pushed = PartitionedRecords("s", ArrowRows())
    pushed.bind(0, Frontier({"p0": 400}))
    pushed.bind(1, Frontier({"p0": 700}))
    batch = arrow([("p0", n) for n in range(1000)])
    pieces = pushed.take(batch)
    pushed.bind(2, Frontier({"p0": 1000}))
    pieces += pushed.release()
    assert [epoch for epoch, _ in pieces] == [0, 1, 2]
    assert [address(piece) - address(batch) for _, piece in pieces] == [0, 8 * 400, 8 * 700]


def test_a_batch_of_one_epoch_leaves_as_it_is_in_whatever_order() -> None:
    pushed = PartitionedRecords("s", ArrowRows())
    pushed.bind(0, Frontier({"p0": 9, "p1": 9}))
    batch = arrow([("p1", 3), ("p0", 7), ("p1", 1)])
    assert pushed.take(batch)[0][1] is batch


@pytest.mark.parametrize("lagging", ["the tail", "another partition", "what is left of a run"])
def test_a_small_rest_does_not_keep_its_batch_in_memory(lagging: str) -> None:
    pushed = PartitionedRecords("s", ArrowRows())
    size = 100_000
    before = pa.total_allocated_bytes()
    match lagging:
        case "the tail":
            pushed.bind(0, Frontier({"p0": size - 10}))
            pushed.take(arrow([("p0", n) for n in range(size)]))
        case "another partition":
            pushed.bind(0, Frontier({"p0": size}))
            pushed.take(arrow([("p1" if n % 10_000 == 0 else "p0", n) for n in range(size)]))
        case _:
            pushed.take(arrow([("p0", n) for n in range(size)]))
            pushed.bind(0, Frontier({"p0": size - 10}))
            pushed.release()
    assert pushed.waiting == 10
    assert pa.total_allocated_bytes() - before < 4 * 8 * size / 10


def test_a_piece_that_has_waited_is_sorted_by_position_and_at_one_position_in_the_sequence_that_it_came_in() -> None:
    pushed = PartitionedRecords("s", Pairs())
    assert pushed.take([("tea", ("p0", 7)), ("salt", ("p0", 3)), ("oil", ("p0", 7))]) == []
    assert pushed.take([("rice", ("p0", 3))]) == []
    pushed.bind(0, Frontier({"p0": 9}))
    names = [[name for name, _ in piece] for _, piece in pushed.release()]
    assert names == [["salt", "tea", "oil"], ["rice"]]


class Counting(Pairs):
    """Counts how often a batch is cut."""

    cuts = 0

    def slice(self, batch: Any, start: int, stop: int, /) -> Any:
        type(self).cuts += 1
        return super().slice(batch, start, stop)

    def take(self, batch: Any, rows: Ints, /) -> Any:
        type(self).cuts += 1
        return super().take(batch, rows)


def test_a_thousand_bindings_do_not_cut_again_what_they_do_not_bind() -> None:
    pushed = PartitionedRecords("s", Counting())
    for start in range(0, 1000, 10):
        pushed.take(pairs([("p0", n) for n in range(start, start + 10)]))
    Counting.cuts = 0
    for epoch in range(1000):
        pushed.bind(epoch, Frontier({"p0": epoch + 1}))
        assert [(e, places_of(batch)) for e, batch in pushed.release()] == [(epoch, [("p0", epoch)])]
    assert Counting.cuts <= 3 * 1000


def test_positions_beyond_what_a_float_can_tell_apart_are_told_apart() -> None:
    pushed = PartitionedRecords("s", ArrowRows())
    pushed.bind(0, Frontier({"p0": 2**53 + 1}))
    pushed.bind(1, Frontier({"p0": LARGEST}))
    pieces = pushed.take(arrow([("p0", 2**53), ("p0", 2**53 + 1), ("p0", LARGEST - 1), ("p0", LARGEST)]))
    assert [(epoch, places_of(piece)) for epoch, piece in pieces] == [
        (0, [("p0", 2**53)]),
        (1, [("p0", 2**53 + 1), ("p0", LARGEST - 1)]),
    ]
    assert pushed.waiting == 1


def batch(partitions: Any, positions: Any, names: tuple[str, str] = ("_partition", "_offset")) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([partitions, positions], names=list(names))


TEXTS, NUMBERS = pa.array(["p0", "p1"]), pa.array([1, 2])
BAD: list[tuple[Layout[Any], Any]] = [
    (ArrowRows(), batch(TEXTS, NUMBERS, ("_partition", "position"))),
    (ArrowRows(), batch(TEXTS, NUMBERS, ("_offset", "_offset"))),
    (ArrowRows(), batch(TEXTS, pa.array([1.0, 2.0]))),
    (ArrowRows(), batch(TEXTS, pa.array([True, False]))),
    (ArrowRows(), batch(TEXTS, pa.array([1, None]))),
    (ArrowRows(), batch(TEXTS, pa.array([1, -1]))),
    (ArrowRows(), batch(TEXTS, pa.array([1, 2**63], pa.uint64()))),
    (ArrowRows(), batch(pa.array(["p0", None]), NUMBERS)),
    (ArrowRows(), batch(pa.array([0.5, 1.5]), NUMBERS)),
    (ArrowRows(), batch(pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["p0", None])), NUMBERS)),
    (Pairs(), [("tea", ("p0", -1))]),
    (Pairs(), [("tea", ("p0", 1.0))]),
    (Pairs(), [("tea", ("p0", True))]),
    (Pairs(), [("tea", ("p0", 2**63))]),
    (Pairs(), [("tea", (None, 1))]),
    (Pairs(), [("tea", (True, 1))]),
]


@pytest.mark.parametrize(("layout", "bad"), BAD)
def test_a_batch_without_places_is_refused_and_nothing_of_it_is_kept(layout: Layout[Any], bad: Any) -> None:
    pushed = PartitionedRecords("s", layout)
    pushed.bind(0, Frontier({"p0": 5}))
    with pytest.raises(UnplacedRecords):
        pushed.take(bad)
    assert pushed.waiting == 0


def test_of_a_batch_with_a_record_behind_the_frontier_nothing_is_kept() -> None:
    pushed = PartitionedRecords("s", Pairs())
    pushed.bind(0, Frontier({"p0": 5}))
    pushed.advance([Frontier({"p0": 5})])
    with pytest.raises(RecordBehindFrontier):
        pushed.take(pairs([("p1", 0), ("p0", 9), ("p0", 4)]))
    assert pushed.waiting == 0


def test_small_integers_and_dictionaries_with_unused_and_repeated_entries_are_places_too() -> None:
    pushed = PartitionedRecords("s", ArrowRows())
    pushed.bind(0, Frontier({"p0": 2}))
    names = pa.DictionaryArray.from_arrays(pa.array([1, 2, 1, 3], pa.int8()), pa.array(["unused", "p0", "p0", "p1"]))
    pieces = pushed.take(batch(names, pa.array([0, 1, 2, 0], pa.uint8())))
    assert [(epoch, places_of(piece)) for epoch, piece in pieces] == [(0, [("p0", 0), ("p0", 1)])]
    pushed.bind(1, Frontier({"p0": 3, "p1": 1, "7": 1}))
    assert len(pushed.take(batch(pa.array([7, 8]), pa.array([0, 0])))) == 1
    assert sorted((epoch, places_of(piece)) for epoch, piece in pushed.release()) == [
        (1, [("p0", 2)]),
        (1, [("p1", 0)]),
    ]
