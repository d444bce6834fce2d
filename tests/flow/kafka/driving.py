"""Drivers of a flow that reads Kafka, forked from a process that has everything imported; and who starts them.

A driver (`live`) runs the flow that its command describes; it may kill itself with SIGKILL at the nth time it comes
to a point. Before it reads a range it looks into the store whether the range is bound there (law 2), and before it
acknowledges a frontier it looks into the store and the tables whether all of it is published and in every output
(law 4). It answers with how it ended: the code of an error of Tidegauge's, "" for well.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
from tests.killed import killing, live_and_end

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError
from tidegauge.flow.belonging import table_of
from tidegauge.flow.board import Board
from tidegauge.looking.inspect import holds
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import Store
from tidegauge.sources import KafkaSplit
from tidegauge.sources.protocol import OnBadRecord

WITHIN = 60.0
"""Seconds for a life, far more than any takes; then it says where its threads are."""
LATE = ("pandas", "pyarrow.pandas_compat", "tidegauge.flow.runner")
"""What is imported when it is needed: here before a driver is forked, so that not every driver does it."""
BROKEN = {71: "law 2: what is not bound is read", 72: "law 4: what some output lacks is acknowledged"}
"""How a driver ends that is about to break a law."""


def tagged(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A function that keeps the position of each row: the number is negated."""
    names = batch.schema.names
    return batch.set_column(names.index("n"), "n", pc.negate(batch.column("n")))


@dataclass(frozen=True, kw_only=True)
class Shop:
    """A flow of one topic into tables: `outputs` are some of `parquet`, `delta`, `tagged`."""

    root: str
    name: str
    servers: str
    topic: str
    outputs: tuple[str, ...]
    start: Literal["earliest", "latest"] = "earliest"
    gap: bool = False
    limit: int = 10_000_000
    split: int = 1_000_000

    def flow(self) -> tg.Dataflow:
        """Describe it."""
        flow = tg.Dataflow(self.name, store=f"sqlite:///{self.root}/flow.db", tick=0.02)
        source = tg.KafkaSource(
            self.servers,
            topic=self.topic,
            format=tg.Json("n long"),
            metadata=True,
            start=self.start,
            max_records_per_epoch=self.limit,
            split_records=self.split,
            on_data_loss="gap" if self.gap else "stop",
        )
        orders = flow.source("orders", source)
        for output in self.outputs:
            sink = tg.ParquetSink if output == "parquet" else tg.DeltaSink
            stream = orders.map_batches(tagged) if output == "tagged" else orders
            flow.sink(output, stream, sink(f"{self.root}/{output}"))
        return flow


def numbers(output: str, table: pa.Table) -> pa.ChunkedArray:
    """The numbers of the records in a table of an output, as they were produced."""
    return pc.negate(table.column("n")) if output == "tagged" else table.column("n")


