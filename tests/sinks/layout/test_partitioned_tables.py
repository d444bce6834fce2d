"""Tables that are parted: the same rows as without, for everybody, and fewer files to read."""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep
from tests.engine import cases
from tests.sinks.asking import PARTED, READERS, by_spark, predicates, write
from tests.sinks.spark_delta import delta_spark

import tidegauge as tg
from tidegauge.errors.layout import PartitionedOtherwise, PartitionsTooSmall, TooManyPartitions
from tidegauge.errors.sinks import ForeignTable, KeptOtherwise, TableChangedByOthers
from tidegauge.looking.read import trace
from tidegauge.remap.history import History
from tidegauge.sinks import DeltaSink, OutputId, ParquetSink, StagedFile
from tidegauge.sinks.layout import counting
from tidegauge.sinks.mending import joined
from tidegauge.sinks.protocol import job_mark
from tidegauge.testing.kit import check_sink

OUTPUT = OutputId("shop", "orders", "a" * 32)
SCHEMA = pa.schema(
    [("country", pa.string()), ("n", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("_epoch", pa.int64())]
)
COUNTRIES = ["DE", "FR", "a/b", "x=y %41", "..", "ü", None]
START = datetime(2026, 11, 20, tzinfo=UTC)
WAYS: list[Any] = [
    "country",
    tg.day("at"),
    tg.hour("at"),
    tg.bucket(3, "n"),
    (tg.month("at"), "country"),
]


def job() -> str:
    return job_mark(OUTPUT.incarnation) + uuid.uuid4().hex[:16]


@dataclass
class Bench:
    """A table, and the rows that it should have."""

    sink: Any
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.count = len(self.rows)
        self.table: Any = self.sink.open(OUTPUT)

    def stage(self, rows: Sequence[dict[str, Any]]) -> list[StagedFile]:
        stager = self.sink.stage(SCHEMA, job=job(), task=0)
        stager.write(pa.RecordBatch.from_pylist(list(rows), schema=SCHEMA))
        return stager.close()  # type: ignore[no-any-return]

    def commit(self, count: int = 7, table: Any = None) -> None:
        table = table or self.table
        epoch = table.upper
        new = [row(self.count + at, epoch) for at in range(count)]
        self.count += count
        table.commit(epoch, epoch + 1, SCHEMA, self.stage(new) if new else [], write=job(), history=History())
        self.rows += new

    def seen(self) -> list[dict[str, Any]]:
        """Return the rows that a stranger sees, without the columns that transforms made."""
        return seen(self.sink)


def row(n: int, epoch: int) -> dict[str, Any]:
    return {
        "country": COUNTRIES[n % len(COUNTRIES)],
        "n": n,
        "at": START + timedelta(hours=5 * (n % 30)),
        "_epoch": epoch,
    }


def seen(sink: Any) -> list[dict[str, Any]]:
    if isinstance(sink, DeltaSink):
        local = pyarrow.fs.SubTreeFileSystem(sink.path, pyarrow.fs.LocalFileSystem())
        found = DeltaTable(sink.path).to_pyarrow_dataset(filesystem=local).to_table()
    else:
        names = {one.name: one for one in SCHEMA}
        keys = [names.get(name, pa.field(name, pa.string())) for name in sink._files.names]
        flavour = ds.partitioning(pa.schema([pa.field("from_epoch", pa.string()), *keys]), flavor="hive")
        found = ds.dataset(sink.path, format="parquet", partitioning=flavour).to_table()
    return in_order(found.select(SCHEMA.names).to_pylist())


def in_order(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda one: one["n"])


@pytest.fixture(params=[DeltaSink, ParquetSink])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


# -- readers


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("plain") / "t")
    write(path, PARTED)
    return path


