"""The counting task in bytewax, in its own environment: `python -m benchmarks.peers.with_bytewax READINGS`.

The readings are made once, as a list in memory. Then each line of the input, `FLOW BATCH READINGS`, runs one of the
`FLOWS` over so many of them in batches of so many, and answers with a line of JSON: the seconds from starting the
dataflow to its end, and the counts.

The flows are one task written in several ways, from one step for each verb to as much as possible in Python's own
loops: nobody knows beforehand which is the fastest.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.testing import TestingSink, run_main

from benchmarks.peers.readings import Reading, is_high, port_of, readings, related

__all__ = ["FLOWS"]


class _Part(StatelessSourcePartition[Any]):
    def __init__(self, batches: Sequence[list[Reading]]) -> None:
        self._batches = iter(batches)

    def next_batch(self) -> list[Reading]:
        return next(self._batches)


class _Batches(DynamicSource[Any]):
    """Batches that are there already: it costs no more than to hand them over."""

    def __init__(self, batches: Sequence[list[Reading]]) -> None:
        self._batches = batches

    def build(self, _step_id: str, _worker: int, _workers: int) -> _Part:
        return _Part(self._batches)


class _Count(op.StatefulBatchLogic[Any, Any, Any]):
    """The number of values of one key."""

    def __init__(self) -> None:
        self._count = 0

    def on_batch(self, values: list[Any]) -> tuple[list[int], bool]:
        self._count += len(values)
        return [], False

    def on_eof(self) -> tuple[list[int], bool]:
        return [self._count], True

    def snapshot(self) -> int:
        return self._count


def _step_by_step(stream: Any) -> Any:
    high = op.filter("high", op.map("related", stream, related), is_high)
    return op.count_final("count", high, port_of)


def _fused(stream: Any) -> Any:
    high = op.flat_map_batch("high", stream, lambda batch: [r for r in map(related, batch) if is_high(r)])
    return op.count_final("count", high, port_of)


def _fused_with_keys(stream: Any) -> Any:
    ones = op.flat_map_batch(
        "ones", stream, lambda batch: [(port_of(r), 1) for r in map(related, batch) if is_high(r)]
    )
    return op.reduce_final("count", ones, lambda a, b: a + b)


def _counted_in_groups(stream: Any) -> Any:
    ones = op.flat_map_batch(
        "ones", stream, lambda batch: [(port_of(r), 1) for r in map(related, batch) if is_high(r)]
    )
    return op.stateful_batch("count", ones, lambda _state: _Count())


def _counted_by_batch(stream: Any) -> Any:
    def counted(batch: list[Reading]) -> list[tuple[str, int]]:
        return list(Counter([port_of(r) for r in map(related, batch) if is_high(r)]).items())

    return op.reduce_final("count", op.flat_map_batch("counted", stream, counted), lambda a, b: a + b)


FLOWS: dict[str, Callable[[Any], Any]] = {
    "step_by_step": _step_by_step,
    "fused": _fused,
    "fused_with_keys": _fused_with_keys,
    "counted_in_groups": _counted_in_groups,
    "counted_by_batch": _counted_by_batch,
}
"""The task, written in several ways."""


def _run(build: Callable[[Any], Any], batches: Sequence[list[Reading]]) -> dict[str, Any]:
    counts: list[tuple[str, int]] = []
    flow = Dataflow("count")
    op.output("counts", build(op.input("readings", flow, _Batches(batches))), TestingSink(counts))
    begun = time.perf_counter()
    run_main(flow)  # type: ignore[no-untyped-call]
    return {"seconds": time.perf_counter() - begun, "counts": dict(counts)}


def main() -> None:
    """Answer each line of the input."""
    known = readings(int(sys.argv[1]))
    for line in sys.stdin:
        flow, batch, count = line.split()
        used, size = known[: int(count)], int(batch)
        batches = [used[at : at + size] for at in range(0, len(used), size)]
        print(json.dumps(_run(FLOWS[flow], batches)), flush=True)


if __name__ == "__main__":
    main()
