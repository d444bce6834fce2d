"""Late outputs that come after others: they begin to catch up once those are live, and nobody waits for ever."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.flow.badinput import begin, numbers, rows, source, states
from tests.flow.by_hand import Crash, Run, World
from tests.flow.test_late_outputs import PAST, add, alone, upper
from tests.flow.test_paused_outputs import decide, published

import tidegauge as tg
from tidegauge.backfill.order import waiting
from tidegauge.errors.flow import InvalidArgument, NotDeclaredBefore
from tidegauge.errors.running import CannotPause
from tidegauge.job import portion


def ordered(*, fails: bool = False, live: bool = True) -> Callable[[World], tg.Dataflow]:
    """The table `a`, and the new tables `first` and `second`, which comes after the former."""

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = source(world, flow, "orders")

        def refuse(batch: Any) -> Any:
            if fails and batch.num_rows:
                raise ValueError("not these")
            return batch

        if live:
            flow.sink("a", orders, tg.DeltaSink(str(world.root / "lake" / "a")))
        flow.sink("first", orders.map_batches(refuse), tg.ParquetSink(str(world.root / "lake" / "first")))
        flow.sink("second", orders, tg.ParquetSink(str(world.root / "lake" / "second")), after="first")
        return flow

    return make


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A flow with one table, that has run for some epochs; a job of late outputs takes one epoch."""
    monkeypatch.setitem(portion.JOB_LIMITS, "bytes", 1)
    world = World(tmp_path, alone)
    run = begin(world)
    for n in range(PAST):
        add(world, n)
        run.catch_up()
    run.abandon()
    return world


def staged(world: World, output: str) -> int:
    """How many units of an output's past are staged."""
    backfill = world.loaded().backfills.get(output)
    return 0 if backfill is None else len(backfill.units)


def shown(run: Run) -> dict[str, str]:
    return states(run.runner.board.outputs.values())


def test_a_late_output_begins_when_those_that_it_comes_after_are_live(world: World) -> None:
    world.lag = 5
    run = begin(world, ordered())
    assert run.runner.board.outputs["second"].paused == ("order",)
    seen = [shown(run)]
    while shown(run)["second"] != "live":
        run.step()
        seen.append(shown(run))
        if seen[-1]["first"] != "live":
            assert staged(world, "second") == 0
    assert [state for state, _ in itertools.groupby(one["second"] for one in seen)] == [
        "paused",
        "backfilling",
        "live",
    ]
    run.abandon()
    assert rows(ordered()(world), "second") == rows(ordered()(world), "a")


def test_a_run_that_is_to_catch_up_waits_for_all_of_them_in_turn(world: World) -> None:
    world.lag = 5
    run = begin(world, ordered())
    run.catch_up()
    assert shown(run) == {"a": "live", "first": "live", "second": "live"}
    run.abandon()


def test_those_who_are_live_wait_for_nobody_who_waits(world: World) -> None:
    tg.pause(ordered()(world), "first", env=world.env())
    run = begin(world, ordered())
    add(world, PAST)
    run.catch_up()
    assert shown(run) == {"a": "live", "first": "paused", "second": "paused"}
    assert (upper(run, "a"), published(run), staged(world, "second")) == (PAST + 1, PAST + 1, 0)
    [_, first, second] = tg.outputs(ordered()(world))
    assert ([pause.reason for pause in first.paused], first.waits_for) == (["operator"], ())
    assert ([pause.reason for pause in second.paused], second.waits_for) == (["order"], ("first",))
    decide(run, tg.unpause, "first")
    run.catch_up()
    run.abandon()
    assert rows(ordered()(world), "second") == rows(ordered()(world), "a")


def test_the_reasons_are_independent_of_each_other(world: World) -> None:
    tg.pause(ordered()(world), "second", env=world.env())
    run = begin(world, ordered())
    why = [run.runner.board.outputs["second"].paused]
    run.catch_up()
    why.append(run.runner.board.outputs["second"].paused)
    assert why == [("operator", "order"), ("operator",)]
    decide(run, tg.unpause, "second")
    run.catch_up()
    assert shown(run)["second"] == "live"
    run.abandon()


def test_an_output_that_comes_after_one_that_has_failed_waits_and_says_so(world: World) -> None:
    run = begin(world, ordered(fails=True))
    run.catch_up()
    assert shown(run) == {"a": "live", "first": "failed", "second": "paused"}
    assert staged(world, "second") == 0
    run.abandon()
    [_, first, second] = tg.outputs(ordered(fails=True)(world))
    assert (first.state, second.state, second.waits_for) == ("failed", "paused", ("first",))
    run = begin(world, ordered())
    run.catch_up()
    assert shown(run) == {"a": "live", "first": "live", "second": "live"}
    run.abandon()


