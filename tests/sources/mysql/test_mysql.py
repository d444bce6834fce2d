"""What is MySQL's own: sets of GTIDs, a lock for a moment, and on 5.6 columns without names in the log."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pymysql.err import MySQLError
from tests.mysql import MySql, of_old
from tests.sources.mysql.store import Store
from tests.waiting import eventually

from tidegauge.errors.base import TidegaugeError
from tidegauge.remap.binding import Bound
from tidegauge.remap.fromtime.gtid import GTID
from tidegauge.remap.frontier import ORIGIN

pytestmark = pytest.mark.long
OTHER = "4f22fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.fixture
def shop(mysql: MySql, tmp_path: Path) -> Store:
    found = Store(mysql, tmp_path)
    found.table("users", "id int PRIMARY KEY, name text")
    found.do("INSERT INTO users VALUES (1, 'ada')")
    return found


def refused(shop: Store, code: str, *said: str) -> None:
    with pytest.raises(TidegaugeError) as raised:
        shop.catch_up()
    for one in (code, *said):
        assert one in str(raised.value)


def test_positions_are_sets_of_gtids(shop: Store) -> None:
    source = shop.source().placed("store", "db")
    assert source.from_time == GTID
    subscription = source.connect(ORIGIN, Bound())
    try:
        eventually(lambda: (given := subscription.receive(1000, 0.1)) and given.frontier == shop.server.end())
    finally:
        subscription.close()


def test_the_least_rights_that_the_page_names_are_enough(
    mysql: MySql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADA", "hunter2")
    shop = Store(mysql, tmp_path, user="ada", password="env:ADA")
    shop.table("users", "id int PRIMARY KEY, name text")
    shop.do("INSERT INTO users VALUES (1, 'ada')")
    shop.catch_up()
    shop.do("INSERT INTO users VALUES (2, 'bob')")
    assert len(shop.held(shop.catch_up(), "users")) == 2


@of_old
def test_a_table_has_its_first_rows_although_somebody_empties_it_while_another_one_is_read(shop: Store) -> None:
    """The server would show it as empty from then on, so the statement waits."""
    shop.table("items", "id int PRIMARY KEY")
    shop.do("INSERT INTO items VALUES (1), (2)")
    setup = shop.source().placed("store", "db").setup
    with setup.server.first_rows(setup.kind, [*setup.tables.values()]) as rows:
        columns = {one: setup.columns[f"{shop.name}.{one}"] for one in ("users", "items")}
        assert sum(map(len, rows.rows(shop.name, "users", columns["users"], None))) == 1
        with pytest.raises(MySQLError, match="Lock wait timeout"):
            shop.do("SET lock_wait_timeout = 1", "TRUNCATE TABLE items")
        assert sum(map(len, rows.rows(shop.name, "items", columns["items"], None))) == 2
    shop.do("TRUNCATE TABLE items")


def test_what_is_written_while_the_first_rows_are_read_comes_once(shop: Store) -> None:
    shop.do("INSERT INTO users SELECT seq, REPEAT('x', 1000) FROM seq_10_to_20000")
    over = threading.Event()

    def write() -> None:
        n = 100_000
        while not over.is_set():
            n += 1
            shop.do(f"INSERT INTO users VALUES ({n}, 'new')", f"UPDATE users SET name = 'new' WHERE id = {n % 20000}")

    writers = [threading.Thread(target=write)]
    for writer in writers:
        writer.start()
    try:
        shop.catch_up()
    finally:
        over.set()
        for writer in writers:
            writer.join()
    flow = shop.catch_up()
    assert shop.held(flow, "users") == shop.there("users")


def test_purged_transactions_are_a_loss_with_the_sets(own_mysql: MySql, tmp_path: Path) -> None:
    shop = Store(own_mysql, tmp_path)
    shop.table("users", "id int PRIMARY KEY, name text")
    shop.do("INSERT INTO users VALUES (1, 'ada')")
    flow = shop.catch_up()
    before, number = own_mysql.last()
    server = before.partition(":")[0]
    shop.do("INSERT INTO users VALUES (2, 'lost')")
    eventually(lambda: purged(own_mysql))
    shop.do("INSERT INTO users VALUES (3, 'there')")
    refused(shop, "TG-0338", f"from {server}:{number + 1} on", f"begins after {server}:1-{number + 1} and ends")
    assert [row["id"] for row in shop.held(flow, "users")] == [1]


def purged(server: MySql) -> bool:
    server.do("FLUSH BINARY LOGS")
    newest = server.ask("SHOW BINARY LOGS")[-1][0]
    server.do(f"PURGE BINARY LOGS TO '{newest}'")
    return len(server.ask("SHOW BINARY LOGS")) == 1


@pytest.mark.parametrize(
    ("statements", "code", "said"),
    [
        pytest.param(["ALTER TABLE users ADD COLUMN age int FIRST"], "TG-0345", "FIRST", marks=of_old),
        pytest.param(
            ["ALTER TABLE users ADD COLUMN age int, ADD COLUMN born int AFTER id"], "TG-0345", "AFTER", marks=of_old
        ),
        (["ALTER TABLE users DROP COLUMN name"], "TG-0345", "is: ALTER TABLE users DROP"),
        (["TRUNCATE users"], "TG-0344", "TRUNCATE"),
        pytest.param(
            [
                "SET SESSION sql_log_bin = 0",
                "ALTER TABLE users ADD COLUMN age int AFTER id",
                "SET SESSION sql_log_bin = 1",
                "INSERT INTO users VALUES (2, 3, 'x')",
            ],
            "TG-0345",
            "'name' is of the type 3 in the log, and was of 252",
            marks=of_old,
        ),
        (["SET SESSION binlog_format = 'STATEMENT'", "UPDATE users SET name = 'x'"], "TG-0343", "without its rows"),
        (["SET SESSION binlog_row_image = 'MINIMAL'", "UPDATE users SET name = 'x'"], "TG-0961", "binlog_row_image"),
    ],
    ids=["first", "after", "drop", "truncate", "unseen", "statement", "minimal"],
)
def test_a_change_that_the_log_does_not_tell_is_named(
    shop: Store, statements: list[str], code: str, said: str
) -> None:
    flow = shop.catch_up()
    shop.do(*statements)
    refused(shop, code, said)
    assert [row["name"] for row in shop.held(flow, "users")] == ["ada"]


def test_transactions_of_another_server_pass_unless_they_change_followed_tables(
    own_mysql: MySql, tmp_path: Path
) -> None:
    shop = Store(own_mysql, tmp_path)
    shop.table("users", "id int PRIMARY KEY, name text")
    shop.catch_up()
    shop.do(
        "CREATE TABLE others (id int PRIMARY KEY)", f"SET gtid_next = '{OTHER}:1'", "INSERT INTO others VALUES (1)"
    )
    shop.do("INSERT INTO users VALUES (1, 'ada')")
    flow = shop.catch_up()
    assert [row["id"] for row in shop.held(flow, "users")] == [1]
    shop.do(f"SET gtid_next = '{OTHER}:2'", "INSERT INTO users VALUES (2, 'bob')")
    refused(shop, "TG-0961", f"the server {OTHER}")


def test_a_set_with_a_gap_is_refused(own_mysql: MySql, tmp_path: Path) -> None:
    shop = Store(own_mysql, tmp_path)
    shop.table("users", "id int PRIMARY KEY, name text")
    shop.catch_up()
    shop.do(f"SET gtid_next = '{OTHER}:5'", "INSERT INTO users VALUES (1, 'ada')")
    with pytest.raises(TidegaugeError, match=r"TG-0335.*are missing"):
        shop.source().placed("store", "db").connect(ORIGIN, Bound())


def test_a_transaction_that_leaves_a_number_out_fails_the_source(own_mysql: MySql, tmp_path: Path) -> None:
    shop = Store(own_mysql, tmp_path)
    shop.table("users", "id int PRIMARY KEY, name text")
    shop.catch_up()
    last, number = own_mysql.last()
    source = shop.source().placed("other", "db")
    subscription = source.connect(ORIGIN, Bound())
    try:
        eventually(lambda: (given := subscription.receive(1000, 0.1)) and given.frontier)
        shop.do(f"SET gtid_next = '{last.partition(':')[0]}:{number + 2}'", "INSERT INTO users VALUES (1, 'ada')")
        with pytest.raises(TidegaugeError, match=r"TG-0343.*those in between are missing"):
            eventually(lambda: subscription.receive(1000, 0.1))
    finally:
        subscription.close()


def test_a_server_without_gtids(own_mysql: MySql, tmp_path: Path) -> None:
    own_mysql.stop(stay=True)
    own_mysql.gtids = False
    own_mysql.start()
    shop = Store(own_mysql, tmp_path)
    shop.table("users", "id int PRIMARY KEY, name text")
    refused(shop, "TG-0335", "gtid_mode", "--gtid-mode=ON")


def test_another_kind_of_server_under_the_same_address_is_refused(shop: Store, tmp_path: Path) -> None:
    shop.catch_up()
    (tmp_path / "my" / "store" / "db" / "server.json").write_text('{"clock": "mariadb-gtid"}')
    source = shop.source().placed("store", "db")
    with pytest.raises(TidegaugeError, match=r"TG-0335.*it is MySQL [58].[06], and the flow was begun with MariaDB"):
        source.connect(ORIGIN, Bound())
