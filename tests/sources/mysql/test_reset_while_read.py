"""What may happen while the first rows are read: a log that is begun anew, limits of the server, XA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.mariadb import MariaDb
from tests.sources.mysql.store import Store
from tests.waiting import eventually

from tidegauge.errors.mysqlsource import BinlogServerAway, BinlogServerUnfit
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import Frontier

pytestmark = pytest.mark.long


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_a_reset_while_the_first_rows_are_read(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    server: Any = request.getfixturevalue(f"own_{kind}")
    store = Store(server, tmp_path)
    store.table("orders", "id int PRIMARY KEY, note text")
    store.do("INSERT INTO orders SELECT seq, repeat('x', 100) FROM seq_1_to_5000")
    source = store.source().placed("store", "db")
    subscription = source.connect(Frontier(), Bound())
    subscription.receive(10, 0.1)
    while not any((tmp_path / "my").rglob("0-*.arrows")):
        assert subscription.receive(10, 0.0001) is None
    server.do("RESET MASTER")
    for n in range(40):
        store.do(f"INSERT INTO orders VALUES ({n + 10_000}, 'new')")
    with pytest.raises(BinlogServerAway, match="another one while"):
        eventually(lambda: subscription.receive(10, 0.1) is not None)
    subscription.close()
    store.catch_up()
    assert len(store.held(store.flow(), "orders")) == 5040


LIMITS = {"sql_select_limit": 1000, "max_join_size": 1000}


def test_limits_that_the_server_sets_to_sessions_are_not_those_of_the_first_rows(
    server: MariaDb, tmp_path: Path
) -> None:
    store = Store(server, tmp_path)
    store.table("orders", "id int PRIMARY KEY, note text")
    store.do("INSERT INTO orders SELECT seq, repeat('x', 4000) FROM seq_1_to_5000")
    there = [name for (name, _) in server.ask("SHOW GLOBAL VARIABLES LIKE 'max%time'")]
    limits = {**LIMITS, **{name: 1 for name in there if name in ("max_statement_time", "max_execution_time")}}
    before = {name: server.ask(f"SELECT @@global.{name}")[0][0] for name in limits}
    idle = f"SELECT id FROM information_schema.processlist WHERE db = '{store.name}' AND command = 'Sleep'"
    with server.connection() as connection, connection.cursor() as cursor:
        for name, value in limits.items():
            cursor.execute(f"SET GLOBAL {name} = {value}")
        try:
            subscription = store.source().placed("store", "db").connect(Frontier(), Bound())
            subscription.receive(10, 0.1)
            while not any((tmp_path / "my").rglob("0-*.arrows")):
                assert subscription.receive(10, 0.0001) is None
            for (session,) in server.ask(idle):  # as after wait_timeout
                cursor.execute(f"KILL {session}")
            eventually(lambda: subscription.receive(10, 0.1) is not None)
            subscription.close()
        finally:
            for name, value in before.items():
                cursor.execute(f"SET GLOBAL {name} = {value}")
    store.catch_up()
    assert len(store.held(store.flow(), "orders")) == 5000


@pytest.mark.parametrize("kind", ["mariadb", "mysql8"])
def test_no_first_rows_are_read_while_a_transaction_is_prepared_by_xa(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    server: MariaDb = request.getfixturevalue(kind)
    store = Store(server, tmp_path)
    store.table("orders", "id int PRIMARY KEY, note text")
    store.do("INSERT INTO orders VALUES (1, 'a')")
    with server.connection(store.name) as connection, connection.cursor() as cursor:
        for statement in ("XA START 'x'", "UPDATE orders SET note = 'b'", "XA END 'x'", "XA PREPARE 'x'"):
            cursor.execute(statement)
    subscription = store.source().placed("store", "db").connect(Frontier(), Bound())
    subscription.receive(10, 0.1)
    with pytest.raises(BinlogServerUnfit, match="prepared by XA, 'x'"):
        eventually(lambda: subscription.receive(10, 0.1) is not None)
    subscription.close()
    with server.connection(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("XA COMMIT 'x'")
    assert store.held(store.catch_up(), "orders") == [{"id": 1, "note": "b"}]
