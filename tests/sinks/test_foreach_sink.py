"""A function that gets the rows of epochs: at least once, in order, and exactly once by the recipe."""

from __future__ import annotations

import json
import pickle
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep
from tests.sinks.recipe import RecipeBench

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.foreach import (
    EpochFunctionBusy,
    EpochFunctionFailed,
    EpochFunctionWaits,
    ProgressFileDamaged,
)
from tidegauge.errors.sinks import ForeignTable, OutputIsNoTable, TableOfAnotherIncarnation, TableUpperMismatch
from tidegauge.sinks import EpochAttempt, ForeachEpochSink, OutputId, Sink, StagedFile
from tidegauge.sinks.foreach.output import TRIES
from tidegauge.sinks.persist import ATTEMPTS
from tidegauge.testing.kit import check_sink
from tidegauge.testing.kit.dying import Deaths
from tidegauge.testing.kit.place import SinkOnTrial, history

SCHEMA = pa.schema([("n", pa.int64()), ("_epoch", pa.int64())])
OUTPUT = OutputId("shop", "mails", "a" * 32)


def fine(_rows: pa.RecordBatchReader, _attempt: EpochAttempt) -> None:
    """Take anything."""


@dataclass
class Calls:
    """A function that notes its calls, and fails when it is told to."""

    fails: Callable[[EpochAttempt], Exception | None] = lambda _attempt: None
    attempts: list[EpochAttempt] = field(default_factory=list)
    given: list[tuple[int, list[int]]] = field(default_factory=list)

    def __call__(self, rows: pa.RecordBatchReader, attempt: EpochAttempt) -> None:
        found = rows.read_all()
        assert found["_epoch"].unique().to_pylist() == [attempt.epoch]
        self.attempts.append(attempt)
        if (error := self.fails(attempt)) is not None:
            raise error
        self.given.append((attempt.epoch, found["n"].to_pylist()))

    @property
    def epochs(self) -> list[int]:
        return [attempt.epoch for attempt in self.attempts]


def stage(sink: Sink, epochs: Iterable[int], *, task: int = 0) -> list[StagedFile]:
    """Stage a row of each epoch, with the epoch as its number."""
    copy: Sink = pickle.loads(pickle.dumps(sink))
    stager = copy.stage(SCHEMA, job=uuid.uuid4().hex, task=task)
    listed = list(epochs)
    stager.write(pa.record_batch({"n": listed, "_epoch": listed}, schema=SCHEMA))
    return stager.close()


def commit(table: Any, lower: int, upper: int, files: Sequence[StagedFile], write: str = "") -> None:
    table.commit(lower, upper, SCHEMA, files, write=write or uuid.uuid4().hex, history=history(lower, upper))


def test_a_function_that_follows_the_recipe_holds_every_law() -> None:
    report = check_sink(RecipeBench, crashes=0, deadline=120)
    report.require()
    assert {finding.name for finding in report.findings if finding.untried} == {
        "a crash leaves all or nothing",  # the rows are there a moment before the upper: see the next test
        "the columns of a table stay",
        "files are taken out in whole or not at all",
        "columns come with the rows that have them",
        "a layout changes no rows",
    }


