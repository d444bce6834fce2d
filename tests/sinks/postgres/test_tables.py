"""Which tables a sink takes, what it refuses, and what becomes of tables that others change."""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.postgres import Server
from tests.sinks.postgres.conftest import OUTPUT, SCHEMA, ServerBench, new_database, write_id

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.history import DamagedHistory, HistoriesDiffer
from tidegauge.errors.postgressink import (
    InvalidPostgresUrl,
    PostgresAway,
    PostgresRefused,
    ProgressApart,
    ServerTableUnfit,
    TableKeptOtherwise,
)
from tidegauge.errors.secrets import SecretInClear
from tidegauge.errors.sinks import (
    ForeignTable,
    OutputIsNoTable,
    StagedFileMissing,
    TableOfAnotherIncarnation,
    TableSchemaChanged,
    TableUpperMismatch,
)
from tidegauge.sinks import PostgresSink
from tidegauge.testing.kit.place import digests, history

Made = Callable[..., ServerBench]


def test_a_table_that_the_user_made_is_used_as_it_is(bench: ServerBench) -> None:
    bench.query('CREATE TABLE orders (_epoch bigint, amount double precision, "user" varchar NOT NULL)')
    bench.query('CREATE INDEX by_user ON orders ("user")')
    bench.commit(bench.open(), 0, 2)
    assert bench.epochs() == [0, 1]
    assert bench.query("SELECT count(*) FROM pg_indexes WHERE tablename = 'orders'") == [(1,)]


def test_a_partitioned_table_is_used_too(bench: ServerBench) -> None:
    bench.query(
        'CREATE TABLE orders (_epoch bigint, amount float8, "user" text) PARTITION BY RANGE (_epoch);'
        "CREATE TABLE low PARTITION OF orders FOR VALUES FROM (0) TO (1);"
        "CREATE TABLE rest PARTITION OF orders DEFAULT"
    )
    bench.commit(bench.open(), 0, 3)
    assert (bench.epochs(), bench.query("SELECT count(*) FROM low")) == ([0, 1, 2], [(1,)])


@pytest.mark.parametrize(
    ("columns", "error", "said"),
    [
        ('"user" text, amout float8, _epoch bigint', TableSchemaChanged, "the nearest is 'amout'"),
        ('"user" text, amount float8, _epoch bigint, more int', TableSchemaChanged, "no column 'more'"),
        ('"user" jsonb, amount float8, _epoch bigint', TableSchemaChanged, "jsonb in the table and text in the rows"),
        ('"user" varchar(9), amount float8, _epoch bigint', TableSchemaChanged, "character varying"),
        (
            '"user" text, amount float8, _epoch bigint GENERATED ALWAYS AS IDENTITY',
            ServerTableUnfit,
            "fills its column '_epoch'",
        ),
    ],
)
def test_a_table_with_other_columns_is_refused_and_nothing_is_made(
    bench: ServerBench, columns: str, error: Any, said: str
) -> None:
    bench.query(f"CREATE TABLE orders ({columns})")
    with pytest.raises(error, match=said):
        bench.commit(bench.open(), 0, 1)
    assert bench.query("SELECT to_regnamespace('tidegauge')") == [(None,)]
    assert bench.rows() == []


def test_a_table_with_rows_of_others_a_view_and_a_schema_that_is_not_there_are_refused(bench: ServerBench) -> None:
    bench.query('CREATE TABLE orders AS SELECT 1::bigint AS _epoch, 1.5::float8 AS amount, text \'x\' AS "user"')
    with pytest.raises(ForeignTable, match="no commit of an output"):
        bench.open()
    bench.query("ALTER TABLE orders RENAME TO others; CREATE VIEW orders AS SELECT * FROM others")
    with pytest.raises(ForeignTable, match="another relation"):
        bench.open()
    bench.sink = dataclasses.replace(bench.sink, table="shop.orders")
    with pytest.raises(ServerTableUnfit, match="no schema 'shop'"):
        bench.commit(bench.open(), 0, 1)
    bench.query("CREATE SCHEMA shop")
    bench.commit(bench.open(), 0, 1)
    assert bench.epochs() == [0]


def test_what_the_table_does_not_let_in_fails_the_output_and_changes_nothing(bench: ServerBench) -> None:
    bench.query('CREATE TABLE orders (_epoch bigint CHECK (_epoch <> 2), amount float8, "user" text)')
    table = bench.open()
    bench.commit(table, 0, 2)
    with pytest.raises(PostgresRefused, match="epochs 2 to 3.*violates check constraint") as caught:
        bench.commit(table, 2, 4)
    assert caught.value.evidence["output"] == "shop:orders"
    assert (bench.epochs(), bench.open().upper) == ([0, 1], 2)


