"""Tables of Iceberg by key that are parted: a dictionary, whatever partitions its rows move to, for every reader."""

from __future__ import annotations

import json
import random
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitFailedException, ServiceUnavailableError
from pyiceberg.transforms import BucketTransform
from tests.depth import deep
from tests.sinks.asking import PARTED, _blobs, _bracketed, _sqlike, fill, predicates
from tests.sinks.iceberg import elsewhere, test_iceberg_partitions
from tests.sinks.iceberg.asking_iceberg import READERS as ICEBERG_READERS
from tests.sinks.iceberg.conftest import NAME as CATALOGUED
from tests.sinks.iceberg.conftest import catalog_in
from tests.sinks.iceberg.test_iceberg_partitions import FILTERS as FILTERS_APPENDED
from tests.sinks.iceberg.test_iceberg_partitions import WAYS as APPENDED
from tests.sinks.iceberg.test_iceberg_partitions import rows_of
from tests.sinks.iceberg.test_lost_answers import answering
from tests.sinks.keyed import test_parted_laws as laws
from tests.sinks.keyed.test_parted_laws import (
    OUTPUT,
    PACKED_ROWS,
    SCHEMA,
    SMALL,
    SPAN,
    START,
    Bench,
    Change,
    dictionary,
    pack,
)
from tests.sinks.keyed.test_parted_laws import small as small  # everything is small

import tidegauge as tg
from tidegauge.errors.iceberg import CatalogAway, FilesPartedOtherwise
from tidegauge.errors.kafkasink import LastUndecided
from tidegauge.errors.layout import PartitionColumnUnfit, PartitionedOtherwise, TooManyPartitions
from tidegauge.sinks import IcebergSink, staging
from tidegauge.sinks.iceberg import bykey, packing
from tidegauge.sinks.keyed import merging, working
from tidegauge.sinks.keyed.merging import MergeTask
from tidegauge.sinks.keyed.planning import Sizes
from tidegauge.sinks.layout import noting
from tidegauge.sinks.upkeep import Pack

NAME = "shop.users"
COLUMNS = {name: column for name, column in PARTED.items() if name != "text"}
ODD = ["", "a/b %41", "ü 日 = ' "]
WAYS: dict[str, Any] = {
    "a column that moves": "country",
    "a day that moves": tg.day("at"),
    "a bucket of the key": tg.bucket(3, "id"),
    "a column of the key": "shop",
    "a bucket of what moves": (tg.bucket(4, "country"), tg.hour("at")),
    "two of the key": (tg.bucket(2, "id"), "shop"),
    "all of it": (tg.month("at"), tg.bucket(2, "id"), "country"),
}
FILTERS = [
    "country = ''",
    "country is null",
    "country = 'DE' or country = 'a/b %41'",
    "at >= '2026-12-01T00:00:00+00:00'",
    "at is null or id = 3",
    "id > 2",
    "shop = 'a' and id < 4",
]
LATER = datetime(2026, 12, 1, tzinfo=UTC)
SQL: dict[str, Callable[[Any, Any, Any], bool]] = {
    "true": lambda _key, _country, _at: True,
    "country = ''": lambda _key, country, _at: country == "",
    "country IS NULL": lambda _key, country, _at: country is None,
    "country > 'a'": lambda _key, country, _at: country is not None and country > "a",
    "CAST({at} AS date) = DATE '2026-12-10'": lambda _key, _country, at: at.date().isoformat() == "2026-12-10",
    "{at} >= {instant} '2026-12-01 00:00:00+00:00'": lambda _key, _country, at: at >= LATER,
    "id = 3": lambda key, _country, _at: key[1] == 3,
    "id IN (1, 4) AND country IS NOT NULL": lambda key, country, _at: key[1] in (1, 4) and country is not None,
}


@dataclass
class Parted(Bench):
    """A parted table of Iceberg by key, and the dictionary that it should be."""

    ever: set[str] = field(default_factory=set)

    def made(self, **options: Any) -> IcebergSink:
        return IcebergSink(NAME, self.folder, **options)

    @property
    def root(self) -> str:
        return f"{self.folder}/shop/users"

    @property
    def there(self) -> Any:
        return catalog_in(self.folder).load_table(NAME)

    def read(self) -> pa.Table:
        rows: pa.Table = self.there.scan().to_arrow()
        return rows

    def litter(self) -> set[str]:
        """Return what no snapshot names, and none has named."""
        table = self.there
        self.ever |= {
            file.file.file_path.removeprefix(f"file://{self.root}/")
            for snapshot in table.snapshots()
            for file in table.scan(snapshot_id=snapshot.snapshot_id).plan_files()
        }
        found = {str(path.relative_to(self.root)) for path in Path(self.root).rglob("*.parquet")}
        return found - self.ever

    def files(self) -> list[Any]:
        """Return the files of the table, as its manifests have them."""
        return [task.file for task in self.there.scan().plan_files()]


