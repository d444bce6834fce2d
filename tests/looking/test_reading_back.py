"""Reading back what is published and empty."""

from __future__ import annotations

from pathlib import Path

from tests.flow.badinput import finish, lines, source, write
from tests.flow.by_hand import World

import tidegauge as tg


def sides(world: World, *, framed: bool = False) -> tg.Dataflow:
    """A source with records, and outputs of others that have none yet; one of them with a step that Spark runs."""
    flow = tg.Dataflow("sides", store=world.store)
    flow.sink("full", source(world, flow, "full", metadata=False), tg.ParquetSink(str(world.root / "lake" / "full")))
    declared = source(world, flow, "declared", metadata=False)
    inferred = source(world, flow, "inferred", metadata=False, format=tg.Json())
    flow.sink("plain", declared, tg.DeltaSink(str(world.root / "lake" / "plain")))
    steps = declared.transform(lambda frame: frame) if framed else declared
    flow.sink("framed", steps, tg.DeltaSink(str(world.root / "lake" / "framed")))
    flow.sink("unknown", inferred, tg.DeltaSink(str(world.root / "lake" / "unknown")))
    return flow


def test_a_published_output_that_holds_no_row_is_empty_with_the_columns_that_are_known(tmp_path: Path) -> None:
    world = World(tmp_path, sides)
    write(tmp_path / "full" / "1.jsonl", lines(1))
    finish(world)
    flow = sides(world, framed=True)
    found = {name: tg.read_arrow(flow, name) for name in ("plain", "framed", "unknown")}
    assert [table.num_rows for table in found.values()] == [0, 0, 0]
    assert {name: table.schema.names for name, table in found.items()} == {
        "plain": ["n", "text", "_epoch"],
        "framed": ["_epoch"],
        "unknown": ["_epoch"],
    }
