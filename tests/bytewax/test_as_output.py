"""Sinks of bytewax as outputs: every row at least once, and once where the sink resumes from its state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from bytewax.connectors.files import DirSink, FileSink
from bytewax.outputs import DynamicSink, FixedPartitionedSink, StatefulSinkPartition, StatelessSinkPartition
from bytewax.testing import TestingSink
from tests.flow.by_hand import Crash, World

import tidegauge as tg
from tidegauge.bytewax import as_output
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.foreach import EpochFunctionFailed


@dataclass
class Theirs(World):
    """A world with an output into a sink of bytewax. made: makes the sink, as each process does anew."""

    made: Callable[[Path], tg.ForeachEpochSink] = field(default=lambda root: files(root))


def files(root: Path) -> tg.ForeachEpochSink:
    sink = DirSink(root / "out", 3, assign_file=int)
    return as_output(sink, str(root / "progress"), item=lambda row: (str(row["n"]), str(row["n"])))


def flow_of(world: World) -> tg.Dataflow:
    assert isinstance(world, Theirs)
    flow = tg.Dataflow("shop", store=world.store, tick=0.3)
    lines = flow.source("lines", tg.FileSource(str(world.root / "in.jsonl"), format=tg.Json("n long")))
    flow.sink("theirs", lines, world.made(world.root))
    return flow


def fill(root: Path, *numbers: int) -> None:
    with open(root / "in.jsonl", "a") as file:
        file.write("".join(f'{{"n": {n}}}\n' for n in numbers))


def written(root: Path) -> list[int]:
    return sorted(int(line) for path in (root / "out").iterdir() for line in path.read_text().split())


def run_once(world: Theirs) -> None:
    run = world.start()
    run.catch_up()
    run.abandon()
    world.clock.seconds += 60


def fresh(root: Path, made: Callable[[Path], tg.ForeachEpochSink] = files) -> Theirs:
    (root / "out").mkdir(parents=True)
    fill(root, 0, 1, 2, 3)
    return Theirs(root, flow_of, made=made)


def test_a_driver_that_dies_anywhere_leaves_every_row_once_where_the_sink_resumes(tmp_path: Path) -> None:
    at = died = 0
    while True:
        world = fresh(tmp_path / str(at))
        run_once(world)
        fill(world.root, 4, 5, 6)
        world.crash_at = at
        try:
            run_once(world)
        except Crash:
            died += 1
            world.crash_at = None
            world.clock.seconds += 60
            run_once(world)
            assert written(world.root) == [*range(7)]
            at += 1
            continue
        break
    assert written(world.root) == [*range(7)]
    assert died > 5


@dataclass
class Dying(FixedPartitionedSink[Any, int]):
    """Lists, cut off at the state; the process dies in a write, or in a snapshot, where it is told to."""

    lists: dict[str, list[Any]]
    strike: str = ""
    built: list[tuple[str, Any]] = field(default_factory=list)

    def list_parts(self) -> list[str]:
        return list(self.lists)

    def part_fn(self, item_key: str) -> int:
        return int(item_key)

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Any:
        self.built.append((for_part, resume_state))
        sink, rows = self, self.lists[for_part]
        del rows[resume_state or 0 :]

        class Part(StatefulSinkPartition[Any, int]):
            def write_batch(self, values: list[Any]) -> None:
                rows.extend(values)
                sink.die("write")

            def snapshot(self) -> int:
                sink.die("snapshot")
                return len(rows)

        return Part()

    def die(self, where: str) -> None:
        if self.strike == where:
            self.strike = ""
            raise Crash(where)


@pytest.mark.parametrize("strike", ["write", "snapshot"])
def test_an_epoch_that_was_not_kept_is_written_again_from_the_state_before_it(tmp_path: Path, strike: str) -> None:
    sink = Dying({"b": [], "a": []})
    world = fresh(
        tmp_path / "it", lambda root: as_output(sink, str(root / "p"), item=lambda row: (str(row["n"]), row["n"]))
    )
    run_once(world)
    assert sink.lists == {"a": [0, 2], "b": [1, 3]}
    fill(world.root, 4, 5)
    sink.strike = strike
    with pytest.raises(Crash):
        run_once(world)
    world.clock.seconds += 60
    sink.built.clear()
    run_once(world)
    assert sink.lists == {"a": [0, 2, 4], "b": [1, 3, 5]}
    assert sink.built == [("a", 2), ("b", 2)]


def test_a_sink_without_a_state_gets_every_row_at_least_once(tmp_path: Path) -> None:
    given = list[dict[str, Any]]()

    class Radio(DynamicSink[Any]):
        left = 1

        def build(self, step_id: str, worker_index: int, worker_count: int) -> Any:
            radio = self

            class Part(StatelessSinkPartition[Any]):
                def write_batch(self, items: list[Any]) -> None:
                    given.extend(items)
                    if radio.left:
                        radio.left -= 1
                        raise ConnectionError("the line is busy")

            return Part()

    radio = Radio()
    world = fresh(tmp_path / "it", lambda root: as_output(radio, str(root / "progress")))
    run_once(world)
    counts = Counter(row["n"] for row in given)
    assert counts == {0: 2, 1: 2, 2: 2, 3: 2}
    assert {row["_epoch"] for row in given} == {0}


def test_bytewax_s_file_has_the_rows_of_each_run_once(tmp_path: Path) -> None:
    def made(root: Path) -> tg.ForeachEpochSink:
        return as_output(FileSink(root / "out" / "a"), str(root / "progress"), item=lambda row: ("", str(row["n"])))

    world = fresh(tmp_path / "it", made)
    for n in range(4, 8):
        run_once(world)
        fill(world.root, n)
    run_once(world)
    assert (world.root / "out" / "a").read_text().split() == [str(n) for n in range(8)]


@pytest.mark.parametrize(
    ("item", "shape", "problem"),
    [
        (lambda row: row["n"], len, "item= returned a int"),
        (lambda row: (row["n"], 1), len, "item= returned a tuple"),
        (lambda row: ("0", row["n"]), lambda rows: object(), "the state of partition 'a' cannot be kept"),
    ],
)
def test_what_cannot_be_written_or_kept_fails_the_output_by_name(
    tmp_path: Path, item: Any, shape: Any, problem: str
) -> None:
    class Odd(Dying):
        def build_part(self, step_id: str, for_part: str, resume_state: Any) -> Any:
            part = super().build_part(step_id, for_part, None)
            part.snapshot = lambda: shape(self.lists[for_part])
            return part

    world = fresh(tmp_path / "it", lambda root: as_output(Odd({"a": []}), str(root / "p"), item=item))
    run = world.start()
    for _ in range(20):
        run.step()
    run.abandon()
    [output] = tg.outputs(world.make(world))
    assert isinstance(output.error, EpochFunctionFailed)
    assert "TG-0986" in output.error.summary
    assert problem in output.error.summary


def test_states_of_another_output_are_refused(tmp_path: Path) -> None:
    world = fresh(tmp_path / "it")
    (world.root / "progress").mkdir()
    (world.root / "progress" / "bytewax.json").write_text('{"owner": ["a", "b", "c"], "epoch": 3, "parts": []}')
    run = world.start()
    for _ in range(20):
        run.step()
    run.abandon()
    [output] = tg.outputs(world.make(world))
    assert "are those of a:b:c" in str(output.error)


def test_what_cannot_be_is_refused_when_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="FixedPartitionedSink or DynamicSink"):
        as_output([], str(tmp_path))
    with pytest.raises(InvalidArgument, match="item"):
        as_output(FileSink(tmp_path / "a"), str(tmp_path))
    with pytest.raises(InvalidArgument, match="item"):
        as_output(TestingSink([]), str(tmp_path), item=7)  # type: ignore[arg-type]
