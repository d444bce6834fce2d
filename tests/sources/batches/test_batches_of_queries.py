"""Batches of a query: written once, whoever dies or races, and read as they were written, or not at all."""

from __future__ import annotations

import os
import re
import shutil
import threading
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep

import tidegauge as tg
from tidegauge import disk
from tidegauge.errors.base import Definite
from tidegauge.errors.batches import (
    AnotherCheckpoint,
    BatchDamaged,
    BatchesElsewhere,
    BatchesMissing,
    BatchesReplaced,
    BatchUnlike,
    CheckpointBehind,
    QueryNotTold,
)
from tidegauge.errors.flow import InvalidArgument, ReservedColumn
from tidegauge.errors.sources import RecordsLost
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.sources.batches import writing
from tidegauge.sources.batches.manifest import BatchManifest, batches_in, decoded, read_manifest
from tidegauge.sources.batches.streaming import BatchWriter
from tidegauge.sources.batches.writing import publish, stage

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def write(root: Path, batch: int, *tasks: list[int], name: str = "orders", query: str = "one") -> None:
    """Run a batch: each task has a list of rows."""
    folder = root / name
    staged = [stage(folder, iter([pa.record_batch({"id": pa.array(task, pa.int64())})])) for task in tasks]
    publish(folder, query, batch, [file for file in staged if file is not None])


def source(root: Path, **given: Any) -> tg.BatchSource:
    return tg.BatchSource(str(root), columns="id long", **given)


def bind(source: tg.BatchSource, bound: Bound | None = None) -> tuple[Bound, Observation]:
    """Look, and bind what is there."""
    bound = bound or Bound()
    seen = source.probe(bound, now=NOW)
    details = {**bound.details, **seen.details}
    return replace(bound, frontier=seen.upper, details=details, schema=bound.schema or seen.schema), seen


def slices(bound: Bound, since: Bound | None = None, *, epoch: int = 0) -> list[Slice]:
    lower = {} if since is None else dict(since.frontier)
    return [
        Slice("orders", epoch, name, lower.get(name, 0), upper)
        for name, upper in bound.frontier.items()
        if upper > lower.get(name, 0)
    ]


def ids(source: tg.BatchSource, bound: Bound, since: Bound | None = None) -> list[int]:
    splits = source.plan(slices(bound, since), bound)
    return sorted(
        row["id"]
        for split in splits
        for batch in source.read(split, lambda bad: pytest.fail(str(bad)))  # type: ignore[arg-type]
        for row in batch.to_pylist()
    )


def rows_there(root: Path) -> list[int]:
    here = source(root)
    return ids(here, bind(here)[0])


def left_over(folder: Path) -> set[str]:
    """The files that no manifest names."""
    named = {f"{batch:012}.json" for batch in batches_in(folder)}
    named |= {f"{n:012}/{file.name}" for n in batches_in(folder) for file in read_manifest(folder, n).files}
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} - named


# -- writing


def test_an_epoch_has_whole_batches_and_as_many_as_it_takes(tmp_path: Path) -> None:
    for batch in range(4):
        write(tmp_path, batch, [3 * batch, 3 * batch + 1], [3 * batch + 2])
    write(tmp_path, 0, [100], name="users")
    here = source(tmp_path, max_records_per_epoch=5)
    first, seen = bind(here)
    assert (dict(first.frontier), seen.more) == ({"orders": 2, "users": 1}, True)
    assert ids(here, first) == [0, 1, 2, 3, 4, 5, 100]
    second, seen = bind(here, first)
    assert (dict(second.frontier), seen.more) == ({"orders": 4, "users": 1}, False)
    assert dict(seen.end) == {"orders": 4, "users": 1}
    assert ids(here, second, first) == list(range(6, 12))


def test_a_batch_that_is_larger_than_an_epoch_is_one(tmp_path: Path) -> None:
    write(tmp_path, 0, list(range(10)))
    write(tmp_path, 1, [10])
    bound, seen = bind(source(tmp_path, max_records_per_epoch=3))
    assert (dict(bound.frontier), seen.more) == ({"orders": 1}, True)


def test_a_query_that_begins_late_begins_there(tmp_path: Path) -> None:
    write(tmp_path, 57, [1])
    write(tmp_path, 58)
    write(tmp_path, 59, [], [2])
    here = source(tmp_path)
    bound, _ = bind(here)
    assert (dict(bound.frontier), ids(here, bound)) == ({"orders": 60}, [1, 2])


