"""Tables in PostgreSQL in a flow: live and late, dropped, looked at, and what a restored or changed database does."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.postgres import Server, new_database, query
from tests.sinks.postgres.conftest import dumped, seen

import tidegauge as tg
from tidegauge.errors.flow import OperationsNotTaken
from tidegauge.errors.history import StoreBehindTable
from tidegauge.errors.sinks import OutputIsNoTable, TableNotRemovable, TableWentBack

BY_ID: Mapping[str, Any] = {"envelope": "upsert", "key": "id", "order": "_offset"}


@dataclass
class Shop:
    """A flow over one file that grows, epoch by epoch, into tables of one database. outputs: options of each sink."""

    root: Path
    server: Server
    columns: str = "id long, name string"
    outputs: dict[str, dict[str, Any]] = field(default_factory=lambda: {"users": {}})
    how: dict[str, dict[str, Any]] = field(default_factory=dict)
    user: str = "postgres"

    def __post_init__(self) -> None:
        self.database = new_database(self.server)
        self.address = self.server.address(self.database)

    def sink(self, name: str, **options: Any) -> tg.PostgresSink:
        address = self.server.address(self.database, user=self.user)
        return tg.PostgresSink(address, name, **{"staging": f"{self.root}/staging", **options})

    @property
    def flow(self) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=f"sqlite:///{self.root}/shop.db", tick=0.02)
        file = tg.FileSource(f"{self.root}/users.jsonl", format=tg.Json(self.columns), metadata=True)
        users = flow.source("users", file)
        for name, options in self.outputs.items():
            flow.sink(name, users, self.sink(name, **options), **self.how.get(name, {}))
        return flow

    def run(self, *rows: dict[str, Any], engine: Any = None, spark: Any = None) -> int:
        """Add rows as an epoch of their own, and run until they are there."""
        with (self.root / "users.jsonl").open("a") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))
        engine = None if spark else engine or tg.LocalEngine(threads=0)
        return self.flow.run("caught-up", engine=engine, spark=spark).published

    def read(self, table: str = "users") -> list[tuple[int, str, int]]:
        return sorted((row["id"], row["name"], row["_epoch"]) for row in seen(self.address, table))

    def query(self, text: str) -> list[tuple[Any, ...]]:
        return query(self.address, text)

    def state(self, output: str = "users") -> Any:
        return next(one for one in tg.status(self.flow).outputs if one.name == output)


def user(id: int, name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": id, "name": name, **more}


THREE: Sequence[Sequence[dict[str, Any]]] = (
    [user(1, "ada", _op="insert"), user(2, "bob", _op="insert"), user(1, "ada", _op="before")],
    [user(1, "ada!", _op="update"), user(2, _op="delete"), user(9, _op="delete")],
    [user(3, "eve", _op="insert"), user(2, "bob again", _op="insert")],
)
AFTER = ([(1, "ada", 0), (2, "bob", 0)], [(1, "ada!", 1)], [(1, "ada!", 1), (2, "bob again", 2), (3, "eve", 2)])
PLAIN = [[row for row in rows if row["name"]] for rows in THREE]


def test_each_epoch_is_added_and_the_table_is_read_in_the_database_alone(tmp_path: Path, postgres: Server) -> None:
    shop = Shop(tmp_path, postgres)
    for epoch, rows in enumerate(PLAIN):
        assert shop.run(*rows) == epoch + 1
    wanted = sorted((row["id"], row["name"], epoch) for epoch, rows in enumerate(PLAIN) for row in rows)
    assert shop.read() == wanted
    state = shop.state()
    assert (state.state, state.rows, state.upper) == ("live", len(wanted), 3)
    with pytest.raises(OutputIsNoTable, match=r"PostgreSQL table public\.users"):
        tg.read_arrow(shop.flow, "users")
    assert tg.verify(shop.flow).problems == ()


def test_operations_are_applied_by_key_and_refused_without_one(tmp_path: Path, postgres: Server) -> None:
    shop = Shop(tmp_path, postgres, "id long, name string, _op string", {"users": dict(BY_ID)})
    for epoch, rows in enumerate(THREE):
        shop.run(*rows)
        assert shop.read() == AFTER[epoch]
    assert shop.state().rows == 3
    shop.outputs = {"added": {}}
    with pytest.raises(OperationsNotTaken):
        shop.run()


@pytest.mark.parametrize(
    ("options", "stamps"),
    [
        (BY_ID, "faithful"),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in ((BY_ID, "collapse"), ({}, "faithful"), ({}, "collapse"))
        ),
    ],
)
def test_a_late_table_has_the_past_of_one_that_was_there_and_shows_it_in_one_commit(
    tmp_path: Path, postgres: Server, options: Mapping[str, Any], stamps: str
) -> None:
    columns = "id long, name string, _op string" if options else "id long, name string"
    shop = Shop(tmp_path, postgres, columns, {"users": dict(options)})
    rows = THREE if options else PLAIN
    for epoch in range(2):
        shop.run(*rows[epoch])
    shop.outputs["late"] = dict(options)
    shop.how["late"] = {"timestamps": stamps}
    shop.run(*rows[2])
    stamped = [(key, name, max(epoch, 1 if stamps == "collapse" else 0)) for key, name, epoch in shop.read()]
    assert shop.read("late") == stamped
    first = "SELECT upper FROM tidegauge.links WHERE table_name = 'late' ORDER BY 1"
    assert [upper for (upper,) in shop.query(first)][:1] == [2], "all of its past came in one transaction"
    assert shop.state("late").state == "live"


@pytest.mark.long
def test_a_dropped_output_leaves_its_table_to_its_owner(tmp_path: Path, postgres: Server) -> None:
    shop = Shop(tmp_path, postgres, outputs={"users": {}, "copy": {}})
    shop.run(*PLAIN[0])
    with pytest.raises(TableNotRemovable, match="PostgresSink keeps what it was given"):
        tg.drop(shop.flow, "copy", table=True)
    tg.drop(shop.flow, "copy")
    assert shop.read("copy") == shop.read()
    shop.run(*PLAIN[1])
    assert shop.read("copy") == shop.read(), "declared again, it goes on from what the table holds"
    tg.drop(shop.flow, "copy")
    shop.query("DROP TABLE copy")
    shop.run(*PLAIN[2])
    assert shop.read("copy") == shop.read(), "a new table gets it all again"


@pytest.mark.long
def test_a_database_that_is_restored_to_an_earlier_epoch_gets_the_epochs_since_again(
    tmp_path: Path, postgres: Server
) -> None:
    shop = Shop(tmp_path, postgres, outputs={"users": {}, "by_id": dict(BY_ID)})
    shop.run(user(1, "ada"), user(2, "bob"))
    shop.run(user(1, "ada!"))
    restore = dumped(postgres, shop.database)
    shop.run(user(2, "bob!"), user(3, "eve"))
    before = shop.read(), shop.read("by_id")
    older = new_database(postgres)
    restore(older)
    postgres.query(f"DROP DATABASE {shop.database} WITH (FORCE)")
    postgres.query(f"ALTER DATABASE {older} RENAME TO {shop.database}")
    assert shop.state().upper == 2
    shop.run(user(4, "tom"))
    assert (shop.read(), shop.read("by_id")) == tuple([*rows, (4, "tom", 3)] for rows in before)


@pytest.mark.long
def test_a_store_that_is_older_than_the_table_is_refused_and_recovered_from_it(
    tmp_path: Path, postgres: Server
) -> None:
    shop = Shop(tmp_path, postgres)
    shop.run(*PLAIN[0])
    tg.backup(shop.flow, tmp_path / "backup.db")
    shop.run(*PLAIN[1])
    for path in tmp_path.glob("shop.db*"):
        path.unlink()
    shutil.copy(tmp_path / "backup.db", tmp_path / "shop.db")
    with pytest.raises(StoreBehindTable):
        shop.run(*PLAIN[2])
    tg.recover(shop.flow)
    shop.run()
    assert shop.read() == sorted((row["id"], row["name"], e) for e, rows in enumerate(PLAIN) for row in rows)


@pytest.mark.long
def test_a_table_that_was_dropped_is_waited_for_until_somebody_wants_it_whole(
    tmp_path: Path, postgres: Server
) -> None:
    shop = Shop(tmp_path, postgres)
    for rows in PLAIN[:2]:
        shop.run(*rows)
    before = shop.read()
    shop.query("DROP TABLE users")
    with pytest.raises(TableWentBack):
        shop.run()
    tg.repair(shop.flow, "users", from_epoch=0)
    shop.run()
    assert shop.read() == before


def test_a_password_is_in_no_log_store_plan_or_error(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "hunter2")
    shop = Shop(tmp_path, postgres, user="ada", outputs={"users": {"password": "env:SHOP_PASSWORD"}})
    shop.query("GRANT CREATE ON SCHEMA public TO ada; CREATE SCHEMA tidegauge AUTHORIZATION ada")
    said = list[str]()
    with caplog.at_level(logging.DEBUG):
        shop.run(*PLAIN[0])
        said.append(repr(shop.flow.spec) + repr(tg.status(shop.flow)) + repr(tg.explain(shop.flow, 0)))
        shop.query("REVOKE ALL ON users FROM ada; ALTER TABLE users OWNER TO postgres")
        said.append(repr(tg.status(shop.flow)))
    assert shop.read() == [(1, "ada", 0), (1, "ada", 0), (2, "bob", 0)]
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    tables = shop.query("SELECT * FROM tidegauge.progress") + shop.query("SELECT * FROM tidegauge.links")
    assert all(
        b"hunter2" not in text for text in [*files, *(one.encode() for one in [*said, caplog.text, repr(tables)])]
    )
