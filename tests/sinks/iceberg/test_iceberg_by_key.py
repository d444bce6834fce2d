"""Tables of Iceberg with one row for each key: a dictionary, whatever is done to them, and for every reader."""

from __future__ import annotations

import random
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.exceptions import ServiceUnavailableError
from tests.depth import deep
from tests.sinks.iceberg import elsewhere
from tests.sinks.iceberg.conftest import NAME, IcebergBench, catalog_in
from tests.sinks.iceberg.test_lost_answers import answering
from tests.sinks.keyed.test_upsert_laws import (
    KEY_KINDS,
    OUTPUT,
    PACKED_ROWS,
    SMALL,
    SPAN,
    TINY,
    Bench,
    Change,
    pack,
)
from tests.sinks.keyed.test_upsert_laws import small as small  # everything is small
from tests.sinks.keyed.unique import KEY, UniqueStager, with_key

import tidegauge as tg
from tidegauge.errors.iceberg import CatalogAway, IcebergColumnReserved, IcebergTableChanged, IcebergTableUnfit
from tidegauge.errors.layout import LaidOutByKey
from tidegauge.errors.sinks import KeptOtherwise, KeyedColumnUnfit, TableUpperMismatch
from tidegauge.sinks import IcebergSink, OutputId
from tidegauge.sinks.iceberg import bykey, packing
from tidegauge.sinks.iceberg.bykey import IcebergByKey
from tidegauge.sinks.keyed.layout import Keyed
from tidegauge.sinks.keyed.planning import Sizes, clusters
from tidegauge.testing.kit import check_sink

LAKE = "shop.users"


@dataclass
class Upserts(Bench):
    """A table of Iceberg by key, and the dictionary that it should be."""

    ever: set[str] = field(default_factory=set)

    def made(self, order: str) -> Any:
        return IcebergSink(LAKE, self.folder, envelope="upsert", key=self.kind.names, order=order)

    @property
    def there(self) -> Any:
        return catalog_in(self.folder).load_table(LAKE)

    @property
    def path(self) -> Path:
        return Path(self.folder) / "shop" / "users"

    def litter(self) -> set[str]:
        """Return what no snapshot names, and none has named."""
        table = self.there
        named = {
            file.file.file_path.removeprefix(f"file://{self.path}/")
            for snapshot in table.snapshots()
            for file in table.scan(snapshot_id=snapshot.snapshot_id).plan_files()
        }
        self.ever |= named
        found = {str(path.relative_to(self.path)) for path in self.path.rglob("*.parquet")}
        return found - self.ever

    def leaves(self) -> Any:
        table = self.sink.maintain(OUTPUT)
        return table._leaves.at(table._look)

    def by_reader(self) -> dict[tuple[Any, ...], Any]:
        rows = self.there.scan().to_arrow().to_pylist()
        found = {tuple(row[name] for name in self.kind.names): (row["value"], row["_epoch"]) for row in rows}
        assert len(found) == len(rows)
        return found


OTHERS = st.sampled_from(["nothing", "nothing", "pack", "pack", "expire", "clear", "reopen"])


@pytest.mark.parametrize("kind", ["long", *(pytest.param(kind, marks=pytest.mark.long) for kind in KEY_KINDS)])
@deep(10)
@given(
    spans=st.lists(st.tuples(SPAN, OTHERS), min_size=1, max_size=6),
    operating=st.booleans(),
    nan=st.booleans(),
    sizes=st.sampled_from([SMALL, TINY]),
    chance=st.randoms(use_true_random=False),
)
def test_t57_t59_a_table_is_the_dictionary_of_its_changes(
    kind: str,
    spans: list[tuple[list[list[Change]], str]],
    operating: bool,
    nan: bool,
    sizes: Sizes,
    chance: random.Random,
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(bykey, "SIZES", sizes),
        mock.patch.object(packing, "SIZES", replace(sizes, leaf_rows=PACKED_ROWS)),
    ):
        bench = Upserts(folder, KEY_KINDS[kind], operating=operating, nan=nan, random=chance)
        since = 0
        for span, others in spans:
            bench.commit(span)
            assert bench.litter() == set()
            assert bench.by_reader() == bench.named(bench.wanted)
            if bench.kind.apart:  # every leaf is a cluster
                found = bench.leaves()
                assert all(len(one.leaves) <= 1 for one in clusters(found.values()))
                assert all(leaf.file.rows <= PACKED_ROWS for leaf in found.values())
            since = bench.upper - 1 if others in ("expire", "clear") else since
            _others(bench, others)
            bench.check(since=since)


