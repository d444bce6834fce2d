"""Tables of Iceberg that take on columns: in one commit with the upper, by number, beside others who alter them."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.types import DoubleType, LongType, StringType
from tests.forked import end_of
from tests.sinks.iceberg import elsewhere
from tests.sinks.iceberg.conftest import NAME, OUTPUT, IcebergBench, catalog_in, write_id
from tests.sinks.iceberg.test_lost_answers import answering

import tidegauge as tg
from tidegauge.errors.columns import ColumnsRefused
from tidegauge.errors.iceberg import IcebergColumnsAltered
from tidegauge.errors.sinks import TableUpperMismatch
from tidegauge.objects.reading import parquet_rows

OLD = pa.schema([("id", pa.int32()), ("user", pa.string()), ("_epoch", pa.int64())])
NEW = pa.schema([("id", pa.int32()), ("user", pa.string()), ("note", pa.string()), ("_epoch", pa.int64())])


@pytest.fixture
def bench(tmp_path: Path) -> IcebergBench:
    return IcebergBench(tmp_path, schema=OLD)


def evolving(bench: IcebergBench, how: Any = "add") -> Any:
    table = bench.open()
    table.evolve(how)
    return table


def put(bench: IcebergBench, table: Any, epoch: int, schema: pa.Schema, **row: Any) -> None:
    files = bench.stage([{"id": epoch, **row, "_epoch": epoch}], schema=schema)
    table.commit(epoch, epoch + 1, schema, files, write=write_id())


def begun(bench: IcebergBench, how: Any = "add") -> Any:
    """A table with a commit of before."""
    put(bench, bench.open(), 0, OLD, user="ada")
    return evolving(bench, how)


def held(bench: IcebergBench) -> dict[int, Any]:
    return {row["id"]: row for row in bench.rows()}


# -- one commit


def test_the_commit_that_brings_columns_is_one_with_the_upper(bench: IcebergBench) -> None:
    table = begun(bench)
    before = bench.table
    put(bench, table, 1, NEW, user="bob", note="new")
    now = bench.table
    assert len(now.metadata.metadata_log) == len(before.metadata.metadata_log) + 1, "one version of the metadata"
    assert now.current_snapshot().schema_id == now.schema().schema_id != before.schema().schema_id
    numbers = {one.name: one.field_id for one in now.schema().fields}
    assert numbers == {"id": 1, "user": 2, "_epoch": 3, "note": 4}
    assert [bench.table.scan(snapshot_id=one.snapshot_id).to_arrow().column_names for one in now.snapshots()] == [
        ["id", "user", "_epoch"],
        ["id", "user", "_epoch", "note"],
    ], "an earlier snapshot has the columns of its time"


@pytest.mark.parametrize("done", [True, False])
def test_an_answer_that_was_lost_brings_columns_once(bench: IcebergBench, done: bool) -> None:
    table = begun(bench)
    files = bench.stage([{"id": 1, "user": "bob", "note": "new", "_epoch": 1}], schema=NEW)
    write = write_id()
    with answering(CommitStateUnknownException("502"), done=done):
        if done:
            table.commit(1, 2, NEW, files, write=write)
        else:
            with pytest.raises(Exception, match="502"):
                table.commit(1, 2, NEW, files, write=write)
            assert bench.table.schema().column_names == ["id", "user", "_epoch"]
            table.commit(1, 2, NEW, files, write=write)
    assert len(bench.table.schemas()) == 2
    assert held(bench)[1]["note"] == "new"


def dies(folder: str, instant: str) -> None:
    """Bring a column in a process that is killed right before the catalog has the commit, or right after."""
    real = SqlCatalog.commit_table

    def commit(self: Any, *asked: Any) -> Any:
        if instant == "after":
            real(self, *asked)
        os.kill(os.getpid(), signal.SIGKILL)

    bench = IcebergBench(Path(folder), schema=OLD)
    table = evolving(bench)
    with mock.patch.object(SqlCatalog, "commit_table", commit):
        put(bench, table, 1, NEW, user="bob", note="new")


@pytest.mark.parametrize("instant", ["before", "after"])
def test_a_driver_that_is_killed_leaves_the_columns_with_their_rows_or_neither(
    bench: IcebergBench, instant: str
) -> None:
    begun(bench)
    assert end_of(dies, str(bench.folder), instant) == -signal.SIGKILL
    table = evolving(bench)
    assert (table.upper, table.lacking(NEW)) == ((2, ()) if instant == "after" else (1, ("note",)))
    if instant == "before":
        put(bench, table, 1, NEW, user="bob", note="new")
    assert [held(bench)[n]["note"] for n in (0, 1)] == [None, "new"]


# -- numbers


def staged_as_they_are(bench: IcebergBench) -> list[bool]:
    """Whether the files of the table are those that tasks wrote, in the order of their epochs."""
    paths = [file.path for file in bench.open().files()]
    return [Path(path).name.startswith(f"part-{OUTPUT.incarnation[-16:]}") for path in paths]


def test_files_are_written_anew_once_and_from_then_on_tasks_know_the_numbers(bench: IcebergBench) -> None:
    table = begun(bench)
    waiting = bench.stage([{"id": 9, "user": "eve", "note": "old", "_epoch": 2}], schema=NEW)
    put(bench, table, 1, NEW, user="bob", note="new")
    assert staged_as_they_are(bench) == [True, False]
    more = bench.stage([{"id": 2, "user": "cyd", "note": "new", "_epoch": 2}], schema=NEW)
    table.commit(2, 3, NEW, [*more, *waiting], write=write_id())
    assert staged_as_they_are(bench).count(False) == 2, "one of two files of a commit has other numbers"
    assert {row["id"]: row["note"] for row in bench.rows()} == {0: None, 1: "new", 2: "new", 9: "old"}
    there = {str(path.relative_to(bench.path)) for path in bench.path.rglob("*.parquet")}
    assert there == {file.path for file in bench.open().files()}, "nothing is left, and nothing is gone"
    (bench.path / "_tidegauge" / "columns.json").write_text('{"id": 7')  # a hint, and no more
    put(bench, table, 3, NEW, user="dan", note="new")
    assert held(bench)[3]["note"] == "new"


# -- others


def alter(bench: IcebergBench, change: Callable[[Any], None]) -> None:
    with bench.table.update_schema() as update:
        change(update)


RENAME = pytest.param(
    lambda update: update.rename_column("user", "customer"),
    "'user' (column 2) is called 'customer' now",
    id="renamed",
)
DROP = pytest.param(lambda update: update.delete_column("user"), "'user' (column 2) was dropped", id="dropped")


@pytest.mark.parametrize("how", ["strict", "add", "evolve"])
@pytest.mark.parametrize(("change", "said"), [RENAME, DROP])
def test_a_column_that_others_renamed_or_dropped_is_named_and_nothing_is_written(
    bench: IcebergBench, how: Any, change: Callable[[Any], None], said: str
) -> None:
    table = begun(bench, how)
    alter(bench, change)
    with pytest.raises(IcebergColumnsAltered) as caught:
        put(bench, table, 1, OLD, user="bob")
    assert said in caught.value.summary
    assert "the rows have (id int32, user string, _epoch int64)" in caught.value.summary
    with pytest.raises(IcebergColumnsAltered):
        evolving(bench, how).lacking(OLD)
    assert bench.open().upper == 1
    assert len(bench.table.snapshots()) == 1


def test_a_column_that_gets_its_name_back_is_taken_again(bench: IcebergBench) -> None:
    begun(bench)
    alter(bench, lambda update: update.rename_column("user", "customer"))
    with pytest.raises(IcebergColumnsAltered):
        bench.open().files()  # by their names the values would be null
    alter(bench, lambda update: update.rename_column("customer", "user"))
    put(bench, evolving(bench), 1, OLD, user="bob")
    assert [held(bench)[n]["user"] for n in (0, 1)] == ["ada", "bob"]


def test_a_table_that_is_made_again_has_the_new_name(bench: IcebergBench) -> None:
    """As the error says."""
    table = begun(bench)
    alter(bench, lambda update: update.rename_column("user", "customer"))
    renamed = pa.schema([("id", pa.int32()), ("customer", pa.string()), ("_epoch", pa.int64())])
    files = bench.stage([{"id": 0, "customer": "ada", "_epoch": 0}], schema=renamed)
    table.replacement("e" * 32).commit(0, 1, renamed, files, write=write_id())
    assert bench.rows() == [{"id": 0, "customer": "ada", "_epoch": 0}]
    put(bench, evolving(bench), 1, renamed, customer="bob")
    assert [held(bench)[n]["customer"] for n in (0, 1)] == ["ada", "bob"]
    assert len(bench.open().files()) == 2


def test_rows_under_the_new_name_do_not_hide_that_files_have_the_old_one(bench: IcebergBench) -> None:
    begun(bench)
    alter(bench, lambda update: update.rename_column("user", "customer"))
    renamed = pa.schema([("id", pa.int32()), ("customer", pa.string()), ("_epoch", pa.int64())])
    with pytest.raises(IcebergColumnsAltered, match="is called 'customer'"):
        put(bench, evolving(bench, "evolve"), 1, renamed, customer="bob")
    with pytest.raises(IcebergColumnsAltered):
        bench.sink.maintain(OUTPUT).plan()


def test_a_column_that_was_dropped_may_be_left_out_and_a_new_one_is_another(bench: IcebergBench) -> None:
    begun(bench)
    alter(bench, lambda update: update.delete_column("user"))
    fewer = pa.schema([("id", pa.int32()), ("_epoch", pa.int64())])
    put(bench, evolving(bench), 1, fewer)
    assert held(bench) == {0: {"id": 0, "_epoch": 0}, 1: {"id": 1, "_epoch": 1}}
    again = evolving(bench)
    alter(bench, lambda update: update.add_column("user", StringType()))
    assert again.lacking(OLD) == ()


def test_a_column_of_others_is_refused_or_left_null(bench: IcebergBench) -> None:
    table = begun(bench)
    alter(bench, lambda update: update.add_column("theirs", LongType()))
    with pytest.raises(ColumnsRefused, match="no column 'theirs'"):
        put(bench, table, 1, NEW, user="bob", note="new")
    put(bench, evolving(bench, "evolve"), 1, NEW, user="bob", note="new")
    assert held(bench)[1] == {"id": 1, "user": "bob", "_epoch": 1, "theirs": None, "note": "new"}


@pytest.mark.parametrize(("kind", "outcome"), [(StringType(), "new"), (DoubleType(), "'note' is double")])
def test_the_column_that_others_add_in_the_midst_of_the_commit_is_the_one_or_refused(
    bench: IcebergBench, kind: Any, outcome: str
) -> None:
    table = begun(bench)

    def beside() -> None:
        alter(bench, lambda update: update.add_column("note", kind))

    with answering(CommitFailedException("409"), done=False, beside=beside):
        if outcome == "new":
            put(bench, table, 1, NEW, user="bob", note="new")
            assert held(bench)[1]["note"] == "new"
        else:
            with pytest.raises(ColumnsRefused, match=outcome):
                put(bench, table, 1, NEW, user="bob", note="new")
            assert held(bench)[0]["note"] is None
    assert [one.name for one in bench.table.schema().fields] == ["id", "user", "_epoch", "note"]


def test_the_catalog_refuses_numbers_that_others_have_given_meanwhile(bench: IcebergBench) -> None:
    table, real, once = begun(bench, "evolve"), SqlCatalog.commit_table, [True]

    def commit(self: Any, *asked: Any) -> Any:
        if once:
            once.clear()
            alter(bench, lambda update: update.add_column("theirs", LongType()))
        return real(self, *asked)

    with mock.patch.object(SqlCatalog, "commit_table", commit):
        put(bench, table, 1, NEW, user="bob", note="new")
    assert {one.name: one.field_id for one in bench.table.schema().fields} == {
        "id": 1, "user": 2, "_epoch": 3, "theirs": 4, "note": 5,
    }  # fmt: skip
    assert held(bench)[1] == {"id": 1, "user": "bob", "_epoch": 1, "theirs": None, "note": "new"}


def test_what_others_say_of_a_column_stays_said(bench: IcebergBench) -> None:
    table = begun(bench)
    alter(bench, lambda update: update.update_column("user", doc="who bought"))
    put(bench, table, 1, NEW, user="bob", note="new")
    assert bench.table.schema().find_field("user").doc == "who bought"


def test_a_column_that_parts_the_table_keeps_its_type(tmp_path: Path) -> None:
    bench = IcebergBench(tmp_path, schema=OLD, options={"partition_by": tg.bucket(4, "id")})
    begun(bench)
    wide = OLD.set(0, pa.field("id", pa.int64()))
    with pytest.raises(ColumnsRefused, match="of the key or of the partitions"):
        put(bench, evolving(bench, "evolve"), 1, wide, user="bob")
    put(bench, evolving(bench, "evolve"), 1, NEW, user="bob", note="new")
    assert [held(bench)[n]["note"] for n in (0, 1)] == [None, "new"]


def test_a_stale_driver_brings_no_columns(bench: IcebergBench) -> None:
    asleep = begun(bench)
    put(bench, evolving(bench), 1, OLD, user="bob")
    with pytest.raises(TableUpperMismatch):
        put(bench, asleep, 1, NEW, user="bob", note="new")
    assert len(bench.table.schemas()) == 1


# -- readers

FIRST = pa.schema(
    {
        "id": pa.int32(), "user": pa.string(), "n": pa.int32(), "r": pa.float32(), "d": pa.decimal128(5, 2),
        "spot": pa.struct([("x", pa.int64())]), "_epoch": pa.int64(),
    }
)  # fmt: skip
SECOND = pa.schema(
    {
        "note": pa.string(), "id": pa.int32(), "n": pa.int64(), "r": pa.float64(), "d": pa.decimal128(22, 2),
        "spot": pa.struct([("y", pa.string()), ("x", pa.int64())]), "_epoch": pa.int64(),
    }
)  # fmt: skip
"""Two columns more, one of them within another, wider types, and no user."""
WANTED = [
    (0, "ada", 7, 1.5, Decimal("1.25"), 1, None, None),
    (1, None, 2**40, 1e300, Decimal("12345678901234567890.75"), 2, "y", "new"),
]
ASKED = {
    "1 = 1": [0, 1], "n > 10": [1], "n = 7": [0], "r > 2": [1], "r = 1.5": [0], "d > 100": [1], "d = 1.25": [0],
    "note IS NULL": [0], "note = 'new'": [1], "\"user\" IS NULL": [1], "\"user\" = 'ada'": [0],
}  # fmt: skip


def grown(warehouse: Path) -> None:
    """A table with a file of before, and one of after."""
    bench = IcebergBench(warehouse.parent, schema=FIRST)
    old = {"id": 0, "user": "ada", "n": 7, "r": 1.5, "d": Decimal("1.25"), "spot": {"x": 1}, "_epoch": 0}
    new = {"note": "new", "id": 1, "n": 2**40, "r": 1e300, "d": WANTED[1][4], "spot": {"x": 2, "y": "y"}, "_epoch": 1}
    bench.open().commit(0, 1, FIRST, bench.stage([old], schema=FIRST), write=write_id())
    evolving(bench, "evolve").commit(1, 2, SECOND, bench.stage([new], schema=SECOND), write=write_id())


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grown") / "lake"
    grown(folder)
    return folder


def flat(row: Mapping[str, Any]) -> tuple[Any, ...]:
    within = row["spot"]
    return (*(row[name] for name in ("id", "user", "n", "r", "d")), within["x"], within["y"], row["note"])


def test_pyiceberg_and_who_reads_its_scans_see_old_and_new_rows(lake: Path) -> None:
    table = catalog_in(lake).load_table(NAME)
    whole = table.scan().to_arrow()
    assert sorted(map(flat, whole.to_pylist())) == WANTED
    with duckdb.connect() as connection:
        connection.register("t", whole)
        for where, kept in ASKED.items():
            assert [n for (n,) in connection.execute(f"SELECT id FROM t WHERE {where} ORDER BY 1").fetchall()] == kept
    for where, kept in ASKED.items():
        if where != "1 = 1":
            asked = where.replace('"', "").replace("d > 100", "d > 100.00")
            assert table.scan(row_filter=asked).to_arrow()["id"].to_pylist() == kept, where


def test_polars_sees_old_and_new_rows(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    frame = pl.scan_iceberg(catalog_in(lake).load_table(NAME))
    assert [flat(row) for row in frame.collect().sort("id").to_dicts()] == WANTED
    for where, kept in ASKED.items():
        assert sorted(frame.filter(pl.sql_expr(where)).collect()["id"].to_list()) == kept, where


def test_our_own_reads_and_packs_see_old_and_new_rows(lake: Path, tmp_path: Path) -> None:
    grown(tmp_path / "lake")
    bench = IcebergBench(tmp_path)
    table = bench.open()
    found = parquet_rows(table.uris(table.files()), table.schema).to_table().to_pylist()
    assert sorted(map(flat, found)) == WANTED
    for epoch in range(2, 9):
        row = {"note": "more", "id": epoch, "n": 1, "r": 1.0, "d": Decimal(1), "spot": {"x": 1}, "_epoch": epoch}
        files = bench.stage([row], schema=SECOND)
        evolving(bench, "evolve").commit(epoch, epoch + 1, SECOND, files, write=write_id())
    upkeep = bench.sink.maintain(OUTPUT)
    for pack in upkeep.plan():
        assert upkeep.commit(pack, upkeep.stage(pack, job="a" * 16 + uuid.uuid4().hex[:16]), write=write_id())
    assert len(bench.open().files()) == 1
    assert sorted(map(flat, bench.rows()))[:2] == WANTED
    [file] = bench.open().files()
    assert pq.read_schema(bench.path / file.path).field("n").type == pa.int64()


@pytest.fixture(scope="module")
def spark(lake: Path) -> Iterator[elsewhere.Elsewhere]:
    with elsewhere.spark(lake) as found:
        yield found


SELECT = 'SELECT id, "user", n, r, cast(d AS varchar), spot.x, spot.y, note'
TEXTS = [[value if name != 4 else str(value) for name, value in enumerate(row)] for row in WANTED]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_spark_sees_old_and_new_rows(spark: elsewhere.Elsewhere) -> None:
    select = SELECT.replace('"', "`").replace("varchar", "string")
    assert spark.sql(f"{select} FROM default.{NAME} ORDER BY id") == TEXTS
    for where, kept in ASKED.items():
        text = f"SELECT id FROM default.{NAME} WHERE {where} ORDER BY 1".replace('"', "`")
        assert [n for (n,) in spark.sql(text)] == kept, where


@pytest.mark.long
def test_duckdb_sees_old_and_new_rows(lake: Path) -> None:
    newest = max((lake / "shop" / "orders" / "metadata").glob("*.metadata.json"), key=lambda path: path.name)
    with elsewhere.duckdb() as reader:
        place = f"iceberg_scan('{newest}')"
        assert reader.sql(f"{SELECT} FROM {place} ORDER BY id") == TEXTS
        for where, kept in ASKED.items():
            assert [n for (n,) in reader.sql(f"SELECT id FROM {place} WHERE {where} ORDER BY 1")] == kept, where
