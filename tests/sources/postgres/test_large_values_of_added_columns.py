"""Large values of columns that came while a flow ran: an UPDATE that leaves one out has it from the row before."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.postgres import Server, query
from tests.sources.database.followed import by_key, caught_up
from tests.sources.postgres.shop import Shop
from tests.sources.postgres.test_left_out import large

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.leftout import LeftOutNull
from tidegauge.remap.store import Store


class Archive(Shop):
    """A database with one table, and a flow that keeps it by key in tables of three kinds, which take columns on."""

    def __init__(self, server: Server, root: Path) -> None:
        super().__init__(server, root)
        self.table("texts", "id int PRIMARY KEY, n int, doc text")
        self.do("ALTER TABLE texts ALTER doc SET STORAGE EXTERNAL")
        self.do(f"INSERT INTO texts SELECT i, 0, {large(1)} || i FROM generate_series(1, 4) i")
        self.publish()
        given: Any = {"envelope": "upsert", "key": "id", "order": "_sequence"}
        self.sinks: dict[str, Any] = {
            "texts": tg.DeltaSink(str(root / "texts"), **given),
            "marked": tg.DeltaSink(str(root / "marked"), deletion_vectors=True, **given),
            "ice": tg.IcebergSink("shop.texts", warehouse=str(root / "warehouse"), **given),
            "away": tg.PostgresSink(self.address, "kept_texts", staging=str(root / "staging"), **given),
        }

    def kept(self, *columns: str) -> tg.Dataflow:
        """The flow. columns: those that are chosen, all by default."""
        flow = tg.Dataflow("archive", store=f"sqlite:///{self.root}/flow.db", tick=0.05)
        texts = flow.source("db", self.source()).table("texts")
        for number, (name, sink) in enumerate(self.sinks.items()):
            how: Any = "evolve" if number % 2 else "add"
            flow.sink(name, texts.select(*columns, "_sequence") if columns else texts, sink, schema=how)
        return flow

    def same(self) -> None:
        """Catch up, and see that all tables are the database's."""
        flow, names = caught_up(self.kept()), self.columns
        there = self.there("texts")
        for name in self.sinks.keys() - {"away"}:
            assert by_key(tg.read_arrow(flow, name).select(names).to_pylist(), "id") == there
        listed = ", ".join(names)
        kept = self.ask(f"SELECT {listed} FROM kept_texts ORDER BY id")
        assert kept == self.ask(f"SELECT {listed} FROM texts ORDER BY id")

    @property
    def columns(self) -> list[str]:
        found = self.ask(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'texts'::regclass AND attnum > 0 AND NOT attisdropped"
        )
        return [row[0] for row in found]

    def add(self, name: str) -> None:
        self.do(f"ALTER TABLE texts ADD {name} text", f"ALTER TABLE texts ALTER {name} SET STORAGE EXTERNAL")


@pytest.fixture
def archive(logical: Server, tmp_path: Path) -> Archive:
    found = Archive(logical, tmp_path)
    caught_up(found.kept())
    return found


def test_a_column_that_is_added_keeps_its_large_value_as_others_do(archive: Archive) -> None:
    archive.do("UPDATE texts SET n = 1 WHERE id = 1")
    archive.add("note")
    archive.do(f"UPDATE texts SET note = {large(2)} WHERE id < 3")
    archive.do("UPDATE texts SET n = 2 WHERE id < 4")  # in the epoch, and before the table has the column
    archive.same()
    archive.do("UPDATE texts SET n = 3")
    archive.do(f"UPDATE texts SET note = NULL, doc = {large(3)} WHERE id = 1", "DELETE FROM texts WHERE id = 2")
    archive.do("INSERT INTO texts VALUES (2, 4, NULL, 'small')", "UPDATE texts SET n = 5")
    archive.same()
    archive.add("more")
    archive.do(f"UPDATE texts SET more = {large(4)}, n = 6 WHERE id = 1")
    archive.same()
    query(archive.address, "VACUUM FULL texts")
    archive.do("UPDATE texts SET n = 7")
    archive.same()


def test_a_column_that_comes_and_goes_at_once_leaves_the_others_as_they_are(archive: Archive) -> None:
    archive.add("note")
    archive.do(f"UPDATE texts SET note = {large(2)} WHERE id = 1")
    archive.do("ALTER TABLE texts DROP note", "UPDATE texts SET n = 1")
    archive.same()


class Dead(BaseException):
    """The end of a driver."""


@pytest.mark.long
@pytest.mark.parametrize("at", ["record_columns", "append", "publish"])
def test_a_driver_that_dies_on_the_way_loses_no_value(
    at: str, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.add("note")
    archive.do(f"UPDATE texts SET note = {large(2)} WHERE id < 3")
    for number in range(2):
        archive.do(f"UPDATE texts SET n = n + 1 WHERE id <> {number}")

        def dying(*_given: Any, **_named: Any) -> Any:
            raise Dead

        with monkeypatch.context() as patched, suppress(Dead):  # no columns come the second time
            patched.setattr(Store, at, dying)
            caught_up(archive.kept())
        archive.do("UPDATE texts SET n = n + 10")
        archive.same()


def test_an_output_that_takes_a_column_on_late_ends_at_the_first_value_that_no_row_has(
    logical: Server, tmp_path: Path
) -> None:
    archive = Archive(logical, tmp_path)
    caught_up(archive.kept("id", "n"))
    archive.do(f"UPDATE texts SET doc = {large(2)} WHERE id = 1")
    caught_up(archive.kept())
    archive.do("UPDATE texts SET n = 1 WHERE id = 1")
    flow = caught_up(archive.kept())
    assert {row["id"]: row["doc"] is None for row in tg.read_arrow(flow, "texts").to_pylist()} == {
        1: False,
        **dict.fromkeys((2, 3, 4), True),
    }
    archive.do("UPDATE texts SET n = 2 WHERE id = 4")
    flow = archive.kept()
    with pytest.raises(TidegaugeError):
        caught_up(flow)
    found = {one.name: one.error for one in tg.status(flow).outputs if one.error is not None}
    assert {name: type(error) for name, error in found.items()} == dict.fromkeys(archive.sinks, LeftOutNull)
    assert all("for the key 4" in str(error) for error in found.values())


@pytest.mark.long
def test_a_column_that_is_renamed_ends_the_table_behind_the_values_that_were_left_out(archive: Archive) -> None:
    archive.do(f"UPDATE texts SET doc = {large(2)} WHERE id = 1")
    archive.do("UPDATE texts SET n = 1")
    archive.same()
    there = archive.there("texts")
    archive.do("ALTER TABLE texts RENAME doc TO text", "UPDATE texts SET n = 2")
    flow = archive.kept()
    with pytest.raises(TidegaugeError):
        caught_up(flow)
    for name in ("texts", "ice"):
        assert by_key(tg.read_arrow(flow, name).select(["id", "n", "doc"]).to_pylist(), "id") == there
