"""Tables that take on columns: the same laws on every sink that can, and readers nobody here wrote."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from tests.postgres import Server, new_database, query
from tests.sinks.iceberg.conftest import catalog_in
from tests.sinks.postgres.conftest import seen
from tests.sinks.spark_delta import delta_spark

import tidegauge as tg
from tidegauge.errors.columns import ColumnsRefused
from tidegauge.errors.postgressink import ServerTableUnfit
from tidegauge.errors.sinks import (
    TableChangedByOthers,
    TableSchemaChanged,
    TableUpperMismatch,
    UnsupportedTable,
)
from tidegauge.objects.reading import parquet_rows
from tidegauge.sinks import OutputId, Sink
from tidegauge.sinks.evolving import Evolving

OUTPUT = OutputId("shop", "orders", "a" * 32)
OLD = pa.schema([("id", pa.int32()), ("user", pa.string()), ("_epoch", pa.int64())])
NOTE = pa.field("note", pa.string())
NEW = pa.schema([("id", pa.int32()), NOTE, ("user", pa.string()), ("_epoch", pa.int64())])
WIDE = pa.schema([("id", pa.int64()), ("user", pa.string()), ("_epoch", pa.int64())])
KINDS = (
    "delta",
    "by key",
    "parquet",
    "memory",
    "postgres",
    "postgres by key",
    "iceberg",
    "iceberg by key",
    "iceberg by key, parted",
)
WIDENING = ("memory", "postgres", "iceberg")


@dataclass
class Place:
    """A table of a kind, and short words for what the tests do with it."""

    sink: Any
    read: Callable[[], list[dict[str, Any]]] | None

    def open(self, how: Any = "strict") -> Any:
        table = self.sink.open(OUTPUT)
        assert isinstance(table, Evolving)
        table.evolve(how)
        return table

    def commit(self, table: Any, lower: int, upper: int, schema: pa.Schema, *rows: Mapping[str, Any]) -> None:
        job = "a" * 16 + uuid.uuid4().hex[:16]
        stager = self.sink.stage(schema, job=job, task=0)
        if rows:
            stager.write(pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=schema))
        table.commit(lower, upper, schema, stager.close(), write=uuid.uuid4().hex)

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows with all columns but the epoch, in the order of `id`; by a reader that knows nothing of us."""
        if self.read is not None:
            found = self.read()
        else:
            table = self.sink.open(OUTPUT)
            found = parquet_rows(table.uris(table.files()), table.schema).to_table().to_pylist()
        return sorted(tuple(v for k, v in sorted(row.items()) if k != "_epoch") for row in found)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    keyed: dict[str, Any] = {"envelope": "upsert", "key": "id"} if "by key" in kind else {}
    if kind.startswith("postgres"):
        server: Server = request.getfixturevalue("postgres")
        address = server.address(new_database(server))
        sink: Sink = tg.PostgresSink(address, "orders", staging=str(tmp_path / "staging"), **keyed)
        return Place(sink, lambda: seen(address, "orders"))
    if kind == "memory":
        memory = tg.MemorySink()
        return Place(memory, lambda: memory.table().to_pylist())
    if kind.startswith("iceberg"):
        keyed |= {"partition_by": tg.bucket(2, "id")} if "parted" in kind else {}
        lake = tg.IcebergSink("shop.orders", str(tmp_path / "lake"), **keyed)
        return Place(lake, lambda: scanned(str(tmp_path / "lake")))
    if kind == "parquet":
        return Place(tg.ParquetSink(str(tmp_path / "lake")), None)
    return Place(tg.DeltaSink(str(tmp_path / "lake"), **keyed), None)


def scanned(warehouse: str) -> list[dict[str, Any]]:
    """The rows of a table of Iceberg, by pyiceberg."""
    catalog = catalog_in(warehouse)
    try:
        rows: list[dict[str, Any]] = catalog.load_table("shop.orders").scan().to_arrow().to_pylist()
    finally:
        catalog.close()
    return rows


def begun(place: Place, how: Any) -> Any:
    place.commit(
        place.open(), 0, 1, OLD, {"id": 1, "user": "ada", "_epoch": 0}, {"id": 2, "user": "bob", "_epoch": 0}
    )
    return place.open(how)


