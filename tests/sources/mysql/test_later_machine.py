"""Random transactions, while a table is added and whoever is killed: from its first epoch on it is the database's."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.mariadb import MariaDb
from tests.mysql import MySql
from tests.sources.database.followed import at_epochs, listed
from tests.sources.mysql import driver
from tests.sources.mysql.store import Store
from tests.sources.mysql.test_machine import SUM, Machine, reached
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import Store as FlowStore

pytestmark = pytest.mark.long


def check(machine: Machine, flow: tg.Dataflow) -> tuple[int, int]:
    """Compare at each epoch; return how many have both tables, and how many of these were compared by rows."""
    store = FlowStore.open(flow.store, env=tg.Env())
    bound = store.load("machine").sources["db"].table
    store.close()
    domains = {one for known in machine.known for one in known}
    both = exact = 0
    for epoch, rows in at_epochs(flow, driver.TABLES):
        frontier = Frontier({one: n for one, n in bound.frontier_at(epoch).items() if one in domains})
        there = {table: listed(found) for table, found in rows.items() if found.num_rows}
        assert "beta" in there or not both, f"epoch {epoch}: it was there"
        if "beta" in there:
            assert sum(n for found in there.values() for _, n, *_ in found) == SUM, f"epoch {epoch}"
            both += 1
        if frontier in machine.known:
            assert there == {table: machine.known[frontier][table] for table in there}, f"epoch {epoch}"
            exact += "beta" in there
    return both, exact


def die_twice(machine: Machine, command: list[str], folder: Path) -> None:
    """Have two drivers die in the midst of beta's rows, and see that the second one goes on behind the first."""
    ends = [0]
    for _ in range(2):
        died = subprocess.run(command, check=False, timeout=180, env={**os.environ, "DIES": "1000"})
        assert died.returncode == -signal.SIGKILL
        (notes,) = folder.rglob("progress.jsonl")
        said = [json.loads(line) for line in notes.read_text().splitlines() if line]
        read = [one for one in said if one.get("rows") == "beta"]
        counts = [one["piece"]["count"] for one in read]
        ends.append(int(read[-1]["upto"][0]))
        assert sum(counts) > (len(ends) - 1) * 800
        machine.shop.do("UPDATE beta SET word = concat(word, '!') WHERE id % 100 = 7")
        machine.shop.do("UPDATE beta SET id = id + 50000 WHERE id % 1000 = 11")
        machine.together()
        machine.alone()
    assert ends == sorted(set(ends))


def play(server: MariaDb, root: Path, seed: int, rounds: int) -> None:
    """Follow one table of the machine, and then both, with drivers and servers killed at random."""
    machine = Machine(Store(server, root), random.Random(seed))
    machine.begin()
    shop, dice = machine.shop, machine.dice
    shop.do(server.spoken("INSERT INTO beta SELECT seq + 100, 0, repeat('x', 100), NULL FROM seq_1_to_3000"))
    machine.note()
    command = [sys.executable, "-m", "tests.sources.mysql.driver", str(root), shop.url]
    alone = {**os.environ, "TABLES": "alpha"}
    for _ in range(2):
        subprocess.run([*command, "caught-up"], check=True, timeout=180, env=alone)
        machine.alone()
    die_twice(machine, [*command, "on"], root / "my/machine/db/later")
    joined = root / "my/machine/db/later.json"
    for turn in range(rounds):
        running = subprocess.Popen([*command, "on"])
        try:
            machine.alone()
            known = max(sum(frontier.values()) for frontier in machine.known)
            if dice.random() < 0.7:
                eventually(lambda known=known: reached(root, shop) >= known, within=60)  # type: ignore[misc]
            for _ in range(dice.randint(2, 30)):
                machine.together() if dice.random() < 0.3 else machine.alone()
                if joined.exists() and '"joined": []' not in joined.read_text() and dice.random() < 0.5:
                    break  # soon after it has joined, or before that is bound
            if turn and dice.random() < 0.4:
                server.kill() if dice.random() < 0.5 else server.stop(stay=True)
                server.start()
                machine.alone()
        finally:
            running.send_signal(signal.SIGKILL)
            running.wait()
    subprocess.run([*command, "caught-up"], check=True, timeout=180)
    flow = driver.make(root, shop.url)
    state = machine.state()
    for table in driver.TABLES:
        assert listed(tg.read_arrow(flow, table)) == state[table]
    both, exact = check(machine, flow)
    assert both >= 1
    assert exact >= 1


@pytest.mark.parametrize("seed", range(1, 4))
def test_an_added_table_is_mariadb_s_from_its_first_epoch_on_whoever_is_killed(
    seed: int, own_mariadb: MariaDb, tmp_path: Path
) -> None:
    play(own_mariadb, tmp_path, seed, 4)


def test_an_added_table_is_mysql_s_from_its_first_epoch_on_whoever_is_killed(
    own_mysql: MySql, tmp_path: Path
) -> None:
    play(own_mysql, tmp_path, 4, 3)
