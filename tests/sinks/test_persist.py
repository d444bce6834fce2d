"""The persist operator: a table that refuses for good ends its output, whatever comes after."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from tests.sinks.conftest import OUTPUT, SCHEMA, stage

from tidegauge.dataflow import INT, Worker
from tidegauge.env import Env, at_once
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.dataflow import OperatorFailed
from tidegauge.errors.running import SpanConflict
from tidegauge.errors.sinks import MisplacedRows, TableUpperMismatch, UnsupportedTable
from tidegauge.errors.store import LeaseLost
from tidegauge.remap.history import NO_HISTORY, History, Link
from tidegauge.sinks import DeltaSink, ParquetSink, backlog
from tidegauge.sinks.backlog import Backlog, StagedSpan, merged
from tidegauge.sinks.pausing import Pausing
from tidegauge.sinks.persist import Committed, PersistSetup, persist
from tidegauge.sinks.protocol import StagedFile, Table

NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Log:
    """Listens, and does nothing else."""

    def __init__(self) -> None:
        self.failures: list[tuple[int, TidegaugeError]] = []
        self.held: list[int] = []
        self.done: list[int] = []

    def failed(self, epoch: int, error: TidegaugeError) -> None:
        self.failures.append((epoch, error))

    def passed(self, upper: int) -> None:
        self.held.append(upper)

    def committed(self, committed: Committed) -> None:
        self.done.append(committed.upper)

    def stalled(self, output: str, error: Exception, attempt: int) -> None:
        raise AssertionError(f"{output} is refused, not stalled: {error} ({attempt})")


def setup(table: Table, log: Log) -> PersistSetup:
    return PersistSetup(
        history=lambda _lower, _upper, *, whole: NO_HISTORY,
        output="orders",
        table=table,
        env=Env(),
        spawn=at_once,
        confirm=lambda: None,
        backoff=lambda _: 0.0,
        backlog=Backlog(lambda: 0.0),
        passed=log.passed,
        failed=log.failed,
        committed=log.committed,
        stalled=log.stalled,
    )


def test_after_a_refusal_nothing_is_committed_even_when_the_table_would_take_it_again(tmp_path: Path) -> None:
    """Else the next commit would cover the epochs that were refused, and say that they are empty."""
    path = str(tmp_path / "orders")
    sink, log = DeltaSink(path), Log()
    table = sink.open(OUTPUT)
    table.commit(0, 1, SCHEMA, stage(sink, [0]), write="0" * 32)
    worker = Worker(monotonic=lambda: 0.0)
    with worker.dataflow("shop", order=INT) as scope:
        staged, stream = scope.input("staged")
        probe = persist(stream, setup(table, log)).probe()

    def give(epoch: int) -> None:
        files = tuple(stage(sink, [epoch]))
        staged.advance_to(epoch)
        staged.send([StagedSpan(epoch, epoch + 1, f"{epoch:032x}", SCHEMA, files, 1)])
        staged.advance_to(epoch + 1)
        while not log.failures and probe.less_than(epoch + 1):
            worker.step()
        for _ in range(5):  # and what else there may be to do
            worker.step()

    give(1)
    DeltaTable(path).alter.add_constraint({"small": "amount < 1000"})
    give(2)
    DeltaTable(path).alter.drop_constraint("small")
    give(3)
    assert (log.done, log.held) == ([2], [2])
    assert [(epoch, type(error)) for epoch, error in log.failures] == [(2, UnsupportedTable)]
    assert not probe.less_than(4), "the others are not kept waiting"
    again = sink.open(OUTPUT)
    assert again.upper == 2
    assert len(list(Path(path).glob("*.parquet"))) == len(again.files()) == 2, "what came in vain is gone"


def test_of_what_waits_together_the_part_that_the_table_refuses_is_found(tmp_path: Path) -> None:
    """Spans are one commit; when that is refused, those before the one that is wrong are committed all the same."""
    path = str(tmp_path / "orders")
    sink, log = DeltaSink(path), Log()
    table: Any = Refusing(sink.open(OUTPUT), 3)
    worker = Worker(monotonic=lambda: 0.0)
    with worker.dataflow("shop", order=INT) as scope:
        staged, stream = scope.input("staged")
        probe = persist(stream, setup(table, log)).probe()
    staged.send([StagedSpan(n, n + 1, f"{n:032x}", SCHEMA, tuple(stage(sink, [n])), 1) for n in range(5)])
    staged.advance_to(5)
    while not log.failures and probe.less_than(5):
        worker.step()
    worker.settle()
    assert log.done == [1, 2, 3]
    assert [epoch for epoch, _error in log.failures] == [3]
    assert table.asked == [(0, 5), (0, 1), (1, 2), (2, 3), (3, 4)]
    assert sink.open(OUTPUT).upper == 3
    assert len(list(Path(path).glob("*.parquet"))) == 3, "what came in vain is gone"


def test_nothing_is_committed_for_an_output_while_it_is_paused(tmp_path: Path) -> None:
    path = str(tmp_path / "orders")
    sink, log, pausing = DeltaSink(path), Log(), Pausing(["orders"])
    worker = Worker(monotonic=lambda: 0.0)
    with worker.dataflow("shop", order=INT) as scope:
        staged, stream = scope.input("staged")
        probe = persist(stream, replace(setup(sink.open(OUTPUT), log), pausing=pausing)).probe()
    staged.send([StagedSpan(0, 1, "0" * 32, SCHEMA, tuple(stage(sink, [0])), 1)])
    staged.advance_to(1)
    worker.settle()
    assert (log.done, sink.open(OUTPUT).upper, probe.less_than(1)) == ([], 0, True)
    pausing.become([])
    worker.settle()
    assert (log.done, sink.open(OUTPUT).upper, probe.less_than(1)) == ([1], 1, False)


def test_t36_a_span_is_not_trimmed_where_the_table_holds_a_part_of_it(tmp_path: Path) -> None:
    """Somebody else committed other spans than ours, and our files may hold rows of both parts."""
    sink, log = DeltaSink(str(tmp_path / "orders")), Log()
    table = sink.open(OUTPUT)
    table.commit(0, 1, SCHEMA, stage(sink, [0]), write="0" * 32)
    worker = Worker(monotonic=lambda: 0.0)
    with worker.dataflow("shop", order=INT) as scope:
        staged, stream = scope.input("staged")
        persist(stream, setup(table, log))
    files = tuple(file for epoch in range(3) for file in stage(sink, [epoch]))
    staged.send([StagedSpan(0, 3, "1" * 32, SCHEMA, files, 3)])
    with pytest.raises(OperatorFailed) as caught:
        worker.settle()
    assert isinstance(caught.value.__cause__, SpanConflict)
    assert (log.done, sink.open(OUTPUT).upper) == ([], 1)


class Watched:
    """A table that notes the commits which it is given."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.asked: list[tuple[int, int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def commit(self, lower: int, upper: int, schema: pa.Schema, files: Any, **named: Any) -> None:
        self.asked.append((lower, upper, sum(file.rows for file in files)))
        self.inner.commit(lower, upper, schema, files, **named)


