"""Tables of Iceberg that are parted: Iceberg's own transforms, so its readers leave out files by themselves."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import ManifestEntryStatus
from tests.depth import deep
from tests.sinks.iceberg import elsewhere
from tests.sinks.iceberg.conftest import NAME, OUTPUT, IcebergBench, catalog_in, write_id

import tidegauge as tg
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.layout import PartitionColumnUnfit, PartitionedOtherwise, PartitionsTooSmall, TooManyPartitions
from tidegauge.sinks import IcebergSink
from tidegauge.sinks.layout import counting
from tidegauge.testing.kit import check_sink

SCHEMA = pa.schema(
    [
        ("country", pa.string()),
        ("n", pa.int64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("flag", pa.bool_()),
        ("price", pa.decimal128(9, 2)),
        ("_epoch", pa.int64()),
    ]
)
START = datetime(1969, 12, 30, tzinfo=UTC)
WAYS: list[Any] = [
    "country",
    ("day", "flag"),
    tg.day("at"),
    tg.day("day"),
    (tg.month("at"), "country"),
    tg.hour("at"),
    tg.bucket(3, "n"),
    tg.bucket(3, "country"),
    tg.bucket(5, "price"),
    tg.bucket(5, "at"),
]
FILTERS = [
    "country = 'DE'",
    "country is null",
    "country = ''",
    "n = 7",
    "day = '1970-01-02'",
    "at >= '1970-01-01T00:00:00+00:00'",
    "at < '1969-12-31T03:00:00+00:00'",
    "flag = true",
    "_epoch = 1",
]

SQL = ["n = 7", "country = 'a/b'", "country IS NULL", "at < TIMESTAMP '1970-01-01 00:00:00'", "true"]


def rows_of(count: int, epoch: int) -> list[dict[str, Any]]:
    return [
        {
            "country": ["DE", "a/b", "", None, "x=y %41", "ü"][n % 6],
            "n": n - 3 if n % 5 else None,
            "day": date(1970, 1, 1 + n % 3) if n % 7 else None,
            "at": START + timedelta(hours=7 * n) if n % 4 else None,
            "flag": [True, False, None][n % 3],
            "price": Decimal(n - 9) / 4 if n % 5 else None,
            "_epoch": epoch,
        }
        for n in range(count)
    ]


def commit(sink: IcebergSink, lower: int, rows: Sequence[dict[str, Any]], upper: int | None = None) -> Any:
    table = sink.open(OUTPUT)
    upper = lower + 1 if upper is None else upper
    staged = stage(sink, rows)
    table.commit(lower, upper, SCHEMA, staged, write=write_id())
    return table


def stage(sink: IcebergSink, rows: Sequence[dict[str, Any]]) -> Any:
    writer = sink.stage(SCHEMA, job=uuid.uuid4().hex, task=0)
    writer.write(pa.RecordBatch.from_pylist(list(rows), schema=SCHEMA))
    return writer.close()


def ordered(rows: pa.Table) -> list[str]:
    return sorted(map(str, rows.select(SCHEMA.names).to_pylist()))


@pytest.mark.parametrize("ways", [*WAYS[:3:2], *(pytest.param(way, marks=pytest.mark.long) for way in WAYS)], ids=str)
def test_every_filter_keeps_what_it_keeps_of_a_table_without_partitions(ways: Any, tmp_path: Path) -> None:
    parted = IcebergSink("shop.parted", str(tmp_path), partition_by=ways, sort_by="n")
    plain = IcebergSink("shop.plain", str(tmp_path))
    for epoch in range(2):
        for sink in (parted, plain):
            commit(sink, epoch, rows_of(24, epoch))
    catalog = catalog_in(tmp_path)
    one, two = (catalog.load_table(f"shop.{name}") for name in ("parted", "plain"))
    assert ordered(one.scan().to_arrow()) == ordered(two.scan().to_arrow())
    for text in FILTERS:
        assert ordered(one.scan(row_filter=text).to_arrow()) == ordered(two.scan(row_filter=text).to_arrow()), text
    for file in one.scan().plan_files():
        values = pq.read_table(file.file.file_path.removeprefix("file://"))
        assert values["n"].combine_chunks().equals(values.sort_by("n")["n"].combine_chunks())


def test_readers_leave_out_files_of_other_partitions(tmp_path: Path) -> None:
    sink = IcebergSink(NAME, str(tmp_path), partition_by=[tg.day("at"), "country"])
    commit(sink, 0, rows_of(24, 0))
    table = catalog_in(tmp_path).load_table(NAME)
    everything = len(list(table.scan().plan_files()))
    found = list(table.scan(row_filter="country = 'DE' and at >= '1970-01-02T00:00:00+00:00'").plan_files())
    assert 0 < len(found) < everything / 4
    assert [str(one.transform) for one in table.spec().fields] == ["day", "identity"]


@deep(20)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-5, 5)), max_size=30), st.integers(1, 8))
def test_a_bucket_is_where_iceberg_looks_for_the_value(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int]], buckets: int
) -> None:
    folder = tmp_path_factory.mktemp("lake")
    sink = IcebergSink(NAME, str(folder), partition_by=[tg.bucket(buckets, "n"), tg.bucket(buckets, "country")])
    blank = dict.fromkeys(SCHEMA.names)
    commit(sink, 0, [{**blank, "country": country, "n": n, "_epoch": 0} for country, n in rows])
    table = catalog_in(folder).load_table(NAME)
    for country, n in set(rows):
        found = table.scan(row_filter=f"n = {n} and country = '{country}'").to_arrow()
        assert found.num_rows == rows.count((country, n))


@pytest.fixture
def parted(tmp_path: Path) -> IcebergBench:
    return IcebergBench(tmp_path, options={"partition_by": "user"})


def test_other_partitions_are_refused_until_the_table_is_made_again(parted: IcebergBench) -> None:
    parted.filled(3)
    sink = IcebergSink(NAME, str(parted.warehouse), partition_by=tg.bucket(2, "user"))
    other = IcebergBench(parted.folder, options={"partition_by": tg.bucket(2, "user")})
    assert other.sink == sink
    with pytest.raises(PartitionedOtherwise, match=r"identity\(user\).*bucket\(2, user\)"):
        other.commit(other.open(), 3, 4)
    replacement = other.open().replacement("e" * 32)
    files = other.stage([{"user": user, "amount": 1.0, "_epoch": n} for n, user in enumerate("abc")])
    replacement.commit(0, 3, other.schema, files, write=write_id())
    assert [str(one.transform) for one in other.table.spec().fields] == ["bucket[2]"]
    table = other.open()
    for epoch in range(3, 6):
        other.commit(table, epoch, epoch + 1)
    assert other.epochs() == list(range(6))
    assert {row["user"] for row in other.table.scan(row_filter="user = 'b'").to_arrow().to_pylist()} == {"b"}
    back = parted.open().replacement("f" * 32)
    back.commit(0, 6, parted.schema, parted.stage([{"user": "a", "amount": 1.0, "_epoch": 0}]), write=write_id())
    assert parted.table.spec().spec_id == 0
    assert parted.epochs() == [0]


@pytest.mark.parametrize("by_key", [False, True])
def test_a_table_that_gets_new_partitions_with_every_epoch_is_refused_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_key: bool
) -> None:
    monkeypatch.setattr(counting, "MOST", 20)
    keyed: dict[str, Any] = {"envelope": "upsert", "key": "n"} if by_key else {}
    blank = dict.fromkeys(SCHEMA.names)

    def put(sink: IcebergSink, epoch: int, numbers: range) -> None:
        commit(sink, epoch, [{**blank, "n": n, "country": f"c{n}", "_epoch": epoch} for n in numbers])

    many, few = (
        IcebergSink(f"shop.{name}", str(tmp_path), **keyed, partition_by=way)
        for name, way in (("many", "country"), ("few", tg.bucket(4, "n")))
    )
    for sink in (many, few):
        put(sink, 0, range(10))
        put(sink, 1, range(10, 20))
    with pytest.raises(PartitionsTooSmall, match=r"TG-0469.*shop.many of shop:orders.* 30 partitions with 30 rows"):
        put(many, 2, range(20, 30))
    assert catalog_in(tmp_path).load_table("shop.many").scan().to_arrow().num_rows == 20
    for epoch in range(2, 30):
        put(few, epoch, range(epoch * 10, epoch * 10 + 10))
    assert few.open(OUTPUT).volume().rows == 300
    put(many, 2, range(5))  # none is new
    monkeypatch.setattr(counting, "MOST", 5)
    files = stage(many, [{**blank, "n": n, "country": f"c{n}", "_epoch": 0} for n in range(6)])
    with pytest.raises(PartitionsTooSmall):
        many.open(OUTPUT).replacement("e" * 32).commit(0, 3, SCHEMA, files, write=write_id())


def test_manifests_of_a_parted_table_become_few_and_keep_its_partitions(parted: IcebergBench) -> None:
    table = parted.filled(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegauge.sinks.iceberg.snapshots._MANY", 4)
        for epoch in range(9):
            parted.commit(table, epoch, epoch + 1, "ab"[epoch % 2])
    held = parted.table
    manifests = held.current_snapshot().manifests(held.io)
    assert len(manifests) < 6
    entries = [entry for one in manifests for entry in one.fetch_manifest_entry(held.io)]
    assert sorted(entry.data_file.partition[0] for entry in entries) == sorted("ababababa")
    assert {entry.status for entry in entries} <= {ManifestEntryStatus.ADDED, ManifestEntryStatus.EXISTING}
    assert len(list(held.scan(row_filter="user = 'a'").plan_files())) == 5


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    def sink(**options: Any) -> IcebergSink:
        return IcebergSink(NAME, str(tmp_path), **options)

    with pytest.raises(InvalidArgument, match="file_size"):
        sink(file_size="much")
    with pytest.raises(PartitionColumnUnfit, match="no such column"):
        sink(partition_by="nation").check(SCHEMA)
    with pytest.raises(PartitionColumnUnfit, match="has a column 'at_day'"):
        sink(partition_by=tg.day("at")).check(SCHEMA.append(pa.field("at_day", pa.date32())))
    blank = dict.fromkeys(SCHEMA.names)
    with pytest.raises(TooManyPartitions):
        stage(sink(partition_by="n"), [{**blank, "n": n, "_epoch": 0} for n in range(4097)])
    told = {"partition_by": ["day(at)"], "sort_by": ["n"], "file_size": 1 << 20}
    assert told.items() <= sink(partition_by=tg.day("at"), sort_by="n", file_size="1MB").describe().items()


def test_files_end_at_their_size(tmp_path: Path) -> None:
    sink = IcebergSink(NAME, str(tmp_path), file_size="4KB")
    blank = dict.fromkeys(SCHEMA.names)
    writer = sink.stage(SCHEMA, job=uuid.uuid4().hex, task=0)
    for start in range(0, 2000, 100):
        rows = [{**blank, "country": uuid.uuid4().hex, "n": start + n, "_epoch": 0} for n in range(100)]
        writer.write(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    assert len(writer.close()) > 2


@pytest.mark.long
def test_a_parted_table_holds_every_law() -> None:
    options = {"partition_by": tg.bucket(2, "user")}
    check_sink(lambda folder: IcebergBench(folder, options=options), crashes=20).require()


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_spark_and_duckdb_prune_and_a_table_of_sparks_own_is_taken(tmp_path: Path) -> None:
    ways: Any = [tg.day("at"), tg.bucket(4, "n"), "country"]
    (tmp_path / "lake").mkdir()
    lake = str(tmp_path / "lake")
    ours, theirs = (IcebergSink(name, lake, partition_by=ways) for name in ("shop.ours", "shop.theirs"))
    commit(ours, 0, rows_of(24, 0))
    with elsewhere.spark(lake) as spark, elsewhere.duckdb() as duckdb:
        spark.sql(
            "CREATE TABLE default.shop.theirs (country string, n bigint, day date, at timestamp, flag boolean, "
            "price decimal(9,2), _epoch bigint) USING iceberg PARTITIONED BY (days(at), bucket(4, n), country)"
        )
        commit(theirs, 0, rows_of(24, 0))
        for name in ("ours", "theirs"):
            commit(IcebergSink(f"shop.{name}", lake, partition_by=ways), 1, rows_of(24, 1))
            place = tmp_path / "lake" / "shop" / name / "metadata"
            newest = max(place.glob("*.metadata.json"), key=lambda path: path.name)
            whole = catalog_in(lake).load_table(f"shop.{name}").scan().to_arrow()
            count = 0
            for text in SQL:
                asked = f"SELECT count(*), coalesce(sum(n), 0) FROM {{}} WHERE {text}"
                [[count, total]] = spark.sql(asked.format(f"default.shop.{name}"))
                zoned = asked.format(f"iceberg_scan('{newest}')").replace("at < TIMESTAMP '", '"at" < TIMESTAMPTZ \'')
                assert [count, total] == [int(value) for value in duckdb.sql(zoned)[0]], text
            assert count == whole.num_rows == 48
            assert spark.sql(f"SELECT count(*) FROM default.shop.{name}.partitions")[0][0] > 5
            rewritten = f"table => 'shop.{name}', options => map('rewrite-all', 'true')"
            spark.sql(f"CALL default.system.rewrite_data_files({rewritten})")
            commit(IcebergSink(f"shop.{name}", lake, partition_by=ways), 2, rows_of(24, 2))
            assert spark.sql(f"SELECT count(*) FROM default.shop.{name}") == [[72]]
