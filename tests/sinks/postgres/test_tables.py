"""Which tables a sink takes, what it refuses, and what becomes of tables that others change."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.postgres import Server, new_database
from tests.sinks.postgres.conftest import OUTPUT, SCHEMA, ServerBench, dumped, write_id
from tests.sinks.postgres.test_values import VALUES

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


def test_changes_are_merged_into_a_partitioned_table_too(made: Made) -> None:
    bench = made(envelope="upsert", key="user")
    columns = '_epoch bigint, amount float8, "user" text'
    bench.query(f'CREATE TABLE orders ({columns}, PRIMARY KEY ("user")) PARTITION BY LIST ("user")')
    bench.query("CREATE TABLE ada PARTITION OF orders FOR VALUES IN ('ada')")
    bench.query("CREATE TABLE rest PARTITION OF orders DEFAULT")
    table = bench.open()
    for epoch, users in enumerate((["ada", "bob"], ["bob", "eve"], ["ada"])):
        rows = [{"user": user, "amount": 1.5, "_epoch": epoch} for user in users]
        table.commit(epoch, epoch + 1, SCHEMA, bench.stage(rows), write=write_id())
    assert sorted((row["user"], row["_epoch"]) for row in bench.rows()) == [("ada", 2), ("bob", 1), ("eve", 1)]
    assert (table.volume().rows, bench.query("SELECT _epoch FROM ada")) == (3, [(2,)])


def test_a_key_that_a_partitioned_table_does_not_keep_unique_is_refused(made: Made) -> None:
    bench = made(envelope="upsert", key="user")
    columns = '_epoch bigint, amount float8, "user" text'
    bench.query(f'CREATE TABLE orders ({columns}, UNIQUE ("user", _epoch)) PARTITION BY RANGE (_epoch)')
    bench.query("CREATE TABLE rest PARTITION OF orders DEFAULT")
    with pytest.raises(ServerTableUnfit, match="no primary key or unique index of exactly user"):
        bench.commit(bench.open(), 0, 1)
    assert bench.rows() == []


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
    bench.query("CREATE TABLE orders AS SELECT 1::bigint AS _epoch, 1.5::float8 AS amount, text 'x' AS \"user\"")
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
    with pytest.raises(PostgresRefused, match=r"epochs 2 to 3.*violates check constraint") as caught:
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


MADE = 'CREATE TABLE orders (_epoch bigint, amount float8, "user" text PRIMARY KEY)'
WAYS: dict[str, Callable[[ServerBench], Callable[[], object]]] = {
    "set": lambda bench: lambda: bench.query("UPDATE tidegauge.progress SET upper = 2"),
    "restored": lambda bench: bench.restored("--data-only", "--table=tidegauge.progress"),
    "whole schema": lambda bench: bench.restored("--data-only", "--schema=tidegauge"),
}


SOON = {("set", "append", True), ("restored", "append", False), ("set", "upsert", False)}


@pytest.mark.parametrize(
    ("way", "envelope", "indexed"),
    [
        pytest.param(*case, marks=() if case in SOON else pytest.mark.long)
        for case in itertools.product(WAYS, ["append", "upsert"], [True, False])
    ],
)
def test_progress_that_goes_back_is_refused_before_a_row_is_written_twice(
    made: Made, way: str, envelope: str, indexed: bool
) -> None:
    bench = made(**({"envelope": envelope, "key": "user"} if envelope == "upsert" else {}))
    if not indexed:
        bench.query(MADE if envelope == "upsert" else MADE.replace("PRIMARY KEY", ""))
    table = bench.open()
    for epoch in range(4):
        if epoch == 2:
            goes_back = WAYS[way](bench)
        bench.commit(table, epoch, epoch + 1, f"user {epoch}")
    before = bench.rows()
    goes_back()
    for attempt in (bench.open, lambda: bench.commit(table, 2, 3), lambda: bench.commit(table, 4, 5), bench.open):
        with pytest.raises(ProgressApart, match=r"epoch 3, .*ends before 2"):
            attempt()
    assert bench.rows() == before
    bench.query("DELETE FROM orders WHERE _epoch >= 2")
    table = bench.open()
    assert table.upper == 2
    for epoch in (2, 3):
        bench.commit(table, epoch, epoch + 1, f"user {epoch}")
    assert sorted(map(str, bench.rows())) == sorted(map(str, before))


def test_rows_that_others_add_to_epochs_to_come_are_refused(bench: ServerBench) -> None:
    table = bench.open()
    bench.commit(table, 0, 2)
    bench.query('INSERT INTO orders SELECT "user", amount, 2 FROM orders WHERE _epoch = 0')
    for attempt in (bench.open, lambda: bench.commit(table, 2, 3)):
        with pytest.raises(ProgressApart, match=r"epoch 2, .*ends before 2"):
            attempt()
    bench.query("DELETE FROM orders WHERE _epoch = 2")
    bench.commit(table, 2, 3)
    assert bench.epochs() == [0, 1, 2]


@pytest.mark.parametrize("indexed", [True, False])
def test_no_commit_reads_the_table(bench: ServerBench, indexed: bool) -> None:
    if not indexed:
        bench.query('CREATE TABLE orders (_epoch bigint, amount float8, "user" text)')
    bench.commit(bench.open(), 0, 1)
    for epoch in range(1, 6):
        bench.commit(bench.open(), epoch, epoch + 1)
    # The server counts later than it scans: what it says may be of the first commit, which made sure.
    [[scans]] = bench.query("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'orders'")
    assert scans <= 2


def test_a_look_beside_a_commit_sees_the_upper_and_the_rows_of_one_instant(bench: ServerBench) -> None:
    bench.commit(bench.open(), 0, 1)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(bench.address) as committing:
        committing.execute("LOCK TABLE orders")
        look = pool.submit(bench.open)  # it sees the upper, and waits for the table
        while not look.done() and not bench.query("SELECT 1 FROM pg_locks WHERE NOT granted"):
            pass
        committing.execute("INSERT INTO orders (\"user\", amount, _epoch) VALUES ('eva', 2, 1)")
        committing.execute("UPDATE tidegauge.progress SET upper = 2, xid = pg_current_xact_id()::text::bigint")
        committing.commit()
        assert look.result().upper == 1
    assert bench.open().upper == 2


def test_an_upper_ahead_of_the_rows_is_believed(bench: ServerBench) -> None:
    table = bench.open()
    bench.commit(table, 0, 2)
    bench.query("UPDATE tidegauge.progress SET upper = 5")
    table = bench.open()
    bench.commit(table, 5, 6)
    assert bench.epochs() == [0, 1, 5], "epochs without rows look alike"


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


def test_the_first_commits_of_several_outputs_may_come_at_once(bench: ServerBench) -> None:
    outputs = [dataclasses.replace(OUTPUT, output=f"o{at}") for at in range(6)]
    sinks = [dataclasses.replace(bench.sink, table=output.output) for output in outputs]
    tables = [sink.open(output) for sink, output in zip(sinks, outputs, strict=True)]
    with ThreadPoolExecutor(len(tables)) as pool:
        list(pool.map(lambda table: table.commit(0, 1, SCHEMA, [], write=write_id()), tables))
    assert bench.query("SELECT upper FROM tidegauge.progress") == [(1,)] * len(tables)


def test_another_key_or_envelope_than_the_table_was_written_with_is_refused(made: Made) -> None:
    bench = made()
    bench.commit(bench.open(), 0, 1)
    bench.sink = dataclasses.replace(bench.sink, envelope="upsert", key="user")
    with pytest.raises(TableKeptOtherwise, match=r"keeps all rows, .* keep one row for each user there"):
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
    with pytest.raises(OutputIsNoTable, match=r"the PostgreSQL table public.orders"):
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


def test_the_columns_of_a_table_come_back_and_are_no_change_for_the_next_commit(made: Made) -> None:
    kinds = [*VALUES, pa.decimal128(9, 2)]
    schema = pa.schema([*((f"c{at}", kind) for at, kind in enumerate(kinds)), ("_epoch", pa.int64())])
    bench = made(schema=schema)
    for epoch in range(3):
        bench.open().commit(epoch, epoch + 1, schema, bench.stage([{"_epoch": epoch}]), write=write_id())
    told = bench.open().schema
    wider = pa.schema([field.with_type(pa.int16()) if field.type == pa.int8() else field for field in schema])
    assert told == wider, "there is no smaller integer than smallint"
    bench.open().commit(3, 4, told, bench.stage([{"_epoch": 3}]), write=write_id())
    assert bench.epochs() == [0, 1, 2, 3]


def test_a_server_that_is_not_there_is_waited_for() -> None:
    with pytest.raises(PostgresAway):
        PostgresSink("postgresql://127.0.0.1:1/shop", "orders").open(OUTPUT)