def test_a_new_column_comes_last_with_the_commit_that_brings_it_and_is_null_before(place: Place) -> None:
    table = begun(place, "add")
    assert table.lacking(OLD) == ()
    assert table.lacking(NEW) == ("note",)
    assert place.sink.open(OUTPUT).schema.names == ["id", "user", "_epoch"], "asking changes nothing"
    place.commit(table, 1, 2, NEW, {"id": 3, "note": "new", "user": "cyd", "_epoch": 1})
    assert table.schema.names == place.sink.open(OUTPUT).schema.names == ["id", "user", "_epoch", "note"]
    assert place.rows() == [(1, None, "ada"), (2, None, "bob"), (3, "new", "cyd")]
    again = place.open("add")
    assert again.lacking(NEW) == ()
    place.commit(again, 2, 3, NEW, {"id": 4, "note": "more", "user": "dan", "_epoch": 2})
    assert (4, "more", "dan") in place.rows()


def test_a_commit_without_rows_brings_the_columns_too(place: Place) -> None:
    table = begun(place, "add")
    place.commit(table, 1, 2, NEW)
    assert place.sink.open(OUTPUT).schema.names == ["id", "user", "_epoch", "note"]
    assert place.rows() == [(1, None, "ada"), (2, None, "bob")]


@pytest.mark.parametrize("how", ["strict", "add", "evolve"])
@pytest.mark.parametrize(
    "rows",
    [
        pa.schema([("id", pa.int32()), ("user", pa.int64()), ("_epoch", pa.int64())]),
        pa.schema([("id", pa.int32()), ("user", pa.string()), ("User", pa.string()), ("_epoch", pa.int64())]),
        pa.schema([("id", pa.int32()), ("USER", pa.string()), ("_epoch", pa.int64())]),
    ],
    ids=["another type", "both cases", "another case"],
)
def test_what_no_table_takes_is_refused_and_changes_nothing(place: Place, how: Any, rows: pa.Schema) -> None:
    table = begun(place, how)
    with pytest.raises(Exception, match=r"USER|User|user") as caught:
        table.commit(1, 2, rows, [], write=uuid.uuid4().hex)
    if "User" not in rows.names:
        assert isinstance(caught.value, TableSchemaChanged if how == "strict" else ColumnsRefused)
        with pytest.raises(type(caught.value)):
            table.lacking(rows)
    now = place.open()
    assert (now.upper, now.schema.names) == (1, ["id", "user", "_epoch"])


def test_what_add_does_not_take_says_both_schemas_and_evolve_leaves_null_what_is_gone(place: Place) -> None:
    fewer = pa.schema([("id", pa.int32()), NOTE, ("_epoch", pa.int64())])
    table = begun(place, "add")
    with pytest.raises(ColumnsRefused) as caught:
        place.commit(table, 1, 2, fewer, {"id": 3, "note": "new", "_epoch": 1})
    assert "the rows have no column 'user' (" in caught.value.summary
    assert "The table has (id int" in caught.value.summary
    assert "schema='evolve'" in caught.value.next_step
    place.commit(place.open("evolve"), 1, 2, fewer, {"id": 3, "note": "new", "_epoch": 1})
    assert place.rows() == [(1, None, "ada"), (2, None, "bob"), (3, "new", None)]


def test_a_type_is_widened_where_every_reader_understands_it_and_refused_with_the_reason_elsewhere(
    place: Place, kind: str
) -> None:
    row = {"id": 2**40, "user": "cyd", "_epoch": 1}
    with pytest.raises(ColumnsRefused):
        place.commit(begun(place, "add"), 1, 2, WIDE, row)
    if kind not in WIDENING:
        with pytest.raises(ColumnsRefused, match=r"many of its readers lack|take the type of one file|is of the key"):
            place.commit(place.open("evolve"), 1, 2, WIDE, row)
        return
    place.commit(place.open("evolve"), 1, 2, WIDE, row)
    assert place.rows() == [(1, "ada"), (2, "bob"), (2**40, "cyd")]
    assert place.sink.open(OUTPUT).schema.field("id").type == pa.int64()


