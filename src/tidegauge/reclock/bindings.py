"""What the remap operator binds of one source, told binding by binding: the other input of the streaming operator.

Invariant: each binding is told once, in a message at or before its epoch, and only when it is durable. Bindings up to
`as_of` are told as one binding there; after that, each epoch's changes.

>>> from tidegauge.dataflow import INT, Worker
>>> from tidegauge.remap.binding import Proposal
>>> from tidegauge.remap.table import RemapTable
>>> timeline = Timeline({"orders": RemapTable("orders")})
>>> worker = Worker(monotonic=lambda: 0.0)
>>> with worker.dataflow("shop", order=INT) as scope:
...     remap, spans = scope.input("remap")
...     bound = bindings_of(spans, timeline, "orders").inspect(lambda _, batch: print(*batch))
>>> worker.settle()
<BLANKLINE>
>>> timeline.append(0, {"orders": Proposal(frontier=Frontier({"p0": 5}))})
>>> remap.send([Span(0, 1)]); worker.settle()
Binding(epoch=0, frontier=Frontier({'p0': 5}))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from tidegauge.dataflow import OperatorBuilder, OperatorContext, OperatorInput, OperatorOutput, Stream
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.operator import Span
from tidegauge.remap.timeline import Timeline

__all__ = ["Binding", "bindings_of"]


@dataclass(frozen=True, slots=True)
class Binding:
    """At `epoch` a source stands at `frontier`, in its own terms. Unchanged partitions may be left out."""

    epoch: int
    frontier: Any


def bindings_of(spans: Stream[Span], timeline: Timeline, source: str, *, as_of: int = 0) -> Stream[list[Binding]]:
    """Return what the remap operator binds of a source: all that is bound at `as_of`, then what each epoch moved.

    Raises EpochBelowSince and EpochNotMinted when the timeline has no bindings at `as_of`; at 0 nothing may be bound
    yet.
    """
    builder = OperatorBuilder(spans.scope, f"bindings of {source}")
    builder.input(spans)
    output: Stream[list[Binding]] = builder.output()
    table = timeline.tables[source]
    start = [] if as_of == timeline.upper == 0 else [Binding(as_of, table.frontier_at(as_of))]

    def moved(lower: int, upper: int) -> Iterable[Binding]:
        """What moved in the epochs `[lower, upper)`; a seal moves no position, and is told by itself."""
        for epoch, slices in groupby(table.slices(lower, upper), key=attrgetter("epoch")):
            yield Binding(epoch, Frontier({piece.partition: piece.upper for piece in slices}))
        if table.sealed_at is not None and lower <= table.sealed_at < upper:
            yield Binding(table.sealed_at, Frontier(sealed=True))

    def build(context: OperatorContext) -> Callable[[list[OperatorInput], list[OperatorOutput]], None]:
        first = context.capabilities[0]
        told = as_of + len(start)

        def step(inputs: list[OperatorInput], outputs: list[OperatorOutput]) -> None:
            nonlocal told
            if first.held:
                known = [*start, *moved(told, max(told, timeline.upper))]
                outputs[0].give(first, known)
                told = max(told, timeline.upper)
                first.drop()
            for capability, batch in inputs[0].drain():
                upper = max(span.upper for span in batch)
                if told < upper:
                    outputs[0].give(capability, list(moved(told, upper)))
                    told = upper

        return step

    builder.build(build)
    return output
