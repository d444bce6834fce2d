"""Sessions with a simulated MariaDB or MySQL: looks, a transaction that reads first rows, and the sending of its log.

They answer as a real server does, with the bytes of its log, cut where `cut` has it: also in the middle of a
transaction. `meet` is called before a call does anything, and when it is done and has not answered yet
(`BINLOG_POINTS`).

Invariant: a connection that was cut, or whose client is gone, gives nothing any more.

>>> table = DatabaseTable("orders", ("shop", "orders"), pa.schema([("id", pa.int64())]), 30)
>>> server = SimulatedBinlogServer(BinlogLog([table], VirtualClock(), MARIADB_SERVER))
>>> log = server.log()
>>> log.start("", "3-1", "")
>>> [event[4] for event in log.events(0.1)], str(server.look([("shop", "orders")]).tables[0])
([162, 2], 'shop.orders')
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Final

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.mysqlsource import BinlogServerAway, BinlogServerUnfit
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.mysql.catalog import FollowedTable, ServerLook
from tidegauge.sources.mysql.keyed import RowsPart, TableKey
from tidegauge.sources.mysql.servers import MARIADB_SERVER, ServerKind  # noqa: F401 - for the example
from tidegauge.sources.mysql.sessions import error_of
from tidegauge.testing.simulation.clock import VirtualClock  # noqa: F401 - for the example
from tidegauge.testing.simulation.upstream.database.binlog import BinlogLog
from tidegauge.testing.simulation.upstream.database.binlog_events import cells, events, type_of
from tidegauge.testing.simulation.upstream.database.passing import GAP, LEAST, PassingTime
from tidegauge.testing.simulation.upstream.database.tables import DatabaseTable, Row
from tidegauge.testing.simulation.upstream.simulated import unmet

__all__ = ["BINLOG_POINTS", "SimulatedBinlogServer"]

BINLOG_POINTS: Final = (
    *("ask", "asked", "open rows", "rows are opened", "fetch rows", "rows are fetched"),
    *("dump log", "log is dumped"),
)
"""What `meet` is called with, besides the calls of a source that pushes."""
_SHOWN: Final = "the simulated database"
_CHARSETS: Final = {45: "utf8mb4", 63: "binary"}
_REFUSED: Final = 1236
_OTHER_TABLE: Final = 1412
_PAUSE: Final = 0.02
_FEW: Final = 2


def _all(count: int) -> int:
    return count


def _still_there() -> bool:
    return False


def _now(work: Callable[[], object]) -> object:
    return work()


@dataclass(frozen=True)
class SimulatedBinlogServer:
    """A server as one driver meets it.

    cut: how many of the events that are on their way come at once. together: rows that an event has at most. wait:
    returns when something is so, or after a number of seconds. gone: whether the driver is dead. spawn: begins work
    beside the driver's.
    """

    binlog: BinlogLog
    _: KW_ONLY
    cut: Callable[[int], int] = _all
    together: int = 2
    meet: Callable[[str], None] = unmet
    wait: Callable[[Callable[[], bool], float], None] | None = None
    gone: Callable[[], bool] = _still_there
    spawn: Callable[[Callable[[], object]], object] = _now

    @property
    def shown(self) -> str:
        """The server, for people."""
        return _SHOWN

    def look(self, names: Sequence[tuple[str, str]]) -> ServerLook:
        """Look at the server and at tables."""
        self.meet("ask")
        self.answer(self.binlog.cuts)
        found = ServerLook(self.binlog.settings(), _CHARSETS, self._followed(names))
        self.meet("asked")
        return found

    def _followed(self, names: Sequence[tuple[str, str]]) -> list[FollowedTable]:
        tables, gone = self.binlog.present.values(), self.binlog.database.gone
        there = {one.place: _followed(one) for one in tables if one.stream not in gone}
        return [there.get(one, FollowedTable(*one, "", "", (), (), (), ())) for one in names]

    def oldest(self) -> str:
        """Return after which transactions the log begins."""
        return str(self.binlog.purged)

    def log(self, *, beside: bool = False) -> SimulatedBinlog:
        """Begin a session. Raises `BinlogServerAway`."""
        self.answer(self.binlog.cuts)
        return SimulatedBinlog(self, beside=beside)

    @contextmanager
    def first_rows(self, kind: ServerKind, names: Sequence[tuple[str, str]]) -> Iterator[SimulatedRows]:
        """Lend a transaction that sees the tables of this instant."""
        self.meet("open rows")
        self.answer(self.binlog.cuts)
        gtids, seen = self.binlog.snapshot()
        gtids = kind.clock.render(kind.frontier(_SHOWN, gtids)) if kind.by_sets else gtids
        if not (kind.by_sets or gtids):
            detail = "it does not say which transactions are in its log"
            raise BinlogServerUnfit(source=_SHOWN, detail=detail, remedy="change any row")
        there = {one.place: one for one in self.binlog.present.values()}
        rows = {place: seen[table.stream] for place, table in there.items()}
        tables = [] if kind.named else self._followed(names)
        found = SimulatedRows(gtids, tables, self, there, rows, self.binlog.cuts, Counter(self.binlog.defined))
        if not kind.named:  # it has touched all tables
            self.binlog.read.extend((there[one].stream, found.is_open) for one in names)
        self.meet("rows are opened")
        try:
            yield found
        finally:
            found.over.append(True)

    def beside(self, name: str, work: Callable[[], object]) -> None:  # noqa: ARG002
        """Begin it beside the driver's worker; do it at once outside of a world."""
        self.spawn(work)

    @cached_property
    def clock(self) -> PassingTime:
        """The time that passes while it answers."""
        return PassingTime(self.binlog.clock, self.wait)

    def answer(self, line: int) -> None:
        """Raise `BinlogServerAway` where nobody answers, or not on this connection any more. line: its `cuts`."""
        if self.binlog.away:
            raise BinlogServerAway(source=_SHOWN, detail="nobody answers at present")
        if line != self.binlog.cuts or self.gone():
            raise BinlogServerAway(source=_SHOWN, detail="the connection was cut")


