"""`BinlogLog`: a MariaDB or a MySQL in memory: its tables, and the binary log, or the rest of it.

    a commit      is in the log with its number in its domain, or of its server, and with all that it changed
    purging       takes the oldest transactions out of the log, and leaves the tables alone
    resetting     empties the log, and counts from 1 again (RESET MASTER)
    putting back  an older copy of the server: tables and log are what they were, and go on from there
    holding up    what commits is in the log, and is sent, before others see it: until a replica has it (AFTER_SYNC)

Nothing here moves by itself: no clock, no chance, no thread.

Invariant: the rows of tables are what all transactions since the first made of them, also those that the log lost.

>>> orders = DatabaseTable("orders", ("shop", "orders"), pa.schema([("id", pa.int64())]), 30)
>>> log = BinlogLog([orders], VirtualClock(), MARIADB_SERVER)
>>> log.write([RowChange("orders", None, {"id": 5})])
>>> log.executed, log.settings()["gtid_binlog_pos"]
({'3': 2}, '3-57-2')
>>> log.purge({"3": 1})
>>> log.purged, [one.number for one in log.transactions]
({'3': 1}, [2])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa  # noqa: F401 - for the example

from tidegauge.sources.mysql.servers import MARIADB_SERVER, MYSQL8_SERVER, MYSQL_SERVER, ServerKind
from tidegauge.testing.simulation.clock import VirtualClock
from tidegauge.testing.simulation.upstream.database.binlog_events import BinlogTransaction, type_of
from tidegauge.testing.simulation.upstream.database.tables import (
    AddedColumn,
    DatabaseRows,
    DatabaseTable,
    Row,
    RowChange,
)

__all__ = ["BinlogLog"]

_OURS: Final = ("3", "3e11fa47-71ca-11e1-9e33-c80aa9429562")
_ELSEWHERE: Final = ("9", "a1b2c3d4-71ca-11e1-9e33-c80aa9429562")
_NUMBERS: Final = (57, 58)
_VERSIONS: Final = {
    MARIADB_SERVER.name: "10.11.19-MariaDB-log",
    MYSQL8_SERVER.name: "8.0.33",
    MYSQL_SERVER.name: "5.6.14-log",
}


class BinlogLog:
    """The server. domain: of its own transactions. database: the tables, and the
    transactions that changed them, by their numbers. transactions: those in the log. executed, purged: of each
    domain, the last number that was, and the last one that is not in the log any more.

    away: whether it answers nobody. cuts: how often all connections were cut. changes: how often there was news.
    """

    def __init__(self, tables: Sequence[DatabaseTable], clock: VirtualClock, kind: ServerKind) -> None:
        self.database = DatabaseRows(tables)
        self.clock: Final = clock
        self.kind: Final = kind
        self.domain: Final = _OURS[kind.by_sets]
        self.transactions: list[BinlogTransaction] = []
        self.executed: dict[str, int] = {}
        self.purged: dict[str, int] = {}
        self.away = False
        self.cuts = self.changes = 0
        self.reader: object = None
        """Who is sent the log."""
        self.defined: Final[Counter[str]] = Counter()
        """How often each table became another one, by their streams."""
        self.read: Final[list[tuple[str, Callable[[], bool]]]] = []
        """The streams whose tables transactions have read, each with whether that is still open."""
        self._open: Final[set[int]] = set()
        self._seen: dict[str, int] | None = None
        self._number = 0
        for table in tables:
            self.state("CREATE TABLE {}", table)

    def settings(self) -> dict[str, str]:
        """Return the variables that a source reads."""
        found = {name: wanted for name, (wanted, _) in self.kind.wanted.items()}
        found |= {"version": _VERSIONS[self.kind.name], "server_id": "57", "filters": ""}
        found |= {"server_uid": "the server", "server_uuid": _OURS[1], "gtid_domain_id": _OURS[0]}
        if not self.kind.by_sets:
            state = self._state(self.executed)
            return {**found, "gtid_binlog_pos": state, "gtid_binlog_state": state}
        sets = {"gtid_executed": self.executed, "gtid_purged": self.purged}
        return {
            **found,
            **{name: ",".join(f"{one}:1-{n}" for one, n in known.items()) for name, known in sets.items()},
        }

    def snapshot(self) -> tuple[str, dict[str, list[Row]]]:
        """Return the position of what a transaction sees that begins now, and the rows of each table there."""
        if self.kind.by_sets:
            return self.settings()[self.kind.position], {
                one: [*rows.values()] for one, rows in self.database.rows.items()
            }
        seen = self.executed if self._seen is None else self._seen
        place = seen.get(self.domain, 0) + 1
        return self._state(seen), {one: self.database.rows_at(one, place) for one in self.database.tables}

    def _state(self, executed: Mapping[str, int]) -> str:
        return ",".join(f"{one}-{self._server(one)}-{last}" for one, last in executed.items())

    @property
    def present(self) -> dict[str, DatabaseTable]:
        """The tables at present."""
        return self.database.tables_at(self.executed.get(self.domain, 0))

    @staticmethod
    def _server(domain: str) -> int:
        return _NUMBERS[domain in _ELSEWHERE]

    # What sessions of applications do.

    def begin(self) -> int:
        """Open a transaction."""
        self._number += 1
        self._open.add(self._number)
        return self._number

    def finish(self, number: int, changes: Sequence[RowChange]) -> None:
        """End a transaction, with its changes; with none where it is rolled back."""
        self._open.discard(number)
        if changes:
            self._logged(self.domain, changes=changes)

    def write(self, changes: Sequence[RowChange], *, keys: bool = False) -> None:
        """Carry out a transaction. keys: the log has the keys alone of rows that go."""
        if changes:
            self._logged(self.domain, changes=changes, keys=keys)

    def grow(self, count: int) -> None:
        """Let another server's transactions come into the log, which change none of the tables."""
        for _ in range(count):
            self._logged(_ELSEWHERE[self.kind.by_sets], statement=("elsewhere", "CREATE TABLE t (id int)"))

    def state(self, statement: str, table: DatabaseTable) -> None:
        """Carry out a statement about a table, whose name goes where it has {}."""
        database, name = table.place
        at_once = (
            not self.kind.by_sets and "ADD COLUMN" in statement
        )  # who has begun to read sees the table all the same
        self.defined[table.stream] += not (at_once or statement.startswith("ANALYZE"))
        self._logged(self.domain, statement=(database, statement.format(f"`{name}`")))

    def is_read(self, table: DatabaseTable) -> bool:
        """Whether an open transaction has read a table: an `ALTER TABLE` of it would wait."""
        self.read[:] = [(stream, still) for stream, still in self.read if still()]
        return any(stream == table.stream for stream, _ in self.read)

    def add_column(self, table: DatabaseTable, column: Any, *, early: bool) -> None:
        """Let a table have one more column. early: right behind its key."""
        shown = f"`{column.name}` {type_of(column.type).shown}{f' AFTER `{table.key}`' if early else ''}"
        self.state(f"ALTER TABLE {{}} ADD COLUMN {shown}", table)
        place = self.executed[self.domain]
        self.database.added.append(AddedColumn(place, table.stream, column, valued=False, early=early))

    def drop(self, table: DatabaseTable) -> None:
        """Take a table away."""
        self.state("DROP TABLE {}", table)
        self.database.gone[table.stream] = self.executed[self.domain]

    def _logged(
        self,
        domain: str,
        *,
        changes: Sequence[RowChange] = (),
        statement: tuple[str, str] = ("", ""),
        keys: bool = False,
    ) -> None:
        number, at = self.executed.get(domain, 0) + 1, self.clock.micros() // 1_000_000
        self.executed[domain] = number
        self.transactions.append(
            BinlogTransaction(domain, number, self._server(domain), at, tuple(changes), statement, keys)
        )
        if changes:
            self.database.commit(number, at=at * 1_000_000, number=number, changes=changes)
        self.changes += 1

    # What befalls it.

    def cut(self) -> None:
        """Cut all connections."""
        self.cuts += 1
        self.changes += 1

    def hold_up(self) -> None:
        """Let nobody see what commits from now on, but those who are sent the log."""
        self._seen = dict(self.executed)

    def let_go(self) -> None:
        """Let all that is in the log be seen."""
        self._seen = None

    def leave(self, *, killed: bool) -> None:  # noqa: ARG002 - what committed is on the disk
        """Answer nobody."""
        self.let_go()
        self.away = True
        self._open.clear()
        self.cut()

    def come_back(self) -> None:
        """Answer again."""
        self.away = False
        self.let_go()
        self.changes += 1

    def purge(self, upto: Mapping[str, int]) -> None:
        """Take the oldest transactions out of the log, as long as none is beyond a number of its domain."""
        while self.transactions:
            first = self.transactions[0]
            if first.number > upto.get(first.domain, 0):
                return
            self.purged[first.domain] = first.number
            del self.transactions[0]

    def reset(self) -> None:
        """Empty the log, and count from 1 again. Tables stay, and so do sessions; but nobody is sent the log on."""
        self.reader = None
        self.let_go()
        before = self.database
        self.database = DatabaseRows([*before.tables.values()], before.rows)
        self.database.gone.update(dict.fromkeys(before.gone, 0))
        self.database.added.extend(replace(one, place=0) for one in before.added)
        self.transactions, self.executed, self.purged = [], {}, {}
        self.changes += 1

    def put_back(self, count: int) -> None:
        """Be as before the last transactions, this many. Connections are cut."""
        self.let_go()
        kept, lost = self.transactions[: len(self.transactions) - count], self.transactions[-count:]
        for one in reversed(lost):
            self.executed[one.domain] = one.number - 1
        self.executed = {one: last for one, last in self.executed.items() if last}
        self.database = self.database.before(self.executed.get(self.domain, 0) + 1)
        self.transactions = kept
        self.cut()
