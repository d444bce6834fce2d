"""Sources and tables in Azure's blobs: what is proved on S3 holds there too, on Microsoft's own emulator."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.azure import KEY, AzureLake
from tests.flow.badinput import lines
from tests.flow.test_from_disk_to_store import EPOCHS, lived, tables, to_disk
from tests.sinks.conftest import OUTPUT, SCHEMA, stage, write_id
from tests.sinks.test_delta_in_s3 import delta_rows
from tests.sinks.test_parquet_in_s3 import listed_rows

import tidegauge as tg
from tidegauge.errors.objects import BucketMissing, CredentialsRefused, ObjectOverwritten, ObjectStoreAway
from tidegauge.errors.sinks import TableUpperMismatch
from tidegauge.objects.client import at_once
from tidegauge.objects.path import ObjectPath
from tidegauge.sinks import Sink
from tidegauge.testing.kit import check_sink

pytestmark = pytest.mark.long

PAGE = 5000
"""How many blobs an answer to a listing has at most."""
BATCH = 256
"""How many a request may delete."""

SINKS: dict[str, Callable[[str], Any]] = {
    "Delta": tg.DeltaSink,
    "Delta by key": lambda path: tg.DeltaSink(path, envelope="upsert", key="user"),
    "Parquet": tg.ParquetSink,
}


def to_azure(azure: AzureLake, folder: str) -> Callable[[str, bytes], None]:
    return lambda name, data: ObjectPath.of(azure.at(f"{folder}/{name}")).put(data)


@dataclass
class AzureBench:
    """A table at an address of its own, and readers that nobody here wrote."""

    folder: Path
    azure: AzureLake
    kind: str
    sink: Any = field(init=False)

    def __post_init__(self) -> None:
        self.path = self.azure.at(f"{uuid.uuid4().hex}/orders")
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
def test_a_table_holds_every_law(azure: AzureLake, kind: str) -> None:
    report = check_sink(lambda folder: AzureBench(folder, azure, kind), crashes=20, deadline=240)
    report.require()


@pytest.mark.parametrize("kind", SINKS)
def test_of_two_drivers_the_older_changes_nothing(azure: AzureLake, kind: str) -> None:
    sink = SINKS[kind](azure.at())
    older, newer = sink.open(OUTPUT), sink.open(OUTPUT)
    newer.commit(0, 1, SCHEMA, stage(sink, [0]), write=write_id())
    files = stage(sink, [0], user="bob")
    with pytest.raises(TableUpperMismatch):
        older.commit(0, 1, SCHEMA, files, write=write_id())
    assert sink.open(OUTPUT).upper == 1


def test_the_tables_of_a_flow_are_those_on_a_disk(tmp_path: Path, azure: AzureLake) -> None:
    here = lived(str(tmp_path / "here"), f"sqlite:///{tmp_path}/here.db", to_disk(tmp_path / "here"), range(EPOCHS))
    place, store = azure.at("there"), f"sqlite:///{tmp_path}/there.db"
    there = lived(place, store, to_azure(azure, "there"), range(EPOCHS))
    assert tables(here) == tables(there)


def flow_of(azure: AzureLake, folder: Path) -> tg.Dataflow:
    flow = tg.Dataflow("shop", store=f"sqlite:///{folder}/shop.db")
    orders = flow.source("orders", tg.FileSource(azure.at("in/*.jsonl"), format=tg.Json("n long, text string")))
    flow.sink("orders", orders, tg.DeltaSink(str(folder / "orders")))
    return flow


def test_an_object_that_was_overwritten_is_said(tmp_path: Path, azure: AzureLake) -> None:
    put = to_azure(azure, "in")
    put("a.jsonl", lines(1).encode())
    flow = flow_of(azure, tmp_path)
    flow.run(until="caught-up", engine="local")
    put("a.jsonl", lines(2, 3).encode())
    with pytest.raises(ObjectOverwritten):
        flow.run(until="caught-up", engine="local")
    assert [row["n"] for row in tg.read_arrow(flow, "orders").to_pylist()] == [1]


def test_a_listing_of_two_pages_is_whole(azure: AzureLake) -> None:
    put = to_azure(azure, "many")
    names = [f"{number:05}" for number in range(PAGE + 1)]
    assert list(at_once(lambda name: put(name, b""), names)) == [None] * len(names)
    assert list(ObjectPath.of(azure.at("many")).below()) == names


def test_more_objects_go_than_a_batch_may_have(azure: AzureLake) -> None:
    put, place = to_azure(azure, "many"), ObjectPath.of(azure.at("many"))
    list(at_once(lambda name: put(name, b""), [str(number) for number in range(BATCH + 1)]))
    place.clear()
    assert list(place.below()) == []


@pytest.mark.parametrize("kind", SINKS)
def test_a_container_that_is_gone_is_named(azure: AzureLake, kind: str) -> None:
    azure.server.drop(azure.container)
    sink = SINKS[kind](azure.at())
    with pytest.raises(BucketMissing, match=azure.container):
        stage(sink, [0])
    with pytest.raises(BucketMissing, match=azure.container):
        sink.open(OUTPUT).commit(0, 1, SCHEMA, [], write=write_id())


@pytest.mark.parametrize("kind", SINKS)
def test_another_key_is_refused_and_in_no_error(azure: AzureLake, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = KEY.replace("Eby8", "AAAA")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", wrong)
    sink = SINKS[kind](azure.at())
    with pytest.raises(CredentialsRefused) as refused:
        sink.open(OUTPUT)
    assert wrong not in str(refused.value)
    assert wrong not in repr(sink)


def test_a_token_in_the_environment_is_in_no_error(azure: AzureLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=2021-08-06&sp=rl&sig=hunter2hunter2")
    with pytest.raises(CredentialsRefused) as refused:
        ObjectPath.of(azure.at()).exists()
    assert "hunter2" not in str(refused.value)


def test_an_endpoint_without_encryption_is_to_be_allowed(azure: AzureLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_ALLOW_HTTP", "false")
    with pytest.raises(ObjectStoreAway, match="AZURE_ALLOW_HTTP"):
        ObjectPath.of(azure.at()).exists()
