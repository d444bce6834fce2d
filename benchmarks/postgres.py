"""The stream of a database: changes a second, received and decoded, beside a client that throws them away.

The server is the tests' own. The same changes are read from two slots, one after the other: by the source, which
decodes them to Arrow in this process, and by PostgreSQL's `pg_recvlogical`, which writes the messages to /dev/null.
Once they are one large transaction, once many small ones by pgbench; the server sends both as fast as it is read.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from typing import Any, Final

import psycopg
from tests.postgres import LOGICAL, Server, binaries, new_database

from benchmarks.figures import Figure, Goal
from benchmarks.room import Room
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import ORIGIN
from tidegauge.sources import PostgresSource

__all__ = ["measure", "pgbench", "thrown_away"]

_REPETITIONS: Final = 3
_SMALL: Final = """\\set i random(1, 1000000000)
BEGIN;
INSERT INTO orders VALUES (:i + 10000000, 'small', 1, now(), 1) ON CONFLICT DO NOTHING;
UPDATE orders SET amount = amount + 1 WHERE id = :i % 10000 + 1;
UPDATE orders SET n = n + 1 WHERE id = :i % 10000 + 1;
END;
"""


def measure(room: Room) -> list[Figure]:
    """Measure a large transaction, and many small ones."""
    programs = binaries()
    if programs is None or not (programs / "pgbench").exists():
        room.say("left out: it takes PostgreSQL with pgbench, see 'make postgres'")
        return []
    server = Server(programs, settings={**LOGICAL, "max_wal_size": "8GB", "shared_buffers": "128MB"})
    try:
        rows, small = room.size(500_000, 20_000), room.size(20_000, 1_000)
        what = {
            f"one transaction of {rows:,} rows": lambda address, _folder: _large(address, rows),
            f"{small:,} transactions of three changes": lambda address, folder: pgbench(
                server, address, folder, small
            ),
        }
        return [_figure(room, server, name, work) for name, work in what.items()]
    finally:
        server.stop()


def _figure(room: Room, server: Server, what: str, work: Callable[[str, Any], int]) -> Figure:
    ours, peer = list[float](), list[float]()
    for number in range(room.size(_REPETITIONS, 1)):
        room.say(f"{what}, {number + 1}")
        folder = room.fresh("postgres")
        folder.mkdir()
        database = new_database(server)
        address, slot = server.address(database), f"bench_{database}"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(
                "CREATE TABLE orders (id bigint PRIMARY KEY, name text, amount numeric(12, 2), at timestamptz, n int)"
            )
            connection.execute(
                "INSERT INTO orders SELECT i, 'user ' || i, 1, now(), i FROM generate_series(1, 10000) i"
            )
            connection.execute("CREATE PUBLICATION bench FOR TABLE orders")
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (f"{slot}_peer",))
        source = PostgresSource(address, publication="bench", tables=["orders"], slot=slot, folder=str(folder))
        read = _Reading(source.placed("bench", "db"))
        changes = work(address, folder)
        begun = time.perf_counter()
        read.until(changes)
        ours.append(changes / (time.perf_counter() - begun))
        peer.append(changes / thrown_away(server, address, f"{slot}_peer"))
    return Figure(
        f"changes a second, {what}",
        "1/s",
        tuple(ours),
        tuple(peer),
        peer_name="pg_recvlogical, to /dev/null",
        goal=Goal("ratio", ">=", 0.5),
    )


class _Reading:
    """A connection that has the first rows behind it."""

    def __init__(self, source: PostgresSource) -> None:
        self.source = source
        self.subscription = source.connect(ORIGIN, Bound())
        while (found := self.subscription.receive(1000, 0.2)) is None or not found.frontier:
            pass

    def until(self, changes: int) -> None:
        """Receive and decode that many changes."""
        while changes > 0:
            found = self.subscription.receive(65_536, 0.2)
            for stream, batch in () if found is None else found.batches:
                changes -= self.source.decode(stream, batch, _refuse).num_rows
        self.subscription.close()


def _refuse(bad: Any) -> None:
    raise AssertionError(bad)


def _large(address: str, rows: int) -> int:
    with psycopg.connect(address) as connection:
        connection.execute(
            "INSERT INTO orders SELECT i, 'user ' || i, i * 0.01, now(), i FROM generate_series(20001, 20000 + %s) i",
            (rows,),
        )
    return rows


def pgbench(server: Server, address: str, folder: Any, count: int) -> int:
    script = folder / "small.sql"
    script.write_text(_SMALL)
    command = [server.programs / "pgbench", "-n", "-c", "4", "-t", str(count // 4), "-f", script, address]
    subprocess.run(command, check=True, capture_output=True)
    with psycopg.connect(address) as connection:
        [(inserted,)] = connection.execute("SELECT count(*) FROM orders WHERE name = 'small'").fetchall()
    return int(inserted) + 2 * count


def thrown_away(server: Server, address: str, slot: str) -> float:
    """Return the seconds in which PostgreSQL's own client reads all that there is."""
    with psycopg.connect(address) as connection:
        [(end,)] = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchall()
    options = ["-o", "proto_version=1", "-o", "publication_names=bench", "--no-loop"]
    command = [server.programs / "pg_recvlogical", "-d", address, "-S", slot, "--start", "-E", end, "-f", os.devnull]
    begun = time.perf_counter()
    subprocess.run([*command, *options], check=True, capture_output=True)
    return time.perf_counter() - begun
