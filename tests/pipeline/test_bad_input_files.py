"""Files that are not there, that change under our hands, or that hold what cannot be read: one source stops, the others go on."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import tidegauge as tg
from tests.pipeline.badinput import LINE, begin, finish, lines, numbers, report, rows, source, states, two, write
from tests.pipeline.simulation import World
from tidegauge.errors.command import OutputHasFailed
from tidegauge.errors.engine import RecordUnparsable
from tidegauge.errors.sources import FileGone, FileRewritten


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Two sources with one epoch each of rows in the tables."""
    world = World(tmp_path, two)
    write(tmp_path / "a" / "1.jsonl", lines(1, 2))
    write(tmp_path / "b" / "1.jsonl", lines(101))
    finish(world)
    return world


def test_a_pattern_that_matches_nothing_is_waited_for_and_status_says_so(tmp_path: Path) -> None:
    world = World(tmp_path, two)
    write(tmp_path / "a" / "1.jsonl", lines(1))
    run = begin(world)
    run.catch_up()
    waiting = run.runner.board.sources["b"]
    assert (waiting.state, waiting.error) == ("starting", None)
    shown = {s.name: s for s in report(world).sources}["b"]
    assert shown.state == "starting"
    assert shown.note == f"waiting: no file matches '{tmp_path}/b/*'"
    write(tmp_path / "b" / "1.jsonl", lines(101))
    run.catch_up()
    run.abandon()
    assert numbers(two(world), "b") == [101]
    assert states(report(world).sources) == {"a": "running", "b": "running"}


