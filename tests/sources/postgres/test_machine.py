"""Random transactions, with drivers and servers killed at random: at each epoch the tables are the database's.

The oracle is the database: after each transaction its tables are read, together with the place of its log. At an
epoch whose frontier lies at such a place the tables by key must have exactly these rows. Where transactions ran side
by side nothing is known of the moments between; but each leaves the sum over both tables alone, so the sum must be
right at every epoch: half a transaction would show.

Where tables grow, some transactions add columns in their midst, and rows have values in them from then on.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.postgres import Server
from tests.sources.database.followed import at_epochs, shown
from tests.sources.postgres import driver
from tests.sources.postgres.shop import Shop
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.remap.fromtime.lsn import WAL, Lsn
from tidegauge.remap.store import Store

SUM = 100_000
LARGE = "(SELECT string_agg(md5((i * {0}::bigint)::text), '') FROM generate_series(1, 120) i)"

State = dict[str, list[tuple[Any, ...]]]


@dataclass
class Machine:
    """Two tables whose rows add up to `SUM`, and all states of theirs that are known, with the place of the log."""

    shop: Shop
    dice: random.Random
    known: list[tuple[int, int, State]] = field(default_factory=list)
    """Before, after, and the state: it was there from some place between them on."""
    fresh: int = 1000
    grows: bool = False
    """Whether columns are added."""

    def begin(self) -> None:
        for table, full in (("alpha", True), ("beta", False)):
            whole = full or self.grows  # a table that takes columns on cannot fill in what changes leave out
            self.shop.table(table, "id bigint PRIMARY KEY, n bigint, word text, large text", full=whole)
            self.shop.do(f"ALTER TABLE {table} ALTER large SET STORAGE EXTERNAL")
        self.shop.do(f"INSERT INTO alpha VALUES (1, {SUM}, 'all', NULL)")
        self.shop.do("INSERT INTO beta SELECT i, 0, 'w', NULL FROM generate_series(1, 20) i")
        self.shop.publish()
        self.known.append((0, self.at(), self.state()))

    def at(self) -> int:
        """How far the log is durable: of a server that is killed the rest is lost, and others take its places."""
        return Lsn.parse(str(self.shop.ask("SELECT pg_current_wal_flush_lsn()")[0][0])).value

    def state(self) -> State:
        more = ", jsonb_strip_nulls(to_jsonb(t) - ARRAY['id', 'n', 'word', 'large'])" if self.grows else ""
        return {
            table: self.shop.ask(f"SELECT id, n, word, md5(large){more} FROM {table} t ORDER BY id")
            for table in driver.TABLES
        }

    def held(self, rows: pa.Table) -> list[tuple[Any, ...]]:
        """The rows of a table of the flow, as `state` has them."""
        known = ["id", "n", "word", "large"]
        more = [one for one in rows.column_names if one.startswith("more") and self.grows]
        found: list[tuple[Any, ...]] = []
        for row in rows.select([*known, *more]).to_pylist():
            values = {name: row[name] for name in more if row[name] is not None}
            found.append((*shown(row), values) if self.grows else shown(row))
        return sorted(found, key=lambda row: int(row[0]))

    def alone(self) -> None:
        """One transaction, with nobody beside it."""
        before = self.at()
        with psycopg.connect(self.shop.address) as connection:
            self.change(connection, self.dice)
            if self.grows and self.dice.random() < 0.3:
                self.grow(connection)
        self.known.append((before, self.at(), self.state()))

    def grow(self, connection: psycopg.Connection[Any]) -> None:
        """Add a column, and go on with values in some of those that were added, in the same transaction."""
        run: Callable[..., Any] = connection.execute
        self.fresh += 1
        table, name = self.dice.choice(driver.TABLES), f"more{self.fresh}"
        again = "" if table == "alpha" else ", large = NULL"
        some = f"WHERE id IN (SELECT id FROM {table} ORDER BY random() LIMIT 3)"
        run(f"ALTER TABLE {table} ADD COLUMN {name} {self.dice.choice(['bigint', 'text'])}")
        for value in (1, 2):
            run(f"UPDATE {table} SET {name} = {value}{again} {some}")
            self._move(connection, self.dice)
        run(f"INSERT INTO {table} (id, n, {name}) VALUES ({self.fresh}, 0, 7)")

    def together(self) -> None:
        """Some transactions side by side. Those that get into each other's way go, as they do."""
        before = self.at()
        seeds = [self.dice.random() for _ in range(3)]
        workers = [threading.Thread(target=self._worker, args=(seed,)) for seed in seeds]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.known.append((before, -self.at(), self.state()))
        assert sum(row[1] for rows in self.known[-1][2].values() for row in rows) == SUM

    def _worker(self, seed: float) -> None:
        dice = random.Random(seed)
        for _ in range(4):
            try:
                with psycopg.connect(self.shop.address) as connection:
                    connection.execute("SET lock_timeout = '1s'")
                    self.change(connection, dice)
            except psycopg.Error:
                pass

    def change(self, connection: psycopg.Connection[Any], dice: random.Random) -> None:
        """Some statements of one transaction, with savepoints; some or all of it may be rolled back."""
        for _ in range(dice.randint(1, 5)):
            if dice.random() < 0.3:
                connection.execute("SAVEPOINT here")
                self._move(connection, dice)
                connection.execute("ROLLBACK TO here" if dice.random() < 0.5 else "RELEASE here")
            self._move(connection, dice)
        if dice.random() < 0.15:
            connection.rollback()

    def _move(self, connection: psycopg.Connection[Any], dice: random.Random) -> None:
        one, other = dice.sample(driver.TABLES, 2)
        run: Callable[..., Any] = connection.execute
        [here] = run(f"SELECT id, n FROM {one} ORDER BY random() LIMIT 1").fetchall() or [(None, 0)]
        [there] = run(f"SELECT id, n FROM {other} ORDER BY random() LIMIT 1").fetchall() or [(None, 0)]
        if here[0] is None or there[0] is None:
            return
        self.fresh += 1
        fresh = self.fresh + int(dice.random() * 1e9) * 1000
        match dice.randint(0, 7):
            case 0 | 1:  # between rows of both tables; a value left out is in the old row, or in the table by key
                amount = dice.randint(1, 50)
                moved = run(f"UPDATE {one} SET n = n - {amount} WHERE id = {here[0]}").rowcount
                moved += run(f"UPDATE {other} SET n = n + {amount} WHERE id = {there[0]}").rowcount
                if moved != 2:
                    run("SELECT 1 / 0")  # somebody else was there first
            case 2:  # a new row, empty
                large = LARGE.format(fresh) if dice.random() < 0.5 else "NULL"
                run(f"INSERT INTO {one} VALUES ({fresh}, 0, 'it''s new, \"so\"', {large})")
            case 3:  # a row is another one now
                again = "" if one == "alpha" else ", large = NULL"  # which the row of another key has
                run(f"UPDATE {one} SET id = {fresh}{again} WHERE id = {here[0]}")
            case 4:  # what a row has goes to the other table, and the row goes
                if run(f"SELECT count(*) FROM {one}").fetchone()[0] > 2:
                    [(n,)] = run(f"DELETE FROM {one} WHERE id = {here[0]} RETURNING n").fetchall() or [(0,)]
                    moved = run(f"UPDATE {other} SET n = n + {n} WHERE id = {there[0]}").rowcount
                    if not moved:
                        run("SELECT 1 / 0")
            case 5:  # many at once
                run(f"INSERT INTO {one} SELECT {fresh} + i, 0, 'many', NULL FROM generate_series(1, 300) i")
                run(f"DELETE FROM {one} WHERE id > {fresh} AND id <= {fresh} + 290")
            case 6:  # another large value
                run(f"UPDATE {one} SET large = {LARGE.format(fresh)} WHERE id = {here[0]}")
            case _:  # there, away, and there again
                run(f"INSERT INTO {one} VALUES ({fresh}, 0, 'x', NULL)")
                run(f"DELETE FROM {one} WHERE id = {fresh}")
                run(f"INSERT INTO {one} VALUES ({fresh}, 0, 'y', NULL)")