def _others(bench: Upserts, what: str) -> None:
    match what:
        case "pack":
            pack(bench)
            bench.litter()
        case "expire":
            table = bench.there
            old = [one.snapshot_id for one in table.snapshots()[:-1]]
            if old:
                table.maintenance.expire_snapshots().by_ids(old).commit()
        case "clear":
            upkeep = bench.sink.maintain(OUTPUT)
            upkeep.clear(upkeep.remnants(timedelta(0)))
        case "reopen":
            bench.table = bench.sink.open(OUTPUT)
        case _:
            pass


@pytest.fixture
def bench(tmp_path: Path) -> Upserts:
    return Upserts(str(tmp_path), KEY_KINDS["long"], operating=False, random=random.Random(7))


def put(*keys: int, value: int = 1) -> list[Change]:
    return [Change(key, "update", value) for key in keys]


def test_only_the_leaves_that_can_hold_a_changed_key_are_written_anew(bench: Upserts) -> None:
    with mock.patch.object(bykey, "SIZES", Sizes(leaf_rows=3)):
        bench.commit([put(*range(12))])
        before = {file.path for file in bench.table.files()}
        assert len(before) == 4
        bench.commit([put(4, value=2)])
        after = {file.path for file in bench.table.files()}
    assert len(before & after) == 3
    bench.check()


def test_a_pack_that_comes_between_is_merged_into_and_nothing_is_lost(bench: Upserts) -> None:
    with mock.patch.object(bykey, "SIZES", SMALL):
        bench.commit([put(*range(12))])
        real, turn = bench.table._merged, [True]

        def merged(*asked: Any) -> Any:
            found = real(*asked)
            if turn.pop() if turn else False:
                pack(bench)
            return found

        with mock.patch.object(bench.table, "_merged", merged):
            bench.commit([put(4, value=2)])
    bench.check()
    assert bench.litter() == set()


def test_of_two_drivers_one_commits_and_the_other_leaves_nothing(bench: Upserts) -> None:
    bench.commit([put(1, 2)])
    other = bench.sink.open(OUTPUT)
    rows = [{"k0": -4, "value": 9, "f": 0.5, "n": 0, "_epoch": 1}]
    late = bench.stage(rows)
    bench.commit([put(3)])
    with pytest.raises(TableUpperMismatch):
        other.commit(1, 2, bench.schema, late, write=uuid.uuid4().hex)
    other.discard(late)
    bench.check()
    assert bench.litter() == set()


@pytest.mark.parametrize("done", [True, False])
def test_an_answer_that_is_lost_is_a_question(bench: Upserts, done: bool) -> None:
    bench.commit([put(1, 2)])
    rows = bench.rows(1, put(2, 3, value=5))
    bench.readable.append(True)
    files, write = bench.stage(rows), uuid.uuid4().hex
    with answering(ServiceUnavailableError("503"), done=done):
        if done:
            bench.table.commit(1, 2, bench.schema, files, write=write)
        else:
            with pytest.raises(CatalogAway):
                bench.table.commit(1, 2, bench.schema, files, write=write)
    bench.table.commit(1, 2, bench.schema, files, write=write)
    bench.upper = 2
    bench.check()
    assert bench.litter() == set()


def test_runs_of_drivers_that_died_are_swept_and_kept_ones_are_not(bench: Upserts) -> None:
    bench.commit([put(1)])
    [one], [two] = (bench.stage([{"k0": n, "value": 9, "f": 0.5, "n": 0, "_epoch": 1}]) for n in range(2))
    table = bench.sink.open(OUTPUT)
    assert table.keep([one])
    table.sweep(lambda: None)
    assert bench.litter() == {one.path}
    assert not table.keep([two])


def test_another_key_or_envelope_is_refused_until_the_table_is_made_again(bench: Upserts) -> None:
    bench.commit([put(1, 2)])
    bench.commit([put(2, value=4)])
    wanted = bench.shown()
    others: list[dict[str, Any]] = [{}, {"envelope": "upsert", "key": ["k0", "n"], "order": "n"}]
    for options in others:
        other = IcebergSink(LAKE, bench.folder, **options)
        stager = other.stage(bench.schema, job=uuid.uuid4().hex, task=0)
        with pytest.raises(KeptOtherwise, match="k0"):
            other.open(OUTPUT).commit(2, 3, bench.schema, stager.close(), write=uuid.uuid4().hex)
    plain = IcebergSink(LAKE, bench.folder)
    stager = plain.stage(bench.schema, job=uuid.uuid4().hex, task=0)
    rows = [{"k0": 1, "value": n, "f": 0.5, "n": n, "_epoch": n} for n in range(2)]
    stager.write(pa.RecordBatch.from_pylist(rows, schema=bench.schema))
    assert bench.shown() == wanted
    plain.open(OUTPUT).replacement("e" * 32).commit(0, 2, bench.schema, stager.close(), write=uuid.uuid4().hex)
    assert bench.there.scan().to_arrow()["value"].to_pylist() == [0, 1]
    stager = plain.stage(bench.schema, job=uuid.uuid4().hex, task=0)
    plain.open(OUTPUT).commit(2, 3, bench.schema, stager.close(), write=uuid.uuid4().hex)
    back = bench.sink.open(OUTPUT).replacement("f" * 32)
    files = bench.stage([{"k0": 7, "value": n, "f": 0.5, "n": n, "_epoch": n} for n in (1, 2)])
    assert (back.upper, back.files(), back.schema) == (0, [], None)
    back.commit(0, 3, bench.schema, files, write=uuid.uuid4().hex)
    bench.table = bench.sink.open(OUTPUT)
    assert bench.shown() == bench.shown(as_of=2) == {(7,): (2, 2)}
    assert bench.shown(as_of=0) == {}


