"""Whoever reads a table of Iceberg of ours gets the same rows with its statistics as without: every type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes
from tests.sinks.asking import EVERY, ODD, fill, predicates
from tests.sinks.iceberg.asking_iceberg import READERS
from tests.sinks.iceberg.conftest import NAME, catalog_in

from tidegauge.sinks import IcebergSink


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> str:
    return filled(tmp_path_factory.mktemp("every"), EVERY)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> str:
    return filled(tmp_path_factory.mktemp("odd"), ODD)


def filled(folder: Path, columns: object) -> str:
    assert isinstance(columns, dict)
    fill(IcebergSink(NAME, str(folder)), columns, range(len(next(iter(columns.values()))[1])))
    return str(folder)


@pytest.mark.long
@pytest.mark.parametrize("reader", READERS)
def test_a_filter_on_any_column_keeps_what_it_keeps_of_all_rows(every: str, reader: str) -> None:
    answers = READERS[reader](every, list(predicates(EVERY)))
    assert answers
    assert [answer for answer in answers if answer.filtered != answer.kept] == []


@pytest.mark.long
@pytest.mark.parametrize("reader", READERS)
def test_so_it_does_where_there_are_nan_and_two_zeros(odd: str, reader: str) -> None:
    answers = READERS[reader](odd, list(predicates(ODD)))
    assert [answer for answer in answers if answer.filtered != answer.kept] == []


def test_the_files_have_the_numbers_of_the_columns_and_the_ends_of_their_values(every: str) -> None:
    table = catalog_in(every).load_table(NAME)
    plain = {"byte", "long", "real", "double", "zeros", "price", "large", "text", "day", "at", "local", "flag"}
    for task in table.scan().plan_files():
        file = task.file
        declared = pq.read_schema(file.file_path.removeprefix("file://"))
        numbers = {one.name: int(one.metadata[b"PARQUET:field_id"]) for one in declared}
        assert numbers == {one.name: one.field_id for one in table.schema().fields}
        values = pq.read_table(file.file_path.removeprefix("file://"))
        for name in plain:
            field: Any = table.schema().find_field(name)
            held = [value for value in values[name].to_pylist() if value is not None]
            assert file.null_value_counts[field.field_id] == len(values) - len(held)
            assert file.value_counts[field.field_id] == len(values)
            if not held or field.field_id not in file.lower_bounds:
                assert not held
                continue
            low, high = (
                from_bytes(field.field_type, ends[field.field_id]) for ends in (file.lower_bounds, file.upper_bounds)
            )
            shown = pa.array([low, high]).to_pylist() if name not in {"day", "at", "local"} else [low, high]
            asked = pa.array(held, values[name].type)
            if name in {"day", "at", "local"}:
                asked = asked.cast(pa.int32() if name == "day" else pa.int64())
            assert shown[0] <= min(asked.to_pylist()), name
            assert shown[1] >= max(asked.to_pylist()), name
