"""A parted Delta table in an object store: every law of sinks, on a real server, and the same rows for readers."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.s3 import Lake
from tests.sinks.asking import PARTED, predicates, query_builder, write
from tests.sinks.test_delta_in_s3 import LakeBench
from tests.sinks.test_parquet_in_s3 import LakeBench as ParquetBench

import tidegauge as tg
from tidegauge.objects.path import ObjectPath
from tidegauge.sinks import DeltaSink, OutputId, ParquetSink
from tidegauge.testing.kit import check_sink


@dataclass
class PartedLakeBench(LakeBench):
    """A table at an address of its own, parted by a column of the kit's rows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sink = DeltaSink(self.path, partition_by="user", sort_by="amount")


@pytest.mark.long
def test_a_parted_table_in_a_store_holds_every_law(lake: Lake) -> None:
    check_sink(lambda folder: PartedLakeBench(folder, lake), crashes=20, deadline=240).require()


@dataclass
class PartedParquetBench(ParquetBench):
    """A folder of Parquet files at an address of its own, parted by a column of the kit's rows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sink = ParquetSink(self.path, partition_by="user", sort_by="amount")

    def rows(self) -> list[dict[str, Any]]:
        place = ObjectPath.of(self.path)
        found: list[dict[str, Any]] = []
        for path in place.below():
            parts = path.split("/")
            if not any(part[0] in "_." for part in parts):
                user = unquote(parts[1].removeprefix("user="))
                rows = pq.read_table(io.BytesIO((place / path).read_bytes())).to_pylist()
                found += [{"user": user, **row} for row in rows]
        return found


@pytest.mark.long
def test_a_parted_folder_in_a_store_holds_every_law(lake: Lake) -> None:
    check_sink(lambda folder: PartedParquetBench(folder, lake), crashes=20, deadline=240).require()


@pytest.mark.long
def test_readers_find_rows_in_partitions_of_a_store(lake: Lake) -> None:
    path = lake.at("parted/t")
    write(path, PARTED, partition_by=["country", tg.bucket(3, "id")])
    answers = query_builder(path, list(predicates(PARTED))[::3])
    assert [answer for answer in answers if answer.filtered != answer.kept] == []
    files = (
        DeltaSink(path, partition_by=["country", tg.bucket(3, "id")])
        .open(OutputId("shop", "orders", "a" * 32))
        .files()
    )
    assert sum(file.rows for file in files) == len(DeltaTable(path).to_pyarrow_table())
    assert {dict(file.partition)["country"] for file in files} == {
        "DE",
        "a/b",
        "x=y",
        "50%",
        "%2F",
        "'",
        "..",
        "ü 日",
        "*?[a]{}",
        None,
    }