def live(shop: Shop, *, point: str, nth: int) -> None:
    """Run until caught up, and be killed when the point is reached for the nth time."""
    flow, env = shop.flow(), tg.Env()
    read, acknowledge = tg.KafkaSource.read, tg.KafkaSource.acknowledge

    @cache
    def store() -> Store:
        return Store.open(flow.store, env=env)

    def breaks(law: int, what: str) -> NoReturn:
        print(what, file=sys.stderr, flush=True)
        os._exit(law)

    def bound(source: tg.KafkaSource, split: KafkaSplit, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:
        there = store().load(flow.name).sources["orders"].table.frontier
        if any(piece.upper > there[piece.partition] for piece in split.ranges):
            breaks(71, f"{split} is read, {there} is bound")
        yield from read(source, split, on_bad_record)

    def held(source: tg.KafkaSource, frontier: Frontier) -> None:
        loaded = store().load(flow.name)
        uppers = [table_of(flow.spec, output, loaded).upper for output in flow.outputs]
        least = min(loaded.flow.published, *(holds(loaded, "orders", upper) for upper in uppers))
        there = loaded.sources["orders"].table.inverse(least)
        if not frontier.less_equal(there):
            breaks(72, f"{frontier} is acknowledged, {there} is in every output")
        acknowledge(source, frontier)

    def told(board: Board) -> None:
        """Tell the log what goes wrong, once each time."""
        errors = (
            [source.error for source in board.sources.values()],
            [output.error for output in board.outputs.values()],
        )
        for text in {str(error) for found in errors for error in found if error is not None} - said:
            said.add(text)
            print(text, file=sys.stderr, flush=True)

    said: set[str] = set()
    setattr(tg.KafkaSource, "read", bound)  # noqa: B010
    setattr(tg.KafkaSource, "acknowledge", held)  # noqa: B010
    faulthandler.register(signal.SIGUSR1)
    flow.run("caught-up", engine=tg.LocalEngine(threads=2), env=tg.Env(point=killing(point, nth)), watch=told)


def _saying(said: int, life: Callable[[], None]) -> None:
    """Live, and write the code of an error of Tidegauge's to a pipe before it is raised."""
    try:
        life()
    except TidegaugeError as error:
        os.write(said, error.code.encode())
        raise


def serve() -> None:
    """Answer commands until the input ends, each with a driver's number and, once it has ended, with how."""
    for name in LATE:
        importlib.import_module(name)
    for name in dir(tg):
        getattr(tg, name)  # loads it
    for line in sys.stdin:
        command = json.loads(line)
        shop = Shop(**{**command.pop("shop"), "outputs": tuple(command.pop("outputs"))})
        heard, said = os.pipe()
        pid = os.fork()
        if pid == 0:
            live_and_end(partial(_saying, said, partial(live, shop, **command)))
        os.close(said)
        print(pid, flush=True)
        end = os.pidfd_open(pid)
        if end not in select.select([end, sys.stdin], [], [])[0]:  # nobody is there any more who would hear of it
            os.kill(pid, signal.SIGKILL)
        os.close(end)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with os.fdopen(heard) as answer:
            print(json.dumps({"status": status, "code": answer.read()}), flush=True)


@dataclass(frozen=True)
class End:
    """How a driver ended: killed, or with the code of an error, "" for none."""

    killed: bool
    code: str


class Drivers:
    """Starts drivers, one after the other."""

    def __init__(self, log: Path) -> None:
        self.log = log
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.flow.kafka.driving"],
                cwd=Path(__file__).parents[3],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,  # so that `select` sees every answer that was not read
            )

    def __enter__(self) -> Drivers:
        return self

    def __exit__(self, *_raised: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)

    def start(self, shop: Shop, *, point: str = "", nth: int = 0) -> int:
        """Begin a life; return the number of its process."""
        assert self.process.stdin is not None
        fields = asdict(shop)
        command = {"outputs": fields.pop("outputs"), "shop": fields, "point": point, "nth": nth}
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        return int(self._answer())

    def ended(self) -> End:
        """Wait for the end of a life, which is not any other than those of `End`."""
        end: dict[str, Any] = json.loads(self._answer())
        assert end["status"] not in BROKEN, f"{BROKEN[end['status']]}: {self.log.read_text()[-1000:]}"
        assert end["status"] in (0, 1, -signal.SIGKILL), self.log.read_text()
        return End(end["status"] < 0, end["code"])

    def live(self, shop: Shop, *, point: str = "", nth: int = 0) -> End:
        """Live until caught up, or killed."""
        pid = self.start(shop, point=point, nth=nth)
        if not self.wait(WITHIN):
            os.kill(pid, signal.SIGUSR1)
            self.wait(1)  # until it has said where it is
            self.kill(pid)
            raise AssertionError(f"no end in {WITHIN:g} seconds: {self.log.read_text()[-8000:]}")
        return self.ended()

    def wait(self, seconds: float) -> bool:
        """Wait for so long, or until the driver has ended; return whether it has."""
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], seconds)[0])

    def kill(self, pid: int) -> End:
        """Kill a driver, if it has not ended by now, and return how it ended."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return self.ended()

    def _answer(self) -> bytes:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        return line


if __name__ == "__main__":
    serve()
