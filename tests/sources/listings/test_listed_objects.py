"""Listings of an object store: by pages, each object in the version that was listed."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.s3 import Lake
from tests.s3_proxy import Proxy
from tests.sources.listings.listing import Listings, listing

from tidegauge.errors.listings import ListedFileChanged, ListedFileGone, ListedFileOvertaken, ListingUnordered
from tidegauge.errors.objects import BucketMissing, ObjectStoreAway, UnreadableKey
from tidegauge.errors.polls import PollGone
from tidegauge.errors.sources import RecordsLost
from tidegauge.objects import listing as objects
from tidegauge.objects.client import at_once, obstore
from tidegauge.objects.path import ObjectPath
from tidegauge.sources.listings import lister, walking

Of = Callable[..., Listings]


@pytest.fixture
def of(lake: Lake, tmp_path: Path) -> Of:
    def make(pattern: str = "in/**/*.jsonl", **given: Any) -> Listings:
        return listing(tmp_path, lake.at(pattern), **given)

    return make


def put(lake: Lake, name: str, *ids: int) -> None:
    ObjectPath.of(lake.at(name)).put("".join(f'{{"n": {n}}}\n' for n in ids).encode())


def put_many(lake: Lake, names: Mapping[str, int]) -> None:
    """Put an object with one row under each of these names, many at once."""
    list(at_once(lambda one: put(lake, *one), names.items()))


def test_objects_are_listed_and_read_once(lake: Lake, of: Of) -> None:
    put(lake, "in/a.jsonl", 1, 2)
    put(lake, "in/b/c.jsonl", 3)
    put(lake, "in/b/_tmp/d.jsonl", 9)
    put(lake, "in/e.csv", 9)
    put(lake, "in/b/", 0)
    ObjectPath.of(lake.at("in/empty.jsonl")).put(b"")
    ObjectPath.of(lake.at("in/z.jsonl.gz")).put(gzip.compress(b'{"n": 4}\n'))
    it = of("in/**/*.jsonl*")
    assert it.look_through().note == ""
    assert (it.epochs, it.rows(), it.rows(1)) == ([3], [1, 2, 3, 4], [1, 2, 3, 4])
    it.look_through()
    put(lake, "in/aa.jsonl", 5)
    it.begin()
    it.look_through()
    assert (it.epochs, it.rows(3)) == ([3, 4], [1, 2, 3, 4, 5])


@pytest.mark.long
def test_more_than_a_page_while_objects_come_and_go(lake: Lake, of: Of, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lister, "FILES", 700)
    put_many(lake, {f"in/{n % 3}/{n:04}.jsonl": n for n in range(1500)})
    it = of(on_data_loss="gap")
    it.clock = 60
    it.bind(it.look())
    put(lake, "in/0/0000a.jsonl", 5000)
    put(lake, "in/2/9999.jsonl", 5001)
    for name in ("in/0/0003.jsonl", "in/2/1499.jsonl"):
        ObjectPath.of(lake.at(name)).unlink()
    it.look_through()
    it.look_through()
    assert sorted(it.rows()) == [n for n in range(1500) if n not in (3, 1499)] + [5000, 5001]


def test_an_object_with_another_body_of_the_same_size_has_changed(lake: Lake, of: Of) -> None:
    put(lake, "in/a.jsonl", 1)
    it = of()
    it.look_through()
    put(lake, "in/a.jsonl", 2)
    with pytest.raises(ListedFileChanged, match="9 bytes with the ETag"):
        it.rows()
    with pytest.raises(ListedFileChanged):
        it.look_through()
    put(lake, "in/a.jsonl", 1)
    it.begin()
    it.look_through()
    assert it.rows() == [1]


def test_changed_and_lost_objects_are_read_again_and_are_gaps_by_choice(lake: Lake, of: Of) -> None:
    for n in range(4):
        put(lake, f"in/{n}.jsonl", n)
    it = of(on_data_loss="gap", on_change="again")
    it.look_through()
    put(lake, "in/1.jsonl", 10)
    ObjectPath.of(lake.at("in/2.jsonl")).unlink()
    [split] = it.source.plan(it.slices(), it.bound)
    with pytest.raises(ListedFileOvertaken):
        list(it.source.read(split, it.bad.append))  # type: ignore[arg-type]
    it.look_through()
    assert it.rows() == [0, 3, 10]
    assert [(piece.lower, piece.upper) for piece in it.source.lost(it.slices(), it.bound)] == [(1, 2), (2, 3)]


@pytest.mark.long
def test_many_objects_are_looked_at_by_a_few_listings_before_they_are_read(
    lake: Lake, of: Of, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_many(lake, {f"in/{n % 2}/{n:04}.jsonl": n for n in range(300)})
    it = of(on_data_loss="gap")
    it.look_through()
    put_many(lake, {f"in/0/{n:04}x": n for n in range(1200)})
    put(lake, "in/0/0004.jsonl", 9)
    ObjectPath.of(lake.at("in/1/0299.jsonl")).unlink()
    asked: list[str] = []
    head = obstore.head
    monkeypatch.setattr(obstore, "head", lambda store, key: asked.append(key) or head(store, key))  # type: ignore[func-returns-value]
    assert [piece.lower for piece in it.source.lost(it.slices(), it.bound)] == [2, 299]
    assert len(asked) == 1
    put_many(lake, {f"in/0/{n:05}x": n for n in range(1200, 6000)})
    assert [piece.lower for piece in it.source.lost(it.slices(), it.bound)] == [2, 299]
    assert 1 < len(asked) < 300


def test_an_object_that_is_gone_stops_the_source(lake: Lake, of: Of) -> None:
    put(lake, "in/a.jsonl", 1)
    it = of()
    it.look_through()
    ObjectPath.of(lake.at("in/a.jsonl")).unlink()
    with pytest.raises(ListedFileGone, match=r"a\.jsonl is gone: it is file 0"):
        it.rows()


@pytest.mark.long
def test_a_listing_in_order_asks_for_nothing_before_the_last_key(
    lake: Lake, of: Of, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_many(lake, {f"in/{n:04}.jsonl": n for n in range(1100)})
    it = of("in/*.jsonl", ordered=True)
    it.look_through(3600)
    put(lake, "in/1100.jsonl", 1100)
    asked: list[str] = []
    listed = obstore.list

    def told(*given: Any, **how: Any) -> Any:
        for page in listed(*given, **how):
            asked.extend(one["path"] for one in page)
            yield page

    with monkeypatch.context() as patched:
        patched.setattr(obstore, "list", told)
        it.look_through()
    assert [name.rpartition("/")[2] for name in asked] == ["1100.jsonl"]
    assert it.rows() == list(range(1101))


@pytest.mark.long
def test_f10_a_pattern_lists_from_its_beginning_on_and_jumps_over_folders(
    lake: Lake, of: Of, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_many(lake, {f"a/hello1/old/{n:04}": n for n in range(2500)})
    names = ["hella/a", "hello", "hello0/x.json", "hello1/a.json", "hello1/z.json", "hello2/b.json", "hellp/c.json"]
    put_many(lake, {f"a/{name}": 0 for name in names})
    asked: list[str] = []
    listed = obstore.list

    def told(*given: Any, **how: Any) -> Any:
        for page in listed(*given, **how):
            asked.extend(one["path"] for one in page)
            yield page

    monkeypatch.setattr(obstore, "list", told)

    def found(pattern: str) -> list[str]:
        asked.clear()
        walk = walking.Walk(lake.at(pattern), 0, 0)
        return [one.path.removeprefix(lake.at("")) for page in walk.pages() for one in page]

    assert found("a/hello*/*.json") == [
        "a/hello0/x.json",
        "a/hello1/a.json",
        "a/hello1/z.json",
        "a/hello2/b.json",
    ]
    assert not any("hella" in name for name in asked)
    assert found("a/hello1/*.json") == ["a/hello1/a.json", "a/hello1/z.json"]
    assert len(asked) <= 2100
    assert found("a/hello*") == ["a/hello"]
    assert found("a/hello2/b.json") == ["a/hello2/b.json"]


def test_keys_that_are_hostile_are_keys(lake: Lake, of: Of) -> None:
    names = ["a b", "a%2Fb", "%", "ä", "é", "e\u0301", "😀", "..x", "a..b", "'\"", "a+b", "a&b=c", "a#b", "~"]
    for n, name in enumerate(names):
        put(lake, f"in/x{name}.jsonl", n)
    it = of()
    it.look_through()
    assert sorted(it.rows()) == list(range(len(names)))
    it.look_through()
    assert it.epochs == [len(names)]


def test_a_key_that_no_client_can_spell_is_named(lake: Lake, of: Of) -> None:
    put(lake, "in/a.jsonl", 1)
    assert lake.server.request("PUT", f"/{lake.bucket}/in//b.jsonl", b"x") == 200
    with pytest.raises(UnreadableKey):
        of().look_through()


def test_a_store_that_lists_out_of_order_or_a_key_on_two_pages(
    lake: Lake, of: Of, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(6):
        put(lake, f"in/{n}.jsonl", n)

    def twice(*given: Any, **how: Any) -> Any:
        for page in objects.pages(*given, **how):
            yield page[:4]
            yield page[3:]

    def astray(*given: Any, **how: Any) -> Any:
        for page in objects.pages(*given, **how):
            yield page[3:]
            yield page[:3]

    monkeypatch.setattr(walking, "pages", astray)
    it = of()
    with pytest.raises(ListingUnordered, match=r"0\.jsonl came after s3://.*/in/5\.jsonl"):
        it.look_through()
    monkeypatch.setattr(walking, "pages", twice)
    it.begin()
    it.look_through()
    assert (it.epochs, it.rows()) == ([6], list(range(6)))


def test_a_bucket_that_is_away_is_waited_for(lake: Lake, of: Of) -> None:
    put(lake, "in/a.jsonl", 1)
    it = of(on_data_loss="gap")
    it.look_through()
    lake.server.drop(lake.bucket)
    with pytest.raises(BucketMissing):
        it.look_through()
    with pytest.raises(BucketMissing):
        it.rows()
    assert lake.server.request("PUT", f"/{lake.bucket}") == 200
    put(lake, "in/a.jsonl", 1)
    it.look_through(600)
    assert it.rows() == [1]
    assert ObjectStoreAway.code == "TG-0582"


def test_manifests_are_staged_in_the_store_too(lake: Lake, of: Of) -> None:
    for n in range(5):
        put(lake, f"in/{n}.jsonl", n)
    it = of(staging=lake.at("listings"), max_bytes_per_epoch=20)
    it.look_through()
    assert (it.epochs, it.rows(), it.rows(1, 3)) == ([2, 4, 5], list(range(5)), list(range(5)))
    put(lake, "in/5.jsonl", 5)
    it.begin()
    it.look_through()
    assert (it.epochs, it.rows()) == ([2, 4, 5, 6], list(range(6)))
    ObjectPath.of(lake.at("listings")).clear()
    with pytest.raises(RecordsLost):
        it.rows()
    it.begin()
    with pytest.raises(PollGone):
        it.look_through()


def test_late_objects_are_told_of_by_what_the_store_keeps(lake: Lake, of: Of) -> None:
    put(lake, "in/b.jsonl", 1)
    it = of(staging=lake.at("listings"), ordered=True)
    it.look_through()
    put(lake, "in/a.jsonl", 2)
    said = [it.look_through().note for _ in range(3)][-1]
    assert said.startswith("1 file came late")
    it.begin()
    assert it.look_through().note == said
    assert it.rows() == [1]


@pytest.mark.parametrize("at", [1, 2, 3])
def test_objects_that_change_between_the_pages_of_a_listing(lake: Lake, proxy: Proxy, of: Of, at: int) -> None:
    """A listing of four pages; before one of them objects of all pages change, go, and come."""
    put_many(lake, {f"in/{n:02}.jsonl": n for n in range(35)})
    proxy.page = 10
    seen: list[str] = []

    def change(method: str, path: str) -> None:
        if method == "GET" and "list-type" in path:
            seen.append(path)
            if len(seen) == at + 1:
                for n in (3, 13, 23, 33):
                    ObjectPath.of(lake.at(f"in/{n:02}.jsonl")).put(b'{"n": %d}\n{"n": %d}\n' % (100 + n, 200 + n))
                    ObjectPath.of(lake.at(f"in/{n + 1:02}.jsonl")).unlink()
                    ObjectPath.of(lake.at(f"in/{n:02}a.jsonl")).put(b'{"n": %d}\n' % (300 + n))

    proxy.before = change
    it = of(on_change="again", on_data_loss="gap")
    it.look_through()
    proxy.before = lambda _method, _path: None
    assert len(seen) >= 4
    it.look_through()
    changed, gone = {3, 13, 23, 33}, {4, 14, 24, 34}
    now = [n for n in range(35) if n not in changed | gone]
    now += [n + more for n in changed for more in (100, 200, 300)]
    assert sorted(it.rows()) == sorted(now)
    before = it.epochs[-1]
    it.begin()
    it.look_through()
    assert it.epochs[-1] == before, "each version is known"
