"""What goes wrong on the way to the tables: functions that raise, disks that are full, outputs that come and go."""

from __future__ import annotations

import os
import random
import resource
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.disks import forbidden
from tests.flow.badinput import LINE, begin, beside, finish, lines, numbers, report, rows, source, states, two, write
from tests.flow.by_hand import World
from tests.flow.recorder import Recorder

import tidegauge as tg
from tidegauge.errors.command import OutputHasFailed
from tidegauge.errors.engine import SchemaUnknown
from tidegauge.errors.flow import BatchFunctionFailed
from tidegauge.errors.running import JobGaveUp
from tidegauge.flow.stage import ATTEMPTS
from tidegauge.remap.store import EXPIRY


def half(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Works on most data."""
    return pa.record_batch({"n": batch["n"], "part": [100 // n for n in batch["n"].to_pylist()]}, schema=PARTS)


def half_corrected(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"n": batch["n"], "part": [100 // (n or 1) for n in batch["n"].to_pylist()]}, schema=PARTS)


PARTS = pa.schema([("n", pa.int64()), ("part", pa.int64())])


def test_a_function_that_raises_fails_its_output_alone_and_the_corrected_one_completes_it(tmp_path: Path) -> None:
    world = World(tmp_path, beside(half))
    path = write(tmp_path / "a" / "1.jsonl", lines(1, 2))
    finish(world)
    write(path, lines(3, 0, 4))
    run = begin(world)
    run.catch_up()
    board = run.runner.board
    error = board.outputs["picky"].error
    assert isinstance(error, BatchFunctionFailed)
    assert error.evidence["epoch"] == 1
    for part in ("half", "ZeroDivisionError", f"{Path(__file__).name}:", "'picky'", "epoch 1"):
        assert part in str(error)
    assert {name: o.state for name, o in board.outputs.items()} == {"a": "live", "picky": "failed"}
    assert board.sources["a"].state == "running"
    assert board.errors == [error]
    write(path, lines(5))
    run.catch_up()
    run.abandon()

    flow = beside(half)(world)
    assert numbers(flow, "a") == [1, 2, 0, 3, 4, 5]
    assert numbers(flow, "picky") == [1, 2], "nothing of the epoch in which the function raised"
    with pytest.raises(OutputHasFailed, match=r"TG-0607.*failed at epoch 1.*ZeroDivisionError"):
        rows(flow, "picky", as_of=2)
    assert states(report(world).outputs) == {"a": "live", "picky": "failed"}

    finish(world, beside(half_corrected))
    assert numbers(flow, "a") == [1, 2, 0, 3, 4, 5]
    assert [(row["n"], row["part"], row["_epoch"]) for row in rows(flow, "picky")] == [
        (1, 100, 0),
        (2, 50, 0),
        (0, 100, 1),
        (3, 33, 1),
        (4, 25, 1),
        (5, 20, 2),
    ]
    assert states(report(world).outputs) == {"a": "live", "picky": "live"}


def test_a_function_that_cannot_tell_its_columns_is_refused_before_anything_runs(tmp_path: Path) -> None:
    def fussy(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.slice(0, 1 // batch.num_rows)

    world = World(tmp_path, beside(fussy))
    write(tmp_path / "a" / "1.jsonl", lines(1))
    with pytest.raises(SchemaUnknown, match=r"fussy\) of output 'picky' did not take an empty batch: ZeroDivision"):
        begin(world)
    assert not (tmp_path / "flow.db").exists()


def test_a_function_that_does_not_fit_inferred_columns_fails_its_output_alone(tmp_path: Path) -> None:
    def wants_more(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.select(["more"])

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("inferred", store=world.store)
        a = source(world, flow, "a", format=tg.Json(), metadata=False)
        flow.sink("a", a, tg.DeltaSink(str(world.root / "lake" / "a")))
        flow.sink("more", a.map_batches(wants_more), tg.DeltaSink(str(world.root / "lake" / "more")))
        return flow

    world = World(tmp_path, make)
    write(tmp_path / "a" / "1.jsonl", lines(1))
    run = begin(world)
    run.catch_up()
    assert {name: o.state for name, o in run.runner.board.outputs.items()} == {"a": "live", "more": "failed"}
    [error] = run.runner.board.errors
    run.abandon()
    assert isinstance(error, SchemaUnknown), "a run until caught up ends with it, and not as if all were well"
    assert numbers(make(world), "a") == [1]


class Disk:
    """A file system with very little room, or none to write at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(path)], capture_output=True, check=False
        )
        self.mounted = done.returncode == 0
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
        if not self.mounted:  # not allowed here: then no file may be larger, which is the same to a writer
            resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, self.before[1]))

    def grow(self) -> None:
        if self.mounted:
            subprocess.run(["mount", "-o", "remount,size=40m", str(self.path)], check=True)
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, self.before)

    def refuse(self) -> None:
        if self.mounted:
            subprocess.run(["mount", "-o", "remount,ro", str(self.path)], check=True)
        else:
            self.path.chmod(0o500)

    def allow(self) -> None:
        if self.mounted:
            subprocess.run(["mount", "-o", "remount,rw", str(self.path)], check=True)
        else:
            self.path.chmod(0o700)

    def close(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.path)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "lake")
    yield disk
    disk.close()


