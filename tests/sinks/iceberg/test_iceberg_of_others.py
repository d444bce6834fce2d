"""What others do to a table of Iceberg with tools of their own is passed unharmed, or named and refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from tests.sinks.iceberg.conftest import NAME, OUTPUT, SCHEMA, IcebergBench

from tidegauge.errors.iceberg import (
    IcebergTableChanged,
    IcebergTableDamaged,
    IcebergTableElsewhere,
)
from tidegauge.errors.layout import PartitionedOtherwise
from tidegauge.errors.sinks import ForeignTable, TableSchemaChanged, TableUpperMismatch
from tidegauge.remap.history import NO_HISTORY


def long_but(*soon: Callable[..., None]) -> Callable[[Any], Any]:
    """Mark all cases for `make long` but these."""

    def marked(case: Any) -> Any:
        parts = case if isinstance(case, tuple) else (case,)
        return case if parts[0] in soon else pytest.param(*parts, marks=pytest.mark.long)

    return marked


THEIRS = pa.table({"user": ["eve"], "amount": [9.0], "_epoch": [1]}, schema=SCHEMA)


def delete_an_epoch(bench: IcebergBench) -> None:
    bench.table.delete("_epoch = 1")


def set_properties(bench: IcebergBench) -> None:
    with bench.table.transaction() as change:
        change.set_properties({"owner": "ada", "write.parquet.compression-codec": "gzip"})


def tag(bench: IcebergBench) -> None:
    table = bench.table
    with table.manage_snapshots() as change:
        change.create_tag(table.current_snapshot().snapshot_id, "month-end")


def expire(bench: IcebergBench) -> None:
    table = bench.table
    ids = [one.snapshot_id for one in table.snapshots()][:-1]
    table.maintenance.expire_snapshots().by_ids(ids).commit()


def delete_and_expire(bench: IcebergBench) -> None:
    delete_an_epoch(bench)
    expire(bench)


def comment(bench: IcebergBench) -> None:
    with bench.table.update_schema() as change:
        change.update_column("amount", doc="in euros")
        change.move_first("_epoch")


ALLOWED: list[Callable[[IcebergBench], None]] = [
    delete_an_epoch, set_properties, tag, expire, delete_and_expire, comment,
]  # fmt: skip


@pytest.mark.parametrize("do", [*map(long_but(delete_and_expire), ALLOWED)], ids=lambda do: do.__name__)
def test_what_leaves_the_rows_alone_or_takes_some_away_is_passed(bench: IcebergBench, do: Any) -> None:
    table = bench.filled(3)
    do(bench)
    left = bench.epochs()
    assert left == ([0, 2] if "delete" in do.__name__ else [0, 1, 2])
    for opened in (table, bench.open()):
        assert opened.upper == 3
        at = 3 if opened is table else 4
        opened = opened if opened is table else bench.open()
        bench.commit(opened, at, at + 1)
    assert bench.epochs() == [*left, 3, 4]
    assert bench.open().upper == 5
    assert [file.first_epoch for file in bench.open().files()] == [*left, 3, 4]


def append(bench: IcebergBench) -> None:
    bench.table.append(THEIRS)


def overwrite(bench: IcebergBench) -> None:
    bench.table.overwrite(THEIRS)


def overwrite_some(bench: IcebergBench) -> None:
    bench.table.overwrite(THEIRS, overwrite_filter="_epoch = 1")


def append_and_delete(bench: IcebergBench) -> None:
    append(bench)
    bench.table.delete("_epoch = 2")


def roll_back(bench: IcebergBench) -> None:
    table = bench.table
    with table.manage_snapshots() as change:
        change.rollback_to_snapshot(table.snapshots()[1].snapshot_id)


def roll_back_and_append(bench: IcebergBench) -> None:
    roll_back(bench)
    append(bench)


def roll_back_and_expire(bench: IcebergBench) -> None:
    roll_back(bench)
    table = bench.table
    now = table.current_snapshot().snapshot_id
    ids = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != now]
    table.maintenance.expire_snapshots().by_ids(ids).commit()


REFUSED: list[tuple[Callable[[IcebergBench], None], str]] = [
    (append, "append of 1 rows"),
    (overwrite, "append of 1 rows|overwrite of 1 rows"),
    (overwrite_some, "append of 1 rows|overwrite of 1 rows"),
    (append_and_delete, "append of 1 rows"),
    (roll_back, "it was set back to snapshot"),
    (roll_back_and_append, "it was set back to snapshot"),
    (roll_back_and_expire, "it was set back to snapshot"),
]


@pytest.mark.parametrize(
    ("do", "said"), [*map(long_but(append, roll_back), REFUSED)], ids=lambda one: getattr(one, "__name__", "")
)
def test_rows_that_come_or_go_otherwise_are_named_and_refused(bench: IcebergBench, do: Any, said: str) -> None:
    table = bench.filled(3)
    ours = bench.table.current_snapshot().snapshot_id
    do(bench)
    theirs = bench.rows()
    files = bench.stage([{"user": "ada", "amount": 1.5, "_epoch": 3}])
    for ask in (bench.open, table.files, lambda: table.commit(3, 4, SCHEMA, files, write="1" * 32)):
        with pytest.raises(IcebergTableChanged, match=said) as caught:
            ask()
    assert caught.value.evidence["upper"] == 3
    assert bench.rows() == theirs, "nothing was changed"
    if do is roll_back_and_expire:
        return
    with bench.table.manage_snapshots() as change:  # what the error says
        change.set_current_snapshot(snapshot_id=ours)
    bench.commit(bench.open(), 3, 4)
    assert bench.epochs() == [0, 1, 2, 3]


@pytest.mark.long
def test_a_table_that_was_dropped_holds_nothing(bench: IcebergBench) -> None:
    table = bench.filled(2)
    bench.remove()
    with pytest.raises(TableUpperMismatch) as caught:
        bench.commit(table, 2, 3)
    assert (caught.value.evidence["expected"], caught.value.evidence["actual"]) == (2, 0)
    assert bench.open().upper == 0
    bench.filled(1)
    assert bench.epochs() == [0]


@pytest.mark.long
def test_a_table_that_was_recreated_is_taken_when_it_is_empty_and_refused_with_rows(bench: IcebergBench) -> None:
    table = bench.filled(2)
    bench.remove()
    fields = [NestedField(n, name, kind) for n, (name, kind) in enumerate(
        [("_epoch", LongType()), ("user", StringType()), ("amount", LongType())], 1
    )]  # fmt: skip
    bench.catalog.create_table(NAME, Schema(*fields))
    with pytest.raises(TableUpperMismatch):
        bench.commit(table, 2, 3)
    with pytest.raises(TableSchemaChanged):
        bench.commit(bench.open(), 0, 1)
    bench.remove()
    bench.catalog.create_table(NAME, SCHEMA.remove_metadata())
    bench.commit(bench.open(), 0, 1)
    assert bench.epochs() == [0]
    bench.remove()
    bench.catalog.create_table(NAME, SCHEMA).append(THEIRS)
    with pytest.raises(ForeignTable, match="holds data"):
        bench.open()


def test_a_table_that_is_there_with_columns_in_another_order_gets_files_that_say_so(bench: IcebergBench) -> None:
    bench.warehouse.mkdir()
    catalog = bench.catalog
    catalog.create_namespace("shop")
    turned = pa.schema([("_epoch", pa.int64()), ("amount", pa.float64()), ("user", pa.string())])
    catalog.create_table(NAME, turned)
    bench.filled(2)
    assert [(row["user"], row["amount"], row["_epoch"]) for row in bench.rows()] == [("ada", 1.5, 1), ("ada", 1.5, 0)]
    assert len(list((bench.path / "data").glob("*.parquet"))) == 2, "files with other numbers are gone"
    table = bench.open()
    assert sum(file.rows for file in table.files()) == 2
    rows = [{"_epoch": 2, "amount": 2.5, "user": "bob"}]
    table.commit(2, 3, turned, bench.stage(rows, schema=turned), write="1" * 32)
    assert rows[0] in bench.rows()


@pytest.mark.long
def test_a_table_that_rows_cannot_be_put_into_is_refused(bench: IcebergBench) -> None:
    table = bench.filled(1)
    with bench.table.update_spec() as change:
        change.add_field("user", IdentityTransform(), "user")
    with pytest.raises(PartitionedOtherwise, match="identity"):
        bench.commit(table, 1, 2)
    bench.remove()
    with bench.catalog.create_table_transaction(NAME, SCHEMA) as making:
        making.set_properties({"a": "b"})
    with bench.table.update_schema() as change:
        change.add_column("more", StringType())
    with pytest.raises(TableSchemaChanged, match="more"):
        bench.commit(bench.open(), 0, 1)


@pytest.mark.long
def test_a_table_in_another_place_is_refused(bench: IcebergBench) -> None:
    bench.warehouse.mkdir()
    bench.catalog.create_namespace("shop")
    bench.catalog.create_table(NAME, SCHEMA, location=f"file://{bench.folder}/pond/orders")
    with pytest.raises(IcebergTableElsewhere, match="pond/orders"):
        bench.open()


@pytest.mark.long
def test_metadata_that_is_gone_is_waited_for(bench: IcebergBench) -> None:
    table = bench.filled(2)
    shutil.move(bench.path / "metadata", bench.folder / "away")
    with pytest.raises(IcebergTableDamaged):
        bench.open()
    with pytest.raises(TableUpperMismatch):
        table.stand()
    shutil.move(bench.folder / "away", bench.path / "metadata")
    table.stand()
    bench.commit(table, 2, 3)
    assert bench.epochs() == [0, 1, 2]


@pytest.mark.long
def test_properties_that_somebody_removed_make_it_nobodys_table(bench: IcebergBench) -> None:
    bench.filled(2)
    held = bench.table
    with held.transaction() as change:
        change.remove_properties(*[name for name in held.properties if name.startswith("tidegauge.")])
    with pytest.raises(ForeignTable, match="holds data"):
        bench.open()


@pytest.mark.long
def test_commits_of_nothing_make_a_snapshot_so_that_a_stale_driver_is_refused(bench: IcebergBench) -> None:
    tables = [bench.open(), bench.open()]
    for table in tables:
        assert table.upper == 0
    tables[0].commit(0, 1, SCHEMA, [], write="1" * 32)
    tables[0].commit(1, 2, SCHEMA, [], write="2" * 32, history=NO_HISTORY)
    assert len(bench.table.snapshots()) == 2
    with pytest.raises(TableUpperMismatch):
        bench.commit(tables[1], 0, 1)
    assert bench.rows() == []
    assert bench.open(OUTPUT).upper == 2
