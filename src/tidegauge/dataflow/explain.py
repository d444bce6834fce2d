"""Who holds a frontier back: the usual question about a dataflow that does not go on.

>>> print(Holder("shop/sink", "input", 0, 3, 2))
shop/sink: 2 batches at 3 waiting at input 0
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidegauge.dataflow.invocation import Operator
from tidegauge.dataflow.order import Time
from tidegauge.dataflow.progress import Subgraph

__all__ = ["Holder", "holders"]


@dataclass(frozen=True, slots=True)
class Holder:
    """Capabilities held on an output, or batches that wait at an input of an operator.

    kind: "output" or "input". note: what is known of why, or "".
    """

    path: str
    kind: str
    port: int
    time: Time
    count: int
    note: str = ""

    def __str__(self) -> str:
        one, many, how = (
            ("capability", "capabilities", "held on") if self.kind == "output" else ("batch", "batches", "waiting at")
        )
        what = one if self.count == 1 else many
        note = f" ({self.note})" if self.note else ""
        return f"{self.path}: {self.count} {what} at {self.time!r} {how} {self.kind} {self.port}{note}"


def holders(graph: Subgraph) -> Iterator[Holder]:
    """Yield the holders in a scope and in the scopes nested in it."""
    for location, time, count in graph.tracker.holders():
        number, kind, port = graph.tracker.graph.describe(location)
        child = graph.children[number]
        if isinstance(child, Operator):
            yield Holder(child.path, kind, port, time, count, _note(child))
    for _, child in graph.nodes():
        if isinstance(child, Subgraph):
            yield from holders(child)


def _note(operator: Operator) -> str:
    if operator.fault is not None:
        return f"it raised {type(operator.fault).__name__}"
    if operator.unpublished:
        return "changes of its capabilities wait for it to run: activate it"
    return ""
