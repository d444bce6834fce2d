"""Loads whose files are read and staged by tasks of Spark."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from tests.engine.unlike import SETTINGS
from tests.maintenance.history import rows, shop, write
from tests.maintenance.test_loading_once import staged

import tidegauge as tg
from tidegauge.errors.loads import FileChangedMeanwhile, FileNotLoadable


@pytest.mark.spark
def test_tasks_of_spark_stage_a_load_or_say_what_stopped_them(tmp_path: Path, spark: tg.SparkEngine) -> None:
    write(tmp_path, 1, 2, 3)
    (tmp_path / "in" / "3.parquet").write_bytes(b"PAR1" + bytes(600) + b"PAR1")
    flow = shop(tmp_path)
    with pytest.raises(FileNotLoadable, match=r"3\.parquet cannot be read"):
        tg.load(flow, "orders", tmp_path / "in" / "*.parquet", engine=spark)
    assert staged(tmp_path) == ["lock"]
    (tmp_path / "a.jsonl").write_text('{"id": 7}\n{"id": "x"}\n')
    with pytest.raises(FileNotLoadable, match="the record at 10"):
        tg.load(flow, "orders", tmp_path / "a.jsonl", engine=spark)
    assert staged(tmp_path) == ["lock"]
    assert tg.load(flow, "orders", tmp_path / "in" / "[12].parquet", engine=spark).rows == 4
    assert [n for n, _ in rows(flow)] == [1, 2, 11, 12]


TOLD = """SELECT 1L id, DATE'{year}-03-01' day, TIMESTAMP'{year}-03-01 12:00:00' at,
    TIMESTAMP_NTZ'2024-03-10 02:30:00' local, named_struct('at', array(TIMESTAMP'2024-07-01 00:00:00')) deep"""
COLUMNS = "id long, day date, at timestamp, local timestamp_ntz, deep struct<at: array<timestamp>>"
MODES = ("spark.sql.parquet.datetimeRebaseModeInWrite", "spark.sql.parquet.int96RebaseModeInWrite")


@pytest.mark.spark
@pytest.mark.parametrize("stored", ["INT96", "TIMESTAMP_MICROS"])
def test_what_spark_has_written_has_the_values_that_spark_reads_or_is_refused(
    tmp_path: Path, classic: Any, stored: str
) -> None:
    session = classic.newSession()
    for name, value in {**SETTINGS, "spark.sql.files.ignoreCorruptFiles": "true"}.items():
        session.conf.set(name, value)
    session.conf.set("spark.sql.timestampType", "TIMESTAMP_LTZ")
    session.conf.set("spark.sql.parquet.outputTimestampType", stored)
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db")
    history = flow.source("history", tg.BatchSource(tmp_path / "loads", columns=COLUMNS))
    flow.sink("orders", history, tg.ParquetSink(str(tmp_path / "lake")))
    engine = tg.SparkEngine(session)
    written = list[Any]()
    for mode, year in (("CORRECTED", 1000), ("CORRECTED", 2000), ("LEGACY", 2000), ("LEGACY", 1000)):
        for name in MODES:
            session.conf.set(name, mode)
        folder = str(tmp_path / f"{mode}-{year}")
        session.sql(TOLD.format(year=year)).coalesce(1).write.parquet(folder)
        if (mode, year) == ("LEGACY", 1000):
            with pytest.raises(FileNotLoadable, match=r"before 1582-10-15, 1000-03-07 first, in the old calendar"):
                tg.load(flow, "orders", f"{folder}/*.parquet", engine=engine)
            break
        tg.load(flow, "orders", f"{folder}/*.parquet", engine=engine)
        written += session.read.option("datetimeRebaseMode", "CORRECTED").parquet(folder).toArrow().to_pylist()
    flow.run("caught-up", engine=engine)
    found = tg.read_arrow(flow, "orders").drop(["_epoch"]).to_pylist()
    assert sorted(found, key=itemgetter("day")) == sorted(written, key=itemgetter("day"))
    assert len(found) == 3


@pytest.mark.spark
def test_sessions_that_ignore_files_ignore_none_of_a_load(tmp_path: Path, classic: Any) -> None:
    session = classic.newSession()
    for what in ("Corrupt", "Missing"):
        session.conf.set(f"spark.sql.files.ignore{what}Files", "true")
    write(tmp_path, 1, 2)
    flow = shop(tmp_path)

    class Gone(tg.SparkEngine):
        def work(self, tasks: Any) -> Any:
            (tmp_path / "in" / "2.parquet").unlink()
            return super().work(tasks)

    with pytest.raises(FileChangedMeanwhile, match=r"2\.parquet has changed since it was found, it is gone"):
        tg.load(flow, "orders", tmp_path / "in" / "*.parquet", engine=Gone(session))
    write(tmp_path, 2)
    good = (tmp_path / "in" / "2.parquet").read_bytes()
    (tmp_path / "in" / "2.parquet").write_bytes(good[:4] + bytes(40) + good[44:])
    with pytest.raises(FileNotLoadable, match=r"2\.parquet cannot be read"):
        tg.load(flow, "orders", tmp_path / "in" / "*.parquet", engine=tg.SparkEngine(session))
    assert staged(tmp_path) == ["lock"]
    assert rows(flow) == []
