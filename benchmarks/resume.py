"""Starting again with a long history: the time until the first new epoch is published.

The history is 100 files with one line an epoch, and a timeline that says so, written by the store's own append and
publish, many to a transaction. The time is from the construction of the runner, which opens the store and the table,
to the moment at which a line that was appended meanwhile is published. The local engine has no start to count.
"""

from __future__ import annotations

import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import tidegauge as tg
from benchmarks.figures import Figure, Goal
from benchmarks.flows import TICK
from benchmarks.room import Room
from tidegauge.dsl.dataflow import Dataflow
from tidegauge.engine.local import LocalEngine
from tidegauge.env import Env, at_once
from tidegauge.flow.runner import Runner
from tidegauge.job.perform import output_schema
from tidegauge.remap.binding import Bound, Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import LeaseHolder, OutputSpec, SourceSpec, Store
from tidegauge.remap.store.append import Head, append, publish
from tidegauge.remap.store.connect import Database
from tidegauge.sinks.protocol import OutputId

__all__ = ["flow", "history", "measure"]

_FILES: Final = 100
_WIDTH: Final = len('{"id":1000000000}\n')
_IN_ONE: Final = 1000
"""How many epochs are appended in one transaction."""


def _line(number: int) -> str:
    return f'{{"id":1{number:09d}}}\n'


def flow(folder: Path, *, late: tuple[str, ...] = ()) -> Dataflow:
    """Return the flow that has a long history. late: outputs that are not in it."""
    made = tg.Dataflow("bench", store=f"sqlite:///{folder}/store.db", tick=TICK)
    orders = made.source("orders", tg.FileSource(f"{folder}/landing/*.jsonl", format=tg.Json("id long")))
    made.sink("orders", orders, tg.DeltaSink(str(folder / "table")))
    for name in late:
        made.sink(name, orders, tg.DeltaSink(str(folder / name)))
    return made


def history(folder: Path, epochs: int) -> None:
    """Make a flow that has published `epochs` epochs."""
    landing = folder / "landing"
    landing.mkdir(parents=True)
    each = epochs // _FILES
    for number in range(_FILES):
        content = "".join(_line(number * each + i) for i in range(each))
        (landing / f"{number:03d}.jsonl").write_text(content)
    made, env = flow(folder), Env()
    source, plan = made.sources["orders"], made.outputs["orders"]
    probe = source.probe(Bound(), now=datetime.now(UTC))
    store = Store.open(made.store, env=env)
    lease = store.acquire(made.name, holder=LeaseHolder.current(env))
    store.register(
        lease,
        sources={"orders": SourceSpec(source.describe(), source.schema)},
        outputs={"orders": OutputSpec("orders", plan.sink.describe())},
    )
    database = Database(made.store)
    head: Head | None = None
    positions: dict[str, int] = {}
    partitions = sorted(probe.upper)
    for first in range(0, each * _FILES, _IN_ONE):
        with database.writing() as connection:
            for epoch in range(first, min(first + _IN_ONE, each * _FILES)):
                partition = partitions[epoch // each]
                positions[partition] = positions.get(partition, 0) + _WIDTH
                bound = Proposal(frontier=Frontier(positions), details={partition: probe.details[partition]})
                head = append(
                    connection,
                    lease,
                    head,
                    expected=epoch,
                    at=datetime.now(UTC),
                    proposals={"orders": bound},
                    write_id=env.unique(),
                )
    with database.writing() as connection:
        publish(connection, lease, expected=0, upper=each * _FILES, at=datetime.now(UTC))
    schema = output_schema(plan, source.schema or probe.schema, LocalEngine(threads=0))
    table = plan.sink.open(OutputId(made.name, "orders", lease.incarnation))
    table.commit(0, each * _FILES, schema, [], write=env.unique())
    lease.release()
    database.close()
    store.close()


def _first_epoch(folder: Path) -> tuple[float, float]:
    """Append a line and start; return the seconds to a runner that is ready and to the first new epoch."""
    with open(folder / "landing" / "000.jsonl", "a") as file:
        file.write(_line(999_999_999))
    engine = LocalEngine()
    begun = time.perf_counter()
    runner = Runner(flow(folder).spec, engine, env=Env(), spawn=at_once)
    ready = time.perf_counter() - begun
    before = runner.board.published
    while runner.board.published == before:
        runner.step(park=0.05)
    taken = time.perf_counter() - begun
    if runner.board.outputs["orders"].rows != 1:
        raise RuntimeError(f"the new epoch has {runner.board.outputs['orders'].rows} rows, not 1")
    runner.close()
    engine.close()
    return ready, taken


def measure(room: Room) -> list[Figure]:
    """Measure starts with no history to speak of and with a long one, in turns."""
    long = room.size(100_000, 2_000)
    for epochs in (_FILES, long):
        room.say(f"a history of {epochs:,} epochs")
        history(room.folder / f"{epochs}", epochs)
    _first_epoch(room.folder / f"{_FILES}")  # imports what is imported late
    samples: dict[int, list[tuple[float, float]]] = {_FILES: [], long: []}
    for _turn in range(room.size(7, 3)):
        for epochs, found in samples.items():
            found.append(_first_epoch(room.folder / f"{epochs}"))
    shutil.rmtree(room.folder / f"{long}" / "landing")
    return [
        Figure(
            f"first new epoch after a start, {long:,} epochs in the store",
            "s",
            ours=tuple(taken for _, taken in samples[long]),
            peer=tuple(taken for _, taken in samples[_FILES]),
            peer_name=f"{_FILES} epochs",
            goal=Goal("ours", "<=", 3.0),
            details={"ready_s": [ready for ready, _ in samples[long]]},
        )
    ]
