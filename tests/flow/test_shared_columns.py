"""The columns of a source that two flows share are its owner's, from the same epoch on, in both."""

from __future__ import annotations

import itertools
import json
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.flow.badinput import begin, rows, write
from tests.flow.by_hand import Clock, Crash, World

import tidegauge as tg
from tidegauge.errors.columns import SharedColumnsRefused
from tidegauge.evolution import Evolution
from tidegauge.remap.store import EXPIRY


@dataclass
class Two:
    """`shop` reads lines without declared columns; `other` shares them. how: that of the follower's table."""

    root: Path
    how: Evolution = "add"
    late: bool = False
    select: tuple[str, ...] = ()
    shop: World = field(init=False)
    other: World = field(init=False)

    def __post_init__(self) -> None:
        clock = Clock()
        self.shop = World(self.root, lambda _world: self.flows()[0], clock=clock)
        self.other = World(self.root, lambda _world: self.flows()[1], clock=clock, _unique=itertools.count(1 << 20))

    def flows(self) -> tuple[tg.Dataflow, tg.Dataflow]:
        shop = tg.Dataflow("shop", store=self.shop.store)
        orders = shop.source("orders", tg.FileSource(str(self.root / "in" / "*"), format=tg.Json()))
        shop.sink("t", orders, tg.ParquetSink(str(self.root / "lake" / "shop")), schema="add")
        other = tg.Dataflow("other", store=self.shop.store)
        shared: Any = other.source("sold", tg.shared(orders))
        step = shared.select(*self.select) if self.select else shared
        other.sink("t", step, tg.DeltaSink(str(self.root / "lake" / "other")), schema=self.how)
        if self.late:
            other.sink("late", shared, tg.ParquetSink(str(self.root / "lake" / "late")), schema="add")
        return shop, other

    def add(self, *records: dict[str, Any]) -> None:
        write(self.root / "in" / "1.jsonl", "".join(json.dumps(record) + "\n" for record in records))

    @staticmethod
    def live(world: World, at: str = "") -> None:
        """One life, which ends at a point where one is given."""
        world.strike = at
        with suppress(Crash):
            run = begin(world)
            try:
                run.catch_up()
            finally:
                run.abandon()
        if at:
            world.strike = ""
            world.clock.seconds += EXPIRY + 1

    def table(self, world: World, output: str = "t") -> list[dict[str, Any]]:
        found = rows(world.make(world), output)
        return [{name: value for name, value in row.items() if value is not None} for row in found]

    def since(self, world: World) -> list[tuple[int, list[str], list[int]]]:
        [source] = world.loaded().sources.values()
        return [(one.epoch, one.schema.names, sorted(one.positions.values())) for one in source.earlier]


def grown(two: Two) -> None:
    """Columns that come one after the other, with the follower at work or not."""
    two.add({"n": 0})
    two.live(two.shop)
    two.live(two.other)
    two.add({"n": 1, "user": "ada"})
    two.live(two.shop)
    two.add({"n": 2, "note": "new"})
    two.live(two.shop)


EXPECTED: list[dict[str, Any]] = [
    {"n": 0, "_epoch": 0},
    {"n": 1, "user": "ada", "_epoch": 1},
    {"n": 2, "note": "new", "_epoch": 2},
]


def test_a_follower_has_the_columns_of_its_owner_from_the_same_epoch_on(tmp_path: Path) -> None:
    two = Two(tmp_path)
    grown(two)
    two.live(two.other)
    assert two.table(two.other) == two.table(two.shop) == EXPECTED
    assert two.since(two.other) == two.since(two.shop)
    two.late = True
    two.live(two.other)
    assert two.table(two.other, "late") == EXPECTED
    assert not tg.verify(two.flows()[1]).problems


def test_a_follower_at_work_takes_them_on_while_it_runs(tmp_path: Path) -> None:
    two = Two(tmp_path)
    two.add({"n": 0})
    shop, other = begin(two.shop), begin(two.other)
    for n in (1, 2, 3):
        shop.catch_up()
        other.catch_up()
        two.add({"n": n, f"c{n}": n})
    shop.catch_up()
    other.catch_up()
    shop.abandon()
    other.abandon()
    assert two.table(two.other) == two.table(two.shop)
    assert two.table(two.shop)[-1] == {"n": 3, "c3": 3, "_epoch": 3}


@pytest.mark.parametrize(
    "point", [f"{side} {effect}" for side in ("before", "after") for effect in ("append bindings", "stage")]
)
def test_a_crash_of_the_follower_leaves_the_same_columns(tmp_path: Path, point: str) -> None:
    two = Two(tmp_path)
    grown(two)
    two.live(two.other, point)
    two.live(two.other)
    assert two.table(two.other) == EXPECTED
    assert two.since(two.other) == two.since(two.shop)


def test_an_output_that_does_not_take_them_on_refuses_them_before_a_row_is_written(tmp_path: Path) -> None:
    two = Two(tmp_path, how="strict")
    grown(two)
    with pytest.raises(SharedColumnsRefused, match=r"'shop' .* from epoch 1 on.* the table has no column 'user'"):
        two.live(two.other)
    assert two.table(two.other) == EXPECTED[:1]
    two.how = "add"
    two.live(two.other)
    assert two.table(two.other) == EXPECTED
    two.how = "strict"
    two.add({"n": 3})
    two.live(two.shop)
    two.live(two.other)
    assert two.table(two.other)[-1] == {"n": 3, "_epoch": 3}, "nothing changes from here on"


def test_an_output_that_selects_its_columns_is_not_concerned(tmp_path: Path) -> None:
    two = Two(tmp_path, how="strict", select=("n",))
    grown(two)
    two.live(two.other)
    assert two.table(two.other) == [{"n": n, "_epoch": n} for n in range(3)]


def test_a_lost_store_is_brought_back_for_both(tmp_path: Path) -> None:
    two = Two(tmp_path)
    grown(two)
    backup = tmp_path / "backup"
    shutil.copy(tmp_path / "flow.db", backup)
    two.live(two.other)
    known = two.since(two.shop)
    for lost in (False, True):
        for path in tmp_path.glob("flow.db*"):
            path.unlink()
        if not lost:
            shutil.copy(backup, tmp_path / "flow.db")
        two.shop.clock.seconds += EXPIRY + 1
        for world in (two.shop, two.other):
            tg.recover(world.make(world), env=world.env())
        assert two.since(two.other) == two.since(two.shop) == known, lost
        two.add({"n": 3 + lost, "user": "eve"})
        two.live(two.shop)
        two.live(two.other)
    assert two.table(two.other) == two.table(two.shop)
    assert [row["user"] for row in two.table(two.other) if "user" in row] == ["ada", "eve", "eve"]
