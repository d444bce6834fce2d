"""Large values that an UPDATE leaves out are those of the row from before, in tables with their default identity."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.postgres import Server
from tests.sources.database.followed import by_key, caught_up
from tests.sources.postgres.shop import Shop

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.engine import StreamRecordUnparsable
from tidegauge.errors.leftout import LeftOutHere, LeftOutUnknown

COLUMNS = "id int PRIMARY KEY, n int, doc text, other text"


def large(n: int) -> str:
    """SQL of a value of 12,800 characters that hardly shrinks."""
    return f"(SELECT string_agg(md5((i * {n})::text), '') FROM generate_series(1, 400) i)"


class Library(Shop):
    """A database with one table, whose large values are stored aside, and a flow that keeps it by key."""

    def __init__(self, server: Server, root: Path) -> None:
        super().__init__(server, root)
        self.table("texts", COLUMNS)
        self.do("ALTER TABLE texts ALTER doc SET STORAGE EXTERNAL, ALTER other SET STORAGE EXTERNAL")
        self.publish()
        self.sinks: dict[str, Any] = {"texts": self.delta("texts")}
        self.begin: dict[str, Any] = {}
        self.collecting = False
        """Whether an output takes the bad records."""

    def delta(self, name: str, **options: Any) -> tg.DeltaSink:
        given = {"envelope": "upsert", "key": "id", "order": "_sequence", **options}
        return tg.DeltaSink(str(self.root / name), **given)

    def kept(self, **steps: Any) -> tg.Dataflow:
        """The flow. steps: of outputs, what they do with the stream; the others do nothing."""
        flow = tg.Dataflow("library", store=f"sqlite:///{self.root}/flow.db", tick=0.05)
        db = flow.source("db", self.source())
        texts = db.table("texts")
        if self.collecting:
            flow.sink("bad", db.errors, tg.ParquetSink(str(self.root / "bad")))
        for name, sink in self.sinks.items():
            flow.sink(name, steps.get(name, lambda rows: rows)(texts), sink, start=self.begin.get(name))
        return flow

    def follow(self, **steps: Any) -> tg.Dataflow:
        return caught_up(self.kept(**steps))

    def same(self, flow: tg.Dataflow, name: str = "texts") -> None:
        """See that a table is the database's."""
        rows = tg.read_arrow(flow, name).select(["id", "n", "doc", "other"]).to_pylist()
        assert by_key(rows, "id") == self.there("texts")

    def failed(self, **steps: Any) -> Mapping[str, TidegaugeError]:
        """Run a flow of which some outputs fail; return why, by output."""
        flow = self.kept(**steps)
        with pytest.raises(TidegaugeError):
            caught_up(flow)
        return {one.name: one.error for one in tg.status(flow).outputs if one.error is not None}


@pytest.fixture
def library(logical: Server, tmp_path: Path) -> Library:
    return Library(logical, tmp_path)


def test_an_update_of_another_column_keeps_the_large_value(library: Library) -> None:
    library.do(f"INSERT INTO texts VALUES (1, 0, {large(1)}, NULL), (2, 0, {large(2)}, {large(3)})")
    library.same(library.follow())
    library.do("UPDATE texts SET n = 1")
    library.same(library.follow())
    library.do(f"UPDATE texts SET doc = {large(4)} WHERE id = 1")
    library.do("UPDATE texts SET n = 2")
    library.do(f"UPDATE texts SET other = {large(5)}, doc = NULL WHERE id = 2")
    library.do("UPDATE texts SET n = 3")
    library.same(library.follow())


def test_other_tables_by_key_do_the_same(library: Library) -> None:
    iceberg = tg.IcebergSink(
        "shop.texts", warehouse=str(library.root / "warehouse"), envelope="upsert", key="id", order="_sequence"
    )
    away = tg.PostgresSink(
        library.address,
        "kept_texts",
        envelope="upsert",
        key="id",
        order="_sequence",
        staging=str(library.root / "staging"),
    )
    library.sinks = {"texts": library.delta("texts", deletion_vectors=True), "ice": iceberg, "away": away}
    library.do(f"INSERT INTO texts SELECT i, 0, {large(1)} || i, NULL FROM generate_series(1, 40) i")
    library.follow()
    library.do("UPDATE texts SET n = 1 WHERE id % 7 = 0", f"UPDATE texts SET doc = {large(2)} WHERE id = 14")
    library.do("UPDATE texts SET n = 2 WHERE id = 14", "DELETE FROM texts WHERE id = 3")
    flow = library.follow()
    library.same(flow)
    library.same(flow, "ice")
    assert library.ask("SELECT id, n, doc FROM kept_texts ORDER BY id") == library.ask(
        "SELECT id, n, doc FROM texts ORDER BY id"
    )
    library.do("DELETE FROM kept_texts WHERE id = 21", "UPDATE texts SET n = 3 WHERE id = 21")
    found = library.failed()
    assert {name: type(error) for name, error in found.items()} == {"away": LeftOutUnknown}
    assert "21" in str(found["away"])


