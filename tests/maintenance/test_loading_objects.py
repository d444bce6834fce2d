"""Objects of a store that are loaded once: by key and ETag, all or none, whatever the store does meanwhile."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.maintenance.history import rows, shop
from tests.maintenance.test_loading_once import staged
from tests.s3 import Lake
from tests.s3_proxy import Fault, Proxy

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.loads import FileChangedMeanwhile, FileNotLoadable, LoadedAlready, NothingToLoad
from tidegauge.errors.objects import BucketMissing, CredentialsInAddress, CredentialsRefused, ObjectStoreAway
from tidegauge.maintenance import loading
from tidegauge.objects.path import ObjectPath


def put(lake: Lake, name: str, data: bytes) -> None:
    ObjectPath.of(lake.at(name)).put(data)


def parquet(*numbers: int) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"id": numbers, "name": ["a"] * len(numbers)}), out)
    return out.getvalue()


def test_objects_are_loaded_together_and_once(lake: Lake, tmp_path: Path) -> None:
    put(lake, "in/a.parquet", parquet(1, 2))
    put(lake, "in/b.parquet", parquet(3))
    flow = shop(tmp_path)
    done = tg.load(flow, "orders", lake.at("in/*.parquet"))
    assert (done.files, done.rows) == (2, 3)
    with pytest.raises(LoadedAlready, match=lake.at("in/a.parquet")):
        tg.load(flow, "orders", [lake.at("in/a.parquet"), lake.at("in/b.parquet")])
    assert rows(flow) == [(1, 0), (2, 0), (3, 0)]
    put(lake, "in/b.parquet", parquet(4))
    tg.load(flow, "orders", lake.at("in/b.parquet"))
    assert rows(flow)[-1] == (4, 1)
    [piece] = [one for one in tg.explain(flow, 0).slices if one.source == "history"]
    assert piece.detail["path"] == lake.at("in/*.parquet")


def test_t69_a_corrupt_third_object_leaves_nothing(lake: Lake, tmp_path: Path) -> None:
    for name, data in (("a", parquet(1)), ("b", parquet(2)), ("c", parquet(3)[:-9])):
        put(lake, f"in/{name}.parquet", data)
    flow = shop(tmp_path)
    with pytest.raises(FileNotLoadable, match=lake.at("in/c.parquet")):
        tg.load(flow, "orders", lake.at("in/*.parquet"))
    assert staged(tmp_path) == ["lock"]
    assert rows(flow) == []


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl"])
@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("early", [False, True])
def test_an_object_that_changes_while_it_is_loaded_is_refused(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, name: str, gone: bool, early: bool
) -> None:
    def data(number: int) -> bytes:
        return parquet(number) if name == "a.parquet" else b'{"id": %d}\n' % number

    put(lake, f"in/{name}", data(1))

    def meanwhile(*_given: Any, **_named: Any) -> None:
        if gone:
            ObjectPath.of(lake.at("in")).clear()
        else:
            put(lake, f"in/{name}", data(2))

    class Meanwhile(tg.LocalEngine):
        def work(self, tasks: Any) -> Any:
            meanwhile()
            return super().work(tasks)

    if early:
        monkeypatch.setattr(loading, "check_new", meanwhile)
    said = "it is gone" if gone else "another object has its key"
    with pytest.raises(FileChangedMeanwhile, match=f"{lake.at('in')}/{name} has changed since it was found, {said}"):
        tg.load(shop(tmp_path), "orders", lake.at(f"in/{name}"), engine=Meanwhile())
    assert staged(tmp_path) == ["lock"]


PASSING = [("list-type", "503 before", 2), ("/in/b", "503 before", 2), ("/in/b", "cut within", 1)]
LASTING = [
    (part, kind, error)
    for part in ("list-type", "/in/b")
    for kind, error in (
        ("503 before", ObjectStoreAway),
        ("dropped after", ObjectStoreAway),
        ("expired", CredentialsRefused),
    )
]


@pytest.mark.parametrize(("part", "kind", "times"), PASSING)
def test_what_a_store_gets_over_is_sat_out(
    lake: Lake, proxy: Proxy, tmp_path: Path, part: str, kind: str, times: int
) -> None:
    for name, number in (("a", 1), ("b", 2)):
        put(lake, f"in/{name}.parquet", parquet(number))
    flow = shop(tmp_path)
    proxy.faults.append(fault := Fault(kind, "GET", part, times=times))
    tg.load(flow, "orders", lake.at("in/*.parquet"))
    assert fault.met == times
    assert rows(flow) == [(1, 0), (2, 0)]


@pytest.mark.parametrize(("part", "kind", "error"), LASTING)
def test_a_store_that_is_away_is_told_as_that_and_leaves_nothing(
    lake: Lake, proxy: Proxy, tmp_path: Path, part: str, kind: str, error: type[TidegaugeError]
) -> None:
    for name, number in (("a", 1), ("b", 2)):
        put(lake, f"in/{name}.parquet", parquet(number))
    flow = shop(tmp_path)
    proxy.faults.append(Fault(kind, "GET", part, times=99))
    with pytest.raises(error) as told:
        tg.load(flow, "orders", lake.at("in/*.parquet"))
    assert "hunter2" not in str(told.value)
    assert staged(tmp_path) == ["lock"]
    proxy.faults.clear()
    tg.load(flow, "orders", lake.at("in/*.parquet"))
    assert rows(flow) == [(1, 0), (2, 0)]


def test_what_a_store_has_not_is_refused_by_name(lake: Lake, tmp_path: Path) -> None:
    flow = shop(tmp_path)
    with pytest.raises(NothingToLoad, match="no object matches"):
        tg.load(flow, "orders", lake.at("in/*.parquet"))
    put(lake, "in/a.parquet", parquet(1))
    with pytest.raises(NothingToLoad, match="is a folder: write"):
        tg.load(flow, "orders", lake.at("in"), format=tg.Parquet())
    with pytest.raises(BucketMissing):
        tg.load(flow, "orders", "s3://tidegauge-none/in/*.parquet")
    with pytest.raises(CredentialsInAddress) as told:
        tg.load(flow, "orders", "s3://tide:hunter2@lake/in/*.parquet")
    assert "hunter2" not in str(told.value)