def test_rows_that_others_delete_stay_away_and_the_table_goes_on(bench: ServerBench) -> None:
    table = bench.open()
    bench.commit(table, 0, 3)
    bench.query("DELETE FROM orders WHERE _epoch = 1")
    bench.commit(table, 3, 4)
    bench.query("TRUNCATE orders")
    bench.commit(table, 4, 5)
    bench.query("VACUUM FULL orders")
    bench.commit(bench.open(), 5, 6)
    assert bench.epochs() == [4, 5]


def test_a_table_that_is_dropped_or_made_anew_holds_nothing(bench: ServerBench) -> None:
    table = bench.open()
    bench.commit(table, 0, 3)
    bench.query("CREATE TABLE copy AS SELECT * FROM orders; DROP TABLE orders")
    assert bench.open().upper == 0
    with pytest.raises(TableUpperMismatch):
        bench.commit(table, 3, 4)
    bench.query("ALTER TABLE copy RENAME TO orders")
    with pytest.raises(ForeignTable):
        bench.open()
    bench.query("TRUNCATE orders")
    table = bench.open()
    assert (table.upper, table.links()) == (0, [])
    bench.commit(table, 0, 1)
    assert bench.epochs() == [0]


def dumped(server: Server, database: str, *options: str) -> Callable[[str], None]:
    """Dump a database, and return what restores it into another one."""
    import subprocess

    place = server.folder / f"{database}.dump"
    dump = [str(server.programs / "pg_dump"), *options, "-d", server.address(database)]
    place.write_bytes(subprocess.run(dump, check=True, capture_output=True).stdout)

    def restore(into: str) -> None:
        psql = [str(server.programs / "psql"), "-q", "-v", "ON_ERROR_STOP=1", "-f", str(place), server.address(into)]
        subprocess.run(psql, check=True, capture_output=True)

    return restore


def test_a_database_that_is_restored_from_a_dump_goes_on_from_there(bench: ServerBench) -> None:
    table = bench.open()
    table.commit(0, 2, SCHEMA, bench.stage([{"user": "ada", "_epoch": 1}]), write=write_id(), history=history(0, 2))
    restore = dumped(bench.server, bench.database)
    table.commit(2, 3, SCHEMA, [], write=write_id(), history=history(2, 3))
    older = new_database(bench.server)
    restore(older)
    again = ServerBench(bench.folder, bench.server, database=older)
    table = again.open()
    assert (table.upper, table.digest) == (2, digests(2)[2])
    assert [link.epoch for link in table.links()] == [0, 1]
    other = history(2, 3, before="f" * 32)
    with pytest.raises(HistoriesDiffer):
        table.commit(2, 3, SCHEMA, [], write=write_id(), history=other)
    again.commit(table, 2, 4)
    assert (again.epochs(), again.open().upper) == ([1, 2, 3], 4)
    again.query("DROP TABLE orders; CREATE TABLE orders (_epoch bigint)")
    assert again.open().upper == 0, "its number is known again"


def test_a_progress_table_that_is_restored_alone_is_refused(bench: ServerBench) -> None:
    table = bench.open()
    bench.commit(table, 0, 2)
    restore = dumped(bench.server, bench.database, "--clean", "--schema=tidegauge")
    bench.commit(table, 2, 4)
    restore(bench.database)
    with pytest.raises(ProgressApart, match=r"epoch [23].*ends before 2"):
        bench.open()
    with pytest.raises(ProgressApart):
        bench.commit(table, 4, 5)
    bench.query("DELETE FROM orders WHERE _epoch >= 2")
    table = bench.open()
    bench.commit(table, 2, 4)
    assert bench.epochs() == [0, 1, 2, 3]


def test_a_table_that_is_restored_alone_is_refused(bench: ServerBench) -> None:
    table = bench.open()
    bench.commit(table, 0, 2)
    restore = dumped(bench.server, bench.database, "--clean", "--table=orders")
    bench.commit(table, 2, 4)
    restore(bench.database)
    with pytest.raises(ForeignTable):
        bench.commit(table, 4, 5)
    assert bench.epochs() == [0, 1]


def test_another_key_or_envelope_than_the_table_was_written_with_is_refused(made: Made) -> None:
    bench = made()
    bench.commit(bench.open(), 0, 1)
    bench.sink = dataclasses.replace(bench.sink, envelope="upsert", key="user")
    with pytest.raises(TableKeptOtherwise, match="keeps all rows, .* keep one row for each user there"):
        bench.commit(bench.open(), 1, 2)
    assert bench.epochs() == [0]


def test_each_output_has_its_table_and_an_older_life_is_told(bench: ServerBench) -> None:
    bench.commit(bench.open(), 0, 1)
    with pytest.raises(ForeignTable, match="belongs to the output 'shop:orders'"):
        bench.open(dataclasses.replace(OUTPUT, output="clicks"))
    with pytest.raises(TableOfAnotherIncarnation):
        bench.open(dataclasses.replace(OUTPUT, incarnation="b" * 32))
    assert bench.sink.incarnation("shop", "orders") == OUTPUT.incarnation
    assert bench.sink.incarnation("shop", "clicks") is None


