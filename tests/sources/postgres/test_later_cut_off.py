"""First rows of tables that are added: what was read of them before a driver ended is not read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.postgres import Server
from tests.sources.postgres.shop import Shop
from tests.sources.postgres.test_cut_off import copies
from tests.sources.postgres.test_later_tables import connected_at
from tests.sources.postgres.test_refusals import released
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.remap.fromtime.lsn import Lsn
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.postgres.progress import RangesPlan, RowsProgress

ROWS = 20_000

pytestmark = pytest.mark.long


@pytest.fixture
def shop(logical: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A shop whose users are followed, and to which a table of about 300 pages was added, in ranges of 16."""
    monkeypatch.setattr("tidegauge.sources.postgres.held.RANGE_BYTES", 16 * 8192)
    made = Shop(logical, tmp_path)
    made.table("users", "id int PRIMARY KEY, name text")
    made.do("INSERT INTO users SELECT n, 'user ' || n FROM generate_series(1, 5) n")
    made.publish()
    made.do(
        *(f"ALTER DATABASE {made.name} SET {one}" for one in ("log_statement = 'all'", "log_min_messages = 'log'"))
    )
    made.catch_up()
    made.table("orders", "id bigint PRIMARY KEY, who text, n int DEFAULT 0")
    made.do(f"INSERT INTO orders SELECT i, repeat('x', 100) FROM generate_series(1, {ROWS}) i")
    made.do("ALTER PUBLICATION shop ADD TABLE orders")
    return made


def noted(shop: Shop) -> Any:
    """What is kept of the reading that is under way, None where there is none."""
    path = shop.root / "pg/shop/db/later.json"
    return json.loads(path.read_text()).get("reading") if path.exists() else None


def plan(shop: Shop) -> RangesPlan | None:
    """How the added table is read."""
    if (found := noted(shop)) is None:
        return None
    folder = shop.root / "pg/shop/db/later" / found["files"] / "snapshot"
    return RowsProgress(folder).found().plans.get("orders")


def cut_off(shop: Shop, ranges: int) -> RangesPlan:
    """Read some ranges of the added table, and then no more; return what is kept."""
    subscription = connected_at(shop, rate=ROWS // 8)  # not all of it before we have looked
    while (found := plan(shop)) is None or len(found.read) < ranges:
        assert all(stream != "orders" for stream, _ in getattr(subscription.receive(1000, 0.001), "batches", ()))
    subscription.close()
    released(shop)
    found = plan(shop)
    assert found is not None
    assert found.missing
    return found


def whole(shop: Shop) -> None:
    """See that all tables are the database's, and that each row of the added one came once."""
    flow = shop.catch_up()
    for table in shop.tables:
        assert shop.held(flow, table) == shop.there(table)
    inserted = [row["id"] for row in shop.log(flow, "orders") if row["op"] == "insert"]
    assert len(inserted) == len(set(inserted))
    assert noted(shop) is None


def confirmed(shop: Shop) -> int:
    [(place,)] = shop.ask(f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{shop.slot}'")
    return Lsn.parse(place).value


def test_ranges_of_an_added_table_that_are_in_files_are_not_read_again(shop: Shop) -> None:
    known, before = cut_off(shop, 3), len(copies(shop))
    whole(shop)
    again = copies(shop)[before:]
    assert len(again) == len(known.missing)


def test_rows_of_an_added_table_that_change_meanwhile_are_those_of_the_place_where_it_is_read_on(shop: Shop) -> None:
    for turn in range(2):
        cut_off(shop, 3 * (turn + 1))
        shop.do(
            f"UPDATE orders SET who = 'new' WHERE id % 1000 = {turn}",
            f"DELETE FROM orders WHERE id % 1001 = {turn}",
            f"UPDATE orders SET id = id + 1000000 WHERE id % 1002 = {turn}",
            f"INSERT INTO orders SELECT {turn} * 100 + i, 'late' FROM generate_series(500001, 500100) i",
        )
    whole(shop)


def test_the_server_keeps_its_log_for_the_rows_that_were_read_until_the_table_is_taken_out(shop: Shop) -> None:
    cut_off(shop, 3)
    since, folder = noted(shop)["since"], SourceFolder(str(shop.root / "pg/shop/db"))
    with psycopg.connect(shop.address) as other:
        other.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        flow = shop.flow()
        with flow.start(engine=tg.LocalEngine(threads=2)):
            shop.do("INSERT INTO users VALUES (6, 'fay')")
            eventually(lambda: len(shop.held(flow, "users")) == 6)
            eventually(lambda: folder.told() > 0)
    released(shop)
    assert confirmed(shop) <= since
    del shop.tables["orders"]
    shop.catch_up()
    assert noted(shop) is None
    assert not any(one.is_dir() for one in (shop.root / "pg/shop/db/later").iterdir())
    shop.do("INSERT INTO users VALUES (7, 'guy')")
    shop.catch_up()
    assert confirmed(shop) > since


@pytest.mark.parametrize("happened", ["slot moved on", "files gone"])
def test_rows_whose_changes_are_not_known_are_read_anew(happened: str, shop: Shop) -> None:
    cut_off(shop, 3)
    shop.do("UPDATE orders SET who = 'new' WHERE id = 1", "INSERT INTO users VALUES (6, 'fay')")
    if happened == "files gone":
        for path in (shop.root / "pg/shop/db/later").rglob("*"):
            if path.is_file():
                path.unlink()
    else:
        users = shop.tables.pop("users"), shop.tables.pop("orders")
        shop.tables["users"] = users[0]
        later = (shop.root / "pg/shop/db/later.json").read_text()
        shop.catch_up()  # as if an earlier version had gone on without the added table
        shop.tables["orders"] = users[1]
        (shop.root / "pg/shop/db/later.json").write_text(later)
    whole(shop)
