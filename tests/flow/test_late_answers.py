"""A source whose answer comes when nobody waits for it any more: nothing of it is lost."""

from __future__ import annotations

from pathlib import Path

from tests.flow.by_hand import Run, World

import tidegauge as tg
from tidegauge.remap.operator import PATIENCE


def make(world: World) -> tg.Dataflow:
    flow = tg.Dataflow("slow", store=world.store, tick=2 * PATIENCE)
    numbers = flow.source("numbers", tg.GeneratorSource(rows=5, columns="n long"))
    flow.sink("numbers", numbers, tg.ParquetSink(str(world.root / "numbers")))
    return flow


def test_a_seal_that_is_heard_between_two_looks_is_bound_at_the_next(tmp_path: Path) -> None:
    world = World(tmp_path, make, lag=30)
    run = Run(world)
    for _ in range(12):
        run.step(PATIENCE / 2 + 1)
    assert run.runner.board.sources["numbers"].state == "sealed"
    assert run.runner.ended("caught-up") is not None
    assert tg.read_arrow(make(world), "numbers").num_rows == 5
