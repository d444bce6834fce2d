"""Columns that are added to a partitioned table, which is followed through its root."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.postgres import Server, query
from tests.sources.postgres.test_further_columns import GrowingShop
from tests.sources.postgres.test_left_out import large
from tests.sources.postgres.test_partitions import partitioned, publish

import tidegauge as tg
from tidegauge.errors.postgressource import TableChanged


@pytest.fixture
def shop(logical: Server, tmp_path: Path) -> GrowingShop:
    """A shop whose orders are partitioned. One partition has its columns in another order, one is in levels."""
    made = GrowingShop(logical, tmp_path)
    partitioned(made, "orders")
    publish(made)
    made.catch_up()
    return made


def same(shop: GrowingShop, *tables: str) -> tg.Dataflow:
    flow = shop.catch_up()
    for table in tables or shop.tables:
        assert shop.rows(flow, table) == shop.there(table)
    return flow


def test_a_column_of_the_root_is_taken_on_from_all_partitions(shop: GrowingShop) -> None:
    shop.do(
        "UPDATE orders SET who = 'before' WHERE id < 40",
        "ALTER TABLE orders ADD COLUMN note text",
        "UPDATE orders SET note = 'x' WHERE id % 7 = 0",
    )
    same(shop)
    assert [*shop.told] == ["source db has other columns, from epoch 1 on: orders.note: new"]
    shop.do(
        "CREATE TABLE orders_4 (note text, who text, old int, day int NOT NULL, id bigint NOT NULL)",
        "ALTER TABLE orders_4 DROP COLUMN old",
        "ALTER TABLE orders ATTACH PARTITION orders_4 FOR VALUES FROM (30) TO (40)",
        "INSERT INTO orders (id, day, note) SELECT i, 30, 'late' FROM generate_series(1000, 1020) i",
        "UPDATE orders SET day = 31, note = 'moved' WHERE id % 11 = 0",
    )
    same(shop)
    assert not shop.told
    shop.do("ALTER TABLE orders ADD COLUMN n int", "ALTER TABLE orders ALTER COLUMN n SET DEFAULT 5")
    shop.do("CREATE TABLE orders_5 PARTITION OF orders FOR VALUES FROM (40) TO (50)")
    shop.do("INSERT INTO orders (id, day) VALUES (2000, 40)", "UPDATE orders SET day = 41 WHERE id = 1001")
    shop.do("DELETE FROM orders WHERE id % 13 = 0", "UPDATE orders SET n = id WHERE id % 17 = 0")
    same(shop)
    assert "orders.n: new" in shop.told[0]


def test_a_large_value_of_such_a_column_is_the_one_of_the_row_before(logical: Server, tmp_path: Path) -> None:
    shop = GrowingShop(logical, tmp_path)
    shop.logs = False
    shop.do(
        "CREATE TABLE texts (id int PRIMARY KEY, n int) PARTITION BY HASH (id)",
        "CREATE TABLE texts_0 PARTITION OF texts FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
        "CREATE TABLE texts_1 (n int, old int, id int NOT NULL)",
        "ALTER TABLE texts_1 DROP COLUMN old",
        "ALTER TABLE texts ATTACH PARTITION texts_1 FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
        "INSERT INTO texts SELECT i, 0 FROM generate_series(1, 20) i",
    )
    shop.tables["texts"] = "id"
    publish(shop)
    shop.catch_up()
    shop.do("ALTER TABLE texts ADD COLUMN doc text")
    shop.do(*(f"ALTER TABLE texts_{one} ALTER doc SET STORAGE EXTERNAL" for one in (0, 1)))
    shop.do(f"UPDATE texts SET doc = {large(1)} || id WHERE id % 3 = 0")
    shop.do("UPDATE texts SET n = 1 WHERE id % 2 = 0")
    same(shop)
    shop.do("UPDATE texts SET n = 2 WHERE id > 3", "DELETE FROM texts WHERE id = 6", "INSERT INTO texts VALUES (6)")
    shop.do("UPDATE texts SET n = 3 WHERE id > 5")
    same(shop)


MEANWHILE = {
    "constant": ["ALTER TABLE {0} ADD COLUMN more int DEFAULT 5"],
    "volatile": [
        "ALTER TABLE {0} ADD COLUMN more float8 DEFAULT random()",
        "ALTER TABLE {0} ALTER more DROP DEFAULT",
    ],
    "again": ["ALTER TABLE {0} ADD COLUMN more int", "ALTER TABLE {0} DROP more", "ALTER TABLE {0} ADD more int"],
    "vacuum": ["ALTER TABLE {0} ADD COLUMN more int", "VACUUM FULL {0}_2"],
    "young": [
        "CREATE TABLE {0}_4 PARTITION OF {0} FOR VALUES FROM (30) TO (40)",
        "INSERT INTO {0} VALUES (1000, 30, 'new')",
        "ALTER TABLE {0} ADD COLUMN more int",
        "VACUUM FULL {0}_4",
    ],
    "own": ["ALTER TABLE {0} ADD COLUMN more int", "ALTER TABLE {0}_1 ALTER more SET DEFAULT 7"],
}
WHY = {
    "constant": "rows of before have a value in it",
    **dict.fromkeys(["volatile", "vacuum", "young"], "all rows of the table were written anew"),
    "again": "another column came and was dropped",
}


@pytest.mark.long
def test_a_column_whose_earlier_values_some_partition_hides_is_passed_over_and_said(
    logical: Server, tmp_path: Path
) -> None:
    shop = GrowingShop(logical, tmp_path)
    for table in MEANWHILE:
        partitioned(shop, table)
    publish(shop)
    shop.catch_up(keep_dropped_partitions=True)
    for table, statements in MEANWHILE.items():
        for one in statements:
            query(shop.address, one.format(table))
        shop.do(f"UPDATE {table} SET who = 'x' WHERE id IN (1, 10, 20, 1000)")
    flow = shop.catch_up(keep_dropped_partitions=True)  # the server writes rows anew, as if they were others
    told = {one.partition("'")[2].partition(".")[0]: one for one in shop.told if "not read" in one}
    assert told.keys() == WHY.keys()
    for table, why in WHY.items():
        assert why in told[table]
        there = [{name: row[name] for name in ("id", "day", "who")} for row in shop.there(table)]
        assert shop.rows(flow, table) == there
    assert shop.rows(flow, "own") == shop.there("own")


def test_a_column_that_is_dropped_again_ends_the_table_where_it_is(shop: GrowingShop) -> None:
    shop.do("ALTER TABLE orders ADD COLUMN note text", "UPDATE orders SET note = 'x' WHERE id = 1")
    same(shop)
    shop.do("ALTER TABLE orders DROP COLUMN note", "UPDATE orders SET who = 'eve' WHERE id = 1")
    with pytest.raises(TableChanged, match="no column 'note' at"):
        shop.catch_up()


def test_partitions_are_marked_as_they_are_when_no_column_has_come(shop: GrowingShop) -> None:
    query(shop.address, "VACUUM FULL orders_1")
    shop.do("CREATE TABLE orders_4 (LIKE orders)")
    query(shop.address, "VACUUM FULL orders_4")
    shop.do("ALTER TABLE orders ATTACH PARTITION orders_4 FOR VALUES FROM (30) TO (40)")
    shop.do("INSERT INTO orders VALUES (1000, 30, 'x')")
    same(shop)
    shop.do("ALTER TABLE orders ADD COLUMN note text", "UPDATE orders SET note = 'x' WHERE id % 7 = 0")
    same(shop)
    assert "orders.note: new" in shop.told[0]
