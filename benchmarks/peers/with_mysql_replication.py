"""A binary log in mysql-replication, in its own environment: `python -m benchmarks.peers.with_mysql_replication`.

Each line of the input, `PORT GTID ROWS`, reads the log of a MariaDB from a position on until so many changes of rows
have come. It is answered by a line of JSON: the seconds that it took.
"""

from __future__ import annotations

import json
import sys
import time

from pymysqlreplication import BinLogStreamReader  # type: ignore[import-not-found]
from pymysqlreplication.row_event import (  # type: ignore[import-not-found]
    DeleteRowsEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

__all__: list[str] = []


def _seconds(port: int, gtid: str, rows: int) -> float:
    begun = time.perf_counter()
    reader = BinLogStreamReader(
        connection_settings={"host": "127.0.0.1", "port": port, "user": "root", "passwd": ""},
        server_id=4711,
        blocking=True,
        is_mariadb=True,
        auto_position=gtid,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
    )
    try:
        for event in reader:
            rows -= len(event.rows)
            if rows <= 0:
                break
    finally:
        reader.close()
    return time.perf_counter() - begun


if __name__ == "__main__":
    for line in sys.stdin:
        port, gtid, rows = line.split()
        print(json.dumps({"seconds": _seconds(int(port), gtid, int(rows))}), flush=True)