def test_a_batch_that_is_run_again_is_written_once(tmp_path: Path) -> None:
    write(tmp_path, 0, [1, 2])
    write(tmp_path, 0, [1], [2])
    with pytest.raises(BatchUnlike, match="with 2 rows, and run again it has 3"):
        write(tmp_path, 0, [1, 2, 3])
    assert rows_there(tmp_path) == [1, 2]
    assert left_over(tmp_path / "orders") == set()


def test_what_is_not_the_next_batch_is_refused(tmp_path: Path) -> None:
    for batch in range(3):
        write(tmp_path, batch, [batch])
    with pytest.raises(AnotherCheckpoint, match=r"batch 0 of Spark's query two .* has those of query one"):
        write(tmp_path, 0, [0], query="two")
    with pytest.raises(AnotherCheckpoint):
        write(tmp_path, 3, [3], query="two")
    with pytest.raises(CheckpointBehind, match="batch 1 came again"):
        write(tmp_path, 1, [1])
    with pytest.raises(BatchesMissing, match=r"batch 4 .* batch 3 before it"):
        write(tmp_path, 4, [4])
    write(tmp_path, 0, [9], name="orders-2", query="two")  # a new name is another query
    assert rows_there(tmp_path) == [0, 1, 2, 9]
    assert left_over(tmp_path / "orders") == set()


def test_two_drivers_of_one_batch_publish_it_once(tmp_path: Path) -> None:
    for batch in range(12):
        start, raised = threading.Barrier(3), list[BaseException]()

        def run(number: int, batch: int = batch, start: Any = start, raised: Any = raised) -> None:
            start.wait()
            try:
                write(tmp_path, batch, [2 * batch], [2 * batch + 1])
            except FileNotFoundError:
                pass  # what it had staged was swept: it lost, and says so
            except BaseException as error:
                raised.append(error)

        threads = [threading.Thread(target=run, args=[n]) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not raised
    assert rows_there(tmp_path) == list(range(24))


def test_a_driver_that_was_overtaken_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, overtaken = disk.put_new, list[bytes]()

    def late(path: Path, data: bytes, *, beside: str) -> bool:
        monkeypatch.setattr(writing, "put_new", real)
        write(tmp_path, 0, [1], [2])
        overtaken.append(path.read_bytes())
        return real(path, data, beside=beside)

    monkeypatch.setattr(writing, "put_new", late)
    write(tmp_path, 0, [1], [2])
    assert overtaken == [(tmp_path / "orders" / f"{0:012}.json").read_bytes()]
    assert rows_there(tmp_path) == [1, 2]
    assert left_over(tmp_path / "orders") == set()


STEPS = st.lists(
    st.sampled_from(["run", "die before it moves", "die before it publishes", "die after it published"]), max_size=8
)


@deep(24)
@given(steps=STEPS)
def test_whenever_it_dies_each_batch_is_there_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    root = tmp_path_factory.mktemp("batches")
    folder, batch = root / "orders", 0
    for step in [*steps, "run"]:
        if step == "run":
            write(root, batch, [2 * batch], [2 * batch + 1])
            batch += 1
            continue
        with pytest.MonkeyPatch.context() as patch:
            if step == "die before it moves":
                patch.setattr(writing, "_published", _dead)
            elif step == "die before it publishes":
                patch.setattr(writing, "put_new", _dead)
            else:
                patch.setattr(writing, "_sweep", _dead)
            patch.setattr(writing, "discard", lambda *_: None)
            with suppress(_Dead):  # of a batch that is there nothing is moved
                write(root, batch, [2 * batch], [2 * batch + 1])
    assert rows_there(root) == list(range(2 * batch))
    assert left_over(folder) == set()


class _Dead(BaseException):
    pass


def _dead(*_given: Any, **_named: Any) -> Any:
    raise _Dead


# -- reading


def changed(root: Path, change: str) -> None:
    folder = root / "orders"
    part = next(iter((folder / f"{1:012}").iterdir()))
    manifest = folder / f"{1:012}.json"
    match change:
        case "a file is shorter":
            os.truncate(part, part.stat().st_size - 1)
        case "a file is gone":
            part.unlink()
        case "a manifest is torn":
            os.truncate(manifest, 40)
        case "a manifest is empty":
            manifest.write_bytes(b"")
        case "a manifest is edited":
            manifest.write_bytes(manifest.read_bytes().replace(b'"batch": 1', b'"batch": 2'))
        case "a manifest is another":
            there = decoded(manifest.read_bytes(), "")
            manifest.write_bytes(replace(there, files=()).encode())
        case "a manifest is that of another batch":
            shutil.copy(folder / f"{0:012}.json", manifest)
        case "a manifest is gone":
            manifest.unlink()
        case "the last manifest is another":
            last = folder / f"{2:012}.json"
            last.write_bytes(replace(decoded(last.read_bytes(), ""), files=()).encode())


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("a file is shorter", BatchDamaged),
        ("a file is gone", RecordsLost),
        ("a manifest is torn", BatchDamaged),
        ("a manifest is empty", BatchDamaged),
        ("a manifest is edited", BatchDamaged),
        ("a manifest is another", BatchesReplaced),
        ("a manifest is that of another batch", BatchDamaged),
        ("a manifest is gone", RecordsLost),
        ("the last manifest is another", BatchesReplaced),
    ],
)
@pytest.mark.parametrize("part", [(0, 3), (1, 2), (0, 2)])
def test_what_is_bound_and_was_changed_is_not_read(
    tmp_path: Path, change: str, error: type[Definite], part: tuple[int, int]
) -> None:
    for batch in range(3):
        write(tmp_path, batch, [batch])
    here = source(tmp_path)
    bound, _ = bind(here)
    changed(tmp_path, change)
    pieces = [Slice("orders", 0, "orders", *part)]
    if change == "the last manifest is another" and part == (0, 2):
        with pytest.raises(BatchesReplaced):
            here.probe(bound, now=NOW)
    elif change == "the last manifest is another" and part == (1, 2):
        here.plan(pieces, bound)  # nothing of it is read
    else:
        with pytest.raises(error):
            here.plan(pieces, bound)