def assert_parted(bench: Parted) -> None:
    """See that each file has the values of its rows, and that filters go by them."""
    table = bench.there
    assert_values(table)
    whole = dictionary(table.scan().to_arrow().to_pylist())
    for text in FILTERS:
        found = dictionary(table.scan(row_filter=text).to_arrow().to_pylist())
        assert found == {key: row for key, row in whole.items() if _keeps(text, key, row)}, text


def assert_values(table: Any) -> None:
    """See that each file of a table has the values of its rows, by Iceberg's own transforms."""
    schema, spec = table.schema(), table.spec()
    for file in (task.file for task in table.scan().plan_files()):
        rows = pq.read_table(file.file_path.removeprefix("file://")).to_pylist()
        assert rows
        for at, one in enumerate(spec.fields):
            source = schema.find_field(one.source_id)
            made = one.transform.transform(source.field_type)
            values = {made(_plain(row[source.name])) for row in rows}
            assert values == {file.partition[at]}, one


def _plain(value: Any) -> Any:
    """Return a value as pyiceberg's transforms take it: dates are days, and instants microseconds."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return (value - date(1970, 1, 1)).days
    return (
        (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        if isinstance(value, datetime)
        else value
    )


def _keeps(text: str, key: Any, row: Any) -> bool:
    (shop, number), (country, at) = key, row[:2]
    answers: dict[str, bool] = dict(
        zip(
            FILTERS,
            [
                country == "",
                country is None,
                country in {"DE", "a/b %41"},
                at >= LATER,
                number == 3,
                number > 2,
                shop == "a" and number < 4,
            ],
            strict=True,
        )
    )
    return answers[text]


OTHERS = st.sampled_from(["nothing", "nothing", "pack", "pack", "expire", "clear", "reopen"])


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.long] if at % 3 else []) for at, way in enumerate(WAYS)]
)
@deep(12)
@given(
    spans=st.lists(st.tuples(SPAN, OTHERS), min_size=1, max_size=5),
    few=st.sampled_from([0, 1 << 20]),
    countries=st.sampled_from([laws.COUNTRIES, ODD]),
    chance=st.randoms(use_true_random=False),
)
def test_a_parted_table_is_the_dictionary_of_its_changes(
    way: str,
    spans: list[tuple[list[list[Change]], str]],
    few: int,
    countries: list[str | None],
    chance: random.Random,
) -> None:
    """few: how many keys are looked for in the row groups alone that may have them."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(bykey, "SIZES", SMALL),
        mock.patch.object(packing, "SIZES", replace(SMALL, leaf_rows=PACKED_ROWS)),
        mock.patch.object(merging, "_FEW", few),
        mock.patch.object(laws, "COUNTRIES", countries),
    ):
        bench = Parted(folder, WAYS[way], random=chance)
        since = 0
        for span, others in spans:
            bench.commit(span)
            assert bench.litter() == set()
            since = bench.upper - 1 if others in ("expire", "clear") else since
            disturb(bench, others)
            bench.check(since=since)
            assert_parted(bench)


def disturb(bench: Parted, what: str) -> None:
    match what:
        case "pack":
            pack(bench)
            bench.litter()
        case "expire":
            table = bench.there
            if old := [one.snapshot_id for one in table.snapshots()[:-1]]:
                table.maintenance.expire_snapshots().by_ids(old).commit()
        case "clear":
            upkeep = bench.sink.maintain(OUTPUT)
            upkeep.clear(upkeep.remnants(timedelta(0)))
        case "reopen":
            bench.table = bench.sink.open(OUTPUT)
        case _:
            pass


@pytest.fixture
def bench(tmp_path: Path) -> Parted:
    return Parted(str(tmp_path), "country", simple=True, random=random.Random(7))


