"""Random transactions, with drivers and servers killed at random: at each epoch the tables are the database's.

The oracle is the database: after each transaction its tables are read, together with the position of its log. At an
epoch whose frontier is such a position the tables by key must have exactly these rows. Where transactions ran side by
side nothing is known of the moments between; but each leaves the sum over both tables alone, so the sum must be right
at every epoch: half a transaction would show.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
import pytest
from tests.mariadb import MariaDb
from tests.mysql import MySql
from tests.sources.database.followed import at_epochs, listed
from tests.sources.mysql import driver
from tests.sources.mysql.store import Store
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import Store as FlowStore

pytestmark = pytest.mark.long
SUM = 100_000
State = dict[str, list[tuple[Any, ...]]]


@dataclass
class Machine:
    """Two tables whose rows add up to `SUM`, and all states of theirs that are known, by the position of the log."""

    shop: Store
    dice: random.Random
    known: dict[Frontier, State] = field(default_factory=dict)
    fresh: int = 1000

    def begin(self) -> None:
        for table in driver.TABLES:
            self.shop.table(table, "id bigint PRIMARY KEY, n bigint, word varchar(50), large longtext")
        self.shop.do(f"INSERT INTO alpha VALUES (1, {SUM}, 'all', NULL)")
        self.shop.do("INSERT INTO beta SELECT seq, 0, 'w', NULL FROM seq_1_to_20")
        self.note()

    def note(self) -> None:
        self.known[self.shop.server.end()] = self.state()

    def state(self) -> State:
        return {
            table: list(self.shop.ask(f"SELECT id, n, word, md5(large) FROM {table} ORDER BY id"))
            for table in driver.TABLES
        }

    def alone(self) -> None:
        """One transaction, with nobody beside it."""
        with self.shop.server.connection(self.shop.name) as connection:
            self.change(connection, self.dice)
            connection.commit()
        self.note()

    def together(self) -> None:
        """Some transactions side by side. Those that get into each other's way go, as they do."""
        workers = [threading.Thread(target=self._worker, args=(self.dice.random(),)) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.note()
        assert sum(row[1] for rows in self.state().values() for row in rows) == SUM

    def _worker(self, seed: float) -> None:
        dice = random.Random(seed)
        for _ in range(4):
            try:
                with self.shop.server.connection(self.shop.name) as connection:
                    connection.cursor().execute("SET innodb_lock_wait_timeout = 1")
                    self.change(connection, dice)
                    connection.commit()
            except (pymysql.err.MySQLError, InterruptedError):
                pass

    def change(self, connection: Any, dice: random.Random) -> None:
        """Some statements of one transaction, with savepoints; some or all of it may be rolled back."""
        cursor = connection.cursor()
        for _ in range(dice.randint(1, 5)):
            if dice.random() < 0.3:
                cursor.execute("SAVEPOINT here")
                self._move(cursor, dice)
                cursor.execute("ROLLBACK TO here" if dice.random() < 0.5 else "RELEASE SAVEPOINT here")
            self._move(cursor, dice)
        if dice.random() < 0.15:
            connection.rollback()

    def _move(self, cursor: Any, dice: random.Random) -> None:
        one, other = dice.sample(driver.TABLES, 2)

        def run(statement: str) -> int:
            return int(cursor.execute(statement))

        def some(table: str) -> tuple[int, int]:
            run(f"SELECT id, n FROM {table} ORDER BY rand() LIMIT 1 FOR UPDATE")
            found = cursor.fetchone()
            return found or (0, 0)

        (here, n), (there, _) = some(one), some(other)
        if not here or not there:
            return
        self.fresh += 1
        fresh = self.fresh + int(dice.random() * 1e9) * 1000
        match dice.randint(0, 6):
            case 0 | 1:  # between rows of both tables
                amount = dice.randint(1, 50)
                moved = run(f"UPDATE {one} SET n = n - {amount} WHERE id = {here}")
                moved += run(f"UPDATE {other} SET n = n + {amount} WHERE id = {there}")
                if moved != 2:
                    raise InterruptedError  # somebody else was there first
            case 2:  # a new row, empty, with a large value or none
                large = f"REPEAT(md5({fresh}), {dice.choice([1, 200, 9000])})" if dice.random() < 0.5 else "NULL"
                run(f"INSERT INTO {one} VALUES ({fresh}, 0, 'it''s new, \"so\"', {large})")
            case 3:  # a row is another one now
                run(f"UPDATE {one} SET id = {fresh} WHERE id = {here}")
            case 4:  # what a row has goes to the other table, and the row goes
                run(f"SELECT count(*) FROM {one}")
                if cursor.fetchone()[0] > 2:
                    gone = run(f"DELETE FROM {one} WHERE id = {here}")
                    if gone + (run(f"UPDATE {other} SET n = n + {n} WHERE id = {there}") if n else 1) != 2:
                        raise InterruptedError
            case 5:  # many at once
                many = f"INSERT INTO {one} SELECT {fresh} + seq, 0, 'many', NULL FROM seq_1_to_300"
                run(self.shop.server.spoken(many))
                run(f"DELETE FROM {one} WHERE id > {fresh} AND id <= {fresh} + 290")
            case _:  # there, away, and there again
                run(f"INSERT INTO {one} VALUES ({fresh}, 0, 'x', NULL)")
                run(f"DELETE FROM {one} WHERE id = {fresh}")
                run(f"REPLACE INTO {one} VALUES ({fresh}, 0, 'y', NULL)")


def check(machine: Machine, flow: tg.Dataflow) -> int:
    """Compare at each epoch; return how many were compared with rows, not by their sum alone."""
    store = FlowStore.open(flow.store, env=tg.Env())
    table = store.load("machine").sources["db"].table
    store.close()
    exact = 0
    for epoch, held in at_epochs(flow, driver.TABLES):
        frontier = table.frontier_at(epoch)
        if not frontier:
            continue
        assert sum(sum(rows["n"].to_pylist()) for rows in held.values()) == SUM, f"epoch {epoch}"
        if frontier in machine.known:
            found = {name: listed(held[name]) for name in driver.TABLES}
            assert found == machine.known[frontier], f"epoch {epoch} at {frontier}"
            exact += 1
    return exact


def play(server: MariaDb, root: Path, seed: int, rounds: int, *, kill_server: bool) -> int:
    machine = Machine(Store(server, root), random.Random(seed))
    machine.begin()
    shop, dice = machine.shop, machine.dice
    command = [sys.executable, "-m", "tests.sources.mysql.driver", str(root), shop.url]
    for turn in range(rounds):
        running = subprocess.Popen([*command, "on"])
        try:
            if turn == 0:
                eventually(lambda: (root / "my" / "machine" / "db" / "stream.json").exists(), within=60)
            for _ in range(dice.randint(3, 9)):
                machine.together() if dice.random() < 0.3 else machine.alone()
                if dice.random() < 0.4:
                    known = max(sum(frontier.values()) for frontier in machine.known)
                    eventually(lambda known=known: reached(root, shop) >= known, within=60)  # type: ignore[misc]
            if kill_server and dice.random() < 0.5:
                server.kill() if dice.random() < 0.5 else server.stop(stay=True)
                server.start()
                machine.alone()
        finally:
            running.send_signal(signal.SIGKILL)
            running.wait()
    subprocess.run([*command, "caught-up"], check=True, timeout=180)
    flow = driver.make(root, shop.url)
    final = {table: listed(tg.read_arrow(flow, table)) for table in driver.TABLES}
    assert final == machine.state()
    return check(machine, flow)


def reached(root: Path, shop: Store) -> int:
    """Where the newest published epoch is: the sum of its positions."""
    try:
        flow = driver.make(root, shop.url)
        store = FlowStore.open(flow.store, env=tg.Env())
        try:
            table = store.load("machine").sources["db"].table
            return sum(table.frontier_at(table.upper - 1).values()) if table.upper else 0
        finally:
            store.close()
    except tg.TidegaugeError:
        return 0


@pytest.mark.parametrize("seed", range(1, 4))
def test_random_transactions_are_mariadb_s_at_each_epoch_whoever_is_killed(
    seed: int, own_mariadb: MariaDb, tmp_path: Path
) -> None:
    assert play(own_mariadb, tmp_path, seed, 4, kill_server=True) >= 3


def test_random_transactions_are_mysql_s_at_each_epoch_whoever_is_killed(own_mysql: MySql, tmp_path: Path) -> None:
    assert play(own_mysql, tmp_path, 4, 3, kill_server=True) >= 3
