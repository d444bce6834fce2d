"""A standby takes the place of the server, under the address of before: always a loss with a name, never silence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.postgres import Server
from tests.sources.postgres.shop import Shop
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.postgressource import LogRewritten, ServerUnfit, SlotAdvanced, SlotLost
from tidegauge.errors.running import UpstreamRecreated


def followed_orders(server: Server, root: Path) -> Shop:
    """A shop whose orders are followed."""
    made = Shop(server, root)
    made.table("orders", "id int PRIMARY KEY, n int")
    made.do("INSERT INTO orders SELECT n, n FROM generate_series(1, 5) n")
    made.publish()
    made.catch_up()
    return made


@pytest.fixture
def shop(own_logical: Server, tmp_path: Path) -> Shop:
    return followed_orders(own_logical, tmp_path)


@pytest.fixture
def standby(shop: Shop) -> Iterator[Server]:
    made = shop.server.standby()
    try:
        yield made
    finally:
        made.stop()


def at(server: Server, function: str) -> str:
    return str(server.query(f"SELECT {function}()")[0][0])


def replayed(shop: Shop, standby: Server) -> None:
    """Wait until the standby has all that the server has."""
    end = at(shop.server, "pg_current_wal_flush_lsn")
    eventually(lambda: standby.query(f"SELECT pg_last_wal_replay_lsn() >= '{end}'") == [(True,)])


def moved(shop: Shop, standby: Server) -> None:
    """Have the standby stand where the server stood."""
    shop.server.kill()
    shop.address, shop.dsn = standby.address(shop.name), standby.address(shop.name)


def failure(shop: Shop) -> TidegaugeError:
    """Run the flow, whose source fails; return why."""
    flow = shop.flow()
    with pytest.raises(TidegaugeError):
        flow.run(until="caught-up", engine=tg.LocalEngine(threads=2))
    [source] = tg.status(flow).sources
    assert source.state == "failed"
    assert source.error is not None
    return source.error


def test_a_standby_that_is_not_promoted_is_named(shop: Shop, standby: Server) -> None:
    moved(shop, standby)
    with shop.flow().start(engine=tg.LocalEngine(threads=2)) as running:
        eventually(lambda: isinstance(tg.status(shop.flow()).sources[0].error, ServerUnfit))
        assert running is not None


@pytest.mark.parametrize("slot", [False, True])
def test_a_standby_that_was_promoted_is_another_upstream_whether_somebody_made_the_slot_there_or_not(
    shop: Shop, standby: Server, slot: bool
) -> None:
    replayed(shop, standby)
    moved(shop, standby)
    standby.query("SELECT pg_promote()")
    if slot:
        shop.ask(f"SELECT pg_create_logical_replication_slot('{shop.slot}', 'pgoutput')")
    shop.do("INSERT INTO orders VALUES (6, 6)")
    assert isinstance(failure(shop), UpstreamRecreated)


@pytest.mark.parametrize("slot", [False, True])
def test_a_standby_that_was_made_a_server_without_promotion_has_no_slot_or_one_that_is_too_far_on(
    shop: Shop, standby: Server, slot: bool
) -> None:
    replayed(shop, standby)
    standby.stop(stay=True)
    (standby.data / "standby.signal").unlink()
    moved(shop, standby)
    standby.start()
    shop.do("INSERT INTO orders VALUES (6, 6)")
    if slot:
        shop.ask(f"SELECT pg_create_logical_replication_slot('{shop.slot}', 'pgoutput')")
    assert isinstance(failure(shop), SlotAdvanced if slot else SlotLost)


def test_a_standby_that_lagged_behind_and_has_grown_since_has_another_log_at_the_places_that_were_read(
    shop: Shop, standby: Server
) -> None:
    replayed(shop, standby)
    standby.stop(stay=True)
    (standby.data / "standby.signal").unlink()
    fill = "CREATE TABLE other AS SELECT repeat('x', 1000) AS x FROM generate_series(1, {0})"
    shop.do(fill.format(1000))
    shop.do("INSERT INTO orders VALUES (6, 6)")
    shop.catch_up()
    known = at(shop.server, "pg_current_wal_flush_lsn")
    moved(shop, standby)
    standby.start()
    shop.ask(f"SELECT pg_create_logical_replication_slot('{shop.slot}', 'pgoutput')")
    shop.do("INSERT INTO orders VALUES (6, 66)")
    shop.do(fill.format(3000))
    shop.do("INSERT INTO orders VALUES (7, 7)")
    assert shop.ask(f"SELECT pg_current_wal_flush_lsn() > '{known}'") == [(True,)]
    assert isinstance(failure(shop), LogRewritten)
