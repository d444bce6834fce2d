"""A server whose files were put back without recovery has its timeline and slot, and another log at some places."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.postgres import Server
from tests.sources.database.followed import ended
from tests.sources.postgres.shop import Shop

import tidegauge as tg
from tidegauge.errors.postgressource import LogRewritten, TableChanged
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.remap.fromtime.lsn import Lsn


@pytest.fixture
def shop(own_logical: Server, tmp_path: Path) -> Shop:
    found = Shop(own_logical, tmp_path)
    found.table("orders", "id bigint PRIMARY KEY, who text")
    found.publish()
    found.do("INSERT INTO orders SELECT i, 'first' FROM generate_series(1, 3) i", "CREATE TABLE others (n int)")
    return found


def put_back(shop: Shop, meanwhile: Callable[[], object]) -> None:
    """Copy the files of the server while it is down, let something happen, and put them back."""
    server = shop.server
    server.stop(stay=True)
    copy = server.folder / "copy"
    shutil.copytree(server.data, copy, symlinks=True)
    server.start()
    meanwhile()
    server.stop(stay=True)
    shutil.rmtree(server.data)
    copy.rename(server.data)
    owner = server.folder.stat()
    for path in [server.data, *server.data.rglob("*")]:
        os.chown(path, owner.st_uid, owner.st_gid)
    server.data.chmod(0o700)
    server.start()


def grown(shop: Shop, place: int) -> None:
    """Let the log grow past a place, by nothing of the tables."""
    while Lsn.parse(shop.ask("SELECT pg_current_wal_flush_lsn()::text")[0][0]).value <= place:
        shop.do("INSERT INTO others SELECT generate_series(1, 1000)")


def end(shop: Shop) -> int:
    return Lsn.parse(shop.ask("SELECT pg_current_wal_flush_lsn()::text")[0][0]).value


def written(shop: Shop, word: str, first: int) -> None:
    shop.do(f"INSERT INTO orders SELECT i, '{word}' FROM generate_series({first}, {first} + 9) i")


def test_other_transactions_in_the_place_of_those_that_are_held_are_a_loss(shop: Shop) -> None:
    flow = shop.catch_up()
    reached = 0

    def meanwhile() -> None:
        nonlocal reached
        written(shop, "gone", 11)
        shop.catch_up()
        shop.catch_up()  # which tells the server of it
        reached = end(shop)

    put_back(shop, meanwhile)
    written(shop, "instead", 11)
    grown(shop, reached)
    shop.do("INSERT INTO orders VALUES (30, 'later')")
    for _ in range(2):
        with pytest.raises(LogRewritten, match="is another one before"):
            shop.catch_up()
    assert {row["who"] for row in shop.held(flow, "orders")} == {"first", "gone"}


def test_transactions_in_the_place_of_a_time_without_any_are_a_loss(shop: Shop) -> None:
    written(shop, "before", 11)
    shop.catch_up()
    shop.catch_up()
    reached = 0

    def meanwhile() -> None:
        nonlocal reached
        shop.do("INSERT INTO others SELECT generate_series(1, 10000)")
        shop.catch_up()
        shop.catch_up()
        reached = end(shop)

    put_back(shop, meanwhile)
    written(shop, "instead", 21)
    grown(shop, reached)
    with pytest.raises(LogRewritten, match="is the transaction"):
        shop.catch_up()


def test_where_nothing_of_the_tables_was_in_either_log_it_goes_on(shop: Shop) -> None:
    written(shop, "before", 11)
    shop.catch_up()
    reached = 0

    def meanwhile() -> None:
        nonlocal reached
        shop.do("INSERT INTO others SELECT generate_series(1, 10000)")
        shop.catch_up()
        shop.catch_up()
        reached = end(shop)

    put_back(shop, meanwhile)
    grown(shop, reached)
    written(shop, "after", 31)
    flow = shop.catch_up()
    assert shop.held(flow, "orders") == shop.there("orders")


def test_a_log_that_is_not_yet_as_far_is_a_loss_too(shop: Shop) -> None:
    shop.catch_up()

    def meanwhile() -> None:
        written(shop, "gone", 11)
        grown(shop, end(shop) + 100_000)
        shop.catch_up()

    put_back(shop, meanwhile)
    with pytest.raises((UpstreamRecreated, LogRewritten)):
        shop.catch_up()


def test_a_killed_server_that_forgot_what_it_was_told_is_the_same_one(shop: Shop) -> None:
    shop.catch_up()
    shop.server.query("CHECKPOINT")
    for n in range(3):
        written(shop, "more", 10 * n + 11)
        shop.do(f"UPDATE orders SET who = 'again' WHERE id = {n + 1}")
        shop.catch_up()
    told = shop.confirmed()
    shop.server.kill()
    shop.server.start()
    assert Lsn.parse(shop.confirmed()).value < Lsn.parse(told).value  # so all of it is read again
    written(shop, "later", 101)
    flow = shop.catch_up()
    assert shop.held(flow, "orders") == shop.there("orders")
    changes = shop.log(flow, "orders")
    assert len({row["_sequence"] for row in changes}) == len(changes) == 3 + 30 + 3 + 10


def test_what_an_output_that_failed_holds_back_is_compared_though_the_server_was_not_told_of_it(shop: Shop) -> None:
    shop.table("users", "id int PRIMARY KEY")
    shop.do("ALTER PUBLICATION shop ADD TABLE users")
    shop.catch_up()
    shop.do("TRUNCATE users")
    written(shop, "before", 11)
    ended(shop.flow(), "users")  # from now on the server is told nothing more
    told, reached = shop.confirmed(), 0

    def meanwhile() -> None:
        nonlocal reached
        for first in (31, 51):
            written(shop, "gone", first)
            ended(shop.flow(), "users")
        assert shop.confirmed() == told
        reached = end(shop)

    put_back(shop, meanwhile)
    written(shop, "instead", 31)
    grown(shop, reached)
    shop.do("INSERT INTO orders VALUES (80, 'later')")
    for _ in range(2):
        with pytest.raises(LogRewritten, match="is another one before"):
            shop.catch_up()
    assert {one.name: one.rows for one in tg.status(shop.flow()).outputs}["orders"] == 3 + 10 + 20


def test_the_end_of_a_table_that_lies_before_the_place_is_said_again(shop: Shop, tmp_path: Path) -> None:
    shop.table("users", "id int PRIMARY KEY")
    shop.do("ALTER PUBLICATION shop ADD TABLE users")
    shop.catch_up()
    shop.server.query("CHECKPOINT")
    shop.do("ALTER TABLE orders RENAME TO other", "INSERT INTO other VALUES (11, 'renamed')")
    shop.do("ALTER TABLE other RENAME TO orders")
    with pytest.raises(TableChanged):
        shop.catch_up()
    for name in ("orders", "orders_log"):
        tg.drop(shop.flow(), name)
    del shop.tables["orders"]

    def flow(*, later: bool) -> tg.Dataflow:
        made = shop.flow(tables=["orders", "users"])
        if later:
            stream = tg.RowStream(made, "db", "orders").changelog("op")
            made.sink("later", stream, tg.ParquetSink(str(tmp_path / "later")), start="now")
        return made

    shop.do("INSERT INTO users VALUES (1)")
    flow(later=False).run(until="caught-up", engine=tg.LocalEngine(threads=2))
    shop.server.kill()
    shop.server.start()
    shop.do("INSERT INTO orders VALUES (12, 'after')")
    with pytest.raises(TableChanged, match="it has the name"):
        flow(later=True).run(until="caught-up", engine=tg.LocalEngine(threads=2))
