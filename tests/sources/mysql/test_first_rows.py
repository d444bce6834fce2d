"""The transaction that reads first rows: whoever gives it up does not wait for the end of a table."""

from __future__ import annotations

import threading

import pyarrow as pa
from tests.mariadb import MariaDb
from tests.waiting import eventually

from tidegauge.sources.mysql.address import address_of
from tidegauge.sources.mysql.firstrows import rows_transaction
from tidegauge.sources.mysql.servers import MARIADB_SERVER
from tidegauge.sources.mysql.sessions import ServerPlace

ENDLESS = "seq_1_to_1000000000000"


def test_rows_that_are_given_up_are_read_no_further(mariadb: MariaDb) -> None:
    name = mariadb.new_database()
    mariadb.do("CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1)", database=name)
    place = ServerPlace(address_of(f"mysql://root@127.0.0.1:{mariadb.port}/{name}"), None)
    over = threading.Event()

    def read_a_little() -> None:
        with rows_transaction(place, MARIADB_SERVER, []) as transaction:
            rows = transaction.rows(name, ENDLESS, pa.schema([("seq", pa.int64())]), None)
            assert next(rows)[0] == (b"1",)
            rows.close()
        over.set()

    threading.Thread(target=read_a_little, daemon=True).start()
    assert over.wait(60)
    asking = (
        f"SELECT count(*) FROM information_schema.processlist WHERE info LIKE '%{ENDLESS}%' AND id <> connection_id()"
    )
    eventually(lambda: mariadb.ask(asking, name) == [(0,)])