def possible(known: list[tuple[int, int, State]], frontier: int) -> list[State] | None:
    """The states that the tables may have at a frontier; None where nobody knows.

    A frontier that is one beyond a commit is odd: records of the log begin at multiples of 8.
    """
    found = known[0][2]
    for before, after, state in known:
        if frontier >= abs(after):
            found = state
        elif frontier > before:
            if after < 0:
                return None
            return [state] if frontier % 8 == 1 else [found, state]
    return [found]


def check(machine: Machine, flow: tg.Dataflow) -> tuple[int, int]:
    """Compare at each epoch; return how many were compared with rows, and how many by their sum alone."""
    exact = summed = 0
    frontiers = bound(flow)
    for epoch, held in at_epochs(flow, driver.TABLES):
        frontier = frontiers[epoch]
        if not any(rows.num_rows for rows in held.values()):
            assert exact == 0, f"epoch {epoch} has no rows"
            continue
        assert sum(sum(rows["n"].to_pylist()) for rows in held.values()) == SUM, f"epoch {epoch}"
        summed += 1
        states = possible(machine.known, frontier)
        if states is not None:
            found = {table: machine.held(held[table]) for table in driver.TABLES}
            assert found in states, f"epoch {epoch} at {Lsn(frontier)}"
            exact += 1
    return exact, summed


