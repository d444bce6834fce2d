"""Whoever reads a Delta table of ours gets the same rows with its statistics as without: every reader, every type."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from tests.sinks.asking import EVERY, ODD, READERS, Answers, by_spark, predicates, write
from tests.sinks.spark_delta import delta_spark

import tidegauge as tg
from tidegauge.sinks.delta import bykey
from tidegauge.sinks.keyed.planning import Sizes

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


@pytest.fixture(scope="module", params=[EVERY, ODD], ids=["every", "odd"])
def by_key(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    """A table with one row for each key, in leaves of a row or two."""
    path = str(tmp_path_factory.mktemp("by_key"))
    with mock.patch.object(bykey, "SIZES", Sizes(leaf_rows=2)):
        write(path, request.param, by_key=True)
    return path, request.param


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


@pytest.mark.parametrize("reader", READERS)
def test_so_it_does_in_a_table_with_one_row_for_each_key(by_key: tuple[str, Any], reader: str) -> None:
    path, columns = by_key
    assert len(DeltaTable(path).file_uris()) > 2
    _agree(READERS[reader](path, list(predicates(columns))))


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_spark_with_the_jar_of_delta_agrees_as_well(every: str, odd: str, by_key: tuple[str, Any]) -> None:
    with delta_spark() as spark:
        for path, columns in ((every, EVERY), (odd, ODD), by_key):
            _agree(by_spark(spark.sql, path, list(predicates(columns))))


def _agree(answers: Answers) -> None:
    assert [answer for answer in answers if answer.filtered != answer.kept] == []
