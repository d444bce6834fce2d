"""Whoever reads a Delta table of ours gets the same rows with its statistics as without: every reader, every type."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from tests.sinks.asking import EVERY, ODD, READERS, Answers, by_spark, predicates, write
from tests.sinks.spark_delta import delta_spark

import tidegauge as tg

FILTERS = sorted({"is null", "is not null", "=", "<>", "<", ">=", "in", "between", "like"})


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("every"))
    write(path, EVERY)
    return path


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("odd"))
    write(path, ODD)
    return path


def test_a_filter_on_a_column_of_a_flow_finds_its_rows(tmp_path: Path) -> None:
    (tmp_path / "orders.jsonl").write_text('{"user": "ada", "amount": 1.5}\n{"user": "bob", "amount": 2.5}\n')
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/store.db")
    orders = flow.source("orders", tg.FileSource(f"{tmp_path}/*.jsonl", format=tg.Json("user string, amount double")))
    flow.sink("orders", orders, tg.DeltaSink(f"{tmp_path}/lake"))
    flow.run(engine="local", until="caught-up")
    assert pl.scan_delta(f"{tmp_path}/lake").filter(pl.col("user") == "bob").collect()["amount"].to_list() == [2.5]
    [row] = QueryBuilder().register("t", DeltaTable(f"{tmp_path}/lake")).execute("select * from t where amount < 2")
    assert pa.table(row)["user"].to_pylist() == ["ada"]


@pytest.mark.parametrize("reader", READERS)
def test_a_filter_on_any_column_keeps_what_it_keeps_of_all_rows(every: str, reader: str) -> None:
    asked = list(predicates(EVERY))
    assert sorted({each.test for each in asked}) == FILTERS
    _agree(READERS[reader](every, asked))


@pytest.mark.parametrize("reader", READERS)
def test_so_it_does_where_there_are_nan_and_two_zeros(odd: str, reader: str) -> None:
    _agree(READERS[reader](odd, list(predicates(ODD))))


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_spark_with_the_jar_of_delta_agrees_as_well(every: str, odd: str) -> None:
    with delta_spark() as spark:
        for path, columns in ((every, EVERY), (odd, ODD)):
            _agree(by_spark(spark.sql, path, list(predicates(columns))))


def _agree(answers: Answers) -> None:
    assert [answer for answer in answers if answer.filtered != answer.kept] == []