@dataclass(frozen=True)
class SimulatedRows:
    """A transaction that reads first rows, see `FirstRowsTransaction`. seen: the rows of each table. defined: how
    often each table had become another one when it began. over: has something once it is."""

    gtids: str
    tables: Sequence[FollowedTable]
    server: SimulatedBinlogServer
    there: Mapping[tuple[str, str], DatabaseTable]
    seen: Mapping[tuple[str, str], Sequence[Row]]
    line: int
    defined: Mapping[str, int]
    over: list[bool] = field(default_factory=list)

    def key(self, database: str, table: str) -> TableKey | None:  # noqa: ARG002
        """Return None: each table is read as a whole, so its rows have their numbers by the order of their coming."""
        return None

    def rows(
        self,
        database: str,
        table: str,
        columns: pa.Schema,
        part: RowsPart | None = None,  # noqa: ARG002 - there is none without a key
    ) -> Generator[Sequence[tuple[bytes | None, ...]], None, None]:
        """Yield the rows of a table, some at a time."""
        self.server.meet("fetch rows")
        place, log = (database, table), self.server.binlog
        here = self.there[place]
        if here.stream in log.database.gone or log.defined[here.stream] != self.defined[here.stream]:
            raise error_of(_SHOWN, _OTHER_TABLE, "Table definition has changed, please retry transaction")
        log.read.append((here.stream, self.is_open))
        asked = DatabaseTable(table, place, columns, here.number)
        for at in range(0, len(self.seen[place]), _FEW):
            self.server.clock.sleep(_PAUSE)
            self.server.answer(self.line)
            yield [cells(row, asked) for row in self.seen[place][at : at + _FEW]]
        self.server.meet("rows are fetched")

    def is_open(self) -> bool:
        """Whether it keeps others from changing the tables that it has read."""
        return not (self.over or self.server.gone() or self.line != self.server.binlog.cuts)


