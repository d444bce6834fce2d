"""What a subscriber of an output costs, and what a hundred cost, beside a plain reader that reads each epoch again.

Live: a driver in a process of its own publishes an epoch each time a line lands. What counts is the processor time of
the process of the subscribers for each epoch: waiting costs nothing, looking does. The reader calls `read_arrow`
until the epoch is there, as often as subscribers look at least. The store has a hundred epochs by then, or a hundred
thousand.

Over a backlog: the rows a second that one subscriber is given, and that a hundred are together, in one thread.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import tidegauge as tg
from benchmarks.figures import Figure
from benchmarks.resume import flow, history
from benchmarks.room import Room
from tidegauge.dsl.dataflow import Dataflow
from tidegauge.engine.local import LocalEngine
from tidegauge.errors.command import NotPublished
from tidegauge.looking.subscription import Subscriber

__all__ = ["drive", "measure"]

_MANY: Final = 100
_FEW_EPOCHS: Final = 100
_PAUSE: Final = 0.2
_SKIPPED: Final = 3
"""Epochs that do not count: the first load what is kept then."""


def drive(folder: str) -> None:
    """Run the flow until there is no more input: the process that has the driver."""
    with flow(Path(folder)).start(engine=LocalEngine(threads=0)):
        print("runs", flush=True)
        sys.stdin.read()


@contextmanager
def _driven(folder: Path) -> Iterator[None]:
    code = "import sys; from benchmarks.following import drive; drive(sys.argv[1])"
    command = [sys.executable, "-c", code, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        if process.stdout is None or not process.stdout.readline():
            raise RuntimeError("the driver did not start")
        yield
    finally:
        process.communicate()  # which closes its input


def _land(folder: Path) -> None:
    with open(folder / "landing" / "000.jsonl", "a") as file:
        file.write('{"id":1999999999}\n')


def _reached(following: Subscriber, upper: int) -> int:
    """Go on until nothing below an epoch is coming any more; return the rows."""
    rows = 0
    for batch in following:
        rows += int(batch.num_rows)
        said = batch.slice(0, 1).to_pylist()[0]
        if said["_progressed"] and said["_epoch"] >= upper:
            return rows
    raise RuntimeError(f"the subscription ended before epoch {upper}")


def _each_epoch(folder: Path, epochs: int, follow: Callable[[int], object]) -> tuple[tuple[float, ...], float]:
    """Land a line for each of some epochs; return the processor milliseconds until each is followed, and the median
    of those that it took by the clock."""
    first = tg.status(flow(folder)).upper
    spent, taken = [], []
    with _driven(folder):
        for upper in range(first + 1, first + 1 + _SKIPPED + epochs):
            clock, begun = time.process_time(), time.perf_counter()
            _land(folder)
            follow(upper)
            spent.append(1000 * (time.process_time() - clock))
            taken.append(1000 * (time.perf_counter() - begun))
    return tuple(spent[_SKIPPED:]), sorted(taken[_SKIPPED:])[epochs // 2]


def _subscribed(folder: Path, count: int, epochs: int) -> tuple[tuple[float, ...], float]:
    made = flow(folder)
    with ExitStack() as opened:
        following = [
            opened.enter_context(made.subscribe("orders", snapshot=False, progress=True)) for _ in range(count)
        ]
        first = tg.status(made).upper
        for one in following:
            _reached(one, first)

        def follow(upper: int) -> None:
            for one in following:
                _reached(one, upper)

        return _each_epoch(folder, epochs, follow)


def _read(folder: Path, epochs: int) -> tuple[tuple[float, ...], float]:
    made = flow(folder)

    def follow(upper: int) -> None:
        while True:
            with suppress(NotPublished):
                tg.read_arrow(made, "orders", as_of=upper - 1)
                return
            time.sleep(_PAUSE)

    return _each_epoch(folder, epochs, follow)


def _backlog(room: Room) -> tuple[Dataflow, int, int]:
    """Make an output of many rows in as many epochs as one stretch has."""
    epochs, rows = room.size(64, 8), room.size(20_000, 500)
    target = room.fresh("backlog")
    made = tg.Dataflow("backlog", store=f"sqlite:///{target}/store.db")
    columns = "id long, user string, amount double"
    source = tg.GeneratorSource(epochs * rows, columns=columns, max_records_per_epoch=rows)
    made.sink("orders", made.source("orders", source), tg.DeltaSink(str(target / "orders")))
    made.run("caught-up", engine=LocalEngine(threads=0))
    return made, epochs, epochs * rows


def _over(made: Dataflow, count: int, rows: int, epochs: int) -> float:
    """Return the rows a second that subscribers are given of a backlog, all together."""
    begun = time.perf_counter()
    following = [made.subscribe("orders", as_of=0, up_to=epochs) for _ in range(count)]
    found = sum(int(batch.num_rows) for one in following for batch in one)
    if found != count * rows:
        raise RuntimeError(f"{found} rows came, not {count * rows}")
    return found / (time.perf_counter() - begun)


def _plainly(made: Dataflow, rows: int, epochs: int) -> float:
    """Return the rows a second of a reader that reads the table as of each epoch, of what is new in it."""
    begun = time.perf_counter()
    for epoch in range(epochs):
        found = tg.read_arrow(made, "orders", as_of=epoch).num_rows
    if found != rows:
        raise RuntimeError(f"{found} rows were read, not {rows}")
    return rows / (time.perf_counter() - begun)


def measure(room: Room) -> list[Figure]:
    """Measure what follows live, then what follows a backlog."""
    figures, epochs, turns = [], room.size(30, 4), room.size(5, 1)
    for before in (_FEW_EPOCHS, room.size(100_000, 2_000)):
        room.say(f"a history of {before:,} epochs")
        folder = room.fresh("history")
        history(folder, before)
        reader, _ = _read(folder, epochs)
        for count in (1, _MANY):
            spent, taken = _subscribed(folder, count, epochs)
            figures.append(
                Figure(
                    f"an epoch for {count} subscriber{'s' * (count > 1)} after {before:,} epochs",
                    "ms of processor time",
                    spent,
                    reader,
                    "1 reader with read_arrow",
                    note=f"{taken:.0f} ms by the clock from the line to the last of them",
                )
            )
        room.clear(folder)
    made, epochs, rows = _backlog(room)
    room.say(f"a backlog of {rows:,} rows")
    samples = [
        (_over(made, 1, rows, epochs), _over(made, _MANY, rows, epochs), _plainly(made, rows, epochs))
        for _ in range(turns)
    ]
    one, many, plain = (tuple(each) for each in zip(*samples, strict=True))
    what = f"rows of a backlog of {epochs} epochs"
    return [
        *figures,
        Figure(f"{what}, 1 subscriber", "rows/s", one, plain, "read_arrow as of each epoch"),
        Figure(f"{what}, {_MANY} subscribers together", "rows/s", many, one, "1 subscriber"),
    ]
