"""A server that cannot write its log may go on without it, and its log of errors alone says so: the source fails."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.mariadb import MariaDb, available
from tests.mysql import MySql8
from tests.sources.mysql.store import Store
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.mysqlsource import BinlogClosed, BinlogServerUnfit
from tidegauge.sources.mysql import silence

pytestmark = pytest.mark.long


@pytest.fixture
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """On a server whose log is in a folder of its own. MariaDB goes on by itself, MySQL if it is told to."""
    logs = Path(tempfile.mkdtemp(prefix="tidegauge-log-"))
    logs.chmod(0o777)
    settings = {"log-bin": f"{logs}/binlog"}
    if request.param == "mariadb":
        available()
        server = MariaDb(settings=settings)
    else:
        if not (MySql8.programs / "bin" / "mysqld").exists():
            pytest.skip(MySql8.install)
        server = MySql8(settings={**settings, "binlog-error-action": "IGNORE_ERROR"})
    try:
        found = Store(server, tmp_path)
        found.table("users", "id int PRIMARY KEY, name text")
        yield found
    finally:
        server.stop()
        shutil.rmtree(logs)


def close_log(server: MariaDb) -> None:
    """Keep the server from beginning another file: it turns its log off."""
    logs = Path(server.settings["log-bin"]).parent
    away = logs.rename(f"{logs}-away")
    with pytest.raises(Exception, match=r"not found|unique log-filename"):
        server.do("FLUSH BINARY LOGS")
    away.rename(logs)
    assert server.ask("SHOW MASTER STATUS") == []


@pytest.mark.parametrize(
    ("shop", "running"), [("mariadb", True), ("mysql8", False)], indirect=["shop"], ids=["running", "away"]
)
def test_what_a_server_changes_without_its_log_is_a_loss(
    shop: Store, monkeypatch: pytest.MonkeyPatch, running: bool
) -> None:
    shop.do("INSERT INTO users VALUES (1, 'ada')")
    flow = shop.catch_up()
    if running:
        monkeypatch.setattr(silence, "LOOKS", 0.5)
        run = flow.start(engine=tg.LocalEngine(threads=2))
        shop.do("INSERT INTO users VALUES (2, 'bob')")
        eventually(lambda: len(shop.held(flow, "users")) == 2)
        close_log(shop.server)
        shop.do("INSERT INTO users VALUES (3, 'unlogged')")
        eventually(lambda: "failed" in {one.state for one in run.status.sources})
        with pytest.raises(BinlogClosed):
            run.wait()
    else:
        close_log(shop.server)
        shop.do("INSERT INTO users VALUES (3, 'unlogged')")
        with pytest.raises(BinlogClosed):
            shop.catch_up()
    other = Store(shop.server, shop.root / "other")
    other.table("orders", "id int PRIMARY KEY")
    with pytest.raises(BinlogServerUnfit, match="goes on without"):
        other.flow()  # of which nothing was begun: it waits
    shop.server.stop(stay=True)
    shop.server.start()  # it has a log again
    shop.do("INSERT INTO users VALUES (4, 'eve')")
    with pytest.raises(BinlogClosed):
        shop.catch_up()
    assert len(shop.held(shop.flow(), "users")) == 1 + running
