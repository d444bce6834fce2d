"""A late table has all that was compacted before it at `since`: its repair does not take that for nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.flow.badinput import begin, lines, rows, source, write
from tests.flow.by_hand import World

import tidegauge as tg
from tidegauge.errors.history import EpochsCompacted
from tidegauge.job import portion

SINCE = 5


def flow_of(*outputs: str) -> Callable[[World], tg.Dataflow]:
    """Tables of orders, and one of clicks, which come in epochs of their own."""

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = source(world, flow, "orders")
        for name in outputs:
            flow.sink(name, orders, tg.DeltaSink(str(world.root / "lake" / name)))
        flow.sink("clicks", source(world, flow, "clicks"), tg.ParquetSink(str(world.root / "lake" / "clicks")))
        return flow

    return make


both = flow_of("orders", "late")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Nothing was ordered in epochs 4 to 6. When the epochs before 5 had been compacted, the late table came."""
    monkeypatch.setitem(portion.JOB_LIMITS, "bytes", 1)
    world = World(tmp_path, flow_of("orders"))
    run = begin(world)
    for n in range(9):
        write(world.root / ("clicks" if n in range(4, 7) else "orders") / "1.jsonl", lines(n))
        run.catch_up()
    run.abandon()
    assert tg.compact(world.make(world), before=SINCE).since == SINCE
    run = begin(world, both)
    run.catch_up()
    run.abandon()
    return world


def lose(world: World, output: str, epoch: int) -> None:
    """Delete the files of a table that have rows of an epoch."""
    for path in (world.root / "lake" / output).glob("*.parquet"):
        if epoch in pa.parquet.read_table(path)["_epoch"].to_pylist():
            path.unlink()


@pytest.mark.parametrize("from_epoch", [None, SINCE])
def test_what_was_compacted_is_mended_as_the_one_epoch_that_it_is(world: World, from_epoch: int | None) -> None:
    before = rows(both(world), "late")
    lose(world, "late", SINCE)
    done = tg.repair(both(world), "late", from_epoch=from_epoch, engine="local")
    assert (done.rows, done.epochs[0][0]) == (4 if from_epoch is None else 6, 0)
    assert rows(both(world), "late") == before


def test_what_was_compacted_is_not_taken_for_nothing(world: World) -> None:
    """An earlier version did not record which epochs are one in a table."""
    with closing(sqlite3.connect(world.root / "flow.db")) as store, store:
        store.execute("DELETE FROM starts")
    before = rows(both(world), "late")
    assert [row["_epoch"] for row in before] == [SINCE] * 4 + [7, 8]
    lose(world, "late", SINCE)
    for from_epoch in (None, SINCE):
        with pytest.raises(EpochsCompacted):
            tg.repair(both(world), "late", from_epoch=from_epoch, engine="local")
    assert tg.repair(both(world), "late", from_epoch=0, engine="local").rows == 6
    assert rows(both(world), "late") == before


def test_a_table_that_was_there_before_the_compaction_is_repaired_from_there_on(world: World) -> None:
    before = rows(both(world), "orders")
    lose(world, "orders", 7)
    assert tg.repair(both(world), "orders", from_epoch=SINCE, engine="local").rows == 2
    assert rows(both(world), "orders") == before
