"""Files that are not there, change under our hands, or cannot be read: their source stops, the others go on."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.flow.badinput import LINE, begin, finish, lines, numbers, report, rows, source, states, two, write
from tests.flow.by_hand import World
from tests.flow.recorder import Recorder

import tidegauge as tg
from tidegauge.errors.command import OutputHasFailed
from tidegauge.errors.engine import RecordUnparsable
from tidegauge.errors.running import SourceUnreachable
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
    assert states(report(world).sources) == {"a": "idle", "b": "idle"}


def write_anew(path: Path) -> None:
    path.write_text(lines(7, 8, 9, 10), encoding="utf-8")


def write_anew_at_the_same_length(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"n": 1', '"n": 9'), encoding="utf-8")
    os.utime(path, ns=(0, 0))


@pytest.mark.parametrize("spoil", [write_anew, write_anew_at_the_same_length])
def test_a_file_that_was_rewritten_fails_its_source_alone(world: World, spoil: Callable[[Path], None]) -> None:
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
    assert evidence["expected"] != evidence["found"]
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
    assert states(shown.sources) == {"a": "failed", "b": "idle"}
    assert states(shown.outputs) == {"a": "failed", "b": "live"}
    assert isinstance(shown.sources[0].error, FileRewritten)
    assert numbers(two(world), "b") == [101, 102]
    assert numbers(two(world), "a") == [1, 2]


def bound_and_not_read(world: World, text: str) -> Path:
    """Bind an epoch with a new file of source `a`, and die before it is read."""
    path = write(world.root / "a" / "2.jsonl", text)
    run = begin(world)
    while world.loaded().flow.upper < 2:
        world.clock.seconds += 0.3
        run.runner.step()
    run.abandon()
    assert world.loaded().flow.published == 1
    return path


def test_a_file_that_goes_before_it_is_read_fails_its_source_at_the_epoch_that_misses_it(world: World) -> None:
    path = bound_and_not_read(world, lines(3))
    path.unlink()
    write(world.root / "b" / "1.jsonl", lines(102))
    run = begin(world)
    run.catch_up()
    run.abandon()
    failure = world.loaded().sources["a"].failure
    assert failure is not None
    assert (failure[0], type(failure[1])) == (1, FileGone)
    assert failure[1].evidence == {"path": str(path), "lower": 0, "upper": len(lines(3))}
    assert numbers(two(world), "a") == [1, 2]
    assert numbers(two(world), "b") == [101, 102]


def test_a_file_that_is_rewritten_before_it_is_read_fails_its_source_at_the_epoch_that_misses_it(
    world: World,
) -> None:
    path = bound_and_not_read(world, lines(3))
    write_anew(path)
    write(world.root / "b" / "1.jsonl", lines(102))
    finish(world)  # the next look finds it too, at the epoch after: the least one counts, whichever comes first
    failure = world.loaded().sources["a"].failure
    assert failure is not None
    assert (failure[0], type(failure[1])) == (1, FileRewritten)
    with pytest.raises(OutputHasFailed):
        rows(two(world), "a", as_of=1)
    finish(world)
    assert numbers(two(world), "a") == [1, 2]


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
    shown = report(world).sources[0]
    assert (shown.state, shown.published) == ("failed", size + len(lines(3)))
    assert shown.lag == shown.bound - shown.published > 0, "what is bound behind the line is in no table"
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
    assert states(report(world).sources) == {"a": "failed", "b": "idle"}

    finish(world, collecting)
    flow = collecting(world)
    assert numbers(flow, "a") == [1, 2, 3, 4, 5]
    assert numbers(flow, "b") == [101]
    bad = tg.read_arrow(flow, "bad_a").to_pylist()
    assert sorted(row["raw"] for row in bad) == [b"nonsense", BAD.strip().encode()]
    assert {row["_epoch"] for row in bad} == {1}
    raw = path.read_bytes()
    assert all(raw[row["position"] :].startswith(row["raw"]) for row in bad)
    assert states(report(world).sources) == {"a": "idle", "b": "idle"}
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


def test_a_compressed_file_that_is_cut_off_is_waited_for_and_read_when_the_whole_one_is_there(world: World) -> None:
    path, whole = world.root / "a" / "2.jsonl.gz", gzip.compress(lines(3).encode())
    now = int(world.clock.now().timestamp() * 1e9)
    for content in (whole[:-4], whole):
        part = world.root / "part"
        part.write_bytes(content)
        os.utime(part, ns=(now - 10**10, now - 10**10))
        part.rename(path)
        write(world.root / "b" / "1.jsonl", lines(102))
        finish(world)
        shown = report(world).sources[0]
        assert (shown.state, shown.error) == ("idle", None)
        assert shown.lag == (len(content) if content is not whole else 0)
        assert numbers(two(world), "a") == ([1, 2] if content is not whole else [1, 2, 3])
    assert numbers(two(world), "b") == [101, 102, 102]


def test_a_schema_is_inferred_once_and_kept(tmp_path: Path) -> None:
    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("inferred", store=world.store)
        flow.sink(
            "a",
            source(world, flow, "a", format=tg.Json(), metadata=False),
            tg.DeltaSink(str(tmp_path / "lake" / "a")),
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


@dataclass
class Flaky(Recorder):
    """A source whose upstream does not answer while `down` is set, or cannot be read while `unreadable` is."""

    witness: Callable[[Any], None] = lambda _frontier: None
    down: bool = False
    unreadable: bool = False

    def plan(self, slices: Any, bound: Any) -> Any:
        if self.unreadable:
            raise OSError(5, "Input/output error", "/far/away")
        return super().plan(slices, bound)

    def probe(self, bound: Any, *, now: datetime) -> Any:
        if self.down:
            raise PermissionError(13, "Permission denied", "/far/away")
        return super().probe(bound, now=now)


def test_a_source_that_does_not_answer_stalls_and_the_others_go_on_until_it_does(tmp_path: Path) -> None:
    flaky = Flaky(tg.FileSource(str(tmp_path / "a" / "*"), format=tg.Json(LINE)))

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("two", store=world.store)
        flow.sink("a", flow.source("a", flaky), tg.DeltaSink(str(tmp_path / "lake" / "a")))
        flow.sink("b", source(world, flow, "b"), tg.DeltaSink(str(tmp_path / "lake" / "b")))
        return flow

    write(tmp_path / "a" / "1.jsonl", lines(1))
    write(tmp_path / "b" / "1.jsonl", lines(101))
    world = World(tmp_path, make)
    run = begin(world)
    flaky.down = True
    try:
        for _ in range(8):
            run.step()
        stalled = run.runner.board.sources["a"]
        assert stalled.state == "stalled"
        assert isinstance(stalled.error, SourceUnreachable)
        assert str(stalled.error).startswith(
            "TG-0552: source 'a' cannot be probed: PermissionError: [Errno 13] Permission denied: '/far/away'"
        )
        assert stalled.since is not None
        assert stalled.attempt > 1
        assert numbers(make(world), "b") == [101]
        assert run.runner.ended("caught-up") is None, "what upstream has is not known"
        assert states(tg.status(make(world), env=world.env()).sources) == {"a": "stalled", "b": "running"}
    finally:
        flaky.down = False
    run.catch_up()
    healed = run.runner.board.sources["a"]
    assert (healed.state, healed.error, healed.attempt) == ("running", None, 0)
    run.abandon()
    assert numbers(make(world), "a") == [1]


def test_only_the_epochs_of_a_job_from_the_first_unreadable_one_on_are_lost(tmp_path: Path) -> None:
    flaky = Flaky(tg.FileSource(str(tmp_path / "a" / "*"), format=tg.Json(LINE)))

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("one", store=world.store)
        flow.sink("a", flow.source("a", flaky), tg.DeltaSink(str(tmp_path / "lake" / "a")))
        return flow

    world = World(tmp_path, make)
    run = begin(world)
    flaky.unreadable = True
    for n in range(3):
        write(tmp_path / "a" / f"{n}.jsonl", lines(n))
        run.step(0.6)
    assert (run.runner.board.upper, run.runner.board.published) == (3, 0)
    run.abandon()
    flaky.unreadable, flaky.inner = False, replace(flaky.inner)  # as in another process: it holds no file open
    (tmp_path / "a" / "1.jsonl").unlink()
    finish(world)
    assert numbers(make(world), "a") == [0]
    failure = world.loaded().sources["a"].failure
    assert failure is not None
    assert (failure[0], type(failure[1])) == (1, FileGone)
