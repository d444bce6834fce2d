"""Records through map, filter and a count by key in one worker, beside bytewax: the same readings, the same counts.

Both sides have their input in memory and are timed from the start of the dataflow to its end. Each is written in
several ways; a short run finds each side's fastest, and for bytewax its best size of batches too, ours being batches
of 1,000. Then they take turns.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.figures import Figure, Goal
from benchmarks.peers.environments import BYTEWAX, Answering, Missing, answering, bytewax_python
from benchmarks.peers.readings import DATUM, HIGH, Reading, is_high, port_of, readings, related
from benchmarks.room import Room
from tidegauge.dataflow import OperatorContext, OperatorInput, OperatorOutput, Stream, Worker, records

__all__ = ["counted", "keep", "keep_high", "list_batches", "measure", "relate", "table_batches"]

_BATCH: Final = 1_000
_PEER: Final = f"bytewax {BYTEWAX}"
_PEER_FLOWS: Final = ("step_by_step", "fused", "fused_with_keys", "counted_in_groups", "counted_by_batch")
_PEER_BATCHES: Final = (1, 100, 1_000)

Flow = Callable[[Stream[Any]], Stream[dict[str, int]]]


def _by_records(stream: Stream[list[Reading]]) -> Stream[dict[str, int]]:
    """Count with functions on single records."""
    high = stream.map(records.map(related).filter(is_high))
    return high.aggregate(dict, records.fold_by(port_of, int, lambda count, _reading: count + 1))


def _by_counter(stream: Stream[list[Reading]]) -> Stream[dict[str, int]]:
    """Count the keys of a whole batch in one call of Python's."""

    ports = stream.map(records.map(related).filter(is_high).map(port_of))
    return ports.aggregate(_nothing_yet, _add).map(dict)


def _by_comprehension(stream: Stream[list[Reading]]) -> Stream[dict[str, int]]:
    """The same, with the whole of a batch in a loop of the user's own."""
    ports = stream.map(lambda batch: [port_of(reading) for reading in map(related, batch) if is_high(reading)])
    return ports.aggregate(_nothing_yet, _add).map(dict)


def _nothing_yet() -> Counter[str]:
    return Counter()


def _add(counts: Counter[str], ports: list[str]) -> Counter[str]:
    counts.update(ports)
    return counts


_DATUM: Final = pa.scalar(DATUM, pa.int64())
_HIGH: Final = pa.scalar(HIGH, pa.int64())


