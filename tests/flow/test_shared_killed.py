"""Two drivers on one store, an owner and its follower, each a process that is killed at random instants."""

from __future__ import annotations

import random
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from tests.flow.shared import contents, even
from tests.forked import FORKS
from tests.postgres import Server

import tidegauge as tg
from tidegauge.errors.following import OwnerLacksSource, OwnerNotThere
from tidegauge.errors.store import FlowAlreadyRunning

OUTPUTS = ("files", "even", "rows")


def flows(root: Path, store: str) -> tuple[tg.Dataflow, tg.Dataflow]:
    shop, billing = (tg.Dataflow(name, store=store, tick=0.02) for name in ("shop", "billing"))
    source = tg.FileSource(
        f"{root}/in/*.jsonl", format=tg.Json("n long, text string"), settle=0, max_bytes_per_epoch=400
    )
    files = shop.source("files", source)
    rows = shop.source("rows", tg.GeneratorSource(rows=400, columns="n long", max_records_per_epoch=20))
    own = {"files": files, "rows": rows}
    theirs = {name: billing.source(name, tg.shared(stream)) for name, stream in own.items()}
    for flow, streams in ((shop, own), (billing, theirs)):
        lake = f"{root}/lake/{flow.name}"
        flow.sink("files", streams["files"], tg.DeltaSink(f"{lake}/files"))
        flow.sink("even", streams["files"].map_batches(even), tg.ParquetSink(f"{lake}/even"))
        flow.sink("rows", streams["rows"], tg.ParquetSink(f"{lake}/rows"))
    return shop, billing


def drive(root: Path, store: str, number: int) -> None:
    """Run one of the two until the process is killed. A follower may be there before its owner."""
    while True:
        try:
            flows(root, store)[number].run(engine=tg.LocalEngine(threads=1))
        except (OwnerNotThere, OwnerLacksSource, FlowAlreadyRunning):
            continue


def side_by_side(root: Path, store: str, *, kills: int, seed: int) -> None:
    """Let both live, write and be killed so often; then let both catch up, and see that all is there once."""
    chance = random.Random(seed)
    (root / "in").mkdir()
    written, lives = 0, list[ForkServerProcess | None]([None, None])
    try:
        for _ in range(kills):
            for number, life in enumerate(lives):
                if life is None:
                    lives[number] = FORKS.Process(target=drive, args=(root, store, number))
                    lives[number].start()  # type: ignore[union-attr]
            with (root / "in" / f"{chance.randrange(3)}.jsonl").open("a") as out:
                count = chance.randrange(1, 20)
                out.writelines(f'{{"n": {n}, "text": "t{n}"}}\n' for n in range(written, written + count))
                written += count
            time.sleep(chance.uniform(0.0, 0.7))  # the instant of death is the point of this test
            number = chance.randrange(2)
            life = lives[number]
            assert life is not None
            assert life.is_alive(), f"driver {number} ended by itself"
            life.kill()
            life.join()
            lives[number] = None
    finally:
        for life in lives:
            if life is not None:
                life.kill()
                life.join()
    for flow in flows(root, store):
        flow.run("caught-up", engine=tg.LocalEngine(threads=1))
    shop, billing = flows(root, store)
    for output in OUTPUTS:
        assert contents(shop, output) == contents(billing, output), output
    for flow in (shop, billing):
        assert tg.read_arrow(flow, "files").sort_by("n").column("n").to_pylist() == list(range(written))
        assert tg.read_arrow(flow, "rows").num_rows == 400
        assert tg.verify(flow).problems == ()
    published = tg.status(billing).published
    for epoch in {chance.randrange(published) for _ in range(5)}:
        for output in OUTPUTS:
            assert contents(shop, output, epoch) == contents(billing, output, epoch), (output, epoch)


def test_two_killed_drivers_on_one_file_agree(tmp_path: Path) -> None:
    side_by_side(tmp_path, f"sqlite:///{tmp_path}/flow.db", kills=8, seed=1)


@pytest.mark.long
def test_two_killed_drivers_on_one_server_agree(tmp_path: Path, postgres: Server) -> None:
    side_by_side(tmp_path, postgres.place(), kills=8, seed=2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_two_drivers_that_are_killed_for_long_agree(tmp_path: Path, seed: int) -> None:
    side_by_side(tmp_path, f"sqlite:///{tmp_path}/flow.db", kills=60, seed=100 + seed)
