"""A dataflow of bytewax that tests run in processes of its own: partitions of numbers, totals by key, a `LogSink`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition

from tidegauge.bytewax import LogSink

__all__ = ["COLUMNS", "Counting", "dataflow"]

COLUMNS = "part string, n long, total long"


@dataclass
class _Part(StatefulSourcePartition[Any, int]):
    name: str
    at: int
    end: int

    def next_batch(self) -> list[Any]:
        if self.at == self.end:
            raise StopIteration
        taken = range(self.at, min(self.end, self.at + 1 + self.at % 7))
        self.at = taken.stop
        return [(self.name, n) for n in taken]

    def snapshot(self) -> int:
        return self.at


@dataclass
class Counting(FixedPartitionedSource[Any, int]):
    """The numbers of each partition up to an end, a few at a time."""

    parts: int
    end: int

    def list_parts(self) -> list[str]:
        return [f"p{number}" for number in range(self.parts)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> _Part:
        return _Part(for_part, resume_state or 0, self.end)


def dataflow() -> Dataflow:
    """Return it, as the environment says: where its log is, how many numbers and partitions."""
    told = os.environ
    theirs = Dataflow("theirs")
    numbers = op.input("in", theirs, Counting(3, int(told["NUMBERS"])))
    totals = op.stateful_map("total", numbers, lambda total, n: ((total or 0) + n, (n, (total or 0) + n)))
    rows = op.map("row", totals, lambda one: (f"{one[0]}-{one[1][0] % 5}", _row(one[0], *one[1])))
    op.output("out", rows, LogSink(Path(told["LOG"]), columns=COLUMNS, parts=int(told.get("PARTS", "2"))))
    return theirs


def _row(part: str, n: int, total: int) -> dict[str, Any]:
    return {"part": part, "n": n, "total": total}
