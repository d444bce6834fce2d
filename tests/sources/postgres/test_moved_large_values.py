"""Large values that an UPDATE leaves out of a row whose key it changes: those of the row under the old key."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.postgres import Server
from tests.sources.database.followed import caught_up
from tests.sources.postgres.test_large_values_of_added_columns import Archive, Dead
from tests.sources.postgres.test_left_out import large

import tidegauge as tg
from tidegauge.errors.leftout import LeftOutUnknown
from tidegauge.remap.store import Store


@pytest.fixture
def archive(logical: Server, tmp_path: Path) -> Archive:
    """Tables of three kinds, and one whose rows lie by their keys."""
    found = Archive(logical, tmp_path)
    given: Any = {"envelope": "upsert", "key": "id", "order": "_sequence", "partition_by": tg.bucket(3, "id")}
    found.sinks["homes"] = tg.DeltaSink(str(tmp_path / "homes"), **given)
    found.same()
    return found


def test_a_row_that_gets_another_key_keeps_its_large_value(archive: Archive) -> None:
    archive.do("UPDATE texts SET id = 11, n = 1 WHERE id = 1")
    archive.do("UPDATE texts SET id = id + 20 WHERE id < 4")
    archive.do("UPDATE texts SET id = 5 WHERE id = 23")  # twice in the epoch
    archive.do(f"INSERT INTO texts VALUES (1, 2, {large(3)})", "UPDATE texts SET n = 3 WHERE id = 1")
    archive.do("UPDATE texts SET id = 12 WHERE id = 1")  # of a row that no table has
    archive.do("INSERT INTO texts VALUES (1, 4, NULL)", "UPDATE texts SET n = 5 WHERE id IN (5, 11)")
    archive.same()
    archive.do("UPDATE texts SET id = -id")
    archive.do("UPDATE texts SET n = n + 1")
    archive.same()
    archive.do("DELETE FROM texts WHERE id = -11", "UPDATE texts SET id = -11 WHERE id = -22")
    archive.same()
    assert not [one for one in archive.root.rglob("_staged/**/*") if one.is_file()]


def test_a_row_that_is_not_in_the_table_cannot_move(archive: Archive) -> None:
    archive.do("DELETE FROM kept_texts WHERE id = 2", "UPDATE texts SET id = 7 WHERE id = 2")
    flow = archive.kept()
    with pytest.raises(LeftOutUnknown, match="key 2"):
        caught_up(flow)
    assert [one.name for one in tg.status(flow).outputs if one.error is not None] == ["away"]


def test_a_row_moves_between_partitions_of_its_key_and_takes_along_a_column_that_came(
    logical: Server, tmp_path: Path
) -> None:
    archive = Archive(logical, tmp_path)
    given: Any = {"envelope": "upsert", "key": ["id", "n"], "order": "_sequence"}
    archive.do("ALTER TABLE texts DROP CONSTRAINT texts_pkey", "ALTER TABLE texts ADD PRIMARY KEY (id, n)")
    archive.sinks = {
        "texts": tg.DeltaSink(str(tmp_path / "texts"), partition_by="n", **given),
        "ice": tg.IcebergSink("shop.texts", warehouse=str(tmp_path / "w"), partition_by="n", **given),
        "away": tg.PostgresSink(archive.address, "kept_texts", staging=str(tmp_path / "staging"), **given),
    }
    archive.same()
    archive.add("note")
    archive.do(f"UPDATE texts SET note = {large(2)} || id WHERE id < 3")
    archive.do("UPDATE texts SET n = id % 2")
    archive.same()
    archive.do("UPDATE texts SET n = n + 1 WHERE id <> 3", "UPDATE texts SET id = id + 10")
    archive.same()


@pytest.mark.long
@pytest.mark.parametrize("at", ["append", "publish"])
def test_a_driver_that_dies_between_loses_no_value(
    at: str, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(*_given: Any, **_named: Any) -> Any:
        raise Dead

    archive.do("UPDATE texts SET id = id + 10")
    with monkeypatch.context() as patched, suppress(Dead):
        patched.setattr(Store, at, dying)
        caught_up(archive.kept())
    archive.do("UPDATE texts SET id = id - 5, n = 1")
    archive.same()


def test_other_writers_of_the_table_in_between_are_heeded(archive: Archive) -> None:
    archive.do(f"INSERT INTO texts SELECT i, 0, {large(2)} || i FROM generate_series(5, 8) i")
    archive.same()
    DeltaTable(str(archive.root / "texts")).optimize.compact()
    archive.do("UPDATE texts SET id = id + 10 WHERE id % 2 = 0")
    archive.same()
    DeltaTable(str(archive.root / "texts")).delete("id = 3")
    archive.do("UPDATE texts SET id = 30 WHERE id = 3")
    with pytest.raises(LeftOutUnknown, match="key 3"):
        caught_up(archive.kept())
