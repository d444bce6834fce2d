"""A driver to be killed: forked from a process that has everything imported, so that a life costs milliseconds.

Reads one JSON command a line: `{"root": ..., "scene": ..., "point": ..., "nth": ...}`. Forks a child that runs the
flow of `make` in that folder until it is caught up, then lets its history be folded; and that kills itself with
SIGKILL at the nth time it comes to the point (if one is given). Answers with the child's pid, and once the child has
ended, with how: 0 for well, 1 for an error of Tidegauge's own, 70 for any other.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import pyarrow as pa
from tests.flow.upstream import Topic
from tests.killed import killing, live_and_end
from tests.warm import load

import tidegauge as tg
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.flow.belonging import table_of
from tidegauge.job import portion
from tidegauge.remap.store import Gap, LeaseHolder, Store
from tidegauge.sinks.parquet.manifest import REMOVED, ROWS, STAGED

Scene = Literal[
    "whole",
    "bad line",
    "bad function",
    "new upstream",
    "late",
    "replaced",
    "replaced folder",
    "columns",
    "polls",
    "listing",
    "http",
]
"""What is wrong: nothing; a line of the orders that does not parse; a function that raises for one output; one more
source, whose upstream is made anew once all of it is read; nothing, and one more output once all is published;
nothing, and a Delta table, or a Parquet one, is replaced once all is published, and the life after that may be
killed; nothing, and the orders get a column once all is published; nothing, with one more source that is polled, by a
function or over HTTP, or that lists a folder."""

REPLACED: dict[Scene, str] = {"replaced": "orders", "replaced folder": "loud"}
"""The table that is replaced in a scene."""

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)

ENTRIES = ("before link", "after link")
"""The instants around the system call by which an entry of a Delta log is there."""

RENAMES = ("before swap", "after swap", "before hide", "after hide", "before show", "after show")
"""The instants around the renames that make a swap of a Parquet table, that take an old file out of sight, and that
bring the new rows into it."""

WRONG = 1060
"""The order that is wrong, where one is: in the middle of the second file."""


def shout(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A transformation that keeps the position of each row."""
    names = pa.array([f"{name}!" for name in batch.column("name").to_pylist()], pa.string())
    return batch.set_column(batch.schema.get_field_index("name"), "name", names)


