"""One, two and four workers in threads over the same readings, which they exchange by key.

Alone, a worker keeps its batches whole, so it has less to do. Each form is measured in two ways: each batch is
counted first and the counts are exchanged, as one would write it; and every reading that counts is exchanged.

Take care: threads of Python share one interpreter. What they do in Arrow's functions runs beside each other, what
they do to lists does not: there the best that several workers can do is to be no slower.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.core.counting import counted, keep, keep_high, list_batches, relate, table_batches
from benchmarks.figures import Figure, Goal
from benchmarks.peers.readings import Reading, is_high, port_of, readings, related
from benchmarks.room import Room
from tidegauge.dataflow import Stream, Worker, arrow, execute, records

__all__ = ["measure"]

_NOISE: Final = 0.9
"""What is slower by less than a tenth is no slower."""

Flow = Callable[[Stream[Any]], Stream[dict[str, int]]]
Pair = tuple[str, int]


def _lists_counted(stream: Stream[list[Reading]]) -> Stream[dict[str, int]]:
    ports = records.map(related).filter(is_high).map(port_of)

    def counts(batch: list[Reading]) -> list[Pair]:
        return list(Counter(ports(batch)).items())

    def add(total: dict[str, int], pairs: list[Pair]) -> dict[str, int]:
        for port, count in pairs:
            total[port] = total.get(port, 0) + count
        return total

    return stream.map(counts).exchange(records.route(lambda pair: pair[0])).aggregate(dict, add)


def _lists_whole(stream: Stream[list[Reading]]) -> Stream[dict[str, int]]:
    high = stream.map(records.map(related).filter(is_high)).exchange(records.route(port_of))
    return high.aggregate(dict, records.fold_by(port_of, int, lambda count, _reading: count + 1))


def _arrow_counted(stream: Stream[pa.RecordBatch]) -> Stream[dict[str, int]]:
    def counts(ports: pa.Array) -> pa.RecordBatch:
        found = pc.value_counts(ports)
        return pa.RecordBatch.from_arrays([found.field(0), found.field(1)], names=["port", "count"])

    def total(batches: list[pa.RecordBatch]) -> dict[str, int]:
        table = pa.Table.from_batches(batches).group_by("port", use_threads=False).aggregate([("count", "sum")])
        return dict(zip(table["port"].to_pylist(), table["count_sum"].to_pylist(), strict=True))

    by_batch = stream.map(relate).map(keep_high).map(counts)
    return by_batch.exchange(arrow.route("port")).aggregate(list, keep).map(total)


def _arrow_whole(stream: Stream[pa.RecordBatch]) -> Stream[dict[str, int]]:
    def high(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([keep_high(batch)], names=["port"])

    def total(batches: list[pa.RecordBatch]) -> dict[str, int]:
        return counted([batch.column(0) for batch in batches])

    return stream.map(relate).map(high).exchange(arrow.route("port")).aggregate(list, keep).map(total)


def _rate(flow: Flow, batches: Sequence[Any], peers: int) -> tuple[float, dict[str, int]]:
    """Return how many records a second go through `peers` workers, each of which reads its share, and the counts."""
    counts: dict[str, int] = {}

    def build(worker: Worker) -> None:
        with worker.dataflow("count") as scope:
            share = scope.to_stream(batches[worker.index :: worker.peers])
            flow(share).inspect(lambda _stamp, found: counts.update(found))

    begun = time.perf_counter()
    execute(build, peers=peers)
    return sum(map(len, batches)) / (time.perf_counter() - begun), counts


def measure(room: Room) -> list[Figure]:
    """Measure lists and Arrow batches in both ways: two and four workers beside one, in turns."""
    known = readings(room.size(1_000_000, 50_000))
    lists, tables = list_batches(known, 10_000), table_batches(known, 50_000) * room.size(20, 10)
    cases: list[tuple[str, str, Flow, Sequence[Any]]] = [
        ("lists of 10,000", "counts", _lists_counted, lists),
        ("lists of 10,000", "every reading", _lists_whole, lists),
        ("Arrow batches of 50,000", "counts", _arrow_counted, tables),
        ("Arrow batches of 50,000", "every reading", _arrow_whole, tables),
    ]
    figures = []
    for what, exchanged, flow, batches in cases:
        rates: dict[int, list[float]] = {1: [], 2: [], 4: []}
        told: dict[str, int] = {}
        for _ in range(5):
            for peers, found in rates.items():
                rate, counts = _rate(flow, batches, peers)
                if counts != (told := told or counts):
                    raise AssertionError(f"{peers} workers counted otherwise than one")
                found.append(rate)
        figures += [
            Figure(
                f"{peers} workers, {what}, exchanging {exchanged}",
                "readings/s",
                ours=tuple(rates[peers]),
                peer=tuple(rates[1]),
                peer_name="1 worker",
                goal=Goal("ratio", ">=", _NOISE) if peers == 4 else None,
            )
            for peers in (2, 4)
        ]
    return figures