def persisted(table: Any, log: Log, *spans: StagedSpan) -> None:
    """Give spans to the operator at once."""
    worker = Worker(monotonic=lambda: 0.0)
    with worker.dataflow("shop", order=INT) as scope:
        staged, stream = scope.input("staged")
        persist(stream, setup(table, log))
    staged.send([*spans])
    staged.close()
    worker.settle()


def test_t34_if_the_second_of_two_spans_alone_has_rows_there_is_one_commit(tmp_path: Path) -> None:
    sink, log = DeltaSink(str(tmp_path / "orders")), Log()
    table = Watched(sink.open(OUTPUT))
    files = tuple(file for epoch in range(4, 8) for file in stage(sink, [epoch]))
    persisted(table, log, StagedSpan(0, 4, "0" * 32), StagedSpan(4, 8, "1" * 32, SCHEMA, files, 4))
    assert table.asked == [(0, 8, 4)]
    assert (log.done, sink.open(OUTPUT).upper) == ([4, 8], 8)


def test_t35_six_spans_that_are_ready_at_once_keep_each_row_in_its_epoch(tmp_path: Path) -> None:
    sink, log = DeltaSink(str(tmp_path / "orders")), Log()
    table = Watched(sink.open(OUTPUT))
    persisted(
        table,
        log,
        *(StagedSpan(n, n + 1, f"{n:032x}", SCHEMA, tuple(stage(sink, [n], user=str(n))), 1) for n in range(6)),
    )
    assert sum(rows for _, _, rows in table.asked) == 6
    assert [lower for lower, _, _ in table.asked] == [0, *(upper for _, upper, _ in table.asked[:-1])]
    rows = DeltaTable(str(tmp_path / "orders")).to_pyarrow_table().to_pylist()
    assert sorted((row["_epoch"], row["user"]) for row in rows) == [(n, str(n)) for n in range(6)]


