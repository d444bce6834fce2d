"""Whether what was sent is in every table, asked from outside, also while drivers die."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep
from tests.flow.badinput import begin, beside, finish, lines, source, write
from tests.flow.by_hand import Crash, World

import tidegauge as tg
from tidegauge.errors.flow import InvalidArgument, UnknownName


def visits(world: World) -> tg.Dataflow:
    """One source, two tables."""
    flow = tg.Dataflow("visits", store=world.store)
    a = source(world, flow, "a", metadata=False)
    flow.sink("all", a, tg.DeltaSink(str(world.root / "lake" / "all")))
    flow.sink("large", a.filter("n > 1"), tg.ParquetSink(str(world.root / "lake" / "large")))
    return flow


def numbers(flow: tg.Dataflow, output: str, as_of: tg.AsOf = None) -> list[int]:
    return sorted(tg.read_arrow(flow, output, as_of=as_of)["n"].to_pylist())


def wanted(file: Path) -> dict[str, dict[str, int]]:
    """The position after all that is in a file now."""
    return {"a": {str(file): file.stat().st_size}}


def test_the_epoch_that_comes_back_has_it_in_every_table(tmp_path: Path) -> None:
    world = World(tmp_path, visits)
    file = write(tmp_path / "a" / "1.jsonl", lines(1, 2, 3))
    positions = wanted(file)
    finish(world)
    write(file, lines(4, 5))
    finish(world)
    flow = visits(world)
    assert flow.wait_for(positions) == 0
    assert numbers(flow, "all", as_of=flow.wait_for(positions)) == [1, 2, 3]
    assert numbers(flow, "large", as_of=flow.wait_for("now")) == [2, 3, 4, 5]


def test_what_is_missing_is_said_when_the_time_is_up(tmp_path: Path) -> None:
    world = World(tmp_path, visits)
    flow = visits(world)
    positions = wanted(write(tmp_path / "a" / "1.jsonl", lines(1)))
    with pytest.raises(TimeoutError, match=r"flow 'visits' has not run, which was to be in every table within 0 s"):
        flow.wait_for(positions, timeout=0)
    finish(world)
    write(tmp_path / "a" / "2.jsonl", lines(2))
    with pytest.raises(TimeoutError, match=r"is none of the 1 partitions that source 'a' has bound, which was"):
        flow.wait_for(wanted(tmp_path / "a" / "2.jsonl"), timeout=0)
    write(tmp_path / "a" / "1.jsonl", lines(3))
    with pytest.raises(TimeoutError, match=r"is in no epoch yet"):
        flow.wait_for("now", timeout=0)


def test_a_line_that_is_being_written_is_no_record_to_wait_for(tmp_path: Path) -> None:
    world = World(tmp_path, visits)
    write(tmp_path / "a" / "1.jsonl", lines(1) + '{"n": 2, ')
    finish(world)
    assert visits(world).wait_for("now", timeout=0) == 0


def test_a_paused_output_is_waited_for_unless_others_are_named(tmp_path: Path) -> None:
    world = World(tmp_path, visits)
    file = write(tmp_path / "a" / "1.jsonl", lines(1))
    finish(world)
    flow = visits(world)
    tg.pause(flow, "large")
    positions = wanted(write(file, lines(3)))
    finish(world)
    with pytest.raises(TimeoutError, match=r"output 'large' is paused and does not hold epoch 1"):
        flow.wait_for(positions, timeout=0)
    assert flow.wait_for(positions, outputs=["all"], timeout=0) == 1


def test_an_output_that_has_failed_says_why(tmp_path: Path) -> None:
    def picky(batch: Any) -> Any:
        if 2 in batch["n"].to_pylist():
            raise ValueError("two")
        return batch

    world = World(tmp_path, beside(picky))
    file = write(tmp_path / "a" / "1.jsonl", lines(1))
    finish(world)
    positions = wanted(write(file, lines(2)))
    finish(world)
    flow = world.make(world)
    with pytest.raises(tg.TidegaugeError, match="two"):
        flow.wait_for(positions, timeout=0)
    assert flow.wait_for(positions, outputs=["a"], timeout=0) == 1


@pytest.mark.parametrize(
    "positions",
    [{}, {"a": {}}, {"a": 5}, {"a": {"p": -1}}, {"a": {"p": "5"}}, {"a": {True: 5}}, {1: {"p": 5}}, 7, "then"],
)
def test_positions_are_of_sources_partitions_and_whole_numbers(tmp_path: Path, positions: Any) -> None:
    with pytest.raises(InvalidArgument):
        visits(World(tmp_path, visits)).wait_for(positions, timeout=0)


def test_names_are_known(tmp_path: Path) -> None:
    flow = visits(World(tmp_path, visits))
    with pytest.raises(UnknownName):
        flow.wait_for({"b": {0: 1}}, timeout=0)
    with pytest.raises(UnknownName):
        flow.wait_for("now", outputs=["even"], timeout=0)


@deep(60)
@given(crash_at=st.integers(0, 60), again=st.integers(0, 40))
def test_whatever_dies_it_never_returns_before_every_table_has_it(
    tmp_path_factory: pytest.TempPathFactory, crash_at: int, again: int
) -> None:
    root = tmp_path_factory.mktemp("waiting")
    world = World(root, visits)
    flow = visits(world)
    file = write(root / "a" / "1.jsonl", lines(1, 2))
    sent = [(wanted(file), [1, 2])]

    def look() -> int:
        """Ask of everything that was sent; return how much of it is there."""
        found = 0
        for positions, there in sent:
            try:
                epoch = flow.wait_for(positions, timeout=0)
            except TimeoutError:
                break
            found += 1
            assert set(there) <= set(numbers(flow, "all", as_of=epoch))
            assert {n for n in there if n > 1} <= set(numbers(flow, "large", as_of=epoch))
        return found

    for death in (crash_at, again, None):
        world.crash_at = death
        try:
            run = begin(world)
        except Crash:
            continue
        try:
            for n in (3, 4):
                look()
                run.step()
                write(file, lines(10 * len(sent) + n))
                sent.append((wanted(file), [10 * len(sent) + n]))
            run.catch_up()
        except Crash:
            look()
            world.clock.seconds += 100
        finally:
            run.abandon()
    assert look() == len(sent)
