"""An output is added to a flow that runs: its driver goes over to the newer flow, and nobody restarts it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.command import FlowNeverRan
from tidegauge.errors.flow import UnknownName
from tidegauge.flow.adding import successor
from tidegauge.flow.dropping import without
from tidegauge.flow.spec import FlowSpec
from tidegauge.remap.store import Replacement


def write(root: Path, *keys: int) -> None:
    (root / "in").mkdir(exist_ok=True)
    with open(root / "in" / "1.jsonl", "a") as file:
        file.writelines(f"{json.dumps({'k': key})}\n" for key in keys)


def flow_of(root: Path, **how: Any) -> tg.Dataflow:
    """A source, and a table of all of it."""
    flow = tg.Dataflow(how.get("name", "shop"), store=f"sqlite:///{root}/shop.db", tick=how.get("tick", 0.01))
    rows = flow.source("rows", tg.FileSource(str(root / how.get("files", "in/*")), format=tg.Json("k long")))
    flow.sink("rows", rows.filter(how.get("condition", "k >= 0")), tg.DeltaSink(str(root / how.get("table", "rows"))))
    return flow


def add(flow: tg.Dataflow, root: Path, name: str = "late", **how: Any) -> None:
    flow.sink(name, tg.RowStream(flow, "rows"), tg.ParquetSink(str(root / name)), **how)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[tg.Dataflow, Any]]:
    """A flow that runs, and has read something."""
    write(tmp_path, 0, 1)
    flow = flow_of(tmp_path)
    with flow.start(engine="local") as run:
        eventually(lambda: run.status.published == 1)
        yield flow, run


def keys(flow: tg.Dataflow, output: str = "rows") -> list[tuple[int, int]]:
    table = tg.read_arrow(flow, output)
    return sorted(zip(table["_epoch"].to_pylist(), table["k"].to_pylist(), strict=True))


def test_an_output_is_taken_in_while_the_flow_runs(running: tuple[tg.Dataflow, Any], tmp_path: Path) -> None:
    flow, run = running
    add(flow, tmp_path)
    done = tg.add(flow, "late")
    assert (done.changed, bool(done.running)) == (True, True)
    assert flow.wait_until("late", "live", timeout=60).name == "late"
    write(tmp_path, 2)
    eventually(lambda: run.status.published == 2)
    eventually(lambda: keys(flow, "late") == keys(flow) == [(0, 0), (0, 1), (1, 2)])
    assert not tg.add(flow, "late").changed, "it has it"
    assert repr(run) == "FlowRun('shop': running)"


def test_one_output_after_another(running: tuple[tg.Dataflow, Any], tmp_path: Path) -> None:
    flow, _run = running
    for name in ("one", "two"):
        add(flow, tmp_path, name, start=tg.From("one") if name == "two" else None)
        tg.add(flow, name)
        write(tmp_path, 2)  # the driver hears of it when it binds something, at the latest after five seconds
        flow.wait_until(name, "live", timeout=60)
    assert keys(flow, "one") == keys(flow, "two") == keys(flow)


def test_an_output_that_the_driver_has_dropped_is_taken_in_again(tmp_path: Path) -> None:
    """Another one comes after it, and is the same in the newer flow although the driver's names nobody any more."""
    write(tmp_path, 0)
    flow = flow_of(tmp_path)
    add(flow, tmp_path)
    add(flow, tmp_path, "last", after="late")
    with flow.start(engine="local") as run:
        eventually(lambda: run.status.published == 1)
        tg.drop(flow, "late", table=True)
        write(tmp_path, 1)
        eventually(lambda: not (tmp_path / "late").exists())
        eventually(lambda: {one.name: one.state for one in tg.outputs(flow)}["late"] == "planned")
        assert tg.add(flow, "late").changed
        write(tmp_path, 2)
        flow.wait_until("late", "live", timeout=60)
        assert keys(flow, "late") == keys(flow)


def test_only_what_was_asked_for_is_taken_in(running: tuple[tg.Dataflow, Any], tmp_path: Path) -> None:
    flow, _run = running
    add(flow, tmp_path, "other")
    add(flow, tmp_path)
    tg.add(flow, "late")
    write(tmp_path, 2)
    flow.wait_until("late", "live", timeout=60)
    assert {one.name: one.state for one in tg.outputs(flow)}["other"] == "planned"
    assert not (tmp_path / "other").exists()


def test_a_run_that_is_stopped_meanwhile_ends(tmp_path: Path) -> None:
    write(tmp_path, 0)
    flow = flow_of(tmp_path)
    with flow.start(engine="local") as run:
        eventually(lambda: run.status.published == 1)
        add(flow, tmp_path)
        tg.add(flow, "late")
        run.stop()
        assert run.wait(60).why == "stopped"
    flow.run("caught-up", engine="local")
    assert keys(flow, "late") == keys(flow)


