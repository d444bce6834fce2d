"""The laws for a source that pushes: however its log is cut, wherever the driver dies, whatever fails meanwhile."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.flow.by_hand import Crash, Run, World
from tests.flow.taps import Tap, Well

import tidegauge as tg
from tidegauge.errors.push import PushedEndTakenBack, StartForgotten
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.looking.inspect import holds
from tidegauge.remap.frontier import Frontier
from tidegauge.sinks import OutputId
from tidegauge.sources.push.pieces import Pieces

OUTPUTS = {"a": "a", "twice": "a", "b": "b"}
"""The stream of each output."""


def twice(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.concat_batches([batch, batch])


@dataclass
class Spring(World):
    """A world with a well."""

    well: Well = field(default_factory=Well)
    written: int = 0

    def write(self, partition: str, stream: str, many: int) -> None:
        self.well.write(partition, stream, *range(self.written, self.written + many))
        self.written += many


def make(world: World) -> tg.Dataflow:
    assert isinstance(world, Spring)
    flow = tg.Dataflow("spring", store=world.store, tick=0.5)
    feed = flow.source("feed", Tap(world.well, ("a", "b")))
    flow.sink("a", feed.stream("a"), tg.DeltaSink(str(world.root / "a")))
    flow.sink("twice", feed.stream("a").map_batches(twice), tg.ParquetSink(str(world.root / "twice")))
    flow.sink("b", feed.stream("b"), tg.ParquetSink(str(world.root / "b")))
    return flow


def witness(world: Spring, acknowledged: Frontier) -> None:
    """Law 4, at the instant of an acknowledgement: every output holds all of it, durably."""
    loaded, flow = world.loaded(), make(world)
    for name, plan in flow.outputs.items():
        table = plan.sink.open(OutputId(flow.name, name, loaded.flow.incarnation))
        held = loaded.sources["feed"].table.inverse(holds(loaded, "feed", table.upper))
        assert acknowledged.less_equal(held), f"upstream was told beyond what {name} holds"


def check(world: Spring) -> None:
    """Every record is in every output of its stream, once, at the epoch to which it is bound."""
    table, flow = world.loaded().sources["feed"].table, make(world)
    for name, stream in OUTPUTS.items():
        rows = tg.read_arrow(flow, name).to_pylist()
        expected = [
            (n, partition, at)
            for partition, records in world.well.records.items()
            for at, (of, n) in enumerate(records)
            if of == stream
        ]
        found = sorted((row["n"], row["_partition"], row["_offset"]) for row in rows)
        assert found == sorted(expected * (2 if name == "twice" else 1)), name
        assert all(row["_epoch"] == table.epoch_of(row["_partition"], row["_offset"]) for row in rows)


WRITE = st.tuples(st.just("write"), st.sampled_from(["p0", "p1"]), st.sampled_from("ab"), st.integers(1, 30))
STEPS = st.one_of(
    WRITE,
    WRITE,
    st.tuples(st.just("step"), st.integers(1, 4)),
    st.tuples(st.just("cut"), st.lists(st.integers(-1, 9), min_size=1, max_size=4)),
    st.tuples(st.just("crash"), st.integers(0, 12)),
    st.tuples(st.just("full")),
)


LOSSES = st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.booleans())
"""Records that p0 and p1 lose, records that are written before that, and whether the driver dies meanwhile."""


def restored(world: Spring, run: Run, lost: tuple[Any, ...]) -> None:
    """Upstream is restored from an older backup: it is said where the driver can know it, and bound in no case.

    Once it has its records again, or where none of those that are lost was bound, the source goes on as ever.
    """
    *many, fresh, dies = lost
    world.write("p0", "a", fresh)
    run.step()
    before, known = world.well.end, {p: list(records) for p, records in world.well.records.items()}
    if dies:
        run.abandon()
    end = Frontier({p: max(0, before[p] - less) for p, less in zip(("p0", "p1"), many, strict=True)})
    world.well.restore(end)
    told = len(world.well.told)
    run = world.start() if dies else run
    for _ in range(12):
        run.step()
    source = run.runner.board.sources["feed"]
    here = world.loaded().sources["feed"].table.frontier.less_equal(end)
    if source.state == "failed":
        assert isinstance(source.error, PushedEndTakenBack if here else UpstreamRecreated)
        assert len(world.well.told) == told, "nothing is acknowledged to it"
        run.abandon()
        world.well.records = world.well.records if here else known
        tg.resume(make(world), "feed")
        run = world.start()
    else:
        assert here
        assert dies or world.lag or before.less_equal(end), "this driver had seen more"
    run.catch_up()
    check(world)
    run.abandon()


@pytest.mark.long
@pytest.mark.parametrize("memory", [300, 1 << 20])
@settings(max_examples=20)
@given(story=st.lists(STEPS, max_size=14), lag=st.integers(0, 3), tells=st.booleans(), lost=st.none() | LOSSES)
def test_each_record_is_in_each_output_once_at_its_epoch(
    tmp_path_factory: pytest.TempPathFactory,
    memory: int,
    story: list[tuple[Any, ...]],
    lag: int,
    tells: bool,
    lost: tuple[Any, ...] | None,
) -> None:
    world = Spring(tmp_path_factory.mktemp("spring"), make, lag=lag, well=Well(tells=tells))
    world.well.witness = partial(witness, world)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tidegauge.flow.pushing.Pieces", partial(Pieces, memory=memory))
        run = world.start()
        for what, *arguments in story:
            try:
                match what:
                    case "write":
                        world.write(*arguments)
                    case "step":
                        for _ in range(arguments[0]):
                            run.step()
                    case "cut":
                        world.well.cuts.extend(arguments[0])
                    case "full":
                        world.faults.append(True)
                    case "crash":
                        world.crash_at = arguments[0]
                        for _ in range(4):
                            run.step()
                        world.crash_at = None
            except Crash:
                run.abandon()
                with suppress(Crash):
                    run = world.start()
        world.write("p0", "a", 1)
        run.abandon()
        world.well.cuts.clear()  # whoever cannot tell its end has it when it gives nothing, in each run anew
        run = world.start()
        run.catch_up()
        check(world)
        if tells and lost is not None:
            restored(world, run, lost)
        else:
            run.abandon()
    assert lag or not world.well.open  # a call that lags dies with its driver


def test_a_source_that_fails_while_outputs_lack_bound_epochs_fails_at_the_first_of_them(tmp_path: Path) -> None:
    world = Spring(tmp_path, make)
    run = world.start()
    world.write("p0", "a", 5)
    run.catch_up()
    world.faults.extend([True] * 99)  # no output can commit from now on
    for _ in range(3):
        world.write("p0", "a", 5)
        for _ in range(3):
            run.step()
    bound = run.runner.board.upper
    run.abandon()
    world.faults.clear()
    held = {name: output.upper for name, output in run.runner.board.outputs.items()}
    assert min(held.values()) < bound
    world.well.oldest = {"p0": 20}  # upstream lost everything that was not acknowledged
    run = world.start()
    for _ in range(9):
        run.step()
    source = run.runner.board.sources["feed"]
    assert (source.state, type(source.error)) == ("failed", StartForgotten)
    assert source.failed_at == min(held[name] for name in OUTPUTS)
    assert run.runner.ended(None) is not None, "nothing waits for what never comes"
    run.abandon()
    again = world.start()
    for _ in range(9):
        again.step()
    assert again.runner.board.sources["feed"].failed_at == source.failed_at
    again.abandon()


def test_a_sealed_source_is_read_again_where_an_output_lacks_some_of_it(tmp_path: Path) -> None:
    world = Spring(tmp_path, make)
    run = world.start()
    world.write("p0", "a", 5)
    world.well.sealed = True
    world.faults.extend([True] * 99)
    for _ in range(9):
        run.step()
    assert run.runner.board.sources["feed"].state == "sealed"
    run.abandon()
    world.faults.clear()
    world.lag = 3
    run = world.start()
    for _ in range(30):
        run.step()
        assert run.runner.board.sources["feed"].unread is None, "no job is begun before its pieces are whole"
    assert run.runner.ended(None) == "sealed"
    check(world)
    run.abandon()
