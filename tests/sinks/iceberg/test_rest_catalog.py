"""A catalog over REST whose answers are Iceberg's own: what others use as a server, with answers that get lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from tests.sinks.iceberg import elsewhere
from tests.sinks.iceberg.conftest import NAME, OUTPUT, SCHEMA, IcebergBench, write_id
from tests.sinks.iceberg.test_iceberg_upkeep import kept
from tests.sinks.iceberg.test_named_catalogs import configure

import tidegauge as tg
from tidegauge.errors.iceberg import CatalogAway
from tidegauge.errors.sinks import TableUpperMismatch
from tidegauge.sinks import IcebergSink
from tidegauge.testing.kit import check_sink

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.xdist_group("rest")]


class RestBench(IcebergBench):
    """A table in a catalog over REST."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, options={"catalog": "pond", **options})

    @property
    def catalog(self) -> Any:
        return load_catalog("pond")

    def rows(self) -> list[dict[str, Any]]:
        catalog = self.catalog
        found: list[dict[str, Any]] = (
            catalog.load_table(NAME).scan().to_arrow().to_pylist() if catalog.table_exists(NAME) else []
        )
        return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[elsewhere.RestServer]:
    folder = tmp_path_factory.mktemp("rest")
    with elsewhere.rest(folder) as found:
        yield found


@pytest.fixture
def bench(server: elsewhere.RestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestBench]:
    configure(monkeypatch, "pond", type="rest", uri=server.uri)
    found = RestBench(tmp_path)
    yield found
    if found.catalog.table_exists(NAME):
        found.remove()


def test_epochs_are_appended_and_a_second_driver_is_refused(bench: RestBench) -> None:
    slow, fast = bench.filled(2), bench.open()
    bench.commit(fast, 2, 3, "fast")
    with pytest.raises(TableUpperMismatch):
        bench.commit(slow, 2, 3, "slow")
    bench.commit(fast, 3, 4, "fast")
    assert bench.epochs() == [0, 1, 2, 3]
    assert {row["user"] for row in bench.rows() if row["_epoch"] > 1} == {"fast"}
    assert bench.open().upper == 4


@pytest.mark.parametrize("first", [True, False], ids=["first commit", "later commit"])
@pytest.mark.parametrize("fault", ["after", "cut"])
def test_a_commit_whose_answer_is_lost_is_told_to_be_in(
    bench: RestBench, server: elsewhere.RestServer, fault: str, first: bool
) -> None:
    table = bench.filled(0 if first else 2)
    at = table.upper
    server.fault(fault)
    bench.commit(table, at, at + 1)
    assert (table.upper, bench.open().upper, bench.epochs()) == (at + 1, at + 1, list(range(at + 1)))


def test_a_commit_that_is_not_in_is_made_by_the_next_attempt(bench: RestBench, server: elsewhere.RestServer) -> None:
    table = bench.filled(2)
    files, write = bench.stage([{"user": "ada", "amount": 1.5, "_epoch": 2}]), write_id()
    server.fault("before", 2)
    for _ in range(2):
        with pytest.raises(CatalogAway, match="busy"):
            table.commit(2, 3, SCHEMA, files, write=write)
    for _ in range(2):
        table.commit(2, 3, SCHEMA, files, write=write)
    assert bench.epochs() == [0, 1, 2]


def test_a_stale_driver_wakes_up_while_the_other_ones_answer_is_lost(
    bench: RestBench, server: elsewhere.RestServer
) -> None:
    slow, fast = bench.filled(1), bench.open()
    server.fault("cut")
    bench.commit(fast, 1, 2, "fast")
    with pytest.raises(TableUpperMismatch):
        bench.commit(slow, 1, 2, "slow")
    assert [(row["user"], row["_epoch"]) for row in bench.rows()] == [("fast", 1), ("ada", 0)]


@pytest.mark.parametrize("fault", ["after", "cut", "before"])
def test_the_tag_published_is_moved_whatever_becomes_of_the_answer(
    bench: RestBench, server: elsewhere.RestServer, fault: str
) -> None:
    bench.filled(3)
    tag = bench.sink.marker(OUTPUT)
    for upper in (2, 3):
        state = next(one for one in tag.states() if one.shows(upper))
        server.fault(fault)
        try:
            tag.mark(state)
        except CatalogAway:
            assert fault == "before", "it was not made"
            tag.mark(state)
        ref = bench.table.metadata.refs["published"].snapshot_id
        assert sorted(bench.table.scan(snapshot_id=ref).to_arrow()["_epoch"].to_pylist()) == list(range(upper))
    tag.end()
    bench.commit(bench.open(), 3, 4)
    assert bench.epochs() == [0, 1, 2, 3]


DRIVER = """
import sys
import tidegauge as tg

folder, name = sys.argv[1:]
flow = tg.Dataflow("shop", store=f"sqlite:///{folder}/shop.db")
rows = flow.source("orders", tg.FileSource(f"{folder}/orders.jsonl", format=tg.Json("id long, user string")))
flow.sink("orders", rows, tg.IcebergSink(name, warehouse=f"{folder}/lake", catalog="pond"))
if __name__ == "__main__":
    print(flow.run("caught-up", engine="local").why, flush=True)
"""


