"""What the tests of bad input share: flows of JSON lines on a clock that is moved by hand, and short ways to look."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.flow.by_hand import Run, World

import tidegauge as tg
from tidegauge.looking.reports import FlowReport

LINE = "n long, text string"


def lines(*numbers: int) -> str:
    return "".join(json.dumps({"n": n, "text": f"t{n}"}) + "\n" for n in numbers)


def write(path: Path, text: str) -> Path:
    """Append to a file, which may be new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
    return path


def source(world: World, flow: tg.Dataflow, name: str, *, metadata: bool = True, **how: Any) -> Any:
    """A source of the lines in the folder of its name."""
    how.setdefault("format", tg.Json(LINE))
    return flow.source(name, tg.FileSource(str(world.root / name / "*"), metadata=metadata, **how))


def two(world: World) -> tg.Dataflow:
    """Two sources, each with a table of its own; what happens to one is no business of the other."""
    flow = tg.Dataflow("two", store=world.store)
    flow.sink("a", source(world, flow, "a"), tg.DeltaSink(str(world.root / "lake" / "a")))
    flow.sink("b", source(world, flow, "b"), tg.ParquetSink(str(world.root / "lake" / "b")))
    return flow


def beside(function: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Callable[[World], tg.Dataflow]:
    """A source with a plain output `a`, and one through a function, `picky`."""

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("picky", store=world.store)
        a = source(world, flow, "a", metadata=False)
        flow.sink("a", a, tg.DeltaSink(str(world.root / "lake" / "a")))
        flow.sink("picky", a.map_batches(function), tg.ParquetSink(str(world.root / "lake" / "picky")))
        return flow

    return make


def finish(world: World, make: Callable[[World], tg.Dataflow] | None = None) -> None:
    """One life, until everything is in every table that can have it."""
    run = begin(world, make)
    try:
        run.catch_up()
    finally:
        run.abandon()


def begin(world: World, make: Callable[[World], tg.Dataflow] | None = None) -> Run:
    """Begin a life, of another flow when `make` is given."""
    world.make = make or world.make
    return world.start()


def rows(flow: tg.Dataflow, output: str, as_of: int | None = None) -> list[dict[str, Any]]:
    """The rows of an output in the order of their epochs and numbers; without what names the very file."""
    found = tg.read_arrow(flow, output, as_of=as_of).to_pylist()
    for row in found:
        row.pop("_partition", None)
        row.pop("_offset", None)
    return sorted(found, key=lambda row: (row["_epoch"], *[str(v).zfill(9) for v in row.values()]))


def numbers(flow: tg.Dataflow, output: str, as_of: int | None = None) -> list[int]:
    return [row["n"] for row in rows(flow, output, as_of)]


def report(world: World) -> FlowReport:
    return tg.status(world.make(world))


def states(reports: Iterable[Any]) -> dict[str, str]:
    return {one.name: one.state for one in reports}
