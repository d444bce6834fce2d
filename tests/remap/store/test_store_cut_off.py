"""A driver that loses its network to the server: it does not hang, and writes nothing once somebody took over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from tests.postgres import Server
from tests.remap.store.raw import dump
from tests.remap.store.wire import Wire, wire

from tidegauge.env import Env
from tidegauge.errors.store import LeaseLost
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import EXPIRY, Lease, LeaseHolder, SourceSpec, Store, silence

Rows = dict[str, list[tuple[object, ...]]]
Driver = psycopg.Connection[Any]


SOON = b"SET idle_in_transaction_session_timeout = 200"
"""From here on the server soon ends the transaction of a driver that says nothing. Until then it is patient."""


@pytest.fixture
def url(postgres: Server) -> str:
    return postgres.place()


def begin(line: Wire, url: str, env: Env) -> tuple[Store, Lease]:
    """A driver at the far end of the wire."""
    store = Store.open(line.address(url), env=env)
    lease = store.acquire("shop", holder=LeaseHolder.current(env))
    store.register(lease, sources={"orders": SourceSpec({})}, outputs={})
    return store, lease


def before_each(monkeypatch: pytest.MonkeyPatch, what: str, strike: Callable[[Driver], None]) -> None:
    """Strike, with the driver's connection, before the driver sends a statement of ours, or a commit."""
    of = psycopg.Cursor if what == "execute" else psycopg.Connection
    send = getattr(of, what)

    def sending(it: Any, *given: Any, **settings: Any) -> Any:
        if not given or "flows" in str(given[0]):  # not what asks whether the server is still there
            strike(it.connection if what == "execute" else it)
        return send(it, *given, **settings)

    monkeypatch.setattr(of, what, sending)


def bind(store: Store, lease: Lease, env: Env) -> int:
    proposals = {"orders": Proposal(frontier=Frontier({"p0": 1}))}
    return store.append(lease, expected=0, at=env.now(), proposals=proposals)


def take_over(url: str, env: Env, holder: LeaseHolder) -> Rows:
    """Take the lease on a line of one's own when it has run out; return what the store holds then."""
    store = Store.open(url, env=replace(env, now=lambda: env.now() + timedelta(seconds=EXPIRY)))
    store.acquire("shop", holder=holder)
    store.close()
    return dump(url)


@pytest.mark.parametrize("before", ["execute", "commit"])
def test_who_is_taken_over_from_while_it_was_cut_off_writes_nothing_when_it_is_back(
    postgres: Server, url: str, env: Env, elsewhere: LeaseHolder, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = threading.Event()
    with wire(postgres, "question") as line, ThreadPoolExecutor(1) as beside:
        store, lease = begin(line, url, replace(env, sleep=lambda _seconds: None))

        def strike(connection: Driver) -> None:
            if not cut.is_set():
                connection.pgconn.exec_(SOON)
                line.cut()
                cut.set()

        before_each(monkeypatch, before, strike)
        late = beside.submit(bind, store, lease, env)
        assert cut.wait(30)
        taken = take_over(url, env, elsewhere)
        assert not late.done()
        line.mend()
        with pytest.raises(LeaseLost, match="grace"):
            late.result(timeout=30)
        store.close()
    assert dump(url) == taken


def test_who_hears_nothing_any_more_tries_again_and_finds_that_it_lost_the_lease(
    postgres: Server, url: str, env: Env, elsewhere: LeaseHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, connect = list[Rows](), silence.Listener.connect
    with wire(postgres, "question") as line, monkeypatch.context() as hasty:

        def pause(_seconds: float) -> None:
            hasty.undo()
            taken.append(take_over(url, env, elsewhere))
            line.mend()

        store, lease = begin(line, url, replace(env, sleep=pause))
        line.cut()  # and from here on, until there is a pause, the driver has little patience
        hasty.setattr(silence, "PATIENCE", 0.3)
        hasty.setattr(
            silence.Listener, "connect", lambda *given, **more: connect(*given, **{**more, "connect_timeout": 2})
        )
        with pytest.raises(LeaseLost, match="grace"):
            bind(store, lease, env)
        store.close()
    assert [dump(url)] == taken


def test_a_server_that_works_for_long_is_heard_out(url: str, env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of the test's own, two thirds of the patience pass before each word."""
    store, heard, now = Store.open(url, env=env), silence.heard, 0.0

    def slowly(waiting: Any, **settings: Any) -> Generator[Any, Any, Any]:
        nonlocal now
        hearing = heard(waiting, **settings)
        try:
            wanted = next(hearing)
            while True:
                ready = yield wanted
                now += settings["patience"] * 2 / 3 if ready else 0
                wanted = hearing.send(ready)
        except StopIteration as over:
            return over.value

    monkeypatch.setattr(silence, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(silence, "heard", slowly)
    words = "SELECT pg_sleep(0.2), repeat('x', 10000) FROM generate_series(1, 5)"
    with store._database.reading() as connection:
        before = now
        assert len(connection.exec_driver_sql(words).all()) == 5
        assert now - before > 2 * silence.PATIENCE
    store.close()