def lives(deaths: Deaths, folder: Path, function: str, *, most: int) -> list[list[tuple[int, str]]]:
    """Let a driver die at instants of its commit, and the next one go on; return what is written in the end of each.

    Each is on a place of its own, where two epochs are committed.
    """

    def make(where: Path) -> RecipeBench:
        return RecipeBench(where, function=function)

    found = []
    first = SinkOnTrial(make(folder), folder, make)
    deaths.commit(first.another(), 1_000_000, "ada")  # it imports what the others then have
    count = deaths.commit(first.another(), 1_000_000, "ada")
    for instant in sorted({1 + count * n // most for n in range(most)} | {count}):
        place = first.another()
        deaths.commit(place, min(instant, count), "ada")
        table = place.driven()
        for epoch in range(table.upper, 2):
            place.commit(table, epoch, epoch + 1)
        assert place.driven().upper == 2
        found.append(sorted((row["_epoch"], row["user"]) for row in place.bench.rows()))
    return found


@pytest.mark.parametrize("most", [8, pytest.param(200, marks=pytest.mark.long)])
def test_drivers_that_are_killed_in_it_leave_each_row_once_by_the_recipe_and_at_least_once_without(
    tmp_path: Path, most: int
) -> None:
    once = [(0, "ada"), (1, "ada")]
    for name in ("keyed", "naive"):
        (tmp_path / name).mkdir()
    with Deaths(within=20) as deaths:
        assert all(rows == once for rows in lives(deaths, tmp_path / "keyed", "keyed", most=most))
        found = lives(deaths, tmp_path / "naive", "naive", most=most)
    assert all(set(rows) == set(once) for rows in found)
    assert any(rows != once for rows in found)


@dataclass(frozen=True)
class Plan:
    """Rows by task with their epochs, how the epochs are cut into commits, which calls fail, and how."""

    tasks: list[list[int]]
    cuts: set[int]
    fails: list[str]


plans = st.builds(
    Plan,
    st.lists(st.lists(st.integers(0, 7), max_size=6), max_size=3),
    st.sets(st.integers(1, 7)),
    st.lists(st.sampled_from(["", "passing", "failing", "reopened"]), max_size=12),
)


@deep(60)
@given(plans)
def test_every_epoch_is_given_whole_and_in_order_until_the_function_returns_for_it(plan: Plan) -> None:
    left = list(plan.fails)

    def fails(_attempt: EpochAttempt) -> Exception | None:
        how = left.pop(0) if left else ""
        return None if not how else ConnectionError("away") if how == "passing" else ValueError("wrong")

    calls = Calls(fails)
    with TemporaryDirectory() as folder:
        sink = ForeachEpochSink(calls, folder)
        table = sink.open(OUTPUT)
        for lower, upper in zip([0, *sorted(plan.cuts)], [*sorted(plan.cuts), 8], strict=True):
            while table.upper < upper:
                begin = table.upper
                files = [
                    file
                    for task, epochs in enumerate(plan.tasks)
                    if (mine := [epoch for epoch in epochs if max(begin, lower) <= epoch < upper])
                    for file in stage(sink, mine, task=task)
                ]
                try:
                    while True:
                        try:
                            commit(table, begin, upper, files, write="c" * 32)
                            break
                        except EpochFunctionWaits:
                            continue
                except EpochFunctionFailed:  # as after `resume`, and in a new process
                    table = sink.open(OUTPUT)
        assert sink.open(OUTPUT).volume().rows == sum(map(len, plan.tasks))
    wanted: dict[int, list[int]] = {}
    for epoch in sorted(epoch for epochs in plan.tasks for epoch in epochs):
        wanted.setdefault(epoch, []).append(epoch)
    assert calls.given == list(wanted.items())
    assert calls.epochs == sorted(calls.epochs)
    assert len({attempt.id for attempt in calls.attempts}) == len(calls.attempts)


def test_a_commit_that_fails_in_the_middle_goes_on_there_and_so_does_the_next_process(tmp_path: Path) -> None:
    calls = Calls(lambda attempt: ValueError("no address") if attempt.epoch == 2 else None)
    sink = ForeachEpochSink(calls, str(tmp_path))
    table = sink.open(OUTPUT)
    files = stage(sink, [0, 1, 2, 3])
    for _ in range(2):
        with pytest.raises(EpochFunctionFailed, match="in epoch 2: ValueError: no address") as caught:
            commit(table, 0, 4, files)
        assert isinstance(caught.value.__cause__, ValueError)
    assert (calls.epochs, table.upper, sink.open(OUTPUT).upper) == ([0, 1, 2, 2], 0, 2)
    with pytest.raises(EpochFunctionFailed):
        commit(sink.open(OUTPUT), 2, 4, stage(sink, [2, 3]))
    calls.fails = lambda _attempt: None
    commit(table, 0, 2, [])  # its parts alone, as a run commits what was refused in whole
    commit(table, 2, 4, stage(sink, [2, 3]))
    assert calls.given == [(0, [0]), (1, [1]), (2, [2]), (3, [3])]
    assert table.upper == sink.open(OUTPUT).upper == 4
    assert table.digest == sink.open(OUTPUT).digest == history(0, 4).digest
    [link] = sink.open(OUTPUT).links()
    assert (link.epoch, link.whole, link.digest) == (3, True, history(0, 4).digest)


def test_what_may_pass_is_tried_some_times_and_then_fails_the_output_before_the_run_gives_up(tmp_path: Path) -> None:
    calls = Calls(lambda _attempt: ConnectionError("refused"))
    sink = ForeachEpochSink(calls, str(tmp_path))
    table, files = sink.open(OUTPUT), stage(sink, [0])
    raised = []
    for _ in range(TRIES):
        with pytest.raises(TidegaugeError) as caught:
            commit(table, 0, 1, files)
        raised.append(type(caught.value))
    assert raised == [EpochFunctionWaits] * (TRIES - 1) + [EpochFunctionFailed]
    assert TRIES < ATTEMPTS
    calls.fails = lambda _attempt: OSError(28, "No space left on device")
    table = sink.open(OUTPUT)
    for _ in range(2 * ATTEMPTS):  # waited for, as long as it takes
        with pytest.raises(EpochFunctionWaits):
            commit(table, 0, 1, files)


def test_rows_that_the_function_does_not_read_count_as_given(tmp_path: Path) -> None:
    sink = ForeachEpochSink(fine, str(tmp_path))
    table = sink.open(OUTPUT)
    commit(table, 0, 3, stage(sink, [0, 0, 2]))
    commit(table, 3, 5, [])
    assert (table.upper, table.volume().rows, sink.open(OUTPUT).volume().rows) == (5, 3, 3)


def test_while_a_driver_is_in_the_function_another_one_waits_and_then_learns_how_far_it_is(tmp_path: Path) -> None:
    inside, go = threading.Event(), threading.Event()

    def slow(_rows: pa.RecordBatchReader, _attempt: EpochAttempt) -> None:
        inside.set()
        assert go.wait(30)

    slow_sink, calls = ForeachEpochSink(slow, str(tmp_path)), Calls()
    sink = replace(slow_sink, function=calls)
    older, newer = slow_sink.open(OUTPUT), sink.open(OUTPUT)
    thread = threading.Thread(target=lambda: commit(older, 0, 1, stage(slow_sink, [0])))
    thread.start()
    assert inside.wait(30)
    files = stage(sink, [0])
    with pytest.raises(EpochFunctionBusy):
        commit(newer, 0, 1, files)
    go.set()
    thread.join()
    with pytest.raises(TableUpperMismatch):
        commit(newer, 0, 1, files)
    assert (newer.upper, calls.epochs) == (1, [])


def test_a_progress_file_of_others_or_damaged_is_refused_and_nothing_is_called(tmp_path: Path) -> None:
    calls = Calls()
    sink = ForeachEpochSink(calls, str(tmp_path))
    commit(sink.open(OUTPUT), 0, 1, [])
    with pytest.raises(ForeignTable):
        sink.open(replace(OUTPUT, output="orders"))
    with pytest.raises(TableOfAnotherIncarnation):
        sink.open(replace(OUTPUT, incarnation="b" * 32))
    assert sink.incarnation("shop", "mails") == "a" * 32
    with pytest.raises(OutputIsNoTable):
        sink.open(OUTPUT).uris([])
    path = tmp_path / "progress.json"
    said = json.loads(path.read_text())
    for text in ("", "[" * 100_000, json.dumps({**said, "version": 2}), json.dumps({**said, "upper": -1}), "{}"):
        path.write_text(text)
        with pytest.raises(ProgressFileDamaged):
            sink.open(OUTPUT)
    assert calls.epochs == []


def test_a_sink_takes_any_function_along_and_leaves_it_in_the_driver(tmp_path: Path) -> None:
    lock = threading.Lock()  # cannot be pickled
    sink = ForeachEpochSink(lambda _rows, _attempt: lock.release(), str(tmp_path))
    copy = pickle.loads(pickle.dumps(sink))
    assert copy == sink
    with pytest.raises(EpochFunctionFailed, match="a copy of the sink"):
        commit(copy.open(OUTPUT), 0, 1, stage(copy, [0]))
    assert sink.open(OUTPUT).upper == 0
    with pytest.raises(InvalidArgument):
        ForeachEpochSink("no function", str(tmp_path))  # type: ignore[arg-type]