@pytest.mark.parametrize("kind", [DeltaSink, ParquetSink])
def test_t37_a_row_of_an_epoch_before_the_span_is_refused_and_nothing_is_written(tmp_path: Path, kind: Any) -> None:
    sink = kind(str(tmp_path / "orders"))
    table = sink.open(OUTPUT)
    table.commit(0, 2, SCHEMA, stage(sink, [0, 1]), write="0" * 32)
    with pytest.raises(MisplacedRows, match="rows of the epochs 1 to 2"):
        table.commit(2, 3, SCHEMA, stage(sink, [1, 2]), write="1" * 32)
    again = sink.open(OUTPUT)
    assert (again.upper, again.volume().rows) == (2, 2)


def test_t58_a_span_that_the_table_has_passed_is_let_go_and_the_frontier_goes_on(tmp_path: Path) -> None:
    """The answer to a commit of ours was lost, and the operator that has staged its epochs again comes late."""
    sink, log = DeltaSink(str(tmp_path / "orders")), Log()
    sink.open(OUTPUT).commit(0, 3, SCHEMA, stage(sink, [0, 1, 2]), write="0" * 32)
    table = Watched(sink.open(OUTPUT))
    late = tuple(stage(sink, [1]))
    new = tuple(stage(sink, [3]))
    persisted(table, log, StagedSpan(1, 2, "1" * 32, SCHEMA, late, 1), StagedSpan(3, 4, "2" * 32, SCHEMA, new, 1))
    assert table.asked == [(3, 4, 1)]
    assert log.done == [2, 4]
    assert not any(tmp_path.joinpath("orders", file.path).exists() for file in late)
    assert sink.open(OUTPUT).volume().rows == 4


