"""The streaming reclock operator: records that are pushed at us become batches of epochs.

Records and the frontier of their source come in the times of the source (FromTime), captured in its own scope;
bindings come in epochs (IntoTime). Out go the records, each batch stamped with its epoch, and the frontier in epochs.

Definition. `T(e)` is what is not beyond `R(e)`, and a record is sent at the first `e` whose `T(e)` has it. Bindings
are final below the frontier `u` of their stream, so the search is for an epoch below `u`. What finds none waits. With
`F` for the frontier of the source, the frontier of the output is the least of

    {u} and {e < u : something at or beyond F is in T(e)}.

Argument. A record that comes later is at or beyond `F`. If it is in some `T(e)` with `e < u`, it is sent at the first
such `e`, which is in the set. If not, or if it waits already, it is in no `T(e)` with `e < u`, and is sent at `u` or
beyond. So nothing is sent before the frontier. The frontier never goes back: as `F` advances, epochs only leave the
second set, and as `u` advances, only such enter it as are not below the old `u`. And it could not be further on: at
`u` any record may turn out to be bound, and at an epoch of the second set the source may still give one.

What follows from it: late bindings let records wait; with bindings ahead of the data records go straight through; a
partition that lags holds the frontier at its binding, however far the others are; when the source is at its end, `F`
is empty and the frontier is `u`; and a sealed binding takes all that waits and all that comes.

Beginning at `as_of`. Everything bound up to it counts as bound at it: `into` is advanced, as compaction does. So it
is one epoch *before* the first that an output lacks, and the source resumes at its `R`: records that come of it are
those that the outputs have, and are dropped downstream by their epoch.

The end of the bindings is no seal: records not bound before it are in no `T(e)`. They are forgotten at once, so that
they take no room from later ones, and the output ends when the source has passed the bound positions.

Memory is what waits, at most `room.limit` records, and the bindings that are not final or that the source has not
passed. The limit pushes back where the reader asks for room; one that does not is stopped by an error.

>>> from tidegauge.dataflow import INT, Worker
>>> from tidegauge.reclock.bindings import Binding
>>> from tidegauge.reclock.places import Pairs
>>> from tidegauge.reclock.pushed import PartitionedRecords
>>> from tidegauge.remap.frontier import Frontier
>>> from tidegauge.remap.frontier import GAUGE
>>> worker = Worker(monotonic=lambda: 0.0)
>>> with worker.dataflow("orders", order=GAUGE) as scope:
...     reader, stream = scope.input("reader")
...     queue = stream.capture()
>>> with worker.dataflow("shop", order=INT) as scope:
...     remap, bound = scope.input("remap")
...     records = PartitionedRecords("orders", Pairs())
...     reclocked = reclock_stream(bound, queue, records, Room(100)).inspect(print)
>>> reader.send([("tea", ("p0", 4)), ("salt", ("p0", 5))])
>>> remap.send([Binding(0, Frontier({"p0": 5}))]); remap.advance_to(1); worker.settle()
(0,) [('tea', ('p0', 4))]
>>> remap.send([Binding(1, Frontier({"p0": 9}))]); remap.advance_to(2); worker.settle()
(1,) [('salt', ('p0', 5))]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, Generic, Protocol

from tidegauge.dataflow import (
    INT,
    EventSource,
    Messages,
    OperatorBuilder,
    OperatorContext,
    OperatorInput,
    OperatorOutput,
    Order,
    Stream,
)
from tidegauge.dataflow.frontier import mutable_antichain
from tidegauge.dataflow.invocation import Operator
from tidegauge.errors.base import brief
from tidegauge.errors.dataflow import InvalidGraph
from tidegauge.errors.reclock import BoundTooLate, TooMuchUnbound
from tidegauge.reclock.bindings import Binding
from tidegauge.reclock.places import B
from tidegauge.reclock.room import Room

__all__ = ["WaitingRecords", "reclock_stream"]


class WaitingRecords(Protocol[B]):
    """The records of one source that wait for their epochs, and its bindings: what a kind of FromTime has to know.

    All bindings that it is given are final before it is asked for anything. In each activation it is called in this
    sequence: bind, release, take, advance, first; and forget once nothing more will be bound. `PartitionedRecords` is
    one for partitions with integer positions.
    """

    @property
    def source(self) -> str:
        """The name of the source."""
        ...

    @property
    def order(self) -> Order[Any]:
        """The order of the source's scope."""
        ...

    @property
    def waiting(self) -> int:
        """How many records wait."""
        ...

    def bind(self, epoch: int, frontier: Any, /) -> None:
        """Take in a binding; epochs never descend. Raises FrontierRegressed."""
        ...

    def take(self, batch: B, /) -> Sequence[tuple[int, B]]:
        """Return the pieces of a batch that have an epoch; keep the rest."""
        ...

    def release(self) -> Sequence[tuple[int, B]]:
        """Return what waited and has an epoch by the bindings since the last call."""
        ...

    def forget(self) -> int:
        """Forget what waits; return how many records that was."""
        ...

    def advance(self, frontier: Sequence[Any], /) -> None:
        """Take in the elements of the source's frontier, which never goes back; forget what they have passed."""
        ...

    def first(self) -> int | None:
        """Return the first epoch bound so far that records at or beyond the source's frontier may have."""
        ...


