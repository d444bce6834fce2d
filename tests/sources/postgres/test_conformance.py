"""The source holds the laws of the kit for sources that push, on a real database."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
from tests.postgres import Server
from tests.sources.postgres.shop import Shop

from tidegauge.remap.binding import Bound
from tidegauge.remap.fromtime.lsn import Lsn
from tidegauge.remap.frontier import ORIGIN
from tidegauge.sources import PostgresSource
from tidegauge.sources.postgres.wire import commit_of
from tidegauge.sources.push.protocol import DecodedLater, PushSource
from tidegauge.testing.kit import PushBench, PushedRecord
from tidegauge.testing.kit.push_laws import PUSH_LAWS
from tidegauge.testing.kit.trial import check


def checked_by_the_type_checkers(source: PostgresSource) -> tuple[PushSource, DecodedLater]:
    """The seam in full: a method that a source lacks is a type error here."""
    return source, source


class DatabaseBench:
    """Two tables of a database, and a slot that tells where each transaction is."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.shop = Shop(server, folder)
        self.shop.table("odd", "n int PRIMARY KEY, name text")
        self.shop.table("even", "n int PRIMARY KEY, day date")
        self.shop.publish()
        self.witness = f"witness_{self.shop.name}"
        self.ask(f"SELECT pg_create_logical_replication_slot('{self.witness}', 'pgoutput')")
        self.source: PushSource = self.shop.source().placed("bench", "db")
        self.number = 0
        self.places: list[int] = []

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        return self.shop.ask(query)

    def messages(self) -> list[bytes]:
        """What the server has said since the last call."""
        options = "'proto_version', '1', 'publication_names', 'shop'"
        query = f"SELECT data FROM pg_logical_slot_get_binary_changes('{self.witness}', NULL, NULL, {options})"
        return [bytes(data) for (data,) in self.ask(query)]

    def add(self, count: int) -> Sequence[PushedRecord]:
        if not self.number:  # so that all records come by the stream
            subscription = self.source.connect(ORIGIN, Bound())
            while not (found := subscription.receive(10, 0.2)) or not found.frontier:
                pass
            subscription.close()
        taken, self.number = range(self.number, self.number + count), self.number + count
        return [self._insert(n) for n in taken]

    def _insert(self, n: int) -> PushedRecord:
        with psycopg.connect(self.shop.address) as connection:
            if n % 2:
                connection.execute("INSERT INTO odd VALUES (%s, %s)", (n, f"row {n}"))
            else:
                connection.execute("INSERT INTO even VALUES (%s, NULL)", (n,))
        [place] = [commit_of(one) for one in self.messages() if one[:1] == b"C"]
        self.places.append(place)
        row: dict[str, Any] = {"n": n, "name": f"row {n}"} if n % 2 else {"n": n, "day": None}
        row |= {"_op": "insert", "_sequence": Decimal(place << 32)}
        return PushedRecord("odd" if n % 2 else "even", "wal", place, row)

    def cut(self) -> None:
        self.ask(
            f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '{self.shop.slot}'"
        )

    def lose(self) -> None:
        self.ask(f"SELECT pg_replication_slot_advance('{self.shop.slot}', '{Lsn(self.places[1])}')")

    def spoil(self) -> bytes:
        self.shop.do("INSERT INTO even VALUES (-1, 'infinity')")
        [raw] = [one for one in self.messages() if one[:1] == b"I"]
        return raw

    def close(self) -> None:
        slots = f"FROM pg_replication_slots WHERE database = '{self.shop.name}' AND NOT active"
        self.ask(f"SELECT pg_drop_replication_slot(slot_name) {slots}")


NOT_OF_A_LOG_OF_BYTES = {"the_end_says_how_far_upstream_goes"}
"""The law wants the end to be right behind the last record. The log goes on behind a commit."""


def test_the_source_holds_the_laws_of_sources_that_push(logical: Server, tmp_path: Path) -> None:
    laws = [law for law in PUSH_LAWS if law.__name__ not in NOT_OF_A_LOG_OF_BYTES]
    report = check(
        "source",
        PushBench,
        laws,
        lambda folder: DatabaseBench(logical, folder),
        deadline=240,
        put=lambda bench, _folder: bench,
    )
    report.require()
    held = [finding.name for finding in report.findings if finding.held]
    assert len(held) == 8, held
