"""Loads whose source is in an object store: all of a load or nothing, and no file twice, whatever the store does."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.forked import end_of
from tests.maintenance.history import loaded_together, rows, shop, write
from tests.s3 import Lake
from tests.s3_proxy import ONCE, Fault, Proxy, fault_cells
from tests.sources.polls.server import served

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.batches import BatchDamaged
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.loads import FileNotLoadable, LoadedAlready, LoadInDoubt, LoadNotStaged
from tidegauge.errors.objects import BucketMissing, ConditionalPutIgnored, CredentialsInAddress
from tidegauge.objects import client, listing, path
from tidegauge.objects.path import ObjectPath
from tidegauge.sources import staging
from tidegauge.sources.batches import claimed

STEPS = {
    "log": ("GET", "list-type"),
    "rows": ("PUT", ".parquet"),
    "manifest": ("PUT", "000000000000.json"),
    "entry": ("PUT", "_loaded/0"),
    "reading the log": ("GET", "_loaded/0"),
}
QUICK = {("dropped after", "entry", ONCE), ("503 before", "rows", ONCE)}


def parts(place: str) -> list[str]:
    """What is staged, and what the log has."""
    return [name for name in ObjectPath.of(place).below() if name.endswith((".parquet", ".json"))]


def check_once(flow: tg.Dataflow, files: Path) -> str:
    """Load again, after a load ended somehow; return whether that one was there."""
    found = [n for n, _ in rows(flow)]
    assert found in ([], [1, 2, 3, 11, 12, 13])
    try:
        tg.load(flow, "orders", files / "*.parquet")
        before = "nothing"
    except LoadedAlready:
        before = "all"
    assert bool(found) == (before == "all")
    after = rows(flow)
    assert [n for n, _ in after] == [1, 2, 3, 11, 12, 13]
    assert len({epoch for _, epoch in after}) == 1
    return before


def test_a_load_is_one_epoch_and_no_file_is_loaded_twice(bucket: Any, tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3)
    flow = shop(tmp_path, bucket.at("loads"))
    done = tg.load(flow, "orders", tmp_path / "in" / "[12].parquet")
    assert (done.files, done.rows) == (2, 4)
    assert rows(flow) == [(1, 0), (2, 0), (11, 0), (12, 0)]
    with pytest.raises(LoadedAlready, match=f"2 of the 3 files have been loaded by {done.name}"):
        tg.load(flow, "orders", tmp_path / "in" / "*.parquet")
    tg.load(flow, "orders", tmp_path / "in" / "3.parquet")
    assert rows(flow)[-1] == (13, 1)
    [piece] = [one for one in tg.explain(flow, 0).slices if one.source == "history"]
    assert (piece.partition, piece.detail["inputs"]) == (done.name, 2)
    assert len([name for name in parts(bucket.at("loads")) if name.startswith("_loaded/")]) == 2


def test_t69_of_three_files_with_a_corrupt_third_nothing_is_left_in_the_store(bucket: Any, tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3)
    third = tmp_path / "in" / "3.parquet"
    good = third.read_bytes()
    third.write_bytes(good[:-9])
    flow = shop(tmp_path, bucket.at("loads"))
    with pytest.raises(FileNotLoadable, match=r"3\.parquet cannot be read"):
        tg.load(flow, "orders", tmp_path / "in" / "*.parquet")
    assert parts(bucket.at("loads")) == []
    third.write_bytes(good)
    assert check_once(flow, tmp_path / "in") == "nothing"


def test_of_loads_at_one_time_that_share_files_one_is_made(bucket: Any, tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3)
    flow = shop(tmp_path, bucket.at("loads"))
    patterns = ["*.parquet", "*.parquet", "[12].parquet", "[23].parquet"]
    assert len(loaded_together(flow, tmp_path / "in", patterns)) == 1
    found = [n for n, _ in rows(flow)]
    assert found in ([1, 2, 3, 11, 12, 13], [1, 2, 11, 12], [2, 3, 12, 13])
    staged = {name.split("/")[1] for name in parts(bucket.at("loads")) if name.startswith("_loads/")}
    assert len(staged) == 1, "what those have staged that were refused is removed"


def test_loads_at_one_time_of_other_files_are_all_made(lake: Lake, tmp_path: Path) -> None:
    write(tmp_path, *range(1, 6))
    flow = shop(tmp_path, lake.at("loads"))
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda n: tg.load(flow, "orders", tmp_path / "in" / f"{n}.parquet"), range(1, 6)))
    assert [n for n, _ in rows(flow)] == [*range(1, 6), *range(11, 16)]


@pytest.mark.parametrize(("fault", "step", "times"), [*fault_cells(STEPS, QUICK)])
def test_a_load_is_there_once_whatever_breaks_where(
    lake: Lake, proxy: Proxy, tmp_path: Path, fault: str, step: str, times: int
) -> None:
    write(tmp_path, 1, 2, 3)
    flow = shop(tmp_path, lake.at("loads"))
    if step == "reading the log":
        write(tmp_path, 9)
        tg.load(flow, "orders", tmp_path / "in" / "9.parquet")
        (tmp_path / "in" / "9.parquet").unlink()
    proxy.faults.append(broken := Fault(fault, *STEPS[step], times=times))
    told: list[TidegaugeError] = []
    try:
        tg.load(flow, "orders", tmp_path / "in" / "*.parquet")
    except TidegaugeError as error:
        told.append(error)
    assert "hunter2" not in str(told)
    assert broken.met > 0, "nothing was broken"
    proxy.faults.clear()
    if step == "reading the log":
        assert {n for n, _ in rows(flow)} - {1, 2, 3, 11, 12, 13} == {9, 19}
        return
    before = check_once(flow, tmp_path / "in")
    assert (before == "all") == (not told) or isinstance(told[0], LoadInDoubt)


def test_a_load_that_nobody_knows_of_is_said_to_be_in_doubt_and_its_rows_stay(
    lake: Lake, proxy: Proxy, tmp_path: Path
) -> None:
    write(tmp_path, 1, 2, 3)
    flow = shop(tmp_path, lake.at("loads"))

    def away(method: str, path: str) -> None:
        if method == "PUT" and "_loaded/0" in path:  # it is passed on, and from then on the store is away
            proxy.faults += [Fault("503 after", "PUT", "", times=999), Fault("expired", "GET", "", times=999)]

    proxy.before = away
    proxy.faults.append(Fault("dropped after", "PUT", "_loaded/0"))
    with pytest.raises(LoadInDoubt, match="nobody knows whether load-"):
        tg.load(flow, "orders", tmp_path / "in" / "*.parquet")
    proxy.before = lambda _method, _path: None
    proxy.faults.clear()
    assert check_once(flow, tmp_path / "in") == "all"


def load_killed(root: Path, place: str, environment: dict[str, str], nth: int) -> None:
    """Load in a process of its own, and be killed just before its nth request to the store."""
    os.environ.update(environment)
    left = nth

    def counted(bucket: str) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return client.client(bucket)

    for module in (path, listing, staging):
        vars(module)["client"] = counted
    tg.load(shop(root, place), "orders", root / "in" / "*.parquet")


def kills(lake: Lake, root: Path, instants: Iterable[int]) -> list[str]:
    """What there is of loads that are killed at some instants."""
    seen = list[str]()
    for nth in instants:
        here, place = root / str(nth), lake.at(f"loads{nth}")
        here.mkdir()
        write(here, 1, 2, 3)
        end = end_of(load_killed, here, place, lake.server.environment(), nth)
        assert end in {0, -signal.SIGKILL}
        seen.append(check_once(shop(here, place), here / "in"))
        if end == 0:
            break
    return seen


def test_a_load_that_is_killed_before_its_entry_is_nothing(lake: Lake, tmp_path: Path) -> None:
    assert kills(lake, tmp_path, [8]) == ["nothing"]


@pytest.mark.long
def test_a_load_is_all_or_nothing_before_whatever_request_it_is_killed(lake: Lake, tmp_path: Path) -> None:
    seen = kills(lake, tmp_path, range(99))
    assert seen == ["nothing"] * (len(seen) - 1) + ["all"]
    assert 8 < len(seen) < 40


def test_what_a_killed_load_has_left_is_given_up_after_a_day_and_removed(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 1, 2, 3)
    flow = shop(tmp_path, lake.at("loads"))

    root = ObjectPath.of(lake.at("loads"))
    left = root / "_loads" / "7d1f" / "000000000000"
    (left / "part-1.parquet").put(b"rows")
    assert rows(flow) == []
    tg.maintain(flow)
    assert parts(lake.at("loads")) == ["_loads/7d1f/000000000000/part-1.parquet"], "it may be running"
    monkeypatch.setattr(claimed, "_ABANDONED", timedelta(0))
    tg.maintain(flow)
    assert parts(lake.at("loads")) == ["_loaded/000000000000.json"]
    (left / "part-2.parquet").put(b"rows")  # a task that was under way
    tg.maintain(flow)
    assert parts(lake.at("loads")) == ["_loaded/000000000000.json"]
    assert check_once(flow, tmp_path / "in") == "nothing"


def test_a_load_that_was_given_up_while_it_ran_is_refused_and_loads_that_are_there_are_never_given_up(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 1, 2, 3)
    flow = shop(tmp_path, lake.at("loads"))
    assert rows(flow) == []
    real = claimed.claim

    def late(root: ObjectPath, *given: Any) -> str:
        with monkeypatch.context() as sooner:
            sooner.setattr(claimed, "_ABANDONED", timedelta(0))
            sooner.setattr(ObjectPath, "clear", lambda _folder: None)  # its files are there still
            claimed.sweep_objects(root)
        return real(root, *given)

    with monkeypatch.context() as slow:
        slow.setattr("tidegauge.sources.batches.loading.claim", late)
        with pytest.raises(LoadNotStaged, match="has found nothing new in it for a day"):
            tg.load(flow, "orders", tmp_path / "in" / "*.parquet")
    assert parts(lake.at("loads")) == ["_loaded/000000000000.json"]
    assert check_once(flow, tmp_path / "in") == "nothing"
    there = parts(lake.at("loads"))
    monkeypatch.setattr(claimed, "_ABANDONED", timedelta(0))
    tg.maintain(flow)
    assert parts(lake.at("loads")) == there


def test_a_log_that_was_removed_or_put_back_is_told(lake: Lake, tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3, 4)
    flow = shop(tmp_path, lake.at("loads"))
    for n in (1, 2, 3):
        tg.load(flow, "orders", tmp_path / "in" / f"{n}.parquet")
    before = rows(flow)
    root = ObjectPath.of(lake.at("loads"))
    entry = root / "_loaded" / "000000000002.json"
    kept = entry.read_bytes()
    entry.unlink()
    with pytest.raises(LoadNotStaged, match=r"its log of loads lacks load-.*, which the flow has read"):
        tg.load(flow, "orders", tmp_path / "in" / "4.parquet")
    entry.put(kept)
    (root / "_loaded" / "000000000001.json").unlink()
    other = tg.Dataflow("other", store=f"sqlite:///{tmp_path}/other.db")  # one that has read nothing yet
    other.sink(
        "orders",
        other.source("history", tg.BatchSource(lake.at("loads"), columns="id long")),
        tg.ParquetSink(str(tmp_path / "other")),
    )
    with pytest.raises(BatchDamaged, match="it is gone, and later ones are there, up to 2"):
        tg.load(other, "orders", tmp_path / "in" / "4.parquet")
    assert rows(flow) == before


def test_what_a_rule_of_the_bucket_removes_is_a_loss_with_a_name(lake: Lake, tmp_path: Path) -> None:
    write(tmp_path, 1)
    flow = shop(tmp_path, lake.at("loads"))
    tg.load(flow, "orders", tmp_path / "in" / "1.parquet")
    (ObjectPath.of(lake.at("loads")) / "_loads").clear()
    with suppress(TidegaugeError):
        flow.run("caught-up", engine="local")
    [source] = [one for one in tg.status(flow).sources if one.name == "history"]
    assert source.error is not None
    assert source.error.code == "TG-0684"


def test_files_of_urls_go_to_the_store_for_the_tasks_and_are_removed_there(lake: Lake, tmp_path: Path) -> None:
    flow = shop(tmp_path, lake.at("loads"))
    with served() as server:
        server.says(b'{"id": 1, "name": "a"}\n')
        tg.load(flow, "orders", f"{server.url}/a.jsonl?token=hunter2")
        with pytest.raises(LoadedAlready, match=f"{server.url}/a.jsonl first"):
            tg.load(flow, "orders", f"{server.url}/a.jsonl")
    assert rows(flow) == [(1, 0)]
    assert not [name for name in ObjectPath.of(lake.at("loads")).below() if "fetched" in name]


def test_stores_that_cannot_take_loads_are_refused_by_name(lake: Lake, proxy: Proxy, tmp_path: Path) -> None:
    write(tmp_path, 1)
    with pytest.raises(CredentialsInAddress):
        tg.BatchSource("s3://tide:hunter2@lake/loads", columns="id long")
    with pytest.raises(InvalidArgument):
        tg.BatchSource("s3://lake", columns="id long")
    with pytest.raises(BucketMissing):
        tg.load(shop(tmp_path, "s3://tidegauge-none/loads"), "orders", tmp_path / "in" / "1.parquet")
    proxy.faults.append(Fault("ignores conditions", "PUT", "", times=100))
    with pytest.raises(ConditionalPutIgnored):
        tg.load(shop(tmp_path, lake.at("loads")), "orders", tmp_path / "in" / "1.parquet")