def test_the_next_run_has_it_anyway_and_the_decision_is_over(tmp_path: Path) -> None:
    """The driver is given no newer flow: it was begun by something else."""
    write(tmp_path, 0)
    old, new = flow_of(tmp_path), flow_of(tmp_path)
    add(new, tmp_path)
    with old.start(engine="local") as run:
        eventually(lambda: run.status.published == 1)
        assert tg.add(new, "late").changed
        assert not tg.add(new, "late").changed, "once is enough"
        write(tmp_path, 1)
        eventually(lambda: run._runner is not None and "'late' is not in it" in " ".join(run._runner.board.news))
        write(tmp_path, 2)
        eventually(lambda: run.status.published == 3)
    new.run("caught-up", engine="local")
    assert keys(new, "late") == keys(new)
    assert {one.name: one.paused for one in tg.outputs(new)} == {"rows": (), "late": ()}


def test_replaced_code_is_taken_over_by_the_driver_that_lacks_it(tmp_path: Path) -> None:
    write(tmp_path, 0, 1, 2)
    newest = [flow_of(tmp_path)]

    class Newer(tg.Dataflow):
        @property
        def spec(self) -> FlowSpec:
            return newest[0].spec

    flow = Newer("shop", store=newest[0].store, tick=0.01)
    with flow.start(engine="local") as run:
        eventually(lambda: run.status.published == 1)
        assert [k for _, k in keys(flow)] == [0, 1, 2]
        newest[0] = flow_of(tmp_path, condition="k > 1")
        tg.replace(newest[0], "rows")
        write(tmp_path, 1, 3)
        eventually(lambda: [k for _, k in keys(newest[0])] == [2, 3])


def test_what_is_no_output_of_the_flow_or_no_flow_yet_is_refused(tmp_path: Path) -> None:
    flow = flow_of(tmp_path)
    with pytest.raises(UnknownName):
        tg.add(flow, "late")
    with pytest.raises(FlowNeverRan):
        tg.add(flow, "rows")


def test_while_nobody_runs_the_flow_the_next_run_begins_with_it(tmp_path: Path) -> None:
    write(tmp_path, 0)
    flow = flow_of(tmp_path)
    flow.run("caught-up", engine="local")
    add(flow, tmp_path)
    done = tg.add(flow, "late")
    assert (done.changed, done.running) == (False, "")
    flow.run("caught-up", engine="local")
    assert keys(flow, "late") == keys(flow)


def test_an_output_that_comes_after_the_one_to_take_in_is_the_same_in_the_newer_flow(tmp_path: Path) -> None:
    """The driver has dropped that one, so its own flow names nobody any more."""
    new = flow_of(tmp_path)
    add(new, tmp_path)
    add(new, tmp_path, "last", after="late")
    found = successor(without(new.spec, {"late"}), new.spec, adding={"late"}, replacing={})
    assert not isinstance(found, str)
    assert found.outputs["last"].after == ("late",)


def with_late(root: Path, **how: Any) -> FlowSpec:
    flow = flow_of(root, **how)
    add(flow, root)
    return flow.spec


@pytest.mark.parametrize(
    ("newer", "why"),
    [
        (lambda root: with_late(root, name="other"), "it has another name or store"),
        (lambda root: replace(with_late(root), store="sqlite:///other.db"), "it has another name or store"),
        (lambda root: with_late(root, tick=5.0), "it mints epochs by another rule"),
        (lambda root: with_late(root, files="elsewhere/*"), "source 'rows' is another one in it"),
        (lambda root: replace(with_late(root), required=frozenset({"rows"})), "source 'rows' is another one in it"),
        (lambda root: replace(with_late(root), sources={}), "source 'rows' is gone from it"),
        (lambda root: replace(with_late(root), outputs={}), "output 'rows' is gone from it"),
        (lambda root: with_late(root, table="moved"), "output 'rows' has another table in it"),
        (lambda root: with_late(root, condition="k > 1"), "output 'rows' has other code in it"),
        (lambda root: flow_of(root).spec, "output 'late' is not in it"),
    ],
)
def test_a_newer_flow_that_differs_in_anything_else_is_not_taken(
    tmp_path: Path, newer: Callable[[Path], FlowSpec], why: str
) -> None:
    assert successor(flow_of(tmp_path).spec, newer(tmp_path), adding={"late"}, replacing={}) == why


def test_options_of_an_output_are_compared(tmp_path: Path) -> None:
    old, new = flow_of(tmp_path), flow_of(tmp_path)
    add(old, tmp_path, "some")
    add(new, tmp_path, "some", patience=60)
    add(new, tmp_path)
    assert successor(old.spec, new.spec, adding={"late"}, replacing={}) == "output 'some' has other options in it"


def test_code_that_was_not_decided_does_not_replace(tmp_path: Path) -> None:
    old, new = flow_of(tmp_path).spec, flow_of(tmp_path, condition="k > 1").spec
    other = Replacement("rows", "e" * 32, "{}", None)  # type: ignore[arg-type]
    assert successor(old, new, adding=(), replacing={"rows": other}) == "output 'rows' has other code in it"
    why = "output 'rows' does not have the code that its table is to be replaced with in it"
    assert successor(old, old, adding=(), replacing={"rows": other}) == why