@pytest.fixture(
    scope="module", params=["country", *(pytest.param(n, marks=pytest.mark.long) for n in ("day", "flag", "small"))]
)
def parted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table that is parted by a column of each type that there may be."""
    path = str(tmp_path_factory.mktemp("parted") / "t")
    write(path, PARTED, partition_by=[request.param])
    return path


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("reader", READERS)
def test_a_filter_keeps_what_it_keeps_of_all_rows_and_of_a_table_without_partitions(
    parted: str, plain: str, reader: str, every: int
) -> None:
    asked = list(predicates(PARTED))[::every]
    answers = READERS[reader](parted, asked)
    assert [answer for answer in answers if answer.filtered != answer.kept] == []
    assert answers == READERS[reader](plain, asked)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_spark_with_the_jar_of_delta_agrees_as_well(tmp_path: Path) -> None:
    with delta_spark() as spark:
        asked = list(predicates(PARTED))
        write(str(tmp_path / "plain"), PARTED)
        wanted = by_spark(spark.sql, str(tmp_path / "plain"), asked)
        for number, columns in enumerate([["country"], ["day"], ["flag", "day"], ["small", "country"]]):
            path = str(tmp_path / f"{number}")
            write(path, PARTED, partition_by=columns)
            answers = by_spark(spark.sql, path, asked)
            assert [answer for answer in answers if answer.filtered != answer.kept] == []
            assert answers == wanted


@deep(40)
@given(
    ways=st.sampled_from(WAYS),
    epochs=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    country=st.sampled_from(COUNTRIES),
    least=st.integers(0, 20),
)
def test_parted_or_not_it_is_one_table_for_each_filter(
    ways: Any, epochs: list[int], country: Any, least: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("one")
    benches = [Bench(DeltaSink(f"{folder}/{at}", partition_by=way)) for at, way in enumerate((None, ways))]
    for bench in benches:
        for count in epochs:
            bench.commit(count)
    of_country = pl.col("country").is_null() if country is None else pl.col("country") == country
    since = pl.col("at") >= START + timedelta(hours=5 * least)
    for wanted in (pl.lit(value=True), of_country, since, of_country & since, of_country | since):
        found = [
            in_order(pl.scan_delta(one.sink.path).filter(wanted).select(SCHEMA.names).collect().to_dicts())
            for one in benches
        ]
        assert found[0] == found[1]
    assert benches[1].seen() == benches[0].seen() == benches[0].rows


def test_readers_skip_the_files_of_other_partitions(tmp_path: Path) -> None:
    bench = Bench(DeltaSink(str(tmp_path / "t"), partition_by=["country", tg.day("at")]))
    for _ in range(3):
        bench.commit(35)
    table = DeltaTable(bench.sink.path)
    every = len(table.file_uris())
    asked = "country = 'x=y %41' and at_day = date '2026-11-22'"
    named = table.file_uris(file_pruning_predicate=[("country", "=", "x=y %41"), ("at_day", "=", "2026-11-22")])
    wanted = [one for one in bench.rows if one["country"] == "x=y %41" and one["at"].date() == date(2026, 11, 22)]
    assert len(named) <= 3 < every
    [found] = (
        QueryBuilder()
        .register("t", table)
        .execute(f"select n from t where {asked} order by n")
        .read_all()["n"]
        .chunks
    )
    assert found.to_pylist() == [one["n"] for one in wanted]
    # An instant's own statistics skip as well: nobody has to know of the day.
    days = [("at", ">=", START + timedelta(days=5)), ("at", "<", START + timedelta(days=6))]
    assert len(table.file_uris(file_pruning_predicate=days)) < every / 2


# -- the life of a table


@pytest.mark.parametrize("ways", WAYS, ids=str)
def test_a_parted_table_is_read_as_of_any_epoch_and_found_again(kind: Any, ways: Any, tmp_path: Path) -> None:
    bench = Bench(kind(str(tmp_path / "t"), partition_by=ways))
    for count in (7, 0, 3, 9):
        bench.commit(count)
    assert bench.seen() == bench.rows
    again = Bench(bench.sink, list(bench.rows))
    again.commit(4)
    assert again.seen() == again.rows
    files = again.table.files(as_of=2)
    assert {file.path for file in files} <= {file.path for file in again.table.files()}
    assert all(
        Path(uri).stat().st_size == file.bytes for uri, file in zip(again.table.uris(files), files, strict=True)
    )


def test_other_columns_are_refused_until_the_table_is_made_again(kind: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    Bench(kind(path, partition_by="country")).commit()
    for other in (None, "n", ("country", "n"), tg.day("at")):
        bench = Bench(kind(path, partition_by=other))
        with pytest.raises(PartitionedOtherwise, match="parted by country, and the output"):
            bench.commit()
    moved = Bench(kind(path, partition_by=tg.day("at")))
    anew = moved.table.replacement("e" * 32)
    moved.commit(5, anew)
    assert moved.seen() == moved.rows
    moved.commit(5, anew)
    assert moved.seen() == moved.rows
    back = Bench(kind(path), list(moved.rows))
    with pytest.raises(PartitionedOtherwise, match=r"parted by at_day, and .* wants it parted by nothing"):
        back.commit()
    back.rows.clear()
    back.commit(3, back.table.replacement("f" * 32))
    assert back.seen() == back.rows


@pytest.mark.parametrize("other", [{"partition_by": tg.day("at")}, {}, {"envelope": "upsert", "key": "n"}], ids=str)
def test_a_table_that_is_kept_otherwise_is_not_packed_and_nothing_of_it_is_read(
    other: dict[str, Any], tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    bench = Bench(DeltaSink(path, partition_by="country"))
    for _ in range(9):
        bench.commit()
    assert bench.sink.maintain(OUTPUT).plan()
    for file in Path(path).rglob("part-*.parquet"):
        file.unlink()  # so that a reader of it fails
    upkeep = DeltaSink(path, **other).maintain(OUTPUT)
    with pytest.raises(PartitionedOtherwise):
        upkeep.plan()
    keyed = DeltaSink(path, envelope="upsert", key="n", partition_by="country")
    with pytest.raises(KeptOtherwise):
        keyed.maintain(OUTPUT).plan()


def test_sort_and_size_may_change_at_any_time(kind: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    rows: list[dict[str, Any]] = []
    for options in ({}, {"sort_by": "n"}, {"sort_by": ("at", "n"), "file_size": "1MB"}, {"file_size": 2048}):
        bench = Bench(kind(path, partition_by="country", **options), rows)
        bench.commit()
        rows = bench.rows
    assert bench.seen() == rows


@pytest.mark.parametrize("ways", WAYS, ids=str)
def test_packs_stay_within_partitions_and_rows_are_sorted(ways: Any, tmp_path: Path) -> None:
    bench = Bench(DeltaSink(str(tmp_path / "t"), partition_by=ways, sort_by=["at"]))
    for _ in range(8):
        bench.commit(21)
    before = bench.table.files()
    upkeep = bench.sink.maintain(OUTPUT)
    packs = upkeep.plan()
    assert packs
    for pack in packs:
        assert len({file.partition for file in pack.files}) == 1
        files = upkeep.stage(pack, job=job())
        assert {file.partition for file in files} == {pack.files[0].partition}
        bench.commit(2)  # a driver goes on meanwhile
        assert upkeep.commit(pack, files, write=job()) is not None
        for file in files:
            times = pa.parquet.ParquetFile(f"{bench.sink.path}/{file.path}").read()["at"].to_pylist()
            assert times == sorted(times)
    assert bench.seen() == bench.rows
    assert len(bench.table.files()) < len(before)
    for epoch in range(8):
        held = [file for file in bench.table.files(as_of=epoch) if file.first_epoch <= epoch]
        assert sum(file.rows for file in held) >= 21 * (epoch + 1)
    [gone] = [upkeep.remnants(timedelta(0))]
    assert {one.path for one in gone} == {file.path for pack in packs for file in pack.files}
    upkeep.clear(gone)
    assert bench.seen() == bench.rows


def test_sorted_packs_are_files_of_which_a_filter_reads_few(tmp_path: Path) -> None:
    bench = Bench(
        DeltaSink(str(tmp_path / "t"), partition_by=tg.month("at"), sort_by=["country", "n"], file_size="2KB")
    )
    for _ in range(12):
        bench.commit(70)
    upkeep = bench.sink.maintain(OUTPUT)
    [pack] = upkeep.plan()
    made = upkeep.stage(pack, job=job())
    assert upkeep.commit(pack, made, write=job()) is not None
    assert bench.seen() == bench.rows
    assert len(made) > 4
    table = DeltaTable(bench.sink.path)
    left = table.file_uris(file_pruning_predicate=[("country", "=", "FR")])
    assert len(left) <= len(made) // 3
    assert upkeep.plan() == [], "files of one run are not packed again"
    for _ in range(3):
        bench.commit(7)
    for again in upkeep.plan():
        assert not set(again.files) & set(made), "small files are packed by themselves until there are enough"


def test_what_others_optimize_and_vacuum_is_read_and_packed(tmp_path: Path) -> None:
    bench = Bench(DeltaSink(str(tmp_path / "t"), partition_by=["country", tg.month("at")]))
    for _ in range(2):
        bench.commit(14)
    table = DeltaTable(bench.sink.path)
    table.optimize.compact()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert bench.seen() == bench.rows
    assert {file.partition for file in bench.table.files()} == {
        (("country", one["country"]), ("at_month", "2026-11")) for one in bench.rows
    }
    for _ in range(8):
        bench.commit(7)
    upkeep = bench.sink.maintain(OUTPUT)
    packs = upkeep.plan()
    for pack in packs:
        assert upkeep.commit(pack, upkeep.stage(pack, job=job()), write=job()) is not None
    assert packs
    assert bench.seen() == bench.rows
    assert sum(file.rows for file in bench.sink.open(OUTPUT).files()) == len(bench.rows)
    bench.sink.remove(OUTPUT)
    assert not Path(bench.sink.path).exists()


def test_staged_files_of_a_task_that_died_are_found_in_partitions_folders(tmp_path: Path) -> None:
    bench = Bench(DeltaSink(str(tmp_path / "t"), partition_by="country"))
    bench.commit()
    litter = bench.stage([row(n, 1) for n in range(7)])
    upkeep = bench.sink.maintain(OUTPUT)
    assert upkeep.remnants(timedelta(0)) == [], "a driver may be about to commit them"
    for file in litter:
        os.utime(tmp_path / "t" / file.path, (0, 0))
    found = upkeep.remnants(timedelta(0))
    assert {(one.path, one.bytes, one.staged) for one in found} == {(file.path, file.bytes, True) for file in litter}
    upkeep.clear(found)
    assert upkeep.remnants(timedelta(0)) == []
    assert bench.seen() == bench.rows


def test_rows_that_were_replaced_and_are_put_back_are_found(tmp_path: Path) -> None:
    bench = Bench(DeltaSink(str(tmp_path / "t"), partition_by="country"))
    bench.commit()
    bench.rows.clear()
    bench.commit(5, bench.table.replacement("e" * 32))
    DeltaTable(bench.sink.path).restore(0)
    with pytest.raises(TableChangedByOthers):
        bench.sink.open(OUTPUT)
    assert len(bench.sink.mend(OUTPUT).damage.missing) > 5


def test_rows_of_others_are_found_and_taken_out_again(tmp_path: Path) -> None:
    bench = Bench(DeltaSink(str(tmp_path / "t"), partition_by="country"))
    bench.commit()
    bench.commit()
    table = DeltaTable(bench.sink.path)
    table.delete("country = 'x=y %41' and n < 5")  # they may
    bench.rows = [one for one in bench.rows if not (one["country"] == "x=y %41" and one["n"] < 5)]
    bench.commit()
    assert bench.seen() == bench.rows
    theirs = pa.Table.from_pylist([row(100, 0), row(3, 0)], schema=SCHEMA)
    write_deltalake(bench.sink.path, theirs, mode="append")
    with pytest.raises(TableChangedByOthers):
        bench.commit()
    mending = bench.sink.mend(OUTPUT)
    assert len(mending.damage.foreign) == 2
    mending.replace((), mending.upper, SCHEMA, [], write=job(), told=lambda lower, upper: History())
    bench.table = bench.sink.open(OUTPUT)
    assert bench.seen() == bench.rows
    bench.commit()
    assert bench.seen() == bench.rows


def test_epochs_that_lie_beside_others_in_a_file_are_replaced(kind: Any, tmp_path: Path) -> None:
    bench = Bench(kind(str(tmp_path / "t"), partition_by="country"))
    for _ in range(4):
        bench.commit(9)
    if kind is DeltaSink:
        DeltaTable(bench.sink.path).optimize.compact()
    else:
        next(Path(bench.sink.path, "from_epoch=000000000002", "country=DE").iterdir()).unlink()
        with pytest.raises(Exception, match="TG-0421"):
            bench.sink.open(OUTPUT)
    mending = bench.sink.mend(OUTPUT)
    again = [one for one in bench.rows if one["_epoch"] == 2]
    epochs = mending.whole(joined([range(2, 3)]))
    mending.replace(epochs, 4, SCHEMA, bench.stage(again), write=job(), told=lambda lower, upper: History())
    assert bench.seen() == bench.rows
    bench.table = bench.sink.open(OUTPUT)
    bench.commit()
    assert bench.seen() == bench.rows


def test_a_table_is_dropped_with_its_partitions_and_not_with_what_is_others(kind: Any, tmp_path: Path) -> None:
    bench = Bench(kind(str(tmp_path / "t"), partition_by=["country", tg.day("at")]))
    bench.stage([row(1, 0)])
    bench.sink.check_removable(OUTPUT)
    bench.commit()
    bench.sink.remove(OUTPUT)
    assert not (tmp_path / "t").exists()


def test_a_table_that_is_made_by_hand_is_taken_if_it_is_parted_alike(tmp_path: Path) -> None:
    for name, columns in (("alike", ["country"]), ("plain", [])):
        DeltaTable.create(f"{tmp_path}/{name}", SCHEMA, partition_by=columns)
    bench = Bench(DeltaSink(f"{tmp_path}/alike", partition_by="country"))
    bench.commit()
    assert bench.seen() == bench.rows
    with pytest.raises(ForeignTable, match="partitioned by nothing"):
        Bench(DeltaSink(f"{tmp_path}/plain", partition_by="country"))


# -- flows


def flow_of(folder: Path, **options: Any) -> tg.Dataflow:
    flow = tg.Dataflow("shop", store=f"sqlite:///{folder}/store.db")
    orders = flow.source(
        "orders", tg.FileSource(f"{folder}/*.jsonl", format=tg.Json("id long, country string, at timestamp"))
    )
    flow.sink("delta", orders, tg.DeltaSink(f"{folder}/delta", **options))
    flow.sink("folder", orders, tg.ParquetSink(f"{folder}/folder", **options))
    flow.sink("plain", orders, tg.DeltaSink(f"{folder}/plain"))
    return flow


def write_orders(folder: Path, ids: range, country: Any = lambda n: COUNTRIES[n % 7]) -> None:
    with (folder / "orders.jsonl").open("a") as file:
        for n in ids:
            at = (START + timedelta(hours=n)).isoformat()
            file.write(json.dumps({"id": n, "country": country(n), "at": at}) + "\n")


def test_a_flow_reads_back_what_it_has_parted(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, partition_by=["country", tg.day("at")], sort_by="id")
    for start in (0, 40, 80):
        write_orders(tmp_path, range(start, start + 40))
        flow.run(engine="local", until="caught-up")
    for as_of in (0, 1, None):
        wanted = Counter(map(str, tg.read_arrow(flow, "plain", as_of=as_of).to_pylist()))
        for output in ("delta", "folder"):
            found = tg.read_arrow(flow, output, as_of=as_of)
            assert found.schema.names == ["id", "country", "at", "at_day", "_epoch"]
            assert Counter(map(str, found.drop_columns(["at_day"]).to_pylist())) == wanted
    assert not tg.verify(flow).problems
    tg.maintain(flow, ["delta"])
    assert Counter(map(str, tg.read_arrow(flow, "delta").drop_columns(["at_day"]).to_pylist())) == Counter(
        map(str, tg.read_arrow(flow, "plain").to_pylist())
    )


def test_other_partitions_are_a_decision_and_then_the_table_is_made_again(tmp_path: Path) -> None:
    write_orders(tmp_path, range(40))
    flow_of(tmp_path, partition_by="country").run(engine="local", until="caught-up")
    write_orders(tmp_path, range(40, 60))
    moved = flow_of(tmp_path, partition_by=tg.day("at"))
    with pytest.raises(PartitionedOtherwise, match=r"by country, and .* by day\(at\)"):
        moved.run(engine="local", until="caught-up")
    assert tg.read_arrow(moved, "plain").num_rows == 60, "the others go on"
    for output in ("delta", "folder"):
        tg.replace(moved, output)
    moved.run(engine="local", until="caught-up")
    wanted = in_order_of_id(tg.read_arrow(moved, "plain"))
    for output in ("delta", "folder"):
        found = tg.read_arrow(moved, output)
        assert in_order_of_id(found.drop_columns(["at_day"])) == wanted
    assert DeltaTable(f"{tmp_path}/delta").metadata().partition_columns == ["at_day"]
    assert not tg.verify(moved).problems


@pytest.mark.long
def test_a_late_output_takes_its_past_from_a_parted_table_and_rows_are_traced(tmp_path: Path) -> None:
    write_orders(tmp_path, range(40))
    flow_of(tmp_path, partition_by=["country", tg.bucket(3, "id")]).run(engine="local", until="caught-up")
    for output in ("delta", "folder"):
        flow = flow_of(tmp_path, partition_by=["country", tg.bucket(3, "id")])
        orders = tg.RowStream(flow, "orders")
        for name in ("delta", "folder")[: 1 + ("delta", "folder").index(output)]:
            flow.sink(f"late_{name}", orders, tg.DeltaSink(f"{tmp_path}/late_{name}"), start=tg.From(name))
        tg.add(flow, f"late_{output}")
        flow.run(engine="local", until="caught-up")
        assert in_order_of_id(tg.read_arrow(flow, f"late_{output}")) == in_order_of_id(tg.read_arrow(flow, "plain"))
        [found] = trace(flow, output, {"country": "x=y %41", "id": "3"}, limit=9).rows
        assert found.origin is not None


@pytest.mark.long
def test_a_missing_file_is_read_again_by_repair(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, partition_by=["country", tg.day("at")])
    for start in (0, 40):
        write_orders(tmp_path, range(start, start + 40))
        flow.run(engine="local", until="caught-up")
    for gone in (
        next(tmp_path.glob("delta/country=DE/*/*.parquet")),
        next(tmp_path.glob("folder/*1/country=DE/*/*.parquet")),
    ):
        gone.unlink()
    assert len(tg.verify(flow).problems) == 2
    for output in ("delta", "folder"):
        tg.repair(flow, output, engine="local")
        found = tg.read_arrow(flow, output).drop_columns(["at_day"])
        assert in_order_of_id(found) == in_order_of_id(tg.read_arrow(flow, "plain"))
    assert not tg.verify(flow).problems


def test_an_output_with_too_many_partitions_fails_alone_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_orders(tmp_path, range(5000))
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/store.db")
    orders = flow.source("orders", tg.FileSource(f"{tmp_path}/*.jsonl", format=tg.Json("id long, country string")))
    flow.sink("each", orders, tg.DeltaSink(f"{tmp_path}/each", partition_by="id"))
    flow.sink("plain", orders, tg.DeltaSink(f"{tmp_path}/plain"))
    with pytest.raises(TooManyPartitions, match=r"epoch 0 .*parted by id; 4096 is the most"):
        flow.run(engine="local", until="caught-up")
    said = {output.name: output for output in tg.status(flow).outputs}
    assert said["plain"].state == "live"
    assert said["each"].state == "failed"
    assert not list(tmp_path.glob("each/*=*/*.parquet"))


def test_an_output_that_gets_new_partitions_with_every_epoch_fails_alone_in_the_end(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "MOST", 20)
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/store.db")
    orders = flow.source("orders", tg.FileSource(f"{tmp_path}/*.jsonl", format=tg.Json("id long, country string")))
    flow.sink("each", orders, kind(f"{tmp_path}/each", partition_by="id"))
    flow.sink("some", orders, kind(f"{tmp_path}/some", partition_by="country"))
    flow.sink("plain", orders, kind(f"{tmp_path}/plain"))
    for start in (0, 10):
        write_orders(tmp_path, range(start, start + 10))
        flow.run(engine="local", until="caught-up")
    write_orders(tmp_path, range(20, 30))
    with pytest.raises(PartitionsTooSmall, match=r"TG-0469.*shop:each.* 30 partitions with 30 rows"):
        flow.run(engine="local", until="caught-up")
    said = {output.name: output.state for output in tg.status(flow).outputs}
    assert said == {"each": "failed", "some": "live", "plain": "live"}
    assert {name: tg.read_arrow(flow, name).num_rows for name in said} == {"each": 20, "some": 30, "plain": 30}
    coarser = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/store.db")
    orders = coarser.source("orders", tg.FileSource(f"{tmp_path}/*.jsonl", format=tg.Json("id long, country string")))
    coarser.sink("each", orders, kind(f"{tmp_path}/each", partition_by=tg.bucket(4, "id")))
    coarser.sink("some", orders, kind(f"{tmp_path}/some", partition_by="country"))
    coarser.sink("plain", orders, kind(f"{tmp_path}/plain"))
    tg.replace(coarser, "each")
    coarser.run(engine="local", until="caught-up")
    assert tg.read_arrow(coarser, "each").num_rows == 30


def test_many_partitions_of_many_rows_and_many_files_of_few_partitions_are_none(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "MOST", 5)
    large = Bench(kind(str(tmp_path / "large"), partition_by=tg.hour("at")))
    monkeypatch.setattr(counting, "LEAST", 3)
    large.commit(200)  # into thirty hours
    small = Bench(kind(str(tmp_path / "small"), partition_by=tg.bucket(3, "n")))
    monkeypatch.setattr(counting, "LEAST", 100)
    for _ in range(6):
        small.commit()
    assert large.seen() == large.rows
    assert small.seen() == small.rows
    again = Bench(kind(str(tmp_path / "small"), partition_by=tg.bucket(3, "n")), small.rows)
    again.commit()
    tiny = Bench(kind(str(tmp_path / "large"), partition_by=tg.hour("at")), large.rows)
    with pytest.raises(PartitionsTooSmall):
        tiny.commit(1)
    with pytest.raises(PartitionsTooSmall):
        tiny.commit(30, Bench(kind(str(tmp_path / "small"), partition_by=tg.hour("at"))).table.replacement("e" * 32))


# -- the laws of sinks


@dataclass
class PartedBench:
    """A table in a folder, parted by a column of the kit's rows and sorted by another."""

    folder: Path
    make: Any
    sink: Any = field(init=False)

    def __post_init__(self) -> None:
        self.path = self.folder / "lake" / "orders"
        self.sink = self.at(str(self.path))

    def at(self, path: str) -> Any:
        return self.make(path, partition_by="user", sort_by="amount")

    def rows(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        if self.make is DeltaSink:
            if not DeltaTable.is_deltatable(str(self.path)):
                return []
            local = pyarrow.fs.SubTreeFileSystem(str(self.path), pyarrow.fs.LocalFileSystem())
            found = DeltaTable(str(self.path)).to_pyarrow_dataset(filesystem=local).to_table()
            return found.to_pylist()  # type: ignore[no-any-return]
        flavour = ds.partitioning(pa.schema([("from_epoch", pa.string()), ("user", pa.string())]), flavor="hive")
        schema = pa.schema([("user", pa.string()), ("amount", pa.float64()), ("_epoch", pa.int64())])
        found = ds.dataset(str(self.path), format="parquet", partitioning=flavour, schema=schema).to_table()
        return found.to_pylist()  # type: ignore[no-any-return]

    def remove(self) -> None:
        import shutil

        shutil.rmtree(self.path)

    def ways(self) -> Sequence[Any]:
        self.path.parent.mkdir()
        (self.folder / "pond").symlink_to("lake")
        return [self.at(way) for way in (f"{self.folder}/pond/orders", f"{self.path}/", f"file://{self.path}")]

    def elsewhere(self) -> Any:
        return self.at(f"{self.path}-2")


@pytest.mark.long
def test_a_parted_table_holds_every_law(kind: Any) -> None:
    check_sink(lambda folder: PartedBench(folder, kind), crashes=60, deadline=240).require()


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_what_spark_optimizes_and_vacuums_is_read_and_packed(tmp_path: Path) -> None:
    bench = Bench(DeltaSink(str(tmp_path / "t"), partition_by=["country", tg.day("at")], sort_by="n"))
    for _ in range(2):
        bench.commit(35)
    named = f"delta.`{bench.sink.path}`"
    with delta_spark() as spark:
        spark.sql(f"optimize {named}")
        spark.sql(f"vacuum {named} retain 0 hours")
        assert bench.seen() == bench.rows
        assert sum(file.rows for file in bench.table.files()) == len(bench.rows)
        for _ in range(8):
            bench.commit(35)
        upkeep = bench.sink.maintain(OUTPUT)
        packs = upkeep.plan()
        assert packs
        for pack in packs:
            assert upkeep.commit(pack, upkeep.stage(pack, job=job()), write=job()) is not None
        upkeep.clear(upkeep.remnants(timedelta(0)))
        assert bench.seen() == bench.rows
        for one in bench.rows[:7]:
            country = "country is null" if one["country"] is None else f"country = '{one['country']}'"
            [[count]] = spark.sql(
                f"select count(*) from {named} where {country} and at_day = date'{one['at'].date()}'"
            )
            assert count == sum(
                (o["country"], o["at"].date()) == (one["country"], one["at"].date()) for o in bench.rows
            )
        spark.sql(f"vacuum {named} retain 0 hours")
        assert bench.seen() == bench.rows


@pytest.fixture
def zoned() -> Iterator[Any]:
    """A classic session in a zone that is not UTC."""
    session = cases.session_at("local[2]")
    yield session
    session.stop()


@pytest.mark.spark
@pytest.mark.long
def test_spark_reads_back_what_a_flow_has_parted_and_skips_folders(tmp_path: Path, zoned: Any) -> None:
    flow = flow_of(tmp_path, partition_by=["country", tg.bucket(3, "id"), tg.day("at")])
    write_orders(tmp_path, range(30))
    flow.run(spark=zoned, until="caught-up")
    write_orders(tmp_path, range(30, 60))
    flow.run(engine="local", until="caught-up")
    DeltaTable(f"{tmp_path}/delta").optimize.compact()  # its files have names and folders of delta-rs's
    wanted = in_order_of_id(tg.read_arrow(flow, "plain"))
    for output in ("delta", "folder"):
        frame = tg.read(zoned, flow, output)
        assert frame.columns == ["id", "country", "at", "id_bucket_3", "at_day", "_epoch"]
        assert in_order_of_id(frame.drop("id_bucket_3", "at_day").toArrow()) == wanted
        assert all(one["at_day"] == one["at"].date() for one in frame.toArrow().to_pylist())
        some = frame.where("country = 'x=y %41' and id_bucket_3 = 1")
        plan = some._jdf.queryExecution().executedPlan().toString()
        assert "PartitionFilters: [isnotnull(country" in plan
        assert [one["id"] for one in in_order_of_id(some.toArrow())] == [
            one["id"]
            for one in in_order_of_id(tg.read_arrow(flow, output))
            if one["country"] == "x=y %41" and one["id_bucket_3"] == 1
        ]


def in_order_of_id(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda one: one["id"])