def shrink(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(5)


def write_anew(path: Path) -> None:
    path.write_text(lines(7, 8, 9, 10), encoding="utf-8")


def write_anew_at_the_same_length(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"n": 1', '"n": 9'), encoding="utf-8")
    os.utime(path, ns=(0, 0))


@pytest.mark.parametrize("spoil", [shrink, write_anew, write_anew_at_the_same_length])
def test_a_file_that_shrank_or_was_rewritten_fails_its_source_alone(
    world: World, spoil: Callable[[Path], None]
) -> None:
    path = world.root / "a" / "1.jsonl"
    size = path.stat().st_size
    spoil(path)
    run = begin(world)
    write(world.root / "b" / "1.jsonl", lines(102))
    run.catch_up()

    failed = run.runner.board.sources["a"]
    assert failed.state == "failed"
    assert isinstance(failed.error, FileRewritten)
    evidence = failed.error.evidence
    assert (evidence["path"], evidence["bound"], evidence["size"]) == (str(path), size, path.stat().st_size)
    assert len(evidence["expected"]) == len(evidence["found"]) == 32
    assert evidence["expected"] != evidence["found"] or spoil is shrink
    for value in evidence.values():
        assert str(value) in str(failed.error)
    assert run.runner.board.outputs["a"].state == "failed"
    assert run.runner.board.outputs["b"].state == "live"
    assert run.runner.board.errors == [failed.error]
    run.abandon()

    flow = two(world)
    epoch = tg.status(flow).published - 1
    assert numbers(flow, "b") == [101, 102]
    assert numbers(flow, "a") == numbers(flow, "a", as_of=0) == [1, 2]
    with pytest.raises(OutputHasFailed, match="TG-0607") as refused:
        rows(flow, "a", as_of=epoch)
    assert str(path) in str(refused.value)


def test_a_failed_source_stays_failed_after_a_restart_and_the_others_go_on(world: World) -> None:
    write_anew(world.root / "a" / "1.jsonl")
    finish(world)
    write(world.root / "b" / "1.jsonl", lines(102))
    run = begin(world)
    assert run.runner.board.sources["a"].state == "failed", "before anything is probed"
    run.catch_up()
    run.abandon()
    shown = report(world)
    assert states(shown.sources) == {"a": "failed", "b": "running"}
    assert states(shown.outputs) == {"a": "failed", "b": "live"}
    assert isinstance(shown.sources[0].error, FileRewritten)
    assert numbers(two(world), "b") == [101, 102]
    assert numbers(two(world), "a") == [1, 2]


def test_a_file_that_goes_before_it_is_read_fails_its_source_at_the_first_epoch_that_misses_it(world: World) -> None:
    world.crash_at = None
    run = begin(world)
    run.runner.engine = run.runner.engine
    write(world.root / "a" / "2.jsonl", lines(3))
    while world.loaded().flow.upper < 2:
        world.clock.seconds += 0.3
        run.runner.step()
    run.abandon()
    (world.root / "a" / "2.jsonl").unlink()
    write(world.root / "b" / "1.jsonl", lines(102))
    run = begin(world)
    run.catch_up()
    error = run.runner.board.sources["a"].error
    run.abandon()
    assert isinstance(error, FileGone), error
    assert (error.evidence["path"], error.evidence["lower"]) == (str(world.root / "a" / "2.jsonl"), 0)
    assert world.loaded().sources["a"].failure == (1, error) or world.loaded().sources["a"].failure[0] == 1  # type: ignore[index]
    assert numbers(two(world), "a") == [1, 2]
    assert numbers(two(world), "b") == [101, 102]


BAD = '{"n": "three"}\n'


def test_a_line_that_does_not_parse_fails_its_source_and_nothing_of_its_epoch_is_committed(world: World) -> None:
    path = world.root / "a" / "1.jsonl"
    size = path.stat().st_size
    run = begin(world)
    write(path, lines(3))
    write(world.root / "b" / "1.jsonl", lines(102))
    run.catch_up()
    write(path, lines(4) + BAD * 100 + lines(5))
    run.catch_up()
    write(path, lines(6))
    write(world.root / "b" / "1.jsonl", lines(103))
    run.catch_up()
    error = run.runner.board.sources["a"].error
    assert isinstance(error, RecordUnparsable), error
    assert str(path) in error.summary
    assert error.evidence["position"] == size + 2 * len(lines(3))
    assert repr(BAD.strip()) in error.summary
    assert "flow.sink('bad_a', a.errors, ...)" in error.next_step
    run.abandon()

    flow = two(world)
    assert numbers(flow, "a") == [1, 2, 3]
    assert numbers(flow, "b") == [101, 102, 103]
    assert {s.name: s.state for s in report(world).sources} == {"a": "failed", "b": "running"}
    with pytest.raises(OutputHasFailed, match=r"cannot be decoded"):
        rows(flow, "a", as_of=2)
    finish(world)
    assert numbers(flow, "a") == [1, 2, 3], "a restart changes nothing"


def test_a_long_raw_line_is_cut_in_the_error(world: World) -> None:
    write(world.root / "a" / "1.jsonl", "x" * 100_000 + "\n")
    run = begin(world)
    run.catch_up()
    error = run.runner.board.sources["a"].error
    run.abandon()
    assert isinstance(error, RecordUnparsable)
    assert "xxx" in error.summary
    assert len(str(error)) < 1500


def collecting(world: World) -> tg.Dataflow:
    """The flow of `two`, with the bad records of `a` collected."""
    flow = tg.Dataflow("two", store=world.store)
    a = source(world, flow, "a")
    flow.sink("a", a, tg.DeltaSink(str(world.root / "lake" / "a")))
    flow.sink("b", source(world, flow, "b"), tg.ParquetSink(str(world.root / "lake" / "b")))
    flow.sink("bad_a", a.errors, tg.DeltaSink(str(world.root / "lake" / "bad_a")))
    return flow


def test_collecting_bad_records_lets_a_failed_source_go_on_exactly_once(world: World) -> None:
    path = world.root / "a" / "1.jsonl"
    write(path, lines(3) + BAD + lines(4) + "nonsense\n")
    finish(world)
    write(path, lines(5))
    finish(world)
    assert states(report(world).sources) == {"a": "failed", "b": "running"}

    finish(world, collecting)
    flow = collecting(world)
    assert numbers(flow, "a") == [1, 2, 3, 4, 5]
    assert numbers(flow, "b") == [101]
    bad = tg.read_arrow(flow, "bad_a").to_pylist()
    assert sorted(row["raw"] for row in bad) == [BAD.strip().encode(), b"nonsense"]
    assert {row["_epoch"] for row in bad} == {1}
    raw = path.read_bytes()
    assert all(raw[row["position"] :].startswith(row["raw"]) for row in bad)
    assert states(report(world).sources) == {"a": "running", "b": "running"}
    assert states(report(world).outputs) == {"a": "live", "b": "live", "bad_a": "live"}

    write(path, BAD + lines(6))
    finish(world)
    assert numbers(flow, "a") == [1, 2, 3, 4, 5, 6]
    assert len(tg.read_arrow(flow, "bad_a")) == 3


def test_an_unfinished_last_line_does_not_keep_a_run_from_being_caught_up(world: World) -> None:
    write(world.root / "a" / "1.jsonl", lines(3) + '{"n": 4, "te')
    run = begin(world)
    run.catch_up()
    assert "12 bytes of an unfinished last line in" in run.runner.board.sources["a"].note
    run.abandon()
    assert numbers(two(world), "a") == [1, 2, 3]
    write(world.root / "a" / "1.jsonl", 'xt": "t4"}\n')
    finish(world)
    assert numbers(two(world), "a") == [1, 2, 3, 4]


def test_a_run_until_caught_up_waits_for_a_compressed_file_to_settle(world: World) -> None:
    run = begin(world)
    path = world.root / "a" / "2.jsonl.gz"
    path.write_bytes(gzip.compress(lines(3).encode()))
    now = int(world.clock.now().timestamp() * 1e9)
    os.utime(path, ns=(now, now))
    run.runner.board.reached = None
    for _ in range(4):
        run.step(0.4)
        assert run.runner.ended("caught-up") is None
    assert "was modified only just now" in run.runner.board.sources["a"].note
    run.step(0.5)
    run.catch_up()
    run.abandon()
    assert numbers(two(world), "a") == [1, 2, 3]


def test_a_schema_is_inferred_once_and_kept(tmp_path: Path) -> None:
    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("inferred", store=world.store)
        flow.sink(
            "a", source(world, flow, "a", format=tg.Json(), metadata=False), tg.DeltaSink(str(tmp_path / "lake" / "a"))
        )
        return flow

    world = World(tmp_path, make)
    write(tmp_path / "a" / "1.jsonl", lines(1))
    finish(world)
    kept = world.loaded().sources["a"].schema
    assert kept is not None
    assert kept.names == ["n", "text"]

    (tmp_path / "a" / "1.jsonl").unlink()
    write(tmp_path / "a" / "0.jsonl", '{"n": 2, "text": "t2", "more": 1.5}\n{"n": 3}\n')
    finish(world)
    assert world.loaded().sources["a"].schema == kept
    table = tg.read_arrow(make(world), "a").sort_by("n")
    assert table.column_names == ["n", "text", "_epoch"]
    assert table.column("text").to_pylist() == ["t1", "t2", None]


def test_data_that_contradicts_the_inferred_schema_fails_the_source(tmp_path: Path) -> None:
    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("inferred", store=world.store)
        flow.sink("a", source(world, flow, "a", format=tg.Json()), tg.DeltaSink(str(tmp_path / "lake" / "a")))
        return flow

    world = World(tmp_path, make)
    write(tmp_path / "a" / "1.jsonl", '{"n": 1}\n')
    finish(world)
    write(tmp_path / "a" / "2.jsonl", '{"n": "one"}\n')
    run = begin(world)
    run.catch_up()
    error = run.runner.board.sources["a"].error
    run.abandon()
    assert isinstance(error, RecordUnparsable)
    assert str(tmp_path / "a" / "2.jsonl") in error.summary


def test_a_folder_that_cannot_be_read_stalls_its_source_and_the_others_go_on(world: World) -> None:
    folder = world.root / "a"
    folder.rename(world.root / "away")
    folder.write_text("not a folder", encoding="utf-8")
    run = begin(world)
    write(world.root / "b" / "1.jsonl", lines(102))
    for _ in range(8):
        run.step()
    state = run.runner.board.sources["a"].state
    assert numbers(two(world), "b") == [101, 102]
    folder.unlink()
    (world.root / "away").rename(folder)
    write(folder / "1.jsonl", lines(3))
    run.catch_up()
    run.abandon()
    assert state in ("running", "stalled")
    assert numbers(two(world), "a") == [1, 2, 3]


assert LINE
