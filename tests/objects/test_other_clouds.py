"""Sources and tables in the stores of other clouds: what is proved on S3 holds there too.

Azure's blobs are those of Microsoft's own emulator. Google's are a translation for the server of S3 (`tests.gcs`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.azure import AzureLake
from tests.flow.badinput import lines
from tests.flow.test_from_disk_to_store import EPOCHS, lived, tables, to_disk
from tests.gcs import GoogleLake
from tests.sinks.conftest import OUTPUT, SCHEMA, stage, write_id
from tests.sinks.test_delta_in_s3 import delta_rows
from tests.sinks.test_parquet_in_s3 import listed_rows

import tidegauge as tg
from tidegauge.errors.loads import LoadedAlready
from tidegauge.errors.objects import BucketMissing, ObjectOverwritten
from tidegauge.errors.sinks import TableUpperMismatch
from tidegauge.objects.client import at_once
from tidegauge.objects.path import ObjectPath
from tidegauge.sinks import Sink
from tidegauge.testing.kit import check_sink

pytestmark = pytest.mark.long

CloudLake: TypeAlias = AzureLake | GoogleLake

SINKS: dict[str, Callable[[str], Any]] = {
    "Delta": tg.DeltaSink,
    "Delta by key": lambda path: tg.DeltaSink(path, envelope="upsert", key="user"),
    "Parquet": tg.ParquetSink,
}


@pytest.fixture(params=["azure", "google"])
def cloud(request: pytest.FixtureRequest) -> Any:
    """A container or a bucket of its own; the environment leads there."""
    return request.getfixturevalue(request.param)


def to_cloud(cloud: CloudLake, folder: str) -> Callable[[str, bytes], None]:
    return lambda name, data: ObjectPath.of(cloud.at(f"{folder}/{name}")).put(data)


@dataclass
class CloudBench:
    """A table at an address of its own, and readers that nobody here wrote."""

    folder: Path
    cloud: CloudLake
    kind: str
    sink: Any = field(init=False)

    def __post_init__(self) -> None:
        self.path = self.cloud.at(f"{uuid.uuid4().hex}/orders")
        self.sink = SINKS[self.kind](self.path)

    def rows(self) -> list[dict[str, Any]]:
        return listed_rows(self.path) if self.kind == "Parquet" else delta_rows(self.path)

    def remove(self) -> None:
        ObjectPath.of(self.path).clear()

    def ways(self) -> Sequence[Sink]:
        return [SINKS[self.kind](f"{self.path}/")]

    def elsewhere(self) -> Any:
        return SINKS[self.kind](f"{self.path}-2")


@pytest.mark.parametrize("kind", ["Delta", "Parquet"])
def test_a_table_holds_every_law(cloud: CloudLake, kind: str) -> None:
    report = check_sink(lambda folder: CloudBench(folder, cloud, kind), crashes=20, deadline=240)
    report.require()


@pytest.mark.parametrize("kind", SINKS)
def test_of_two_drivers_the_older_changes_nothing(cloud: CloudLake, kind: str) -> None:
    sink = SINKS[kind](cloud.at())
    older, newer = sink.open(OUTPUT), sink.open(OUTPUT)
    newer.commit(0, 1, SCHEMA, stage(sink, [0]), write=write_id())
    files = stage(sink, [0], user="bob")
    with pytest.raises(TableUpperMismatch):
        older.commit(0, 1, SCHEMA, files, write=write_id())
    assert sink.open(OUTPUT).upper == 1


def test_the_tables_of_a_flow_are_those_on_a_disk(tmp_path: Path, cloud: CloudLake) -> None:
    here = lived(str(tmp_path / "here"), f"sqlite:///{tmp_path}/here.db", to_disk(tmp_path / "here"), range(EPOCHS))
    place, store = cloud.at("there"), f"sqlite:///{tmp_path}/there.db"
    there = lived(place, store, to_cloud(cloud, "there"), range(EPOCHS))
    assert tables(here) == tables(there)


def flow_of(cloud: CloudLake, folder: Path) -> tg.Dataflow:
    flow = tg.Dataflow("shop", store=f"sqlite:///{folder}/shop.db")
    orders = flow.source("orders", tg.FileSource(cloud.at("in/*.jsonl"), format=tg.Json("n long, text string")))
    flow.sink("orders", orders, tg.DeltaSink(str(folder / "orders")))
    return flow


def test_an_object_that_was_overwritten_is_said(tmp_path: Path, cloud: CloudLake) -> None:
    put = to_cloud(cloud, "in")
    put("a.jsonl", lines(1).encode())
    flow = flow_of(cloud, tmp_path)
    flow.run(until="caught-up", engine="local")
    put("a.jsonl", lines(2, 3).encode())
    with pytest.raises(ObjectOverwritten):
        flow.run(until="caught-up", engine="local")
    assert [row["n"] for row in tg.read_arrow(flow, "orders").to_pylist()] == [1]


def test_objects_are_listed_and_loaded_once_with_all_that_is_staged_there(tmp_path: Path, cloud: CloudLake) -> None:
    put, columns = to_cloud(cloud, "in"), "n long, text string"
    for name, number in (("a", 1), ("b", 2)):
        put(f"{name}.jsonl", lines(number).encode())
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db")
    listed = tg.ListingSource(cloud.at("in/*.jsonl"), format=tg.Json(columns), staging=cloud.at("staging"))
    history = tg.BatchSource(cloud.at("loads"), columns=columns)
    every = tg.union(flow.source("listed", listed), flow.source("history", history))
    flow.sink("orders", flow.source("every", every), tg.DeltaSink(cloud.at("orders")))

    def found() -> list[tuple[int, str]]:
        flow.run(until="caught-up", engine="local")
        return sorted((row["n"], row["_source"]) for row in tg.read_arrow(flow, "orders").to_pylist())

    assert found() == [(1, "listed"), (2, "listed")]
    to_cloud(cloud, "old")("x.jsonl", lines(3, 4).encode())
    tg.load(flow, "orders", cloud.at("old/*.jsonl"))
    with pytest.raises(LoadedAlready):
        tg.load(flow, "orders", cloud.at("old/x.jsonl"))
    put("c.jsonl", lines(5).encode())
    assert found() == [(1, "listed"), (2, "listed"), (3, "history"), (4, "history"), (5, "listed")]


@pytest.mark.parametrize("kind", SINKS)
def test_a_container_that_is_gone_is_named(cloud: CloudLake, kind: str) -> None:
    cloud.drop()
    sink = SINKS[kind](cloud.at())
    with pytest.raises(BucketMissing):
        stage(sink, [0])
    with pytest.raises(BucketMissing):
        sink.open(OUTPUT).commit(0, 1, SCHEMA, [], write=write_id())


def test_a_thousand_objects_are_listed_and_go(cloud: CloudLake) -> None:
    put, place = to_cloud(cloud, "many"), ObjectPath.of(cloud.at("many"))
    names = [f"{number:04} ä=b~c/d%20e" for number in range(1001)]
    assert list(at_once(lambda name: put(name, b""), names)) == [None] * len(names)
    assert list(place.below()) == names
    place.clear()
    assert list(place.below()) == []
