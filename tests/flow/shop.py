"""A flow with two tables, whose store is in a place of its own that tests fill, move away or unmount."""

from __future__ import annotations

from pathlib import Path

from tests.disks import fill
from tests.flow.badinput import lines, numbers, write
from tests.flow.by_hand import Run, World

import tidegauge as tg
from tidegauge.errors.store import StoreAway

__all__ = ["Shop"]


class Shop:
    """The flow, in a world whose clock is moved by hand; its store is in `place`, all else in `root`."""

    def __init__(self, root: Path, place: Path) -> None:
        self.root, self.place = root, place
        self.place.mkdir(exist_ok=True)
        self.world = World(self.place, self.flow)
        self.count = 0

    def flow(self, world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = flow.source("orders", tg.FileSource(f"{self.root}/in/*", format=tg.Json("n long, text string")))
        flow.sink("delta", orders, tg.DeltaSink(f"{self.root}/lake/delta"))
        flow.sink("parquet", orders, tg.ParquetSink(f"{self.root}/lake/parquet"))
        return flow

    def add(self) -> None:
        write(self.root / "in" / "1.jsonl", lines(self.count))
        self.count += 1

    def begin(self, epochs: int = 3) -> Run:
        """A run with a few epochs behind it."""
        run = self.world.start()
        for _ in range(epochs):
            self.add()
            run.catch_up()
        return run

    def begin_full(self) -> Run:
        """A run with an epoch behind it, whose store is full before the next one, or after a few more."""
        run = self.begin(1)
        fill(self.place)
        for _ in range(500):
            self.add()
            run.step()
            if run.runner.board.store.error is not None:
                return run
        raise AssertionError("the disk did not fill up")

    def wait(self, run: Run, *, seconds: float = 0.3) -> StoreAway:
        """Let there be more to bind, and return what the run waits for."""
        self.add()
        run.step(seconds)
        found = run.runner.board.store.error
        assert isinstance(found, StoreAway), found
        return found

    def rows(self) -> list[list[int]]:
        return [numbers(self.flow(self.world), output) for output in ("delta", "parquet")]

    def all_there(self, run: Run) -> None:
        """See that the run goes on, and every record is there once."""
        run.step(30.0)
        run.catch_up()
        assert run.runner.board.store.error is None
        self.add()
        run.catch_up()
        run.abandon()
        assert self.rows() == [list(range(self.count))] * 2
        assert tg.verify(self.flow(self.world)).problems == ()
