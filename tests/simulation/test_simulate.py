"""Whole flows simulated from a seed: they hold their laws, the same each time, and what is wrong is found."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom
from typing import Any

import pyarrow as pa
import pytest
from tests.simulation import parted, pushed, rotated, spoilt, united, unseen
from tests.simulation.reference import make_flow

import tidegauge as tg
from tidegauge.errors.simulable import ColumnsNotDeclared, NoCounterpart
from tidegauge.errors.simulation import (
    FactoryBroke,
    FlowsDiffer,
    SeedPasses,
    SimulationFailed,
    StepSeesOrder,
    Ungeneratable,
    UnknownFault,
)
from tidegauge.errors.sinks import UnsupportedColumn
from tidegauge.testing.simulation import KINDS, Shrinking, replay, simulate
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.kinds import AT_FEEDS, AT_FILES, AT_LOGS
from tidegauge.testing.simulation.plan import planned
from tidegauge.testing.simulation.upstream import PartitionedLog, SimulatedLog
from tidegauge.testing.simulation.world import World

SEEDS = range(5)
FRESH = 3


def test_every_law_holds_in_the_worlds_of_these_seeds() -> None:
    held = simulate(make_flow, seeds=SEEDS)
    assert held.seeds == len(SEEDS)
    assert held.epochs > 50
    assert held.rows > 1000


def test_every_law_holds_in_worlds_of_fresh_seeds_and_the_error_names_one_that_fails() -> None:
    first = SystemRandom().randrange(10**9)
    assert simulate(make_flow, seeds=range(first, first + FRESH)).seeds == FRESH


@pytest.mark.parametrize("kind", KINDS)
def test_every_law_holds_when_one_kind_of_fault_comes_alone(kind: str) -> None:
    make = pushed.make_flow if kind in AT_FEEDS else make_files if kind in AT_FILES else make_flow
    assert simulate(make, seeds=[1000 + KINDS.index(kind)], faults=[kind], epochs=8).seeds == 1


def test_every_law_holds_of_parts_of_streams_and_of_the_first_rows_of_keys() -> None:
    assert simulate(parted.make_flow, seeds=[7], epochs=5).seeds == 1


@pytest.mark.long
def test_every_law_holds_of_parts_of_streams_in_many_worlds() -> None:
    assert simulate(parted.make_flow, seeds=range(40)).seeds == 40


def test_every_law_holds_of_unions() -> None:
    assert simulate(united.make_flow, seeds=[14], epochs=6).seeds == 1


@pytest.mark.long
def test_every_law_holds_of_unions_in_many_worlds() -> None:
    assert simulate(united.make_flow, seeds=range(40)).seeds == 40


def make_files() -> tg.Dataflow:
    """Files that grow, are torn and come late, where the reference flow has topics."""
    flow = tg.Dataflow("files", store="sqlite:///files.db", tick=1.0)
    source = tg.FileSource("/landing/*.jsonl", format=tg.Json("id long, name string"), metadata=True)
    lines = flow.source("lines", source)
    flow.sink("lines", lines, tg.DeltaSink("lake/lines"))
    flow.sink("names", lines.select("name"), tg.ParquetSink("lake/names"))
    return flow


def test_every_law_holds_with_files_that_grow_are_torn_and_come_late() -> None:
    held = simulate(make_files, seeds=range(4))
    assert held.rows > 300


@pytest.mark.parametrize("make", [make_files, rotated.make_flow, unseen.make_flow])
def test_every_line_arrives_once_of_logs_that_are_rotated_and_of_files_that_come_late(
    make: Callable[[], tg.Dataflow],
) -> None:
    held = simulate(make, seeds=range(5, 9), faults=["rotate", "save", "crash"], epochs=10)
    assert held.rows > 100


@pytest.mark.parametrize("make", [rotated.make_flow, unseen.make_flow])
def test_what_files_lose_is_told_and_everything_else_arrives_once(make: Callable[[], tg.Dataflow]) -> None:
    """A source that fails of it is resumed: with the files brought back, or without, and then its gaps say so."""
    held = simulate(make, seeds=range(4), faults=["truncate", "replace", "rotate", "crash", "stop"], epochs=10)
    assert held.rows > 100


@pytest.mark.long
@pytest.mark.parametrize(
    ("make", "seed"), [(rotated.make_flow, 10015), (unseen.make_flow, 10002), (pushed.make_flow, 1091)]
)
def test_a_world_does_not_end_before_somebody_could_do_what_a_law_demands(
    make: Callable[[], tg.Dataflow], seed: int
) -> None:
    """In the first the last driver stopped before it had tried again to replace a table whose past is lost.

    In the second it stopped before it had looked at a file that was cut off while its source had failed. In the third
    all sources had failed, over an older store that somebody was about to recover: then one went on.
    """
    assert simulate(make, seeds=[seed]).seeds == 1


def test_every_law_holds_with_a_source_that_pushes_and_forgets_what_is_acknowledged() -> None:
    held = simulate(pushed.make_flow, seeds=range(3), epochs=12)
    assert held.rows > 100


def test_every_bad_record_is_collected_or_fails_its_source() -> None:
    assert simulate(spoilt.make_flow, seeds=range(3), faults=spoilt.FAULTS, epochs=10).rows > 100


def test_faults_of_one_sort_of_sources_are_drawn_for_flows_that_have_some_alone() -> None:
    for make, some in ((make_flow, {*AT_LOGS}), (with_errors, {*AT_FEEDS}), (make_files, {*AT_FILES})):
        facts = Ground.of(make).facts
        drawn = {act.what for seed in range(100) for act in planned(seed, facts).acts}
        assert drawn & {*AT_FEEDS, *AT_FILES, *AT_LOGS} == some


def with_errors() -> tg.Dataflow:
    """A flow whose bad records go to a table."""
    flow = tg.Dataflow("feeds", store="sqlite:///feeds.db", tick=1.0)
    feed = flow.source("feed", tg.SocketSource("nowhere", 9000, columns="id long", metadata=True))
    flow.sink("rows", feed, tg.ParquetSink("lake/rows"))
    flow.sink("errors", feed.errors, tg.ParquetSink("lake/errors"))
    return flow


def test_every_law_holds_with_a_table_of_bad_records_and_with_places_in_the_rows() -> None:
    assert simulate(with_errors, seeds=[1], faults=["crash"], epochs=6).rows > 10


def traced(seed: int) -> str:
    make = pushed.make_flow if seed % 2 else make_flow
    world = World(ground := Ground.of(make), planned(seed, ground.facts, epochs=8))
    world.run()
    return world.trace.digest()


SHOW = """
from tests.simulation.test_simulate import traced
print(*[traced(seed) for seed in (3, 6)])
"""


def test_a_seed_has_the_same_trace_in_a_process_that_hashes_differently() -> None:
    hashed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    path = os.pathsep.join([*sys.path, str(Path.cwd())])
    said = subprocess.run(
        [sys.executable, "-c", SHOW],
        env={**os.environ, "PYTHONHASHSEED": hashed, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.split() == [traced(3), traced(6)]


def test_seeds_differ_in_what_happens() -> None:
    assert len({traced(seed) for seed in (3, 5, 6)}) == 3


def logging_step(batch: pa.RecordBatch) -> pa.RecordBatch:
    logging.getLogger("tidegauge.shop").warning("%s rows", batch.num_rows)
    return batch


def test_what_is_logged_in_a_world_is_in_its_trace_and_nowhere_else(caplog: pytest.LogCaptureFixture) -> None:
    world = World(ground := Ground.of(shop(logging_step)), planned(1, ground.facts, kinds=(), epochs=3))
    caplog.clear()  # of what the step said when its columns were asked for
    world.run()
    assert " rows" in next(what for _, _, what in world.trace.events if what.startswith("log: "))
    assert caplog.text == ""


def test_a_life_gets_shorter_step_by_step() -> None:
    """What is told of it goes from all that the seed has to what the error shows."""
    told: list[Shrinking] = []
    with pytest.raises(SimulationFailed, match="an epoch has the rows that its bindings say") as failed:
        simulate(shop(numbered), seeds=[14, 15], epochs=6, shrinking=told.append)
    assert told[0].left == told[0].of
    assert [said.left for said in told] == sorted((said.left for said in told), reverse=True)
    shown = str(failed.value).partition("what went wrong:")[2].partition("\n\n")[0]
    assert told[-1].left == sum(line.startswith("  ") and line != "  none" for line in shown.splitlines())


# What is wrong is found.


def shop(step: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Callable[[], tg.Dataflow]:
    def make() -> tg.Dataflow:
        flow = tg.Dataflow("shop", store="sqlite:///shop.db", tick=1.0)
        orders = flow.source("orders", tg.GeneratorSource(columns="id long, amount double"))
        flow.sink("lake", orders.map_batches(step), tg.ParquetSink("lake"))
        return flow

    return make


def numbered(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Number some of the rows of a batch: those of every sixteenth identifier, which are rare in a sample."""
    numbers, some = [], 0
    for identifier in batch["id"].to_pylist():
        rare = identifier is not None and identifier % 16 == RARE
        some += rare
        numbers.append(some if rare else 0)
    return batch.append_column("number", pa.array(numbers, pa.int64()))


