"""Outputs that are kept where they are, for good: those of an operator that raised.

Such an operator publishes nothing more. What it holds and has not taken keeps its outputs, but it may hold nothing at
all: then they would go on with its inputs, and end. So each output gets a pointstamp that nobody takes away.

That is no part of the progress protocol, for it is derived from a frontier and not from a capability. Each worker
does it for itself, before anything else is applied, at the times that the output had where the operator failed; where
a worker knows already that one of them is over, at the frontier there.

Invariant: no frontier goes back by it.

>>> from tidegauge.dataflow.order import INT, same
>>> from tidegauge.dataflow.topology import Topology, identity_shape
>>> topology = Topology(INT, outputs=1)
>>> _ = topology.add(identity_shape(0, 1)); topology.connect((1, 0), (0, 0))
>>> tracker = Tracker(topology.compile())
>>> output = tracker.graph.source(1, 0)
>>> tracker.update(output, 3, 1); _ = tracker.propagate()
>>> Keeper(tracker, same(INT)).keep(FailedNode(1, {0: (3,)}, "it raised"), staying=lambda port: set())
{0: {3}}
>>> tracker.update(output, 3, -1); _ = tracker.propagate()
>>> tracker.implications[output].elements()
(3,)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from tidegauge.dataflow.order import Refinement, Time, advance
from tidegauge.dataflow.reachability import Tracker
from tidegauge.dataflow.schedule import Schedulable

__all__ = ["FailedNode", "Keeper", "ScopePlace"]


@dataclass(frozen=True, slots=True)
class FailedNode:
    """A node that failed: its outputs, each with the times at which it is kept, and the known reason."""

    number: int
    outputs: Mapping[int, Collection[Time]]
    why: str


class ScopePlace(Schedulable, Protocol):
    """The surroundings of a scope."""

    def keep(self, outputs: Mapping[int, Collection[Time]], why: str, *, tell: bool) -> None:
        """Keep outputs of the scope at these times. tell: at the peers as well."""
        ...


class Keeper:
    """Everything kept in one scope. at: the times by location. why: the known reasons, by node."""

    def __init__(self, tracker: Tracker, refinement: Refinement) -> None:
        self.at: Final[dict[int, set[Time]]] = {}
        self.why: Final[dict[int, str]] = {}
        self._tracker: Final = tracker
        self._refinement: Final = refinement

    def keep(self, node: FailedNode, staying: Callable[[int], set[Time]]) -> dict[int, set[Time]]:
        """Keep the outputs of a node. Return the outputs of the scope that they lead to, with times of the scope
        around it, where they are to be kept as well: it would go on before it hears of this.

        staying: the times at which an output is kept in any case.
        """
        tracker, graph = self._tracker, self._tracker.graph
        self.why.setdefault(node.number, node.why)
        leading: dict[int, set[Time]] = {}
        for port, times in node.outputs.items():
            location = graph.source(node.number, port)
            here = tracker.implications[location]
            still = {time for time in times if here.less_equal(time)}
            if len(still) < len(times):
                still.update(here.elements())
            at = self.at.setdefault(location, set())
            for time in still - at - staying(port):
                at.add(time)
                tracker.update(location, time, 1)
            for time in times:
                for output, summary in graph.to_outputs[location]:
                    if (result := advance(graph.order, time, summary)) is not None:
                        leading.setdefault(output, set()).add(self._refinement.to_outer(result))
        return leading