def test_a_driver_is_killed_after_a_commit_that_is_in_and_before_its_answer(
    bench: RestBench, server: elsewhere.RestServer
) -> None:
    folder = bench.folder
    program = folder / "driver.py"
    program.write_text(DRIVER)
    command = [sys.executable, str(program), str(folder), NAME]

    def rows(*numbers: int) -> None:
        with (folder / "orders.jsonl").open("a") as file:
            file.writelines(json.dumps({"id": number, "user": "ada"}) + "\n" for number in numbers)

    def run() -> str:
        return subprocess.run(command, env=os.environ, capture_output=True, text=True, check=True).stdout

    rows(0, 1)
    assert "caught up" in run()
    rows(2, 3)
    server.fault("hold")
    with subprocess.Popen(command, env=os.environ, stdout=subprocess.DEVNULL) as driver:
        server.wait_until_held()
        driver.kill()
    rows(4)
    assert "caught up" in run()
    assert sorted(row["id"] for row in bench.rows()) == [0, 1, 2, 3, 4]
    uppers = [one.summary.additional_properties["tidegauge.upper"] for one in bench.table.snapshots()]
    assert uppers == sorted(set(uppers), key=int)


def test_partitions_packs_expiry_and_replacement_are_what_the_server_takes(bench: RestBench) -> None:
    parted = RestBench(bench.folder, partition_by="user", sort_by="amount")
    table = parted.filled(8)
    kept(parted)
    parted.commit(table, 8, 9)
    kept(parted, timedelta(0))
    assert len(parted.table.snapshots()) == 1
    assert parted.epochs() == list(range(9))
    assert [str(one.transform) for one in parted.table.spec().fields] == ["identity"]
    other = RestBench(bench.folder, partition_by=tg.bucket(2, "user"))
    columns = pa.schema([("user", pa.string()), ("count", pa.int64()), ("_epoch", pa.int64())])
    rows = [{"user": user, "count": 1, "_epoch": 0} for user in "abc"]
    files = other.stage(rows, schema=columns)
    other.open().replacement("e" * 32).commit(0, 9, columns, files, write=write_id())
    assert [str(one.transform) for one in other.table.spec().fields] == ["bucket[2]"]
    assert sorted(row["user"] for row in other.rows()) == ["a", "b", "c"]
    assert other.table.schema().column_names == ["user", "count", "_epoch"]


@pytest.mark.parametrize("by", [None, "city"])
def test_a_table_by_key_is_merged(bench: RestBench, server: elsewhere.RestServer, by: str | None) -> None:
    keyed = RestBench(bench.folder, envelope="upsert", key="user", order="amount", partition_by=by)
    table, columns = keyed.open(), pa.schema([("city", pa.string()), *SCHEMA])
    for epoch in range(4):
        server.fault("cut" if epoch % 2 else "none")
        told = {"city": ["", "a/b", None][epoch % 3], "amount": float(epoch), "_epoch": epoch}
        files = keyed.stage([{"user": user, **told} for user in "abcd"[: 4 - epoch]], schema=columns)
        table.commit(epoch, epoch + 1, columns, files, write=write_id())
    assert {row["user"]: row["_epoch"] for row in keyed.rows()} == {"a": 3, "b": 2, "c": 1, "d": 0}
    assert len(table.files(as_of=1)) == (2 if by else 1)
    if by:
        assert {task.file.partition[0] for task in keyed.table.scan().plan_files()} == {"", "a/b", None}
        replaced = RestBench(bench.folder, envelope="upsert", key="user", partition_by=tg.bucket(2, "user"))
        files = replaced.stage([{"user": user, "amount": 1.0, "_epoch": 0} for user in "abc"])
        replaced.open().replacement("e" * 32).commit(0, 4, SCHEMA, files, write=write_id())
        assert sorted(row["user"] for row in replaced.rows()) == ["a", "b", "c"]
        assert [str(one.transform) for one in replaced.table.spec().fields] == ["bucket[2]"]


def test_a_catalog_over_rest_holds_every_law(server: elsewhere.RestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, "pond", type="rest", uri=server.uri)

    class Bench(RestBench):
        """Each with a table of its own: the server has them all."""

        def __init__(self, folder: Path) -> None:
            super().__init__(folder)
            self.name = f"shop.orders_{uuid.uuid4().hex}"
            self.sink = IcebergSink(self.name, str(self.warehouse), catalog="pond")

        def rows(self) -> list[dict[str, Any]]:
            catalog = self.catalog
            if not catalog.table_exists(self.name):
                return []
            found: list[dict[str, Any]] = catalog.load_table(self.name).scan().to_arrow().to_pylist()
            return found

        def remove(self) -> None:
            self.catalog.drop_table(self.name)

        def ways(self) -> list[Any]:
            return [IcebergSink(self.name, f"{self.warehouse}/", catalog="pond")]

        def elsewhere(self) -> Any:
            return IcebergSink(f"{self.name}_2", str(self.warehouse), catalog="pond")

    check_sink(Bench, crashes=10, deadline=240).require()