def test_a_split_is_checked_where_it_is_read(tmp_path: Path) -> None:
    write(tmp_path, 0, [1, 2, 3])
    here = source(tmp_path)
    bound, _ = bind(here)
    split: Any
    [split] = here.plan(slices(bound), bound)
    for change in ({"weight": 5}, {"rows": 2}):
        with pytest.raises(BatchDamaged):
            list(here.read(replace(split, **change), lambda _bad: None))


def test_a_gap_is_an_error_with_the_batch_that_is_missing(tmp_path: Path) -> None:
    for batch in range(5):
        write(tmp_path, batch, [batch])
    here = source(tmp_path)
    (tmp_path / "orders" / f"{3:012}.json").unlink()
    with pytest.raises(BatchesMissing, match=r"batch 4 .* batch 3 before it"):
        bind(here)
    (tmp_path / "orders" / f"{0:012}.json").unlink()
    with pytest.raises(BatchesMissing, match="batch 0 before it"):
        bind(here)


@pytest.mark.parametrize("removed", [[0], [1, 2], [0, 2], [2]])
def test_who_does_what_the_error_says_goes_on_without_lost_batches(tmp_path: Path, removed: list[int]) -> None:
    for batch in range(3):
        write(tmp_path / "in", batch, [batch])

    def shop(*late: str) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db", tick=0.02)
        orders = flow.source("orders", source(tmp_path / "in", max_records_per_epoch=1))
        for name in ("first", *late):
            flow.sink(name, orders, tg.ParquetSink(f"{tmp_path}/{name}"))
        return flow

    shop().run("caught-up", engine="local")
    write(tmp_path / "in", 3, [3])  # which is not bound yet
    for batch in removed:
        (tmp_path / "in" / "orders" / f"{batch:012}.json").unlink()
    flow = shop("late")
    for _ in removed:
        with pytest.raises(RecordsLost) as caught:
            flow.run("caught-up", engine="local")
        command = re.search("tidegauge skip FLOW (.*)", caught.value.next_step)
        assert command is not None
        name, partition, lower, upper = command[1].split()
        assert tg.skip(flow, name, partition, int(lower), int(upper)).gaps
        if int(upper) - int(lower) == len(removed):
            break
    flow.run("caught-up", engine="local")
    assert sorted(tg.read_arrow(flow, "first")["id"].to_pylist()) == [0, 1, 2, 3]
    assert sorted(tg.read_arrow(flow, "late")["id"].to_pylist()) == sorted({0, 1, 2, 3} - {*removed})


def test_batches_that_are_published_may_be_removed(tmp_path: Path) -> None:
    for batch in range(3):
        write(tmp_path, batch, [batch])
    here = source(tmp_path)
    bound, _ = bind(here)
    for batch in range(2):
        (tmp_path / "orders" / f"{batch:012}.json").unlink()
        shutil.rmtree(tmp_path / "orders" / f"{batch:012}")
    assert bind(here, bound)[0].frontier == bound.frontier
    write(tmp_path, 3, [3])
    more, _ = bind(here, bound)
    assert ids(here, more, bound) == [3]
    shutil.rmtree(tmp_path / "orders")  # a query that was given up
    write(tmp_path, 0, [9], name="orders-2", query="two")
    last, _ = bind(here, more)
    assert ids(here, last, more) == [9]


