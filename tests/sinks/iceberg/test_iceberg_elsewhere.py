"""Spark with Iceberg's own JAR, and DuckDB with its extension: what they read of a table of ours, and do to it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.sinks.asking import EVERY, ODD, Answers, Asked, _blobs, _bracketed, _sqlike, fill, predicates
from tests.sinks.iceberg import elsewhere
from tests.sinks.iceberg.conftest import NAME, OUTPUT, SCHEMA, IcebergBench, write_id

from tidegauge.errors.iceberg import IcebergRowsDeleted, IcebergTableChanged
from tidegauge.sinks import IcebergSink

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]

LAKE = f"default.{NAME}"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One warehouse for all of them, as Spark takes its time to start."""
    folder = tmp_path_factory.mktemp("lake") / "lake"
    folder.mkdir()
    for name, columns in (("every", EVERY), ("odd", ODD)):
        fill(IcebergSink(f"types.{name}", str(folder)), columns, range(len(next(iter(columns.values()))[1])))
    return folder.parent


@pytest.fixture(scope="module")
def spark(root: Path) -> Iterator[elsewhere.Elsewhere]:
    with elsewhere.spark(root / "lake") as found:
        yield found


@pytest.fixture
def bench(root: Path, spark: elsewhere.Elsewhere) -> Iterator[IcebergBench]:
    found = IcebergBench(root)
    found.filled(4)
    yield found
    spark.sql(f"DROP TABLE IF EXISTS {LAKE}")


def rows(found: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in found]


def by_spark(spark: elsewhere.Elsewhere, table: str, asked: Sequence[Asked]) -> Answers:
    """Without -0.0: Iceberg takes a file with a dictionary for one without 0.0 then, whoever wrote it."""
    words: Any = {"column": lambda path: ".".join(f"`{name}`" for name in path), "instant": "timestamp"}
    known = [each for each in asked if not any(str(value) == "-0.0" for value in each.values)]
    return _sqlike(table, known[::3], lambda text: rows(spark.sql(text)), **words, local="timestamp_ntz")


@pytest.mark.parametrize(("name", "columns"), [("every", EVERY), ("odd", ODD)])
def test_spark_keeps_with_a_filter_what_it_keeps_of_all_rows(
    spark: elsewhere.Elsewhere, name: str, columns: Any
) -> None:
    answers = by_spark(spark, f"default.types.{name}", list(predicates(columns)))
    assert [answer for answer in answers if answer.filtered != answer.kept] == []


@pytest.mark.parametrize(("name", "columns"), [("every", EVERY), ("odd", ODD)])
def test_duckdb_keeps_with_a_filter_what_it_keeps_of_all_rows(root: Path, name: str, columns: Any) -> None:
    place = root / "lake" / "types" / name / "metadata"
    newest = max(place.glob("*.metadata.json"), key=lambda path: path.name)
    with elsewhere.duckdb() as duckdb:
        words: Any = {"column": _bracketed, "instant": "timestamptz", "local": "timestamp"}
        asked = list(predicates(columns))[::2]
        answers = _sqlike(f"iceberg_scan('{newest}')", asked, lambda text: rows(duckdb.sql(_blobs(text))), **words)
    assert [answer for answer in answers if answer.filtered != answer.kept] == []


def test_spark_reads_counts_and_filters_and_every_version(spark: elsewhere.Elsewhere, bench: IcebergBench) -> None:
    assert spark.sql(f"SELECT count(*), sum(amount) FROM {LAKE}") == [[4, 6.0]]
    assert rows(spark.sql(f"SELECT user, _epoch FROM {LAKE} WHERE _epoch >= 2 ORDER BY 2")) == [
        ("ada", 2),
        ("ada", 3),
    ]
    table = bench.open()
    for epoch in range(4):
        version = table.version_of(epoch)
        assert spark.sql(f"SELECT count(*) FROM {LAKE} VERSION AS OF {version}") == [[epoch + 1]]
    told = spark.sql(f"SELECT summary['tidegauge.upper'] FROM {LAKE}.snapshots ORDER BY committed_at")
    assert told == [["1"], ["2"], ["3"], ["4"]]
    with elsewhere.duckdb() as duckdb:
        newest = max((bench.path / "metadata").glob("*.metadata.json"), key=lambda path: path.name)
        assert duckdb.sql(f"SELECT count(*), max(_epoch) FROM iceberg_scan('{newest}')") == [[4, 3]]


def test_the_tag_published_is_a_version_that_the_procedures_of_spark_keep(
    spark: elsewhere.Elsewhere, bench: IcebergBench
) -> None:
    tag = bench.sink.marker(OUTPUT)
    tag.mark(next(one for one in tag.states() if one.shows(2)))
    by_tag = f"SELECT count(*), max(_epoch) FROM {LAKE} VERSION AS OF 'published'"
    assert spark.sql(by_tag) == [[2, 1]]
    call(spark, "rewrite_data_files", ", options => map('rewrite-all', 'true')")
    call(spark, "expire_snapshots", ", older_than => TIMESTAMP '2999-01-01', retain_last => 1")
    assert spark.sql(by_tag) == [[2, 1]]
    goes_on(bench, [0, 1, 2, 3])
    tag.mark(next(one for one in tag.states() if one.shows(5)))
    tag.end()
    assert spark.sql(by_tag) == [[5, 4]]
    ref = bench.table.metadata.refs["published"].snapshot_id
    newest = max((bench.path / "metadata").glob("*.metadata.json"), key=lambda path: path.name)
    with elsewhere.duckdb() as duckdb:
        assert duckdb.sql(f"SELECT count(*) FROM iceberg_scan('{newest}', snapshot_from_id = {ref})") == [[5]]


