"""A store that is full, or whose server is away, is waited for: the run goes on with what is durable, or stops when
somebody else has its lease by then."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.disks import fill, make_room, small_disk
from tests.flow.shop import Shop
from tests.postgres import Server
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.store import LeaseLost, StoreFull, StoreUnreachable
from tidegauge.flow.away import QUIET
from tidegauge.flow.board import Board
from tidegauge.remap.store import EXPIRY, LeaseHolder, Store


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small", size="512k") as place:
        yield place


@pytest.fixture
def shop(tmp_path: Path, small: Path) -> Shop:
    return Shop(tmp_path, small)


def test_a_full_store_is_waited_for_with_growing_delays_and_each_record_is_there_once(shop: Shop) -> None:
    run = shop.begin_full()
    store, upper = run.runner.board.store, run.runner.board.upper
    assert isinstance(store.error, StoreFull)
    assert "TG-0255" in str(store.error)
    assert str(shop.place) in str(store.error)
    shop.world.points.clear()
    for _ in range(400):  # two minutes
        shop.add()
        run.step()
        assert run.runner.ended("caught-up") is None
    assert 6 < run.runner.board.store.attempt - store.attempt < 14, "delays of up to half a minute"
    assert run.runner.board.store.since == store.since
    assert run.runner.board.upper == upper
    assert "before commit output" not in shop.world.points
    make_room(shop.place)
    run.catch_up()
    assert run.runner.board.store.error is None
    assert shop.rows() == [list(range(shop.count))] * 2
    run.abandon()


def test_a_store_that_was_full_for_hours_is_still_this_drivers_if_nobody_has_taken_it(shop: Shop) -> None:
    run = shop.begin_full()
    run.step(100 * EXPIRY)
    make_room(shop.place)
    run.catch_up()
    assert shop.rows() == [list(range(shop.count))] * 2
    run.abandon()


def test_a_driver_whose_lease_was_taken_while_the_store_was_full_stops(shop: Shop) -> None:
    run = shop.begin_full()
    shop.world.clock.seconds += EXPIRY
    make_room(shop.place)
    other = Store.open(shop.world.store, env=shop.world.env())
    lease = other.acquire("shop", holder=LeaseHolder.current(shop.world.env()))
    bound = other.load("shop").flow.upper
    with pytest.raises(LeaseLost):
        run.step(100.0)
    assert other.load("shop").flow.upper == bound
    lease.release()
    other.close()
    run.abandon()
    run = shop.world.start()
    run.catch_up()
    assert shop.rows() == [list(range(shop.count))] * 2
    run.abandon()


def test_a_run_that_is_stopped_while_its_store_is_full_ends_and_the_next_one_goes_on(shop: Shop) -> None:
    run = shop.begin_full()
    run.runner.stop()
    assert run.runner.run(None).why == "stopped"
    run.abandon()
    shop.world.clock.seconds += EXPIRY  # the lease could not be given back
    with pytest.raises(StoreFull):
        shop.world.start()
    report = tg.status(shop.flow(shop.world))
    assert report.upper < shop.count, "what can be read is shown"
    make_room(shop.place)
    run = shop.world.start()
    run.catch_up()
    assert shop.rows() == [list(range(shop.count))] * 2
    run.abandon()


def test_a_store_that_nobody_ran_into_again_is_well_after_a_while(shop: Shop) -> None:
    run = shop.begin_full()
    (shop.root / "in" / "1.jsonl").rename(shop.root / "kept")  # nothing more can be bound
    make_room(shop.place)
    run.step(60.0)
    assert run.runner.board.store.attempt
    run.step(QUIET)
    assert not run.runner.board.store.attempt
    run.abandon()


# A store on a server


class Harbour:
    """A flow whose store is on a server, and a thread that runs it."""

    def __init__(self, root: Path, store: str) -> None:
        self.root, self.store = root, store
        self.board: Board | None = None
        (root / "in").mkdir()

    @property
    def flow(self) -> tg.Dataflow:
        flow = tg.Dataflow("harbour", store=self.store, tick=0.02)
        ships = flow.source("ships", tg.FileSource(f"{self.root}/in/*.csv", format=tg.Csv("id long")))
        flow.sink("ships", ships, tg.ParquetSink(f"{self.root}/ships"))
        return flow

    def add(self, ship: int) -> None:
        made = self.root / f"{ship}.csv"
        made.write_text(f"id\n{ship}\n")
        made.rename(self.root / "in" / made.name)

    def watch(self, board: Board) -> None:
        self.board = board

    def published(self) -> int:
        return 0 if self.board is None else self.board.published

    def stalled_or_at(self, published: int) -> bool:
        return self.stalled() is not None or self.published() == published

    def stalled(self) -> Exception | None:
        return None if self.board is None else self.board.store.error

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the flow beside the block, and stop it at its end. No pause is longer than a tenth of a second."""
        env = tg.Env(sleep=lambda seconds: time.sleep(min(seconds, 0.1)))
        with self.flow.start(engine=tg.LocalEngine(threads=2), watch=self.watch, env=env):
            yield

    def ids(self) -> list[int]:
        return sorted(tg.read_arrow(self.flow, "ships").column("id").to_pylist())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delays that grow to nothing."""
    monkeypatch.setattr("tidegauge.flow.away.backoff", lambda _attempt: 0.05)


@pytest.mark.usefixtures("quick")
def test_a_server_that_is_away_for_longer_than_a_write_waits_is_waited_for(postgres: Server, tmp_path: Path) -> None:
    harbour = Harbour(tmp_path, postgres.place())
    harbour.add(1)
    with harbour.running():
        eventually(lambda: harbour.published() == 1)
        postgres.stop(stay=True)
        try:
            harbour.add(2)
            eventually(lambda: isinstance(harbour.stalled(), StoreUnreachable))
        finally:
            postgres.start()
        eventually(lambda: harbour.published() == 2)
    assert harbour.stalled() is None
    assert harbour.ids() == [1, 2]


@pytest.fixture
def tight(postgres: Server) -> Iterator[tuple[Path, str]]:
    """A disk with little room, and the address of a store whose tables are on it."""
    with small_disk(postgres.folder / "tight", size="2m") as place:
        (place / "space").mkdir()
        if os.geteuid() == 0:
            shutil.chown(place / "space", postgres.folder.owner())
        postgres.query(f"CREATE TABLESPACE tight LOCATION '{place}/space'")
        postgres.query("CREATE SCHEMA tight")
        options = quote("-csearch_path=tight -cdefault_tablespace=tight", safe="")
        try:
            yield place, postgres.address("postgres", options=options)
        finally:
            postgres.query("DROP SCHEMA tight CASCADE")
            postgres.query("DROP TABLESPACE tight")


@pytest.mark.usefixtures("quick")
def test_a_server_that_is_out_of_disk_is_waited_for(tight: tuple[Path, str], tmp_path: Path) -> None:
    disk, store = tight
    harbour = Harbour(tmp_path, store)
    harbour.add(1)
    with harbour.running():
        eventually(lambda: harbour.published() == 1)
        fill(disk)
        ship = 2
        while harbour.stalled() is None:
            harbour.add(ship)
            eventually(partial(harbour.stalled_or_at, ship))
            ship += 1
        assert isinstance(harbour.stalled(), StoreFull)
        assert "No space left on device" in str(harbour.stalled())
        make_room(disk)
        eventually(lambda: harbour.stalled() is None and harbour.published() >= ship - 1)
    assert harbour.ids() == list(range(1, ship))