def bound(flow: tg.Dataflow) -> dict[int, int]:
    """The frontier of each epoch."""
    store = Store.open(flow.store, env=tg.Env())
    table = store.load("machine").sources["db"].table
    store.close()
    return {epoch: table.frontier_at(epoch)[WAL] for epoch in range(table.upper)}


def play(
    server: Server, root: Path, seed: int, rounds: int, *, kill_server: bool, grows: bool = False
) -> tuple[int, int]:
    machine = Machine(Shop(server, root), random.Random(seed), grows=grows)
    machine.begin()
    env = {**os.environ, **({"GROWS": "yes"} if grows else {})}
    shop, dice = machine.shop, machine.dice
    command = [sys.executable, "-m", "tests.sources.postgres.driver", str(root), shop.dsn, shop.slot]
    for turn in range(rounds):
        running = subprocess.Popen([*command, "on"], env=env)
        try:
            if turn == 0:
                eventually(
                    lambda: stream(root) is not None and (not grows or bool(stream(root).get("point"))), within=90
                )
            for _ in range(dice.randint(2, 8)):
                machine.together() if dice.random() < 0.3 else machine.alone()
                if dice.random() < 0.4:
                    before = machine.at()
                    eventually(lambda before=before: told(root) > before - 200_000, within=120)  # type: ignore[misc]
            if kill_server and dice.random() < 0.5:
                server.kill()
                server.start()
                machine.alone()
        finally:
            running.send_signal(signal.SIGKILL)
            running.wait()
    subprocess.run([*command, "caught-up"], check=True, timeout=180, env=env)
    flow = driver.make(root, shop.dsn, shop.slot, schema="add" if grows else "strict")
    final = {table: machine.held(tg.read_arrow(flow, table)) for table in driver.TABLES}
    assert final == machine.state()
    return check(machine, flow)


def stream(root: Path) -> Any:
    """Where the flow's stream begins, None before that is known."""
    try:
        return json.loads((root / "pg" / "machine" / "db" / "stream.json").read_text())
    except (FileNotFoundError, ValueError):
        return None


def told(root: Path) -> int:
    """How far the server was told that everything is durable."""
    try:
        return int(json.loads((root / "pg" / "machine" / "db" / "told.json").read_text())["before"])
    except (FileNotFoundError, ValueError):
        return 0


def test_random_transactions_are_the_database_s_at_each_epoch(logical: Server, tmp_path: Path) -> None:
    exact, summed = play(logical, tmp_path, 1, 2, kill_server=False)
    assert exact >= 3
    assert summed >= exact


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 4))
def test_tables_that_grow_are_the_database_s_at_each_epoch_whoever_is_killed(
    seed: int, own_logical: Server, tmp_path: Path
) -> None:
    exact, _ = play(own_logical, tmp_path, seed, 4, kill_server=True, grows=True)
    assert exact >= 3


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 8))
def test_random_transactions_are_the_database_s_whoever_is_killed(
    seed: int, own_logical: Server, tmp_path: Path
) -> None:
    exact, _ = play(own_logical, tmp_path, seed, 6, kill_server=True)
    assert exact >= 5