def bulk(numbers: range) -> str:
    """Lines that no compression makes small."""
    noise = random.Random(7)
    return "".join(f'{{"n": {n}, "text": "{noise.randbytes(200).hex()}"}}\n' for n in numbers)


def visible(world: World) -> list[int]:
    """What a reader sees: nothing, before anything was ever published."""
    return numbers(two(world), "a") if tg.status(two(world)).published else []


@pytest.mark.parametrize("before", [0, 2])
def test_a_full_disk_is_waited_for_with_nothing_half_visible_and_the_same_run_goes_on_with_more_room(
    before: int, tmp_path: Path, disk: Disk
) -> None:
    world = World(tmp_path, two)
    path = write(tmp_path / "a" / "1.jsonl", lines(*range(before)))
    finish(world)
    large = bulk(range(before, 4000))
    disk_files = sorted(os.listdir(disk.path / "a")) if before else []
    write(path, large)
    run = begin(world)
    output = run.runner.board.outputs["a"]
    while output.attempt <= ATTEMPTS:
        run.step(1)
    assert output.state == "stalled"
    text = str(output.error)
    assert f"writing the rows of output 'a' to {disk.path / 'a'} failed" in text
    assert "No space left" in text or "File too large" in text
    assert len(text.splitlines()) == 3
    assert visible(world) == list(range(before))
    left = [name for name in os.listdir(disk.path / "a") if name.endswith(".parquet")] if before else []
    assert left == [name for name in disk_files if name.endswith(".parquet")], "no litter where room is scarce"

    disk.grow()
    run.catch_up()
    run.abandon()
    assert visible(world) == list(range(4000))


def test_a_disk_that_fills_up_under_store_and_tables_loses_nothing_and_the_flow_goes_on_with_more_room(
    disk: Disk,
) -> None:
    if not disk.mounted:
        pytest.skip("no file system of a fixed size can be mounted here")
    world = World(disk.path, two)
    path = write(disk.path / "a" / "1.jsonl", lines(0))
    finish(world)
    written = 1
    run = begin(world)
    full = False
    for _ in range(200):
        try:
            if not full:
                write(path, bulk(range(written, written + 8)))
                written += 8
        except OSError:  # what was cut off is an unfinished last line
            full = True
        run.step(0.6)
    board = run.runner.board
    assert board.outputs["a"].state == "stalled" or board.store.error is not None
    run.abandon()
    disk.grow()
    world.clock.seconds += EXPIRY  # this process goes on, so its lease has to run out where it could not be released
    complete = path.read_bytes().count(b"\n")
    finish(world)
    assert sorted(visible(world)) == list(range(complete))


def test_a_table_that_cannot_be_written_is_tried_again_then_stops_the_flow(tmp_path: Path) -> None:
    world = World(tmp_path, two)
    path = write(tmp_path / "a" / "1.jsonl", lines(1))
    finish(world)
    write(path, lines(2))
    with forbidden(tmp_path / "lake" / "a"):
        run = begin(world)
        with pytest.raises(JobGaveUp, match=r"Operation not permitted|Permission denied") as gave_up:
            run.catch_up()
        assert "the problem did not pass: the user that runs the flow has no perm" in str(gave_up.value)
        assert run.runner.board.outputs["a"].state == "stalled"
        run.abandon()
        assert visible(world) == [1]
    finish(world)
    assert visible(world) == [1, 2]


@dataclass
class Broken(Recorder):
    """A source whose reading raises what nobody expects."""

    witness: Callable[[Any], None] = lambda _frontier: None

    def read(self, split: Any, on_bad_record: Any) -> Any:
        raise KeyError("tide")