RARE = 11


def test_a_step_that_is_wrong_for_rare_rows_is_found_with_a_short_life() -> None:
    with pytest.raises(SimulationFailed, match="an epoch has the rows that its bindings say") as failed:
        simulate(shop(numbered), seeds=[14, 15], epochs=6, faults=())
    told = str(failed.value)
    assert "what went wrong:\n  none" in told
    acts = told.partition("what others did")[2].partition("time      who")[0].strip().splitlines()[1:]
    assert len(acts) == 5, "the appends up to two rare rows in two partitions, and no others"
    assert failed.value.evidence["seed"] == 15
    assert str(replay(shop(numbered), seed=15, epochs=6, faults=())) == told
    with pytest.raises(SeedPasses, match="seed 15 does not fail any more"):
        replay(shop(lambda batch: batch), seed=15, epochs=6, faults=())


def test_a_step_that_is_not_definite_is_found_before_any_world() -> None:
    def numbered_all(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.append_column("number", pa.array(range(batch.num_rows), pa.int64()))

    def no_world(_seed: int, _so_far: object) -> None:
        pytest.fail("a world was run")

    with pytest.raises(StepSeesOrder, match="numbered_all"):
        simulate(shop(numbered_all), after=no_world)


# Bad input.


def test_what_is_wrong_with_a_flow_before_anything_happens_is_told_as_it_is() -> None:
    with pytest.raises(UnsupportedColumn, match="nothing"):
        simulate(shop(lambda batch: batch.append_column("nothing", pa.nulls(batch.num_rows))))


def test_a_factory_that_raises_or_returns_something_else_is_refused() -> None:
    def broken() -> tg.Dataflow:
        raise KeyError("SHOP_HOME")

    with pytest.raises(FactoryBroke, match="SHOP_HOME"):
        simulate(broken)
    with pytest.raises(FactoryBroke, match="it returned 7"):
        simulate(lambda: 7)  # type: ignore[arg-type, return-value]


def test_a_factory_that_returns_another_flow_each_time_is_refused() -> None:
    made: list[int] = []

    def make() -> tg.Dataflow:
        made.append(0)
        flow = tg.Dataflow("shop", store="sqlite:///shop.db")
        flow.sink(
            f"lake-{len(made)}", flow.source("orders", tg.GeneratorSource(columns="id long")), tg.ParquetSink("x")
        )
        return flow

    with pytest.raises(FlowsDiffer, match=r"lake-1.*then.*lake-2"):
        simulate(make)


def test_an_unknown_fault_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UnknownFault, match=r"'fire'.*'crash'"):
        simulate(make_flow, faults=["crash", "fire"])
    with pytest.raises(UnknownFault, match="'crash,pause'"):
        simulate(make_flow, faults="crash,pause")


