"""What Spark is given of an output, without Spark: its protocol, played by a model that crashes where it likes."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.depth import deep
from tests.flow.badinput import beside, finish, lines, write
from tests.flow.by_hand import World
from tests.looking.test_subscriptions import LOCAL, Shop
from tests.postgres import Server, new_database

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.command import FlowNeverRan, NotPublished, OutputHasFailed
from tidegauge.errors.flow import InvalidArgument, UnknownName
from tidegauge.errors.readers import (
    ChangesNotAskedFor,
    ChangesUnknown,
    CheckpointAhead,
    CheckpointOfAnother,
    ColumnsUnlike,
    NoRowsYet,
    NotReadBySpark,
    OptionMisplaced,
    OptionMissing,
    UnknownOption,
)
from tidegauge.errors.secrets import SecretInClear
from tidegauge.errors.store import EpochBelowSince, NotAStore, StoreUnreachable
from tidegauge.looking.datasource import following
from tidegauge.looking.datasource.source import TidegaugeDataSource
from tidegauge.looking.datasource.unlimited import UnlimitedReader


@pytest.fixture(autouse=True, scope="module")
def _no_pauses() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(following, "_PAUSE", 0.0)
        yield


def options(root: Path, output: str = "all", **others: Any) -> dict[str, str]:
    named = {"store": f"sqlite:///{root}/shop.db", "flow": "shop", "output": output}
    return {name.lower(): str(text) for name, text in {**named, **others}.items()}


def source(root: Path, output: str = "all", **others: Any) -> tuple[Any, Any]:
    """The source as Spark makes it, and the columns of its frame."""
    made = TidegaugeDataSource(options(root, output, **others))
    schema = made.schema()
    return pickle.loads(pickle.dumps(made)), schema


def rows_in(reader: Any, partitions: Sequence[Any]) -> list[dict[str, Any]]:
    """What the tasks read: each has a copy of the reader and its own partition."""
    sent = pickle.dumps(reader)
    found = []
    for partition in partitions:
        for batch in pickle.loads(sent).read(pickle.loads(pickle.dumps(partition))):
            found += batch.to_pylist()
    return found


def table_in(root: Path, output: str = "all", **others: Any) -> list[dict[str, Any]]:
    made, schema = source(root, output, **others)
    reader = made.reader(schema)
    return rows_in(reader, reader.partitions())


def bag(rows: list[dict[str, Any]], *, without: str = "") -> Counter[str]:
    return Counter(json.dumps({k: v for k, v in row.items() if k != without}, sort_keys=True) for row in rows)


EACH = [pytest.param("all", marks=pytest.mark.long), "newest", pytest.param("parted", marks=pytest.mark.long)]


class Query:
    """A micro-batch query: a log of offsets, a log of commits, and a sink that keeps a batch once, by its number.

    `reader` is new after each crash, as the process that it is in.
    """

    def __init__(self, root: Path, output: str, **others: Any) -> None:
        self.root, self.output, self.others = root, output, others
        self.offsets: list[str] = []
        self.commits = 0
        self.sink: dict[int, list[dict[str, Any]]] = {}
        self.start()

    def start(self, *, now: bool = False) -> None:
        made, schema = source(self.root, self.output, **self.others)
        self.reader = made.streamReader(schema)
        self.limit = self.reader.getDefaultReadLimit()
        if now:
            self.reader.prepareForTriggerAvailableNow()

    @property
    def at(self) -> str:
        """The offset after the last batch that was committed."""
        return self.offsets[self.commits - 1] if self.commits else json.dumps(self.reader.initialOffset())

    def plan(self) -> bool:
        """Log the next batch, unless one is under way; whether there is one."""
        if len(self.offsets) == self.commits:
            start = self.at
            end = json.dumps(self.reader.latestOffset(json.loads(start), self.limit))
            if end == start:
                return False
            self.offsets.append(end)
        return True

    def execute(self) -> None:
        """Run the batch that is under way. Run again, it has the same rows."""
        end = json.loads(self.offsets[self.commits])
        rows = rows_in(self.reader, self.reader.partitions(json.loads(self.at), end))
        if self.commits in self.sink:
            assert bag(rows) == bag(self.sink[self.commits])
        self.sink[self.commits] = rows

    def drain(self) -> None:
        while self.plan():
            self.execute()
            self.commits += 1

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in self.sink.values() for row in batch]


def three_epochs(root: Path) -> Shop:
    shop = Shop(root)
    shop.run((1, "ada"), (2, "bob"), (2, "bob"))
    shop.run((1, "ada!"), (3, "eve"))
    shop.run((2, None), (3, "eve"))
    return shop


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return three_epochs(tmp_path)


@pytest.fixture(scope="module")
def read_only(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """The same, for tests that change nothing."""
    return three_epochs(tmp_path_factory.mktemp("read-only"))


@pytest.mark.parametrize("output", ["all", "newest", "parted"])
def test_a_table_is_that_of_read_arrow(read_only: Shop, output: str) -> None:
    for as_of in (None, 0, 1, 2, "2126-11-20 17:00"):
        given = {} if as_of is None else {"asOf": as_of}
        expected = tg.read_arrow(read_only.flow, output, as_of=as_of).to_pylist()
        assert bag(table_in(read_only.root, output, **given)) == bag(expected)
    path = f"{read_only.root}/users.jsonl"
    size = len((read_only.root / "users.jsonl").read_bytes().splitlines(keepends=True)[0])
    as_of = json.dumps({"users": {path: size}})
    assert bag(table_in(read_only.root, "all", asOf=as_of)) == bag(
        tg.read_arrow(read_only.flow, "all", as_of=0).to_pylist()
    )


def test_a_frame_stays_at_the_epoch_that_was_the_newest_when_it_was_loaded(shop: Shop) -> None:
    made, schema = source(shop.root)
    before = tg.read_arrow(shop.flow, "all").to_pylist()
    shop.run((9, "zoe"))
    reader = made.reader(schema)
    assert bag(rows_in(reader, reader.partitions())) == bag(before)


ROWS = st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["a", "b", None])), min_size=1, max_size=3)
CRASHES = ("before the plan", "after the plan", "after the batch")


@deep(20)
@given(
    kind=st.sampled_from(["all", "newest", "parted"]),
    most=st.sampled_from([None, 1, 2]),
    starting=st.sampled_from(["earliest", "latest", 0, 1]),
    late=st.booleans(),
    before=st.lists(ROWS, min_size=1, max_size=3),
    steps=st.lists(
        st.one_of(st.tuples(st.just("run"), ROWS), st.sampled_from([(s, None) for s in ("batch", "now", *CRASHES)])),
        max_size=8,
    ),
)
@example(kind="parted", most=1, starting="earliest", late=True, before=[[(n, "a")] for n in range(3)], steps=[])
def test_whatever_crashes_a_query_gives_each_row_once(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    most: int | None,
    starting: str | int,
    late: bool,
    before: list[Any],
    steps: list[tuple[str, Any]],
) -> None:
    shop = Shop(tmp_path_factory.mktemp("shop"), kinds="beside" if late else kind)
    epochs = 0
    for rows in before:
        shop.run(*rows)
        epochs += 1
    if late:  # its table gets these epochs in one commit, and in the same files
        shop.kinds = ["beside", kind]
        shop.run()
        starting = "earliest" if kind == "newest" and starting == 1 else starting
    given: dict[str, Any] = {"startingOffsets": starting} | ({} if most is None else {"maxEpochsPerTrigger": most})
    given |= {"changes": "true"} if kind == "newest" else {}
    query = Query(shop.root, kind, **given)
    first = None if starting == "latest" else 0 if starting == "earliest" else int(starting)
    for step, rows in steps:
        if step == "run":
            shop.run(*rows)
            epochs += 1
            continue
        if step == "now":  # to its end, and no further, whatever comes meanwhile
            query.start(now=True)
            end = epochs
            shop.run((1, "meanwhile"))
            epochs += 1
            query.drain()
            assert json.loads(query.at)["epoch"] == end
        elif step == "before the plan":
            query.start()
        elif query.plan():
            if first is None:
                first = epochs
            if step == "after the plan":
                query.start()
            query.execute()
            if step == "after the batch":
                query.start()
                continue
            query.commits += 1
        if first is None and query.offsets:
            first = json.loads(query.offsets[0])["epoch"]
    query.start()
    query.drain()
    first = json.loads(query.offsets[0])["epoch"] if first is None else first
    assert json.loads(query.at)["epoch"] == epochs
    if kind == "newest":
        base = [] if first == 0 else tg.read_arrow(shop.flow, kind, as_of=first - 1).to_pylist()
        total = Counter(json.dumps({k: v for k, v in row.items() if k != "_epoch"}) for row in base)
        for row in query.rows:
            total[json.dumps({k: v for k, v in row.items() if k not in ("_epoch", "_diff")})] += row["_diff"]
        newest = tg.read_arrow(shop.flow, kind).to_pylist()
        assert +total == Counter(json.dumps({k: v for k, v in row.items() if k != "_epoch"}) for row in newest)
        assert min(total.values(), default=0) >= 0
    else:
        expected = [row for row in tg.read_arrow(shop.flow, kind).to_pylist() if row["_epoch"] >= first]
        assert bag(query.rows) == bag(expected)
    ends = [0 if starting == "earliest" else first, *(json.loads(offset)["epoch"] for offset in query.offsets)]
    snapshot = kind == "newest" and first == 0
    if most is not None:
        assert all(b - a <= most for a, b in list(pairwise(ends))[1 if snapshot else 0 :])


def test_rows_that_only_come_may_have_a_diff_too(read_only: Shop) -> None:
    query = Query(read_only.root, "all", changes="true")
    query.drain()
    assert {row["_diff"] for row in query.rows} == {1}
    assert bag(query.rows, without="_diff") == bag(tg.read_arrow(read_only.flow, "all").to_pylist())
    assert list(query.rows[0])[:2] == ["_epoch", "_diff"]


def test_a_table_by_key_comes_whole_at_first_whatever_the_limit(read_only: Shop) -> None:
    query = Query(read_only.root, "newest", changes="true", maxEpochsPerTrigger=1)
    assert query.plan()
    query.execute()
    assert json.loads(query.offsets[0])["epoch"] == 3
    assert {(row["_epoch"], row["_diff"]) for row in query.rows} == {(2, 1)}


def test_epochs_that_are_in_the_table_and_not_published_are_not_given(shop: Shop) -> None:
    with closing(sqlite3.connect(shop.root / "shop.db")) as store, store:  # as if a driver had died between the two
        store.execute("UPDATE flows SET published = 2")
    for output in ("parted", "newest"):
        query = Query(shop.root, output, changes="true")
        query.drain()
        assert json.loads(query.at)["epoch"] == 2
        assert max(row["_epoch"] for row in query.rows) == 1
        assert bag(table_in(shop.root, output)) == bag(tg.read_arrow(shop.flow, output, as_of=1).to_pylist())


def test_epochs_that_share_a_commit_of_a_table_by_key_come_together(tmp_path: Path) -> None:
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db", tick=tg.Manual())
    names = flow.source("names", tg.FileSource(f"{tmp_path}/names.jsonl", format=tg.Json("id long, at long")))
    sink = tg.DeltaSink(f"{tmp_path}/newest", envelope="upsert", key="id", order="at")
    flow.sink("newest", names, sink, commit_every=3)
    with flow.start(engine=LOCAL):
        for at in range(9):
            with (tmp_path / "names.jsonl").open("a") as file:
                file.write(json.dumps({"id": at % 2, "at": at}) + "\n")
            flow.tick()
            if at % 3 == 2:
                flow.wait_for("now", timeout=60)
    query = Query(tmp_path, "newest", changes="true", maxEpochsPerTrigger=1, startingOffsets=3)
    query.drain()
    assert [json.loads(offset)["epoch"] for offset in query.offsets] == [6, 9]
    assert sorted((row["_epoch"], row["_diff"], row["at"]) for row in query.rows) == [
        (5, -1, 1), (5, -1, 2), (5, 1, 4), (5, 1, 5), (8, -1, 4), (8, -1, 5), (8, 1, 7), (8, 1, 8)
    ]  # fmt: skip


def test_rows_are_followed_through_compaction_and_maintenance(shop: Shop) -> None:
    query = Query(shop.root, "parted", maxEpochsPerTrigger=1)
    assert query.plan()
    query.execute()
    shop.run((7, "gil"))
    tg.compact(shop.flow, before=3)
    tg.maintain(shop.flow)
    query.start()
    query.execute()  # again: the epoch is no longer told from others by the store, and is by the rows
    query.commits += 1
    query.drain()
    assert bag(query.rows) == bag(tg.read_arrow(shop.flow, "parted").to_pylist())


def test_changes_below_what_was_compacted_are_unknown(shop: Shop) -> None:
    query = Query(shop.root, "newest", changes="true", startingOffsets=1)
    tg.compact(shop.flow, before=2)
    with pytest.raises(ChangesUnknown, match="TG-0652"):
        query.drain()
    with pytest.raises(EpochBelowSince):
        table_in(shop.root, "all", asOf=0)


@pytest.mark.long
def test_a_checkpoint_of_a_table_that_was_made_again_is_refused(shop: Shop) -> None:
    queries = [Query(shop.root, kind, **({"changes": "true"} if kind == "newest" else {})) for kind in shop.kinds]
    for query in queries:
        query.drain()
        query.start()
        query.drain()  # the same table is no other one
    for kind in shop.kinds:
        shutil.rmtree(shop.root / "lake" / kind)
    (shop.root / "shop.db").rename(shop.root / "old.db")
    shop.run((9, "zoe"))
    for query in queries:
        query.start()
        with pytest.raises(CheckpointAhead, match="TG-0667"):
            query.drain()
    for at in range(3):
        shop.run((at, "more"))
    for query in queries:
        query.start()
        with pytest.raises(CheckpointOfAnother, match="another store"):
            query.drain()


@pytest.mark.parametrize("output", EACH)
def test_a_checkpoint_of_an_output_that_was_dropped_and_made_again_is_refused(shop: Shop, output: str) -> None:
    query = Query(shop.root, output, changes="true")
    query.drain()
    tg.drop(shop.flow, output, table=True)
    shop.run((9, "zoe"))
    query.start()
    with pytest.raises(CheckpointOfAnother, match="another table"):
        query.drain()


@pytest.mark.parametrize("output", EACH)
def test_a_checkpoint_of_a_table_whose_rows_were_replaced_is_refused(shop: Shop, output: str) -> None:
    query = Query(shop.root, output, changes="true")
    query.drain()
    tg.replace(shop.flow, output)
    shop.run((9, "zoe"))
    query.start()
    with pytest.raises(CheckpointOfAnother, match="another table"):
        query.drain()
    assert len(table_in(shop.root, output)) == tg.read_arrow(shop.flow, output).num_rows


def test_a_checkpoint_of_epochs_that_were_bound_anew_after_a_restore_is_refused(shop: Shop) -> None:
    kept = shop.root / "kept"
    shutil.copytree(shop.root, kept)
    shop.run((9, "zoe"))
    query = Query(shop.root, "all")
    query.drain()
    for name in ("shop.db", "lake"):
        there = shop.root / name
        shutil.rmtree(there) if there.is_dir() else there.unlink()
        shutil.copytree(kept / name, there) if there.is_dir() or name == "lake" else shutil.copy(kept / name, there)
    for beside_it in shop.root.glob("shop.db-*"):
        beside_it.unlink()
    query.start()
    with pytest.raises(CheckpointAhead):
        query.drain()
    with (shop.root / "users.jsonl").open("a") as file:
        file.write(json.dumps({"id": 77, "name": "other", "gone": False, "at": 77}) + "\n")
    shop.run((10, "two of them in one epoch"))
    query.start()
    with pytest.raises(CheckpointOfAnother, match="another history"):
        query.drain()


def test_a_table_that_was_put_back_alone_is_waited_for_by_those_who_have_its_rows(shop: Shop) -> None:
    query = Query(shop.root, "parted")
    kept = shop.root / "kept"
    shutil.copytree(shop.root / "lake" / "parted", kept)
    shop.run((9, "zoe"))
    query.drain()
    shutil.rmtree(shop.root / "lake" / "parted")
    shutil.copytree(kept, shop.root / "lake" / "parted")
    query.start()
    assert not query.plan()
    shop.run((10, "ann"))
    query.start()
    query.drain()
    assert bag(query.rows) == bag(tg.read_arrow(shop.flow, "parted").to_pylist())


def test_an_older_spark_has_all_that_is_there_and_is_told_of_what_went_back(read_only: Shop) -> None:
    made, schema = source(read_only.root, "all")
    reader = UnlimitedReader(made._given, schema)
    start, end = reader.initialOffset(), reader.latestOffset()
    expected = bag(tg.read_arrow(read_only.flow, "all").to_pylist())
    assert bag(rows_in(reader, reader.partitions(start, end))) == expected
    assert reader.partitions(end, end) == []
    with pytest.raises(CheckpointAhead):
        reader.partitions(end, {**end, "epoch": 2, "digest": ""})


def test_columns_may_be_named_and_have_to_be_those_of_the_table(read_only: Shop) -> None:
    made, schema = source(read_only.root)
    some = type(schema)([schema["name"], schema["_epoch"]])
    stream = TidegaugeDataSource(options(read_only.root)).streamReader(some)
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    rows = rows_in(stream, stream.partitions(stream.initialOffset(), end))
    assert rows
    assert {tuple(row) for row in rows} == {("name", "_epoch")}
    wrong = type(schema)().add("name", "long")
    with pytest.raises(ColumnsUnlike, match="bigint"):
        TidegaugeDataSource(options(read_only.root)).streamReader(wrong).partitions(stream.initialOffset(), end)
    with pytest.raises(ColumnsUnlike, match="none of this name"):
        made.reader(type(schema)().add("nom", "string")).partitions()
    with pytest.raises(InvalidArgument, match="asOf"):  # each time that it is computed it might show another epoch
        TidegaugeDataSource(options(read_only.root)).reader(some)
    named = TidegaugeDataSource(options(read_only.root, asOf=1)).reader(some)
    assert len(rows_in(named, named.partitions())) == 5


def test_what_makes_no_sense_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    good = options(tmp_path)
    for name in ("store", "flow", "output"):
        with pytest.raises(OptionMissing, match=name):
            TidegaugeDataSource({key: text for key, text in good.items() if key != name})
    with pytest.raises(UnknownOption, match="path"):
        TidegaugeDataSource({**good, "path": "/lake/orders"})
    for name, text in [
        ("asof", "soon"), ("asof", "{"), ("asof", '{"a": 1}'), ("startingoffsets", "newest"),
        ("startingoffsets", "-1"), ("maxepochspertrigger", "0"), ("maxepochspertrigger", "many"), ("changes", "yes"),
    ]:  # fmt: skip
        with pytest.raises(InvalidArgument):
            TidegaugeDataSource({**good, name: text})


def test_options_of_the_other_reader_are_refused(read_only: Shop) -> None:
    for name in ("startingOffsets", "maxEpochsPerTrigger"):
        others: dict[str, Any] = {name: 1}
        made, schema = source(read_only.root, **others)
        with pytest.raises(OptionMisplaced, match=name):
            made.reader(schema)
    made, schema = source(read_only.root, asOf=1)
    with pytest.raises(OptionMisplaced, match="asOf"):
        made.streamReader(schema)


def test_no_secret_gets_into_a_plan_and_a_reference_is_resolved_where_it_is_used(
    read_only: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for address in ("postgresql://ada:hunter2@db/shop", "postgresql://db/shop?password=hunter2"):
        with pytest.raises(SecretInClear) as refused:
            TidegaugeDataSource({**options(read_only.root), "store": address})
        assert "hunter2" not in str(refused.value)
    monkeypatch.setenv("SHOP_STORE", f"sqlite:///{read_only.root}/shop.db")
    made, schema = source(read_only.root, store="env:SHOP_STORE")
    assert b"shop.db" not in pickle.dumps(made)
    reader = made.reader(schema)
    assert len(rows_in(reader, reader.partitions())) == 7


def test_what_is_not_there_and_what_cannot_be_read_is_named(read_only: Shop) -> None:
    def refused(error: type[TidegaugeError], **others: Any) -> None:
        with pytest.raises(error):
            TidegaugeDataSource(options(read_only.root, **others)).schema()

    refused(FlowNeverRan, flow="stop")
    refused(FlowNeverRan, store=f"sqlite:///{read_only.root}/none.db")
    refused(UnknownName, output="none")
    refused(NotPublished, asOf=3)
    refused(NotPublished, asOf="2001-01-01")
    refused(NotAStore, store=f"sqlite:///{read_only.root}/users.jsonl")
    for epoch in (9, 4):
        query = Query(read_only.root, "all", startingOffsets=epoch)
        with pytest.raises(NotPublished):
            query.plan()
    with pytest.raises(ChangesNotAskedFor):
        Query(read_only.root, "newest").plan()


def test_an_output_that_is_no_table_of_files_or_has_none_yet_is_refused(tmp_path: Path) -> None:
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db")
    ids = flow.source("ids", tg.GeneratorSource(5, columns="id long", max_records_per_epoch=5))
    flow.sink("held", ids, tg.MemorySink())
    flow.sink("called", ids, tg.ForeachEpochSink(lambda rows, _attempt: rows.read_all(), f"{tmp_path}/called"))
    flow.sink("empty", ids.errors, tg.ParquetSink(f"{tmp_path}/empty"))
    flow.run("caught-up", engine=LOCAL)
    for output in ("held", "called"):
        with pytest.raises(NotReadBySpark, match="memory" if output == "held" else "foreach"):
            source(tmp_path, output)
    if not os.path.exists(f"{tmp_path}/empty"):
        with pytest.raises(NoRowsYet):
            source(tmp_path, "empty")


def test_an_output_that_has_failed_gives_what_it_has_and_says_why(tmp_path: Path) -> None:
    def picky(batch: Any) -> Any:
        if 2 in batch["n"].to_pylist():
            raise ValueError("two")
        return batch

    world = World(tmp_path, beside(picky))
    write(tmp_path / "a" / "1.jsonl", lines(1))
    finish(world)
    write(tmp_path / "a" / "1.jsonl", lines(2))
    finish(world)
    query = Query(tmp_path, "picky", store=world.store, flow=world.make(world).name)
    with pytest.raises(OutputHasFailed, match="two"):
        query.drain()
    assert [row["n"] for row in query.rows] == [1]


def test_a_partition_of_nothing_has_no_rows(read_only: Shop) -> None:
    made, schema = source(read_only.root)
    assert list(made.reader(schema).read(InputPartition(None))) == []
    assert pa.Table.from_batches([], schema=pa.schema([])).num_rows == 0


BY_ID: dict[str, Any] = {"envelope": "upsert", "key": "id", "order": "at"}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["marked", "parted", "iceberg", "iceberg by key"])
def test_tables_of_every_kind_are_read_and_followed_by_what_the_store_says_of_them(kind: str, tmp_path: Path) -> None:
    sinks: dict[str, Any] = {
        "marked": tg.DeltaSink(f"{tmp_path}/lake", **BY_ID, deletion_vectors=True, partition_by="name"),
        "parted": tg.DeltaSink(f"{tmp_path}/lake", partition_by=["name", tg.bucket(4, "id")], sort_by="at"),
        "iceberg": tg.IcebergSink("shop.all", f"{tmp_path}/lake", partition_by=tg.day("when")),
        "iceberg by key": tg.IcebergSink("shop.newest", f"{tmp_path}/lake", **BY_ID),
    }
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db")
    columns = "id long, name string, at long, when timestamp, tags array<string>, place struct<lat: double>"
    users = flow.source("users", tg.FileSource(f"{tmp_path}/users.jsonl", format=tg.Json(columns)))
    flow.sink("one", users, sinks[kind])
    by_key = "key" in kind or kind == "marked"
    query = None
    for epoch in range(3):
        with (tmp_path / "users.jsonl").open("a") as file:
            for key in (1, 2, 3 + epoch):
                at = 10 * epoch + key
                said = {"id": key, "name": "a b"[key % 3 :], "at": at, "when": f"2026-03-{at + 1:02}T00:00:00Z"}
                file.write(json.dumps({**said, "tags": ["x"] * key, "place": {"lat": key / 2}}) + "\n")
        flow.run("caught-up", engine=LOCAL)
        if query is None:
            query = Query(tmp_path, "one", **({"changes": "true"} if by_key else {}))
        query.drain()
    assert query is not None
    newest = tg.read_arrow(flow, "one").to_pylist()
    assert plain(table_in(tmp_path, "one")) == plain(newest)
    total = Counter[str]()
    for change in query.rows:
        total[repr({k: v for k, v in change.items() if k not in ("_epoch", "_diff")})] += change.get("_diff", 1)
    assert +total == Counter(repr({k: v for k, v in row.items() if k != "_epoch"}) for row in newest)


def plain(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.long
def test_a_query_goes_on_with_its_columns_when_the_table_gets_another(tmp_path: Path) -> None:
    def run(columns: str, row: dict[str, Any]) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db")
        users = flow.source("users", tg.FileSource(f"{tmp_path}/users.jsonl", format=tg.Json(columns)))
        flow.sink("all", users, tg.DeltaSink(f"{tmp_path}/all"), schema="add")
        with (tmp_path / "users.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        flow.run("caught-up", engine=LOCAL)
        return flow

    run("id long", {"id": 1})
    query = Query(tmp_path, "all")
    query.drain()
    run("id long, name string", {"id": 2, "name": "bob"})
    query.drain()
    assert [set(row) for row in query.rows] == [{"id", "_epoch"}] * 2
    run("id long, name string", {"id": 3, "name": "eve"})
    query.start()  # now it has both, and goes on from its checkpoint, for it is the same table
    query.drain()
    assert query.rows[-1] == {"id": 3, "name": "eve", "_epoch": 2}


@pytest.mark.long
def test_a_store_in_postgresql_is_named_by_reference_and_its_password_is_nowhere(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = postgres.address(new_database(postgres))
    secret = (
        f"{address}{'&' if '?' in address else '?'}password=hunter2"  # the server trusts who comes, and ignores it
    )
    flow = tg.Dataflow("shop", store=address)
    ids = flow.source("ids", tg.GeneratorSource(7, columns="id long", max_records_per_epoch=2))
    flow.sink("ids", ids, tg.ParquetSink(f"{tmp_path}/ids"))
    flow.run("caught-up", engine=LOCAL)
    monkeypatch.setenv("SHOP_STORE", secret)
    query = Query(tmp_path, "ids", store="env:SHOP_STORE", maxEpochsPerTrigger=3)
    query.drain()
    assert bag(query.rows) == bag(tg.read_arrow(flow, "ids").to_pylist())
    kept = pickle.dumps([query.reader, query.reader.partitions(query.reader.initialOffset(), json.loads(query.at))])
    assert b"hunter2" not in kept + "".join(query.offsets).encode()
    monkeypatch.setenv("SHOP_STORE", "postgresql://ada:hunter2@127.0.0.1:1/shop")
    with pytest.raises(StoreUnreachable) as refused:
        query.start()
    assert "hunter2" not in str(refused.value)