def test_a_driver_with_the_old_columns_finds_its_epoch_taken_or_is_refused(place: Place) -> None:
    table, asleep = begun(place, "add"), place.open("add")
    place.commit(table, 1, 2, NEW, {"id": 3, "note": "new", "user": "cyd", "_epoch": 1})
    with pytest.raises(TableUpperMismatch):
        place.commit(asleep, 1, 2, OLD, {"id": 3, "user": "old", "_epoch": 1})
    with pytest.raises(ColumnsRefused, match="note"):
        place.commit(place.open("add"), 2, 3, OLD, {"id": 4, "user": "old", "_epoch": 2})
    assert place.rows() == [(1, None, "ada"), (2, None, "bob"), (3, "new", "cyd")]


def at(*names: str) -> pa.Schema:
    """Rows with a struct that has these fields, and a list of such structs."""
    inner = pa.struct([(name, pa.int64()) for name in names])
    columns = [
        ("id", pa.int32()),
        ("spot", inner),
        ("spots", pa.list_(pa.field("element", inner))),
        ("_epoch", pa.int64()),
    ]
    return pa.schema(columns)


def held(number: int, epoch: int, **fields: int) -> dict[str, Any]:
    return {"id": number, "spot": fields, "spots": [fields], "_epoch": epoch}


@pytest.mark.parametrize("kind", ["delta", "by key", "parquet", "memory", "iceberg", "iceberg by key"])
def test_a_field_within_comes_last_there_and_is_null_before(place: Place) -> None:
    place.commit(place.open(), 0, 1, at("x"), held(1, 0, x=1))
    with pytest.raises(TableSchemaChanged):
        place.commit(place.open("strict"), 1, 2, at("x", "y"), held(2, 1, x=2, y=2))
    table = place.open("add")
    assert table.lacking(at("x")) == ()
    assert table.lacking(at("y", "x")) == ("spot", "spots")
    place.commit(table, 1, 2, at("y", "x"), held(2, 1, x=2, y=2))
    assert [one.name for one in place.sink.open(OUTPUT).schema.field("spot").type] == ["x", "y"]
    assert place.rows() == [(n, {"x": n, "y": y}, [{"x": n, "y": y}]) for n, y in ((1, None), (2, 2))]
    with pytest.raises(
        ColumnsRefused, match=r"'spot' is struct<x: int64, y: int64> in the table and struct<y: int64>"
    ):
        place.commit(place.open("add"), 2, 3, at("y"), held(3, 2, y=3))
    place.commit(place.open("evolve"), 2, 3, at("z", "y"), held(3, 2, y=3, z=3))
    assert place.rows()[2] == (3, {"x": None, "y": 3, "z": 3}, [{"x": None, "y": 3, "z": 3}])
    other = pa.schema([at("x").field(0), pa.field("spot", pa.struct([("x", pa.string())])), *list(at("x"))[2:]])
    with pytest.raises(ColumnsRefused, match="'spot' is struct"):
        place.open("evolve").lacking(other)
    if hasattr(place.sink, "maintain"):
        upkeep = place.sink.maintain(OUTPUT)
        before = place.rows()
        for pack in upkeep.plan():
            upkeep.commit(pack, upkeep.stage(pack, job="a" * 16 + "f" * 16), write="f" * 32)
        upkeep.end()
        assert place.rows() == before


def test_readers_see_fields_within_and_null_where_files_have_none(tmp_path: Path) -> None:
    path = grown_within(tmp_path)
    for where, kept in (("1 = 1", [1, 2, 3]), ("spot['y'] IS NULL", [1]), ("id > 1", [2, 3])):
        expected = [(n, {1: None, 2: 2, 3: 3}[n]) for n in kept]
        query = f"SELECT id, spot['y'] AS y FROM t WHERE {where} ORDER BY id"
        by_rust = pa.table(QueryBuilder().register("t", DeltaTable(path)).execute(query).read_all())
        assert [tuple(row.values()) for row in by_rust.to_pylist()] == expected
        with duckdb.connect() as connection:
            connection.register("t", DeltaTable(path).to_pyarrow_table())
            assert connection.execute(query).fetchall() == expected
        files = [file.removeprefix("file://") for file in DeltaTable(path).file_uris()]
        with duckdb.connect() as connection:
            connection.execute(f"CREATE VIEW t AS SELECT * FROM read_parquet({files}, union_by_name=true)")
            assert connection.execute(query).fetchall() == expected
    y = pl.col("spot").struct.field("y")
    assert pl.scan_delta(path).select("id", y).sort("id").collect().rows() == [(1, None), (2, 2), (3, 3)]
    assert pl.scan_delta(path).filter(y.is_null()).select("id").collect().rows() == [(1,)]


