"""Drivers of one flow, one after another, each killed at an instant of its own but for the last.

Reads the arguments as JSON: `{"root": ..., "servers": ..., "topic": ..., "strikes": [[point, nth], ...]}`. For each
life it writes `LINES` more lines and forks a child, which kills itself with SIGKILL at the nth time it comes to the
point; the last one lets the flow be caught up.
Besides the points of `Env` there are `before transaction` and `after transaction`: everything was sent, the last
record included, and is not committed; and it is committed, and nobody has heard of it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.killed import killing, live_and_end
from tests.warm import load

import tidegauge as tg
from tidegauge.sinks.kafka.writer import TransactionalProducer

LINES = 20


def make(root: Path, servers: str, topic: str) -> tg.Dataflow:
    """One stream into a topic and into a table."""
    flow = tg.Dataflow("kill", store=f"sqlite:///{root}/flow.db", tick=0.01)
    rows = flow.source("rows", tg.FileSource(str(root / "*.jsonl"), format=tg.Json("k long"), max_bytes_per_epoch=90))
    sink = tg.KafkaSink(servers, topic=topic, key="k", partitions=2, staging=str(root / "staging"))
    flow.sink("topic", rows, sink)
    flow.sink("table", rows, tg.ParquetSink(str(root / "table")))
    return flow


class Handle:
    """A producer whose commit is an instant to be killed at."""

    def __init__(self, handle: Any, strike: Callable[[str], None]) -> None:
        self._handle = handle
        self._strike = strike

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def __len__(self) -> int:
        return len(self._handle)

    def commit_transaction(self, seconds: float) -> None:
        self._strike("before transaction")
        self._handle.commit_transaction(seconds)
        self._strike("after transaction")


def live(root: Path, servers: str, topic: str, point: str, nth: int) -> None:
    """Run until caught up, or until the point is reached for the nth time."""
    strike = killing(point, nth)
    real = TransactionalProducer._made
    setattr(TransactionalProducer, "_made", lambda writer: Handle(real(writer), strike))  # noqa: B010
    make(root, servers, topic).run(until="caught-up", engine=tg.LocalEngine(threads=2), env=tg.Env(point=strike))


def main() -> None:
    """Live the lives, and print how each ended."""
    load()
    command = json.loads(sys.argv[1])
    where = Path(command["root"]), command["servers"], command["topic"]
    for number, (point, nth) in enumerate([*command["strikes"], ["", 0]]):
        with open(where[0] / "in.jsonl", "a") as file:
            file.writelines(f'{{"k": {number * LINES + line}}}\n' for line in range(LINES))
        child = os.fork()
        if child == 0:
            live_and_end(partial(live, *where, point, nth))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
