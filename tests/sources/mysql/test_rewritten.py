"""A log that was begun anew, or put back, and has as many transactions again: the flow stops, and loses nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.mariadb import MariaDb
from tests.sources.mysql.store import Store
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.maintenance.resume import resume
from tidegauge.sources.mysql import dump, silence

pytestmark = pytest.mark.long


@pytest.fixture(params=["own_mariadb", "own_mysql"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    found = Store(request.getfixturevalue(request.param), tmp_path)
    found.table("users", "id int PRIMARY KEY, name text")
    return found


def write(shop: Store, first: int, count: int) -> None:
    """A transaction for each row."""
    for n in range(first, first + count):
        shop.do(f"INSERT INTO users VALUES ({n}, 'row {n}')")


def ends(shop: Store) -> int:
    return shop.server.last()[1]


def refused(shop: Store) -> str:
    with pytest.raises(TidegaugeError, match="TG-0554") as raised:
        shop.catch_up()
    return str(raised.value)


def held(shop: Store) -> list[int]:
    return sorted(row["id"] for row in shop.held(shop.flow(), "users"))


@pytest.mark.parametrize("streamed", [0, 5], ids=["with-the-first-rows-alone", "with-changes"])
@pytest.mark.parametrize("more", [0, 41], ids=["as-many", "more"])
def test_a_log_that_was_reset_and_has_as_many_transactions_is_a_loss(shop: Store, streamed: int, more: int) -> None:
    write(shop, 0, 5)
    shop.catch_up()
    if streamed:
        write(shop, 5, streamed)
        shop.catch_up()
    last, before = shop.server.last()
    shop.server.do("RESET MASTER")
    write(shop, 1000, before + more)
    assert ends(shop) == before + more
    said = refused(shop)
    assert last in said
    assert "resume FLOW db --new-incarnation" in said
    assert held(shop) == list(range(5 + streamed))


@pytest.mark.parametrize("shop", ["own_mariadb", "own_mysql", "own_mysql8"], indirect=True)
def test_a_log_that_is_reset_under_a_running_flow_is_a_loss(shop: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump, "_HEARTBEAT", 500_000_000)
    write(shop, 0, 5)
    flow = shop.catch_up()
    run = flow.start(engine=tg.LocalEngine(threads=2))
    write(shop, 5, 1)
    eventually(lambda: len(held(shop)) == 6)
    before = ends(shop)
    shop.server.do("RESET MASTER")
    write(shop, 1000, before + 2)
    monkeypatch.setattr(silence, "LOOKS", 0.5)
    eventually(lambda: "failed" in {one.state for one in run.status.sources})
    with pytest.raises(UpstreamRecreated):
        run.wait()
    assert held(shop) == list(range(6))


def test_after_a_reset_a_new_incarnation_has_all_rows(shop: Store) -> None:
    write(shop, 0, 5)
    shop.catch_up()
    before = ends(shop)
    shop.server.do("RESET MASTER")
    write(shop, 1000, before + 1)
    refused(shop)
    resume(shop.flow(), "db", new_incarnation=True)
    flow = shop.catch_up()
    assert shop.held(flow, "users") == shop.there("users")
    write(shop, 2000, 3)
    assert shop.held(shop.catch_up(), "users") == shop.there("users")


def test_files_of_a_server_that_are_put_back_from_a_copy_are_a_loss(shop: Store, tmp_path: Path) -> None:
    server = shop.server
    write(shop, 0, 5)
    shop.catch_up()
    server.stop(stay=True)
    shutil.copytree(server.folder / "data", tmp_path / "copy")
    server.start()
    write(shop, 5, 5)
    shop.catch_up()
    write(shop, 10, 1)
    server.stop(stay=True)
    shutil.rmtree(server.folder / "data")
    server.take_over(tmp_path / "copy")
    server.start()
    write(shop, 1000, 8)
    refused(shop)
    assert held(shop) == list(range(10))


def test_a_copy_that_is_as_new_as_the_flow_is_the_server_itself(shop: Store, tmp_path: Path) -> None:
    server = shop.server
    write(shop, 0, 5)
    shop.catch_up()
    server.stop(stay=True)
    shutil.copytree(server.folder / "data", tmp_path / "copy")
    shutil.rmtree(server.folder / "data")
    server.take_over(tmp_path / "copy")
    server.start()
    write(shop, 1000, 8)
    assert shop.held(shop.catch_up(), "users") == shop.there("users")


def test_a_copy_of_a_server_with_its_ids_that_went_its_own_way_is_told_apart(shop: Store, tmp_path: Path) -> None:
    server = shop.server
    write(shop, 0, 5)
    shop.catch_up()
    server.stop(stay=True)
    other = type(server)(copied=server)
    try:
        server.start()
        write(shop, 5, 3)
        shop.catch_up()
        server.stop(stay=True)
        server.port, other.port = other.port, server.port  # it takes the server's address over
        other.start()
        shop.server = other
        write(shop, 1000, 4)
        refused(shop)
        assert held(shop) == list(range(8))
    finally:
        other.stop()
        server.start()


def test_a_log_that_was_removed_up_to_the_flow_s_place_goes_on(shop: Store) -> None:
    write(shop, 0, 5)
    shop.catch_up()
    eventually(lambda: purged_before_the_end(shop))
    write(shop, 5, 3)
    assert shop.held(shop.catch_up(), "users") == shop.there("users")
    write(shop, 8, 3)
    assert shop.held(shop.catch_up(), "users") == shop.there("users")


def test_servers_that_write_to_a_domain_in_turns_are_read_on(own_mariadb: MariaDb, tmp_path: Path) -> None:
    shop = Store(own_mariadb, tmp_path)
    shop.table("users", "id int PRIMARY KEY, name text")
    write(shop, 0, 2)
    shop.catch_up()
    for n in range(2, 8, 2):  # as a primary and its replica do, or who replays a log by mariadb-binlog
        shop.do("SET SESSION server_id = 99", f"INSERT INTO users VALUES ({n}, 'of 99')")
        write(shop, n + 1, 1)
        assert shop.held(shop.catch_up(), "users") == shop.there("users")


def purged_before_the_end(shop: Store) -> bool:
    """Whether the log has no transaction: the server keeps files for as long as a reader is on them."""
    shop.server.do("FLUSH BINARY LOGS")
    newest = shop.server.ask("SHOW BINARY LOGS")[-1][0]
    shop.server.do(f"PURGE BINARY LOGS TO '{newest}'")
    return len(shop.server.ask("SHOW BINARY LOGS")) == 1


def test_a_folder_without_marks_takes_the_log_as_it_is_and_looks_from_then_on(shop: Store) -> None:
    write(shop, 0, 5)
    shop.catch_up()
    marks = list((shop.root / "my" / "store" / "db").glob("marks*.json"))
    assert marks
    for one in marks:
        one.unlink()
    shop.catch_up()
    before = ends(shop)
    shop.server.do("RESET MASTER")
    write(shop, 1000, before)
    refused(shop)


def test_marks_that_a_power_cut_left_half_written_are_as_if_not_there(shop: Store) -> None:
    write(shop, 0, 5)
    shop.catch_up()
    folder = shop.root / "my" / "store" / "db"
    assert json.loads((folder / "marks.json").read_text())
    (folder / "marks-new.json").write_text("")
    before = ends(shop)
    shop.server.do("RESET MASTER")
    write(shop, 1000, before)
    refused(shop)
