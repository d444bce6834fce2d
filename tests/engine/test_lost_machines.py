"""A cluster loses an executor, then a worker with its executors, and tries slow tasks twice: every row is there once.

Meanwhile whoever reads "as of" an epoch sees that epoch, whole.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engine import clusters
from tests.engine.losses import ROUNDS, ROWS, SPECULATION, Survived, survived

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds executors by /proc"),
]

HOSTS = ("127.0.0.1", "127.0.0.2")
"""Spark begins a slow task a second time on another host only."""


@pytest.fixture(scope="module", params=["classic", "connect"])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Survived:
    folder = tmp_path_factory.mktemp(request.param)
    with clusters.standalone(folder / "cluster", hosts=HOSTS) as url:
        if request.param == "classic":
            return survived(url, folder / "shop")
        more = {**SPECULATION, "spark.executor.memory": "512m"}
        with clusters.connect_server(folder / "server", master=url, more=more) as server:
            return survived(server, folder / "shop")


def test_every_row_is_there_once(found: Survived) -> None:
    every = list(range(ROWS * len(ROUNDS)))
    assert found.ids == {"plain": every, "loud": every, "struck": every}


def test_a_slow_task_was_begun_twice_and_what_was_lost_was_done_again(found: Survived) -> None:
    assert {"2-slow.again", "3-executor.again", "4-worker.again"} <= set(found.done)


@pytest.mark.parametrize("found", ["classic"], indirect=True)
def test_readers_saw_each_epoch_whole_all_the_while(found: Survived) -> None:
    assert found.during > 0
    assert {output for output, _, _ in found.reads} == {"plain", "loud", "struck"}
    assert all(rows == found.upto[output][epoch] for output, epoch, rows in found.reads)