class Refusing:
    """A table that does not take one epoch. asked: the spans that it was given."""

    def __init__(self, inner: Any, epoch: int) -> None:
        self.inner = inner
        self.epoch = epoch
        self.asked: list[tuple[int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def commit(self, lower: int, upper: int, *given: Any, **named: Any) -> None:
        self.asked.append((lower, upper))
        if lower <= self.epoch < upper:
            raise UnsupportedTable(table="orders", feature="this epoch")
        self.inner.commit(lower, upper, *given, **named)


class Unanswering:
    """A table that gives no answer to the first attempt at each commit. made: whether it has made it all the same."""

    def __init__(self, inner: Any, meanwhile: Callable[[int, int], None], *, made: bool) -> None:
        self.inner = inner
        self.meanwhile = meanwhile
        self.made = made
        self.asked: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def commit(self, lower: int, upper: int, *given: Any, **named: Any) -> None:
        first = lower not in self.asked
        self.asked.add(lower)
        if self.made or not first:
            self.inner.commit(lower, upper, *given, **named)
        if first:
            self.meanwhile(lower, upper)
            raise OSError("no answer")


def told(lower: int, upper: int, *, whole: bool) -> History:
    """Return a history in which each epoch has a digest of its own."""
    digests = ["", *(sha256(bytes([epoch])).hexdigest() for epoch in range(upper))]
    links = [Link(epoch=n, digest=digests[n + 1], minted_at=NOON, sources={}, whole=whole) for n in range(upper)]
    return History(tuple(links[lower:]), digests[lower])


@pytest.mark.parametrize("done", ["swept", "committed"])
def test_a_driver_that_slept_while_its_successor_swept_or_committed_has_lost_its_lease(
    tmp_path: Path, done: str
) -> None:
    """It had looked at its lease before it slept, and finds no fault with the table."""
    sink, looks = ParquetSink(str(tmp_path / "orders")), list[int]()

    def confirm() -> None:
        looks.append(len(looks))
        if len(looks) > 1:
            raise LeaseLost(flow="shop", now="it is somebody else's")
        if done == "swept":
            shutil.rmtree(tmp_path / "orders/_staged")
        else:
            sink.open(OUTPUT).commit(0, 1, SCHEMA, stage(sink, [0]), write="f" * 32)

    worker = Worker(monotonic=lambda: 0.0)
    with worker.dataflow("shop", order=INT) as scope:
        staged, stream = scope.input("staged")
        persist(stream, replace(setup(sink.open(OUTPUT), Log()), confirm=confirm))
    staged.send([StagedSpan(0, 1, "1" * 32, SCHEMA, tuple(stage(sink, [0])), 1)])
    with pytest.raises(OperatorFailed) as caught:
        worker.settle()
    assert isinstance(caught.value.__cause__, LeaseLost)


def gone_through(table: Any, log: Log, sink: Any, epochs: int) -> None:
    """Give epochs to a table, one after the other."""
    worker = Worker(monotonic=lambda: 0.0)
    stalled: list[str] = []
    with worker.dataflow("shop", order=INT) as scope:
        staged, stream = scope.input("staged")
        persist(
            stream, replace(setup(table, log), history=told, stalled=lambda name, _why, _nth: stalled.append(name))
        )
    for epoch in range(epochs):
        staged.send([StagedSpan(epoch, epoch + 1, f"{epoch:032x}", SCHEMA, tuple(stage(sink, [epoch])), 1)])
        staged.advance_to(epoch + 1)
        worker.settle()
    assert stalled == ["orders"] * epochs


@pytest.mark.parametrize("kind", [DeltaSink, ParquetSink])
def test_x2_a_commit_whose_answer_was_lost_is_known_as_our_own_each_time(tmp_path: Path, kind: Any) -> None:
    sink, log = kind(str(tmp_path / "orders")), Log()
    gone_through(Unanswering(sink.open(OUTPUT), lambda _lower, _upper: None, made=True), log, sink, 3)
    assert log.done == log.held == [1, 2, 3]
    again = sink.open(OUTPUT)
    assert (again.upper, again.volume().rows) == (3, 3)


@pytest.mark.parametrize("kind", [DeltaSink, ParquetSink])
def test_a_commit_of_somebody_else_is_not_taken_for_one_whose_answer_was_lost(tmp_path: Path, kind: Any) -> None:
    """Neither one with another history, nor one that comes while nothing of ours has failed."""
    sink, log = kind(str(tmp_path / "orders")), Log()

    def meanwhile(lower: int, upper: int) -> None:
        sink.open(OUTPUT).commit(lower, upper, SCHEMA, [], write="f" * 32)

    with pytest.raises(OperatorFailed) as caught:
        gone_through(Unanswering(sink.open(OUTPUT), meanwhile, made=False), log, sink, 1)
    assert isinstance(caught.value.__cause__, TableUpperMismatch)

    table = sink.open(OUTPUT)
    sink.open(OUTPUT).commit(1, 2, SCHEMA, [], write="e" * 32, history=told(1, 2, whole=False))
    worker = Worker(monotonic=lambda: 0.0)
    with worker.dataflow("shop", order=INT) as scope:
        staged, stream = scope.input("staged")
        persist(stream, replace(setup(table, log), history=told))
    staged.send([StagedSpan(1, 2, "1" * 32, SCHEMA, tuple(stage(sink, [1])), 1)])
    with pytest.raises(OperatorFailed) as caught:
        worker.settle()
    assert isinstance(caught.value.__cause__, TableUpperMismatch)
    assert log.done == []


lengths = st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["", "a", "b"]), st.integers(0, 3)), min_size=1)


@given(lengths, st.integers(1, 8))
def test_spans_that_are_merged_are_the_same_epochs_and_files_in_their_order(parts: Any, files: int) -> None:
    waiting, lower = [StagedSpan(0, 1, "0", SCHEMA)], 1
    for number, (length, schema, count) in enumerate(parts, start=1):
        staged = tuple(StagedFile(f"{number}-{n}", 1, 1, lower, lower) for n in range(count if schema else 0))
        columns = {"": None, "a": SCHEMA, "b": pa.schema([])}[schema]
        waiting.append(StagedSpan(lower, lower + length, str(number), columns, staged, len(staged)))
        lower += length
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backlog, "COMMIT_FILES", files)
        count, whole = merged(waiting)
    taken = waiting[:count]
    assert (whole.lower, whole.upper) == (0, taken[-1].upper)
    assert whole.files == tuple(file for part in taken for file in part.files)
    assert whole.rows == sum(part.rows for part in taken)
    assert whole.schema == SCHEMA
    assert {part.schema for part in taken} <= {SCHEMA, None}
    assert taken[-1].schema is not None
    assert len(whole.files) <= files or count == 1
