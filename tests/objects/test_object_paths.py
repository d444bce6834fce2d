"""Places in an object store, on a real server."""

from __future__ import annotations

import os
import pickle
import threading
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.s3 import Lake

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.objects import BucketMissing, CredentialsInAddress, ObjectStoreAway
from tidegauge.objects.address import address
from tidegauge.objects.path import ObjectPath
from tidegauge.objects.reading import parquet_rows, readable
from tidegauge.sinks.uploads import ObjectFiles


def test_an_object_is_there_whole_once_it_was_put_and_gone_once_it_was_removed(lake: Lake) -> None:
    place = ObjectPath.of(lake.at())
    one = place / "_delta_log" / "0.json"
    assert not one.exists()
    assert place.empty()
    with pytest.raises(FileNotFoundError):
        one.read_bytes()
    one.put(b"first")
    before = one.stat()
    one.put(b"second")
    assert (one.read_text(), one.stat().st_size, bytes(one.read_range(1, 3))) == ("second", 6, b"eco")
    assert one.stat().st_ino != before.st_ino
    assert (one.parent.names(), place.names(), place.folders()) == (["0.json"], [], ["_delta_log"])
    one.unlink()
    one.unlink(missing_ok=True)
    assert place.empty()


def test_of_many_that_make_one_object_at_once_one_does(lake: Lake) -> None:
    place = ObjectPath.of(lake.at())
    for number in range(20):
        made: list[int] = []
        together = threading.Barrier(4)

        def make(who: int, number: int = number, made: list[int] = made, together: Any = together) -> None:
            together.wait()
            if (place / str(number)).put_new(str(who).encode()):
                made.append(who)

        writers = [threading.Thread(target=make, args=(who,)) for who in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert len(made) == 1
        assert (place / str(number)).read_text() == str(made[0])


def test_names_come_in_order_from_a_name_on_and_only_those_right_below(lake: Lake) -> None:
    place = ObjectPath.of(lake.at())
    for name in ("a-1", "a-2", "b", "b/deep", "c"):
        (place / name).put(b"")
    (ObjectPath.of(lake.at("orders-2")) / "a-3").put(b"")
    assert place.names() == ["a-1", "a-2", "b", "c"]
    assert place.names("a-") == ["a-1", "a-2"]
    assert list(place.below("a-1")) == ["a-2", "b", "b/deep", "c"]
    place.clear()
    assert (lake.objects(), lake.objects("orders-2")) == ([], ["a-3"])


@pytest.mark.parametrize("size", [0, 1000, pytest.param(40 << 20, marks=pytest.mark.long)])
def test_a_staged_file_is_nowhere_until_it_is_kept_and_then_there_as_it_was_written(lake: Lake, size: int) -> None:
    files: ObjectFiles = pickle.loads(pickle.dumps(ObjectFiles(lake.at())))
    data = os.urandom(size)
    with files.create("_staged/job/part-0") as out:
        out.write(data)
    assert lake.objects() == []
    assert files.keep("_staged/job/part-0") == size
    assert (ObjectPath.of(lake.at("orders/_staged/job/part-0"))).read_bytes() == data
    assert files.folders("_staged") == ["job"]
    out = files.create("_staged/job/part-1")
    out.write(b"rows")
    out.close()
    files.remove("_staged/job/part-1")
    files.clear("_staged/job")
    assert lake.objects() == []


def test_arrow_reads_files_of_a_store_as_those_of_a_disk(lake: Lake) -> None:
    rows = pa.table({"n": list(range(1000)), "text": [str(n) for n in range(1000)]})
    out = pa.BufferOutputStream()
    pq.write_table(rows, out, row_group_size=100)
    for name in ("a.parquet", "b.parquet"):
        (ObjectPath.of(lake.at()) / name).put(out.getvalue().to_pybytes())
    assert pq.read_table(readable(ObjectPath.of(lake.at("orders/a.parquet")))) == rows
    found = parquet_rows([lake.at("orders/a.parquet"), lake.at("orders/b.parquet")], rows.schema)
    assert found.to_table() == pa.concat_tables([rows, rows])
    assert found.to_table() == pa.concat_tables([rows, rows])
    with pytest.raises(FileNotFoundError):
        parquet_rows([lake.at("orders/c.parquet")], rows.schema)


def test_a_bucket_that_is_gone_is_no_object_that_is_gone(lake: Lake) -> None:
    lake.server.drop(lake.bucket)
    one = ObjectPath.of(lake.at("orders/0.json"))
    asked = (one.read_bytes, one.stat, one.exists, one.parent.names, one.empty, lambda: one.put(b""))
    for ask in (*asked, lambda: one.put_new(b"")):
        with pytest.raises(BucketMissing) as caught:
            ask()
        assert caught.value.evidence["bucket"] == f"s3://{lake.bucket}"


def test_a_store_that_does_not_answer_says_so_and_no_refusal_shows_a_credential(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(ObjectStoreAway) as caught:
        ObjectPath.of(lake.at()).names()
    monkeypatch.setenv("AWS_ALLOW_HTTP", "false")
    with pytest.raises(ObjectStoreAway, match="AWS_ALLOW_HTTP"):
        ObjectPath.of(lake.at()).names()
    for name, value in os.environ.items():
        if name.startswith("AWS_") and "KEY" in name:
            assert value not in f"{caught.value}{caught.value.evidence}{caught.value.__cause__}"


@pytest.mark.parametrize(
    "text",
    ["s3://ada:hunter2@lake/orders", "s3://hunter2@lake/o", "gs://lake/o?key=hunter2", "abfss://c:hunter2@a.net/o"],
)
def test_an_address_with_credentials_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(CredentialsInAddress) as caught:
        address(text)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["s3://lake", "s3:///orders", "s3://lake/../x", "s3://lake/a b", "s3://lake/%2e%2e/x"]
)
def test_an_address_is_a_bucket_and_a_plain_path(text: str) -> None:
    with pytest.raises(InvalidArgument):
        address(text)


def test_addresses_have_one_form() -> None:
    assert address("abfss://lake@acc.dfs.core.windows.net//orders/") == "abfss://lake@acc.dfs.core.windows.net/orders"
    assert address("S3A://lake/orders") == "s3://lake/orders"
