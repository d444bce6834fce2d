"""Two flows in one store, of which the second shares the sources of the first, in one world moved by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from tests.flow.by_hand import Clock, World
from tests.flow.recorder import Recorder

import tidegauge as tg
from tidegauge.looking.inspect import holds
from tidegauge.remap.frontier import Frontier
from tidegauge.sinks import OutputId

__all__ = ["Pair", "contents", "even", "numbers"]

LINE = "n long, text string"


def even(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with an even number."""
    numbers = batch.column("n")
    return batch.filter(pc.equal(pc.bit_wise_and(numbers, pa.scalar(1, pa.int64())), 0))


def contents(flow: tg.Dataflow, output: str, as_of: int | None = None, *, since: int = 0) -> list[tuple[Any, ...]]:
    """The rows of a table, each with its epoch; earlier epochs than `since` are not told from it."""
    rows = tg.read_arrow(flow, output, as_of=as_of).to_pylist()
    kept = [{**row, "_epoch": max(row["_epoch"], since)} for row in rows]
    return sorted(tuple(sorted(row.items(), key=str)) for row in kept)


@dataclass
class Pair:
    """`shop` has the files of two folders, `billing` shares them. Both have the same outputs.

    more: declares more in a flow, given its streams by name.
    """

    root: Path
    own: dict[str, Any] = field(default_factory=dict)
    more: Callable[[tg.Dataflow, dict[str, tg.RowStream]], None] = lambda _flow, _streams: None
    tampered: bool = False
    """Whether somebody has changed the store by hand, so that positions mean nothing any more."""
    written: int = 0

    def __post_init__(self) -> None:
        clock = Clock()
        self.a = World(self.root, lambda _world: self.flows()[0], clock=clock)
        self.b = World(self.root, lambda _world: self.flows()[1], clock=clock, _unique=itertools.count(1 << 20))
        for name in ("x", "y"):
            (self.root / name).mkdir(exist_ok=True)

    def flows(self) -> tuple[tg.Dataflow, tg.Dataflow]:
        shop = tg.Dataflow("shop", store=self.a.store, tick=0.5)
        billing = tg.Dataflow("billing", store=self.a.store, tick=0.5)
        streams: dict[str, tg.RowStream] = {}
        for name in ("x", "y"):
            source = tg.FileSource(
                f"{self.root}/{name}/*.log", format=tg.Json(LINE), max_bytes_per_epoch=200, settle=0, **self.own
            )
            streams[name] = shop.source(name, Recorder(source, partial(self.witness, name)))
        theirs = {name: billing.source(f"my_{name}", tg.shared(stream)) for name, stream in streams.items()}
        self.declare(shop, streams)
        self.declare(billing, theirs)
        return shop, billing

    def declare(self, flow: tg.Dataflow, streams: dict[str, tg.RowStream]) -> None:
        lake = self.root / "lake" / flow.name
        flow.sink("x", streams["x"], tg.DeltaSink(str(lake / "x")))
        flow.sink("x_even", streams["x"].map_batches(even), tg.ParquetSink(str(lake / "x_even")))
        flow.sink("y", streams["y"], tg.ParquetSink(str(lake / "y")))
        self.more(flow, streams)

    def witness(self, source: str, acknowledged: Frontier) -> None:
        """Law 4, at the instant of an acknowledgement by the owner: every output of both flows holds all of it."""
        if self.tampered:
            return
        for flow, world in zip(self.flows(), (self.a, self.b), strict=True):
            try:
                loaded = world.loaded()
            except tg.TidegaugeError:
                continue  # it has not run
            mine = {"shop": source, "billing": f"my_{source}"}[flow.name]
            for name, plan in flow.outputs.items():
                if plan.source == mine and mine in loaded.sources:
                    table = plan.sink.open(OutputId(flow.name, name, loaded.flow.incarnation))
                    held = loaded.sources[mine].table.inverse(holds(loaded, mine, table.upper))
                    assert acknowledged.less_equal(held), f"{acknowledged} is beyond {held} of {flow.name}:{name}"

    def add(self, source: str = "x", count: int = 1) -> None:
        """Append records to a file of a source."""
        file = self.root / source / "1.log"
        numbers = range(self.written, self.written + count)
        with file.open("a") as out:
            out.writelines(f'{{"n": {n}, "text": "t{n}"}}\n' for n in numbers)
        self.written += count

    def settle(self) -> tuple[tg.Dataflow, tg.Dataflow]:
        """Have both catch up, the owner first, and return the flows."""
        for world in (self.a, self.b):
            run = world.start()
            run.catch_up()
            run.abandon()
        return self.flows()

    def agree(self) -> None:
        """See that the tables of both agree, at every epoch that both have published.

        Who begins to follow when early epochs have been compacted has their rows at the first one that is left.
        """
        shop, billing = self.flows()
        owner, follower = self.a.loaded().flow, self.b.loaded().flow
        for output in shop.outputs:
            since = max(owner.since, follower.since)
            for epoch in range(since, min(owner.published, follower.published)):
                theirs = contents(billing, output, epoch, since=since)
                assert contents(shop, output, epoch, since=since) == theirs, (output, epoch)


def numbers(flow: tg.Dataflow, *outputs: str) -> list[int]:
    return sorted(n for output in outputs for n in tg.read_arrow(flow, output).column("n").to_pylist())
