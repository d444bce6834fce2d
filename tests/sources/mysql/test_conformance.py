"""The source holds the laws of the kit for sources that push, on real servers of both kinds."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.mariadb import MariaDb
from tests.mysql import MySql8
from tests.sources.mysql.store import Store
from tests.waiting import eventually

from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.sources import MySqlSource
from tidegauge.sources.push.protocol import DecodedLater, PushSource
from tidegauge.testing.kit import PushBench, PushedRecord
from tidegauge.testing.kit.push_laws import PUSH_LAWS
from tidegauge.testing.kit.trial import check

pytestmark = pytest.mark.long


def checked_by_the_type_checkers(source: MySqlSource) -> tuple[PushSource, DecodedLater]:
    """The seam in full: a method that a source lacks is a type error here."""
    return source, source


class LogBench:
    """Two tables of a database, each row in a transaction of its own."""

    def __init__(self, server: MariaDb, folder: Path) -> None:
        self.server = server
        self.shop = Store(server, folder)
        self.shop.table("odd", "n int PRIMARY KEY, name text", key="n")
        self.shop.table("even", "n int PRIMARY KEY, day date", key="n")
        self.source: PushSource = self.shop.source().placed("bench", "db")
        self.number = 0

    def add(self, count: int) -> Sequence[PushedRecord]:
        if not self.number:  # so that all records come by the stream
            subscription = self.source.connect(ORIGIN, Bound())
            while not (found := subscription.receive(10, 0.2)) or not found.frontier:
                pass
            subscription.close()
        taken, self.number = range(self.number, self.number + count), self.number + count
        return [self._insert(n) for n in taken]

    def _insert(self, n: int) -> PushedRecord:
        self.shop.do(f"INSERT INTO odd VALUES ({n}, 'row {n}')" if n % 2 else f"INSERT INTO even VALUES ({n}, NULL)")
        last, place = self.server.last()
        row: dict[str, Any] = {"n": n, "name": f"row {n}"} if n % 2 else {"n": n, "day": None}
        row |= {"_op": "insert", "_sequence": Decimal(place << 40)}
        partition = last.partition(":")[0] if ":" in last else last.partition("-")[0]
        return PushedRecord("odd" if n % 2 else "even", partition, place, row)

    def cut(self) -> None:
        for number, *_, command, _, _, _ in (row[:8] for row in self.server.ask("SHOW PROCESSLIST")):
            if str(command).startswith("Binlog Dump"):
                self.server.do(f"KILL {number}")

    def lose(self) -> None:
        def purged() -> bool:
            self.server.do("FLUSH BINARY LOGS")
            newest = self.server.ask("SHOW BINARY LOGS")[-1][0]
            self.server.do(f"PURGE BINARY LOGS TO '{newest}'")
            return len(self.server.ask("SHOW BINARY LOGS")) == 1

        eventually(purged)

    def restore(self, end: Frontier) -> None:
        assert end
        self.server.do("RESET MASTER")

    def spoil(self) -> bytes:
        self.shop.do("INSERT INTO even VALUES (-1, '0000-00-00')")
        behind = b"\0" if isinstance(self.server, MySql8) else b"\xfc"  # the bits behind the last column
        return behind + b"\xff\xff\xff\xff\0\0\0"

    def close(self) -> None:
        self.cut()


NOT_OF_A_LOG_OF_ALL_TABLES = {"the_end_says_how_far_upstream_goes"}
"""The law wants an empty log to end at the origin. This one has the transactions that made the tables."""


@pytest.mark.parametrize("kind", ["own_mariadb", "own_mysql"])
def test_the_source_holds_the_laws_of_sources_that_push(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = request.getfixturevalue(kind)
    laws = [law for law in PUSH_LAWS if law.__name__ not in NOT_OF_A_LOG_OF_ALL_TABLES]
    report = check(
        "source",
        PushBench,
        laws,
        lambda folder: LogBench(server, folder),
        deadline=240,
        put=lambda bench, _folder: bench,
    )
    report.require()
    held = [finding.name for finding in report.findings if finding.held]
    assert len(held) == 9, held
