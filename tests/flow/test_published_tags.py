"""Flows that tag what is published in their tables of Iceberg: which epochs readers of the tags see, and when."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.flow.published_driver import make, slowly
from tests.flow.test_iceberg_tables import Shop
from tests.sinks.iceberg.conftest import catalog_in

import tidegauge as tg
from tidegauge.flow.marking import marked
from tidegauge.sinks.marking import TableState


def tagged(shop: Shop, name: str) -> list[tuple[int, int]]:
    """The rows that anybody reads by the tag, each with its epoch."""
    table = shop.table(name)
    found = table.scan(snapshot_id=table.metadata.refs["published"].snapshot_id).to_arrow().to_pylist()
    return sorted((one["id"], one["_epoch"]) for one in found)


def test_the_tags_of_all_tables_show_what_is_published_when_a_run_ends(tmp_path: Path) -> None:
    shop = Shop(tmp_path, ("users", "copy"))
    for epoch in range(2):
        shop.run(epoch)
        assert tagged(shop, "users") == tagged(shop, "copy") == [(n, n) for n in range(epoch + 1)]


@pytest.mark.long
def test_a_tag_of_others_is_said_and_nothing_else_suffers(tmp_path: Path) -> None:
    shop = Shop(tmp_path, ("users", "copy"))
    shop.run(0)
    table = shop.table("copy")
    theirs = table.current_snapshot().snapshot_id
    with table.transaction() as change:
        change.remove_properties("tidegauge.tagged")
    news: list[str] = []
    with (tmp_path / "users.jsonl").open("a") as file:
        file.write('{"id": 1}\n')
    shop.flow.run("caught-up", engine=tg.LocalEngine(threads=0), watch=lambda board: news.extend(board.news))
    assert any("TG-0542" in one for one in news)
    assert shop.table("copy").metadata.refs["published"].snapshot_id == theirs
    assert shop.ids("copy") == tagged(shop, "users") == [(0, 0), (1, 1)]


@pytest.mark.long
def test_a_late_table_joins_the_others_and_one_made_again_shows_its_new_rows(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    for epoch in range(3):
        shop.run(epoch)
    shop.outputs = ("users", "late")
    shop.run(3)
    assert tagged(shop, "late") == tagged(shop, "users") == [(n, n) for n in range(4)]
    shop.code, shop.wider = ["name", "id"], True
    for name in shop.outputs:
        tg.replace(shop.flow, name)
    shop.run()
    shop.run(4)
    assert tagged(shop, "late") == tagged(shop, "users") == [(n, n) for n in range(5)]
    table = shop.table()
    assert "twice" in table.scan(snapshot_id=table.metadata.refs["published"].snapshot_id).to_arrow().column_names


class Standing:
    """A table whose states are given, which notes what is marked."""

    def __init__(self, *states: TableState, error: OSError | None = None) -> None:
        self.given, self.error, self.marks = states, error, list[str]()

    def states(self) -> Sequence[TableState]:
        if self.error is not None:
            raise self.error
        return self.given

    def mark(self, state: TableState) -> None:
        self.marks.append(state.name)

    def end(self) -> None:
        pass


def test_live_tables_go_to_one_cut_and_others_to_the_newest_that_is_published() -> None:
    gathers = Standing(TableState("b", 6, None), TableState("a", 3, 3))
    quick = Standing(*(TableState(str(n), n, n) for n in (5, 4, 3, 2)))
    late = Standing(TableState("past", 2, None))
    ahead = Standing(TableState("all", 9, None))
    away = Standing(error=OSError("no route"))
    tables: Mapping[str, Standing] = {
        "gathers": gathers, "quick": quick, "late": late, "ahead": ahead, "away": away, "none": Standing(),
    }  # fmt: skip
    failed = marked(tables, 5, {"gathers", "quick", "away", "none"})
    assert list(failed) == ["away"]
    assert [tables[name].marks for name in tables] == [["a"], ["3"], ["past"], [], [], []]


def epochs_by_tag(root: Path, name: str) -> set[int]:
    """The epochs that anybody reads by the tag; none before there is one."""
    catalog = catalog_in(root / "lake")
    try:
        if not catalog.table_exists(f"shop.{name}"):
            return set()
        table = catalog.load_table(f"shop.{name}")
        ref = table.metadata.refs.get("published")
        return set() if ref is None else set(table.scan(snapshot_id=ref.snapshot_id).to_arrow()["_epoch"].to_pylist())
    finally:
        catalog.close()


class Feed:
    """Files for the flow of `published_driver`, of some epochs each."""

    def __init__(self, root: Path) -> None:
        self.folder, self.put = root / "in", 0
        self.folder.mkdir()

    def __call__(self, files: int) -> None:
        for _ in range(files):
            lines = [{"id": n, "name": f"{n:06}"} for n in range(self.put, self.put + 10)]
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (self.folder / f"{self.put:06}.jsonl").write_text(text)
            self.put += 10


def test_after_each_move_the_tags_of_a_quick_table_and_of_a_slow_one_show_the_same_epochs(tmp_path: Path) -> None:
    Feed(tmp_path)(4)
    seen: list[tuple[set[int], set[int], int]] = []

    def look(point: str) -> None:
        if point == "after publish" and threading.current_thread() is not threading.main_thread():
            table = catalog_in(tmp_path / "lake").load_table("shop.quick")
            both = [epochs_by_tag(tmp_path, name) for name in ("quick", "slow")]
            seen.append((both[0], both[1], int(table.properties["tidegauge.upper"])))

    slow = slowly()
    try:
        done = make(tmp_path).run("caught-up", engine=tg.LocalEngine(threads=0), env=tg.Env(point=look))
    finally:
        slow.stop()
    assert all(quick == slow for quick, slow, _upper in seen)
    assert any(len(quick) < upper for quick, _slow, upper in seen), "the quick table was ahead"
    assert seen[-1][0] == set(range(done.published))


POINTS = ["before publish", "after publish", "after swap", "after metadata", "before commit output"]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_whenever_the_driver_is_killed_no_tag_is_ahead_and_the_next_run_mends_them(tmp_path: Path) -> None:
    feed, names, struck = Feed(tmp_path), ("quick", "slow"), 0
    shown: dict[str, set[int]] = {name: set() for name in names}

    def live(point: str, nth: int) -> int:
        command = [sys.executable, "-m", "tests.flow.published_driver", str(tmp_path), point, str(nth)]
        return subprocess.run(command, check=False, cwd=Path(__file__).parents[2], timeout=240).returncode

    for point in POINTS:
        for nth in (1, 5):
            feed(2)
            struck += live(point, nth) == -9
            with sqlite3.connect(tmp_path / "flow.db") as store:
                [(upper,)] = store.execute("SELECT published FROM flows").fetchall()
            for name in names:
                found = epochs_by_tag(tmp_path, name)
                assert found == set(range(len(found))), "whole epochs, without a gap"
                assert len(found) <= upper, f"after {point}, {name} shows an epoch that is not published"
                assert found >= shown[name], "it is never taken back"
                shown[name] = found
    assert struck > len(POINTS)
    assert live("", 0) == 0
    quick, slow = (epochs_by_tag(tmp_path, name) for name in names)
    with sqlite3.connect(tmp_path / "flow.db") as store:
        assert quick == slow == set(range(store.execute("SELECT published FROM flows").fetchone()[0]))
