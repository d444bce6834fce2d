"""A late output of a topic: its past is a range of offsets, with holes, markers and partitions that come later.

The topic is in memory and gives the answers that a broker gives; the flow, its store and its tables are real.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.flow.badinput import begin, rows, states
from tests.flow.by_hand import Crash, Run, World

import tidegauge as tg
from tidegauge.errors.kafka import BrokerUnreachable
from tidegauge.remap.store import EXPIRY
from tidegauge.testing.simulation.upstream import PartitionedLog, SimulatedLog

Make = Callable[[World], tg.Dataflow]


@dataclass
class Topic:
    """A topic of records that are numbered as they are written, and flows that read it.

    mute: nobody tells its end. calls: what its readers called.
    """

    log: PartitionedLog = field(default_factory=lambda: PartitionedLog({"orders": 1}))
    mute: bool = False
    written: int = 0
    calls: list[str] = field(default_factory=list)

    def append(self, count: int = 1, partition: int = 0, **how: Any) -> None:
        ns = range(self.written, self.written + count)
        self.log.append(f"orders-{partition}", pa.record_batch({"n": list(ns)}), **how)
        self.written += count

    def meet(self, call: str) -> None:
        self.calls.append(call)
        if call == "probe" and self.mute:
            raise BrokerUnreachable(servers="memory", detail="it is mute")

    def read_by(self, *outputs: str, **how: Any) -> Make:
        """Return what makes a flow of the topic with these outputs."""

        def make(world: World) -> tg.Dataflow:
            flow = tg.Dataflow("shop", store=world.store)
            log = SimulatedLog(self.log, columns="n long", metadata=True, meet=self.meet, **how)
            orders = flow.source("orders", log)
            for name in outputs:
                flow.sink(name, orders, tg.ParquetSink(str(world.root / "lake" / name)))
            return flow

        return make


@pytest.fixture
def topic() -> Topic:
    return Topic()


def bind(world: World, make: Make, *appends: Callable[[], None]) -> None:
    """Let a driver publish an epoch after each of these."""
    run = begin(world, make)
    for append in appends:
        append()
        run.catch_up()
    run.abandon()


def drive(world: World, make: Make) -> Run:
    """Let a driver catch up; it still runs."""
    run = begin(world, make)
    run.catch_up()
    return run


def placed(world: World, make: Make, output: str) -> list[tuple[int, int, int]]:
    """Return the epoch, partition and offset of each row of a table, in order."""
    found = tg.read_arrow(make(world), output).select(["_epoch", "_partition", "_offset"]).to_pylist()
    return sorted((row["_epoch"], int(row["_partition"].rpartition("-")[2]), row["_offset"]) for row in found)


def offsets(world: World, make: Make, output: str) -> list[int]:
    return [offset for _epoch, _partition, offset in placed(world, make, output)]


def live(run: Run, *outputs: str) -> bool:
    return {states(run.runner.board.outputs.values())[name] for name in outputs} == {"live"}


def test_s3_a_partition_that_is_empty_has_no_past(tmp_path: Path) -> None:
    topic = Topic(PartitionedLog({"orders": 2}))
    world = World(tmp_path, topic.read_by("a"))
    bind(world, world.make, lambda: topic.append(3, 1))
    both = topic.read_by("a", "late")
    run = drive(world, both)
    assert live(run, "late")
    run.abandon()
    assert placed(world, both, "late") == [(0, 1, 0), (0, 1, 1), (0, 1, 2)]


def test_s4_a_partition_that_is_added_later_is_in_later_epochs_only(tmp_path: Path, topic: Topic) -> None:
    world = World(tmp_path, topic.read_by("a"))
    bind(world, world.make, lambda: topic.append(3), lambda: topic.append(2))
    both = topic.read_by("a", "late")
    run = drive(world, both)
    topic.log.grow("orders", 2)
    topic.append(2, 1)
    run.catch_up()
    run.abandon()
    assert [(e, p) for e, p, _ in placed(world, both, "late")] == [(0, 0)] * 3 + [(1, 0)] * 2 + [(2, 1)] * 2
    assert world.points.count("before record unit") == 1, "the past, and nothing of the new partition"


def test_s5_s11_epochs_that_are_bound_during_a_backfill_follow_it(tmp_path: Path, topic: Topic) -> None:
    world = World(tmp_path, topic.read_by("a"))
    bind(world, world.make, lambda: topic.append(3), lambda: topic.append(2))
    both = topic.read_by("a", "late")
    world.lag = 30
    run = begin(world, both)
    assert run.runner.board.outputs["late"].state == "backfilling"
    topic.append()
    topic.log.grow("orders", 2)
    topic.append(1, 1)
    run.catch_up()
    assert live(run, "a", "late")
    run.abandon()
    wanted = [(0, 0, 0), (0, 0, 1), (0, 0, 2), (1, 0, 3), (1, 0, 4), (2, 0, 5), (2, 1, 0)]
    assert placed(world, both, "late") == placed(world, both, "a") == wanted


def test_s7_a_unit_that_is_recorded_is_not_read_again(tmp_path: Path, topic: Topic) -> None:
    world = World(tmp_path, topic.read_by("a"))
    bind(world, world.make, lambda: topic.append(3), lambda: topic.append(2))
    both = topic.read_by("a", "late")
    world.strike = "after record unit"
    with pytest.raises(Crash):
        drive(world, both)
    world.clock.seconds += EXPIRY + 1
    topic.calls.clear()
    drive(world, both).abandon()
    assert "read" not in topic.calls
    assert rows(both(world), "late") == rows(both(world), "a")


def test_s10_the_past_ends_where_its_cutover_was_bound(tmp_path: Path, topic: Topic) -> None:
    """A machine that takes what it hears of the end for what it has emitted loses record 3 here."""
    world = World(tmp_path, topic.read_by("a"))
    bind(world, world.make, lambda: topic.append(3))
    both = topic.read_by("a", "late")
    world.lag = 30
    run = begin(world, both)
    topic.append(2)
    run.catch_up()
    run.abandon()
    assert placed(world, both, "late") == [(0, 0, 0), (0, 0, 1), (0, 0, 2), (1, 0, 3), (1, 0, 4)]


def test_s12_holes_of_a_compacted_topic_are_passed(tmp_path: Path, topic: Topic) -> None:
    world = World(tmp_path, topic.read_by("a"))
    keys = [b"a", b"b", b"b", b"c"]
    bind(world, world.make, lambda: topic.append(4, keys=keys), lambda: topic.append(2, keys=[b"d", b"d"]))
    topic.log.compact("orders-0")
    both = topic.read_by("a", "late")
    world.lag = 30
    run = begin(world, both)
    filled = run.runner.board.outputs["late"].filled
    assert filled is not None
    assert filled.total == 6, "offsets, the holes with them"
    run.catch_up()
    assert live(run, "late")
    run.abandon()
    assert offsets(world, both, "late") == [0, 2, 3, 5]
    assert offsets(world, both, "a") == [0, 1, 2, 3, 4, 5]


def test_s13_s15_a_past_that_ends_with_a_transaction_ends(tmp_path: Path) -> None:
    topic = Topic(PartitionedLog({"orders": 2}))  # nothing is ever written to the second partition

    def pay() -> None:
        payment = topic.log.begin()
        topic.append(2, within=payment)
        topic.log.commit(payment)

    world = World(tmp_path, topic.read_by("a"))
    bind(world, world.make, pay, pay, pay)
    both = topic.read_by("a", "late")
    run = drive(world, both)
    assert live(run, "late")
    run.abandon()
    assert placed(world, both, "late") == [(0, 0, 0), (0, 0, 1), (1, 0, 3), (1, 0, 4), (2, 0, 6), (2, 0, 7)]


def test_s14_the_past_ends_before_a_transaction_that_is_open(tmp_path: Path, topic: Topic) -> None:
    world = World(tmp_path, topic.read_by("a"))
    run = begin(world)
    topic.append(2)
    payment = topic.log.begin()
    topic.append(2, within=payment)
    topic.append()
    run.catch_up()
    run.abandon()
    both = topic.read_by("a", "late")
    run = drive(world, both)
    assert offsets(world, both, "late") == [0, 1]
    topic.log.commit(payment)
    run.catch_up()
    run.abandon()
    assert placed(world, both, "late") == placed(world, both, "a")
    assert offsets(world, both, "late") == [0, 1, 2, 3, 4]


def test_s16_every_late_output_begins_where_its_source_began(tmp_path: Path, topic: Topic) -> None:
    topic.append(7)
    outputs = ["a"]
    world = World(tmp_path, topic.read_by("a", start="latest"))
    drive(world, world.make).abandon()
    topic.append(2)
    for late in ("one", "two"):
        outputs.append(late)
        run = drive(world, topic.read_by(*outputs, start="latest"))
        topic.append()
        run.catch_up()
        run.abandon()
    for name in outputs:
        assert offsets(world, world.make, name) == [7, 8, 9, 10]


def test_s19_what_is_gone_of_the_past_is_a_gap_by_choice(tmp_path: Path, topic: Topic) -> None:
    world = World(tmp_path, topic.read_by("a"))
    bind(world, world.make, lambda: topic.append(3), lambda: topic.append(2))
    topic.log.trim("orders-0", 4)
    both = topic.read_by("a", "late", on_data_loss="gap")
    run = drive(world, both)
    assert live(run, "a", "late")
    run.abandon()
    assert offsets(world, both, "late") == [4]
    gaps = world.loaded().gaps
    assert [(gap.epoch, gap.lower, gap.upper) for gap in gaps] == [(0, 0, 3), (1, 3, 4)]
    assert all(gap.reason.startswith("late lacks it") for gap in gaps)


def test_s20_a_topic_that_goes_back_binds_nothing(tmp_path: Path, topic: Topic) -> None:
    world = World(tmp_path, topic.read_by("a"))
    bind(world, world.make, lambda: topic.append(5))
    topic.log.cut("orders-0", 2)
    run = begin(world, topic.read_by("a", "late"))
    for _ in range(5):
        run.step()
    assert states(run.runner.board.sources.values()) == {"orders": "failed"}
    assert run.runner.board.timeline.upper == 1
    run.abandon()


def test_s22_a_source_whose_end_nobody_tells_has_a_past_all_the_same(tmp_path: Path, topic: Topic) -> None:
    world = World(tmp_path, topic.read_by("a"))
    bind(world, world.make, lambda: topic.append(3), lambda: topic.append(2))
    topic.mute = True
    both = topic.read_by("a", "late")
    run = begin(world, both)
    for _ in range(10):
        run.step()
    assert live(run, "late")
    run.abandon()
    assert offsets(world, both, "late") == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1)])
def test_s25_a_backfill_goes_on_with_another_number_of_workers(
    tmp_path: Path, topic: Topic, before: int, after: int
) -> None:
    world = World(tmp_path, topic.read_by("a", max_records_per_epoch=10, split_records=2))
    topic.append(20)
    drive(world, world.make).abandon()
    both = topic.read_by("a", "late", max_records_per_epoch=10, split_records=2)(world)
    world.strike = "after record unit"
    with pytest.raises(Crash):
        both.run(until="caught-up", engine=tg.LocalEngine(threads=before), env=world.env())
    world.clock.seconds += EXPIRY + 1
    both.run(until="caught-up", engine=tg.LocalEngine(threads=after))
    assert rows(both, "late") == rows(both, "a")
    assert len(rows(both, "late")) == 20


def test_s26_an_output_joins_the_others_when_it_has_what_they_have(tmp_path: Path, topic: Topic) -> None:
    world = World(tmp_path, topic.read_by("a"))
    bind(world, world.make, *[lambda: topic.append()] * 3)
    both = topic.read_by("a", "late")
    run = begin(world, both)
    for _ in range(4):
        topic.append()
        run.step()
    run.catch_up()
    topic.calls.clear()
    topic.append()
    run.catch_up()
    assert topic.calls.count("read") == 1, "once for both"
    run.abandon()
    assert rows(both(world), "late") == rows(both(world), "a")


@pytest.mark.parametrize("strike", ["before stage", "after stage", "before commit output", "after commit output"])
def test_s27_a_crash_right_after_joining_costs_and_doubles_nothing(tmp_path: Path, topic: Topic, strike: str) -> None:
    world = World(tmp_path, topic.read_by("a"))
    bind(world, world.make, lambda: topic.append(3))
    both = topic.read_by("a", "late")
    run = drive(world, both)
    assert live(run, "late")
    topic.append(2)
    world.strike = strike
    with pytest.raises(Crash):
        run.catch_up()
    run.abandon()
    world.clock.seconds += EXPIRY + 1
    drive(world, both).abandon()
    assert placed(world, both, "late") == placed(world, both, "a")
    assert offsets(world, both, "late") == [0, 1, 2, 3, 4]


def test_p2_progress_is_that_of_the_rate_and_does_not_go_back_in_a_crash(tmp_path: Path, topic: Topic) -> None:
    world = World(tmp_path, topic.read_by("a", max_records_per_epoch=1))
    topic.append(100)
    drive(world, world.make).abandon()
    both = topic.read_by("a", "late", max_records_per_epoch=1)
    begin(world, both).abandon()
    world.clock.seconds += EXPIRY + 1
    tg.limit(both(world), 1)
    run = begin(world, both)
    done = percents(run, seconds=10)
    assert 9 <= done[-1] <= 12
    world.strike = "before record unit"
    with pytest.raises(Crash):
        percents(run, seconds=10)
    run.abandon()
    world.clock.seconds += EXPIRY + 1
    run = begin(world, both)
    again = percents(run, seconds=1)
    assert done[-1] - 1 <= again[0] <= done[-1] + 2
    assert again == sorted(again)
    run.abandon()


def percents(run: Run, *, seconds: int) -> list[int]:
    """Return the percentage that is filled, second by second."""

    def seen() -> Iterable[int]:
        for _ in range(seconds * 4):
            run.step(0.25)
            filled = run.runner.board.outputs["late"].filled
            yield 100 if filled is None else filled.percent

    return list(seen())
