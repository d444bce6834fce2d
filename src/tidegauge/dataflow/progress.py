"""A scope that runs: the operators in it, what they published, and the scope as an operator of the one around it.

One turn of a scope (`run`) has these phases, in this order:

1. *accept* what the outer scope said of the inputs' frontiers, in inner times;
2. *harvest* what entered since the last turn: at the inner inputs one more each, at the scope's own input one less;
3. *apply* all updates that were published up to the last turn, and propagate. Changes at the scope's own ports go up:
   batches that entered are now taken, those that left are sent, pointstamps within imply capabilities of the outputs;
4. *run* the active operators, each at most once, in the order of construction. An operator that is reached by a later
   one waits for the next step; its updates wait for the next turn.

Invariant (law 10): the update of an operator's invocation is applied in one piece. It may wait, and be joined with
other complete updates; nothing is ever taken from it.

Several workers each have a copy of the scope, and every tracker counts what all operators did: all that entered, and
all that the operators published in one turn, goes to the peers as one letter at the turn's end, and a peer's letter
is applied like this worker's own changes. A nested scope's changes stay here: every worker's copy publishes them too.
An operator has a copy on every worker and so begins with one capability for each; a nested scope counts its own.

The outputs of an operator that raised are kept where they are (`kept`): on all workers, and so are the outputs of the
scopes around it that they lead to, before anything else is applied.

The outer scope counts the batches on their way out; neither the tracker here nor the implications for outputs do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, Final

from tidegauge.dataflow.blueprint import Blueprint, Node, seen_from_outside
from tidegauge.dataflow.channel import Egress, Ingress
from tidegauge.dataflow.frontier import FrontierView, mutable_antichain
from tidegauge.dataflow.invocation import Operator
from tidegauge.dataflow.looking.log import Log, Pointstamp
from tidegauge.dataflow.order import Refinement, Time
from tidegauge.dataflow.reachability import Change, FailedNode, Keeper, Tracker
from tidegauge.dataflow.schedule import Runtime, ScopePlace
from tidegauge.dataflow.topology import NodePlace, Port, Shape
from tidegauge.dataflow.workers.mailbox import Address
from tidegauge.errors.base import brief

__all__ = ["Slot", "Subgraph", "WorkerPlace"]


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in a scope: activated when the node in it is to run."""

    graph: Subgraph
    number: int

    @property
    def gone(self) -> bool:
        """Whether its dataflow is complete or was dropped."""
        return self.graph.place.gone

    def mark(self) -> None:
        """Run the node in this step, and so all scopes around it."""
        self.graph.mark(self.number)

    def keep(self, outputs: Mapping[int, Collection[Time]], why: str, *, tell: bool) -> None:
        """Keep outputs of the node at these times. tell: at the peers as well."""
        self.graph.keep(self.number, outputs, why, tell=tell)


@dataclass(slots=True, eq=False)
class WorkerPlace:
    """The place of a dataflow in its worker. gone: whether nothing in it runs any more."""

    active: set[str]
    name: str
    gone: bool = False

    def mark(self) -> None:
        """Run the dataflow in this step."""
        if not self.gone:
            self.active.add(self.name)

    def keep(self, outputs: Mapping[int, Collection[Time]], why: str, *, tell: bool) -> None:
        """A dataflow has no outputs."""