@pytest.mark.long
def test_spark_sees_fields_within_and_null_where_files_have_none(tmp_path: Path) -> None:
    path = grown_within(tmp_path)
    with delta_spark() as spark:
        assert spark.sql(f"SELECT id, spot.y, spots[0].y FROM delta.`{path}` ORDER BY id") == [
            [1, None, None],
            [2, 2, 2],
            [3, 3, 3],
        ]
        assert spark.sql(f"SELECT id FROM delta.`{path}` WHERE spot.y IS NULL") == [[1]]
        assert spark.sql(f"SELECT id FROM delta.`{path}` WHERE spot.y = 3") == [[3]]


def grown_within(root: Path) -> str:
    """A table with files of structs that have a field, another one as well, and that alone."""
    place = Place(tg.DeltaSink(str(root / "lake")), None)
    place.commit(place.open(), 0, 1, at("x"), held(1, 0, x=1))
    place.commit(place.open("add"), 1, 2, at("y", "x"), held(2, 1, x=2, y=2))
    place.commit(place.open("evolve"), 2, 3, at("y"), held(3, 2, y=3))
    return str(root / "lake")


@pytest.mark.parametrize("kind", ["by key", "postgres by key", "iceberg by key"])
def test_a_row_of_before_that_is_merged_gets_the_new_column_and_its_neighbours_do_not(place: Place) -> None:
    table = begun(place, "add")
    place.commit(table, 1, 2, NEW, {"id": 2, "note": "new", "user": "ben", "_epoch": 1})
    assert place.rows() == [(1, None, "ada"), (2, "new", "ben")]
    without = pa.schema([field for field in NEW if field.name != "user"])
    place.commit(place.open("evolve"), 2, 3, without, {"id": 2, "note": "newer", "_epoch": 2})
    found = {row[0]: row for row in place.rows()}
    assert found[1] == (1, None, "ada")
    assert found[2][:2] == (2, "newer")


@pytest.mark.parametrize("kind", ["delta", "by key", "iceberg", "iceberg by key"])
def test_compaction_of_files_of_before_and_after_keeps_all_rows(place: Place) -> None:
    table = begun(place, "add")
    for epoch in range(1, 8):
        place.commit(table, epoch, epoch + 1, NEW, {"id": 9 + epoch, "note": "n", "user": "u", "_epoch": epoch})
    before = place.rows()
    upkeep = place.sink.maintain(OUTPUT)
    for pack in upkeep.plan():
        assert upkeep.commit(pack, upkeep.stage(pack, job="a" * 16 + "f" * 16), write="f" * 32)
    upkeep.end()
    assert place.rows() == before
    assert len(before) == 9


# -- Delta, beside others and for readers nobody here wrote


@pytest.fixture
def grown(tmp_path: Path) -> tuple[Place, str]:
    """A table with files of before, and after, and local times among what is new."""
    path = str(tmp_path / "lake")
    place = Place(tg.DeltaSink(path), None)
    table = begun(place, "add")
    place.commit(table, 1, 2, NEW, {"id": 3, "note": "new", "user": "cyd", "_epoch": 1})
    more = NEW.append(pa.field("at", pa.timestamp("us"))).append(pa.field("tags", pa.list_(pa.string())))
    place.commit(table, 2, 3, more, {"id": 4, "note": None, "user": "dan", "_epoch": 2, "at": None, "tags": ["x"]})
    return place, path


IDS = [(1, None, None), (2, None, None), (3, "new", None), (4, None, ["x"])]


def by_polars(path: str, where: str) -> Iterable[tuple[Any, ...]]:
    return pl.scan_delta(path).select("id", "note", "tags").filter(pl.sql_expr(where)).collect().rows()


def by_duckdb(path: str, where: str) -> Iterable[tuple[Any, ...]]:
    files = [file.removeprefix("file://") for file in DeltaTable(path).file_uris()]
    with duckdb.connect() as connection:
        found = connection.execute(
            f"SELECT id, note, tags FROM read_parquet({files}, union_by_name=true) WHERE {where}"
        )
        return found.fetchall()