def test_nothing_is_carried_over_a_delete(library: Library) -> None:
    library.do(f"INSERT INTO texts VALUES (1, 0, {large(1)}, {large(2)})")
    library.follow()
    library.do("DELETE FROM texts")
    library.do("INSERT INTO texts VALUES (1, 1, NULL, 'small')")
    library.do("UPDATE texts SET n = 2")
    library.same(library.follow())
    library.do(f"UPDATE texts SET doc = {large(3)}")
    library.do("UPDATE texts SET n = 3")
    library.do("DELETE FROM texts")
    library.same(library.follow())


def test_an_output_that_cannot_know_the_value_ends_alone(library: Library) -> None:
    library.sinks |= {
        "log": tg.ParquetSink(str(library.root / "log")),
        "numbers": tg.ParquetSink(str(library.root / "numbers")),
        "some": library.delta("some"),
        "renamed": library.delta("renamed", key="number"),
        "by_n": library.delta("by_n", key="n"),
        "parted": library.delta("parted", partition_by="n"),
        "by_home": library.delta("by_home", partition_by=tg.bucket(4, "id")),
    }
    steps: dict[str, Any] = {
        "log": lambda rows: rows.changelog("op"),
        "numbers": lambda rows: rows.select("id", "n", "_sequence").changelog("op"),
        "some": lambda rows: rows.filter("n < 100"),
        "renamed": lambda rows: rows.select("id AS number", "n", "doc AS text", "_sequence"),
    }
    library.do(f"INSERT INTO texts VALUES (1, 0, {large(1)}, NULL), (2, 5, {large(2)}, NULL)")
    library.follow(**steps)
    library.do("UPDATE texts SET n = n + 1")
    found = library.failed(**steps)
    assert {name: type(error) for name, error in found.items()} == dict.fromkeys(
        ["log", "some", "by_n", "parted"], LeftOutHere
    )
    flow = library.kept(**steps)
    library.same(flow)
    library.same(flow, "by_home")
    renamed = {row["number"]: row["text"] for row in tg.read_arrow(flow, "renamed").to_pylist()}
    assert renamed == {row["id"]: row["doc"] for row in library.there("texts")}
    changes = [(row["op"], row["id"], row["n"]) for row in tg.read_arrow(flow, "numbers").to_pylist()]
    assert sorted(changes) == [("insert", 1, 0), ("insert", 2, 5), ("update", 1, 1), ("update", 2, 6)]


def test_a_row_that_the_table_does_not_have_is_a_definite_error(library: Library) -> None:
    library.do(f"INSERT INTO texts VALUES (1, 0, {large(1)}, NULL)")
    library.follow()
    library.sinks["late"] = library.delta("late")
    library.begin["late"] = "now"
    library.follow()
    library.do("INSERT INTO texts VALUES (2, 0, 'small', NULL)")
    library.follow()
    library.do("UPDATE texts SET n = 1")
    found = library.failed()
    assert {name: type(error) for name, error in found.items()} == {"late": LeftOutUnknown}
    library.same(library.kept())


def test_other_writers_of_the_table_leave_the_values_or_take_them_away(library: Library) -> None:
    library.do(f"INSERT INTO texts VALUES (1, 0, {large(1)}, NULL), (2, 0, {large(2)}, NULL)")
    library.follow()
    library.do(f"INSERT INTO texts VALUES (3, 0, {large(3)}, NULL)")
    library.follow()
    table = DeltaTable(str(library.root / "texts"))
    table.optimize.compact()
    library.do("UPDATE texts SET n = 1")
    library.same(library.follow())
    DeltaTable(str(library.root / "texts")).delete("id = 2")
    library.do("UPDATE texts SET n = 2 WHERE id = 1")
    flow = library.follow()
    assert {row["id"]: row["n"] for row in tg.read_arrow(flow, "texts").to_pylist()} == {1: 2, 3: 1}
    library.do("UPDATE texts SET n = 3")
    found = library.failed()
    assert {name: type(error) for name, error in found.items()} == {"texts": LeftOutUnknown}
    assert "the key 2" in str(found["texts"])


def test_no_value_is_kept_of_a_row_that_missed_a_change_which_was_collected_once(library: Library) -> None:
    library.collecting = True
    library.do(f"INSERT INTO texts VALUES (1, 0, {large(1)}, {large(2)})")
    library.follow()
    library.do(f"UPDATE texts SET doc = {large(3)}")  # without `other`, so collected; the table keeps the old `doc`
    flow = library.follow()
    assert tg.read_arrow(flow, "bad").num_rows == 1
    library.collecting = False
    library.do("UPDATE texts SET n = 1")
    with pytest.raises(StreamRecordUnparsable, match="leaves out its large value"):
        library.follow()
