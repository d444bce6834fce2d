"""Outputs with patience: paused or failed, they bound what upstream is told for a while, and then no longer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from tests.flow.badinput import begin, rows, source
from tests.flow.by_hand import Run, World
from tests.flow.test_late_outputs import PAST, add, upper
from tests.flow.test_paused_outputs import decide

import tidegauge as tg
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.running import CannotPause
from tidegauge.remap.frontier import Frontier

HOUR = 3600.0

Function: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]


def with_patience(world: World, function: Function | None = None) -> tg.Dataflow:
    """The table `a`, and the table `late`, for which upstream waits for an hour."""
    flow = tg.Dataflow("shop", store=world.store)
    orders = source(world, flow, "orders")
    flow.sink("a", orders, tg.ParquetSink(str(world.root / "lake" / "a")))
    steps = orders if function is None else orders.map_batches(function)
    flow.sink("late", steps, tg.ParquetSink(str(world.root / "lake" / "late")), patience=HOUR)
    return flow


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Frontier]:
    """What upstream is told."""
    told: list[Frontier] = []
    monkeypatch.setattr(tg.FileSource, "acknowledge", lambda _self, frontier: told.append(frontier))
    return told


@pytest.fixture
def both(tmp_path: Path, told: list[Frontier]) -> Iterator[Run]:
    """A life in which both outputs are live."""
    run = begin(World(tmp_path, with_patience), with_patience)
    for n in range(PAST):
        add(run.world, n)
        run.catch_up()
    told.clear()
    yield run
    run.abandon()


def beyond(run: Run, told: list[Frontier], epoch: int) -> bool:
    """Whether upstream was told of anything that is bound to an epoch or later."""
    table = run.runner.board.timeline.tables["orders"]
    return any(not frontier.less_equal(table.inverse(epoch)) for frontier in told)


def until(run: Run, there: Callable[[], bool]) -> None:
    """Step until something is so."""
    for _ in range(400):
        if there():
            return
        run.step()
    raise AssertionError("it does not come")


def publish(run: Run, n: int) -> None:
    add(run.world, n)
    run.catch_up()
    run.step()


def test_upstream_waits_for_a_paused_output_until_its_patience_is_spent(both: Run, told: list[Frontier]) -> None:
    decide(both, tg.pause, "late")
    publish(both, PAST)
    both.world.clock.seconds += HOUR - 60
    publish(both, PAST + 1)
    assert not beyond(both, told, PAST), "the first epoch that it lacks is not an hour old"
    both.world.clock.seconds += 120
    both.runner.lease.renew()
    publish(both, PAST + 2)
    assert told[-1] == both.runner.board.timeline.tables["orders"].inverse(PAST + 3)


def test_an_output_that_comes_back_is_waited_for_again_and_upstream_hears_of_nothing_twice(
    both: Run, told: list[Frontier]
) -> None:
    table = both.runner.board.timeline.tables["orders"]
    decide(both, tg.pause, "late")
    publish(both, PAST)
    both.world.clock.seconds += HOUR + 1
    both.runner.lease.renew()
    publish(both, PAST + 1)
    assert told[-1] == table.inverse(PAST + 2)
    both.world.lag = 40
    add(both.world, PAST + 2)
    until(
        both, lambda: both.runner.board.upper == PAST + 3
    )  # the live one has two more lags to go, the late one three
    tg.unpause(both.flow, "late", env=both.world.env())
    both.runner.lease.renew()
    until(both, lambda: both.runner.board.published == PAST + 3)
    assert upper(both, "late") == PAST, "it catches up, with epochs that are older than its patience"
    until(both, lambda: told[-1] == table.inverse(PAST + 3))
    assert all(a.less_equal(b) and a != b for a, b in pairwise(told))
    assert rows(both.flow, "late") == rows(both.flow, "a")


def test_a_restart_does_not_begin_the_patience_anew(both: Run, told: list[Frontier]) -> None:
    decide(both, tg.pause, "late")
    publish(both, PAST)
    assert not beyond(both, told, PAST)
    both.abandon()
    both.world.clock.seconds += HOUR + 1
    again = begin(both.world, with_patience)
    again.step()
    assert beyond(again, told, PAST), "it is told as the run begins: what it lacks is an hour old by then"
    again.abandon()


def test_upstream_does_not_wait_for_ever_for_an_output_that_has_failed(tmp_path: Path, told: list[Frontier]) -> None:
    def refuse(batch: pa.RecordBatch) -> pa.RecordBatch:
        if PAST in batch["n"].to_pylist():
            raise ValueError("it is not wanted")
        return batch

    make = partial(with_patience, function=refuse)
    run = begin(World(tmp_path, make), make)
    for n in range(PAST + 1):
        add(run.world, n)
        run.catch_up()
    assert run.runner.board.outputs["late"].state == "failed"
    assert not beyond(run, told, PAST)
    run.world.clock.seconds += HOUR + 1
    run.runner.lease.renew()
    publish(run, PAST + 1)
    assert told[-1] == run.runner.board.timeline.tables["orders"].inverse(PAST + 2)
    run.abandon()


@pytest.mark.parametrize("wrong", [-1, True, "2 days", float("nan"), float("inf")])
def test_patience_is_a_number_of_seconds(tmp_path: Path, wrong: Any) -> None:
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db")
    orders = flow.source("orders", tg.GeneratorSource(5, columns="n long"))
    with pytest.raises(InvalidArgument, match="patience"):
        flow.sink("copy", orders, tg.ParquetSink(str(tmp_path / "copy")), patience=wrong)


def test_an_output_of_a_source_that_pushes_has_none(tmp_path: Path) -> None:
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db")
    feed = flow.source("feed", tg.SocketSource("127.0.0.1", 1, columns="n long"))
    with pytest.raises(CannotPause, match="pushes"):
        flow.sink("copy", feed, tg.ParquetSink(str(tmp_path / "copy")), patience=5)
