"""Loads whose files are read and staged by tasks of Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.maintenance.history import rows, shop, write
from tests.maintenance.test_loading_once import staged

import tidegauge as tg
from tidegauge.errors.loads import FileNotLoadable


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