class Subgraph:
    """A scope: under construction by its blueprint, and running once `seal` was called.

    children: the blueprint's nodes by number. place: its own place in the scope around it, or in the worker.
    incomplete: whether anything is outstanding. doors: where letters from peers are handed in, here and within.
    keeper: the times kept of operators that failed, here or at a peer.
    """

    def __init__(
        self, path: str, address: Address, refinement: Refinement, place: ScopePlace, runtime: Runtime
    ) -> None:
        self.path: Final = path
        self.address: Final = address
        self.order: Final = refinement.order
        self.refinement: Final = refinement
        self.place: Final = place
        self.runtime: Final = runtime
        self.incomplete = True
        self.shape = Shape(0, 0, ())
        self.blueprint: Final = Blueprint(path, refinement.order)
        self.children: Final = self.blueprint.children
        self.entrances: list[Ingress] = []
        self.exits: list[Egress] = []
        self.watched: list[tuple[Port, FrontierView]] = []
        self.doors: dict[Address, Callable[[Any], None]] = {address: self.receive}
        self.tracker: Tracker
        self.keeper: Keeper
        self._views: dict[int, list[FrontierView]] = {}
        self._published: list[Change] = []
        self._outgoing: list[Change] = []
        self._others = tuple(peer for peer in range(runtime.peers) if peer != runtime.index)
        self._arrived: list[tuple[int, Time, int]] = []
        self._unfinished: set[int] = set()
        self._heap: list[int] = []
        self._marked: set[int] = set()
        self._later: list[int] = []
        self._current = -1
        self._targets: tuple[int, ...] = ()
        self._sources: tuple[int, ...] = ()
        self._onward: tuple[tuple[int, ...], ...] = ()

    # Construction.

    def install(self, number: int, node: Node) -> None:
        """Put a node into its place."""
        self.children[number] = node
        if isinstance(node, Subgraph):
            self.doors.update(node.doors)
        if self.runtime.log is not None:
            self.runtime.log.operates(node.path, number, node.shape.inputs, node.shape.outputs)

    def address_of(self, number: int) -> Address:
        """Return the address of a node, the same on every worker."""
        name, generation, numbers = self.address
        return name, generation, (*numbers, number)

    def seal(self, *, zero_cycles: bool) -> None:
        """Lay the graph out and count the initial capabilities. Raises InvalidGraph, ZeroCycle."""
        graph = self.blueprint.lay_out(len(self.entrances), len(self.exits), zero_cycles=zero_cycles)
        self.shape = seen_from_outside(graph, self.refinement)
        self._entering = tuple(graph.source(0, port) for port in range(len(self.entrances)))
        self._within = tuple(graph.targets_of(0, port) for port in range(len(self.entrances)))
        self._implied = tuple(mutable_antichain(self.refinement.outer) for _ in self.exits)
        self.tracker = Tracker(graph)
        self.keeper = Keeper(self.tracker, self.refinement)
        initial: list[Change] = []
        for number, child in self.blueprint.nodes():
            child.attach(graph.place(number))
            copies = self.runtime.peers if isinstance(child, Operator) else 1
            initial.extend((location, time, count * copies) for location, time, count in child.initial())
            self._unfinished.add(number)
            self._mark(number)
        self._initial = self._propagate(initial)

    def begin(self) -> None:
        """Take in what the scopes around imply, then let operators and probes see the frontiers, here and within.
        Until then they are told that all is possible: a nested scope alone would seem to be complete.
        """
        self._take_arrived()
        self._propagate(())
        graph = self.tracker.graph
        for output, view in self.watched:
            self._views.setdefault(graph.source(*output), []).append(view)
        for child in self.children:
            if isinstance(child, Subgraph):
                child.begin()
            elif isinstance(child, Operator):
                for target, inlet in zip(child.targets, child.inputs, strict=True):
                    self._views[target] = [inlet.frontier]
        for location, views in self._views.items():
            for view in views:
                view.shown = self.tracker.implications[location].minimal

    def attach(self, place: NodePlace) -> None:
        """Take the locations in the scope around."""
        self._targets, self._sources, self._onward = place

    def initial(self) -> list[Change]:
        """Return what the operators within imply for its outputs at the beginning."""
        return [(self._sources[port], time, delta) for port, time, delta in self._initial]

    def layout(self) -> Iterator[str]:
        """Yield a line for each node and edge, here and within: all workers must have the same."""
        for number, child in self.blueprint.nodes():
            yield f"{child.path} as node {number} with {child.shape.inputs} inputs, {child.shape.outputs} outputs"
            if isinstance(child, Subgraph):
                yield from child.layout()
        for output, inlet in self.blueprint.edges:
            yield f"an edge of {self.path} from {output} to {inlet}"

    # Running.

    def mark(self, number: int) -> None:
        """Run a node in this step, and so this scope and all around it."""
        self._mark(number)
        self.place.mark()

    def accept(self, port: int, time: Time, delta: int) -> None:
        """Hear of a change of an input's frontier, in outer times."""
        self._arrived.append((port, self.refinement.to_inner(time), delta))

    def run(self) -> list[Change]:
        """Take one turn. Return what the scope did, in the locations of the scope around."""
        if self._arrived:
            self._take_arrived()
        received, self._published = self._published, []  # from here on, updates are the next turn's
        log = self.runtime.log
        if log is not None and received:
            log.applies(self.path, self._told(received))
        if self.entrances:
            self._harvest()  # before any runs: a batch is counted in no later update than its taking
        upward = self._apply(received)
        self._run_active()  # after applying: operators see the frontiers of all updates before this turn
        if self.exits:
            self._release_surplus()
        if self._published or self._heap or self.tracker.buffered:
            self.place.mark()
        if self._outgoing:  # at the end, as one letter: no invocation is split between two (law 10)
            for peer in self._others:
                self.runtime.post(peer, self.address, self._outgoing)
            self._outgoing = []
        self.incomplete = bool(self._published or self._unfinished or self.tracker.total)
        return upward

    def _take_arrived(self) -> None:
        self.tracker.update([(self._entering[port], time, delta) for port, time, delta in self._arrived])
        self._arrived.clear()

    def _harvest(self) -> None:
        """Count what entered: one more at the inputs within, one less on its way in."""
        for port, entrance in enumerate(self.entrances):
            for time, count in entrance.entered.items():
                self.publish(
                    [(to, time, count) for to in self._within[port]] + [(self._entering[port], time, -count)]
                )
            entrance.entered.clear()

    def _apply(self, received: list[Change]) -> list[Change]:
        """Hand published changes to the tracker and propagate. Return those that concern the outside (the locations
        of node 0) and how the capabilities of the scope's outputs changed, in the locations of the scope around.
        """
        exits = len(self.exits)
        boundary = exits + len(self.entrances)
        upward: list[Change] = []
        within: list[Change] = []
        for change in received:
            location, time, delta = change
            if location >= boundary:
                within.append(change)
            elif location >= exits:
                upward.append((self._targets[location - exits], self.refinement.to_outer(time), delta))
            else:
                outer = self.refinement.to_outer(time)
                upward.extend((to, outer, delta) for to in self._onward[location])
        for port, time, delta in self._propagate(within):
            upward.append((self._sources[port], time, delta))
        return upward

    def _propagate(self, changes: Sequence[Change]) -> list[tuple[int, Time, int]]:
        """Apply changes, tell the nodes whose frontiers moved, return how the outputs' capabilities changed."""
        tracker, graph = self.tracker, self.tracker.graph
        if changes:
            tracker.update(changes)
        elif not tracker.buffered:
            return []
        moved, outputs = tracker.propagate()
        for location, moves in moved.items():
            if (views := self._views.get(location)) is not None:
                frontier = tracker.implications[location].minimal  # the whole of it: all views change at one instant
                for view in views:
                    view.shown = frontier
            if not graph.is_target[location]:
                continue
            number = graph.node[location]
            child = self.children[number]
            if isinstance(child, Subgraph):
                port = graph.describe(location)[2]
                for time, delta in moves:
                    child.accept(port, time, delta)
                self._mark(number)
            elif isinstance(child, Operator) and child.notify:
                self._mark(number)
        to_outer = self.refinement.to_outer
        implied: list[tuple[int, Time, int]] = []
        for port, batch in enumerate(outputs):
            if batch:
                seen = self._implied[port].update([(to_outer(time), delta) for time, delta in batch.drain()])
                implied.extend((port, time, delta) for time, delta in seen)
        return implied

    def _run_active(self) -> None:
        log = self.runtime.log
        while self._heap:
            self._current = number = heappop(self._heap)
            self._marked.discard(number)
            child = self.children[number]
            if child is None:
                continue
            nested = isinstance(child, Subgraph)
            changes = child.run() if nested or log is None else self._logged(child, log)
            if changes:
                self.publish(changes, tell=not nested)  # a peer's copy of a nested scope publishes the same by itself
            if child.incomplete:
                self._unfinished.add(number)
                if isinstance(child, Operator) and child.fault is not None and number not in self.keeper.why:
                    self._fail(number, child.fault)
            else:
                self._unfinished.discard(number)
        self._current = -1
        self._heap, self._later = self._later, self._heap
        heapify(self._heap)

    def _release_surplus(self) -> None:
        """Count no more the times of stamps that left without them."""
        for port, way in enumerate(self.exits):
            if way.surplus:
                self.publish([(port, time, -count) for time, count in way.surplus.drain()])

    def _logged(self, child: Node, log: Log) -> list[Change]:
        """Run an operator, and tell of it."""
        before = child.fault if isinstance(child, Operator) else None
        log.begins(child.path)
        changes = child.run()
        after = child.fault if isinstance(child, Operator) else None
        log.ends(child.path, self._told(changes), after if before is None else None)
        return changes

    def _told(self, changes: list[Change]) -> Iterator[Pointstamp]:
        """Yield changes with the names of their places."""
        graph = self.tracker.graph
        for location, time, delta in changes:
            number, kind, port = graph.describe(location)
            child = self.children[number]
            yield Pointstamp("" if child is None else child.path, kind, port, time, delta)

    def receive(self, letter: list[Change] | FailedNode) -> None:
        """Take a peer's published changes, to be applied in the next turn; or keep the times of nodes that failed
        there."""
        if isinstance(letter, FailedNode):
            self._keep_outputs(letter, tell=False)
        else:
            self._published.extend(letter)
        self.place.mark()

    def _fail(self, number: int, fault: BaseException) -> None:
        """Keep all outputs of an operator where they are."""
        graph, implications = self.tracker.graph, self.tracker.implications
        ports = range(graph.shapes[number].outputs)
        outputs = {port: implications[graph.source(number, port)].elements() for port in ports}
        self.keep(number, outputs, f"it raised {brief(fault)}", tell=True)

    def keep(self, number: int, outputs: Mapping[int, Collection[Time]], why: str, *, tell: bool) -> None:
        """Keep outputs of a node at these times, for good. tell: the peers as well, ahead of what they hear later."""
        if tell:
            letter = FailedNode(number, outputs, f"{why} on worker {self.runtime.index}")
            for peer in self._others:
                self.runtime.post(peer, self.address, letter)
        self._keep_outputs(FailedNode(number, outputs, why), tell=tell)

    def _keep_outputs(self, node: FailedNode, *, tell: bool) -> None:
        leading = self.keeper.keep(node, lambda port: self._staying(node.number, port))
        if leading:
            self.place.keep(leading, node.why, tell=tell)

    def _staying(self, number: int, port: int) -> set[Time]:
        """Return the times at which an output of a node that failed here is kept by the capabilities that the node
        holds and the batches that it has not taken. Peers may give up their part of the capabilities.
        """
        child = self.children[number]
        if not isinstance(child, Operator) or child.fault is None:
            return set()
        held = None if self._others else self.tracker.pointstamps.get(self.tracker.graph.source(number, port))
        return {*child.untaken(port), *(() if held is None else held.elements())}

    def publish(self, changes: list[Change], *, tell: bool = True) -> None:
        """Take the whole of one update, to be applied in the next turn; have those run that something was sent to.

        tell: it goes to the peers as well.
        """
        if tell and self._others:
            self._outgoing.extend(changes)
        self._published.extend(changes)
        graph = self.tracker.graph
        for location, _, delta in changes:
            if delta > 0 and graph.is_target[location]:
                self._mark(graph.node[location])

    def _mark(self, number: int) -> None:
        """Have a node run in this turn, or in the next if this one is past it."""
        if number and number not in self._marked:
            self._marked.add(number)
            if number > self._current:
                heappush(self._heap, number)
            else:
                self._later.append(number)