def by_deltalake(path: str, where: str) -> Iterable[tuple[Any, ...]]:
    rows = duckdb.from_arrow(DeltaTable(path).to_pyarrow_table())
    return rows.filter(where).select("id, note, tags").fetchall()


@pytest.mark.parametrize("reader", [by_polars, by_duckdb, by_deltalake])
@pytest.mark.parametrize("where", ["1 = 1", "note = 'new'", "note IS NULL", "id > 2"])
def test_readers_see_the_same_rows_with_and_without_filters(
    grown: tuple[Place, str], reader: Callable[[str, str], Iterable[tuple[Any, ...]]], where: str
) -> None:
    kept = {
        "1 = 1": IDS,
        "note = 'new'": IDS[2:3],
        "note IS NULL": [IDS[0], IDS[1], IDS[3]],
        "id > 2": IDS[2:],
    }[where]
    assert sorted(reader(grown[1], where), key=lambda row: row[0]) == kept


@pytest.mark.long
def test_spark_sees_the_same_rows_and_what_it_alters_is_passed_or_refused(grown: tuple[Place, str]) -> None:
    place, path = grown
    with delta_spark() as spark:
        found = spark.sql(f"SELECT id, note, tags FROM delta.`{path}` ORDER BY id")
        assert [tuple(row) for row in found] == IDS
        assert spark.sql(f"SELECT id FROM delta.`{path}` WHERE note IS NULL ORDER BY id") == [[1], [2], [4]]
        spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (theirs STRING)")
        more = place.open("add").schema
        assert "theirs" in more.names
        rows = pa.schema([field for field in more if field.name != "theirs"])
        with pytest.raises(ColumnsRefused, match="theirs"):
            place.commit(place.open("add"), 3, 4, rows)
        place.commit(place.open("evolve"), 3, 4, rows, {"id": 5, "user": "eve", "_epoch": 3})
        assert spark.sql(f"SELECT user, theirs FROM delta.`{path}` WHERE id = 5") == [["eve", None]]
        spark.sql(
            f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', "
            "'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5')"
        )
        spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN theirs TO ours")
        with pytest.raises(UnsupportedTable, match="column mapping"):
            place.open("evolve").lacking(rows)


def test_a_table_that_is_put_back_to_before_the_change_is_refused(grown: tuple[Place, str]) -> None:
    place, path = grown
    DeltaTable(path).restore(0)
    assert [field.name for field in DeltaTable(path).schema().fields] == ["id", "user", "_epoch"]
    with pytest.raises(TableChangedByOthers):
        place.open("add")


def test_the_entry_that_brings_columns_has_the_upper_and_keeps_what_the_log_says_of_others(
    grown: tuple[Place, str],
) -> None:
    entries = [
        [json.loads(line) for line in file.read_text().splitlines()]
        for file in sorted(Path(grown[1], "_delta_log").glob("*.json"))
    ]
    said = [{next(iter(action)) for action in entry} for entry in entries]
    assert [{"metaData", "txn", "add"} <= names for names in said] == [True, True, True]
    assert [("protocol" in names) for names in said] == [True, False, True], "local times need a feature"
    ids = {next(a["metaData"]["id"] for a in entry if "metaData" in a) for entry in entries}
    assert len(ids) == 1, "it is the same table"
    again = Place(tg.DeltaSink(grown[1]), None)
    schema = again.sink.open(OUTPUT).schema
    again.commit(again.open("add"), 3, 4, schema)
    assert DeltaTable(grown[1]).version() == 3
    assert "metaData" not in Path(grown[1], "_delta_log", f"{3:020d}.json").read_text()


