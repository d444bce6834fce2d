"""The binary log of a MariaDB: changes a second of small transactions, decoded, beside mysql-replication.

The server is the tests' own. The same transactions, of three changes each, are read twice: by the source, which
decodes them to Arrow in this process, and by mysql-replication in an environment of its own, which makes a dictionary
of each row.
"""

from __future__ import annotations

import time
from typing import Any, Final

from tests.mariadb import MariaDb, program

from benchmarks.figures import Figure, Goal
from benchmarks.peers.environments import Missing, answering, replication_python
from benchmarks.room import Room
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import ORIGIN
from tidegauge.sources import MySqlSource

__all__ = ["measure"]

_REPETITIONS: Final = 3
_SMALL: Final = """
CREATE PROCEDURE small(first int, n int) BEGIN
  DECLARE i int DEFAULT first;
  WHILE i < first + n DO
    START TRANSACTION;
    INSERT INTO orders VALUES (i, 'small', 1, now(6), 1);
    UPDATE orders SET amount = amount + 1 WHERE id = i - 1000;
    UPDATE orders SET n = n + 1 WHERE id = i - 2000;
    COMMIT;
    SET i = i + 1;
  END WHILE;
END
"""


def measure(room: Room) -> list[Figure]:
    """Measure small transactions."""
    if program("mariadbd") is None:
        room.say("left out: it takes MariaDB, see 'make mariadb'")
        return []
    try:
        python = replication_python()
    except Missing as error:
        room.say(f"left out: {error}")
        return []
    server = MariaDb()
    try:
        with answering(python, "benchmarks.peers.with_mysql_replication") as peer:
            return [_figure(room, server, peer, room.size(20_000, 1_000))]
    finally:
        server.stop()


def _figure(room: Room, server: MariaDb, peer: Any, count: int) -> Figure:
    database = server.new_database()
    server.do(
        "CREATE TABLE orders (id bigint PRIMARY KEY, name text, amount decimal(12, 2), at datetime(6), n int)",
        "INSERT INTO orders SELECT seq, CONCAT('user ', seq), 1, now(6), seq FROM seq_1_to_10000",
        _SMALL,
        database=database,
    )
    ours, theirs, changes = list[float](), list[float](), 3 * count
    folder = str(room.fresh("binlog"))
    url = f"mysql://root@127.0.0.1:{server.port}/{database}"
    source = MySqlSource(url, tables=["orders"], folder=folder).placed("bench", "db")
    subscription = source.connect(ORIGIN, Bound())
    while (found := subscription.receive(1000, 0.2)) is None or not found.frontier:
        pass
    for number in range(room.size(_REPETITIONS, 1)):
        room.say(f"{count:,} transactions of three changes, {number + 1}")
        [(before,)] = server.ask("SELECT @@global.gtid_binlog_pos")
        server.do(f"CALL small({10_001 + number * count}, {count})", database=database)
        begun, left = time.perf_counter(), changes
        while left > 0:
            found = subscription.receive(65_536, 0.2)
            for stream, batch in () if found is None else found.batches:
                left -= source.decode(stream, batch, _refuse).num_rows
        ours.append(changes / (time.perf_counter() - begun))
        theirs.append(changes / peer.ask(server.port, before, changes)["seconds"])
    subscription.close()
    return Figure(
        f"changes a second, {count:,} transactions of three changes",
        "1/s",
        tuple(ours),
        tuple(theirs),
        peer_name="mysql-replication",
        goal=Goal("ratio", ">=", 10.0),
    )


def _refuse(bad: Any) -> None:
    raise AssertionError(bad)
