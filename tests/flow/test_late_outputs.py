"""An output that is added to a flow which has run: it gets every epoch, and the others go on meanwhile."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.flow.badinput import begin, lines, numbers, rows, source, states, write
from tests.flow.by_hand import Run, World

import tidegauge as tg
from tidegauge.flow import stage
from tidegauge.remap.frontier import Frontier
from tidegauge.sinks.parquet.chain import ParquetChain

PAST = 12
"""How many epochs there are before the late output."""


def flow_of(
    *late: str, function: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
) -> Callable[..., tg.Dataflow]:
    """One source into the table `a`, and into these tables besides."""

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = source(world, flow, "orders")
        flow.sink("a", orders, tg.DeltaSink(str(world.root / "lake" / "a")))
        for name in late:
            stream = orders if function is None else orders.map_batches(function)
            flow.sink(name, stream, tg.ParquetSink(str(world.root / "lake" / name)))
        return flow

    return make


alone, with_late = flow_of(), flow_of("late")


def add(world: World, n: int) -> None:
    write(world.root / "orders" / "1.jsonl", lines(n))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A flow with one table, that has run for some epochs; a job of late outputs takes one epoch."""
    monkeypatch.setitem(stage.JOB_LIMITS, "bytes", 1)
    world = World(tmp_path, alone)
    run = begin(world)
    for n in range(PAST):
        add(world, n)
        run.catch_up()
    run.abandon()
    return world


def upper(run: Run, output: str) -> int:
    return run.runner.board.outputs[output].upper


def test_the_others_publish_while_a_late_output_gets_the_past(world: World) -> None:
    world.lag = 30
    run = begin(world, with_late)
    seen = []
    for n in range(PAST, PAST + 2):
        add(world, n)
        while run.runner.board.published <= n:
            run.step()
        seen.append(upper(run, "late"))
        assert numbers(alone(world), "a", as_of=n) == list(range(n + 1))
    assert seen[0] < seen[-1] < PAST, "it gets on, and nobody waits for it"
    run.catch_up()
    run.abandon()
    assert rows(with_late(world), "late") == rows(with_late(world), "a")


def test_what_is_published_waits_for_an_output_that_has_caught_up(world: World) -> None:
    run = begin(world, with_late)
    run.catch_up()
    assert states(run.runner.board.outputs.values()) == {"a": "live", "late": "live"}

    def full(*_args: object, **_how: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParquetChain, "commit", full)
        add(world, PAST)
        for _ in range(20):
            run.step()
        assert (upper(run, "a"), upper(run, "late"), run.runner.board.published) == (PAST + 1, PAST, PAST)
    run.step(60.0)
    run.catch_up()
    run.abandon()


def test_upstream_keeps_what_a_late_output_lacks(world: World) -> None:
    told: list[tuple[Frontier, int]] = []
    world.lag = 2
    run = begin(world, with_late)
    timeline = run.runner.board.timeline
    files = run.flow.spec.sources["orders"]
    original = type(files).acknowledge

    def acknowledge(self: tg.FileSource, frontier: Frontier) -> None:
        told.append((frontier, upper(run, "late")))
        original(self, frontier)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tg.FileSource, "acknowledge", acknowledge)
        add(world, PAST)
        run.catch_up()
    run.abandon()
    assert told
    table = timeline.tables["orders"]
    assert all(frontier.less_equal(table.inverse(late)) for frontier, late in told)


def test_a_late_output_that_cannot_take_a_row_fails_alone(world: World) -> None:
    def refuse(batch: pa.RecordBatch) -> pa.RecordBatch:
        if 5 in batch["n"].to_pylist():
            raise ValueError("five is not wanted")
        return batch

    run = begin(world, flow_of("late", function=refuse))
    add(world, PAST)
    run.catch_up()
    assert states(run.runner.board.outputs.values()) == {"a": "live", "late": "failed"}
    assert states(run.runner.board.sources.values()) == {"orders": "running"}
    run.abandon()


def test_a_late_output_whose_past_is_gone_upstream_fails_alone(world: World) -> None:
    (world.root / "orders" / "1.jsonl").rename(world.root / "away")
    run = begin(world, with_late)
    write(world.root / "orders" / "2.jsonl", lines(PAST))
    run.catch_up()
    assert states(run.runner.board.outputs.values()) == {"a": "live", "late": "failed"}
    assert states(run.runner.board.sources.values())["orders"] != "failed"
    assert numbers(alone(world), "a") == list(range(PAST + 1))
    run.abandon()


def test_a_late_output_whose_disk_is_full_keeps_nobody_waiting(world: World) -> None:
    run = begin(world, with_late)
    world.faults.extend([True] * 3)
    run.step()
    assert run.runner.board.outputs["late"].state == "stalled"
    add(world, PAST)
    world.faults.extend([False])
    run.step(60.0)
    run.catch_up()
    run.abandon()
    assert rows(with_late(world), "late") == rows(with_late(world), "a")


def test_late_outputs_of_one_source_read_it_together(world: World) -> None:
    three = flow_of("late", "later", "latest")
    run = begin(world, three)
    run.catch_up()
    read = run.runner.board.sources["orders"].records
    run.abandon()
    assert read == PAST
    for name in ("late", "later", "latest"):
        assert rows(three(world), name) == rows(three(world), "a")