def grown(bench: Parted, count: int = 60) -> Parted:
    """Return a table of many rows, in leaves of ten, all partitions with keys from end to end."""
    bench.commit([[Change(key, "insert", key % 2, key % 3 * 20, 1) for key in range(count)]])
    return bench


@pytest.fixture
def leaves_of_ten() -> Any:
    with mock.patch.object(bykey, "SIZES", replace(SMALL, leaf_rows=10, task_bytes=1 << 30)):
        yield


# -- what it costs


@pytest.mark.usefixtures("leaves_of_ten")
def test_only_leaves_that_hold_a_changed_key_are_written_anew(tmp_path: Path) -> None:
    bench = grown(Parted(str(tmp_path), tg.day("at"), simple=True))
    before = {file.file_path: file for file in bench.files()}
    looked_at = set[str]()

    def workers(tasks: Any) -> Any:
        looked_at.update(f"file://{bench.root}/{path}" for one in tasks for t in one.tasks for path in t.merge.leaves)
        return [task() for task in tasks]

    bench.table.work_by(workers)
    bench.commit([[Change(31, "update", 0, 40, 7)]])  # from the second day to the third
    after = {file.file_path: file for file in bench.files()}
    gone, new = before.keys() - after.keys(), after.keys() - before.keys()
    days = [START.toordinal() - date(1970, 1, 1).toordinal() + day for day in (20, 40)]
    assert sorted(before[path].partition[0] for path in gone) == days
    assert sorted(after[path].partition[0] for path in new) == days
    [other] = looked_at - gone  # which has keys on both sides of it
    assert other in after
    assert len(before) == 6
    bench.check()


@pytest.mark.usefixtures("leaves_of_ten")
def test_where_the_key_says_the_partition_only_that_one_is_looked_at(tmp_path: Path) -> None:
    bench = grown(Parted(str(tmp_path), tg.bucket(3, "id"), simple=True))
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


