"""A store that somebody else has locked is waited for, a while; a lease that was lost is not."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import tidegauge as tg
from tidegauge.errors.store import LeaseLost, StoreBusy
from tidegauge.flow import runner
from tidegauge.flow.runner import Outcome
from tidegauge.remap.store import EXPIRY
from tidegauge.remap.store.connect import PAUSES

WRITES = ("record schema", "append bindings", "publish")


@pytest.fixture(autouse=True)
def _nobody_renews(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine the lease would be renewed meanwhile, with pauses of its own."""
    monkeypatch.setattr(runner, "RENEW_EVERY", 3600.0)


@dataclass
class Shop:
    """A flow, and somebody who works on its database at one point of it."""

    root: Path
    effect: str
    intrude: Callable[[sqlite3.Connection], object]
    until: int = 10**9
    """After how many pauses of the driver the intruder lets go."""
    pauses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.root / "orders.csv").write_text("id,name\n1,a\n2,b\n")
        self.intruder: sqlite3.Connection | None = None
        self.came = False

    @property
    def flow(self) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=f"sqlite:///{self.root}/shop.db?timeout=0.01", tick=0.01)
        orders = flow.source("orders", tg.FileSource(str(self.root / "orders.csv"), format=tg.Csv()))
        flow.sink("orders", orders, tg.DeltaSink(str(self.root / "lake")))
        return flow

    def point(self, name: str) -> None:
        if name == f"before {self.effect}" and not self.came:
            self.came = True
            self.intruder = sqlite3.connect(self.root / "shop.db", isolation_level=None, check_same_thread=False)
            self.intrude(self.intruder)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if len(self.pauses) == self.until:
            self.leave()

    def leave(self) -> None:
        assert self.intruder is not None
        self.intruder.close()

    def run(self, *, later: float = 0.0) -> Outcome:
        env = tg.Env(point=self.point, sleep=self.sleep, now=lambda: datetime.now(UTC) + timedelta(seconds=later))
        return self.flow.run("caught-up", engine="local", env=env)

    def rows(self) -> list[int]:
        return sorted(tg.read_arrow(self.flow, "orders").column("id").to_pylist())


def lock(intruder: sqlite3.Connection) -> None:
    intruder.execute("BEGIN IMMEDIATE")


def rob(intruder: sqlite3.Connection) -> None:
    """Take the lease over, as a driver on another machine would."""
    intruder.execute("UPDATE leases SET token = ?", ("f" * 32,))


@pytest.mark.parametrize("effect", [*WRITES, "release lease"])
def test_a_store_that_is_locked_for_a_while_is_waited_for_with_growing_pauses(effect: str, tmp_path: Path) -> None:
    shop = Shop(tmp_path, effect, lock, until=3)
    assert shop.run().why == "caught up"
    assert shop.pauses == list(PAUSES[:3])
    assert shop.rows() == [1, 2]
    assert tg.status(shop.flow).running == ""


@pytest.mark.parametrize("effect", WRITES)
def test_a_store_that_stays_locked_stops_the_flow_with_nothing_half_done(effect: str, tmp_path: Path) -> None:
    shop = Shop(tmp_path, effect, lock)
    with pytest.raises(StoreBusy):
        shop.run()
    assert shop.pauses == list(PAUSES), "the lease is not waited for once more"
    shop.leave()
    assert shop.run(later=EXPIRY).why == "caught up", "the lease could not be given back either: it runs out"
    assert shop.rows() == [1, 2]
    assert len(shop.pauses) == len(PAUSES)


@pytest.mark.parametrize("effect", WRITES)
def test_a_lost_lease_stops_the_flow_at_once(effect: str, tmp_path: Path) -> None:
    shop = Shop(tmp_path, effect, rob)
    with pytest.raises(LeaseLost):
        shop.run()
    assert shop.pauses == []
    shop.leave()
