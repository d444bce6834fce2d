"""The same log, decoded by PostgreSQL's own `test_decoding` from another slot: change by change, the same rows.

Two tables: `full` with `REPLICA IDENTITY FULL`, `keyed` with its primary key. What is to come of each change follows
from the words of `test_decoding`, also for large values that an update leaves out.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from tests.postgres import Server
from tests.sources.postgres.shop import Shop

from tidegauge.errors.postgressource import UnchangedValueMissing
from tidegauge.leftout import LEFT, Mark
from tidegauge.remap.binding import Bound
from tidegauge.remap.fromtime.lsn import WAL, Lsn
from tidegauge.remap.frontier import ORIGIN
from tidegauge.sources.protocol import BadRecord

TABLES: Final = ("full", "keyed")
COLUMNS: Final = "id bigint, part int, word text, large text, n numeric, flag boolean, at timestamptz, list int[]"
NAMES: Final = [one.split()[0] for one in COLUMNS.split(", ")]
CELL: Final = re.compile(
    r"(?P<name>\w+)\[[\w \[\]]+?\]:(?:'(?P<text>(?:[^']|'')*)'|(?P<plain>unchanged-toast-datum|[^ ]+))(?: |$)", re.S
)
UNCHANGED: Final = "unchanged-toast-datum"
LARGE: Final = "(SELECT string_agg(md5((i * {0})::text), '') FROM generate_series(1, 90) i)"

Row = dict[str, Any]
Change = tuple[str, tuple[Any, ...]]


def cells(said: str) -> Row:
    found: Row = {}
    at = 0
    while at < len(said):
        cell = CELL.match(said, at)
        assert cell, said[at : at + 80]
        text, plain = cell["text"], cell["plain"]
        found[cell["name"]] = text.replace("''", "'") if text is not None else None if plain == "null" else plain
        at = cell.end()
    return found


@dataclass
class Oracle:
    """What is to come, by table: the changes of each transaction; and how many changes leave something out."""

    changes: dict[str, list[list[Change]]] = field(default_factory=lambda: {name: [] for name in TABLES})
    bad: int = 0

    def read(self, lines: list[str]) -> None:
        here: dict[str, list[Change]] = {}
        known: dict[tuple[str, str], Row] = {}
        for line in lines:
            if line.startswith("BEGIN"):
                here, known = {name: [] for name in TABLES}, {}
            elif line.startswith("COMMIT"):
                for name, found in here.items():
                    self.changes[name] += [found] if found else []
            else:
                table, kind, said = re.fullmatch(r'table public\."?(\w+)"?: (\w+): (.*)', line, re.S).groups()  # type: ignore[union-attr]
                here[table] += self._rows(table, kind, said, known)

    def _rows(self, table: str, kind: str, said: str, known: dict[tuple[str, str], Row]) -> Iterator[Change]:
        if kind == "INSERT":
            row = cells(said)
            known[table, row["id"]] = row
            yield "insert", shown(row)
        elif kind == "DELETE":
            row = cells(said)
            known.pop((table, row["id"]), None)
            yield "delete", shown({**dict.fromkeys(NAMES), **row})
        else:
            old, new = None, said
            if said.startswith("old-key: "):
                before, _, new = said.removeprefix("old-key: ").partition(" new-tuple: ")
                old = cells(before)
            row = cells(new)
            earlier = known.pop((table, row["id"] if old is None else old["id"]), {})
            if table == "full":
                earlier = old or {}
            row = {name: earlier.get(name, UNCHANGED) if one == UNCHANGED else one for name, one in row.items()}
            known[table, row["id"]] = row
            self.bad += UNCHANGED in row.values()
            if old is None:
                yield "update", shown(row)
            else:  # an unchanged value goes from the old row to the new one, and both say so
                there = {name: UNCHANGED if row[name] == UNCHANGED else None for name in NAMES}
                yield "delete", shown({**there, **old})
                yield "insert", shown(row)


def shown(row: Row) -> tuple[Any, ...]:
    return tuple(None if row[name] is None else str(row[name]) for name in NAMES)


def text(name: str, value: Any) -> Any:
    """What `test_decoding` writes for a value."""
    if name == "flag" and value is not None:
        return str(value).lower()
    return f"{value:%Y-%m-%d %H:%M:%S}+00" if name == "at" and value is not None else value


def write(shop: Shop, seed: int, transactions: int) -> None:
    dice = random.Random(seed)
    with psycopg.connect(shop.address) as connection:
        for _ in range(transactions):
            try:
                connection.execute("SET LOCAL lock_timeout = '500ms'")
                for _ in range(dice.randint(1, 6)):
                    if dice.random() < 0.2:
                        connection.execute("SAVEPOINT here")
                        change(connection, dice)
                        connection.execute("ROLLBACK TO here" if dice.random() < 0.6 else "RELEASE here")
                    change(connection, dice)
                connection.rollback() if dice.random() < 0.1 else connection.commit()
            except psycopg.Error:  # somebody else was there first
                connection.rollback()


def change(connection: Any, dice: random.Random) -> None:
    table, one, other = dice.choice(TABLES), dice.randint(1, 40), dice.randint(1, 40)
    large = dice.choice(["NULL", "'small'", LARGE.format(dice.randint(1, 99)), LARGE.format(dice.randint(1, 99))])
    word = dice.choice(["NULL", "'it''s'", "'a b: c[d]:''e'''", "''", "E'two\\nlines'", "'größer ☃'"])
    number = dice.choice(["NULL", "1.50", "-7", "12345678901234567890.123", "'NaN'"])
    at = dice.choice(["NULL", "'2026-11-28 20:00:00+00'", "'1969-07-20 20:17:40+00'"])
    values = f"{dice.randint(0, 9)}, {word}, {large}, {number}, {dice.choice(['true', 'NULL'])}, {at}, '{{1,NULL,3}}'"
    connection.execute(
        dice.choice(
            [
                f'INSERT INTO "{table}" VALUES ({one}, {values}) ON CONFLICT DO NOTHING',
                f'INSERT INTO "{table}" VALUES ({one}, {values}) ON CONFLICT (id) DO UPDATE SET part = 0, n = 7',
                f'UPDATE "{table}" SET word = {word}, n = {number} WHERE id = {one}',
                f'UPDATE "{table}" SET large = {large} WHERE id IN ({one}, {other})',
                f'UPDATE "{table}" SET part = part + 1 WHERE id <= {one}',
                f'UPDATE "{table}" SET id = {one + 100} WHERE id = {one}',
                f'DELETE FROM "{table}" WHERE id IN ({one}, {other + 100})',
            ]
        )
    )


def came(shop: Shop, subscription: Any, upto: int) -> tuple[dict[str, list[list[Change]]], list[BadRecord]]:
    """What the source gives up to a place, by table and transaction."""
    source = shop.source(metadata=True).placed("shop", "db")
    found: dict[str, list[tuple[int, Any, Change]]] = {name: [] for name in TABLES}
    bad: list[BadRecord] = []
    reached = 0
    while reached < upto:
        received = subscription.receive(1000, 0.2)
        if received is None:
            continue
        reached = received.frontier.get(WAL, 0)
        for stream, batch in received.batches:
            for row in source.decode(stream, batch, bad.append).to_pylist():
                left = Mark.decode(row[LEFT]).columns if row.get(LEFT) else ()
                said = {name: UNCHANGED if name in left else text(name, row[name]) for name in NAMES}
                found[stream].append((row["_offset"], row["_sequence"], (row["_op"], shown(said))))
    grouped: dict[str, list[list[Change]]] = {}
    for name, rows in found.items():
        assert [one for _, one, _ in rows] == sorted({one for _, one, _ in rows})
        places = sorted({lsn for lsn, _, _ in rows})
        grouped[name] = [[one for lsn, _, one in rows if lsn == place] for place in places]
    return grouped, bad


def compare(server: Server, root: Path, seed: int, *, transactions: int, writers: int) -> Oracle:
    shop = Shop(server, root)
    for table in TABLES:
        shop.table(f'"{table}"', f"{COLUMNS.replace('id bigint', 'id bigint PRIMARY KEY')}", full=table == "full")
    shop.publish()
    shop.tables = dict.fromkeys(TABLES, "id")
    subscription = shop.source(metadata=True).placed("shop", "db").connect(ORIGIN, Bound())
    try:
        while (first := subscription.receive(1000, 0.2)) is None or not first.frontier:
            pass
        shop.ask(f"SELECT pg_create_logical_replication_slot('{shop.slot}_other', 'test_decoding')")
        going = [threading.Thread(target=write, args=(shop, seed * 100 + n, transactions)) for n in range(writers)]
        for one in going:
            one.start()
        for one in going:
            one.join()
        end = Lsn.parse(shop.ask("SELECT pg_current_wal_flush_lsn()::text")[0][0]).value
        found, bad = came(shop, subscription, end)
    finally:
        subscription.close()
    oracle = Oracle()
    changes = "pg_logical_slot_get_changes(%s, NULL, NULL, 'include-xids', '0', 'skip-empty-xacts', '1')"
    with psycopg.connect(shop.address, autocommit=True) as connection:
        connection.execute("SET timezone = 'UTC'")
        lines = connection.execute(f"SELECT data FROM {changes}", (f"{shop.slot}_other",)).fetchall()
        connection.execute("SELECT pg_drop_replication_slot(%s)", (f"{shop.slot}_other",))
    oracle.read([line for (line,) in lines])
    assert found == oracle.changes
    assert [one.code for one in bad] == [UnchangedValueMissing.code] * oracle.bad
    return oracle


def test_each_change_is_the_one_that_test_decoding_tells(logical: Server, tmp_path: Path) -> None:
    oracle = compare(logical, tmp_path, 1, transactions=60, writers=1)
    assert {word for changes in oracle.changes.values() for one in changes for word, _ in one} == {
        "insert",
        "update",
        "delete",
    }
    assert oracle.bad > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 6))
def test_each_change_is_the_one_that_test_decoding_tells_whoever_writes(
    seed: int, logical: Server, tmp_path: Path
) -> None:
    compare(logical, tmp_path, seed, transactions=250, writers=3)
