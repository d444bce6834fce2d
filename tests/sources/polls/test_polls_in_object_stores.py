"""Polls that are staged in an object store: each row once, whatever the store does, and a loss has a name."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.s3 import Lake
from tests.s3_proxy import ONCE, Fault, Proxy, fault_cells
from tests.sources.polls.polling import Driver, Pages, rows_of

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError, Transient
from tidegauge.errors.objects import BucketMissing, ConditionalPutIgnored, CredentialsInAddress, ObjectStoreAway
from tidegauge.errors.polls import PollDamaged, PollGone, PollsElsewhere
from tidegauge.errors.sources import RangeOvertaken, RecordsLost
from tidegauge.objects.path import ObjectPath
from tidegauge.remap.binding import Slice
from tidegauge.sources import staging
from tidegauge.sources.polls import log

STEPS = {
    "rows": ("PUT", ".parquet"),
    "first manifest": ("PUT", "000000000000.json"),
    "manifest": ("PUT", "000000000001.json"),
    "reading a manifest": ("GET", "000000000000.json"),
    "reading rows": ("GET", ".parquet"),
    "looking at rows": ("HEAD", ".parquet"),
}
QUICK = {("dropped after", "manifest", ONCE), ("503 before", "rows", ONCE)}


def source(at: str, upstream: Any, **given: Any) -> tg.PollingSource:
    made = tg.PollingSource(upstream, **{"columns": "n long", "staging": at, "every": 60.0, **given})
    return made.placed("shop", "orders")


def numbers(driver: Driver) -> list[int]:
    return [row["n"] for row in driver.rows()]


def names(at: str) -> list[str]:
    return list(ObjectPath.of(at).below())


def test_o5_polls_are_staged_in_a_store_and_none_is_fetched_again_after_a_crash(bucket: Any) -> None:
    upstream = Pages(rows=list(range(7)))
    polled = source(bucket.at("polls"), upstream)
    died = Driver(polled)
    died.look()  # staged, and never bound
    assert upstream.calls == [None, 3, 6]
    driver = Driver(polled)
    assert driver.poll()
    assert numbers(driver) == list(range(7))
    assert upstream.calls == [None, 3, 6, 7]
    upstream.rows += [7, 8]
    assert Driver(polled, bound=driver.bound).poll()
    assert driver.poll()
    assert numbers(driver) == list(range(9))
    assert [name for name in names(bucket.at("polls")) if name.endswith(".json")] == [
        f"shop/orders/0/{n:012}.json" for n in range(4)
    ]


def test_o1_an_unchanged_poll_asks_the_store_for_nothing(lake: Lake, proxy: Proxy) -> None:
    driver = Driver(source(lake.at("polls"), Pages(rows=[1, 2])))
    driver.poll()
    proxy.asked.clear()
    for _ in range(3):
        assert not driver.poll()
    assert proxy.asked == []


@pytest.mark.parametrize(("fault", "step", "times"), [*fault_cells(STEPS, QUICK)])
def test_each_row_is_there_once_whatever_breaks_where(
    lake: Lake, proxy: Proxy, fault: str, step: str, times: int
) -> None:
    upstream = Pages(rows=list(range(5)))
    polled = source(lake.at("polls"), upstream)
    proxy.faults.append(broken := Fault(fault, *STEPS[step], times=times))
    told: list[TidegaugeError] = []
    driver, found = Driver(polled), list[int]()
    for _ in range(40):
        try:
            driver.clock.now += 400
            driver.poll()
            found = [row["n"] for row in rows_of(polled, driver.bound)]
            if len(found) == 5:
                break
        except Transient as error:
            told.append(error)
            driver = driver if len(told) % 2 else Driver(polled, bound=driver.bound)
    assert broken.met > 0, "nothing was broken"
    assert found == list(range(5))
    assert all("hunter2" not in str(error) for error in told)
    if broken.method != "PUT" or ("after" in fault and step != "rows"):
        staged = Counter(call for call in upstream.calls if call != 5)
        assert set(staged.values()) == {1}, "what is staged is not fetched again"
    proxy.faults.clear()
    Driver(polled, bound=driver.bound).poll()  # its run sweeps
    there = names(lake.at("polls/shop/orders/0"))
    assert len(there) == 4, there


def test_a_server_that_writes_over_objects_is_refused(lake: Lake, proxy: Proxy) -> None:
    proxy.faults.append(Fault("ignores conditions", "PUT", "", times=100))
    driver = Driver(source(lake.at("polls"), Pages(rows=[1])))
    with pytest.raises(ConditionalPutIgnored, match="or stage, elsewhere"):
        driver.poll()
    assert not [name for name in names(lake.at("polls")) if "_proof" not in name]


def test_o12_of_two_drivers_one_makes_the_poll_and_the_other_takes_it(lake: Lake, proxy: Proxy) -> None:
    polled = source(lake.at("polls"), Pages(rows=[1, 2]))
    other = Driver(polled)
    driver = Driver(source(lake.at("polls"), Pages(rows=[7, 8])))
    ahead: list[Any] = []

    def between(method: str, path: str) -> None:
        if method == "PUT" and "000000000000.json" in path and not ahead:
            ahead.append(path)
            other.poll()

    proxy.before = between
    driver.poll()
    assert numbers(driver)[:2] == numbers(other) == [1, 2]
    assert len([name for name in names(lake.at("polls")) if "/000000000000" in name]) == 2


def test_what_a_driver_left_that_died_is_swept_once_its_poll_is_there(lake: Lake) -> None:
    polled = source(lake.at("polls"), Pages(rows=[1, 2]))
    folder = ObjectPath.of(lake.at("polls/shop/orders/0"))
    (folder / f"000000000000-{'a' * 32}.parquet").put(b"half")
    driver = Driver(polled)
    driver.poll()
    (folder / f"000000000001-{'b' * 32}.parquet").put(b"of a driver that may be alive")
    Driver(polled, bound=driver.bound).poll()
    there = names(lake.at("polls/shop/orders/0"))
    assert not [name for name in there if "a" * 32 in name]
    assert [name for name in there if "b" * 32 in name]
    assert numbers(driver) == [1, 2]


def test_a_rule_that_removes_polls_is_a_loss_with_a_name(bucket: Any) -> None:
    upstream = Pages(rows=list(range(6)))
    polled = source(bucket.at("polls"), upstream)
    driver = Driver(polled)
    driver.poll()
    splits = polled.plan([Slice("it", 0, "polls", 0, 2)], driver.bound)
    folder = ObjectPath.of(bucket.at("polls/shop/orders/0"))
    [rows] = [name for name in folder.names() if name.startswith("000000000000-")]
    kept = (folder / rows).read_bytes()
    (folder / rows).unlink()
    with pytest.raises(RecordsLost):
        driver.rows()
    with pytest.raises(RangeOvertaken):
        list(polled.read(splits[0], print))  # type: ignore[arg-type]
    (folder / rows).put(kept)
    for name in folder.names():
        (folder / name).unlink()
    with pytest.raises(RecordsLost):
        driver.rows()
    with pytest.raises(PollGone, match="lifecycle rule") as told:
        Driver(polled, bound=driver.bound).poll()
    assert bucket.at("polls/shop/orders/0/000000000001.json") in str(told.value)


def test_staged_polls_that_a_rule_removes_before_they_are_bound_are_fetched_again(lake: Lake) -> None:
    upstream = Pages(rows=list(range(6)))
    polled = source(lake.at("polls"), upstream)
    Driver(polled).look()
    ObjectPath.of(lake.at("polls")).clear()
    driver = Driver(polled)
    driver.poll()
    assert numbers(driver) == list(range(6))


def test_an_object_with_other_bytes_is_refused(lake: Lake) -> None:
    polled = source(lake.at("polls"), Pages(rows=[1, 2]))
    driver = Driver(polled)
    driver.poll()
    folder = ObjectPath.of(lake.at("polls/shop/orders/0"))
    [rows] = [name for name in folder.names() if name.endswith(".parquet")]
    data = (folder / rows).read_bytes()
    [split] = polled.plan([Slice("it", 0, "polls", 0, 1)], driver.bound)
    for other in (data[:-9], data[:40] + bytes(9) + data[49:]):
        (folder / rows).put(other)
        with pytest.raises(PollDamaged):
            list(polled.read(split, print))  # type: ignore[arg-type]


def test_a_bucket_that_is_away_is_waited_for(lake: Lake) -> None:
    upstream = Pages(rows=[1])
    at = f"s3://not-{lake.bucket}/polls"
    driver = Driver(source(at, upstream))
    with pytest.raises(BucketMissing):
        driver.poll()
    assert lake.server.request("PUT", f"/not-{lake.bucket}") == 200
    driver.clock.now += 400
    driver.poll()
    assert numbers(driver) == [1]


def test_a_log_that_is_copied_from_a_disk_goes_on_in_the_store(lake: Lake, tmp_path: Path) -> None:
    upstream = Pages(rows=list(range(4)))
    driver = Driver(source(str(tmp_path / "polls"), upstream))
    driver.poll()
    moved = source(lake.at("polls"), upstream)
    with pytest.raises(PollGone, match="leads elsewhere"):
        Driver(moved, bound=driver.bound).poll()
    for file in (tmp_path / "polls").rglob("*.*"):
        (ObjectPath.of(lake.at("polls")) / str(file.relative_to(tmp_path / "polls"))).put(file.read_bytes())
    upstream.rows += [4]
    after = Driver(moved, bound=driver.bound)
    after.poll()
    assert numbers(after) == list(range(5))
    assert upstream.calls.count(None) == 1


@pytest.mark.parametrize("whole", [0, 16 << 20])
def test_a_large_poll_goes_up_and_comes_in_parts(
    lake: Lake, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, whole: int
) -> None:
    monkeypatch.setattr(staging, "_WHOLE", whole)
    monkeypatch.setattr(staging, "_PART", 6 << 20)
    texts = [f"{n:x}" * (1 << 18) for n in range(24, 48)]
    polled = source(
        lake.at("polls"),
        lambda state: tg.Fetched([] if state else [{"t": text} for text in texts], 1),
        columns="t string",
    )
    driver = Driver(polled)
    driver.poll()
    assert [row["t"] for row in driver.rows()] == texts
    assert any("uploads" in one for one in proxy.asked) is not bool(whole)


def test_addresses_that_are_none_are_refused() -> None:
    with pytest.raises(CredentialsInAddress):
        source("s3://ada:secret@lake/polls", Pages())
    for elsewhere in (Path("s3://lake/polls"), "hdfs://lake/polls"):
        with pytest.raises(PollsElsewhere):
            source(elsewhere, Pages())  # type: ignore[arg-type]


@pytest.mark.parametrize("when", ["before the next look", "while upstream is asked"])
def test_a_manifest_that_comes_after_its_request_was_given_up_counts(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    late: list[Any] = []

    def given_up(path: ObjectPath, data: bytes) -> bool:
        late.append((path, data))
        raise ObjectStoreAway(place=str(path), detail="timed out")

    upstream = Pages(rows=[1, 2])

    def fetch(cursor: Any) -> Any:
        if len(upstream.calls) == 1 and when == "while upstream is asked":
            late[0][0].put_new(late[0][1])
        return upstream(cursor)

    driver = Driver(source(lake.at("polls"), fetch))
    with monkeypatch.context() as patch:
        patch.setattr(log, "create", given_up)
        with pytest.raises(ObjectStoreAway):
            driver.look()
    if when == "before the next look":
        late[0][0].put_new(late[0][1])
    driver.poll()
    assert numbers(driver) == [1, 2]
    assert upstream.calls.count(None) == (1 if when == "before the next look" else 2)
    assert [name for name in late[0][0].parent.names() if name.endswith(".json")] == ["000000000000.json"]