def test_what_it_tells_of_a_table(bench: ServerBench) -> None:
    table = bench.open()
    bench.commit(table, 0, 2)
    bench.commit(table, 2, 3)
    [file] = table.files()
    assert (file.path, file.rows, file.first_epoch, file.last_epoch) == ("public.orders", 3, 0, 2)
    with pytest.raises(OutputIsNoTable, match="the PostgreSQL table public.orders"):
        table.uris([file])
    bench.query("UPDATE tidegauge.links SET lines = '{}'")
    bench.query("INSERT INTO tidegauge.links VALUES ('public', 'orders', 9, '{}')")
    with pytest.raises(DamagedHistory):
        bench.open().links()


def test_a_staged_file_that_is_gone_or_cut_is_told_from_trouble_of_the_server(bench: ServerBench) -> None:
    table = bench.open()
    [gone], [cut] = (bench.stage([{"user": "ada", "_epoch": 0}]) for _ in range(2))
    [folder] = (bench.folder / "staging").iterdir()
    Path(folder, gone.path).unlink()
    Path(folder, cut.path).write_bytes(b"x" * cut.bytes)
    for file in (gone, cut):
        with pytest.raises(StagedFileMissing):
            table.commit(0, 1, SCHEMA, [file], write=write_id())
    assert bench.rows() == []


def test_no_password_is_in_a_sink_or_in_an_error(
    bench: ServerBench, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for dsn in ("postgresql://ada:hunter2@db/shop", "postgresql://db/shop?password=hunter2&user=ada"):
        with pytest.raises(SecretInClear) as caught:
            PostgresSink(dsn, "orders")
        assert "hunter2" not in f"{caught.value} {caught.value.evidence}"
    with pytest.raises(SecretInClear):
        PostgresSink("postgresql://ada@db/shop", "orders", password="hunter2")
    monkeypatch.setenv("SHOP_PASSWORD", "hunter2")
    sink = PostgresSink(postgres.address("shop", user="ada"), "secret", password="env:SHOP_PASSWORD")
    table = sink.open(OUTPUT)
    table.commit(0, 1, SCHEMA, [], write=write_id())
    assert sink.open(OUTPUT).upper == 1
    assert b"hunter2" not in pickle.dumps(sink) + json.dumps(sink.describe()).encode() + repr(sink).encode()
    monkeypatch.setenv("SHOP_PASSWORD", "hunter3")
    with pytest.raises(PostgresAway, match="password authentication failed") as away:
        sink.open(OUTPUT)
    assert "hunter3" not in f"{away.value}"


@pytest.mark.parametrize(
    ("dsn", "table", "options", "error"),
    [
        ("mysql://db/shop", "orders", {}, InvalidPostgresUrl),
        ("sqlite:////shop.db", "orders", {}, InvalidPostgresUrl),
        ("postgresql://db", "orders", {}, InvalidPostgresUrl),
        ("postgresql://db/shop?colour=red", "orders", {}, InvalidPostgresUrl),
        ("postgresql://db/shop", "", {}, InvalidArgument),
        ("postgresql://db/shop", "a.b.c", {}, InvalidArgument),
        ("postgresql://db/shop", "é" * 32, {}, InvalidArgument),
        ("postgresql://db/shop", "tidegauge.progress", {}, InvalidArgument),
        ("postgresql://db/shop", "pg_catalog.pg_class", {}, InvalidArgument),
        ("postgresql://db/shop", "orders", {"envelope": "upsert"}, InvalidArgument),
        ("postgresql://db/shop", "orders", {"key": "id"}, InvalidArgument),
        ("postgresql://db/shop", "orders", {"envelope": "upsert", "key": ["a", "a"]}, InvalidArgument),
        ("postgresql://db/shop", "orders", {"envelope": "merge", "key": "a"}, InvalidArgument),
    ],
)
def test_what_cannot_be_a_sink_is_refused(dsn: str, table: str, options: Any, error: Any) -> None:
    with pytest.raises(error):
        PostgresSink(dsn, table, **options)


def test_the_columns_of_a_table_come_back(made: Made) -> None:
    schema = pa.schema([("n", pa.decimal128(9, 2)), ("at", pa.timestamp("us", tz="UTC")), ("_epoch", pa.int64())])
    bench = made(schema=schema)
    bench.open().commit(0, 1, schema, [], write=write_id())
    assert bench.open().schema == schema


def test_a_server_that_is_not_there_is_waited_for() -> None:
    with pytest.raises(PostgresAway):
        PostgresSink("postgresql://127.0.0.1:1/shop", "orders").open(OUTPUT)
