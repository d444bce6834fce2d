"""Columns that are added to a followed table, of outputs that take columns on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.postgres import Server, version
from tests.sources.database.followed import by_key, ended
from tests.sources.postgres.shop import Shop

import tidegauge as tg
from tidegauge.errors.postgressource import TableChanged
from tidegauge.flow.board import Board
from tidegauge.remap.store import Store
from tidegauge.sources.postgres.subscription import Replication


class GrowingShop(Shop):
    """One whose flow takes columns on."""

    how: Any = "add"
    logged: Any = "add"
    logs: bool = True
    told: tuple[str, ...] = ()
    """What the last run was told."""

    def flow(self, **options: Any) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=f"sqlite:///{self.root}/flow.db", tick=0.05)
        db = flow.source("db", self.source(**options))
        for table, key in self.tables.items():
            sink = tg.DeltaSink(str(self.root / table), envelope="upsert", key=key, order="_sequence")
            flow.sink(table, db.table(table), sink, schema=self.how)
            if self.logs:
                log = tg.ParquetSink(str(self.root / f"{table}_log"))
                flow.sink(f"{table}_log", db.table(table).changelog("op"), log, schema=self.logged)
        return flow

    def catch_up(self, **options: Any) -> tg.Dataflow:
        flow = self.flow(**options)
        flow.run(until="caught-up", engine=tg.LocalEngine(threads=2), watch=self._hear)
        return flow

    def _hear(self, board: Board) -> None:
        self.told = board.news

    def rows(self, flow: tg.Dataflow, table: str, **options: Any) -> list[dict[str, Any]]:
        """The rows of a table by key, in the columns that the database has."""
        names = [row[0] for row in self.ask(_NAMES.format(table))]
        found = tg.read_arrow(flow, table, **options)
        return by_key(
            found.select([one for one in names if one in found.column_names]).to_pylist(), self.tables[table]
        )


_NAMES = "SELECT attname FROM pg_attribute WHERE attrelid = '{}'::regclass AND attnum > 0 AND NOT attisdropped"


@pytest.fixture
def shop(logical: Server, tmp_path: Path) -> GrowingShop:
    """A shop whose orders are followed."""
    made = GrowingShop(logical, tmp_path)
    made.table("orders", "id int PRIMARY KEY, who text")
    made.do("INSERT INTO orders VALUES (1, 'ada'), (2, 'bob')")
    made.publish()
    made.catch_up()
    return made


def test_a_column_that_is_added_is_taken_on_with_the_first_change_that_has_it(shop: GrowingShop) -> None:
    shop.do("INSERT INTO orders VALUES (3, 'cyd')")
    shop.do("ALTER TABLE orders ADD COLUMN note text", "UPDATE orders SET note = 'x' WHERE id = 1")
    shop.do("INSERT INTO orders VALUES (4, 'dan', 'y')")
    flow = shop.catch_up()
    assert shop.told == ("source db has other columns, from epoch 1 on: orders.note: new",)
    assert shop.rows(flow, "orders") == shop.there("orders")
    assert [row["note"] for row in shop.log(flow, "orders")] == [None, None, None, "x", "y"]
    shop.do("DELETE FROM orders WHERE id = 1", "UPDATE orders SET note = 'z' WHERE id = 2")
    flow = shop.catch_up()
    assert shop.rows(flow, "orders") == shop.there("orders")
    assert not shop.told


MEANWHILE = {
    "constant": ["ADD COLUMN more int DEFAULT 5"],
    "forgotten": ["ADD COLUMN more int DEFAULT 5", "ALTER COLUMN more DROP DEFAULT"],
    "volatile": ["ADD COLUMN more float8 DEFAULT random()", "ALTER COLUMN more DROP DEFAULT"],
    "identity": ["ADD COLUMN more int GENERATED ALWAYS AS IDENTITY"],
    "serial": ["ADD COLUMN more serial"],
    "domain": ["ADD COLUMN more five"],
    "rewritten": ["ADD COLUMN more int", "ALTER COLUMN more TYPE int USING id * 2"],
    "renamed": ["RENAME COLUMN hidden TO more"],
    "again": ["ADD COLUMN more int", "UPDATE again SET more = 7", "DROP COLUMN more", "ADD COLUMN more int"],
    "wider": ["ADD COLUMN more int", "UPDATE wider SET more = 7 WHERE id = 1", "ALTER COLUMN more TYPE bigint"],
    "gone": ["ADD COLUMN more int", "UPDATE gone SET more = 7 WHERE id = 1", "DROP COLUMN more"],
    "cased": ['ADD COLUMN "ID" int'],
}
WHY = {
    **dict.fromkeys(["constant", "forgotten", "domain", "identity"], "rows of before have a value in it"),
    **dict.fromkeys(["volatile", "serial", "rewritten"], "all rows of the table were written anew"),
    "renamed": "the table had it before",
    "again": "another column came and was dropped",
    "wider": "its type was changed",
    "gone": "it was gone",
    "cased": "'id' is the same name, in another case",
}


@pytest.mark.long
def test_a_column_whose_earlier_values_no_change_tells_is_passed_over_and_said(
    logical: Server, tmp_path: Path
) -> None:
    shop = GrowingShop(logical, tmp_path)
    listing = version(logical.programs) >= 15  # older ones have no lists of columns, so nothing is hidden by one
    meanwhile = {table: some for table, some in MEANWHILE.items() if listing or table != "renamed"}
    shop.do("CREATE DOMAIN five AS int DEFAULT 5")
    for table in meanwhile:
        shop.table(table, "id int PRIMARY KEY, who text")
        shop.do(f"INSERT INTO {table} VALUES (1, 'ada'), (2, 'bob')")
    if listing:
        shop.do("ALTER TABLE renamed ADD COLUMN hidden int", "UPDATE renamed SET hidden = 7")
    listed = ", ".join("renamed (id, who)" if one == "renamed" else one for one in meanwhile)
    shop.do(f"CREATE PUBLICATION shop FOR TABLE {listed}")
    shop.catch_up()
    shop.do(f"ALTER PUBLICATION shop SET TABLE {', '.join(meanwhile)}")
    for table, statements in meanwhile.items():
        shop.do(*(one if one.startswith("UPDATE") else f"ALTER TABLE {table} {one}" for one in statements))
        shop.do(f"UPDATE {table} SET who = 'x' WHERE id = 1")
    flow = shop.catch_up()
    said = {one.partition("'")[2].partition("'")[0]: one for one in shop.told}
    assert said.keys() == {f"{one}.{'ID' if one == 'cased' else 'more'}" for one in meanwhile}
    for table in meanwhile:
        assert WHY[table] in said[f"{table}.{'ID' if table == 'cased' else 'more'}"]
        assert tg.read_arrow(flow, table).column_names == ["id", "who", "_sequence", "_epoch"]
        assert shop.rows(flow, table) == [{"id": 1, "who": "x"}, {"id": 2, "who": "bob"}]


def test_an_output_that_is_strict_keeps_a_column_from_all_and_for_good(shop: GrowingShop) -> None:
    shop.logged = "strict"
    shop.do("ALTER TABLE orders ADD COLUMN note text", "UPDATE orders SET note = 'x' WHERE id = 1")
    flow = shop.catch_up()
    [told] = shop.told
    assert told.startswith(
        "source db has records with 'orders.note' (string), not read: the rows of output 'orders_log'"
    )
    shop.logged = "add"  # the change of before was read without it
    shop.do("UPDATE orders SET note = 'y' WHERE id = 2")
    flow = shop.catch_up()
    assert not shop.told
    assert "note" not in tg.read_arrow(flow, "orders").column_names
    shop.do("ALTER TABLE orders ADD COLUMN n int", "UPDATE orders SET n = 7 WHERE id = 2")
    shop.catch_up()
    assert "orders.n: new" in shop.told[0]
    shop.how = shop.logged = "strict"  # it stays
    flow = shop.catch_up()
    assert tg.read_arrow(flow, "orders").sort_by("id")["n"].to_pylist() == [None, 7]


@pytest.mark.long
def test_a_column_that_was_taken_on_ends_its_table_where_it_is_dropped(shop: GrowingShop) -> None:
    shop.do("ALTER TABLE orders ADD COLUMN note text", "UPDATE orders SET note = 'x' WHERE id = 1")
    shop.catch_up()
    shop.do("ALTER TABLE orders DROP COLUMN note", "UPDATE orders SET who = 'eve' WHERE id = 1")
    failed = ended(shop.flow(), "orders")
    assert all(isinstance(one, TableChanged) and "no column 'note' at" in str(one) for one in failed.values())


def test_columns_that_come_within_a_transaction_are_null_before_and_there_after(
    logical: Server, tmp_path: Path
) -> None:
    shop = GrowingShop(logical, tmp_path)
    for table, full in (("plain", False), ("whole", True)):
        shop.table(table, "id int PRIMARY KEY, who text", full=full)
        shop.do(f"INSERT INTO {table} SELECT n, 'ada' FROM generate_series(1, 9) n")
    shop.publish()
    shop.catch_up()
    for table in shop.tables:
        shop.do(
            f"UPDATE {table} SET who = 'bob' WHERE id < 4",
            f"ALTER TABLE {table} ADD COLUMN a int",
            f"UPDATE {table} SET a = id WHERE id < 6",
            f"ALTER TABLE {table} ADD COLUMN b text, ALTER COLUMN a SET DEFAULT 5",
            f"UPDATE {table} SET b = repeat('large', 4000) WHERE id = 5",
            f"INSERT INTO {table} VALUES (10, 'cyd')",
            f"DELETE FROM {table} WHERE id = 6",
            f"UPDATE {table} SET id = 17 WHERE id = 7",
        )
        shop.do(f"UPDATE {table} SET a = a + 1 WHERE id = 4", f"DELETE FROM {table} WHERE id = 8")
    flow = shop.catch_up()
    assert "plain.a: new; plain.b: new" in " ".join(shop.told)
    for table in shop.tables:
        assert shop.rows(flow, table) == shop.there(table)
        assert shop.rows(flow, table, as_of=0) == [
            {"id": n, "who": "ada", "a": None, "b": None} for n in range(1, 10)
        ]


@pytest.mark.long
@pytest.mark.parametrize("at", ["told", "settled", "recorded", "bound"])
def test_a_driver_that_dies_while_a_column_is_taken_on_goes_on_with_it(
    at: str, shop: GrowingShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.do("ALTER TABLE orders ADD COLUMN note text", "UPDATE orders SET note = 'x' WHERE id = 1")
    owner, name = {
        "told": (Replication, "_received"),
        "settled": (Store, "record_columns"),
        "recorded": (Store, "record_columns"),
        "bound": (Store, "append"),
    }[at]
    work, further = getattr(owner, name), shop.root / "pg" / "shop" / "db" / "further.json"

    def dying(*given: Any, **named: Any) -> Any:
        if '"note"' not in further.read_text():
            return work(*given, **named)
        if at == "recorded":
            work(*given, **named)
        raise Dead

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, dying)
        with pytest.raises(Dead):
            shop.catch_up()
    shop.do("INSERT INTO orders VALUES (3, 'cyd', 'y')")
    flow = shop.catch_up()
    assert shop.rows(flow, "orders") == shop.there("orders")
    assert [row["note"] for row in shop.log(flow, "orders")] == [None, None, "x", "y"]


class Dead(BaseException):
    """The end of a driver."""


def dies_before_it_binds(shop: GrowingShop, monkeypatch: pytest.MonkeyPatch) -> None:
    def dying(*_given: Any, **_named: Any) -> Any:
        raise Dead

    with monkeypatch.context() as patched:
        patched.setattr(Store, "append", dying)
        with pytest.raises(Dead):
            shop.catch_up()


@pytest.mark.long
def test_first_rows_and_those_of_a_later_table_that_are_not_bound_lack_a_column_that_comes(
    logical: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = GrowingShop(logical, tmp_path)
    shop.table("orders", "id int PRIMARY KEY, who text")
    shop.do("INSERT INTO orders SELECT n, 'ada' FROM generate_series(1, 9) n")
    shop.publish()
    dies_before_it_binds(shop, monkeypatch)
    shop.do("ALTER TABLE orders ADD COLUMN note text", "UPDATE orders SET note = 'x' WHERE id = 1")
    flow = shop.catch_up()
    assert shop.rows(flow, "orders") == shop.there("orders")
    shop.table("users", "id int PRIMARY KEY, name text")
    shop.do(
        "INSERT INTO users SELECT n, 'bob' FROM generate_series(1, 9) n", "ALTER PUBLICATION shop ADD TABLE users"
    )
    joined = shop.root / "pg" / "shop" / "db" / "further.json"
    append = Store.append

    def dying(*given: Any, **named: Any) -> Any:
        if "public.users" in joined.read_text():  # it has joined, and nothing of it is bound
            raise Dead
        return append(*given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Store, "append", dying)
        with pytest.raises(Dead):
            shop.catch_up()
    shop.do("ALTER TABLE users ADD COLUMN age int", "UPDATE users SET age = 7 WHERE id < 3")
    flow = shop.catch_up()
    for table in shop.tables:
        assert shop.rows(flow, table) == shop.there(table)
    assert [row["age"] for row in shop.log(flow, "users")] == [None] * 9 + [7, 7]
    del shop.tables["users"]
    shop.do("UPDATE orders SET note = 'y' WHERE id = 2")
    flow = shop.catch_up()
    assert shop.rows(flow, "orders") == shop.there("orders")


@pytest.mark.long
def test_a_record_of_columns_that_is_gone_takes_on_nothing_that_was_there_by_then(
    shop: GrowingShop,
) -> None:
    further = shop.root / "pg" / "shop" / "db" / "further.json"
    further.unlink()  # as an earlier version leaves it
    shop.do("ALTER TABLE orders ADD COLUMN note text", "UPDATE orders SET note = 'x' WHERE id = 1")
    flow = shop.catch_up()
    assert "'orders.note' (string), not read: the table had it before" in shop.told[0]
    shop.do("ALTER TABLE orders ADD COLUMN n int", "UPDATE orders SET n = 7 WHERE id = 2")
    flow = shop.catch_up()
    assert tg.read_arrow(flow, "orders").sort_by("id").drop_columns(["_sequence", "_epoch"]).to_pylist() == [
        {"id": 1, "who": "ada", "n": None},
        {"id": 2, "who": "bob", "n": 7},
    ]
    (shop.root / "pg" / "shop" / "db" / "columns.json").unlink()  # looked up anew, with all columns of now
    shop.do("UPDATE orders SET n = 8 WHERE id = 1")
    flow = shop.catch_up()
    assert tg.read_arrow(flow, "orders").sort_by("id")["n"].to_pylist() == [8, 7]


@pytest.mark.long
@pytest.mark.parametrize("told", [True, False])
def test_a_folder_put_back_from_an_older_copy_takes_on_no_column_that_changes_were_read_without(
    told: bool, shop: GrowingShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, copy = shop.root / "pg", shop.root / "copy"
    shop.do("INSERT INTO orders VALUES (3, 'cyd')")
    shop.catch_up()
    shutil.copytree(folder, copy)
    shop.logged = "strict"
    shop.do("ALTER TABLE orders ADD COLUMN note text", "UPDATE orders SET note = 'x' WHERE id = 1")
    with monkeypatch.context() as patched:
        if not told:  # as if the driver died before its word to the server
            patched.setattr(Replication, "acknowledge", lambda _self, _frontier: None)
        shop.catch_up()
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    shop.logged = "add"
    shop.do("UPDATE orders SET note = 'y' WHERE id = 2")
    flow = shop.catch_up()
    assert "note" not in tg.read_arrow(flow, "orders").column_names
    shop.do("ALTER TABLE orders ADD COLUMN n int", "UPDATE orders SET n = 7 WHERE id = 2")
    flow = shop.catch_up()
    assert tg.read_arrow(flow, "orders").sort_by("id")["n"].to_pylist() == [None, 7, None]
