"""The network between a flow and its database: cut at any byte, or silent. Each change comes once."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.lines import Line, line_to
from tests.mariadb import MariaDb
from tests.postgres import Server
from tests.sources.database.followed import log
from tests.sources.mysql.store import Store
from tests.sources.postgres.shop import Shop
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.sources.mysql import dump
from tidegauge.sources.postgres import replication

pytestmark = pytest.mark.long

ROUNDS = 30
ROWS = 200


class LinedShop(Shop):
    """A shop whose flow reaches it over a line."""

    def over(self, line: Line) -> None:
        self.dsn = f"postgresql://postgres@127.0.0.1:{line.port}/{self.name}"


class LinedStore(Store):
    """A store whose flow reaches it over a line."""

    line: Line

    def over(self, line: Line) -> None:
        self.line = line

    @property
    def url(self) -> str:
        return f"mysql://root@127.0.0.1:{self.line.port}/{self.name}"


Lined = LinedShop | LinedStore


@pytest.fixture(params=["PostgreSQL", "MariaDB"])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Lined, int]:
    """A database with two tables, and its server's port."""
    found: Lined
    if request.param == "PostgreSQL":
        server: Server = request.getfixturevalue("logical")
        found = LinedShop(server, tmp_path)
    else:
        other: MariaDb = request.getfixturevalue("mariadb")
        found = LinedStore(other, tmp_path)
    found.table("alpha", "id bigint PRIMARY KEY, word text")
    found.table("beta", "id bigint PRIMARY KEY, word text")
    found.do(*inserts(0))
    if isinstance(found, LinedShop):
        found.publish()
    return found, found.server.port


def inserts(number: int) -> list[str]:
    """One transaction of both tables."""
    rows = [f"({number * ROWS + i}, '{'x' * 40}{i}')" for i in range(ROWS)]
    return [f"INSERT INTO {table} VALUES {', '.join(rows)}" for table in ("alpha", "beta")]


def followed(flow: tg.Dataflow, go_on: Callable[[], object]) -> None:
    """Let a flow follow until something is so."""
    with flow.start(engine=tg.LocalEngine(threads=2)):
        eventually(go_on, within=120)


def alike(there: Lined, transactions: int) -> None:
    """Check that each change is there once, and each transaction in one epoch."""
    flow = there.catch_up()
    epochs: dict[int, set[int]] = {}
    for table in ("alpha", "beta"):
        changes = log(flow, table)
        assert sorted(change["id"] for change in changes) == list(range(transactions * ROWS))
        for change in changes:
            epochs.setdefault(change["id"] // ROWS, set()).add(change["_epoch"])
        held: list[dict[str, Any]] = there.held(flow, table)
        assert held == there.there(table)
    assert all(len(found) == 1 for found in epochs.values())


def test_lines_that_are_cut_at_any_byte_lose_and_double_nothing(there: tuple[Lined, int]) -> None:
    database, port = there
    dice, declared = random.Random(7), False
    with line_to(port, cut_after=lambda: int(2 ** dice.uniform(11, 17)) if declared else None) as line:
        database.over(line)
        flow = database.flow()  # the columns are looked up at once, and who declares sees why they cannot be
        declared, written = True, 1

        def more() -> bool:
            nonlocal written
            if written < ROUNDS:
                database.do(*inserts(written))
                written += 1
            return line.cuts >= 8 and written == ROUNDS

        followed(flow, more)
    with line_to(port) as line:
        database.over(line)
        alike(database, ROUNDS)


def test_a_silent_line_is_given_up_and_another_one_taken(
    there: tuple[Lined, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replication, "SILENCE", 2.0)
    monkeypatch.setattr(dump, "SILENCE", 2.0)
    database, port = there
    with line_to(port) as line:
        database.over(line)
        before = 0

        def on() -> bool:
            nonlocal before
            if not before and (database.root / "alpha" / "_delta_log").exists():
                line.silent.set()
                database.do(*inserts(1))
                before = line.connections
            elif before and line.connections > before:
                line.silent.clear()
            return bool(before) and not line.silent.is_set()

        followed(database.flow(), on)
        alike(database, 2)