def relate(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the readings above datum."""
    return batch.set_column(1, "centimetres", pc.add(batch.column(1), _DATUM))


def keep_high(batch: pa.RecordBatch) -> pa.Array:
    """Return the ports of the readings that count."""
    return pc.array_filter(batch.column(0), pc.greater_equal(batch.column(1), _HIGH))


def counted(ports: Sequence[pa.Array]) -> dict[str, int]:
    """Return how often each port is there."""
    found = pc.value_counts(pa.chunked_array(ports))
    return dict(zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True))


def keep(kept: list[pa.Array], ports: pa.Array) -> list[pa.Array]:
    """Take one more piece."""
    kept.append(ports)
    return kept


def _by_columns(stream: Stream[pa.RecordBatch]) -> Stream[dict[str, int]]:
    """Count with Arrow's functions on whole batches."""
    return stream.map(relate).map(keep_high).aggregate(list, keep).map(counted)


def _by_joined_columns(stream: Stream[pa.RecordBatch]) -> Stream[dict[str, int]]:
    """The same on larger batches: what waits at one time is joined, as each call of Arrow's takes microseconds."""

    def build(context: OperatorContext) -> Callable[[OperatorInput, OperatorOutput], None]:
        context.capabilities[0].drop()

        def step(inlet: OperatorInput, output: OperatorOutput) -> None:
            for _, waiting in groupby(inlet.drain(), key=lambda message: message[0].stamp):
                together = list(waiting)
                output.give(together[-1][0], pa.concat_batches([batch for _, batch in together]))

        return step

    return _by_columns(stream.unary("join", build, notify=False))


def table_batches(known: Sequence[Reading], size: int) -> list[pa.RecordBatch]:
    """Return readings as Arrow batches."""
    columns = [list(map(itemgetter(part), known)) for part in (0, 1)]
    table = pa.table({"port": pa.array(columns[0], pa.string()), "centimetres": pa.array(columns[1], pa.int64())})
    return list(table.combine_chunks().to_batches(max_chunksize=size))


def list_batches(known: Sequence[Reading], size: int) -> list[list[Reading]]:
    """Return readings as lists."""
    return [list(known[at : at + size]) for at in range(0, len(known), size)]


def _run(flow: Flow, batches: Sequence[Any]) -> tuple[float, dict[str, int]]:
    """Return the seconds that a flow takes, and what it counted."""
    begun = time.perf_counter()
    counts: dict[str, int] = {}
    worker = Worker(monotonic=time.monotonic)
    with worker.dataflow("count") as scope:
        flow(scope.to_stream(batches)).inspect(lambda _stamp, found: counts.update(found))
    while worker.step():
        pass
    return time.perf_counter() - begun, counts


class _Contest:
    """The sides over the same readings. Every run's counts are compared with those of Python's own counter."""

    def __init__(self, count: int, tried: int, peer: Answering | None) -> None:
        known = readings(count)
        self.batches: Final = {"lists": list_batches(known, _BATCH), "Arrow": table_batches(known, _BATCH)}
        self._counts: Final = {
            n: Counter(map(port_of, filter(is_high, map(related, known[:n])))) for n in (count, tried)
        }
        self._count, self._tried, self._peer = count, tried, peer

    def ours(self, flow: Flow, kind: str = "lists", *, again: int = 1) -> float:
        """Return our readings a second, over `again` runs."""
        taken = 0.0
        for _ in range(again):
            seconds, counts = _run(flow, self.batches[kind])
            self._agree(counts, self._count)
            taken += seconds
        return again * self._count / taken

    def peer(self, flow: str, size: int, *, quickly: bool = False) -> float:
        """Return the peer's readings a second; over fewer of them, to find its fastest."""
        count = self._tried if quickly else self._count
        if self._peer is None:
            raise Missing("there is no peer")
        answer = self._peer.ask(flow, size, count)
        self._agree(answer["counts"], count)
        return count / float(answer["seconds"])

    def fastest(self, flows: Sequence[str]) -> tuple[str, int]:
        """Return the peer's fastest way and size of batches."""
        ways = [(flow, size) for flow in flows for size in _PEER_BATCHES]
        return max(ways, key=lambda way: max(self.peer(*way, quickly=True) for _ in range(2)))

    def _agree(self, counts: dict[str, int], readings: int) -> None:
        if counts != self._counts[readings]:
            raise AssertionError(f"of {readings} readings a side counted {sum(counts.values())}, or others")


def measure(room: Room) -> list[Figure]:
    """Measure lists, written record by record and in each side's fastest way, and Arrow batches."""
    count, tried, rounds = room.size((1_000_000, 50_000, 7), (20_000, 5_000, 2))
    with ExitStack() as resources:
        peer: Answering | None = None
        try:
            peer = resources.enter_context(answering(bytewax_python(), "benchmarks.peers.with_bytewax", count))
            contest = _Contest(count, tried, peer)
            plain, best = contest.fastest(_PEER_FLOWS[:1]), contest.fastest(_PEER_FLOWS)
            room.say(f"{_PEER} is fastest with {best[0]} and batches of {best[1]:,}")
        except Missing as missing:
            room.say(f"without {_PEER}: {missing}")
            contest, peer = _Contest(count, tried, None), None
        mine = max(
            (_by_records, _by_counter, _by_comprehension), key=lambda flow: max(contest.ours(flow) for _ in range(2))
        )
        ours: dict[str, list[float]] = {"plain": [], "best": [], "Arrow": [], "joined": []}
        theirs: dict[str, list[float]] = {"plain": [], "best": []}
        for _ in range(rounds):
            ours["plain"].append(contest.ours(_by_records))
            if peer is not None:
                theirs["plain"].append(contest.peer(*plain))
            ours["best"].append(contest.ours(mine))
            if peer is not None:
                theirs["best"].append(contest.peer(*best))
            ours["Arrow"].append(contest.ours(_by_columns, "Arrow", again=5))
            ours["joined"].append(contest.ours(_by_joined_columns, "Arrow", again=5))
    task = "readings through map, filter and a count by key"
    shown = [
        ("plain", "plain", "lists, step by step", 1.0),
        ("best", "best", "lists, each side's fastest way", 1.0),
        ("Arrow", "best", "Arrow batches, the peer's fastest way", 10.0),
        ("joined", "best", "Arrow batches joined as they wait, the peer's fastest way", 10.0),
    ]
    return [
        Figure(
            f"{task}, {what}",
            "readings/s",
            ours=tuple(ours[side]),
            peer=tuple(theirs[other]),
            peer_name=_PEER if peer is not None else "",
            goal=Goal("ratio", ">=", times) if peer is not None else None,
            details={"peer": list(plain if other == "plain" else best), "ours": mine.__name__} if peer else {},
        )
        for side, other, what, times in shown
    ]