def reclock_stream(
    bindings: Stream[list[Binding]], arrivals: EventSource, records: WaitingRecords[B], room: Room, *, as_of: int = 0
) -> Stream[B]:
    """Build the operator, one on each worker, each with records, arrivals and room of its own.

    bindings: each in a message at or before its epoch, on every worker. arrivals: the captured stream of the source.
    room: released as records are sent on. as_of: the epoch that counts for all before it.

    Raises InvalidGraph when `arrivals` are of another order than `records`, or the scope's times are no epochs. The
    operator raises BoundTooLate, TooMuchUnbound, and what `records` raises; it then holds its frontier for good, and
    the room is closed.
    """
    name = f"reclock {records.source}"
    path = f"{bindings.scope.path}/{name}"
    if bindings.scope.order != INT:
        raise InvalidGraph(
            path=path,
            problem=f"the times of its scope, of the order {bindings.scope.order!r}, are no epochs",
            reason="where times do not all compare, a record can enter at several of them",
            advice="build it in a scope with the order INT",
        )
    if arrivals.order != records.order:
        raise InvalidGraph(
            path=path,
            problem=f"what was captured with the order {arrivals.order!r} cannot be read as {records.order!r}",
            reason="its frontier means something else there",
            advice="give the records the order of the scope that the source is captured in",
        )
    builder = OperatorBuilder(bindings.scope, name)
    builder.input(bindings, {})  # what is sent is sent by what the operator holds, from the first epoch on
    output: Stream[B] = builder.output()

    def make(context: OperatorContext, operator: Operator) -> Callable[[], None]:
        reclock = _Reclock(context, operator, arrivals, records, room, as_of)
        operator.remark = reclock.remark
        return reclock.step

    builder.install(make, notify=True)
    return output


class _Reclock(Generic[B]):
    """The operator's state. All of it can be lost: bindings are durable, and records are read again."""

    def __init__(
        self,
        context: OperatorContext,
        operator: Operator,
        arrivals: EventSource,
        records: WaitingRecords[B],
        room: Room,
        as_of: int,
    ) -> None:
        self.inlet: Final[OperatorInput] = operator.inputs[0]
        self.output: Final[OperatorOutput] = operator.outputs[0]
        self.held: Final = context.capabilities[0]
        self.arrivals: Final = arrivals
        self.records: Final = records
        self.room: Final = room
        self.as_of: Final = as_of
        self.pending: list[tuple[int, int, Any]] = []
        self.early: list[B] = []
        self.serial = 0
        self.upper: int | None = 0
        self.moved = True
        self.source: Final = mutable_antichain(records.order)
        self.source.update([(records.order.minimum, 1)])
        self.held.downgrade(as_of)
        arrivals.attach(context.sync_activator())

    def step(self) -> None:
        """Go on as far as it goes. When that fails, so does who waits for room, for it will never come."""
        try:
            self.go()
        except Exception as error:
            self.room.close(brief(error))
            raise

    def go(self) -> None:
        """Take in bindings and records; send records that have an epoch; go on as far as nothing can come behind."""
        self.hear_bindings()
        self.early += self.hear_source()
        if not self.held.held:
            self.forget()
            return
        upper = next(iter(self.inlet.frontier.elements()), None)
        if upper is None or upper > self.as_of:
            self.bind(upper)
            placed = list(self.records.release())
            for batch in self.early:
                placed += self.records.take(batch)
            self.early.clear()
            self.send(placed)
            if upper is None:
                self.room.release(self.records.forget())
            if self.moved or upper != self.upper:
                self.records.advance(self.source.elements())
                self.go_on(upper)
                self.moved, self.upper = False, upper
        if self.waiting() > self.room.limit:
            raise TooMuchUnbound(source=self.records.source, waiting=self.waiting(), limit=self.room.limit)

    def hear_bindings(self) -> None:
        """Keep bindings until they are final. Those up to `as_of` are joined at once: there may be very many."""
        for capability, batch in self.inlet.drain():
            for binding in batch:
                if binding.epoch < capability.time:
                    raise BoundTooLate(epoch=binding.epoch, time=capability.time)
                if binding.epoch <= self.as_of:
                    self.records.bind(self.as_of, binding.frontier)
                else:
                    self.serial += 1
                    heappush(self.pending, (binding.epoch, self.serial, binding.frontier))

    def hear_source(self) -> list[B]:
        """Return the batches that have come, and take in how far the source is.

        All progress is taken in at once, after the batches: what comes with a frontier is not behind the one before.
        """
        batches: list[B] = []
        moved: list[tuple[Any, int]] = []
        for event in self.arrivals.drain():
            if isinstance(event, Messages):
                batches.append(event.batch)
            else:
                moved += event.changes
        self.moved = bool(self.source.update(moved)) or self.moved
        return batches

    def bind(self, upper: int | None) -> None:
        """Bind the final epochs."""
        while self.pending and (upper is None or self.pending[0][0] < upper):
            epoch, _, frontier = heappop(self.pending)
            self.records.bind(epoch, frontier)

    def send(self, placed: list[tuple[int, B]]) -> None:
        """Send pieces, in the order of their epochs, and give back their room."""
        placed.sort(key=itemgetter(0))
        for epoch, pieces in groupby(placed, key=itemgetter(0)):
            permit = self.held.delayed(epoch)
            for _, piece in pieces:
                self.output.give(permit, piece)
            permit.drop()
        self.room.release(sum(len(piece) for _, piece in placed))

    def go_on(self, upper: int | None) -> None:
        """Go on to the first epoch at which something may still be sent."""
        epochs = [epoch for epoch in (self.records.first(), upper) if epoch is not None]
        if epochs:
            self.held.downgrade(min(epochs))
        else:
            self.held.drop()

    def forget(self) -> None:
        """Forget what comes after the end of the bindings."""
        self.room.release(sum(map(len, self.early)))
        self.early.clear()

    def waiting(self) -> int:
        """Return how many records wait."""
        return self.records.waiting + sum(map(len, self.early))

    def remark(self) -> str:
        """Say what the frontier waits for."""
        waiting = f"{self.waiting()} records of {self.records.source!r} wait for a binding; " * bool(self.waiting())
        return f"{waiting}{self.arrivals.waits_for()}"
