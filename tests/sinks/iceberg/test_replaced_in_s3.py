"""Tests of all tables, on those of Iceberg in an object store: rows replaced, files taken out."""

# ruff: noqa: F401 - what is imported are tests

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from tests.s3 import Lake
from tests.sinks.conftest import SCHEMA, Bench, Kind
from tests.sinks.iceberg.stored import POND, configured
from tests.sinks.test_files_taken_out import (
    test_files_are_replaced_in_one_commit_that_moves_no_upper_and_the_table_goes_on as test_files_are_replaced,
)
from tests.sinks.test_files_taken_out import three as three
from tests.sinks.test_replaced_rows import (
    test_an_append_that_was_first_refuses_the_replacement as test_an_append_that_was_first,
)
from tests.sinks.test_replaced_rows import test_it_is_replaced_again_and_again as test_it_is_replaced_again
from tests.sinks.test_replaced_rows import (
    test_other_rows_take_the_place_of_all_and_the_table_goes_on_after_them as test_other_rows_take_the_place,
)
from tests.sinks.test_replaced_rows import (
    test_the_rows_of_the_new_edition_may_have_other_columns as test_other_columns,
)

from tidegauge.sinks import IcebergSink

pytestmark = pytest.mark.long


def named(path: str) -> tuple[str, str]:
    """The warehouse, and the name, of the table whose folder this is."""
    warehouse, namespace, name = path.rsplit("/", 2)
    return warehouse, f"{namespace}.{name}"


def sink_at(path: str) -> IcebergSink:
    warehouse, name = named(path)
    return IcebergSink(name, warehouse, catalog=POND)


def read(path: str) -> Any:
    catalog, name = load_catalog(POND), named(path)[1]
    return catalog.load_table(name).scan().to_arrow() if catalog.table_exists(name) else SCHEMA.empty_table()


@dataclass(frozen=True)
class StoredTable(Bench):
    def remove(self) -> None:
        load_catalog(POND).drop_table(named(self.path)[1])


@pytest.fixture
def bench(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    configured(monkeypatch, tmp_path, lake.server.url)
    path = lake.at("lake/shop/orders")
    return StoredTable(Kind("iceberg", sink_at, read), path, sink_at(path))
