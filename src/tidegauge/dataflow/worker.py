"""One worker: it owns dataflows and runs, step by step, their active operators.

Invariant: a step that raises leaves every frontier where it was, as far as the operator that raised is concerned:
nothing of that invocation is published, and what it held it holds for good. The other operators go on.

>>> worker = Worker(monotonic=lambda: 0.0)
>>> with worker.dataflow("shop", order=INT) as scope:
...     orders, stream = scope.input("orders")
...     probe = stream.map(len).probe()
>>> orders.send(["a", "b"]); orders.advance_to(1)
>>> while probe.less_than(1): _ = worker.step()
>>> probe.frontier()
Antichain([1])
>>> print(*worker.explain_stuck())
shop/orders: 1 capability at 1 held on output 0 (input handle: advance or close it), before the probe of shop/map
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import zip_longest
from typing import Any, Final

from tidegauge.dataflow.looking.draw import Drawing, draw
from tidegauge.dataflow.looking.explain import Holder, holders
from tidegauge.dataflow.looking.log import Log, LogEvent
from tidegauge.dataflow.order import INT, Order, same
from tidegauge.dataflow.progress import Subgraph, WorkerPlace
from tidegauge.dataflow.schedule import Activations, Runtime
from tidegauge.dataflow.scope import Scope
from tidegauge.dataflow.workers.mailbox import Address, Doors, Mail
from tidegauge.errors.dataflow import (
    GraphsDiffer,
    InvalidGraph,
    OperatorFailed,
    Reentrant,
    UnknownDataflow,
    WorkerBroken,
    WorkerStopped,
)

__all__ = ["Worker"]


class Worker:
    """Runs dataflows in the thread that steps it.

    monotonic: seconds that never go back, for timers. validate: check after every invocation that whatever it sent or
    kept was derived from a message or a capability (for tests). index, mail: which of the workers it is that `mail`
    connects; without, it is alone. All peers have to build the same dataflows, each its own copy. log: called, within
    a step, with every event of `tidegauge.dataflow.looking.log`; None logs nothing.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        validate: bool = False,
        index: int = 0,
        mail: Mail | None = None,
        log: Callable[[LogEvent], object] | None = None,
    ) -> None:
        self.index: Final = index
        self.peers: Final = 1 if mail is None else mail.peers
        self._activations: Final = Activations(monotonic)
        self._doors: Final[Doors | None] = None if mail is None else Doors(index, mail)
        if mail is not None:
            mail.attach(index, self._activations.unpark)
        self._faults: deque[tuple[str, BaseException]] = deque()
        self._runtime: Final = Runtime(
            self._activations,
            lambda path, error: self._faults.append((path, error)),
            validate,
            index,
            self.peers,
            _alone if self._doors is None else self._doors.post,
            None if log is None else Log(log, index, monotonic),
        )
        self._dataflows: dict[str, Subgraph] = {}
        self._places: dict[str, WorkerPlace] = {}
        self._active: set[str] = set()
        self._generations: dict[str, int] = {}
        self._turn: Final = threading.Lock()
        self._broken: BaseException | None = None
        self._stopped = False

    def dataflow(self, name: str, order: Order[Any] = INT, *, zero_cycles: bool = False) -> Scope:
        """Return the scope of a new dataflow, to be used in a `with` statement; it is installed at the end of the
        block.

        zero_cycles: allow cycles that do not advance time; what goes round in one is never known to be finished.
        Raises InvalidGraph for a name in use, ZeroCycle (at the end of the block), Reentrant.
        """
        if self._turn.locked():
            raise Reentrant(action="dataflow()")
        self._free(name)
        place = WorkerPlace(self._active, name)
        return Scope(
            name,
            (name, self._generations.get(name, 0), ()),
            same(order),
            place,
            self._runtime,
            lambda graph: self._install(name, graph, place),
            zero_cycles=zero_cycles,
        )

    def _free(self, name: str) -> None:
        if name in self._dataflows:
            raise InvalidGraph(
                path=name,
                problem="the worker already has a dataflow of this name",
                reason="names are identities",
                advice="choose another name, or drop the first one",
            )

    def _install(self, name: str, graph: Subgraph, place: WorkerPlace) -> None:
        self._free(name)
        self._generations[name] = self._generations.get(name, 0) + 1
        graph.begin()  # before the doors open: letters that came early are handed in there
        self._dataflows[name] = graph
        self._places[name] = place
        if self._doors is not None:
            self._agree(graph, self._doors)
            self._doors.open(graph.doors)
        self._active.add(name)

    def _agree(self, graph: Subgraph, doors: Doors) -> None:
        """Tell the peers which dataflow was built here, and compare it with theirs."""
        mine = tuple(graph.layout())

        def compare(theirs: tuple[str, ...]) -> None:
            for here, there in zip_longest(mine, theirs, fillvalue="nothing more"):
                if here != there:
                    raise GraphsDiffer(path=graph.path, index=self.index, mine=here, theirs=there)

        outside = graph.address_of(0)  # node 0 of a scope is the world around it
        graph.doors[outside] = compare
        doors.tell(outside, mine)

    @property
    def dataflows(self) -> tuple[str, ...]:
        """The names of the dataflows that are not complete, in the order of their installation."""
        return tuple(self._dataflows)

    def drop_dataflow(self, name: str) -> None:
        """Forget a dataflow at once: nothing in it runs again, its probes stay where they were, nothing is released.

        Raises UnknownDataflow, Reentrant.
        """
        self._begin_turn("drop_dataflow()")
        try:
            if name not in self._dataflows:
                raise UnknownDataflow(name=name, known=list(self._dataflows))
            self._forget(name)
        finally:
            self._turn.release()

    def _forget(self, name: str) -> None:
        graph = self._dataflows.pop(name)
        self._places.pop(name).gone = True  # first: by that `forget` knows whose activations to drop
        self._active.discard(name)  # its last turn may have marked it
        self._activations.forget()
        if self._doors is not None:
            self._doors.close(graph.doors)

    def step(self) -> bool:
        """Run all that is active once. Return whether any dataflow is not yet complete.

        Raises OperatorFailed, chained to the error of an operator, when one raised: once for each, after that step.
        Raises WorkerBroken, WorkerStopped, Reentrant.
        """
        return self.step_or_park(0.0)

    def step_or_park(self, timeout: float | None) -> bool:
        """Like `step`; but when nothing is active, sleep until another thread wakes an operator, a timer is due or
        `timeout` seconds have passed (None: no limit), and run nothing. Without a dataflow it returns at once.
        """
        self._begin_turn("step()")
        try:
            if self._broken is not None:
                raise WorkerBroken(error=repr(self._broken)) from self._broken
            self._activations.listen()
            if self._stopped:  # looked at after `listen`, so that no parking begins when `stop` has been called
                raise WorkerStopped(index=self.index)
            try:
                if self._doors is not None:
                    self._doors.deliver()
                self._activations.collect()
                active = set(self._active)
                self._active.clear()  # before any runs: one that marks itself again runs in the next step
                for name, graph in tuple(self._dataflows.items()):
                    if name in active:
                        graph.run()
                        if not graph.incomplete:
                            self._forget(name)
            except BaseException as error:
                self._broken = error
                raise
            # Decided after `listen`: an activation since then has rung the bell, and this sleep ends at once.
            if not active and self._dataflows and not self._faults and timeout != 0:
                self._activations.park(timeout)
            if self._faults:
                path, fault = self._faults.popleft()
                if not isinstance(fault, Exception):
                    raise fault
                raise OperatorFailed(path=path, error=f"{type(fault).__name__}: {fault}") from fault
            return bool(self._dataflows)
        finally:
            self._turn.release()

    def settle(self) -> None:
        """Step until there is nothing to do before an input, a timer or a peer brings something. Raises what
        `step` raises.
        """
        while self._dataflows and not self.idle:
            self.step()

    def _begin_turn(self, action: str) -> None:
        if not self._turn.acquire(blocking=False):
            raise Reentrant(action=action)

    def stop(self) -> None:
        """Let every step from now on raise WorkerStopped, and end the sleep. From any thread."""
        self._stopped = True
        self._activations.unpark()

    def unpark(self) -> None:
        """End the parking of this worker, or keep the next one from beginning. From any thread."""
        self._activations.unpark()

    @property
    def idle(self) -> bool:
        """Whether a step would find nothing to do: nothing is active and no peer has sent anything. Timers aside."""
        if self._active or self._activations.ready:
            return False
        return self._doors is None or not self._doors.waiting

    @property
    def next_timer(self) -> float | None:
        """When the next timer is due, by the worker's clock; None without one."""
        return self._activations.next_timer()

    def draw(self, name: str) -> Drawing:
        """Return a picture of a dataflow with its present frontiers. Raises UnknownDataflow."""
        if name not in self._dataflows:
            raise UnknownDataflow(name=name, known=list(self._dataflows))
        return draw(self._dataflows[name])

    def explain_stuck(self) -> tuple[Holder, ...]:
        """Return who holds a frontier back: the capabilities and waiting batches that nothing upstream precedes."""
        return tuple(holder for graph in self._dataflows.values() for holder in holders(graph))


def _alone(to: int, _address: Address, _letter: Any) -> None:
    raise AssertionError(f"a worker without peers sends a letter to worker {to}")
