"""Objects of a store as a source's files: bound by key and ETag, read as they were bound or not at all."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.s3 import Lake
from tests.s3_proxy import Fault, Proxy, _Handler

from tidegauge.errors.base import waited_out
from tidegauge.errors.objects import (
    BucketMissing,
    CredentialsInAddress,
    ObjectMovedUnclear,
    ObjectOverwritten,
    ObjectsMovedToDisk,
    UnreadableKey,
)
from tidegauge.errors.sources import FileGone, FileOvertaken
from tidegauge.objects.path import ObjectPath
from tidegauge.sources import Csv, FileSource, Json, Parquet

JSON = Json("n long")


def put(lake: Lake, name: str, data: bytes | str) -> None:
    ObjectPath.of(lake.at(name)).put(data.encode() if isinstance(data, str) else data)


def lines(*numbers: int) -> str:
    return "".join(f'{{"n": {n}}}\n' for n in numbers)


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    """The numbers of some rows, sorted: partitions come in the order of their keys, which nobody chooses."""
    return sorted(row["n"] for row in rows)


def of(lake: Lake, pattern: str = "in/*.jsonl", **how: Any) -> FileSource:
    how.setdefault("format", JSON)
    return FileSource(lake.at(pattern), **how)


def parquet(*numbers: int, group: int = 1 << 20) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"n": pa.array(numbers, pa.int64())}), out, row_group_size=group)
    return out.getvalue()


def test_an_object_enters_whole_once_also_without_an_end_of_its_last_line(lake: Lake, drive: Any) -> None:
    driver = drive(of(lake))
    assert "no object matches" in driver.probe().note
    put(lake, "in/a.jsonl", lines(1, 2))
    put(lake, "in/b.jsonl", lines(3).rstrip())
    put(lake, "in/_SUCCESS", "")
    put(lake, "in/.c.jsonl", lines(9))
    driver.tick()
    assert numbers(driver.catch_up()) == [1, 2, 3]
    assert driver.tick() == []
    put(lake, "in/c.jsonl", lines(4))
    driver.tick()
    assert numbers(driver.catch_up()) == [4]
    assert {detail["path"] for detail in driver.bound.details.values()} == {lake.at(f"in/{n}.jsonl") for n in "abc"}


@pytest.mark.parametrize(
    ("name", "format", "data"),
    [
        ("a.csv", Csv("n long"), b'n\n1\n2\n"3"'),
        ("a.csv", Csv(), b"n\n1\n2\n3\n"),
        ("a.jsonl", Json(), b'{"n": 1}\n{"n": 2}\n{"n": 3}'),
        ("a.jsonl.gz", Json(), gzip.compress(lines(1, 2, 3).encode())),
        ("a.parquet", Parquet(), parquet(1, 2, 3, group=2)),
        ("a.parquet", Parquet("n long, more string"), parquet(1, 2, 3)),
    ],
    ids=["csv", "csv inferred", "json inferred", "gzip", "parquet", "parquet declared"],
)
def test_every_format_of_files_is_read(lake: Lake, drive: Any, name: str, format: Any, data: bytes) -> None:
    put(lake, f"in/{name}", data)
    driver = drive(of(lake, "in/*", format=format, split_bytes=8))
    driver.tick()
    assert numbers(driver.catch_up()) == [1, 2, 3]


def test_rows_say_their_partition_and_offset(lake: Lake, drive: Any) -> None:
    put(lake, "in/a.jsonl", lines(1, 2, 3))
    driver = drive(of(lake, metadata=True, split_bytes=4))
    driver.tick()
    assert [(row["_offset"], row["n"]) for row in driver.catch_up()] == [(0, 1), (9, 2), (18, 3)]
    assert set(driver.bound.details) == {row["_partition"] for row in driver.rows}


@pytest.mark.parametrize(
    "data", [lines(*range(40)), "n\n" + "".join(f'"{n}"\n' for n in range(40))], ids=["jsonl", "csv"]
)
def test_a_large_object_is_bound_in_parts_that_end_with_records(lake: Lake, drive: Any, data: str) -> None:
    put(lake, "in/a", data)
    put(lake, "in/b", data)
    kind = JSON if data.startswith("{") else Csv("n long")
    driver = drive(of(lake, "in/*", format=kind, max_bytes_per_epoch=100, split_bytes=30))
    while driver.tick():
        pass
    assert numbers(driver.catch_up()) == sorted([*range(40), *range(40)])
    assert len(driver.epochs) >= 2 * len(data) // 100


@pytest.mark.parametrize("when", ["bound", "read"])
def test_an_object_that_was_overwritten_is_said_and_never_served(lake: Lake, drive: Any, when: str) -> None:
    put(lake, "in/a.jsonl", lines(1, 2))
    driver = drive(of(lake))
    slices = driver.tick()
    splits = driver.plan(slices)
    if when == "read":
        driver.catch_up()
    put(lake, "in/a.jsonl", lines(7, 8))
    with pytest.raises(FileOvertaken):
        driver.rows_of(splits)
    with pytest.raises(ObjectOverwritten):
        driver.plan(slices)
    with pytest.raises(ObjectOverwritten) as caught:
        driver.probe()
    assert caught.value.evidence["path"] == lake.at("in/a.jsonl")
    put(lake, "in/a.jsonl", lines(1, 2))
    assert driver.tick() == []
    assert numbers(driver.rows_of(splits)) == [1, 2]


def test_one_that_was_overwritten_is_a_new_object_where_losses_are_gone_on_from(lake: Lake, drive: Any) -> None:
    put(lake, "in/a.jsonl", lines(1, 2))
    driver = drive(of(lake, on_data_loss="gap"))
    old = driver.tick()
    put(lake, "in/a.jsonl", lines(7, 8, 9))
    new = driver.tick()
    assert driver.source.lost([*old, *new], driver.bound) == old
    assert numbers(driver.read_slices(new)) == [7, 8, 9]
    assert driver.tick() == []
    put(lake, "in/a.jsonl", lines(1, 2))  # the old one is back
    assert driver.tick() == []
    assert numbers(driver.read_slices(old)) == [1, 2]


@pytest.mark.parametrize("lost", ["stop", "gap"])
def test_an_object_that_went_unread_is_lost_and_one_that_was_read_is_not_missed(
    lake: Lake, drive: Any, lost: str
) -> None:
    put(lake, "in/a.jsonl", lines(1, 2))
    put(lake, "in/b.jsonl", lines(3, 4))
    driver = drive(of(lake, on_data_loss=lost, max_bytes_per_epoch=len(lines(1, 2))))
    first = driver.tick()
    assert numbers(driver.catch_up()) == [1, 2]
    for name in "ab":
        ObjectPath.of(lake.at(f"in/{name}.jsonl")).unlink()
    put(lake, "in/c.jsonl", lines(5))
    second = driver.tick()
    gone = [piece for piece in second if driver.bound.details[piece.partition]["path"] == lake.at("in/b.jsonl")]
    assert [(piece.lower, piece.upper) for piece in gone] == [(0, len(lines(3, 4)))]
    if lost == "gap":
        assert driver.source.lost(second, driver.bound) == gone
        assert driver.source.lost(first, driver.bound) == first
    else:
        assert driver.source.lost(second, driver.bound) == []
        with pytest.raises(FileGone):
            driver.plan(second)
    assert numbers(driver.read_slices([piece for piece in second if piece not in gone])) == [5]


def test_an_object_that_the_pattern_names_no_more_is_read_to_its_end(lake: Lake, drive: Any) -> None:
    put(lake, "in/a.jsonl", lines(*range(9)))
    driver = drive(of(lake, max_bytes_per_epoch=30))
    driver.tick()
    driver.source = of(lake, "in/b*.jsonl", max_bytes_per_epoch=30)
    while driver.tick():
        pass
    assert numbers(driver.catch_up()) == list(range(9))


def test_a_bucket_that_is_gone_is_waited_for_and_nothing_in_it_is_lost(lake: Lake, drive: Any) -> None:
    put(lake, "in/a.jsonl", lines(1))
    driver = drive(of(lake))
    slices = driver.tick()
    lake.server.drop(lake.bucket)
    driver.source = of(lake, on_data_loss="gap")
    for effect in (driver.probe, lambda: driver.plan(slices), lambda: driver.source.lost(slices, driver.bound)):
        with pytest.raises(BucketMissing):
            effect()
    assert lake.server.request("PUT", f"/{lake.bucket}") == 200
    put(lake, "in/a.jsonl", lines(1))
    assert numbers(driver.catch_up()) == [1]


@pytest.mark.parametrize(
    "name",
    ["a b.jsonl", "ü+ö&.jsonl", "2026-11-26T17:40:00Z.jsonl", "x=1,y=@2/%41.jsonl", "[1]#.jsonl", "'\"!~.jsonl"],
)
def test_keys_have_any_characters(lake: Lake, drive: Any, name: str) -> None:
    put(lake, f"in/{name}", lines(1))
    driver = drive(of(lake, "in/**/*.jsonl"))
    driver.tick()
    assert numbers(driver.catch_up()) == [1]
    assert [detail["path"] for detail in driver.bound.details.values()] == [lake.at(f"in/{name}")]


def test_a_key_that_nobody_can_spell_is_named_and_waited_for(
    lake: Lake, proxy: Proxy, drive: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = _Handler.forward

    def doubled(self: _Handler, data: bytes) -> Any:
        self.path = self.path.replace("/in/empty-part", "/in//empty-part")
        return forward(self, data)

    monkeypatch.setattr(_Handler, "forward", doubled)
    put(lake, "in/a.jsonl", lines(1))
    put(lake, "in/empty-part.jsonl", lines(2))
    driver = drive(of(lake, "in/**/*.jsonl"))
    with pytest.raises(UnreadableKey) as caught:
        driver.probe()
    assert "in//empty-part.jsonl" in str(caught.value)
    assert waited_out(caught.value)


def test_an_address_holds_no_credentials_and_a_signed_one_is_refused() -> None:
    signed = "s3://lake/a.jsonl?X-Amz-Signature=5ecret"
    for text in ("s3://ada:5ecret@lake/in/*", signed, "gs://lake?sig=5ecret/in", "abfss://ada:5ecret@lake/in/*"):
        with pytest.raises(CredentialsInAddress) as caught:
            FileSource(text, format=JSON)
        assert "5ecret" not in str(caught.value)
    assert FileSource("s3a://lake//in/202?/*", format=JSON).path == "s3://lake/in/202?/*"


def test_the_name_of_one_object_is_that_object_and_that_of_a_folder_is_told(lake: Lake, drive: Any) -> None:
    put(lake, "in/a.jsonl", lines(1))
    put(lake, "in/b.jsonl", lines(2))
    driver = drive(of(lake, "in/a.jsonl"))
    driver.tick()
    assert numbers(driver.catch_up()) == [1]
    assert f"write {lake.at('in')}/*" in drive(of(lake, "in/")).probe().note


def test_files_that_were_copied_into_a_bucket_are_the_files_that_they_were(
    lake: Lake, drive: Any, landing: Path
) -> None:
    for name, data in (("eu/a.jsonl", lines(1, 2)), ("eu/b.jsonl.gz", gzip.compress(lines(3).encode(), mtime=0))):
        (landing / name).parent.mkdir(exist_ok=True)
        (landing / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    driver = drive(FileSource(f"{landing}/**/*.jsonl*", format=JSON))
    bound = driver.tick()
    assert numbers(driver.catch_up()) == [1, 2, 3]
    for path in landing.rglob("*.jsonl*"):
        put(lake, f"moved/in/{path.relative_to(landing)}", path.read_bytes())
    put(lake, "moved/in/eu/a.jsonl", lines(1, 2, 4))  # it has grown on the disk since
    put(lake, "moved/in/c.jsonl", lines(5))
    driver.source = of(lake, "moved/in/**/*.jsonl*")
    assert numbers(driver.read_slices(bound)) == [1, 2, 3]
    driver.tick()
    assert numbers(driver.catch_up()) == [4, 5]
    assert driver.tick() == []
    assert len(driver.bound.details) == 3
    driver.source = FileSource(f"{landing}/**/*.jsonl*", format=JSON)
    with pytest.raises(ObjectsMovedToDisk):
        driver.probe()


def test_objects_that_were_copied_elsewhere_are_told_by_their_etags(lake: Lake, drive: Any) -> None:
    for name in "ab":
        put(lake, f"in/{name}.jsonl", lines(1, 2))
    driver = drive(of(lake))
    bound = driver.tick()
    put(lake, "moved/a.jsonl", lines(1, 2))
    put(lake, "moved/c.jsonl", lines(1, 2))
    driver.source = of(lake, "moved/*.jsonl")
    [new] = driver.tick()
    assert driver.bound.details[new.partition]["path"] == lake.at("moved/c.jsonl")
    ObjectPath.of(lake.at("in")).clear()
    here = [piece for piece in bound if "moved" in str(driver.bound.details[piece.partition]["path"])]
    assert numbers(driver.read_slices(here)) == [1, 2]
    put(lake, "moved/b.jsonl", lines(2, 1))
    with pytest.raises(ObjectMovedUnclear):
        driver.probe()


@pytest.mark.long
def test_a_read_asks_for_few_ranges_of_a_large_object_and_for_none_of_its_rest(
    lake: Lake, proxy: Proxy, drive: Any
) -> None:
    text = "".join(json.dumps({"n": n, "pad": "x" * 90}) + "\n" for n in range(40_000))
    put(lake, "in/a.jsonl", text)
    driver = drive(of(lake, split_bytes=1 << 30))
    driver.tick()
    splits = driver.plan(driver.epochs[0])
    proxy.asked.clear()
    assert numbers(driver.rows_of(splits)) == list(range(40_000))
    assert len(proxy.asked) <= 8
    driver.source = of(lake, split_bytes=len(text) // 2)
    [first, _second] = driver.plan(driver.epochs[0])
    proxy.asked.clear()
    driver.rows_of([first])
    assert len(proxy.asked) <= 7


def test_a_look_asks_for_the_listing_alone_and_those_of_one_look_share_it(
    lake: Lake, proxy: Proxy, drive: Any
) -> None:
    from tidegauge.remap.findings import Findings

    for n in range(5):
        put(lake, f"in/{n}.jsonl", lines(n))
    proxy.asked.clear()
    one, other = drive(of(lake)), drive(of(lake, "in/3*"))
    one.findings = findings = Findings()
    other.findings = findings.beside()
    one.tick()
    other.tick()
    assert [ask.split()[0] for ask in proxy.asked] == ["GET"]
    assert numbers(other.catch_up()) == [3]


@pytest.mark.long
def test_objects_come_by_pages_that_change_while_they_are_listed(lake: Lake, proxy: Proxy, drive: Any) -> None:
    for n in range(23):
        put(lake, f"in/deep/{n:02}.jsonl", lines(n))
    pages = 0

    def between(_method: str, path: str) -> None:
        nonlocal pages
        pages += "list-type" in path
        if "list-type" in path and pages == 2:  # objects before and behind the end of the page come and go
            proxy.page = 0
            for gone in ("05", "15"):
                ObjectPath.of(lake.at(f"in/deep/{gone}.jsonl")).unlink()
            for new, n in (("00a", 90), ("22a", 91)):
                put(lake, f"in/deep/{new}.jsonl", lines(n))
            proxy.page = 10

    proxy.before, proxy.page = between, 10
    driver = drive(of(lake, "in/**/*.jsonl", on_data_loss="gap"))
    driver.tick()
    assert pages == 3
    driver.tick()
    lost = driver.source.lost([piece for epoch in driver.epochs for piece in epoch], driver.bound)
    assert [driver.bound.details[piece.partition]["path"] for piece in lost] == [lake.at("in/deep/05.jsonl")]
    found = driver.read_slices([piece for epoch in driver.epochs for piece in epoch if piece not in lost])
    assert numbers(found) == sorted({*range(23), 90, 91} - {5, 15})


def test_a_server_that_knows_no_if_match_is_not_trusted(lake: Lake, proxy: Proxy, drive: Any) -> None:
    put(lake, "in/a.jsonl", lines(1, 2))
    driver = drive(of(lake))
    splits = driver.plan(driver.tick())
    put(lake, "in/a.jsonl", lines(7, 8))
    proxy.faults.append(Fault("ignores conditions", "GET", "in/a.jsonl", times=100))
    with pytest.raises(FileOvertaken):
        driver.rows_of(splits)
