"""A parted table by key is the dictionary of its changes, also where rows move from partition to partition."""

from __future__ import annotations

import json
import os
import random
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock
from urllib.parse import unquote

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, WriterProperties
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep
from tests.sinks.asking import PARTED, READERS, predicates, write

import tidegauge as tg
from tidegauge.errors.kafkasink import LastUndecided
from tidegauge.errors.layout import PartitionedOtherwise, PartitionValueUnfit, TooManyPartitions
from tidegauge.errors.sinks import EpochReplaced
from tidegauge.sinks import DeltaSink, OutputId, StagedFile, staging
from tidegauge.sinks.delta import bykey, packing
from tidegauge.sinks.delta.leaves import DeltaLeaves
from tidegauge.sinks.keyed import merging, runs, working
from tidegauge.sinks.keyed.merging import MergeTask
from tidegauge.sinks.keyed.parting import PartingTask, home_of, homes
from tidegauge.sinks.keyed.planning import Sizes, by_partition, clusters
from tidegauge.sinks.layout import noting
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.protocol import Volume, job_mark
from tidegauge.sinks.vectors import deleted

OUTPUT = OutputId("shop", "orders", "a" * 32)
SMALL = Sizes(leaf_bytes=1 << 30, leaf_rows=3, task_bytes=1, part_bytes=1 << 20, part_rows=2, few_rows=0)
GROUPS = WriterProperties(max_row_group_size=2)
PACKED_ROWS = 12
START = datetime(2026, 11, 20, tzinfo=UTC)
COUNTRIES = ["DE", "a/b %41", None]
WAYS: Mapping[str, Any] = {
    "a column that moves": "country",
    "a day that moves": tg.day("at"),
    "a bucket of the key": tg.bucket(3, "id"),
    "a column of the key": "shop",
    "both": ("shop", tg.month("at")),
    "two of the key": (tg.bucket(2, "id"), "shop"),
}
SCHEMA = pa.schema(
    [
        ("shop", pa.string()),
        ("id", pa.int64()),
        ("country", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("value", pa.int64()),
        ("n", pa.int64()),
        ("_op", pa.string()),
        ("_epoch", pa.int64()),
    ]
)
Row: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class Change:
    """What becomes of a key, and which partition its row is in then."""

    key: int
    op: str
    country: int
    days: int
    value: int


@dataclass
class Bench:
    """A parted table by key, and the dictionary that it should be."""

    folder: str
    way: Any
    simple: bool = False
    """Whether the key is one column, so that statistics tell the keys apart."""
    vectors: bool = False
    """Whether the table has deletion vectors."""
    random: random.Random = field(default_factory=random.Random)
    wanted: dict[Row, Row] = field(default_factory=dict)
    states: list[dict[Row, Row]] = field(default_factory=list)
    readable: list[bool] = field(default_factory=list)
    upper: int = 0

    def __post_init__(self) -> None:
        key = "id" if self.simple else ["shop", "id"]
        self.sink: Any = self.made(envelope="upsert", key=key, order="n", partition_by=self.way)
        self.sink.check(SCHEMA)
        self.table: Any = self.sink.open(OUTPUT)

    def made(self, **options: Any) -> Any:
        return DeltaSink(f"{self.folder}/t", **options, deletion_vectors=self.vectors)

    @property
    def root(self) -> str:
        """The table's folder."""
        return f"{self.folder}/t"

    def read(self) -> pa.Table:
        """Return the rows, as a stranger reads them."""
        read = read_polars if self.vectors else read_dataset  # which refuses every table that may have vectors
        return read(self.root)

    def rows(self, epoch: int, changes: Sequence[Change]) -> list[dict[str, Any]]:
        """Return the rows of an epoch, as the dictionary takes them in, too."""
        found = []
        for at, change in enumerate(changes):
            key = ("a", change.key) if self.simple else ("ab"[change.key % 2], change.key // 2)
            said = COUNTRIES[change.country], START + timedelta(days=change.days), change.value
            if change.op == "delete":
                said = "", said[1], said[2]  # it says nothing of a partition
                self.wanted.pop(key, None)
            elif change.op != "before":
                self.wanted[key] = *said, epoch
            names = ["shop", "id", "country", "at", "value", "n", "_op", "_epoch"]
            found.append(dict(zip(names, (*key, *said, at, change.op, epoch), strict=True)))
        self.states.append(dict(self.wanted))
        return found

    def stage(self, rows: list[dict[str, Any]]) -> list[StagedFile]:
        self.random.shuffle(rows)
        job, files = job_mark(OUTPUT.incarnation) + uuid.uuid4().hex[:16], list[StagedFile]()
        for number, start in enumerate(range(0, len(rows), 4)):
            stager = self.sink.stage(SCHEMA, job=job, task=number)
            stager.write(pa.RecordBatch.from_pylist(rows[start : start + 4], schema=SCHEMA))
            files += [StagedFile.decode(file.encode()) for file in stager.close()]
        return files

    def commit(self, span: Sequence[Sequence[Change]]) -> None:
        lower, upper = self.upper, self.upper + len(span)
        rows = [row for at, changes in enumerate(span) for row in self.rows(lower + at, changes)]
        told = [row["_epoch"] for row in rows if row["_op"] != "before"]
        inside = range(min(told), max(told)) if told else range(0)
        self.readable += [epoch not in inside for epoch in range(lower, upper)]
        self.table.commit(lower, upper, SCHEMA, self.stage(rows), write=uuid.uuid4().hex)
        self.upper = upper

    def check(self, *, since: int = 0) -> None:
        """See that the table is the dictionary, for a stranger now, and as of each epoch that can be told."""
        if not self.upper:
            return
        assert dictionary(self.read().to_pylist()) == self.wanted
        assert self.table.upper == self.sink.open(OUTPUT).upper == self.upper
        assert self.table.volume() == Volume.of(self.table.files())
        for epoch in range(since, self.upper):
            if self.readable[epoch]:
                assert self.shown(epoch) == self.states[epoch], f"as of {epoch}"
            else:
                with pytest.raises(EpochReplaced):
                    self.table.files(as_of=epoch)

    def shown(self, epoch: int) -> dict[Row, Row]:
        """Return what the files of an epoch have, each with the values of its partition."""
        rows = list[dict[str, Any]]()
        for file in self.table.files(as_of=epoch):
            dead = set(deleted(file.deletions).tolist())
            held = pq.ParquetFile(f"{self.root}/{file.path}").read().to_pylist()
            found = [row for place, row in enumerate(held) if place not in dead]
            rows += [{**dict(file.partition), **row} for row in found if row["_epoch"] <= epoch]
        return dictionary(rows)

    def litter(self) -> set[str]:
        """Return what is in the folder and is not named by any version."""
        named = {
            path
            for version in range(DeltaTable(self.sink.path).version() + 1)
            for path in paths(self.sink.path, version)
        }
        there = set[str]()
        for folder, _, names in os.walk(self.sink.path):
            there |= {os.path.relpath(f"{folder}/{name}", self.sink.path) for name in names}
        return {path for path in there - named if not path.startswith(("_delta_log", "_tidegauge"))}


def local(path: str) -> Any:
    return pyarrow.fs.SubTreeFileSystem(path, pyarrow.fs.LocalFileSystem())


def paths(path: str, version: int) -> set[str]:
    actions = pa.table(DeltaTable(path, version=version).get_add_actions())
    return {unquote(one) for one in actions.column("path").to_pylist()}


def read_dataset(path: str) -> pa.Table:
    table: pa.Table = DeltaTable(path).to_pyarrow_dataset(filesystem=local(path)).to_table()
    return table


def read_polars(path: str) -> pa.Table:
    return pl.scan_delta(path).collect().to_arrow()


def read_duckdb(path: str) -> pa.Table:
    data = DeltaTable(path).to_pyarrow_dataset(filesystem=local(path))
    with duckdb.connect() as connection:
        connection.execute("set timezone='UTC'")
        connection.register("t", data)
        return pa.Table.from_batches(connection.sql("select * from t").to_arrow_reader())


def dictionary(rows: Sequence[dict[str, Any]]) -> dict[Row, Row]:
    found: dict[Row, Row] = {}
    for row in rows:
        key = row["shop"], row["id"]
        assert key not in found, f"{key} is there twice"
        found[key] = row["country"], row["at"].astimezone(UTC), row["value"], row["_epoch"]
        if "at_day" in row:
            assert str(row["at_day"]) == str(row["at"].astimezone(UTC).date())
    return found


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    """Everything is small: runs, row groups, leaves, tasks, parts."""
    with (
        mock.patch.object(runs, "RUN_ROWS", 3),
        mock.patch.object(runs, "GROUP_ROWS", 2),
        mock.patch.object(staging, "GROUP_ROWS", 2),
        mock.patch.object(merging, "_EVERY", 2),
        mock.patch.object(merging, "_BATCH", 3),
    ):
        yield


CHANGE = st.builds(
    Change,
    st.integers(0, 11),
    st.sampled_from(["insert", "update", "update", "delete", "before"]),
    st.integers(0, 2),
    st.integers(0, 2).map(lambda days: days * 20),
    st.integers(0, 9),
)
SPAN = st.lists(st.lists(CHANGE, max_size=10), min_size=1, max_size=3)
OTHERS = st.sampled_from(["nothing", "nothing", "pack", "pack", "compact", "checkpoint", "reopen", "vacuum"])


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.long] if at % 2 else []) for at, way in enumerate(WAYS)]
)
@deep(20)
@given(
    spans=st.lists(st.tuples(SPAN, OTHERS), min_size=1, max_size=5),
    few=st.sampled_from([0, 1 << 20]),
    vectors=st.booleans(),
    dead=st.sampled_from([0.4, 1.0]),
    chance=st.randoms(use_true_random=False),
)
def test_a_parted_table_is_the_dictionary_of_its_changes(
    way: str,
    spans: list[tuple[list[list[Change]], str]],
    few: int,
    vectors: bool,
    dead: float,
    chance: random.Random,
) -> None:
    """few: how many keys are looked for in the row groups alone that may have them."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(bykey, "SIZES", replace(SMALL, most_dead=dead)),
        mock.patch.object(packing, "SIZES", replace(SMALL, leaf_rows=PACKED_ROWS)),
        mock.patch.object(merging, "_FEW", few),
    ):
        bench = Bench(folder, WAYS[way], vectors=vectors, random=chance)
        since = 0
        for span, others in spans:
            bench.commit(span)
            assert bench.litter() == set()
            since = bench.upper - 1 if others == "vacuum" else since
            disturb(bench, others)
            bench.check(since=since)
            assert_parted(bench)


def assert_parted(bench: Bench) -> None:
    """See that what the log says of partitions is what the leaves have, listed at once or followed."""
    files = {file.path: file.partition for file in bench.table.files()}
    leaves = DeltaLeaves(bench.sink.path, ("id",)).at(DeltaTable(bench.sink.path).version())
    assert {path: leaf.file.partition for path, leaf in leaves.items()} == files
    assert all(leaf.file.rows <= PACKED_ROWS * 4 for leaf in leaves.values())


def disturb(bench: Bench, what: str) -> None:
    table = DeltaTable(bench.sink.path)
    match what:
        case "pack":
            pack(bench)
        case "compact":
            table.optimize.compact(writer_properties=GROUPS)
        case "checkpoint":
            table.create_checkpoint()
        case "vacuum":
            table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        case "reopen":
            bench.table = bench.sink.open(OUTPUT)
        case _:
            pass


def pack(bench: Bench) -> None:
    upkeep, mark = bench.sink.maintain(OUTPUT), job_mark(OUTPUT.incarnation)
    for _ in range(3 if bench.vectors else 1):
        for some in upkeep.plan():
            assert len({file.partition for file in some.files}) == 1
            files = upkeep.stage(some, job=mark + uuid.uuid4().hex[:16])
            assert len(files) < len(some.files) or some.files[0].deletions
            assert upkeep.commit(some, files, write=uuid.uuid4().hex) is not None
    assert upkeep.plan() == []


# -- what it costs


def grown(folder: Path, way: Any, count: int = 60) -> Bench:
    """Return a table of many rows, in leaves of ten, all partitions with keys from end to end."""
    bench = Bench(str(folder), way, simple=True)
    bench.commit([[Change(key, "insert", key % 2, key % 3 * 20, 1) for key in range(count)]])
    return bench


@pytest.fixture
def leaves_of_ten() -> Iterator[None]:
    with mock.patch.object(bykey, "SIZES", replace(SMALL, leaf_rows=10, task_bytes=1 << 30)):
        yield


@pytest.mark.usefixtures("leaves_of_ten")
def test_only_leaves_that_hold_a_changed_key_are_written_anew(tmp_path: Path) -> None:
    bench = grown(tmp_path, "country")
    before = {file.path: file for file in bench.table.files()}
    bench.commit([[Change(30, "update", 1, 0, 7)]])  # from one country to the other
    after = {file.path: file for file in bench.table.files()}
    gone = [before[path] for path in before.keys() - after.keys()]
    new = [after[path] for path in after.keys() - before.keys()]
    assert {file.partition for file in gone + new} == {(("country", "DE"),), (("country", "a/b %41"),)}
    assert (len(gone), len(new)) == (2, 2)
    assert len(before) > 4
    bench.check()


@pytest.mark.usefixtures("leaves_of_ten")
def test_where_the_key_says_the_partition_only_that_one_is_looked_at(tmp_path: Path) -> None:
    bench = grown(tmp_path, tg.bucket(3, "id"))
    seen = set[Any]()

    def workers(tasks: Any) -> Any:
        merges = [merge for task in tasks for merge in task.tasks]
        assert all(isinstance(merge, MergeTask) and not merge.merge.keys for merge in merges)
        seen.update(merge.partition for merge in merges)
        return [task() for task in tasks]

    bench.table.work_by(workers)
    bench.commit([[Change(30, "update", 1, 0, 7)]])
    assert len(seen) == 1
    bench.check()


@pytest.mark.usefixtures("leaves_of_ten")
def test_leaves_whose_ends_do_not_reach_a_changed_key_are_not_even_looked_at(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), tg.day("at"), simple=True)
    bench.commit([[Change(key, "insert", 0, key // 12, 1) for key in range(60)]])  # keys grow with the days
    merged = list[str]()

    def workers(tasks: Any) -> Any:
        merged.extend(path for task in tasks for merge in task.tasks for path in merge.merge.leaves)
        return [task() for task in tasks]

    bench.table.work_by(workers)
    bench.commit([[Change(30, "update", 0, 2, 7)]])
    assert len(merged) == 1
    bench.check()


def test_many_changes_are_settled_by_the_workers(tmp_path: Path) -> None:
    done = list[Any]()

    def workers(tasks: Any) -> Any:
        done.extend(tasks)
        return [task() for task in tasks]

    with mock.patch.object(working, "_FEW", 1), mock.patch.object(bykey, "SIZES", SMALL):
        bench = Bench(str(tmp_path), "country")
        bench.table.work_by(workers)
        bench.commit([[Change(key, "insert", key % 2, 0, 1) for key in range(12)]])
        bench.commit([[Change(key, "update", (key + 1) % 2, 0, 2) for key in range(12)]])
    assert sum(isinstance(task, PartingTask) for task in done) > 2
    bench.check()


# -- what is refused


def test_rows_that_tie_are_refused_whatever_partitions_they_go_to(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), "country")
    rows = bench.rows(0, [Change(1, "insert", 0, 0, 1), Change(1, "update", 1, 0, 2)])
    files = bench.stage([{**row, "n": 1} for row in rows])
    with pytest.raises(LastUndecided):
        bench.table.commit(0, 1, SCHEMA, files, write=uuid.uuid4().hex)
    assert bench.table.upper == 0


def test_a_value_that_is_no_partition_is_refused_unless_its_row_goes_away(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), "country")
    bench.commit([[Change(1, "insert", 0, 0, 1)], [Change(1, "delete", 0, 0, 1)]])
    bench.check()
    [row] = bench.rows(2, [Change(2, "insert", 0, 0, 1)])
    with pytest.raises(PartitionValueUnfit, match="epoch 2"):
        bench.stage([{**row, "country": ""}])


def test_a_column_with_a_value_for_each_row_is_refused_before_anything_is_committed(tmp_path: Path) -> None:
    sink = DeltaSink(str(tmp_path), envelope="upsert", key=["shop", "id"], order="n", partition_by="value")
    stager = sink.stage(SCHEMA, job="0" * 32, task=0)
    rows = [
        {"shop": "a", "id": n, "at": START, "value": n, "n": 0, "_op": "insert", "_epoch": 0}
        for n in range(noting.MOST + 1)
    ]
    with mock.patch.object(staging, "GROUP_ROWS", 1 << 20), pytest.raises(TooManyPartitions, match="4096"):
        stager.write(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    stager.abort()
    assert not any(names for _, _, names in os.walk(tmp_path))


def test_another_partition_by_is_refused_and_a_replacement_has_it(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), "country")
    bench.commit([[Change(key, "insert", key % 2, 0, 1) for key in range(6)]])
    other = Bench(str(tmp_path), tg.bucket(3, "id"))
    files = other.stage(other.rows(1, [Change(1, "update", 0, 0, 1)]))
    with pytest.raises(PartitionedOtherwise):
        other.table.commit(1, 2, SCHEMA, files, write=uuid.uuid4().hex)
    anew = other.table.replacement("e" * 32)
    rows = other.rows(0, [Change(key, "insert", 1, 0, 5) for key in range(4)])
    anew.commit(0, 2, SCHEMA, other.stage(rows), write=uuid.uuid4().hex)
    assert DeltaTable(other.sink.path).metadata().partition_columns == ["id_bucket_3"]
    assert {key: row[2] for key, row in dictionary(read_dataset(other.sink.path).to_pylist()).items()} == {
        ("ab"[key % 2], key // 2): 5 for key in range(4)
    }


# -- readers, and flows


@pytest.fixture(scope="module", params=["country", pytest.param("small", marks=pytest.mark.long)])
def by_key(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("parted_by_key"))
    with mock.patch.object(bykey, "SIZES", Sizes(leaf_rows=2)):
        write(path, PARTED, by_key=True, partition_by=[request.param])
    return path


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_gets_the_same_rows_with_filters_as_without(by_key: str, reader: str) -> None:
    asked = list(predicates(PARTED))[:: 3 if reader == "polars_scan" else 2]
    assert [answer for answer in READERS[reader](by_key, asked) if answer.filtered != answer.kept] == []


@pytest.mark.parametrize("read", [read_dataset, read_polars, read_duckdb])
def test_every_reader_gets_the_dictionary(tmp_path: Path, read: Any) -> None:
    bench = grown(tmp_path, tg.day("at"))
    bench.commit([[Change(key, "update", 0, key % 2 * 20, 7) for key in range(0, 60, 5)]])
    bench.commit([[Change(key, "delete", 0, 0, 7) for key in range(0, 60, 15)]])
    assert dictionary(read(bench.sink.path).to_pylist()) == bench.wanted


def test_homes_are_what_the_key_says_of_the_partition() -> None:
    layout = FileLayout.of("DeltaSink", ["shop", tg.day("at"), tg.bucket(4, "id")], None, None)
    assert homes(layout, ("shop", "id")) == ("shop", "id_bucket_4")
    values = (("shop", "a"), ("at_day", None), ("id_bucket_4", "3"))
    assert home_of(values, ("shop", "id_bucket_4")) == (("shop", "a"), ("id_bucket_4", "3"))


@pytest.mark.usefixtures("leaves_of_ten")
def test_leaves_of_a_partition_are_clusters_of_their_own(tmp_path: Path) -> None:
    bench = grown(tmp_path, "country")
    leaves = DeltaLeaves(bench.sink.path, ("id",)).at(DeltaTable(bench.sink.path).version())
    parted = by_partition(leaves.values())
    assert len(parted) == 2
    assert all(len(one.leaves) == 1 for some in parted.values() for one in clusters(some))


def test_a_flow_reads_back_rows_that_have_moved(tmp_path: Path) -> None:
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/store.db")
    form = tg.Json("id long, country string, gone boolean")
    orders = flow.source("orders", tg.FileSource(f"{tmp_path}/in/*.jsonl", format=form, metadata=True))
    sink = tg.DeltaSink(
        f"{tmp_path}/lake",
        envelope="upsert",
        key="id",
        order="_offset",
        deleted="gone",
        partition_by=["country", tg.bucket(2, "id")],
    )
    flow.sink("orders", orders.select("id", "country", "gone", "_offset"), sink)
    (tmp_path / "in").mkdir()
    states = list[list[tuple[int, str]]]()
    for epoch in range(3):
        lines: list[dict[str, Any]] = [
            {"id": n, "country": ["DE", "FR"][(n + epoch) % 2], "gone": n % 7 == epoch} for n in range(8)
        ]
        (tmp_path / "in" / f"{epoch}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        flow.run(engine="local", until="caught-up")
        states.append([(line["id"], line["country"]) for line in lines if not line["gone"]])
        tg.maintain(flow)
    for as_of, wanted in enumerate(states):
        found = tg.read_arrow(flow, "orders", as_of=as_of).to_pylist()
        assert sorted((row["id"], row["country"]) for row in found) == wanted
    assert not tg.verify(flow).problems
