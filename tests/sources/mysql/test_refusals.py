"""What keeps a MariaDB from being followed is named, with what to do; what was lost is said."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pymysql
import pytest
from tests.mariadb import MariaDb
from tests.sources.mysql.store import Store
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.mysqlsource import BinlogPastFirstRows, BinlogSnapshotLost
from tidegauge.remap.binding import Bound
from tidegauge.remap.fromtime.mariadb import MARIADB
from tidegauge.remap.frontier import ORIGIN
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.mysql.catalog import ServerLook, check_server
from tidegauge.sources.mysql.servers import MYSQL8_SERVER

pytestmark = pytest.mark.long


@pytest.fixture
def shop(mariadb: MariaDb, tmp_path: Path) -> Store:
    found = Store(mariadb, tmp_path)
    found.table("users", "id int PRIMARY KEY, name text")
    found.do("INSERT INTO users VALUES (1, 'ada')")
    return found


def refused(shop: Store, code: str, *said: str) -> None:
    """Declaring or running the flow raises the error of this code; nothing is in the tables that is not right."""
    with pytest.raises(TidegaugeError) as raised:
        shop.catch_up()
    assert code in str(raised.value)
    for one in said:
        assert one in str(raised.value)


def test_the_least_rights_that_the_page_names_are_enough(
    mariadb: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADA", "hunter2")
    shop = Store(mariadb, tmp_path, user="ada", password="env:ADA")
    shop.table("users", "id int PRIMARY KEY, name text")
    shop.do("INSERT INTO users VALUES (1, 'ada')")
    shop.catch_up()
    shop.do("INSERT INTO users VALUES (2, 'bob')")
    assert len(shop.held(shop.catch_up(), "users")) == 2


def test_a_wrong_password(mariadb: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADA", "wrong0ne")
    shop = Store(mariadb, tmp_path, user="ada", password="env:ADA")
    shop.table("users", "id int PRIMARY KEY, name text")
    with pytest.raises(TidegaugeError) as raised:
        shop.catch_up()
    assert "TG-0333" in str(raised.value)
    assert "wrong0ne" not in str(raised.value)


def test_a_way_to_log_in_that_needs_another_package(mariadb: MariaDb, tmp_path: Path) -> None:
    with suppress(pymysql.err.MySQLError):
        mariadb.do("INSTALL SONAME 'auth_ed25519'")
    mariadb.do("CREATE OR REPLACE USER kim IDENTIFIED VIA ed25519 USING PASSWORD('x')")
    shop = Store(mariadb, tmp_path, user="kim")
    shop.table("users", "id int PRIMARY KEY, name text")
    refused(shop, "TG-0333")


@pytest.mark.parametrize("version", ["5.5.62-log", "5.7.44-log", "8.4.3", "9.1.0"])
def test_other_versions_of_mysql_are_refused_by_name(version: str) -> None:
    with pytest.raises(TidegaugeError, match=rf"TG-0335.*it is MySQL {version}"):
        check_server("the database db", ServerLook({"version": version, "filters": ""}, {}, []))


def test_no_right_to_read_the_log(mariadb: MariaDb, tmp_path: Path) -> None:
    shop = Store(mariadb, tmp_path, user="bob")
    mariadb.do("CREATE USER IF NOT EXISTS bob", f"GRANT SELECT ON {shop.name}.* TO bob")
    shop.table("users", "id int PRIMARY KEY, name text")
    with pytest.raises(TidegaugeError, match=r"TG-0334.*\n.*\n.*GRANT REPLICATION SLAVE"):
        shop.source().placed("store", "db").connect(ORIGIN, Bound())


@pytest.mark.parametrize(
    ("name", "value", "back"),
    [
        ("binlog_format", "'MIXED'", "'ROW'"),
        ("binlog_row_image", "'MINIMAL'", "'FULL'"),
        ("binlog_row_metadata", "'MINIMAL'", "'FULL'"),
        ("log_bin_compress", "ON", "OFF"),
    ],
)
def test_a_server_whose_log_does_not_say_enough(shop: Store, name: str, value: str, back: str) -> None:
    shop.server.do(f"SET GLOBAL {name} = {value}")
    try:
        refused(shop, "TG-0335", name, f"SET GLOBAL {name} = {back}")
    finally:
        shop.server.do(f"SET GLOBAL {name} = {back}")


def test_a_replica_whose_log_does_not_have_what_comes_by_replication(shop: Store) -> None:
    shop.server.do("SET GLOBAL gtid_slave_pos = '7-1-5'")
    try:
        refused(shop, "TG-0335", "a replica", "--log-slave-updates")
    finally:
        shop.server.do("SET GLOBAL gtid_slave_pos = ''")
    wanted = {name: value for name, (value, _) in MYSQL8_SERVER.wanted.items()}
    settings = {"version": "8.0.33", "filters": "", **wanted}
    check_server("the database db", ServerLook(settings, {}, []))
    with pytest.raises(TidegaugeError, match=r"TG-0335.*log_slave_updates is '0'"):
        check_server("the database db", ServerLook({**settings, "log_slave_updates": "0"}, {}, []))


def test_a_server_without_a_log(tmp_path: Path, own_mariadb: MariaDb) -> None:
    own_mariadb.stop(stay=True)
    del own_mariadb.settings["log-bin"]
    own_mariadb.start()
    shop = Store(own_mariadb, tmp_path)
    shop.table("users", "id int PRIMARY KEY, name text")
    refused(shop, "TG-0335", "log_bin", "--log-bin")


def test_a_log_that_leaves_out_databases(tmp_path: Path, own_mariadb: MariaDb) -> None:
    own_mariadb.stop(stay=True)
    own_mariadb.settings["binlog-ignore-db"] = "elsewhere"
    own_mariadb.start()
    shop = Store(own_mariadb, tmp_path)
    shop.table("users", "id int PRIMARY KEY, name text")
    refused(shop, "TG-0335", "binlog_ignore_db = elsewhere")


def test_a_name_in_other_letters_than_the_catalog_s(tmp_path: Path, own_mariadb: MariaDb) -> None:
    own_mariadb.stop(stay=True)
    own_mariadb.settings["lower-case-table-names"] = "1"
    own_mariadb.start()
    shop = Store(own_mariadb, tmp_path)
    shop.table("Users", "id int PRIMARY KEY, name text")
    refused(shop, "TG-0336", "as it is in the catalog")
    shop.tables = {"users": "id"}
    shop.catch_up()
    shop.do("INSERT INTO USERS VALUES (1, 'ada')")
    assert len(shop.held(shop.catch_up(), "users")) == 1


@pytest.mark.parametrize(
    ("statement", "code", "said"),
    [
        ("CREATE TABLE other (id int)", "TG-0337", "ADD PRIMARY KEY"),
        ("CREATE TABLE elsewhere (id int PRIMARY KEY)", "TG-0336", "no such table"),
        ("CREATE TABLE other (id int PRIMARY KEY) ENGINE = Aria", "TG-0336", "Aria"),
        ("CREATE TABLE other (id int PRIMARY KEY, at point)", "TG-0336", "point"),
        ("CREATE TABLE other (id int PRIMARY KEY, a text CHARACTER SET koi8r)", "TG-0336", "koi8r"),
        ("CREATE TABLE other (id int PRIMARY KEY, a uuid)", "TG-0336", "uuid"),
        ("CREATE TABLE other (id int PRIMARY KEY, a int AS (id + 1) VIRTUAL)", "TG-0336", "VIRTUAL"),
        ("CREATE TABLE other (id int PRIMARY KEY, _op int)", "TG-0336", "_op"),
        ("CREATE VIEW other AS SELECT 1 AS id", "TG-0336", "VIEW"),
        (
            (
                "CREATE TABLE other (id int PRIMARY KEY, u int, CONSTRAINT falls FOREIGN KEY (u) REFERENCES "
                "users (id) ON DELETE CASCADE)"
            ),
            "TG-0336",
            "falls",
        ),
    ],
)
def test_a_table_that_cannot_be_followed(shop: Store, statement: str, code: str, said: str) -> None:
    shop.do(statement)
    shop.tables["other"] = "id"
    refused(shop, code, said)


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
@pytest.mark.parametrize("rule", ["DELETE CASCADE", "DELETE SET NULL", "UPDATE CASCADE"])
def test_rows_that_a_foreign_key_changes_are_not_in_the_log_and_so_it_is_refused_for_those_with_least_rights(
    kind: str, rule: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: MariaDb = request.getfixturevalue(kind)
    monkeypatch.setenv("ADA", "hunter2")
    shop = Store(server, tmp_path, user="ada", password="env:ADA")
    shop.table("users", "id int PRIMARY KEY, name text")
    falls = f"CONSTRAINT `the ``key` FOREIGN KEY (u) REFERENCES users (id) ON {rule}"
    shop.table("lent", f"id int PRIMARY KEY, u int, {falls}")
    refused(shop, "TG-0336", "the `key", "RESTRICT")


@pytest.mark.parametrize(
    ("statements", "code"),
    [
        (["TRUNCATE TABLE users"], "TG-0344"),
        (["SET STATEMENT lock_wait_timeout = 5 FOR TRUNCATE users"], "TG-0344"),
        (["/*M!100100 TRUNCATE users */"], "TG-0344"),
        (["ALTER TABLE users COMMENT = 'it\\'s # one', DROP COLUMN name"], "TG-0345"),
        (["EXECUTE IMMEDIATE 'TRUNCATE/**/`users`'"], "TG-0344"),
        (["DROP TABLE users"], "TG-0345"),
        (["RENAME TABLE users TO others"], "TG-0345"),
        (["ALTER TABLE users DROP COLUMN name"], "TG-0345"),
        (["ALTER TABLE users DROP COLUMN name, ADD COLUMN name text"], "TG-0345"),
        (["ALTER TABLE users MODIFY name varchar(1)"], "TG-0345"),
        (["CREATE OR REPLACE TABLE users (id int PRIMARY KEY, name text)"], "TG-0345"),
        (["SET SESSION binlog_format = 'STATEMENT'", "UPDATE users SET name = 'unseen'"], "TG-0343"),
        (["SET SESSION binlog_row_image = 'MINIMAL'", "UPDATE users SET name = 'x'"], "TG-0961"),
        (["SET SESSION gtid_domain_id = 9", "UPDATE users SET name = 'x'"], "TG-0961"),
        (
            ["XA START 'a'", "INSERT INTO users VALUES (7, 'x')", "XA END 'a'", "XA PREPARE 'a'", "XA ROLLBACK 'a'"],
            "TG-0961",
        ),
    ],
    ids=lambda given: given if isinstance(given, str) else given[-1].split(" users")[0],
)
def test_a_change_that_the_log_does_not_tell_by_rows_is_named(shop: Store, statements: list[str], code: str) -> None:
    flow = shop.catch_up()
    shop.do("INSERT INTO users VALUES (2, 'before')")
    shop.do(*statements)
    with pytest.raises(TidegaugeError) as raised:
        shop.catch_up()
    assert code in str(raised.value)
    assert [row["name"] for row in shop.held(flow, "users")][:1] == ["ada"]


def test_changes_of_tables_that_are_not_followed_do_no_harm(shop: Store) -> None:
    shop.catch_up()
    shop.do("CREATE TABLE other (id int)", "INSERT INTO other VALUES (1)", "TRUNCATE other", "DROP TABLE other")
    shop.do("CREATE TEMPORARY TABLE users_t (id int)", "INSERT INTO users_t VALUES (1)")
    shop.do("CREATE VIEW v AS SELECT * FROM users", "CREATE USER IF NOT EXISTS eve", "ANALYZE TABLE users")
    shop.do("CREATE TABLE lent (id int PRIMARY KEY, u int, FOREIGN KEY (u) REFERENCES users (id))")
    shop.do("SET SESSION gtid_domain_id = 8", "INSERT INTO lent VALUES (1, 1)")
    shop.do("XA START 'a'", "INSERT INTO lent VALUES (2, 1)", "XA END 'a'", "XA PREPARE 'a'", "XA COMMIT 'a'")
    shop.do("INSERT INTO users VALUES (2, 'bob')")
    assert len(shop.held(shop.catch_up(), "users")) == 2


def test_rows_of_a_transaction_that_the_log_rolls_back_are_nowhere(shop: Store) -> None:
    shop.catch_up()
    with shop.server.connection(shop.name) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO users VALUES (2, 'goes')")
        # With such a statement in it the transaction is in the log, and a ROLLBACK after it.
        cursor.execute("CREATE TEMPORARY TABLE scratch (id int)")
        cursor.execute("DROP TEMPORARY TABLE scratch")
        connection.rollback()
    newest = shop.ask("SHOW BINARY LOGS")[-1][0]
    assert any(row[5] == "ROLLBACK" for row in shop.ask(f"SHOW BINLOG EVENTS IN '{newest}'"))
    shop.do("INSERT INTO users VALUES (3, 'stays')")
    flow = shop.catch_up()
    assert [row["id"] for row in shop.log(flow, "users")] == [1, 3]


def purged(server: MariaDb) -> bool:
    """Whether the log begins with its newest file: the server keeps what it would need after a crash, or a reader."""
    server.do("FLUSH BINARY LOGS")
    newest = server.ask("SHOW BINARY LOGS")[-1][0]
    server.do(f"PURGE BINARY LOGS TO '{newest}'")
    return len(server.ask("SHOW BINARY LOGS")) == 1


def test_a_purged_position_is_a_loss_with_both_positions(own_mariadb: MariaDb, tmp_path: Path) -> None:
    shop = Store(own_mariadb, tmp_path)
    shop.table("users", "id int PRIMARY KEY, name text")
    shop.do("INSERT INTO users VALUES (1, 'ada')")
    flow = shop.catch_up()
    [(before,)] = shop.ask("SELECT @@gtid_binlog_pos")
    shop.do("INSERT INTO users VALUES (2, 'lost')")
    own_mariadb.do("FLUSH BINARY LOGS")
    shop.do("INSERT INTO users VALUES (3, 'there')")
    [(after,)] = shop.ask("SELECT @@gtid_binlog_pos")
    eventually(lambda: purged(own_mariadb))
    refused(shop, "TG-0338", f"{before.split('-')[0]}-{int(before.split('-')[2]) + 1}", after)
    assert [row["id"] for row in shop.held(flow, "users")] == [1]


def test_a_log_that_was_reset_is_a_loss(own_mariadb: MariaDb, tmp_path: Path) -> None:
    shop = Store(own_mariadb, tmp_path)
    shop.table("users", "id int PRIMARY KEY, name text")
    shop.catch_up()
    own_mariadb.do("RESET MASTER")
    shop.do("INSERT INTO users VALUES (3, 'there')")
    refused(shop, "TG-0554")


def test_another_server_under_the_same_address(own_mariadb: MariaDb, tmp_path: Path) -> None:
    shop = Store(own_mariadb, tmp_path)
    shop.table("users", "id int PRIMARY KEY, name text")
    shop.catch_up()
    own_mariadb.stop(stay=True)
    own_mariadb.settings["server-id"] = "58"
    own_mariadb.start()
    refused(shop, "TG-0554", "server 58")


def test_an_output_that_is_added_later_has_no_first_rows(shop: Store) -> None:
    shop.catch_up()
    folder = SourceFolder(str(shop.root / "my" / "store" / "db"))
    record = folder.stream()
    assert record is not None
    assert record.done
    bound = Bound(frontier=MARIADB.parse(record.begins), identity=record.identity, incarnation=record.incarnation)
    with pytest.raises(BinlogPastFirstRows):
        shop.source().placed("store", "db").connect(ORIGIN, bound)


def test_first_rows_whose_files_are_gone_before_all_outputs_have_them_are_lost(shop: Store) -> None:
    source = shop.source().placed("store", "db")
    subscription = source.connect(ORIGIN, Bound())
    given = None
    try:
        while given is None or not given.frontier:
            given = subscription.receive(1000, 0.1)
    finally:
        subscription.close()
    folder = SourceFolder(str(shop.root / "my" / "store" / "db"))
    record = folder.stream()
    assert record is not None
    bound = Bound(frontier=given.frontier, identity=record.identity, incarnation=record.incarnation)
    source.connect(ORIGIN, bound).close()
    folder.clear_snapshot()
    with pytest.raises(BinlogSnapshotLost):
        source.connect(ORIGIN, bound)


@pytest.mark.parametrize(
    "url", ["mysql://ada:secret@db/shop", "http://ada@db/shop", "mysql://db/shop", "mysql://a@b", 5]
)
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(TidegaugeError, match=r"TG-\d{4}") as raised:
        tg.MySqlSource(url, tables=["t"])
    assert "secret@" not in str(raised.value)