def test_files_become_as_large_as_file_size_says(tmp_path: Path) -> None:
    rows = [
        {"id": n, "shop": "a", "country": uuid.uuid4().hex, "at": START, "n": 0, "_op": "insert", "_epoch": 0}
        for n in range(2000)
    ]
    counts = []
    for size in ("4KB", None):
        options: Any = {"envelope": "upsert", "key": "id", "partition_by": "shop", "file_size": size}
        sink = IcebergSink(f"shop.t{size}", str(tmp_path), **options)
        stager = sink.stage(SCHEMA, job=uuid.uuid4().hex, task=0)
        stager.write(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
        table = sink.open(OUTPUT)
        table.commit(0, 1, SCHEMA, stager.close(), write=uuid.uuid4().hex)
        counts.append(len(table.files()))
        assert sink.maintain(OUTPUT).plan() == []  # they are as large as they are to be
    assert counts[1] == 1 < counts[0]


# -- what comes between


def test_a_pack_that_comes_between_is_merged_into_and_changes_are_settled_once(bench: Parted) -> None:
    with mock.patch.object(bykey, "SIZES", SMALL):
        grown(bench, 12)
        real, turn, jobs = bench.table._merged, [True], list[Any]()

        def merged(work: Any, rows: Any, columns: Any, runs: Any, *more: Any) -> Any:
            found = real(work, rows, columns, runs, *more)
            jobs.append([file.path for file in runs])
            if turn.pop() if turn else False:
                pack(bench)
            return found

        with mock.patch.object(bench.table, "_merged", merged):
            bench.commit([[Change(4, "update", 1, 0, 2), Change(5, "delete", 0, 0, 0)]])
    assert len(jobs) == 2
    assert jobs[0] == jobs[1]
    bench.check()
    assert bench.litter() == set()


@pytest.mark.parametrize("done", [True, False])
def test_an_answer_that_is_lost_is_a_question_and_leaves_no_runs(bench: Parted, done: bool) -> None:
    grown(bench, 6)
    files = bench.stage(bench.rows(1, [Change(2, "update", 1, 0, 5), Change(3, "delete", 0, 0, 0)]))
    bench.readable.append(True)
    write = uuid.uuid4().hex
    with answering(ServiceUnavailableError("503"), done=done):
        if not done:
            with pytest.raises(CatalogAway):
                bench.table.commit(1, 2, SCHEMA, files, write=write)
            assert bench.litter() == {file.path for file in files}
        bench.table.commit(1, 2, SCHEMA, files, write=write)
    bench.upper = 2
    bench.check()
    assert bench.litter() == set()


@pytest.mark.parametrize("fails", [1, 2])
def test_a_commit_whose_work_failed_is_made_by_the_next_attempt(bench: Parted, fails: int) -> None:
    """fails: the turn of the engine that fails: to settle changes, or to merge them."""
    grown(bench, 6)
    files = bench.stage(bench.rows(1, [Change(2, "update", 1, 0, 5), Change(3, "delete", 0, 0, 0)]))
    write, turns = uuid.uuid4().hex, [0]

    def workers(tasks: Any) -> Any:
        found = [task() for task in tasks]
        turns[0] += 1
        if turns[0] == fails:
            raise OSError(28, "No space left on device")
        return found

    with mock.patch.object(working, "_FEW", 0):
        bench.table.work_by(workers)
        with pytest.raises(OSError, match="No space"):
            bench.table.commit(1, 2, SCHEMA, files, write=write)
        bench.table.commit(1, 2, SCHEMA, files, write=write)
    bench.upper, bench.readable = 2, [True, True]
    bench.check()
    assert turns == [fails + 2]
    if fails == 2:
        assert bench.litter() == set()
    bench.table.sweep(lambda: None)
    assert bench.litter() == set()


# -- what is refused


def test_rows_that_tie_are_refused_whatever_partitions_they_go_to(bench: Parted) -> None:
    rows = bench.rows(0, [Change(1, "insert", 0, 0, 1), Change(1, "update", 1, 0, 2)])
    files = bench.stage([{**row, "n": 1} for row in rows])
    with pytest.raises(LastUndecided):
        bench.table.commit(0, 1, SCHEMA, files, write=uuid.uuid4().hex)
    assert bench.table.upper == 0


def test_a_column_with_a_value_for_each_row_is_refused_before_anything_is_committed(tmp_path: Path) -> None:
    sink = IcebergSink(NAME, str(tmp_path), envelope="upsert", key=["shop", "id"], partition_by="value")
    stager = sink.stage(SCHEMA, job="0" * 32, task=0)
    rows = [
        {"shop": "a", "id": n, "at": START, "value": n, "n": 0, "_op": "insert", "_epoch": 0}
        for n in range(noting.MOST + 1)
    ]
    with mock.patch.object(staging, "GROUP_ROWS", 1 << 20), pytest.raises(TooManyPartitions, match="4096"):
        stager.write(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    stager.abort()
    assert not any(tmp_path.rglob("*.parquet"))


def test_a_key_that_is_nothing_but_the_partition_is_refused(tmp_path: Path) -> None:
    sink = IcebergSink(NAME, str(tmp_path), envelope="upsert", key="id", partition_by=["id", "country"])
    with pytest.raises(PartitionColumnUnfit, match="one row"):
        sink.check(SCHEMA)
    IcebergSink(NAME, str(tmp_path), envelope="upsert", key="id", partition_by=tg.bucket(2, "id")).check(SCHEMA)


def test_another_partition_by_is_refused_and_a_replacement_has_it(bench: Parted) -> None:
    grown(bench, 6)
    before = bench.files()
    other = Parted(bench.folder, tg.bucket(3, "id"), simple=True)
    files = other.stage(other.rows(1, [Change(1, "update", 0, 0, 1)]))
    with pytest.raises(PartitionedOtherwise):
        other.table.commit(1, 2, SCHEMA, files, write=uuid.uuid4().hex)
    with pytest.raises(PartitionedOtherwise):
        other.sink.maintain(OUTPUT).plan()
    assert bench.files() == before
    anew = other.table.replacement("e" * 32)
    rows = other.rows(0, [Change(key, "insert", 1, 0, 5) for key in range(4)])
    anew.commit(0, 2, SCHEMA, other.stage(rows), write=uuid.uuid4().hex)
    assert [str(one.transform) for one in other.there.spec().fields] == ["bucket[3]"]
    other.wanted = {key: row for key, row in other.wanted.items() if row[2] == 5}
    assert dictionary(other.read().to_pylist()) == other.wanted
    other.table, other.upper, other.readable = other.sink.open(OUTPUT), 2, [False, False]
    other.states = [{}, {}]
    other.commit([[Change(1, "update", 0, 0, 8), Change(2, "delete", 0, 0, 0)]])
    assert dictionary(other.read().to_pylist()) == other.wanted
    assert_parted(other)


def evolve(bench: Parted, *, back: bool = False) -> None:
    """Give the table other partitions, or its own again."""
    with bench.there.update_spec() as spec:
        spec.remove_field("id_bucket_2" if back else "country")
        if back:
            spec.add_identity("country")
        else:
            spec.add_field("id", BucketTransform(2), "id_bucket_2")


def written_anew(bench: Parted, by: Any) -> None:
    """Write all files anew with the present partitions, as others do."""
    upkeep = IcebergSink(NAME, bench.folder, partition_by=by).maintain(OUTPUT)
    job = uuid.uuid4().hex
    packed = Pack(tuple(upkeep.files()))
    assert upkeep.commit(packed, upkeep.stage(packed, job=job), write=job) is not None
    bench.litter()


def test_partitions_that_others_bring_are_refused_until_the_files_are_of_the_sinks_again(bench: Parted) -> None:
    grown(bench, 12)
    evolve(bench)
    files = bench.stage([])
    with pytest.raises(PartitionedOtherwise, match=r"bucket\[2\]\(id\)"):
        bench.table.commit(1, 2, SCHEMA, files, write=uuid.uuid4().hex)
    evolve(bench, back=True)
    bench.commit([[Change(3, "update", 0, 0, 9)]])  # nobody has written anything meanwhile
    bench.check()
    evolve(bench)
    written_anew(bench, tg.bucket(2, "id"))
    evolve(bench, back=True)
    rows = bench.stage(bench.rows(2, [Change(4, "update", 1, 0, 7), Change(5, "delete", 0, 0, 0)]))
    said = r"data/part.*bucket\[2\]\(id\).*country"
    with pytest.raises(FilesPartedOtherwise, match=said):
        bench.table.commit(2, 3, SCHEMA, rows, write=uuid.uuid4().hex)
    with pytest.raises(FilesPartedOtherwise, match=said):
        bench.sink.maintain(OUTPUT).plan()
    assert dictionary(bench.read().to_pylist()) == bench.states[1]
    assert bench.litter() == {file.path for file in rows}
    written_anew(bench, "country")
    bench.table.commit(2, 3, SCHEMA, rows, write=uuid.uuid4().hex)
    bench.upper, bench.readable = 3, [*bench.readable, True]
    bench.check()
    assert_parted(bench)


def test_partitions_that_come_while_a_commit_is_made_are_refused_by_the_next_one(bench: Parted) -> None:
    grown(bench, 12)
    files = bench.stage(bench.rows(1, [Change(4, "update", 1, 0, 7)]))
    write, turn, real = uuid.uuid4().hex, [True], bench.table._merged

    def merged(*asked: Any) -> Any:
        found = real(*asked)
        if turn.pop() if turn else False:
            evolve(bench)
        return found

    with mock.patch.object(bench.table, "_merged", merged), pytest.raises(PartitionedOtherwise):
        bench.table.commit(1, 2, SCHEMA, files, write=write)
    assert bench.litter() == {file.path for file in files}
    evolve(bench, back=True)
    with (
        answering(CommitFailedException("409"), done=False, beside=lambda: evolve(bench)),
        pytest.raises(PartitionedOtherwise),
    ):
        bench.table.commit(1, 2, SCHEMA, files, write=write)
    evolve(bench, back=True)
    bench.table.commit(1, 2, SCHEMA, files, write=write)
    bench.upper, bench.readable = 2, [True, True]
    bench.check()
    assert bench.litter() == set()


@pytest.mark.usefixtures("leaves_of_ten")
def test_the_same_partitions_by_another_name_are_the_same(bench: Parted) -> None:
    grown(bench)
    with bench.there.update_spec() as spec:
        spec.rename_field("country", "nation")
    assert bench.there.spec().spec_id != 0
    bench.commit([[Change(3, "update", 0, 0, 9), Change(4, "delete", 0, 0, 0)]])
    bench.check()
    assert_parted(bench)
    assert {file.spec_id for file in bench.files()} == {0, bench.there.spec().spec_id}
    with mock.patch.object(packing, "SIZES", replace(SMALL, leaf_rows=PACKED_ROWS)):
        pack(bench)
    bench.check()


# -- readers, and flows


@pytest.fixture(scope="module")
def by_key(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("lake"))
    filled(folder, CATALOGUED)
    return folder


def filled(folder: str, name: str) -> None:
    """Write rows of every type, and all of them once more, to a parted table by key."""
    parted: Any = ["country", "day", "small", tg.bucket(3, "long")]
    sink = IcebergSink(name, folder, envelope="upsert", key="id", partition_by=parted)
    with mock.patch.object(bykey, "SIZES", Sizes(leaf_rows=2)):
        for first in (0, 4):
            fill(sink, COLUMNS, range(4), first=first)


@pytest.mark.parametrize("reader", ICEBERG_READERS)
def test_every_reader_gets_the_same_rows_with_filters_as_without(by_key: str, reader: str) -> None:
    asked = list(predicates(COLUMNS))[::2]
    assert [one for one in ICEBERG_READERS[reader](by_key, asked) if one.filtered != one.kept] == []


SOME = [pytest.param(way, marks=[pytest.mark.long] if at % 4 else []) for at, way in enumerate(APPENDED)]


@pytest.mark.parametrize("ways", SOME, ids=str)
def test_every_filter_keeps_what_it_keeps_of_a_table_without_partitions(ways: Any, tmp_path: Path) -> None:
    columns = pa.schema([("id", pa.int64()), *test_iceberg_partitions.SCHEMA])
    tables = []
    for name, by in (("parted", ways), ("plain", None)):
        sink = IcebergSink(f"shop.{name}", str(tmp_path), envelope="upsert", key="id", partition_by=by)
        sink.check(columns)
        table = sink.open(OUTPUT)
        for epoch in range(3):  # in each of them all rows have the values of others, and move
            rows = enumerate(rows_of(36, epoch))
            stager = sink.stage(columns, job=uuid.uuid4().hex, task=0)
            numbered = [{"id": (n + 5 * epoch) % 36, **row} for n, row in rows]
            stager.write(pa.RecordBatch.from_pylist(numbered, schema=columns))
            table.commit(epoch, epoch + 1, columns, stager.close(), write=uuid.uuid4().hex)
        tables.append(catalog_in(tmp_path).load_table(f"shop.{name}"))
    parted, plain = tables
    for text in (*FILTERS_APPENDED, "id = 7", "id > 30 or country = 'ü'"):
        one, two = (table.scan(row_filter=text).to_arrow().sort_by("id") for table in (parted, plain))
        assert one.equals(two), text
    assert len(parted.scan().to_arrow()) == 36
    assert_values(parted)
    assert all(len(file.partition) for file in (task.file for task in parted.scan().plan_files()))


def test_a_flow_reads_back_rows_that_have_moved(tmp_path: Path) -> None:
    def flow_of(form: str) -> Any:
        flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/store.db")
        source = tg.FileSource(f"{tmp_path}/in/*.jsonl", format=tg.Json(form), metadata=True)
        sink = tg.IcebergSink(
            NAME,
            f"{tmp_path}/lake",
            envelope="upsert",
            key="id",
            order="_offset",
            deleted="gone",
            partition_by=["country", tg.bucket(2, "id")],
        )
        orders = flow.source("orders", source)
        names = [name.split()[0] for name in form.split(", ")]
        flow.sink("orders", orders.select(*names, "_offset"), sink, schema="add")
        return flow

    form = "id long, country string, gone boolean"
    (tmp_path / "in").mkdir()
    states = list[list[tuple[int, str]]]()
    for epoch in range(4):
        form = f"{form}, note string" if epoch == 2 else form
        flow = flow_of(form)
        lines: list[dict[str, Any]] = [
            {"id": n, "country": ["DE", ""][(n + epoch) % 2], "gone": n % 7 == epoch, "note": f"n{epoch}"}
            for n in range(8)
        ]
        (tmp_path / "in" / f"{epoch}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        flow.run(engine="local", until="caught-up")
        states.append([(line["id"], line["country"]) for line in lines if not line["gone"]])
        assert tg.maintain(flow).outputs[0].error is None
    for as_of, wanted in enumerate(states):
        found = tg.read_arrow(flow, "orders", as_of=as_of).to_pylist()
        assert sorted((row["id"], row["country"]) for row in found) == wanted
        assert {row["note"] for row in found} == ({None} if as_of < 2 else {f"n{as_of}"})
    assert not tg.verify(flow).problems
    table = catalog_in(tmp_path / "lake").load_table(NAME)
    assert table.scan(row_filter="country = ''").to_arrow().num_rows == sum(not one for _, one in states[-1])


def by_spark(spark: elsewhere.Elsewhere, text: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(text)]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_spark_and_duckdb_prune_by_the_partitions_and_what_they_do_to_files_is_merged_into(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    chance = random.Random(11)
    ways: Any = ["country", tg.day("at"), tg.bucket(2, "id")]
    bench = Parted(str(lake), ways, random=random.Random(5))
    table, told = f"default.{NAME}", f"table => '{NAME}'"

    def epoch() -> list[Change]:
        ops = ["insert", "update", "update", "delete"]
        return [
            Change(chance.randrange(12), chance.choice(ops), chance.randrange(3), chance.randrange(3) * 20, n)
            for n in range(8)
        ]

    def equal() -> None:
        newest = max(Path(bench.root, "metadata").glob("*.metadata.json"), key=lambda path: path.name)
        wanted = dictionary(bench.read().to_pylist())
        assert wanted == bench.wanted
        for text, keeps in SQL.items():
            kept = {(*key, row[2], row[3]) for key, row in wanted.items() if keeps(key, *row[:2])}
            names = "shop, id, value, _epoch"
            theirs = text.format(at="at", instant="TIMESTAMP"), text.format(at='"at"', instant="TIMESTAMPTZ")
            for found in (
                by_spark(spark, f"SELECT {names} FROM {table} WHERE {theirs[0]}"),
                by_spark(duckdb, f"SELECT {names} FROM iceberg_scan('{newest}') WHERE {theirs[1]}"),
            ):
                assert (set(found), len(found)) == (kept, len(kept)), text
        assert_parted(bench)

    with (
        elsewhere.spark(lake) as spark,
        elsewhere.duckdb() as duckdb,
        mock.patch.object(bykey, "SIZES", SMALL),
        mock.patch.object(packing, "SIZES", replace(SMALL, leaf_rows=PACKED_ROWS)),
        mock.patch.object(laws, "COUNTRIES", ["", "a/b %41 ü", None]),
    ):
        for _ in range(3):
            bench.commit([epoch(), epoch()])
            equal()
            pack(bench)
            equal()
        ours = leaves_of(bench)
        spark.sql(f"CALL default.system.rewrite_data_files({told}, options => map('rewrite-all', 'true'))")
        assert {leaf.file.partition for leaf in leaves_of(bench).values()} == {
            leaf.file.partition for leaf in ours.values()
        }
        assert not leaves_of(bench).keys() & ours.keys()
        for _ in range(2):
            bench.commit([epoch()])
            equal()
        spark.sql(f"CALL default.system.rewrite_manifests({told})")
        spark.sql(f"CALL default.system.expire_snapshots({told}, older_than => TIMESTAMP '2999-01-01')")
        bench.commit([epoch()])
        equal()
        spark.sql(f"DELETE FROM {table} WHERE country = ''")  # whole files
        bench.wanted = {key: row for key, row in bench.wanted.items() if row[0] != ""}
        bench.commit([epoch()])
        equal()
        spark.sql(f"ALTER TABLE {table} REPLACE PARTITION FIELD country WITH truncate(1, country) AS start")
        with pytest.raises(PartitionedOtherwise, match="truncate"):
            bench.table.commit(bench.upper, bench.upper + 1, SCHEMA, bench.stage([]), write=uuid.uuid4().hex)
        spark.sql(f"CALL default.system.rewrite_data_files({told}, options => map('rewrite-all', 'true'))")
        spark.sql(f"ALTER TABLE {table} DROP PARTITION FIELD start")
        spark.sql(f"ALTER TABLE {table} DROP PARTITION FIELD at_day")
        spark.sql(f"ALTER TABLE {table} DROP PARTITION FIELD id_bucket_2")
        for by in ("country", "days(at)", "bucket(2, id)"):
            spark.sql(f"ALTER TABLE {table} ADD PARTITION FIELD {by}")
        with pytest.raises(FilesPartedOtherwise, match="truncate") as caught:
            bench.table.commit(bench.upper, bench.upper + 1, SCHEMA, bench.stage([]), write=uuid.uuid4().hex)
        remedy = caught.value.next_step.partition("CALL ")[2].partition("; or")[0]
        spark.sql(f"CALL default.{remedy}")
        bench.commit([epoch()])
        equal()


def leaves_of(bench: Parted) -> Any:
    upkeep = bench.sink.maintain(OUTPUT)
    return upkeep._leaves.at(upkeep._look)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_table_of_sparks_own_is_taken_and_every_type_of_a_partition_is_read(tmp_path: Path) -> None:
    lake = str(tmp_path)
    columns = "country string, flag boolean, day date, price decimal(20,4), small int, long bigint"
    with elsewhere.spark(lake) as spark, elsewhere.duckdb() as duckdb:
        spark.sql(
            f"CREATE TABLE default.shop.theirs (id bigint, {columns}, _epoch bigint) USING iceberg "
            "PARTITIONED BY (country, day, small, bucket(3, long))"
        )
        for name in ("shop.theirs", "shop.ours"):
            filled(lake, name)
            asked = list(predicates(COLUMNS))[::2]
            words: Any = {"column": lambda path: f"`{path[0]}`", "instant": "timestamp", "local": "timestamp_ntz"}
            answers = _sqlike(f"default.{name}", asked, lambda text: by_spark(spark, text), **words)
            assert [one for one in answers if one.filtered != one.kept] == []
            place = tmp_path / "shop" / name.partition(".")[2] / "metadata"
            newest = max(place.glob("*.metadata.json"), key=lambda path: path.name)
            words = {"column": _bracketed, "instant": "timestamptz", "local": "timestamp"}
            scan = f"iceberg_scan('{newest}')"
            answers = _sqlike(scan, asked, lambda text: by_spark(duckdb, _blobs(text)), **words)
            assert [one for one in answers if one.filtered != one.kept] == []
            assert spark.sql(f"SELECT count(*) FROM default.{name}.partitions")[0][0] > 5


@pytest.mark.long
def test_a_late_output_another_partition_by_and_missing_files_are_as_for_any_table_by_key(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    options: dict[str, Any] = {"envelope": "upsert", "key": "id", "order": "_offset", "deleted": "gone"}
    names = ["id", "country", "at", "_epoch"]

    def flow_of(by: Any, late: Any = None) -> Any:
        flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/store.db")
        form = tg.Json("id long, country string, gone boolean, at timestamp")
        orders = flow.source("orders", tg.FileSource(f"{tmp_path}/in/*.jsonl", format=form, metadata=True))
        rows = orders.select("id", "country", "gone", "at", "_offset")
        flow.sink("now", rows, tg.IcebergSink("shop.now", f"{tmp_path}/lake", **options, partition_by=by))
        flow.sink("delta", rows, tg.DeltaSink(f"{tmp_path}/delta", **options))
        if late is not None:
            flow.sink("late", rows, tg.IcebergSink("shop.late", f"{tmp_path}/lake", **options, partition_by=late))
        return flow

    def grow(epoch: int, flow: Any) -> Any:
        lines = [
            {
                "id": n % 30,
                "country": [*ODD, None][(n + epoch) % 4],
                "gone": n % 11 == 0,
                "at": f"2026-0{1 + n % 3}-01",
            }
            for n in range(17 * epoch, 17 * epoch + 40)
        ]
        text = "".join(json.dumps({**line, "at": f"{line['at']}T00:00:00Z"}) + "\n" for line in lines)
        (tmp_path / "in" / f"{epoch}.jsonl").write_text(text)
        flow.run("caught-up", engine="local")
        return flow

    def same(flow: Any, *outputs: str, **asked: Any) -> None:
        found = [tg.read_arrow(flow, name, **asked).select(names).sort_by("id") for name in ("delta", *outputs)]
        assert all(one.equals(found[0]) for one in found)

    by, late = ["country", tg.month("at")], [tg.bucket(3, "id"), "country"]
    for epoch in range(4):
        same(flow := grow(epoch, flow_of(by)), "now")
    for epoch in range(4):
        same(flow, "now", as_of=epoch)
    same(grow(4, flow_of(by, late)), "now", "late")
    same(grow(5, flow_of(by, late)), "now", "late")
    moved = flow_of(tg.bucket(4, "country"), late)
    with pytest.raises(PartitionedOtherwise, match="by bucket"):
        grow(6, moved)
    same(moved, "late")
    tg.replace(moved, "now")
    moved.run("caught-up", engine="local")
    same(moved, "now", "late")
    assert all(one.error is None for one in tg.maintain(moved).outputs)
    same(grow(7, moved), "now", "late")
    assert not tg.verify(moved).problems
    for path in (tmp_path / "lake" / "shop" / "now" / "data").glob("*.parquet"):
        path.unlink()
    assert {"now" in str(problem) for problem in tg.verify(moved).problems} == {True}