def test_an_exception_of_a_format_is_not_called_a_full_disk(tmp_path: Path) -> None:
    def broken(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("two", store=world.store)
        flow.sink(
            "a",
            flow.source("a", Broken(tg.FileSource(str(tmp_path / "a" / "*"), format=tg.Json(LINE)))),
            tg.DeltaSink(str(tmp_path / "lake" / "a")),
        )
        return flow

    write(tmp_path / "a" / "1.jsonl", lines(1))
    run = begin(World(tmp_path, broken))
    with pytest.raises(JobGaveUp, match=r"TG-0513, reading source 'a' at .* KeyError: 'tide'") as gave_up:
        run.catch_up()
    run.abandon()
    assert "disk" not in str(gave_up.value)


def test_a_table_that_can_be_written_again_in_time_is_no_reason_to_stop(tmp_path: Path, disk: Disk) -> None:
    world = World(tmp_path, two)
    path = write(tmp_path / "a" / "1.jsonl", lines(1))
    finish(world)
    write(path, lines(2))
    disk.refuse()
    run = begin(world)
    while run.runner.board.outputs["a"].attempt < 2:
        run.step()
    assert states(run.runner.board.outputs.values())["a"] == "stalled"
    disk.allow()
    run.catch_up()
    assert states(run.runner.board.outputs.values())["a"] == "live"
    run.abandon()
    assert visible(world) == [1, 2]


def test_a_flow_can_be_stopped_while_a_job_waits_to_be_tried_again(tmp_path: Path, disk: Disk) -> None:
    world = World(tmp_path, two)
    write(tmp_path / "a" / "1.jsonl", lines(1))
    disk.refuse()
    run = begin(world)
    while run.runner.board.outputs["a"].state != "stalled":
        run.step()
    run.runner.stop()
    run.step()
    assert run.runner.ended(None) == "stopped"
    run.abandon()


def with_late(world: World) -> tg.Dataflow:
    """The flow of `two` with one more output of `a`."""
    flow = tg.Dataflow("two", store=world.store)
    a = source(world, flow, "a")
    flow.sink("a", a, tg.DeltaSink(str(world.root / "lake" / "a")))
    flow.sink("b", source(world, flow, "b"), tg.ParquetSink(str(world.root / "lake" / "b")))
    flow.sink("late", a, tg.ParquetSink(str(world.root / "lake" / "late")))
    return flow


def test_an_output_that_is_added_later_gets_every_epoch_from_the_first_on(tmp_path: Path) -> None:
    world = World(tmp_path, two)
    for n in range(4):
        write(tmp_path / "a" / "1.jsonl", lines(n))
        write(tmp_path / "b" / "1.jsonl", lines(100 + n))
        finish(world)
    finish(world, with_late)  # nothing new is upstream: being caught up includes the new output all the same
    flow = with_late(world)
    assert rows(flow, "late") == rows(flow, "a")
    assert [row["_epoch"] for row in rows(flow, "late")] == [0, 1, 2, 3]
    assert numbers(flow, "b") == [100, 101, 102, 103]
    assert states(report(world).outputs) == {"a": "live", "b": "live", "late": "live"}
    write(tmp_path / "a" / "1.jsonl", lines(9))
    finish(world)
    assert rows(flow, "late") == rows(flow, "a")


def test_an_output_that_is_taken_out_leaves_the_others_alone_and_can_come_back(tmp_path: Path) -> None:
    world = World(tmp_path, with_late)
    write(tmp_path / "a" / "1.jsonl", lines(1))
    write(tmp_path / "b" / "1.jsonl", lines(101))
    finish(world)
    write(tmp_path / "a" / "1.jsonl", lines(2))
    finish(world, two)
    assert numbers(two(world), "a") == [1, 2]
    assert numbers(two(world), "b") == [101]
    assert list(states(report(world).outputs)) == ["a", "b"]
    finish(world, with_late)
    assert rows(with_late(world), "late") == rows(with_late(world), "a")
    assert numbers(with_late(world), "late") == [1, 2]


def generated(world: World) -> tg.Dataflow:
    flow = tg.Dataflow("made", store=world.store)
    made = flow.source("made", tg.GeneratorSource(rows=50, columns="k long", shards=2, max_records_per_epoch=7))
    flow.sink("made", made, tg.DeltaSink(str(world.root / "lake" / "made")))
    if (world.root / "twice").exists():
        flow.sink("again", made, tg.DeltaSink(str(world.root / "lake" / "again")))
    return flow


def run_to_the_end(world: World) -> str:
    run = begin(world)
    for _ in range(100):
        why = run.runner.ended(None)
        if why is not None:
            run.abandon()
            return why
        run.step()
    raise AssertionError("it does not end by itself")


def test_a_flow_of_sealed_sources_ends_by_itself(tmp_path: Path) -> None:
    world = World(tmp_path, generated)
    assert run_to_the_end(world) == "sealed"
    assert len(tg.read_arrow(generated(world), "made")) == 50
    assert states(report(world).sources) == {"made": "sealed"}
    assert report(world).upper == 8, "fifty rows, seven an epoch, and none for the end"
    assert run_to_the_end(world) == "sealed", "started again, it ends at once"


def test_an_output_that_is_added_to_a_sealed_flow_gets_its_rows_before_the_flow_ends(tmp_path: Path) -> None:
    world = World(tmp_path, generated)
    run_to_the_end(world)
    (tmp_path / "twice").touch()
    assert run_to_the_end(world) == "sealed"
    assert rows(generated(world), "again") == rows(generated(world), "made")
    assert len(rows(generated(world), "again")) == 50
