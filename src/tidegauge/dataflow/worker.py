"""One worker: it owns dataflows and runs, step by step, what is active in them.

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
>>> [str(holder) for holder in worker.explain_stuck()]
['shop/orders: 1 capability at 1 held on output 0']
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from tidegauge.dataflow.explain import Holder, holders
from tidegauge.dataflow.order import INT, Order, same
from tidegauge.dataflow.progress import Subgraph
from tidegauge.dataflow.schedule import Activations, Runtime
from tidegauge.dataflow.scope import Scope
from tidegauge.errors.dataflow import InvalidGraph, OperatorFailed, Reentrant, UnknownDataflow, WorkerBroken

__all__ = ["Worker"]


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a dataflow in its worker."""

    active: set[str]
    name: str

    def mark(self) -> None:
        """Run the dataflow in this step."""
        self.active.add(self.name)


class Worker:
    """Runs dataflows in the thread that steps it.

    monotonic: seconds that never go back, for timers. validate: check after every invocation that whatever it sent or
    kept was derived from a message or a capability (for tests).
    """

    def __init__(self, monotonic: Callable[[], float], *, validate: bool = False) -> None:
        self._activations: Final = Activations(monotonic)
        self._faults: deque[tuple[str, BaseException]] = deque()
        self._runtime: Final = Runtime(
            self._activations, lambda path, error: self._faults.append((path, error)), validate
        )
        self._dataflows: dict[str, Subgraph] = {}
        self._active: set[str] = set()
        self._turn: Final = threading.Lock()
        self._broken: BaseException | None = None

    def dataflow(self, name: str, order: Order[Any] = INT, *, zero_cycles: bool = False) -> Scope:
        """Return the scope of a new dataflow, to be used in a `with` statement; it is installed at the end of the
        block.

        zero_cycles: allow cycles that do not advance time; what goes round in one is never known to be finished.
        Raises InvalidGraph for a name in use, ZeroCycle (at the end of the block), Reentrant.
        """
        if self._turn.locked():
            raise Reentrant(action="dataflow()")
        self._free(name)
        return Scope(
            name,
            same(order),
            _Place(self._active, name),
            self._runtime,
            lambda graph: self._install(name, graph),
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

    def _install(self, name: str, graph: Subgraph) -> None:
        self._free(name)
        graph.begin()
        self._dataflows[name] = graph
        self._active.add(name)

    @property
    def dataflows(self) -> tuple[str, ...]:
        """The names of the dataflows that are not complete, in the order of their installation."""
        return tuple(self._dataflows)

    def drop_dataflow(self, name: str) -> None:
        """Forget a dataflow as it is: nothing in it runs again, its probes stay where they were, nothing is released.

        Raises UnknownDataflow, Reentrant.
        """
        with self._exclusive("drop_dataflow()"):
            if name not in self._dataflows:
                raise UnknownDataflow(name=name, known=list(self._dataflows))
            del self._dataflows[name]
            self._active.discard(name)

    def step(self) -> bool:
        """Run all that is active once. Return whether any dataflow is not yet complete.

        Raises OperatorFailed, chained to the error of an operator, when one raised: once for each, after the step in
        which it happened. Raises WorkerBroken, Reentrant.
        """
        return self.step_or_park(0.0)

    def step_or_park(self, timeout: float | None) -> bool:
        """Like `step`; but when nothing is active, sleep until another thread wakes an operator, a timer is due or
        `timeout` seconds have passed (None: no limit), and run nothing. Without a dataflow it returns at once.
        """
        with self._exclusive("step()"):
            if self._broken is not None:
                raise WorkerBroken(error=repr(self._broken)) from self._broken
            try:
                self._activations.collect()
                idle = not self._active
                if not idle:
                    self._run()
            except BaseException as error:
                self._broken = error
                raise
            if idle and self._dataflows and not self._faults and timeout != 0:
                self._activations.park(timeout)
            if self._faults:
                path, fault = self._faults.popleft()
                if not isinstance(fault, Exception):
                    raise fault
                raise OperatorFailed(path=path, error=f"{type(fault).__name__}: {fault}") from fault
            return bool(self._dataflows)

    def _run(self) -> None:
        active = set(self._active)
        self._active.clear()
        for name in [name for name in self._dataflows if name in active]:
            graph = self._dataflows[name]
            graph.run()
            if not graph.incomplete:
                del self._dataflows[name]

    @contextmanager
    def _exclusive(self, action: str) -> Iterator[None]:
        if not self._turn.acquire(blocking=False):
            raise Reentrant(action=action)
        try:
            yield
        finally:
            self._turn.release()

    def explain_stuck(self) -> tuple[Holder, ...]:
        """Return who holds a frontier back: the capabilities and waiting batches that nothing upstream precedes."""
        return tuple(holder for graph in self._dataflows.values() for holder in holders(graph))
