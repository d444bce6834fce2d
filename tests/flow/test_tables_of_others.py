"""What others do to a Delta table of a flow: it passes unharmed, or it is said and nothing is read or written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.sinks.spark_delta import DeltaSpark, delta_spark

import tidegauge as tg
from tidegauge.errors.sinks import TableChangedByOthers, TableSchemaChanged
from tidegauge.sinks.delta import checkpoints as deltacheckpoints
from tidegauge.sinks.delta.log import DeltaLog


class Shop:
    """A flow over a file that grows, and its table."""

    def __init__(self, folder: Path) -> None:
        self.landing, self.lake, self.lines = folder / "orders.jsonl", str(folder / "lake"), 0
        self.flow = tg.Dataflow("shop", store=f"sqlite:///{folder}/store.db")
        orders = self.flow.source("orders", tg.FileSource(str(self.landing), format=tg.Json("n long, user string")))
        self.flow.sink("orders", orders, tg.DeltaSink(self.lake))

    def run(self) -> None:
        """Bring one more record, as an epoch of its own."""
        with self.landing.open("a") as file:
            file.write(f'{{"n": {self.lines}, "user": "ada"}}\n')
        self.lines += 1
        self.flow.run(engine="local", until="caught-up")

    def read(self) -> list[int]:
        return sorted(tg.read_arrow(self.flow, "orders")["n"].to_pylist())

    def table(self) -> DeltaTable:
        return DeltaTable(self.lake)

    def rows(self, *numbers: int) -> Any:
        columns = {"n": list(numbers), "user": ["eve"] * len(numbers), "_epoch": [0] * len(numbers)}
        return pa.table(columns, schema=pa.schema([("n", pa.int64()), ("user", pa.string()), ("_epoch", pa.int64())]))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    for _ in range(3):
        made.run()
    return made


def timed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """With a time that has no zone, which a Delta table must be able to have."""
    at = [datetime(2026, 11, 24, 0, 0, n) for n in batch["n"].to_pylist()]  # noqa: DTZ001
    return batch.append_column("at", pa.array(at, pa.timestamp("us")))


HARMLESS: dict[str, Callable[[Shop], object]] = {
    "optimize": lambda shop: shop.table().optimize.compact(),
    "z-order": lambda shop: shop.table().optimize.z_order(["n"]),
    "vacuum": lambda shop: shop.table().vacuum(
        retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True
    ),
    "properties": lambda shop: shop.table().alter.set_table_properties({"delta.appendOnly": "true"}),
    "checkpoint": lambda shop: shop.table().create_checkpoint(),
}


@pytest.mark.parametrize("what", HARMLESS)
def test_what_changes_no_rows_passes_unharmed(shop: Shop, what: str) -> None:
    HARMLESS[what](shop)
    assert shop.read() == [0, 1, 2]
    shop.run()
    HARMLESS[what](shop)
    assert shop.read() == [0, 1, 2, 3]
    [output] = tg.status(shop.flow).outputs
    assert (output.state, output.rows, output.error) == ("live", 4, None)


def test_rows_that_somebody_deletes_stay_deleted(shop: Shop) -> None:
    shop.table().delete("n = 1")
    assert shop.read() == [0, 2]
    shop.run()
    assert shop.read() == [0, 2, 3]


HARMFUL: dict[str, tuple[str, Callable[[Shop], object]]] = {
    "restore": ("1 of its files was taken away (RESTORE, version 3)", lambda shop: shop.table().restore(1)),
    "append": (
        "1 file holds rows of another writer (WRITE, version 3)",
        lambda shop: write_deltalake(shop.lake, shop.rows(9), mode="append"),
    ),
    "overwrite": (
        "3 of its files were taken away (WRITE, version 3), and 1 file holds rows of another",
        lambda shop: write_deltalake(shop.lake, shop.rows(0, 1, 2), mode="overwrite"),
    ),
    "partitioned": (
        "3 of its files were taken away",
        lambda shop: write_deltalake(
            shop.lake, shop.rows(0, 1, 2), mode="overwrite", partition_by=["user"], schema_mode="overwrite"
        ),
    ),
    "update": (
        "1 of its files was taken away",
        lambda shop: shop.table().update(updates={"user": "'eve'"}, predicate="n = 1"),
    ),
}


@pytest.mark.parametrize("what", HARMFUL)
def test_what_changes_rows_is_said_and_nothing_is_read_or_written_until_it_is_taken_back(
    shop: Shop, what: str
) -> None:
    said, do = HARMFUL[what]
    before = shop.table().version()
    do(shop)
    after = shop.table().version()
    [output] = tg.status(shop.flow).outputs
    assert output.state == "failed"
    assert isinstance(output.error, TableChangedByOthers)
    assert said in str(output.error)
    with pytest.raises(TableChangedByOthers):
        shop.read()
    with pytest.raises(TableChangedByOthers):
        shop.run()
    assert shop.table().version() == after
    shop.table().restore(before)
    assert shop.read() == [0, 1, 2]
    shop.flow.run(engine="local", until="caught-up")
    assert shop.read() == [0, 1, 2, 3]
    assert tg.status(shop.flow).outputs[0].state == "live"


def test_a_run_ends_after_the_checkpoint_that_it_began(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    create, end, ending = DeltaTable.create_checkpoint, DeltaLog.end, Event()

    def slow(table: DeltaTable) -> None:
        assert ending.wait(60)
        create(table)

    def ended(table: DeltaLog) -> None:
        ending.set()
        end(table)

    monkeypatch.setattr(deltacheckpoints, "_LEAST", 3)
    monkeypatch.setattr(DeltaTable, "create_checkpoint", slow)
    monkeypatch.setattr(DeltaLog, "end", ended)
    shop.run()
    assert [path.name[:20] for path in Path(shop.lake, "_delta_log").glob("*.checkpoint.parquet")] == [f"{3:020d}"]
    assert tg.status(shop.flow).outputs[0].rows == 4


def test_what_others_append_beside_a_running_driver_is_found_by_its_next_commit(shop: Shop) -> None:
    refused = pytest.raises(TableChangedByOthers, match="WRITE, version 3")
    with refused, shop.flow.start(engine="local") as run:
        write_deltalake(shop.lake, shop.rows(9), mode="append")
        with shop.landing.open("a") as file:
            file.write('{"n": 3, "user": "ada"}\n')
        run.wait(60)
    assert shop.table().version() == 3
    assert tg.repair(shop.flow, "orders", remove_foreign=True, engine="local").epochs == ()
    shop.flow.run(engine="local", until="caught-up")
    assert shop.read() == [0, 1, 2, 3]


@pytest.fixture(scope="module")
def spark() -> Iterator[DeltaSpark]:
    with delta_spark() as started:
        yield started


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_spark_reads_what_we_commit_and_what_it_does_is_judged_alike(shop: Shop, spark: DeltaSpark) -> None:
    table = f"delta.`{shop.lake}`"

    def seen() -> list[int]:
        return [row[0] for row in spark.sql(f"select n from {table} order by n")]

    assert seen() == shop.read() == [0, 1, 2]
    for harmless in (f"optimize {table}", f"delete from {table} where n = 1"):
        spark.sql(harmless)
        shop.run()
        assert seen() == shop.read()
    good = shop.table().version()
    spark.sql(f"insert into {table} values (9, 'eve', 0)")
    with pytest.raises(TableChangedByOthers):
        shop.read()
    shop.table().restore(good)
    shop.run()
    assert seen() == shop.read() == [0, 2, 3, 4, 5]


CHANGED_BY_SPARK = {
    "restore": ["restore table {table} to version as of 1"],
    "overwrite": ["insert overwrite {table} values (0, 'eve', 0), (7, 'eve', 7)"],
    "optimize, then update": ["optimize {table}", "update {table} set user = 'eve' where n = 1"],
    "delete, then restore": ["delete from {table} where n = 0", "restore table {table} to version as of 0"],
    "update with deletion vectors": [
        "alter table {table} set tblproperties ('delta.enableDeletionVectors' = 'true')",
        "optimize {table}",
        "update {table} set user = 'eve' where n = 1",
    ],
    "update with deletion vectors, then purge": [
        "optimize {table}",
        "alter table {table} set tblproperties ('delta.enableDeletionVectors' = 'true')",
        "update {table} set user = 'eve' where n = 1",
        "reorg table {table} apply (purge)",
    ],
}


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_what_spark_changes_is_said_and_repaired(shop: Shop, spark: DeltaSpark) -> None:
    table = f"delta.`{shop.lake}`"

    def seen() -> list[list[Any]]:
        return spark.sql(f"select n, user, _epoch from {table} order by n")

    whole = seen()
    for what, statements in CHANGED_BY_SPARK.items():
        for statement in statements:
            spark.sql(statement.format(table=table))
        with pytest.raises(TableChangedByOthers):
            shop.read()
        assert seen() != whole, what
        tg.repair(shop.flow, "orders", remove_foreign=True, engine="local")
        assert seen() == whole, what
        assert shop.read() == [0, 1, 2], what
    shop.run()
    assert shop.read() == [row[0] for row in seen()] == [0, 1, 2, 3]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_spark_reads_the_old_rows_until_they_are_replaced_by_others_of_other_columns(
    shop: Shop, spark: DeltaSpark, tmp_path: Path
) -> None:
    """It compacts the old ones just before the commit, and reads them by their version after it."""
    flow = tg.Dataflow("shop", store=shop.flow.store)
    orders = flow.source("orders", tg.FileSource(str(shop.landing), format=tg.Json("n long, user string")))
    flow.sink("orders", orders.map_batches(timed), tg.DeltaSink(shop.lake))
    table = f"delta.`{shop.lake}`"
    old, seen = spark.sql(f"select n, user, _epoch from {table} order by n"), list[list[list[Any]]]()

    def strike(point: str) -> None:
        if point == "before commit output":
            seen.append(spark.sql(f"select * from {table} order by n"))
            spark.sql(f"optimize {table}")

    tg.replace(flow, "orders")
    flow.run(engine="local", until="caught-up", env=tg.Env(point=strike))
    assert seen == [old]
    assert old == [[n, "ada", n] for n in range(3)]
    new = [[n, "ada", f"2026-11-24 00:00:0{n}", n] for n in range(3)]
    assert spark.sql(f"select n, user, at, _epoch from {table} order by n") == new
    assert shop.read() == [0, 1, 2]
    optimized = shop.table().version() - 1
    assert spark.sql(f"select * from {table} version as of {optimized} order by n") == old
    spark.sql(f"optimize {table}")
    shop.flow = flow
    shop.run()
    assert [row[0] for row in spark.sql(f"select n from {table} order by n")] == shop.read() == [0, 1, 2, 3]
    last = shop.table().version()
    spark.sql(f"restore table {table} to version as of {optimized}")
    with pytest.raises(TableChangedByOthers):
        shop.read()
    with pytest.raises(TableSchemaChanged):  # the columns went back, too
        tg.repair(flow, "orders", engine="local", remove_foreign=True)
    spark.sql(f"restore table {table} to version as of {last}")
    assert spark.sql(f"select n, user, at, _epoch from {table} where n < 3 order by n") == new
    assert [row[0] for row in spark.sql(f"select n from {table} order by n")] == shop.read() == [0, 1, 2, 3]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_spark_vacuums_a_table_and_takes_nothing_that_is_ours(shop: Shop, spark: DeltaSpark) -> None:
    table, ours = f"delta.`{shop.lake}`", Path(shop.lake, "_tidegauge")
    shop.table().restore(1)
    tg.repair(shop.flow, "orders", from_epoch=0, engine="local")
    ours.mkdir(exist_ok=True)
    (ours / "commit-000000000000-000000000003-0.jsonl").write_text("")
    spark.sql(f"optimize {table}")
    shop.run()
    live = set(shop.table().file_uris())
    before = {path.name for path in ours.iterdir()}
    Path(shop.lake, "part-stray.parquet").write_bytes(b"PAR1")
    spark.sql(f"vacuum {table} retain 0 hours")
    assert {path.name for path in ours.iterdir()} == before
    there = {str(path) for path in Path(shop.lake).glob("*.parquet")}
    assert there == live  # and what was taken out, staged in vain or rewritten is gone
    assert shop.read() == [0, 1, 2, 3]
    assert tg.verify(shop.flow).problems == ()
    shop.run()
    assert shop.read() == [0, 1, 2, 3, 4]
