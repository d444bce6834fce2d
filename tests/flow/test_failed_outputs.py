"""An output that failed for a reason of its own is failed until a run gets past it, whatever dies in between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.flow.badinput import begin, beside, finish, lines, numbers, report, source, states, two, write
from tests.flow.by_hand import Crash, World

import tidegauge as tg
from tidegauge.errors.engine import SchemaUnknown
from tidegauge.errors.flow import BatchFunctionFailed
from tidegauge.errors.sinks import ForeignTable, UnsupportedTable
from tidegauge.job import portion
from tidegauge.remap.store import EXPIRY, Store


def refuse_three(batch: pa.RecordBatch) -> pa.RecordBatch:
    if 3 in batch["n"].to_pylist():
        raise ValueError("three is not wanted")
    return batch


def accept(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


BAD, MENDED = beside(refuse_three), beside(accept)


def failing(world: World) -> None:
    """Epochs 0 to 2, of which the output `picky` cannot take epoch 1."""
    path = write(world.root / "a" / "1.jsonl", lines(1, 2))
    finish(world)
    write(path, lines(3))
    finish(world)
    write(path, lines(4))
    finish(world)


def picky(world: World) -> Any:
    return next(output for output in report(world).outputs if output.name == "picky")


def stored(world: World) -> tuple[int, tg.TidegaugeError] | None:
    """What the store says of the output `picky`."""
    store = Store.open(world.store, env=tg.Env())
    try:
        return store.load("picky").outputs["picky"].failure
    finally:
        store.close()


def test_while_no_driver_runs_the_status_says_failed_and_why(tmp_path: Path) -> None:
    world = World(tmp_path, BAD)
    failing(world)
    found = picky(world)
    assert (found.state, found.upper, found.lag) == ("failed", 1, 2)
    assert isinstance(found.error, BatchFunctionFailed)
    assert found.error.evidence["epoch"] == 1
    assert "three is not wanted" in str(found.error)
    assert states(report(world).outputs)["a"] == "live"
    assert numbers(BAD(world), "a") == [1, 2, 3, 4]


def test_a_run_tries_again_and_what_fails_again_is_failed_again(tmp_path: Path) -> None:
    world = World(tmp_path, BAD)
    failing(world)
    run = begin(world)
    seen = [run.runner.board.outputs["picky"].state]
    run.catch_up()
    seen.append(run.runner.board.outputs["picky"].state)
    assert [error.code for error in run.runner.board.errors] == ["TG-0110"]
    run.abandon()
    assert seen == ["catching_up", "failed"]
    assert picky(world).state == "failed"


def test_a_run_with_the_mended_function_gets_past_it_and_the_failure_is_gone_for_good(tmp_path: Path) -> None:
    world = World(tmp_path, BAD)
    failing(world)
    assert stored(world) is not None
    finish(world, MENDED)
    assert (picky(world).state, picky(world).error, stored(world)) == ("live", None, None)
    assert numbers(MENDED(world), "picky") == [1, 2, 3, 4]


def test_a_later_failure_takes_the_place_of_one_that_is_passed(tmp_path: Path) -> None:
    def refuse_four(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if 4 not in batch["n"].to_pylist() else batch.slice("four")

    world = World(tmp_path, BAD)
    failing(world)
    finish(world, beside(refuse_four))
    failure = stored(world)
    assert failure is not None
    assert failure[0] == 2
    assert (picky(world).state, picky(world).upper) == ("failed", 2)
    assert numbers(BAD(world), "picky") == [1, 2, 3]


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_crash_around_the_record_of_a_failure_changes_nothing_in_the_end(side: str, tmp_path: Path) -> None:
    world = World(tmp_path, BAD, strike=f"{side} record output failure")
    with pytest.raises(Crash):
        failing(world)
    assert (stored(world) is None) == (side == "before")
    assert picky(world).state == ("live" if side == "before" else "failed"), "nobody has published without it yet"
    write(tmp_path / "a" / "1.jsonl", lines(4))
    finish(world)
    found = picky(world)
    assert (found.state, found.upper, found.error.code) == ("failed", 1, "TG-0110")
    assert numbers(BAD(world), "a") == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "point", ["after commit output", "before record output failure", "after record output failure"]
)
def test_a_crash_on_the_way_past_a_failure_never_shows_one_that_is_over(point: str, tmp_path: Path) -> None:
    world = World(tmp_path, BAD)
    failing(world)
    world.strike = point
    with pytest.raises(Crash):
        finish(world, MENDED)
    assert (stored(world) is None) == (point == "after record output failure")
    assert (picky(world).state, picky(world).error) == ("live", None), "the table holds the epoch, and that counts"
    world.clock.seconds += EXPIRY
    finish(world)
    assert (picky(world).state, stored(world)) == ("live", None)
    assert numbers(MENDED(world), "picky") == [1, 2, 3, 4]


def test_a_step_that_does_not_fit_inferred_columns_is_remembered_too(tmp_path: Path) -> None:
    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("picky", store=world.store)
        a = source(world, flow, "a", format=tg.Json(), metadata=False)
        flow.sink("a", a, tg.DeltaSink(str(world.root / "lake" / "a")))
        flow.sink(
            "picky", a.map_batches(lambda b: b.select(["more"])), tg.ParquetSink(str(world.root / "lake" / "p"))
        )
        return flow

    world = World(tmp_path, make)
    write(tmp_path / "a" / "1.jsonl", lines(1))
    finish(world)
    assert picky(world).state == "failed"
    assert isinstance(picky(world).error, SchemaUnknown)


# A table that refuses.


def pieces(world: World) -> dict[str, Any]:
    return {output.name: output for output in report(world).outputs}


def test_a_table_that_refuses_a_commit_fails_its_output_alone(tmp_path: Path) -> None:
    world = World(tmp_path, two)
    write(tmp_path / "a" / "1.jsonl", lines(1))
    write(tmp_path / "b" / "1.jsonl", lines(101))
    finish(world)
    table = DeltaTable(str(tmp_path / "lake" / "a"))
    table.alter.add_constraint({"small": "n < 1000"})
    write(tmp_path / "a" / "1.jsonl", lines(2))
    write(tmp_path / "b" / "1.jsonl", lines(102))
    run = begin(world)
    run.catch_up()
    write(tmp_path / "a" / "1.jsonl", lines(3))
    write(tmp_path / "b" / "1.jsonl", lines(103))
    run.catch_up()
    board = run.runner.board
    assert {name: o.state for name, o in board.outputs.items()} == {"a": "failed", "b": "live"}
    assert [error.code for error in board.errors] == ["TG-0419"]
    staged = world.points.count("before stage")
    write(tmp_path / "a" / "1.jsonl", lines(4))
    run.catch_up()
    assert world.points.count("before stage") == staged, "nothing is staged for a table that has refused"
    run.abandon()
    assert numbers(two(world), "b") == [101, 102, 103]
    found = pieces(world)["a"]
    assert (found.state, found.upper) == ("failed", 1)
    assert isinstance(found.error, UnsupportedTable)
    committed = {Path(uri).name for uri in DeltaTable(str(tmp_path / "lake" / "a")).file_uris()}
    assert {path.name for path in (tmp_path / "lake" / "a").glob("*.parquet")} == committed, "what was staged is gone"

    DeltaTable(str(tmp_path / "lake" / "a")).alter.drop_constraint("small")
    finish(world)
    assert states(report(world).outputs) == {"a": "live", "b": "live"}
    assert numbers(two(world), "a") == [1, 2, 3, 4]


def without_a(world: World) -> tg.Dataflow:
    """The flow of `two` while nobody wants `a`."""
    flow = tg.Dataflow("two", store=world.store)
    source(world, flow, "a")
    flow.sink("b", source(world, flow, "b"), tg.ParquetSink(str(world.root / "lake" / "b")))
    return flow


@pytest.mark.parametrize("lag", [0, 1, 5])
def test_a_table_that_refuses_while_the_next_job_is_under_way(
    lag: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, lake = World(tmp_path, two), str(tmp_path / "lake" / "a")
    write(tmp_path / "a" / "1.jsonl", lines(0))
    finish(world)
    for n in range(1, 7):
        write(tmp_path / "a" / "1.jsonl", lines(n))
        finish(world, without_a)
    DeltaTable(lake).alter.add_constraint({"small": "n < 1000"})
    monkeypatch.setattr(portion, "JOB_LIMITS", {"bytes": 1})
    world.lag = lag
    world.points.clear()
    run = begin(world, two)
    write(tmp_path / "b" / "1.jsonl", lines(101))
    run.catch_up()
    assert {name: o.state for name, o in run.runner.board.outputs.items()} == {"a": "failed", "b": "live"}
    run.abandon()
    assert numbers(two(world), "b") == [101]
    assert world.points.count("before record output failure") == 1
    if lag:  # without, all jobs are done before the table is asked
        said = "what it refused, what was staged and what was under way by then, what the other one got"
        assert world.points.count("before stage") <= 4, said
    committed = {Path(uri).name for uri in DeltaTable(lake).file_uris()}
    assert {path.name for path in Path(lake).glob("*.parquet")} == committed, "what was staged is gone"


def test_a_table_that_cannot_be_opened_does_not_hide_the_others(tmp_path: Path) -> None:
    world = World(tmp_path, two)
    write(tmp_path / "b" / "1.jsonl", lines(1))
    write(tmp_path / "a" / "1.jsonl", lines(1))
    finish(world)
    (tmp_path / "lake" / "b" / "mine.csv").touch()
    found = pieces(world)
    assert (found["a"].state, found["a"].rows, found["b"].state) == ("live", 1, "failed")
    assert isinstance(found["b"].error, ForeignTable)


# Before the first run, and at the start of one.


def with_late(world: World) -> tg.Dataflow:
    """The flow of `two` with one more output, and one more source with an output."""
    flow = two(world)
    late = source(world, flow, "c")
    flow.sink("late", late, tg.ParquetSink(str(world.root / "lake" / "late")))
    return flow


def late_output(world: World) -> tg.Dataflow:
    flow = tg.Dataflow("two", store=world.store)
    a = source(world, flow, "a")
    flow.sink("a", a, tg.DeltaSink(str(world.root / "lake" / "a")))
    flow.sink("b", source(world, flow, "b"), tg.ParquetSink(str(world.root / "lake" / "b")))
    flow.sink("late", a, tg.ParquetSink(str(world.root / "lake" / "late")))
    return flow


@pytest.mark.parametrize("make", [with_late, late_output])
def test_a_sink_that_was_added_and_has_not_run_is_planned(
    make: Callable[[World], tg.Dataflow], tmp_path: Path
) -> None:
    world = World(tmp_path, two)
    write(tmp_path / "a" / "1.jsonl", lines(1))
    finish(world)
    flow = make(world)
    found = tg.status(flow)
    assert states(found.outputs) == {"a": "live", "b": "live", "late": "planned"}
    late = next(output for output in found.outputs if output.name == "late")
    assert (late.upper, late.lag, late.rows, late.error) == (0, 1, 0, None)
    assert states(found.sources) == {"a": "idle", "b": "starting"} | ({"c": "starting"} if make is with_late else {})
    assert not (tmp_path / "lake" / "late").exists(), "looking makes nothing"
    with pytest.raises(tg.TidegaugeError, match="TG-06"):
        tg.read_arrow(flow, "late")


def test_a_late_output_is_never_called_live_before_it_is(tmp_path: Path) -> None:
    world = World(tmp_path, two)
    for n in range(3):
        write(tmp_path / "a" / "1.jsonl", lines(n))
        finish(world)
    run = begin(world, late_output)
    board = run.runner.board
    seen: list[tuple[str, int]] = []

    def look() -> None:
        now = (board.outputs["late"].state, board.outputs["late"].lag)
        if not seen or seen[-1] != now:
            seen.append(now)

    look()
    board._changed = lambda _board: look()
    run.catch_up()
    run.abandon()
    assert seen == [("backfilling", 3), ("live", 0)]
    assert board.outputs["a"].state == "live"


def test_an_output_that_lacks_only_epochs_without_content_is_live_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, two)
    for n in range(3):
        write(tmp_path / "a" / "1.jsonl", lines(n))
        finish(world)
    run = begin(world)
    found = run.runner.board.outputs["b"]
    run.abandon()
    assert (found.state, found.upper, found.lag) == ("live", 3, 0)