def test_an_output_that_is_live_is_never_held_by_its_order(world: World) -> None:
    run = begin(world, ordered())
    run.catch_up()
    decide(run, tg.pause, "first")
    add(world, PAST)
    run.catch_up()
    assert shown(run) == {"a": "live", "first": "paused", "second": "live"}
    run.abandon()
    assert numbers(ordered()(world), "second") == list(range(PAST + 1))


def test_the_order_holds_also_where_no_output_holds_what_is_published(world: World) -> None:
    world.lag = 5
    run = begin(world, ordered(live=False))
    assert shown(run)["second"] == "paused"
    assert world.loaded().backfills.keys() == {"second"}, "its past is to show at once"
    while shown(run)["first"] != "live":
        assert staged(world, "second") == 0
        assert upper(run, "second") == 0
        run.step()
    run.catch_up()
    run.abandon()
    assert numbers(ordered()(world), "second") == numbers(ordered()(world), "first") == list(range(PAST))


@pytest.mark.parametrize("point", ["after record unit", "after commit output", "before commit output"])
def test_a_driver_that_dies_leaves_nothing_of_the_order_behind(world: World, point: str) -> None:
    world.strike = point
    run = begin(world, ordered())
    with pytest.raises(Crash):
        run.catch_up()
    world.clock.seconds += 1000
    run = begin(world, ordered())
    run.catch_up()
    assert shown(run) == {"a": "live", "first": "live", "second": "live"}
    run.abandon()
    assert rows(ordered()(world), "second") == rows(ordered()(world), "a")


def test_outputs_cannot_come_after_each_other_nor_after_one_that_is_not_there() -> None:
    flow = tg.Dataflow("shop", store="sqlite:///shop.db")
    orders = flow.source("orders", tg.GeneratorSource(5, columns="n long"))
    with pytest.raises(NotDeclaredBefore, match="declare 'b' first"):
        flow.sink("a", orders, tg.ParquetSink("lake/a"), after="b")
    with pytest.raises(NotDeclaredBefore):
        flow.sink("a", orders, tg.ParquetSink("lake/a"), after=["a"])
    flow.sink("a", orders, tg.ParquetSink("lake/a"))
    flow.sink("b", orders, tg.ParquetSink("lake/b"), after=["a", "a"])
    assert flow.outputs["b"].after == ("a",)
    for wrong in (1, ["a", 1], None):
        with pytest.raises(InvalidArgument, match="after"):
            flow.sink("c", orders, tg.ParquetSink("lake/c"), after=wrong)  # type: ignore[arg-type]


def test_an_output_of_a_source_that_pushes_cannot_wait(tmp_path: Path) -> None:
    flow = tg.Dataflow("fed", store=f"sqlite:///{tmp_path}/flow.db")
    feed = flow.source("feed", tg.SocketSource("127.0.0.1", 1, columns="n long"))
    flow.sink("all", feed, tg.ParquetSink(str(tmp_path / "all")))
    with pytest.raises(CannotPause, match="TG-0559"):
        flow.sink("more", feed, tg.ParquetSink(str(tmp_path / "more")), after="all")


@st.composite
def flows(draw: st.DrawFn) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Outputs in the order of their declaration, what each comes after, and their states but for the order."""
    found = [st.lists(st.sampled_from(range(n)), unique=True) if n else st.just([]) for n in range(6)]
    after = {f"o{n}": [f"o{one}" for one in draw(some)] for n, some in enumerate(found)}
    return after, {name: draw(st.sampled_from(["live", "catching_up", "paused", "failed"])) for name in after}


@given(flows())
def test_each_that_waits_does_so_in_the_end_for_one_that_waits_for_nobody(
    flow: tuple[dict[str, list[str]], dict[str, str]],
) -> None:
    after, found = flow
    late = {name for name, state in found.items() if state != "live"}
    waits = waiting(after, found, late=late)
    assert waits.keys() == {name for name in late if any(found[one] != "live" for one in after[name])}
    for name in waits:
        reached, new = set[str](), {name}
        while new:
            reached |= new
            new = {one for other in new for one in waits.get(other, ())} - reached
        assert reached - waits.keys()
        assert all(found[one] != "live" for one in reached)