def whisper(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Another one of that kind."""
    names = pa.array([f"{name}..." for name in batch.column("name").to_pylist()], pa.string())
    return batch.set_column(batch.schema.get_field_index("name"), "name", names)


def complain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same, and it raises at one order."""
    if WRONG in batch.column("id").to_pylist():
        raise ValueError("this order is too quiet")
    return shout(batch)


def make(root: Path, *, scene: Scene = "whole") -> tg.Dataflow:
    """Three sources of three formats, one with inferred columns; four outputs of two kinds."""
    flow = tg.Dataflow("kill", store=f"sqlite:///{root}/flow.db", tick=0.02)
    orders = flow.source(
        "orders",
        tg.FileSource(
            str(root / "in" / "*.jsonl"),
            format=tg.Json("id long, name string" + (", note string" if scene == "columns" else "")),
            metadata=True,
            max_bytes_per_epoch=1500,
            split_bytes=500,
        ),
    )
    prices = flow.source(
        "prices",
        tg.FileSource(
            str(root / "in" / "*.csv"),
            format=tg.Csv(),
            metadata=True,
            max_bytes_per_epoch=900,
            split_bytes=400,
        ),
    )
    rows = flow.source(
        "rows", tg.GeneratorSource(rows=500, columns="k long, s string", shards=3, max_records_per_epoch=60)
    )
    plain = orders.map_batches(shout) if scene == "replaced" else orders
    how: Literal["strict", "add"] = "add" if scene == "columns" else "strict"
    flow.sink("orders", plain, tg.DeltaSink(str(root / "lake" / "orders")), schema=how)
    function = {"bad function": complain, "replaced folder": whisper}.get(scene, shout)
    flow.sink("loud", orders.map_batches(function), tg.ParquetSink(str(root / "lake" / "loud")), schema=how)
    flow.sink("prices", prices, tg.DeltaSink(str(root / "lake" / "prices")))
    flow.sink("rows", rows, tg.ParquetSink(str(root / "lake" / "rows")))
    if scene == "late":
        flow.sink("late", orders.map_batches(shout), tg.ParquetSink(str(root / "lake" / "late")), start=0)
    if scene == "polls":
        pages = tg.PollingSource(partial(page, root), columns="n long", staging=root / "polls", every=0.1)
        flow.sink("polled", flow.source("polled", pages), tg.DeltaSink(str(root / "lake" / "polled")))
    if scene == "listing":
        pattern = str(root / "many" / "**" / "*.jsonl")
        many = tg.ListingSource(
            pattern,
            format=tg.Json("n long"),
            staging=root / "listings",
            every=0.1,
            settle=0,
            max_bytes_per_epoch=PAGE * 11,
        )
        flow.sink("polled", flow.source("polled", many), tg.DeltaSink(str(root / "lake" / "polled")))
    if scene == "http":
        rates = tg.HttpSource(
            (root / "url").read_text(), format=tg.Json("n long"), staging=root / "polls", every=0.1, timeout=30
        )
        flow.sink("polled", flow.source("polled", rates), tg.DeltaSink(str(root / "lake" / "polled")))
    if scene == "new upstream":
        numbers = flow.source("numbers", Topic(root / "topic"))
        flow.sink("numbers", numbers, tg.ParquetSink(str(root / "lake" / "numbers")))
    return flow


PAGE, PAGES = 7, 6


def page(root: Path, cursor: int | None) -> tg.Fetched:
    """Return the next page, and note that it was asked for."""
    at = cursor or 0
    with (root / "asked").open("a") as asked:
        asked.write(f"{at}\n")
    end = min(at + 1, PAGES)
    return tg.Fetched([{"n": at * PAGE + n} for n in range(PAGE * (end - at))], end, more=end < PAGES)


def fill(root: Path, *, scene: Scene = "whole") -> None:
    """Write the input: the same bytes for every root of a scene."""
    folder = root / "in"
    folder.mkdir(parents=True)
    for file in range(3):
        lines = [json.dumps({"id": file * 1000 + n, "name": "x" * (n % 7)}) for n in range(120)]
        if scene == "bad line" and file == WRONG // 1000:
            lines[WRONG % 1000] = '{"id": "none"}'
        (folder / f"{file}.jsonl").write_text("\n".join(lines) + "\n")
    rows = [f'{n},"{n / 4}"' for n in range(400)]
    (folder / "prices.csv").write_text("id,price\r\n" + "\r\n".join(rows) + "\r\n")
    if scene == "listing":
        for n in range(PAGE * PAGES):
            path = root / "many" / f"{n % 4}" / f"{n}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f'{{"n": {n:3}}}\n')
    if scene == "new upstream":
        create(root, "first")


def create(root: Path, identity: str) -> None:
    """Make the upstream of the numbers."""
    topic = Topic(root / "topic")
    topic.create(identity)
    topic.write("p0", *range(len(identity)))


ADDED = 3000
"""The first number that is upstream only once there is a late table."""


def fold(flow: tg.Dataflow, env: tg.Env) -> None:
    """Let the epochs that every table has behind it become indistinguishable, as maintenance would.

    A run begins at the upper that a table itself tells, which is less than `published` where the last epochs held
    nothing for it: what is folded must not reach further.
    """
    store = Store.open(flow.store, env=env)
    lease = store.acquire(flow.name, holder=LeaseHolder.current(env))
    loaded = store.load(flow.name)
    uppers = [table_of(flow.spec, name, loaded).upper for name in flow.outputs]
    store.advance_since(lease, min(loaded.flow.published, *uppers) - 1)
    lease.release()
    store.close()


def lose(flow: tg.Dataflow, env: tg.Env) -> None:
    """Note that a number was lost, as one that upstream let go before it was read."""
    store = Store.open(flow.store, env=env)
    lease = store.acquire(flow.name, holder=LeaseHolder.current(env))
    epoch = store.load(flow.name).sources["numbers"].began_at
    store.record_gap(lease, Gap("numbers", epoch, "p0", 0, 1, NOON, "TG-0554", "it went before it was read"))
    lease.release()
    store.close()


def entries_strike(strike: Callable[[str], None]) -> None:
    """Have each entry of a Delta log pass these points, for the rest of this process."""
    link = os.link

    def struck(beside: Any, name: Any) -> None:
        strike("before link")
        link(beside, name)
        strike("after link")

    os.link = struck  # type: ignore[assignment]


def renames_strike(strike: Callable[[str], None]) -> None:
    """Have the renames of a swap of a Parquet table pass these points, for the rest of this process."""
    rename = Path.rename

    def struck(source: Path, target: Any) -> Any:
        if (source / ROWS).is_dir() and Path(target).parent.name != STAGED:
            name = "swap"
        else:
            name = "hide" if Path(target).parent.name == REMOVED else "show" if source.name == ROWS else "other"
        strike(f"before {name}")
        done = rename(source, target)
        strike(f"after {name}")
        return done

    Path.rename = struck  # type: ignore[assignment, method-assign]


def live(root: Path, *, scene: Scene, point: str | None, nth: int) -> None:
    """Run until caught up, or until the point is reached for the nth time."""
    if scene in REPLACED and not (decided := root / "decided").exists():
        make(root).run(until="caught-up", engine=tg.LocalEngine(threads=2))  # not folded: epochs that differ show
        tg.replace(make(root, scene=scene), REPLACED[scene])
        decided.touch()
    strike = killing(point, nth)
    flow, env = make(root, scene=scene), tg.Env(point=strike)
    if point in ENTRIES:
        entries_strike(strike)
    if point in RENAMES:
        renames_strike(strike)

    def run(flow: tg.Dataflow = flow, env: tg.Env = env) -> None:
        flow.run(until="caught-up", engine=tg.LocalEngine(threads=2), env=env)

    if scene in ("late", "columns") and not (added := root / "added").exists():  # what is struck is struck after that
        run(make(root), tg.Env())
        more = [json.dumps({"id": ADDED + n, "name": "y" * (n % 7), "note": f"n{n}"}) for n in range(120)]
        (root / "in" / "3.jsonl").write_text("\n".join(more) + "\n")
        added.touch()
    if scene == "late":
        cast("dict[str, int]", portion.JOB_LIMITS)["bytes"] = 1  # each epoch of the past is a unit, in this process
        run()
    elif scene != "new upstream":
        run()
    else:
        if Topic(root / "topic").identity() == "first":
            run()
            create(root, "second")
        try:
            run()
        except UpstreamRecreated:
            tg.resume(flow, "numbers", new_incarnation=True, env=env)
            run()
        lose(flow, env)
        (root / "topic" / "p1.numbers").write_text("7\n")
        run()  # its commit tells of the loss
    fold(flow, env)


def serve() -> None:
    """Answer commands until the input ends."""
    load()
    for line in sys.stdin:
        command = json.loads(line)
        root = Path(command.pop("root"))
        pid = os.fork()
        if pid == 0:
            live_and_end(partial(live, root, **command))
        print(json.dumps({"pid": pid}), flush=True)
        _pid, status = os.waitpid(pid, 0)
        print(json.dumps({"killed": os.WIFSIGNALED(status), "code": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    serve()
