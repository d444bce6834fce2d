"""The first rows of a table of PostgreSQL into a Delta table: rows a second, beside Spark's JDBC and `COPY TO`.

The server is the tests' own, on the same machine. Ours is a flow with the local engine, from its start until it has
caught up: slot, snapshot, files, decoding, Delta. Spark reads the same table in as many partitions, by ranges of its
key, each with a snapshot of its own, and writes it as Delta; the session is there before. `psql` copies the table to
/dev/null in one connection, which is how fast the server gives rows as text.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg
import pyarrow.parquet as pq
from deltalake import DeltaTable
from tests.postgres import LOGICAL, Server, binaries, new_database

import tidegauge as tg
from benchmarks.figures import Figure, Goal
from benchmarks.processes import peaks
from benchmarks.room import Room, spark_session
from tidegauge.testing.jars import DELTA, POSTGRES, class_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["compared", "measure"]

_SPARK: Final = "Spark's JDBC reader"
_COPY: Final = "COPY TO, to /dev/null"
_REPETITIONS: Final = 3
_CONNECTIONS: Final = 2
_WITHIN_SPARK: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def measure(room: Room) -> list[Figure]:
    """Measure one table."""
    return compared(room, room.size(2_000_000, 20_000), room.size(_REPETITIONS, 1))


def compared(room: Room, rows: int, times: int) -> list[Figure]:
    """Measure a table of so many rows, so many times, each way in turn."""
    programs = binaries()
    if programs is None or not (programs / "psql").exists():
        room.say("left out: it takes PostgreSQL with psql, see 'make postgres'")
        return []
    jars = [*class_path(DELTA).split(":"), class_path(POSTGRES)]
    server = Server(programs, settings={**LOGICAL, "max_wal_size": "8GB", "shared_buffers": "128MB"})
    try:
        database = new_database(server)
        address, url = server.address(database), f"jdbc:postgresql://127.0.0.1:{server.port}/{database}"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(
                "CREATE TABLE orders (id bigint PRIMARY KEY, name text, amount numeric(12, 2), at timestamptz, n int)"
            )
            connection.execute(
                "INSERT INTO orders SELECT i, 'user ' || i, i * 0.01, now(), i FROM generate_series(1, %s) i", (rows,)
            )
            connection.execute("CREATE PUBLICATION bench FOR TABLE orders")
            connection.execute("VACUUM ANALYZE orders")
        with spark_session(jars=jars, settings=_WITHIN_SPARK) as spark:
            ways: dict[str, Callable[[], None]] = {
                "ours": lambda: _ours(address, room.fresh("ours"), rows),
                _SPARK: lambda: _jdbc(spark, url, room.fresh("spark"), rows),
                _COPY: lambda: _copied(programs, address),
            }
            ways[_SPARK]()  # its first job is slower than those that follow
            seconds: dict[str, list[float]] = {way: [] for way in ways}
            memory: dict[str, int] = dict.fromkeys(ways, 0)
            for number in range(times):
                room.say(f"{rows:,} rows, {number + 1}")
                for way, work in ways.items():
                    with peaks() as watched:
                        begun = time.perf_counter()
                        work()
                        seconds[way].append(time.perf_counter() - begun)
                    room.say(f"{way}: {seconds[way][-1]:.1f} s")
                    memory[way] = max(memory[way], watched.together["driver" if way == "ours" else "jvm"])
                    for folder in room.folder.iterdir():
                        room.clear(folder)
    finally:
        server.stop()
    rates = {way: tuple(rows / one for one in found) for way, found in seconds.items()}
    held = {way: f"{size >> 20:,} MiB" for way, size in memory.items()}
    what = f"first rows a second, {rows:,} rows to Delta"
    note = f"at most {held['ours']} resident in the driver, and {held[_SPARK]} in Spark's JVM"
    return [
        Figure(what, "1/s", rates["ours"], rates[_SPARK], peer_name=_SPARK, goal=Goal("ratio", ">=", 1.0), note=note),
        Figure(what, "1/s", rates["ours"], rates[_COPY], peer_name=_COPY),
    ]


def _ours(address: str, folder: Path, rows: int) -> None:
    folder.mkdir()
    flow = tg.Dataflow("bench", store=f"sqlite:///{folder}/flow.db")
    source = tg.PostgresSource(
        address, publication="bench", tables=["orders"], folder=str(folder / "pg"), connections=_CONNECTIONS
    )
    db = flow.source("db", source)
    flow.sink("orders", db.table("orders").changelog("op"), tg.DeltaSink(str(folder / "orders")))
    flow.run(until="caught-up", engine=tg.LocalEngine(threads=2))
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("SELECT pg_drop_replication_slot('tidegauge_bench_db')")
    _all_there(folder / "orders", rows)


def _jdbc(spark: SparkSession, url: str, folder: Path, rows: int) -> None:
    read = spark.read.format("jdbc").options(
        url=url,
        user="postgres",
        driver="org.postgresql.Driver",
        dbtable="orders",
        partitionColumn="id",
        lowerBound="1",
        upperBound=str(rows),
        numPartitions=str(_CONNECTIONS),
        fetchsize="10000",
    )
    read.load().write.format("delta").save(str(folder))
    _all_there(folder, rows)


def _copied(programs: Path, address: str) -> None:
    command: list[str | Path] = [programs / "psql", "-q", "-d", address, "-c", "COPY orders TO STDOUT"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _all_there(table: Path, rows: int) -> None:
    found = sum(pq.read_metadata(path).num_rows for path in DeltaTable(str(table)).file_uris())
    if found != rows:
        raise AssertionError(f"{table} has {found} rows, and {rows} were expected")