def one(source: Any) -> Callable[[], tg.Dataflow]:
    def make() -> tg.Dataflow:
        flow = tg.Dataflow("shop", store="sqlite:///shop.db")
        flow.sink("lake", flow.source("orders", source), tg.ParquetSink("lake"))
        return flow

    return make


def test_columns_that_are_not_declared_or_cannot_be_written_are_refused() -> None:
    with pytest.raises(ColumnsNotDeclared, match="'orders'"):
        simulate(one(tg.KafkaSource("nowhere:9092", topic="orders", format=tg.Json())))
    nested = tg.Json("id long, tags array<string>")
    with pytest.raises(Ungeneratable, match="'tags'"):
        simulate(one(tg.KafkaSource("nowhere:9092", topic="orders", format=nested)))


class Own(tg.GeneratorSource):
    """A source that nothing stands in for."""

    def simulated(self) -> Any:
        return tg.GeneratorSource(columns="id long", metadata=True)


class Journal:
    """A source of a user's own, with what stands in for it as the guide has it: it names no topic."""

    unit, schema = "records", pa.schema([("id", pa.int64())])

    def describe(self) -> dict[str, Any]:
        return {"kind": "journal"}

    def probe(self, bound: Any, *, now: Any) -> Any: ...

    def plan(self, slices: Any, bound: Any) -> Any: ...

    def read(self, split: Any, on_bad_record: Any) -> Any: ...

    def acknowledge(self, frontier: Any) -> None: ...

    def simulated(self) -> SimulatedLog:
        return SimulatedLog(PartitionedLog({"journal": 2}), columns=self.schema)


def test_a_log_that_names_no_topic_has_those_of_its_beginning_also_when_they_are_gone() -> None:
    assert simulate(one(Journal()), seeds=range(20, 30), faults=["recreate"], epochs=8).rows > 100


def test_nobody_recreates_a_generator() -> None:
    facts = Ground.of(one(tg.GeneratorSource(columns="id long"))).facts
    drawn = {act.what for seed in range(100) for act in planned(seed, facts).acts}
    assert not drawn & {*AT_LOGS}
    assert "retention" in drawn


def test_a_source_that_nothing_stands_in_for_is_refused() -> None:
    with pytest.raises(NoCounterpart, match="nothing stands in for"):
        simulate(one(Own(columns="id long", metadata=True)))
