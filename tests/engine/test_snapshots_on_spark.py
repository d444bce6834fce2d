"""All outputs at one epoch as views of a Spark session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.flow.badinput import finish, lines, source, write
from tests.flow.by_hand import World

import tidegauge as tg

pytestmark = pytest.mark.spark


def two(world: World) -> tg.Dataflow:
    flow = tg.Dataflow("two", store=world.store)
    a = source(world, flow, "a", metadata=False)
    flow.sink("all", a, tg.DeltaSink(str(world.root / "lake" / "all")))
    flow.sink("late.and-large", a.filter("n > 2"), tg.ParquetSink(str(world.root / "lake" / "large")))
    return flow


def test_a_session_gets_a_view_of_each_output_all_at_one_epoch(tmp_path: Path, classic: Any) -> None:
    world = World(tmp_path, two)
    for numbers in ((1, 2, 3), (4,), (5, 6)):
        write(tmp_path / "a" / "1.jsonl", lines(*numbers))
        finish(world)
    flow = two(world)
    joined = "SELECT count(*), max(b.n) FROM all AS a LEFT JOIN `late.and-large` AS b ON a.n = b.n"
    try:
        assert tg.snapshot(classic, flow, as_of=1).epoch == 1
        assert [tuple(row) for row in classic.sql(joined).collect()] == [(4, 4)]
        newest = tg.snapshot(classic, flow)
        assert (newest.epoch, newest.frames["late.and-large"].count()) == (2, 4)
        assert [tuple(row) for row in classic.sql(joined).collect()] == [(6, 6)]
    finally:
        for name in ("all", "late.and-large"):
            classic.catalog.dropTempView(name)
