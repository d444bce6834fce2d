"""A line that takes in every byte and passes none on, at any step: the flow finds out, connects anew, and goes on."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.postgres import Server
from tests.sources.database.followed import caught_up
from tests.sources.postgres.shop import Shop
from tests.waiting import eventually

from tidegauge.errors.postgressource import ServerAway, SlotAwaits
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import ORIGIN
from tidegauge.remap.store import silence
from tidegauge.sources.postgres import replication
from tidegauge.sources.postgres.sessions import DatabasePlace, session

STEPS = [
    (b"IDENTIFY_SYSTEM", False),
    (b"CREATE_REPLICATION_SLOT", False),
    (b"LOCK TABLE", True),
    (b"COPY (SELECT", True),
    (b"START_REPLICATION", False),
]
"""What the client says at each step, and whether the server hears it."""


class Line:
    """What is between. At each of these words a connection freezes, once: nothing passes any more, either way."""

    def __init__(self, port: int) -> None:
        self.to_freeze: list[tuple[bytes, bool]] = []
        self._to = ("127.0.0.1", port)
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._door.getsockname()[1])
        threading.Thread(target=self._open, daemon=True).start()

    def close(self) -> None:
        self._door.close()

    def _open(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._door.accept()
                server = socket.create_connection(self._to)
                threading.Thread(target=self._pass, args=(client, server), daemon=True).start()

    def _pass(self, client: socket.socket, server: socket.socket) -> None:
        frozen = False
        with client, server, suppress(OSError):
            while True:
                for one in select.select([client, server], [], [])[0]:
                    if not (data := one.recv(1 << 16)):
                        return
                    if one is client and self.to_freeze and self.to_freeze[0][0] in data:
                        frozen = True
                        if self.to_freeze.pop(0)[1]:
                            server.sendall(data)
                    if not frozen:
                        (server if one is client else client).sendall(data)


@pytest.fixture
def line(logical: Server) -> Iterator[Line]:
    found = Line(logical.port)
    yield found
    found.close()


@pytest.fixture
def shop(logical: Server, line: Line, tmp_path: Path) -> Shop:
    found = Shop(logical, tmp_path)
    found.dsn = f"postgresql://postgres@127.0.0.1:{line.port}/{found.name}"
    found.table("orders", "id bigint PRIMARY KEY, who text")
    found.publish()
    found.do("INSERT INTO orders SELECT i, 'first' FROM generate_series(1, 30) i")
    return found


def test_a_line_that_freezes_at_any_step_does_not_stall_the_flow_for_ever(
    shop: Shop, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = shop.flow()
    line.to_freeze += STEPS
    monkeypatch.setattr(silence, "PATIENCE", 1.0)
    monkeypatch.setattr(replication, "_LOOKS", 0.5)
    caught_up(flow)
    assert not line.to_freeze
    assert shop.held(flow, "orders") == shop.there("orders")


def test_a_server_that_is_silent_because_it_works_is_waited_for(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "PATIENCE", 0.3)
    place = DatabasePlace(shop.dsn, None)
    with session(place, patient=True) as connection:
        assert connection.execute("SELECT pg_sleep(1)::text").fetchone() == ("",)
    with pytest.raises(ServerAway, match="has said nothing"), session(place) as connection:
        connection.execute("SELECT pg_sleep(10)")


def test_no_setting_of_the_database_makes_a_look_wait_for_transactions_of_others(shop: Shop) -> None:
    for setting in ("isolation = 'serializable'", "deferrable = on", "read_only = on"):
        shop.server.query(f"ALTER DATABASE {shop.name} SET default_transaction_{setting}")
    with psycopg.connect(shop.address, autocommit=True) as open_for_long:
        open_for_long.execute("BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE")
        open_for_long.execute("SELECT count(*) FROM orders")
        assert list(shop.source(owner=("shop", "db")).streams) == ["orders"]
    with session(DatabasePlace(shop.dsn, None)) as connection:
        assert connection.execute("SELECT current_setting('jit')").fetchone() == ("off",)


def test_whom_the_server_waits_for_before_it_makes_the_slot_is_said(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replication, "_LOOKS", 0.1)
    with psycopg.connect(shop.address) as open_for_long:
        open_for_long.execute("INSERT INTO orders VALUES (77, 'open')")
        source = shop.source(owner=("shop", "db"))
        subscription = source.connect(ORIGIN, Bound())
        try:
            found: list[Any] = []

            def hindered() -> bool:
                received = subscription.receive(10, 0.3)
                found.append(None if received is None else received.hindered)
                return isinstance(found[-1], SlotAwaits)

            eventually(hindered)
            waited = f"process {open_for_long.info.backend_pid} (role postgres, database {shop.name})"
            assert waited in str(found[-1])
            assert f"pg_terminate_backend({open_for_long.info.backend_pid})" in str(found[-1])
            open_for_long.commit()
            eventually(lambda: (received := subscription.receive(10, 0.3)) is not None and received.rows == 1)
        finally:
            subscription.close()
