"""What holds on one version of PostgreSQL holds on each that is followed: a cross-section of the other tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.postgres import LOGICAL, Server
from tests.postgres_versions import VERSIONS, fetched
from tests.sources.postgres.shop import Shop
from tests.sources.postgres.test_cut_off import ROWS, checked, cut_off, large_shop
from tests.sources.postgres.test_ended_tables import ended
from tests.sources.postgres.test_later_tables import play
from tests.sources.postgres.test_refusals import first
from tests.sources.postgres.test_rows import same_from_both

from tidegauge.errors.postgressource import ServerUnfit, TableChanged

INSTALL = "the tests on other versions of PostgreSQL need their programs, for Linux on x86-64: make postgres-versions"


@pytest.fixture(params=VERSIONS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of each version, of the test's own."""
    programs = fetched(request.param)
    if programs is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(INSTALL)
    made = Server(programs, settings=LOGICAL)
    try:
        assert made.query("SHOW server_version")[0][0].startswith(str(request.param))
        yield made
    finally:
        made.stop()


@pytest.mark.long
def test_rows_of_each_type_first_rows_that_were_cut_off_and_ends_of_tables(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same_from_both(Shop(server, tmp_path / "types"))
    shop = large_shop(server, tmp_path / "shop", monkeypatch)
    cut_off(shop)
    shop.do(
        "UPDATE orders SET who = 'new' WHERE id % 1000 = 0",
        "DELETE FROM orders WHERE id % 1000 = 1",
        "UPDATE orders SET id = id + 1000000 WHERE id % 1000 = 2",
        "INSERT INTO orders SELECT i, 'late' FROM generate_series(500001, 500100) i",
    )
    assert len(checked(shop)) == ROWS - 60 + 100
    shop.do("ALTER TABLE orders RENAME who TO whom")
    shop.do("UPDATE orders SET n = 1 WHERE id = 3", "UPDATE users SET who = 'ada' WHERE id = 3")
    assert {error.code for error in ended(shop).values()} == {TableChanged.code}
    assert shop.held(shop.flow(), "users") == shop.there("users")


@pytest.mark.long
def test_a_table_that_is_added_while_drivers_and_servers_are_killed(server: Server, tmp_path: Path) -> None:
    play(server, tmp_path, 1, 2)


def test_a_version_that_is_too_old_is_refused(
    logical: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(logical, tmp_path)
    shop.table("orders", "id int PRIMARY KEY")
    shop.publish()
    for place in ("catalog", "checks"):
        monkeypatch.setattr(f"tidegauge.sources.postgres.{place}.OLDEST", 990000)
    with pytest.raises(ServerUnfit, match="upgrade it to version 99"):
        first(shop)
