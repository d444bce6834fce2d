"""Spark with Delta's own JAR, and DuckDB with its extension, beside us in one table with deletion vectors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.sinks.iceberg import elsewhere
from tests.sinks.keyed.test_marked_rows import (
    AFTER,
    OUTPUT,
    THREE,
    WHERE,
    by_polars,
    chosen,
    commit,
    filled,
    marking,
    rows,
    sink_in,
    vectored,
)
from tests.sinks.spark_delta import DeltaSpark, delta_spark

from tidegauge.errors.sinks import TableChangedByOthers
from tidegauge.sinks import vectors

__all__ = ["marking"]

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def spark() -> Iterator[DeltaSpark]:
    with delta_spark() as started:
        yield started


def by_spark(spark: DeltaSpark, path: str, where: str = "true") -> list[tuple[int, int]]:
    return [(one, n) for one, n in spark.sql(f"select id, n from delta.`{path}` where {where} order by id")]


@pytest.mark.parametrize("inline", [0, 512], ids=["file", "inline"])
def test_they_see_the_rows_that_are_left_with_and_without_filters(
    inline: int, spark: DeltaSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "_INLINE", inline)
    path = str(tmp_path / "t")
    filled(path, *THREE)
    assert len(vectored(path)) == 2
    with elsewhere.duckdb() as duckdb:
        for where in WHERE:
            wanted = [row for row in AFTER if chosen(where)(*row)]
            assert by_spark(spark, path, where) == wanted
            asked = f"select id, n from delta_scan('{path}') where {where} order by id"
            assert [(one, n) for one, n in duckdb.sql(asked)] == wanted


def test_what_spark_deletes_packs_and_purges_between_our_commits_is_merged_into(
    spark: DeltaSpark, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    sink, table = filled(path, *THREE)
    wanted = dict(AFTER)
    for turn, statement in enumerate(
        (
            "delete from {} where id in (3, 7, 8)",
            "optimize {}",
            "delete from {} where id % 10 = 4",
            "reorg table {} apply (purge)",
            "delete from {} where id = 50",
            "vacuum {} retain 0 hours",
        )
    ):
        spark.sql(statement.format(f"delta.`{path}`"))
        if statement.startswith("delete"):
            gone = {"3": {3, 7, 8}, "%": set(range(4, 100, 10)), "5": {50}}
            which = "%" if "%" in statement else "5" if "50" in statement else "3"
            wanted = {one: n for one, n in wanted.items() if one not in gone[which]}
        assert dict(by_spark(spark, path)) == dict(rows(path)) == dict(by_polars(path)) == wanted, statement
        ids = [turn, 60 + turn, 300 + turn]
        epoch = table.upper
        commit(sink, table, ids)
        wanted |= {one: epoch * 1000 + one for one in ids}
        assert dict(by_spark(spark, path)) == dict(rows(path)) == wanted, statement
    assert sum(file.rows for file in table.files()) == len(wanted)


def test_what_spark_updates_or_merges_is_refused_until_it_is_taken_back(spark: DeltaSpark, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    filled(path, *THREE)
    version = DeltaTable(path).version()
    spark.sql(f"update delta.`{path}` set n = 0 where id in (1, 50)")
    with pytest.raises(TableChangedByOthers):
        sink_in(path).open(OUTPUT)
    spark.sql(f"restore table delta.`{path}` to version as of {version}")
    sink = sink_in(path)
    table = sink.open(OUTPUT)
    commit(sink, table, [1])
    assert dict(rows(path)) == dict(by_spark(spark, path)) == {**dict(AFTER), 1: 3001}
