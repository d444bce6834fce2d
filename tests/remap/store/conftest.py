"""Stores of both kinds, each empty, a clock that stands still until it is moved, and drivers that are told apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.postgres import Server

from tidegauge.env import Env
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import Lease, LeaseHolder, SourceSpec, Store
from tidegauge.remap.store.postgres import Postgres


class Clock:
    def __init__(self) -> None:
        self.time = datetime(2026, 11, 20, 17, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def pass_by(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def _no_other_clock(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Time passes by the clock of the test, unless that is about the server's own."""
    if request.node.get_closest_marker("server_clock") is None:
        monkeypatch.setattr(Postgres, "now", lambda _self, _connection: None)


@pytest.fixture
def env(clock: Clock) -> Env:
    return Env(now=clock)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """Gives addresses of stores that are not there yet: files, then schemas on a real server."""
    if request.param == "sqlite":
        return lambda name: f"sqlite:///{tmp_path}/{name}.db"
    server: Server = request.getfixturevalue("postgres")
    return lambda _name: server.place()


@pytest.fixture
def url(place: Callable[[str], str]) -> str:
    return place("store")


@pytest.fixture
def another_url(place: Callable[[str], str]) -> str:
    return place("another")


@pytest.fixture
def opened(url: str, env: Env) -> Iterator[Callable[[], Store]]:
    """Opens the store once more, each time on connections of its own."""
    stores: list[Store] = []

    def open_again() -> Store:
        stores.append(Store.open(url, env=env))
        return stores[-1]

    yield open_again
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Callable[[], Store]) -> Store:
    return opened()


@pytest.fixture
def elsewhere(env: Env) -> LeaseHolder:
    """A driver on another machine, of whose process nothing can be known."""
    return replace(LeaseHolder.current(env), name="grace", host="elsewhere", pid=4711, run="e" * 32)


@pytest.fixture
def lease(store: Store, env: Env) -> Lease:
    """The lease of the flow `shop`, with the sources `orders` and `clicks`."""
    taken = store.acquire("shop", holder=LeaseHolder.current(env))
    store.register(taken, sources={"orders": SourceSpec({}), "clicks": SourceSpec({})}, outputs={})
    return taken


@pytest.fixture
def bind(store: Store, lease: Lease, clock: Clock) -> Callable[[int, dict[str, int]], int]:
    """Binds the next epoch of `orders`, which must be the given one."""

    def append(expected: int, positions: dict[str, int]) -> int:
        proposal = Proposal(frontier=Frontier(positions))
        return store.append(lease, expected=expected, at=clock(), proposals={"orders": proposal})

    return append
