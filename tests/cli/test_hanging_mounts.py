"""A table whose file system does not answer: a pipe that nobody writes to hangs like the mount of a dead server."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.cli.conftest import Shop
from tests.remap.store.raw import sql
from tests.waiting import eventually


def hang(table: Path) -> Path:
    """Let whoever looks for the second commit of a Parquet folder hang."""
    commit = table / "from_epoch=000000000001"
    commit.mkdir()
    os.mkfifo(commit / "_manifest.json")
    return commit


@pytest.mark.long
def test_the_other_outputs_the_lease_and_ctrl_c_go_on_while_one_table_hangs(shop: Shop) -> None:
    shop.write(1)
    run = shop.start("run", "shop.py", "--engine", "local")
    run.says("published epoch 0")
    hanging = hang(shop.root / "lake" / "slow")
    orders, store = str(shop.root / "lake" / "orders"), f"sqlite:///{shop.root}/shop.db"
    for n in range(2, 5):
        shop.write(n)
        eventually(lambda rows=n: DeltaTable(orders).to_pyarrow_table().num_rows == rows)  # type: ignore[misc]
    [(renewed,)] = sql(store, "SELECT renewed_at FROM leases")
    eventually(lambda: sql(store, "SELECT renewed_at FROM leases") != [(renewed,)])
    assert "published epoch 1" not in run.err()
    run.says("output slow: stalled (a commit to output 'slow' has been under way for 30 seconds without an answer)")
    run.interrupt()
    run.says("once more to stop at once")
    run.interrupt()
    assert run.ended() == 1
    shutil.rmtree(hanging)
    shop.catch_up()
    assert [n for n, _ in shop.rows("orders")] == [n for n, _ in shop.rows("slow")] == [1, 2, 3, 4]