def test_rows_that_others_delete_stay_deleted_and_other_changes_are_refused(bench: Upserts) -> None:
    with mock.patch.object(bykey, "SIZES", Sizes(leaf_rows=1)):
        bench.commit([put(1, 2, 3)])
        bench.there.delete("k0 == -3")  # key 2, a file of its own
        bench.commit([put(3, value=4)])
    assert bench.by_reader() == {(-4,): (1, 0), (-2,): (4, 1)}
    bench.there.append(bench.there.scan().to_arrow())
    with pytest.raises(IcebergTableChanged):
        bench.commit([put(1)])


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LaidOutByKey, match="sort_by"):
        IcebergSink(LAKE, str(tmp_path), envelope="upsert", key="id", sort_by="id")
    sink = IcebergSink(LAKE, str(tmp_path), envelope="upsert", key="id")
    with pytest.raises(KeyedColumnUnfit):
        sink.check(pa.schema([("n", pa.int64()), ("_epoch", pa.int64())]))
    with pytest.raises(IcebergColumnReserved, match="_partition"):
        sink.check(pa.schema([("id", pa.int64()), ("_partition", pa.string()), ("_epoch", pa.int64())]))
    assert {"envelope": "upsert", "key": "id"}.items() <= sink.describe().items()


@pytest.mark.long
def test_a_late_output_by_key_is_that_of_all_epochs(tmp_path: Path) -> None:
    landing = tmp_path / "users.jsonl"

    def flow(*outputs: tuple[str, Any]) -> Any:
        found = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db")
        columns = tg.Json("user string, city string, gone boolean")
        users = found.source("users", tg.FileSource(str(landing), format=columns, metadata=True))
        for name, sink in outputs:
            found.sink(name, users.select("user", "city", "gone", "_offset"), sink)
        return found

    options: dict[str, Any] = {"envelope": "upsert", "key": "user", "order": "_offset", "deleted": "gone"}
    delta = ("delta", tg.DeltaSink(str(tmp_path / "delta"), **options))
    iceberg = [(name, tg.IcebergSink(f"shop.{name}", str(tmp_path / "lake"), **options)) for name in ("now", "late")]
    wanted: dict[str, str] = {}
    chance = random.Random(3)
    for _epoch in range(6):
        with landing.open("a") as file:
            for _ in range(20):
                user, city, gone = f"u{chance.randrange(15)}", f"c{chance.randrange(99)}", chance.random() < 0.2
                wanted = {name: was for name, was in wanted.items() if name != user} | ({} if gone else {user: city})
                file.write(f'{{"user": "{user}", "city": "{city}", "gone": {str(gone).lower()}}}\n')
        flow(delta, iceberg[0]).run("caught-up", engine="local")
    late = flow(delta, *iceberg)
    late.run("caught-up", engine="local")
    for name in ("delta", "now", "late"):
        rows = tg.read_arrow(late, name).to_pylist()
        assert {row["user"]: row["city"] for row in rows} == wanted, name
        assert len(rows) == len(wanted)
    assert tg.maintain(late, ["now"]).outputs[0].error is None
    for epoch in range(5):
        by_delta, by_iceberg = (tg.read_arrow(late, name, as_of=epoch) for name in ("delta", "now"))
        names = ["user", "city", "_epoch"]
        assert by_delta.select(names).sort_by("user").equals(by_iceberg.select(names).sort_by("user"))


class UniqueTable(IcebergByKey):
    @property
    def schema(self) -> pa.Schema | None:
        found = super().schema
        return None if found is None else pa.schema([one for one in found if one.name != KEY])

    def lacking(self, schema: pa.Schema) -> tuple[str, ...]:
        return super().lacking(with_key(schema))

    def commit(
        self, lower: int, upper: int, schema: pa.Schema, files: Any, *, remove: Any = (), write: str, **more: Any
    ) -> None:
        super().commit(lower, upper, with_key(schema), files, remove=remove, write=write, **more)