def test_a_rename_by_column_mapping_is_what_readers_refuse_or_read_as_null(tmp_path: Path) -> None:
    """Why no column of a table is renamed (docs/explanation/decisions.md). If it fails, readers have learned it."""
    place, path = Place(tg.DeltaSink(str(tmp_path)), None), str(tmp_path)
    begun(place, "strict")
    head = [json.loads(line) for line in (tmp_path / "_delta_log" / f"{0:020d}.json").read_text().splitlines()]
    said = next(action["metaData"] for action in head if "metaData" in action)
    schema = json.loads(said["schemaString"])
    for number, column in enumerate(schema["fields"], 1):
        physical = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": column["name"]}
        column["metadata"] = physical
    schema["fields"][1]["name"] = "customer"
    mapping = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}
    anew = {**said, "schemaString": json.dumps(schema), "configuration": {**said.get("configuration", {}), **mapping}}
    actions = [{"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, {"metaData": anew}]
    entry = "".join(json.dumps(action) + "\n" for action in actions)
    (tmp_path / "_delta_log" / f"{1:020d}.json").write_text(entry)
    assert DeltaTable(path).to_pyarrow_table()["customer"].to_pylist() == [None, None], "they are ada and bob"
    with pytest.raises(Exception, match="column mapping"):
        pl.scan_delta(path).collect()
    with pytest.raises(UnsupportedTable, match="column mapping"):
        place.open("evolve").lacking(OLD)


@pytest.mark.parametrize("reader", [by_polars, by_duckdb, by_deltalake])
def test_readers_see_null_where_rows_have_a_column_no_more(
    grown: tuple[Place, str], reader: Callable[[str, str], Iterable[tuple[Any, ...]]]
) -> None:
    without_note(grown[0])
    assert sorted(reader(grown[1], "1 = 1"), key=lambda row: row[0]) == [*IDS, (5, None, None)]
    assert [row[0] for row in sorted(reader(grown[1], "note IS NULL"), key=lambda row: row[0])] == [1, 2, 4, 5]


@pytest.mark.long
def test_spark_sees_null_where_rows_have_a_column_no_more(grown: tuple[Place, str]) -> None:
    without_note(grown[0])
    with delta_spark() as spark:
        found = spark.sql(f"SELECT id, note, tags FROM delta.`{grown[1]}` ORDER BY id")
        assert [tuple(row) for row in found] == [*IDS, (5, None, None)]
        assert spark.sql(f"SELECT count(*) FROM delta.`{grown[1]}` WHERE note IS NULL") == [[4]]


def without_note(place: Place) -> None:
    """One more row, of a driver whose rows have neither notes nor tags any more."""
    place.commit(place.open("evolve"), 3, 4, OLD, {"id": 5, "user": "eve", "_epoch": 3})


# -- the others


def test_who_lists_a_parquet_folder_sees_all_columns_by_name(tmp_path: Path) -> None:
    place = Place(tg.ParquetSink(str(tmp_path / "lake")), None)
    place.commit(begun(place, "add"), 1, 2, NEW, {"id": 3, "note": "new", "user": "cyd", "_epoch": 1})
    pattern = str(tmp_path / "lake" / "from_epoch=*" / "*.parquet")
    expected = [(1, None), (2, None), (3, "new")]
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT id, note FROM read_parquet('{pattern}', union_by_name=true)")
        assert sorted(found.fetchall()) == expected
    frame = pl.scan_parquet(
        pattern, hive_partitioning=False, schema=pl.DataFrame(place.sink.open(OUTPUT).schema.empty_table()).schema,
        missing_columns="insert",
    )  # fmt: skip
    assert sorted(frame.select("id", "note").collect().rows()) == expected
    manifest = json.loads((tmp_path / "lake" / "from_epoch=000000000001" / "_manifest.json").read_text())
    assert (manifest["format"], [one["name"] for one in manifest["columns"]]) == (4, ["id", "user", "_epoch", "note"])


def test_a_table_of_yours_on_a_server_that_a_view_uses_keeps_its_types_and_gets_columns(
    postgres: Server, tmp_path: Path
) -> None:
    address = postgres.address(new_database(postgres))
    place = Place(tg.PostgresSink(address, "orders", staging=str(tmp_path)), lambda: seen(address, "orders"))
    begun(place, "strict")
    query(address, 'CREATE VIEW ids AS SELECT id, "user" FROM orders')
    with pytest.raises(Exception, match=r"view|rule"):
        place.commit(place.open("evolve"), 1, 2, WIDE, {"id": 2**40, "user": "cyd", "_epoch": 1})
    place.commit(place.open("evolve"), 1, 2, NEW, {"id": 3, "note": 'a"b', "user": "cyd", "_epoch": 1})
    assert place.rows() == [(1, None, "ada"), (2, None, "bob"), (3, 'a"b', "cyd")]
    hostile = NEW.append(pa.field('x";--', pa.string()))
    with pytest.raises(Exception, match="holds"):
        place.commit(place.open("evolve"), 2, 3, hostile)
    assert ServerTableUnfit.code
