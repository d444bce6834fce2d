"""The server's own program reads the same log (`mariadb-binlog`, `mysqlbinlog`), and finds the same changes.

Random transactions with integers, texts, nulls, changed keys, savepoints and rollbacks go into two tables. What the
program tells of the log, row by row, must be what the source gives, in one order, transaction by transaction.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.mariadb import MariaDb
from tests.mysql import MySql
from tests.sources.mysql.store import Store

from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import ORIGIN
from tidegauge.sources.protocol import BadRecord

pytestmark = pytest.mark.long
TABLES = ("alpha", "beta")
COLUMNS = ("id", "n", "word")
_BEGIN = re.compile(r"GTID (?:(\d+)-\d+-(\d+))|GTID_NEXT= '([0-9a-f-]+):(\d+)'")
_ROW = re.compile(r"### (INSERT INTO|UPDATE|DELETE FROM) `(\w+)`\.`(\w+)`")
_CELL = re.compile(r"###   @(\d+)=(.*)")
Row = tuple[Any, ...]
Change = tuple[int, str, str, Row]
"""The number of the transaction, the table, the operation, and the row."""


def program(server: MariaDb) -> str:
    if isinstance(server, MySql):
        return str(server.programs / "bin" / "mysqlbinlog")
    found = shutil.which("mariadb-binlog")
    assert found
    return found


def told(server: MariaDb, database: str) -> list[Change]:
    """What the program says of the log."""
    names = [name for name, *_ in server.ask("SHOW BINARY LOGS")]
    paths = [str(server.folder / "data" / name) for name in names]
    options = ["--no-defaults", "-v", "--base64-output=DECODE-ROWS"]
    said = subprocess.run([program(server), *options, *paths], capture_output=True, check=True).stdout
    return list(_changes(said.decode(), database))


def _changes(said: str, database: str) -> Iterator[Change]:
    number, operation, table = 0, "", ""
    images: list[list[str | None]] = []

    def made() -> Iterator[Change]:
        if not operation:
            return
        rows = [(int(str(cells[0])), None if cells[1] is None else int(cells[1]), cells[2]) for cells in images]
        if operation == "UPDATE" and rows[0][0] != rows[1][0]:
            yield number, table, "delete", rows[0]
            yield number, table, "insert", rows[1]
        else:
            word = {"INSERT INTO": "insert", "UPDATE": "update", "DELETE FROM": "delete"}[operation]
            yield number, table, word, rows[-1]

    for line in said.splitlines():
        if (begun := _BEGIN.search(line)) is not None and not line.startswith("###"):
            yield from made()
            operation, images = "", []
            number = int(begun[2] or begun[4])
        elif (row := _ROW.match(line)) is not None:
            yield from made()
            operation, table, images = (row[1] if row[2] == database else ""), row[3], []
        elif line in ("### WHERE", "### SET"):
            images.append([])
        elif (cell := _CELL.match(line)) is not None:
            images[-1].append(_value(cell[2]))
    yield from made()


def _value(text: str) -> str | None:
    """Return a value as the program writes it: '...', a number, with what follows in brackets for numbers below 0."""
    if text == "NULL":
        return None
    if text.startswith("'"):
        return text[1 : text.rindex("'")].replace("\\'", "'")  # 8.0 escapes it
    return text.split(" ")[0]


def given(shop: Store, frontier: Any) -> list[Change]:
    """What the source gives."""
    source = shop.source().placed("oracle", "db")
    found: list[tuple[int, Change]] = []
    subscription, reached = source.connect(ORIGIN, Bound()), ORIGIN
    try:
        while not frontier.less_equal(reached):
            received = subscription.receive(1000, 0.2)
            if received is None:
                continue
            reached = received.frontier
            for stream, batch in received.batches:
                for row in source.decode(stream, batch, _bad).to_pylist():
                    number = int(row["_sequence"]) >> 40
                    change = number, stream, row["_op"], tuple(row[name] for name in COLUMNS)
                    found.append((int(row["_sequence"]), change))
    finally:
        subscription.close()
    return [change for _, change in sorted(found, key=lambda one: one[0])]


def _bad(record: BadRecord) -> None:
    pytest.fail(record.message)


def write(shop: Store, dice: random.Random, count: int) -> None:
    words = ["NULL", "''", "'a'", "'äöü €'", "REPEAT('x', 300)", "'### SET'", "'it''s'"]
    with shop.server.connection(shop.name) as connection, connection.cursor() as cursor:
        for _ in range(count):
            for _ in range(dice.randint(1, 4)):
                table, id_ = dice.choice(TABLES), dice.randint(-20, 20)
                n = dice.choice(["NULL", "0", "-1", "127", "-9000000000000000000"])
                cursor.execute("SAVEPOINT here")
                match dice.randint(0, 4):
                    case 0 | 1:
                        cursor.execute(f"REPLACE INTO {table} VALUES ({id_}, {n}, {dice.choice(words)})")
                    case 2:
                        cursor.execute(f"UPDATE {table} SET n = {n}, word = {dice.choice(words)} WHERE id > {id_}")
                    case 3:
                        cursor.execute(f"DELETE FROM {table} WHERE id IN ({id_}, {id_ + 1})")
                    case _:
                        cursor.execute(f"UPDATE IGNORE {table} SET id = {dice.randint(-20, 20)} WHERE id = {id_}")
                if dice.random() < 0.2:
                    cursor.execute("ROLLBACK TO here")
            connection.commit() if dice.random() < 0.8 else connection.rollback()


def the_same_changes(server: MariaDb, root: Path) -> None:
    """Write at random; what the source gives is what the program says."""
    shop = Store(server, root)
    for table in TABLES:
        shop.table(table, "id int PRIMARY KEY, n bigint, word varchar(300)")
    first = shop.source().placed("oracle", "db").connect(ORIGIN, Bound())
    while not (received := first.receive(10, 0.2)) or not received.frontier:
        pass
    first.close()
    dice = random.Random(11)
    for _ in range(3):
        write(shop, dice, 60)
        server.do("FLUSH BINARY LOGS")
    found = given(shop, server.end())
    assert len(found) > 300
    assert found == told(server, shop.name)


@pytest.mark.parametrize("kind", ["own_mariadb", "own_mysql"])
def test_the_server_s_own_program_finds_the_same_changes_in_the_log(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    the_same_changes(request.getfixturevalue(kind), tmp_path)
