"""Lives of a driver and of maintenance, each in a process of its own that may be killed at an instant."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
from tests.killed import killing
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.env import Env
from tidegauge.errors.sinks import EpochReplaced
from tidegauge.maintenance.maintain import Maintained

ROWS = 300
EACH = 3
KEYS = 40
ENTRIES = ("before link", "after link")


def keyed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as changes of the rows of few keys."""
    keys = pa.array([n % KEYS for n in batch.column("_offset").to_pylist()], pa.int64())
    return batch.append_column("key", keys)


def make(root: Path, *, rows: int | None = ROWS, tables: str | None = None) -> tg.Dataflow:
    """Three rows an epoch, in a table that has all of them and in one that has the last of each key.

    rows: how many; None for no end, and an epoch whenever it is asked for. tables: where they are, if not beside the
    store.
    """
    tables = tables or str(root)
    tick = tg.Manual() if rows is None else 0.001
    flow = tg.Dataflow("many", store=f"sqlite:///{root}/many.db", tick=tick)
    generated = tg.GeneratorSource(rows, columns="value long", max_records_per_epoch=EACH, metadata=True)
    numbers = flow.source("numbers", generated)
    flow.sink("all", numbers, tg.DeltaSink(f"{tables}/all"))
    last = tg.DeltaSink(f"{tables}/last", envelope="upsert", key="key", order="_offset")
    flow.sink("last", numbers.map_batches(keyed), last)
    return flow


def check(flow: tg.Dataflow, *, as_of: int, apart: bool = True) -> None:
    """See that both tables are as of an epoch, whatever has been done to their files.

    apart: whether each epoch had commits of its own; else nobody can tell some states of the table by key.
    """
    wanted = list(range(EACH * (as_of + 1)))
    rows = tg.read_arrow(flow, "all", as_of=as_of)
    assert sorted(rows["_offset"].to_pylist()) == wanted
    assert [n // EACH for n in rows["_offset"].to_pylist()] == rows["_epoch"].to_pylist()
    try:
        last = tg.read_arrow(flow, "last", as_of=as_of)
    except EpochReplaced:
        assert not apart
        return
    found = dict(zip(last["key"].to_pylist(), last["_offset"].to_pylist(), strict=True))
    assert found == {n % KEYS: n for n in wanted}


def grow(flow: tg.Dataflow, epochs: int) -> None:
    """Run a flow without end for so many epochs more, each with commits of its own."""
    with flow.start(engine=tg.LocalEngine(threads=1)):
        for _ in range(epochs):
            epoch = flow.tick()
            assert epoch is not None
            eventually(partial(_published, flow, epoch))


def begin(root: Path, epochs: int) -> None:
    """Run the flow for its first few epochs, each with commits of its own."""
    grow(make(root, rows=None), epochs)


def _published(flow: tg.Dataflow, epoch: int) -> bool:
    return tg.status(flow).published > epoch


def drive(root: Path, point: str | None, nth: int) -> None:
    """Run the flow until it is caught up."""
    env = Env(point=_striking(point, nth))
    make(root).run("caught-up", engine=tg.LocalEngine(threads=1), env=env)


def keep(root: Path, point: str | None, nth: int, times: int) -> None:
    """Maintain the tables again and again."""
    env = Env(point=_striking(point, nth))
    for _ in range(times):
        well(tg.maintain(make(root), retention=timedelta(hours=1), env=env))


def well(done: Maintained) -> Maintained:
    """Return what a maintenance came to, having seen that it met no error."""
    for one in done.outputs:
        if one.error is not None:
            raise one.error
    return done


def _striking(point: str | None, nth: int) -> Callable[[str], None]:
    strike = killing(point, nth)
    if point in ENTRIES:
        link = os.link

        def linked(*args: object, **named: object) -> None:
            strike("before link")
            link(*args, **named)  # type: ignore[arg-type]
            strike("after link")

        os.link = linked
    return strike
