"""What one store has compiled the next one of its kind does not compile again."""

from __future__ import annotations

import gc
import weakref
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Dialect, make_url

from tidegauge.env import Env
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import LeaseHolder, SourceSpec, Store
from tidegauge.remap.store.sending import COMPILED, ROOM, CompiledStatements

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def dialect_of(kind: str) -> Dialect:
    return make_url(f"{kind}://").get_dialect()()


def used(url: str, position: int) -> Frontier:
    """Bind an epoch in a new store; return where the store says that it ends."""
    env = Env()
    store = Store.open(url, env=env)
    try:
        lease = store.acquire("shop", holder=LeaseHolder.current(env))
        store.register(lease, sources={"orders": SourceSpec({})}, outputs={})
        store.append(lease, expected=0, at=NOON, proposals={"orders": Proposal(frontier=Frontier({"p": position}))})
        return store.load("shop").sources["orders"].table.frontier
    finally:
        store.close()


def test_a_second_store_compiles_nothing_and_has_its_own_values(url: str, another_url: str) -> None:
    assert used(url, 7) == Frontier({"p": 7})
    known = {id(compiled) for compiled in COMPILED.values()}
    assert used(another_url, 9) == Frontier({"p": 9})
    assert {id(compiled) for compiled in COMPILED.values()} == known != set()


def test_compiled_statements_keep_no_file_open_that_was_left(tmp_path: Path) -> None:
    COMPILED.clear()
    store = Store.open(f"sqlite:///{tmp_path}/store.db", env=Env())
    left = weakref.ref(store._database._backend._file)  # type: ignore[attr-defined]
    assert COMPILED
    del store
    gc.collect()
    assert left() is None


def test_stores_of_different_kinds_share_nothing() -> None:
    known = CompiledStatements()
    known[dialect_of("sqlite"), "SELECT"] = "for SQLite"
    assert known.get((dialect_of("sqlite"), "SELECT")) == "for SQLite"
    assert known.get((dialect_of("postgresql+psycopg"), "SELECT")) is None


def test_what_is_kept_has_an_end() -> None:
    known, dialect = CompiledStatements(), dialect_of("sqlite")
    for number in range(ROOM + 1):
        known[dialect, number] = number
    assert len(known) == 1
    assert known.get((dialect, ROOM)) == ROOM