class SimulatedBinlog:
    """A session that is sent the log, see `SendingBinlog`."""

    def __init__(self, server: SimulatedBinlogServer, *, beside: bool = False) -> None:
        self.answered = False
        self._beside: Final = beside
        self._server: Final = server
        self._log: Final = server.binlog
        self._line: Final = server.binlog.cuts
        self._closed = False
        self._refused: TidegaugeError | None = None
        self._sent: dict[str, int] | None = None
        self._rest = 0.0
        """The instant from which on more of the events on their way comes."""
        self._events: Final[deque[bytes]] = deque()

    def start(self, state: str, needed: str, found: str) -> None:
        """Begin to receive all transactions after a position, of a MariaDB."""
        asked = [one.split("-") for one in state.split(",") if one]
        after = {domain: int(number) for domain, _, number in asked}
        there = self._log.executed
        if beyond := [one for one in asked if int(one[2]) > there.get(one[0], 0)]:
            said = f"connecting slave requested to start from GTID {'-'.join(beyond[0])}, which is not in the log"
            self._refused = error_of(_SHOWN, _REFUSED, said, needed, found)
        elif any(after.get(one, 0) < last for one, last in self._log.purged.items()):
            said = "Could not find GTID state requested by slave: required binlog files have been purged"
            self._refused = error_of(_SHOWN, _REFUSED, said, needed, found)
        self._begin(after)

    def start_after(self, executed: Frontier, needed: str, found: str) -> None:
        """Begin to receive all transactions that are not in a set, of a MySQL."""
        after = {domain: following - 1 for domain, following in executed.items()}
        if any(after.get(one, 0) < last for one, last in self._log.purged.items()):
            said = "the master has purged binary logs containing GTIDs that the slave requires"
            self._refused = error_of(_SHOWN, _REFUSED, said, needed, found)
        self._begin(after)

    def _begin(self, after: dict[str, int]) -> None:
        self._server.meet("dump log")
        self._server.answer(self._line)
        self._sent = after
        if not self._beside:
            self._log.reader = self
        self._server.meet("log is dumped")

    def events(self, seconds: float) -> Iterator[bytes]:
        """Yield the events that are here, and wait for the first one at most so long."""
        self._answer()
        if self._refused is not None:
            raise self._refused
        self.answered = True
        self._send()
        clock = self._server.clock
        if (left := self._rest - clock.monotonic()) > LEAST:
            clock.until(self._is_cut, min(left, max(seconds, 0.0)))
            self._answer()
            if self._rest - clock.monotonic() > LEAST:
                return
        if not self._events:
            clock.until(self._news, max(seconds, 0.0))
            self._answer()
            self._send()
        for _ in range(max(1, self._server.cut(len(self._events))) if self._events else 0):
            yield self._events.popleft()
        if self._events:
            self._rest = clock.monotonic() + GAP

    def close(self) -> None:
        """End the session."""
        self._closed = True

    def _is_cut(self) -> bool:
        return self._line != self._log.cuts

    def _news(self) -> bool:
        return self._is_cut() or bool(self._unsent())

    def _unsent(self) -> list[int]:
        sent = self._sent or {}
        found = (n for n, one in enumerate(self._log.transactions) if one.number > sent.get(one.domain, 0))
        return [*found] if self._sent is not None else []

    def _send(self) -> None:
        """Put on the way all that came into the log since."""
        for number in self._unsent():
            one = self._log.transactions[number]
            if self._sent is not None:
                self._sent[one.domain] = one.number
            tables = self._log.database.tables_at(one.number)
            made = events(one, tables, self._log.kind, together=self._server.together)
            self._events.extend(event.data for event in made)

    def _answer(self) -> None:
        self._server.answer(self._line)
        if self._closed or not (self._beside or self._log.reader is self):
            raise BinlogServerAway(source=_SHOWN, detail="another reader of this name is sent the log")


def _followed(table: DatabaseTable) -> FollowedTable:
    columns = []
    for one in table.columns:
        found = type_of(one.type)
        columns.append((one.name, found.kind, found.shown, found.precision, found.scale, found.charset))
    return FollowedTable(*table.place, "BASE TABLE", "InnoDB", columns, [table.key], [], [])
