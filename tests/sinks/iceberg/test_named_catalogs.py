"""Catalogs by their names in pyiceberg's configuration, and what is said of those that are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config
from tests.sinks.iceberg.conftest import OUTPUT, SCHEMA

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.iceberg import CatalogAway, CatalogUnknown, WarehouseUnknown
from tidegauge.errors.objects import CredentialsInAddress
from tidegauge.errors.sinks import UnsupportedLocation
from tidegauge.sinks import IcebergSink


def configure(monkeypatch: pytest.MonkeyPatch, name: str, **told: str) -> None:
    """Configure a catalog as people do, for this process and its children."""
    for key, value in told.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__{name.upper()}__{key.upper()}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it was read when that was imported


def test_the_warehouse_of_a_catalog_is_known_from_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, "pond", uri=f"sqlite:///{tmp_path}/pond.db", warehouse=f"file://{tmp_path}/tables")
    sink = IcebergSink("shop.orders", catalog="pond")
    assert sink == IcebergSink("shop.orders", str(tmp_path / "tables"), catalog="pond")
    assert sink.describe() == {
        "kind": "iceberg", "table": "shop.orders", "warehouse": f"{tmp_path}/tables", "catalog": "pond",
    }  # fmt: skip
    assert sink.open(OUTPUT).upper == 0
    sink.open(OUTPUT).commit(0, 1, SCHEMA, [], write="1" * 32)
    assert load_catalog("pond").load_table("shop.orders").properties["tidegauge.upper"] == "1"
    assert not (tmp_path / "tables" / "catalog.db").exists()


@pytest.mark.long
def test_a_catalog_that_is_not_described_is_said_and_no_secret_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WarehouseUnknown):
        IcebergSink("shop.orders", catalog="nowhere")
    with pytest.raises(WarehouseUnknown):
        IcebergSink("shop.orders")
    configure(monkeypatch, "named", type="rest", uri="http://127.0.0.1:1", warehouse="prod", token="hunter2")
    with pytest.raises(WarehouseUnknown, match="folder or address"):
        IcebergSink("shop.orders", catalog="named")
    with pytest.raises(CatalogUnknown):
        IcebergSink("shop.orders", str(tmp_path), catalog="nowhere").open(OUTPUT)
    sink = IcebergSink("shop.orders", str(tmp_path), catalog="named")
    with pytest.raises(CatalogAway) as caught:
        sink.open(OUTPUT)
    assert "hunter2" not in str(caught.value) + json.dumps(dict(sink.describe()))
    assert list(tmp_path.iterdir()) == []


HOSTILE = [
    "orders",
    "shop.",
    ".orders",
    "shop.or ders",
    "shop.../x",
    "shop.o'; DROP TABLE x",
    "a\0.b",
    "shop.or/ders",
    "",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_that_mean_something_to_paths_or_to_sql_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument):
        IcebergSink(name, str(tmp_path))


def test_places_that_nobody_could_read_are_refused(tmp_path: Path) -> None:
    for place in ("s3://bucket/lake", f"{tmp_path}/a#b", f"{tmp_path}/a%20b", " "):
        with pytest.raises(InvalidArgument):
            IcebergSink("shop.orders", place)
    with pytest.raises(UnsupportedLocation):
        IcebergSink("shop.orders", "hdfs://lake")
    with pytest.raises(CredentialsInAddress) as caught:
        IcebergSink("shop.orders", "s3://ada:hunter2@bucket/lake", catalog="pond")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(InvalidArgument):
        IcebergSink("shop.orders", str(tmp_path), catalog="a b")
