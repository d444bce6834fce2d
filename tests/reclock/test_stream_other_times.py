"""The operator knows nothing of partitions: a source with a time of another kind brings its own records."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence

from tidegauge.dataflow import INT, Messages, Worker
from tidegauge.reclock.bindings import Binding
from tidegauge.reclock.room import Room
from tidegauge.reclock.stream import WaitingRecords, reclock_stream


class LogRecords:
    """Records `(lsn, text)` of a write-ahead log; a binding is the next LSN."""

    source, order = "wal", INT

    def __init__(self) -> None:
        self.bounds: list[tuple[int, int]] = []
        self.kept: list[tuple[int, str]] = []
        self.low: int | None = 0

    @property
    def waiting(self) -> int:
        return len(self.kept)

    def bind(self, epoch: int, frontier: int, /) -> None:
        self.bounds.append((frontier, epoch))

    def take(self, batch: list[tuple[int, str]], /) -> Sequence[tuple[int, list[tuple[int, str]]]]:
        for record in batch:
            insort(self.kept, record)
        return self.release()

    def release(self) -> Sequence[tuple[int, list[tuple[int, str]]]]:
        placed = []
        while self.kept and self.bounds and self.kept[0][0] < self.bounds[-1][0]:
            record = self.kept.pop(0)
            placed.append((self.bounds[bisect_right(self.bounds, (record[0], 1 << 62))][1], [record]))
        return placed

    def forget(self) -> int:
        forgotten = len(self.kept)
        self.kept.clear()
        return forgotten

    def advance(self, frontier: Sequence[int], /) -> None:
        self.low = frontier[0] if frontier else None

    def first(self) -> int | None:
        return next((epoch for bound, epoch in self.bounds if self.low is not None and self.low < bound), None)


def test_a_log_is_reclocked_by_the_same_operator() -> None:
    worker = Worker(lambda: 0.0, validate=True)
    with worker.dataflow("wal", order=INT) as scope:
        reader, stream = scope.input("reader")
        arrivals = stream.capture()
    with worker.dataflow("flow", order=INT) as scope:
        remap, bound = scope.input("remap")
        records: WaitingRecords[list[tuple[int, str]]] = LogRecords()
        output = reclock_stream(bound, arrivals, records, Room(10))
        heard, probe = output.capture(), output.probe()
    reader.send([(110, "update"), (100, "insert"), (130, "delete")])
    for epoch, lsn in enumerate([101, 120]):
        remap.send([Binding(epoch, lsn)])
    remap.advance_to(2)
    worker.settle()
    assert probe.frontier().elements() == (0,)
    reader.advance_to(119)
    worker.settle()
    assert probe.frontier().elements() == (1,)
    reader.advance_to(120)
    worker.settle()
    assert probe.frontier().elements() == (2,)
    found = [(event.stamp[0], event.batch) for event in heard.drain() if isinstance(event, Messages)]
    assert found == [(0, [(100, "insert")]), (1, [(110, "update")])]
