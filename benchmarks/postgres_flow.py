"""A database into a table by key: changes a second beside a client that throws them away, and the lag behind pgbench.

The server is the tests' own. The rate: pgbench has run, and a flow on the local engine takes all of it into a Delta
table by key, from its start to its end; beside it `pg_recvlogical` writes the same messages to /dev/null. The lag:
pgbench commits 2,000 transactions a second while the flow runs. Of each the time from its commit until the epoch with
it is published, by the database's clock and the flow's, which are those of one machine.
"""

from __future__ import annotations

import subprocess
import time
from datetime import UTC
from typing import Any, Final

import numpy as np
import psycopg
import pyarrow.compute as pc
from tests.postgres import LOGICAL, Server, binaries, new_database

import tidegauge as tg
from benchmarks.figures import Figure, Goal
from benchmarks.postgres import pgbench, thrown_away
from benchmarks.room import Room

__all__ = ["measure"]

_REPETITIONS: Final = 3
_RATE: Final = 2_000
_ORDERS: Final = "id bigint PRIMARY KEY, name text, amount numeric(12, 2), at timestamptz, n int"
_ONE: Final = """\\set i random(1, 100000)
INSERT INTO orders VALUES (:i + 10000000, 'lag', 1, now(), 1) ON CONFLICT (id) DO UPDATE SET n = orders.n + 1;
"""


def measure(room: Room) -> list[Figure]:
    """Measure the rate, and the lag."""
    programs = binaries()
    if programs is None or not (programs / "pgbench").exists():
        room.say("left out: it takes PostgreSQL with pgbench, see 'make postgres'")
        return []
    server = Server(programs, settings={**LOGICAL, "max_wal_size": "8GB", "shared_buffers": "128MB"})
    try:
        return [_rate(room, server), *_lag(room, server)]
    finally:
        server.stop()


class _Bench:
    """A database with a table, and a flow that follows it."""

    def __init__(self, room: Room, server: Server) -> None:
        self.folder = room.fresh("postgres")
        self.folder.mkdir()
        self.database = new_database(server)
        self.address = server.address(self.database)
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute(f"CREATE TABLE orders ({_ORDERS})")
            connection.execute(
                "INSERT INTO orders SELECT i, 'user ' || i, 1, now(), i FROM generate_series(1, 10000) i"
            )
            connection.execute("CREATE PUBLICATION bench FOR TABLE orders")

    def flow(self, *, log: bool) -> tg.Dataflow:
        """The flow: the table by key, and a log of all changes with their times."""
        flow = tg.Dataflow("bench", store=f"sqlite:///{self.folder}/flow.db")
        source = tg.PostgresSource(
            self.address,
            publication="bench",
            tables=["orders"],
            slot=f"bench_{self.database}",
            folder=str(self.folder / "pg"),
            metadata=True,
        )
        orders = flow.source("db", source).table("orders")
        columns = orders.select("id", "name", "amount", "at", "n", "_sequence")
        sink = tg.DeltaSink(str(self.folder / "orders"), envelope="upsert", key="id", order="_sequence")
        flow.sink("orders", columns, sink)
        if log:
            flow.sink("log", orders.changelog("op"), tg.ParquetSink(str(self.folder / "log")))
        return flow


def _rate(room: Room, server: Server) -> Figure:
    """Return how fast a flow takes what pgbench has written, from its start on."""
    small = room.size(40_000, 1_000)
    ours, peer = list[float](), list[float]()
    for number in range(room.size(_REPETITIONS, 1)):
        room.say(f"{small:,} transactions into a table by key, {number + 1}")
        bench = _Bench(room, server)
        bench.flow(log=False).run(until="caught-up", engine="local")
        slot = f"bench_{bench.database}_peer"
        with psycopg.connect(bench.address, autocommit=True) as connection:
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
        changes = pgbench(server, bench.address, bench.folder, small)
        begun = time.perf_counter()
        flow = bench.flow(log=False)
        flow.run(until="caught-up", engine="local")
        ours.append(changes / (time.perf_counter() - begun))
        peer.append(changes / thrown_away(server, bench.address, slot))
        with psycopg.connect(bench.address) as connection:
            [(there,)] = connection.execute("SELECT count(*) FROM orders").fetchall()
        held = tg.read_arrow(flow, "orders").num_rows
        if held != there:
            raise AssertionError(f"the table has {held} rows, and the database {there}")
        room.clear(bench.folder)
    return Figure(
        f"changes a second into a table by key, {small:,} transactions of three changes",
        "1/s",
        tuple(ours),
        tuple(peer),
        peer_name="pg_recvlogical, to /dev/null",
        goal=Goal("ratio", ">=", 0.5),
    )


def _lag(room: Room, server: Server) -> list[Figure]:
    """Return the lag of the transactions of pgbench, at a rate."""
    seconds = room.size(60, 5)
    found: list[tuple[float, float]] = []
    achieved: list[float] = []
    for number in range(room.size(_REPETITIONS, 1)):
        room.say(f"lag behind {_RATE:,} transactions a second for {seconds} s, {number + 1}")
        bench = _Bench(room, server)
        bench.flow(log=True).run(until="caught-up", engine="local")
        flow = bench.flow(log=True)
        with flow.start(engine="local"):
            script = bench.folder / "one.sql"
            script.write_text(_ONE)
            command = [server.programs / "pgbench", "-n", "-c", "8", "-R", str(_RATE), "-T", str(seconds)]
            begun = time.perf_counter()
            subprocess.run([*map(str, command), "-f", str(script), bench.address], check=True, capture_output=True)
            spent = time.perf_counter() - begun
        flow.run(until="caught-up", engine="local")
        lags = _lags(flow)
        achieved.append(len(lags) / spent)
        found.append((float(np.percentile(lags, 50)), float(np.percentile(lags, 99))))
        room.clear(bench.folder)
    said = f"at {min(achieved):,.0f} transactions a second or more"
    return [
        Figure(f"lag behind pgbench, {what}", "s", tuple(one[at] for one in found), note=said)
        for at, what in enumerate(("median", "p99"))
    ]


def _lags(flow: tg.Dataflow) -> Any:
    """Return of each transaction of pgbench the seconds from its commit until its epoch was published."""
    published = {record.epoch: record.published_at for record, _ in tg.epochs(flow)}
    rows = tg.read_arrow(flow, "log").filter(pc.field("name") == "lag").select(["_timestamp", "_epoch"]).to_pydict()
    times = (at.astimezone(UTC) for at in rows["_timestamp"])
    pairs = zip(rows["_epoch"], times, strict=True)
    return np.array([(published[epoch] - at).total_seconds() for epoch, at in pairs])