def goes_on(bench: IcebergBench, left: Sequence[int], upper: int = 4) -> None:
    table = bench.open()
    assert table.upper == upper
    bench.commit(table, upper, upper + 1)
    assert bench.epochs() == [*left, upper]


def call(spark: elsewhere.Elsewhere, procedure: str, more: str = "") -> None:
    spark.sql(f"CALL default.system.{procedure}(table => '{NAME}'{more})")


def test_the_procedures_of_spark_are_passed(spark: elsewhere.Elsewhere, bench: IcebergBench) -> None:
    call(spark, "rewrite_data_files", ", options => map('rewrite-all', 'true')")
    goes_on(bench, [0, 1, 2, 3])
    [packed] = [file for file in bench.open().files() if file.rows == 4]
    assert (packed.first_epoch, packed.last_epoch) == (0, 3)
    call(spark, "rewrite_manifests")
    goes_on(bench, [0, 1, 2, 3, 4], 5)
    call(spark, "expire_snapshots", ", older_than => TIMESTAMP '2999-01-01', retain_last => 1")
    assert len(bench.table.snapshots()) == 1
    goes_on(bench, [0, 1, 2, 3, 4, 5], 6)
    call(spark, "rewrite_data_files", ", options => map('rewrite-all', 'true')")
    call(spark, "expire_snapshots", ", older_than => TIMESTAMP '2999-01-01', retain_last => 1")
    goes_on(bench, [0, 1, 2, 3, 4, 5, 6], 7)
    assert spark.sql(f"SELECT count(*) FROM {LAKE}") == [[8]]


def test_orphans_are_removed_and_the_history_is_not(spark: elsewhere.Elsewhere, bench: IcebergBench) -> None:
    from tidegauge.testing.kit.place import history

    table = bench.open()
    rows = [{"user": "ada", "amount": 1.5, "_epoch": 4}]
    table.commit(4, 5, SCHEMA, bench.stage(rows), write=write_id(), history=history(4, 5))
    [litter] = bench.stage(rows)
    old = time.time() - 10 * 86400
    for path in bench.path.rglob("*"):
        os.utime(path, (old, old))
    call(spark, "remove_orphan_files")
    assert not (bench.path / litter.path).exists()
    assert [link.epoch for link in bench.open().links()] == [4]
    goes_on(bench, [0, 1, 2, 3, 4], 5)


def test_deletes_are_passed_and_where_they_are_files_of_their_own_that_is_said(
    spark: elsewhere.Elsewhere, bench: IcebergBench
) -> None:
    spark.sql(f"DELETE FROM {LAKE} WHERE _epoch = 1")
    goes_on(bench, [0, 2, 3])
    table = bench.open()
    bench.commit(table, 5, 8)
    spark.sql(f"ALTER TABLE {LAKE} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    spark.sql(f"DELETE FROM {LAKE} WHERE _epoch = 6")
    with pytest.raises(IcebergRowsDeleted):
        bench.open().files()
    goes_on(bench, [0, 2, 3, 4, 5, 7], 8)
    spark.sql(
        f"CALL default.system.rewrite_data_files(table => '{NAME}', "
        "options => map('delete-file-threshold', '1', 'remove-dangling-deletes', 'true'))"
    )
    spark.sql(f"CALL default.system.rewrite_position_delete_files(table => '{NAME}')")
    assert sum(file.rows for file in bench.open().files()) == 7
    goes_on(bench, [0, 2, 3, 4, 5, 7, 8], 9)


@pytest.mark.parametrize(
    "statement",
    [
        f"INSERT INTO {LAKE} VALUES ('eve', 9.0, 1)",
        f"INSERT OVERWRITE {LAKE} VALUES ('eve', 9.0, 1)",
        f"UPDATE {LAKE} SET amount = 2 WHERE _epoch = 1",
        f"MERGE INTO {LAKE} t USING (SELECT 1 e) s ON t._epoch = s.e WHEN MATCHED THEN UPDATE SET amount = 3",
        f"CREATE OR REPLACE TABLE {LAKE} USING iceberg AS SELECT * FROM {LAKE}",
        "rollback",
    ],
)
def test_rows_of_others_are_refused_until_the_snapshot_is_set_that_the_error_names(
    spark: elsewhere.Elsewhere, bench: IcebergBench, statement: str
) -> None:
    first = bench.open().version_of(1)
    if statement == "rollback":
        statement = f"CALL default.system.rollback_to_snapshot('{NAME}', {first})"
    spark.sql(statement)
    with pytest.raises(IcebergTableChanged) as caught:
        bench.open()
    remedy = caught.value.next_step.partition("CALL system.")[2].partition(" in Spark")[0]
    spark.sql(f"CALL default.system.{remedy}")
    goes_on(bench, [0, 1, 2, 3])
