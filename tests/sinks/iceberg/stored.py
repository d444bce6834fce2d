"""Tables of Iceberg in a bucket: a catalog of SQL on the disk; pyiceberg writes the metadata with Arrow's client."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from tests.s3 import CREDENTIALS, Lake
from tests.sinks.iceberg.conftest import IcebergBench
from tests.sinks.iceberg.test_iceberg_by_key import UniqueSink
from tests.sinks.iceberg.test_named_catalogs import configure
from tests.sinks.keyed.unique import KEY

from tidegauge.objects.path import ObjectPath
from tidegauge.sinks import IcebergSink, Sink

POND = "pond"


def configured(monkeypatch: pytest.MonkeyPatch, folder: Path, endpoint: str) -> None:
    """Describe the catalog as people do. endpoint: where its client finds the store."""
    keys = {"s3__access_key_id": "tide", "s3__secret_access_key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"]}
    told = {"s3__endpoint": endpoint, "s3__region": "us-east-1", **keys}
    configure(monkeypatch, POND, type="sql", uri=f"sqlite:///{folder}/pond.db", **told)


@dataclass
class StoredBench(IcebergBench):
    """A table in a warehouse of its own, in a bucket."""

    lake: Lake | None = None

    def __post_init__(self) -> None:
        assert self.lake is not None
        self.stored = self.lake.at(f"w{uuid.uuid4().hex[:8]}")
        self.name = f"shop.orders_{uuid.uuid4().hex[:8]}"  # as one catalog has them all
        self.sink = IcebergSink(self.name, self.stored, catalog=POND, **self.options)
        self.secrets = ["hunter2"]

    @property
    def path(self) -> Any:
        return ObjectPath.of(f"{self.stored}/{self.name.replace('.', '/')}")

    def found(self) -> set[str]:
        return set(self.path.below())

    @property
    def catalog(self) -> Any:
        return load_catalog(POND)

    @property
    def table(self) -> Any:
        return self.catalog.load_table(self.name)

    def rows(self) -> list[dict[str, Any]]:
        catalog = self.catalog
        try:
            found: list[dict[str, Any]] = catalog.load_table(self.name).scan().to_arrow().to_pylist()
        except NoSuchTableError:
            return []
        finally:
            catalog.close()
        return found

    def remove(self) -> None:
        self.catalog.drop_table(self.name)

    def ways(self) -> Sequence[Sink]:
        ways = (f"{self.stored}/", self.stored.replace("s3://", "s3a://"))
        return [replace(self.sink, warehouse=way) for way in ways]

    def elsewhere(self) -> Sink:
        other: Sink = replace(self.sink, table=f"{self.name}2")
        return other


@dataclass
class StoredUpserts(StoredBench):
    """A table by key, whose rows get their keys on the way."""

    parted: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sink = UniqueSink(self.name, self.stored, POND, self.parted)

    def rows(self) -> list[dict[str, Any]]:
        return [{name: value for name, value in row.items() if name != KEY} for row in super().rows()]
