"""The laws of the streaming operator, against the definition: a record is in the first epoch whose R is beyond it."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep
from tests.reclock.streams import (
    PARTITIONS,
    Place,
    Rig,
    arrow,
    entered,
    lows_of,
    pairs,
    places_of,
    reached,
    records,
)

from tidegauge.dataflow import (
    INT,
    PARTITIONED,
    CapabilitySet,
    DeterministicCluster,
    EventQueue,
    Messages,
    MutableAntichain,
    Order,
    Worker,
)
from tidegauge.dataflow.frontier.view import Probe
from tidegauge.dataflow.operators.input import InputHandle, UnorderedHandle
from tidegauge.reclock.bindings import Binding
from tidegauge.reclock.places import ArrowRows, Pairs
from tidegauge.reclock.pushed import PartitionedRecords
from tidegauge.reclock.room import Room
from tidegauge.reclock.stream import reclock_stream
from tidegauge.remap.frontier import GAUGE, Frontier
from tidegauge.testing.strategies import (
    RemapHistory,
    StreamRecord,
    arrivals,
    cut_twice,
    record_streams,
    remap_histories,
)

ORDERS: list[Order[Any]] = [GAUGE, PARTITIONED]
SIZES = (0, 1, 2, 3, 6, 15)
"""How many records come at once."""


def readings(order: Order[Any], lows: dict[str, int]) -> list[Any]:
    """The frontier of a source that will bring nothing before `lows`."""
    return [Frontier(lows)] if order == GAUGE else list(PARTITIONED.frontier(lows))


@deep(200)
@given(remap_histories(), records(), st.sampled_from(ORDERS), st.booleans(), st.integers(0, 2**32))
def test_pb_whatever_comes_between_bindings_each_record_leaves_once_at_its_epoch(
    history: RemapHistory, places: list[Place], order: Order[Any], in_columns: bool, seed: int
) -> None:
    random = Random(seed)
    pushed: PartitionedRecords[Any] = PartitionedRecords("s", ArrowRows() if in_columns else Pairs(), order=order)
    coming, bindings, upper, placed = list(places), list(history.bindings), 0, []
    while coming or bindings:
        match random.choice(["take", "bind", "advance"]):
            case "bind" if bindings:
                epoch, frontier = bindings.pop(0)
                pushed.bind(epoch, frontier)
                placed += (released := pushed.release())
                assert all(at_epoch >= upper for at_epoch, _ in released)
                upper = epoch + 1
            case "take":
                batch, coming = coming[: (size := random.choice(SIZES))], coming[size:]
                placed += pushed.take(arrow(batch, dictionary=random.random() < 0.5) if in_columns else pairs(batch))
            case "advance":
                pushed.advance(readings(order, lows_of(coming)))
                first = pushed.first()
                assert reached(history, upper, lows_of(coming)) == (upper if first is None else first)
    expected = [(at, place) for place in places if (at := entered(history, upper, place)) is not None]
    assert Counter((epoch, place) for epoch, batch in placed for place in places_of(batch)) == Counter(expected)
    assert pushed.waiting == len(places) - len(expected)
    pushed.advance([])
    assert (pushed.first(), pushed.open) == (None, 0)


@given(remap_histories(), cut_twice(record_streams(), arrivals))
def test_pa_however_a_stream_is_cut_and_its_partitions_alternate_each_record_has_its_one_epoch(
    history: RemapHistory, ways: tuple[list[list[StreamRecord]], list[list[StreamRecord]]]
) -> None:
    for batches in ways:
        pushed: PartitionedRecords[Any] = PartitionedRecords("s", Pairs())
        coming, placed = deque(batches), []
        for epoch, frontier in history.bindings:
            placed += pushed.take(pairs([record[:2] for record in coming.popleft()])) if coming else []
            pushed.bind(epoch, frontier)
            placed += pushed.release()
        for batch in coming:
            placed += pushed.take(pairs([record[:2] for record in batch]))
        expected = {(history.epoch_of(*record[:2]), record[:2]) for batch in batches for record in batch}
        found = [(epoch, place) for epoch, batch in placed for place in places_of(batch)]
        assert sorted(found) == sorted((epoch, place) for epoch, place in expected if epoch is not None)


@given(remap_histories(), records(), st.booleans())
def test_a_batch_is_cut_into_at_most_one_piece_for_each_epoch_in_the_sequence_that_it_came_in(
    history: RemapHistory, places: list[Place], dictionary: bool
) -> None:
    pushed = PartitionedRecords("s", ArrowRows())
    for epoch, frontier in history.bindings:
        pushed.bind(epoch, frontier)
    pieces = pushed.take(arrow(places, dictionary=dictionary))
    assert [epoch for epoch, _ in pieces] == sorted({epoch for epoch, _ in pieces})
    for _, piece in pieces:
        rows = piece["row"].to_pylist()
        assert rows == sorted(rows)
        assert places_of(piece) == [places[row] for row in rows]


@dataclass
class Site:
    """What one worker has: its part of the source, the end of the remap operator, and what comes out."""

    reader: UnorderedHandle
    held: CapabilitySet
    remap: InputHandle
    heard: EventQueue
    probe: Probe

    @classmethod
    def build(cls, worker: Worker, order: Order[Any], as_of: int) -> Site:
        with worker.dataflow("source", order=order) as scope:
            reader, held, stream = scope.unordered_input("reader")
            arrivals = stream.capture()
        with worker.dataflow("flow", order=INT) as scope:
            remap, bound = scope.input("remap")
            pushed = PartitionedRecords("s", Pairs(), order=order)
            output = reclock_stream(bound.broadcast(), arrivals, pushed, Room(1000), as_of=as_of)
            heard, probe = output.capture(), output.probe()
        return cls(reader, CapabilitySet([held]), remap, heard, probe)

    def out(self) -> Counter[tuple[int, Place]]:
        """All that has come out here; nothing of it came behind the frontier, which never went back."""
        frontier: MutableAntichain[int] = MutableAntichain(INT)
        frontier.update([(0, 1)])
        found: Counter[tuple[int, Place]] = Counter()
        for event in self.heard.drain():
            if isinstance(event, Messages):
                assert frontier.less_equal(event.stamp[0])
                found.update((event.stamp[0], place) for place in places_of(event.batch))
            else:
                [before] = frontier.elements()
                frontier.update(event.changes)
                assert all(before <= after for after in frontier.elements())
        return found


def run(
    history: RemapHistory, places: list[Place], *, order: Order[Any], peers: int, seed: int, as_of: int
) -> Counter[tuple[int, Place]]:
    """Let it all happen in a random interleaving, on several workers; check the frontier wherever it stands still."""
    random = Random(seed)
    cluster = DeterministicCluster(peers=peers, seed=seed)
    sites = [Site.build(worker, order, as_of) for worker in cluster.workers]
    for site in sites[1:]:
        site.remap.close()
    coming: list[list[Place]] = [[] for _ in sites]
    for place in places:
        random.choice(coming).append(place)
    bindings, upper = list(history.bindings), 0
    told = [dict.fromkeys(PARTITIONS, 0) for _ in sites]
    while bindings or any(coming):
        w = random.randrange(peers)
        match random.choice(["bind", "give", "reach", "step", "check"]):
            case "bind" if bindings:
                epoch, frontier = bindings.pop(0)
                sites[0].remap.send([Binding(epoch, frontier)])
                if random.random() < 0.5:
                    cluster.step()
                upper = epoch + 1
                sites[0].remap.advance_to(upper)
            case "give":
                batch, coming[w] = coming[w][: (size := random.choice(SIZES))], coming[w][size:]
                sites[w].reader.session(sites[w].held).give(pairs(batch))
            case "reach":
                told[w] = lows_of(coming[w])
                sites[w].held.downgrade(readings(order, told[w]))
            case "step":
                for _ in range(random.randrange(10)):
                    cluster.step()
            case "check":
                cluster.settle()
                lows = {p: min(lows[p] for lows in told) for p in PARTITIONS}
                expected = max(reached(history, upper, lows), as_of) if upper > as_of else as_of
                assert [site.probe.frontier().elements() for site in sites] == [(expected,)] * peers
    upper = history.upper
    sites[0].remap.advance_to(upper)  # the epochs after the last binding
    for site in sites:
        site.held.drop()
    cluster.settle()
    assert [site.probe.frontier().elements() for site in sites] == [(max(upper, as_of),)] * peers
    sites[0].remap.close()
    cluster.settle()
    assert all(site.probe.done() for site in sites)
    return sum((site.out() for site in sites), Counter())


@pytest.mark.parametrize("peers", [1, 2, 3])
@deep(40)
@given(remap_histories(), records(), st.sampled_from(ORDERS), st.integers(0, 2**32), st.data())
def test_pb_pe_the_operator_agrees_with_the_ranges_and_the_definition_under_every_interleaving(
    peers: int, history: RemapHistory, places: list[Place], order: Order[Any], seed: int, data: st.DataObject
) -> None:
    table = history.table()
    as_of = data.draw(st.one_of(st.just(0), st.integers(0, table.upper - 1)))
    found = run(history, places, order=order, peers=peers, seed=seed, as_of=as_of)
    slices = table.slices(0, table.upper)
    ranges = Counter(
        (max(piece.epoch, as_of), (partition, n))
        for partition, n in places
        for piece in slices
        if piece.partition == partition and piece.lower <= n < piece.upper
    )
    behind_the_seal = {(e, p) for e, p in found if table.sealed_at is not None and p[1] >= table.frontier[p[0]]}
    assert Counter({key: n for key, n in found.items() if key not in behind_the_seal}) == ranges
    definition = [(max(epoch, as_of), p) for p in places if (epoch := entered(history, table.upper, p)) is not None]
    assert found == Counter(definition)


@deep(40)
@given(remap_histories(), records(), st.integers(0, 2**32), st.integers(0, 2**32))
def test_pa_the_epoch_of_a_record_does_not_depend_on_how_it_comes(
    history: RemapHistory, places: list[Place], one: int, other: int
) -> None:
    first = run(history, places, order=GAUGE, peers=1, seed=one, as_of=0)
    assert first == run(history, places[::-1], order=PARTITIONED, peers=2, seed=other, as_of=0)


@deep(40)
@given(remap_histories(), records(), st.sampled_from(ORDERS), st.integers(0, 2**32), st.data())
def test_pc_to_compact_the_bindings_is_to_compact_what_is_reclocked_by_them(
    history: RemapHistory, places: list[Place], order: Order[Any], seed: int, data: st.DataObject
) -> None:
    table = history.table()
    since = data.draw(st.integers(0, table.upper - 1))
    compacted = table.compacted(since)
    bound = tuple((epoch, compacted.frontier_at(epoch)) for epoch in range(since, table.upper))
    left = RemapHistory(bound, table.upper, since)
    result: Counter[tuple[int, Place]] = Counter()
    for (epoch, place), records_there in run(history, places, order=order, peers=1, seed=seed, as_of=0).items():
        result[max(epoch, since), place] += records_there
    assert run(left, places, order=order, peers=1, seed=seed + 1, as_of=since) == result
    assert run(history, places, order=order, peers=1, seed=seed + 2, as_of=since) == result


@deep(40)
@given(remap_histories(), records(), st.sampled_from(ORDERS), st.integers(0, 2**32))
def test_pd_what_is_sent_at_or_after_an_epoch_or_waits_is_what_is_beyond_the_inverse_of_it(
    history: RemapHistory, places: list[Place], order: Order[Any], seed: int
) -> None:
    table = history.table()
    found = run(history, places, order=order, peers=1, seed=seed, as_of=0)
    sent = Counter(place for _, place in found.elements())
    for epoch in range(table.upper + 1):
        lower = table.inverse(epoch)
        beyond = Counter(place for place in places if not lower.sealed and place[1] >= lower[place[0]])
        later = Counter(place for at_epoch, place in found.elements() if at_epoch >= epoch)
        assert later + (Counter(places) - sent) == beyond


@deep(60)
@given(remap_histories(), records(), st.data())
def test_pf_what_was_sent_before_an_epoch_and_what_is_sent_after_resuming_there_is_the_whole(
    history: RemapHistory, places: list[Place], data: st.DataObject
) -> None:
    table = history.table()
    whole = run(history, places, order=GAUGE, peers=1, seed=0, as_of=0)
    resume = data.draw(st.integers(0, table.upper))
    before = Counter({key: n for key, n in whole.items() if key[0] < resume})
    lower = table.inverse(resume)
    again = [(p, n) for p, n in places if not lower.sealed and (n >= lower[p] or data.draw(st.booleans()))]
    rig = Rig(as_of=max(resume - 1, 0))
    rig.give(*again)
    for epoch, frontier in history.bindings:
        rig.bind(epoch, frontier, sealed=frontier.sealed)
    rig.advance(history.upper)
    after = Counter((epoch, place) for epoch, place in rig.out() if epoch >= resume)
    assert before + after == whole