@dataclass(frozen=True)
class UniqueSink:
    """The sink of a table by key, whose rows get their keys on the way."""

    table: str
    warehouse: str
    catalog: str | None = None
    parted: bool = False

    @property
    def sink(self) -> IcebergSink:
        by = tg.bucket(3, "user") if self.parted else None  # where the key does not say where a row is
        about: Any = {"envelope": "upsert", "key": KEY, "partition_by": by}
        return IcebergSink(self.table, self.warehouse, catalog=self.catalog, **about)

    @property
    def identity(self) -> str:
        return self.sink.identity

    @property
    def shared(self) -> bool:
        return self.sink.shared

    def describe(self) -> Any:
        return self.sink.describe()

    def check(self, schema: pa.Schema) -> None:
        self.sink.check(with_key(schema))

    def open(self, output: OutputId) -> UniqueTable:
        return UniqueTable(self.sink._place(str(output)), output, Keyed((KEY,)), self.sink._files)

    def stage(self, schema: pa.Schema, *, job: str, task: int) -> UniqueStager:
        return UniqueStager(self.sink.stage(with_key(schema), job=job, task=task))


@dataclass
class UniqueBench(IcebergBench):
    parted: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sink = UniqueSink(NAME, str(self.warehouse), parted=self.parted)

    def rows(self) -> list[dict[str, Any]]:
        return [{name: value for name, value in row.items() if name != KEY} for row in super().rows()]

    def ways(self) -> Sequence[Any]:
        ways: Sequence[Any] = super().ways()
        return [UniqueSink(NAME, str(one.warehouse), parted=self.parted) for one in ways]

    def layouts(self) -> Sequence[Any]:
        return [UniqueSink(NAME, str(self.warehouse), parted=not self.parted)]

    def elsewhere(self) -> Any:
        return UniqueSink("shop.orders2", str(self.warehouse))


@pytest.mark.long
@pytest.mark.parametrize("parted", [False, True])
def test_a_table_by_key_holds_every_law(parted: bool) -> None:
    report = check_sink(lambda folder: UniqueBench(folder, parted=parted), crashes=30, deadline=240)
    assert {finding.name for finding in report.broken} == {"a table tells its files by epoch"}, str(report)
    untried = {finding.name for finding in report.findings if finding.untried}
    assert untried == {"files are taken out in whole or not at all"}


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["two"])
def test_spark_and_duckdb_read_equal_rows_and_what_they_do_to_files_is_merged_into(tmp_path: Path, kind: str) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    bench = Upserts(str(lake), KEY_KINDS[kind], operating=False, random=random.Random(5))
    chance = random.Random(11)

    def epoch() -> list[Change]:
        return [
            Change(chance.randrange(12), chance.choice(["insert", "update", "delete"]), chance.randrange(9))
            for _ in range(8)
        ]

    def equal(spark: elsewhere.Elsewhere, duckdb: elsewhere.Elsewhere) -> None:
        newest = max((bench.path / "metadata").glob("*.metadata.json"), key=lambda path: path.name)
        wanted = {(*key, *said) for key, said in bench.named(bench.wanted).items()}
        for reader, table in ((spark, f"default.{LAKE}"), (duckdb, f"iceberg_scan('{newest}')")):
            rows = [tuple(row) for row in reader.sql(f"SELECT k0, k1, value, _epoch FROM {table}")]
            assert (set(rows), len(rows)) == (wanted, len(wanted))
        assert bench.by_reader() == bench.named(bench.wanted)

    with (
        elsewhere.spark(lake) as spark,
        elsewhere.duckdb() as duckdb,
        mock.patch.object(bykey, "SIZES", SMALL),
        mock.patch.object(packing, "SIZES", replace(SMALL, leaf_rows=PACKED_ROWS)),
    ):
        for _ in range(4):
            bench.commit([epoch(), epoch()])
            equal(spark, duckdb)
            pack(bench)
            equal(spark, duckdb)
        told = "table => 'shop.users'"
        spark.sql(f"CALL default.system.rewrite_data_files({told}, options => map('rewrite-all', 'true'))")
        bench.commit([epoch()])
        equal(spark, duckdb)
        spark.sql(f"CALL default.system.expire_snapshots({told}, older_than => TIMESTAMP '2999-01-01')")
        bench.commit([epoch()])
        equal(spark, duckdb)
        spark.sql(f"ALTER TABLE default.{LAKE} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
        spark.sql(f"DELETE FROM default.{LAKE} WHERE k1 >= 0")
        deleted = spark.sql(f"SELECT count(*) FROM default.{LAKE}.delete_files")[0][0]
        if deleted:
            with pytest.raises(IcebergTableUnfit, match="delete files"):
                bench.commit([epoch()])