def test_a_folder_that_was_put_back_and_written_on_is_another(tmp_path: Path) -> None:
    write(tmp_path, 0, [0])
    shutil.copytree(tmp_path / "orders", tmp_path / "kept")
    write(tmp_path, 1, [1])
    here = source(tmp_path)
    bound, _ = bind(here)
    shutil.rmtree(tmp_path / "orders")
    (tmp_path / "kept").rename(tmp_path / "orders")
    assert bind(here, bound)[0].frontier == bound.frontier
    write(tmp_path, 1, [7], [8])
    with pytest.raises(BatchesReplaced, match=r"batch 1 .* digest"):
        bind(here, bound)
    write(tmp_path, 2, [9])
    with pytest.raises(BatchesReplaced):
        bind(here, bound)
    (tmp_path / "orders" / f"{1:012}.json").unlink()
    with pytest.raises(BatchesReplaced, match=r"batch 2 .* predecessor"):
        bind(here, bound)


def test_a_new_checkpoint_after_the_folder_was_emptied_is_another_query(tmp_path: Path) -> None:
    write(tmp_path, 0, [0])
    here = source(tmp_path)
    bound, _ = bind(here)
    shutil.rmtree(tmp_path / "orders")
    write(tmp_path, 0, [0], query="two")
    with pytest.raises(BatchesReplaced, match="its query is two, and was one"):
        bind(here, bound)


def test_before_anybody_has_written_it_waits(tmp_path: Path) -> None:
    seen = source(tmp_path / "later").probe(Bound(), now=NOW)
    assert (dict(seen.upper), seen.more) == ({}, False)
    assert "no query has written" in seen.note


def test_what_it_is_given_is_checked(tmp_path: Path) -> None:
    with pytest.raises(BatchesElsewhere):
        tg.BatchSource("hdfs://lake/batches", columns="id long")
    with pytest.raises(BatchesElsewhere):
        tg.write_batches("s3://lake/batches", query="orders")
    with pytest.raises(ReservedColumn):
        tg.BatchSource(str(tmp_path), columns="_epoch long")
    for wrong in ({"max_records_per_epoch": 0}, {"columns": None}):
        with pytest.raises(InvalidArgument):
            tg.BatchSource(str(tmp_path), **{"columns": "id long", **wrong})  # type: ignore[arg-type]
    for name in ("", "..", "a/b", "_staged", ".x", "a\n", "x" * 129, None):
        with pytest.raises(InvalidArgument, match="query"):
            tg.write_batches(str(tmp_path), query=name)  # type: ignore[arg-type]


# -- the query, as Spark tells of it


class _Session:
    """What a session says of its queries, without Spark."""

    def __init__(self, told: str | None, *active: tuple[str, str | None]) -> None:
        self._told = told
        self.sparkContext = self
        self.streams = self
        self.active = [type("Query", (), {"id": found, "name": name})() for found, name in active]

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's name
        assert name == "sql.streaming.queryId"
        return self._told


class _Frame:
    def __init__(self, session: _Session, rows: int) -> None:
        self.sparkSession = session
        self._rows = rows

    def count(self) -> int:
        return self._rows


def test_a_query_is_told_by_spark_by_its_name_or_because_it_is_the_only_one(tmp_path: Path) -> None:
    write(tmp_path, 0, [1, 2])
    writer = tg.write_batches(tmp_path, query="orders")
    for session in (
        _Session("one", ("two", None)),
        _Session(None, ("two", "users"), ("one", "orders")),
        _Session(None, ("one", None)),
    ):
        writer(_Frame(session, 2), 0)
        with pytest.raises(BatchUnlike):
            writer(_Frame(session, 3), 0)
    for session in (_Session("two", ("one", "orders")), _Session(None, ("two", "orders"))):
        with pytest.raises(AnotherCheckpoint):
            writer(_Frame(session, 2), 0)
    for session in (_Session(None), _Session(None, ("one", "users")), _Session(None, ("one", None), ("two", None))):
        with pytest.raises(QueryNotTold, match="queryName"):
            writer(_Frame(session, 2), 0)
    assert writer == BatchWriter(str(tmp_path / "orders"))


@given(st.binary(max_size=200), st.integers(0, 300))
def test_any_bytes_are_a_manifest_as_it_was_written_or_an_error(noise: bytes, at: int) -> None:
    whole = BatchManifest("one", 0, 3, "abc", ()).encode()
    for data in (noise, whole[:at], whole[:at] + noise, noise + whole):
        if data != whole:
            with pytest.raises(BatchDamaged):
                decoded(data, "here")
