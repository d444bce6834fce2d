"""Opening a store of either kind: what a new one is, and what is refused before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest
from sqlalchemy import Engine, create_engine, inspect
from tests.remap.store.raw import script, sql

from tidegauge.env import Env
from tidegauge.errors.store import NotAStore, StoreBusy, StoreFailed, StoreTooNew
from tidegauge.remap.start import StampRecord
from tidegauge.remap.store import EXPIRY, LeaseHolder, OutputSpec, Store
from tidegauge.remap.store.connect import Database
from tidegauge.remap.store.schema import LAYOUT

HERE = Path(__file__).parent


class Clock(Protocol):
    """The clock of the fixtures: it stands still until it is moved."""

    def pass_by(self, seconds: float) -> None: ...


def test_a_new_store_is_made_and_found_again(url: str, env: Env) -> None:
    assert not Store.exists(url)
    first = Store.open(url, env=env)
    lease = first.acquire("shop", holder=LeaseHolder.current(env))
    first.close()
    assert Store.exists(url)
    again = Store.open(url, env=env)
    found = again.flow("shop")
    assert found is not None
    assert (found.incarnation, found.upper, found.published, found.since) == (lease.incarnation, 0, 0, 0)
    again.close()


def test_looking_for_a_store_makes_nothing(url: str, tmp_path: Path) -> None:
    assert not Store.exists(url)
    assert list(tmp_path.iterdir()) == []
    assert shape(url) == {}


def test_a_store_of_a_newer_version_is_refused_and_left_as_it_is(url: str, env: Env) -> None:
    Store.open(url, env=env).close()
    sql(url, f"UPDATE store_layout SET version = {LAYOUT + 1}")
    sql(url, "DROP VIEW gaps")
    before = shape(url)
    with pytest.raises(StoreTooNew) as caught:
        Store.open(url, env=env)
    assert (caught.value.evidence["found"], caught.value.evidence["known"]) == (LAYOUT + 1, LAYOUT)
    assert shape(url) == before


LAYOUTS = range(1, LAYOUT + 1)


def write_layout(url: str, version: int) -> None:
    """Make the golden store of a layout: there is one of each that ever was, for either kind of database."""
    kind = "" if url.startswith("sqlite") else "_postgresql"
    script(url, (HERE / f"layout_{version}{kind}.sql").read_text(encoding="utf-8"))


def shape(url: str) -> dict[str, Any]:
    """The columns of every table (name, type, whether it may be NULL), its key, what it refers to; and the views."""
    database = create_engine(url) if url.startswith("sqlite") else Database(url)
    found: dict[str, Any] = {}
    with database.connect() if isinstance(database, Engine) else database.reading() as connection:
        look = inspect(connection)
        for table in look.get_table_names():
            columns = [(c["name"], str(c["type"]), c["nullable"], c["default"]) for c in look.get_columns(table)]
            keys = [key["constrained_columns"] for key in look.get_foreign_keys(table)]
            unique = [key["column_names"] for key in look.get_unique_constraints(table)]
            indexes = [(i["name"], i["column_names"]) for i in look.get_indexes(table)]
            key = look.get_pk_constraint(table)["constrained_columns"]
            found[table] = (columns, key, sorted(keys), sorted(unique), sorted(indexes))
        for view in look.get_view_names():
            found[view] = look.get_view_definition(view)
    database.dispose() if isinstance(database, Engine) else database.close()
    return found


@pytest.mark.parametrize("version", LAYOUTS)
def test_a_store_of_any_layout_is_brought_forward_and_keeps_what_it_holds(
    url: str, another_url: str, env: Env, clock: Clock, version: int
) -> None:
    write_layout(url, version)
    store = Store.open(url, env=env)
    loaded = store.load("shop")
    assert (loaded.flow.incarnation, loaded.flow.upper, loaded.flow.published) == ("b" * 32, 2, 1)
    assert {name: o.source for name, o in loaded.outputs.items()} == {"raw": "orders", "clicks": "clicks"}
    assert loaded.outputs["raw"].config == {"kind": "delta", "path": "/lake/raw"}
    assert loaded.outputs["raw"].failure is None
    assert [loaded.outputs[name].held for name in ("raw", "clicks")] == [1 if version >= 6 else 0, 0]
    orders, clicks = loaded.sources["orders"], loaded.sources["clicks"]
    assert (orders.table.epoch_of("p0", 4), orders.table.epoch_of("p0", 5), orders.details["p0"]["path"]) == (
        0,
        1,
        "/in/1",
    )
    assert clicks.table.sealed_at == 1
    assert clicks.failure is not None
    assert clicks.failure[0] == 1
    if version >= 2:
        failure = loaded.outputs["clicks"].failure
        assert failure is not None
        assert (failure[0], clicks.identity) == (1, "topic 7")
    assert [(s.name, s.error.code) for s in store.load("shop").stalls] == [("raw", "TG-0435")] * (version >= 5)
    filled = {name: (b.plan.cutover, b.reached, b.units[0].rows) for name, b in store.load("shop").backfills.items()}
    assert filled == ({"clicks": (1, 1, 1)} if version >= 7 else {})
    ends = [unit.end for b in store.load("shop").backfills.values() for unit in b.units]
    assert ends == [(1, "", 0)] * (version >= 7) + [(1, "c0", 3)] * (version >= 13)
    decided = store.decisions("shop")
    paused = {"clicks": frozenset({"operator"})}
    assert (decided.number, decided.paused, decided.rate) == ((3, paused, 500) if version >= 8 else (0, {}, None))
    assert [loaded.outputs[name].begins for name in ("raw", "clicks")] == [0, 1 if version >= 9 else 0]
    assert [one.epoch for one in loaded.outputs["raw"].codes] == [0] * (version >= 10)
    stamps = [loaded.outputs[name].start for name in ("raw", "clicks")]
    kept = StampRecord('"collapse"', 0) if version >= 11 else None
    assert [None if start is None else start.stamps for start in stamps] == [None, kept]
    replaced = {name: one.edition for name, one in decided.replacements.items()}
    assert replaced == ({"raw": "f" * 32} if version >= 12 else {})
    earlier = [(one.epoch, one.schema.names, dict(one.positions)) for one in orders.earlier]
    assert earlier == [(1, ["old"], {"p0": 5})] * (version >= 14)
    assert [(r.epoch, r.published_at is None) for r in store.epochs("shop")] == [(0, False), (1, True)]
    assert sql(url, "SELECT version FROM store_layout") == [(LAYOUT,)]

    clock.pass_by(EXPIRY)  # whoever ran it has not been heard of since
    lease = store.acquire("shop", holder=LeaseHolder.current(env))
    store.register(lease, sources={}, outputs={"late": OutputSpec("orders", {})})
    store.record_output_failure(lease, "late", 1, StoreBusy(url="x", detail="y"))
    assert store.load("shop").outputs["late"].failure is not None
    store.close()

    Store.open(another_url, env=env).close()
    assert shape(url) == shape(another_url)


def test_a_plan_that_layout_12_began_goes_on_in_parts_and_its_driver_goes_on_with_whole_epochs(
    url: str, env: Env, clock: Clock
) -> None:
    write_layout(url, 12)
    store = Store.open(url, env=env)
    [before] = store.load("shop").backfills["clicks"].units
    sql(
        url,
        "INSERT INTO units (flow_id, output, lower, upper, job, columns, files, rows) "
        "SELECT flow_id, output, 1, 2, job, columns, files, rows FROM units",
    )
    assert [unit.end for unit in store.load("shop").backfills["clicks"].units] == [(1, "", 0), (2, "", 0)]
    sql(url, "DELETE FROM units WHERE lower = 1")
    clock.pass_by(EXPIRY)
    lease = store.acquire("shop", holder=LeaseHolder.current(env))
    for end in ((1, "c0", 3), (1, "c0", 7), (2, "", 0)):
        store.add_unit(lease, "clicks", replace(before, lower=1, upper=end[0], partition=end[1], position=end[2]))
    assert [unit.end for unit in store.load("shop").backfills["clicks"].units] == [
        (1, "", 0),
        (1, "c0", 3),
        (1, "c0", 7),
        (2, "", 0),
    ]
    store.close()


def test_of_several_that_open_an_older_store_at_once_one_brings_it_forward(url: str, env: Env) -> None:
    write_layout(url, 1)
    with ThreadPoolExecutor(4) as threads:
        stores = list(threads.map(lambda _: Store.open(url, env=env), range(4)))
    for store in stores:
        assert store.load("shop").flow.upper == 2
        store.close()


def test_of_several_that_open_a_new_store_at_once_one_makes_it(url: str, env: Env) -> None:
    with ThreadPoolExecutor(4) as threads:
        stores = list(threads.map(lambda _: Store.open(url, env=env), range(4)))
    for store in stores:
        assert store.flow("shop") is None
        store.close()
    assert len(sql(url, "SELECT * FROM store_layout")) == 1


def test_a_store_that_cannot_be_brought_forward_in_whole_stays_as_it_is(url: str, env: Env) -> None:
    write_layout(url, 1)
    sql(url, "CREATE VIEW mine AS SELECT name, bytes FROM outputs")  # someone else's, and in the way
    before = shape(url)
    with pytest.raises(StoreFailed, match="mine"):
        Store.open(url, env=env)
    assert shape(url) == before


def test_a_database_of_something_else_is_refused(url: str, env: Env) -> None:
    sql(url, "CREATE TABLE flows (mine INTEGER)")
    before = shape(url)
    with pytest.raises(NotAStore, match="flows"):
        Store.open(url, env=env)
    assert shape(url) == before


def test_two_stores_may_be_open_on_one_file(opened: Callable[[], Store], env: Env) -> None:
    one, two = opened(), opened()
    one.acquire("shop", holder=LeaseHolder.current(env))
    assert two.flow("shop") == one.flow("shop")
