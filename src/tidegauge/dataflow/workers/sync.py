"""What workers agree on: a barrier that all have reached, and one sequence of what all have pushed.

Both are small dataflows of their own, and the frontier does the work.

>>> from tidegauge.dataflow.workers.cluster import execute
>>> def build(worker):
...     barrier = Barrier(worker)
...     barrier.wait()
...     barrier.close()
...     return barrier.reached()
>>> execute(build, peers=2)
[True, True]
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

from tidegauge.dataflow.build import OperatorContext
from tidegauge.dataflow.capability import Capability
from tidegauge.dataflow.invocation import OperatorInput, OperatorOutput
from tidegauge.dataflow.order import INT
from tidegauge.dataflow.worker import Worker

__all__ = ["Barrier", "Sequencer"]


class Barrier:
    """A point that no worker passes before all have come to it; it can be used again and again."""

    def __init__(self, worker: Worker, *, name: str = "barrier") -> None:
        self._worker: Final = worker
        with worker.dataflow(name, order=INT) as scope:
            self._here, stream = scope.input("here")
            self._everyone = stream.probe()

    def advance(self) -> None:
        """Come to the barrier, and go on: `reached` tells when everyone has. Raises CapabilityGone after `close`."""
        self._here.advance_to(self._here.time + 1)

    def reached(self) -> bool:
        """Whether all workers have come as often as this one."""
        return not self._everyone.less_than(self._here.time)

    def wait(self) -> None:
        """Come to the barrier and step the worker until all have. Only where each worker has a thread of its own."""
        self.advance()
        while not self.reached():
            self._worker.step_or_park(None)

    def close(self) -> None:
        """Hold nobody up any more."""
        self._here.close()


class Sequencer:
    """One sequence of what all workers push, the same on each.

    A worker pushes at a time of its own, which it then leaves; a worker that hears of a time goes beyond it. An item
    comes out when the frontier has passed its time: then nobody can push before it any more. Items of one time come
    in the order of their workers, and those of one worker in the order of pushing. The time is a logical clock
    (Lamport, 1978), so nothing runs while nobody pushes.

    >>> from tidegauge.dataflow.workers.cluster import DeterministicCluster
    >>> def build(worker):
    ...     sequencer = Sequencer(worker)
    ...     for n in range(2): sequencer.push(f"{worker.index}.{n}")
    ...     sequencer.close()
    ...     return sequencer
    >>> a, b = DeterministicCluster(peers=2, seed=1).run(build)
    >>> a.take(), b.take()
    (['0.0', '1.0', '0.1', '1.1'], ['0.0', '1.0', '0.1', '1.1'])
    """

    def __init__(self, worker: Worker, *, name: str = "sequencer") -> None:
        self._index: Final = worker.index
        self._pushed = 0
        self._waiting: list[tuple[int, int, int, Any]] = []
        self._released: list[Any] = []
        with worker.dataflow(name, order=INT) as scope:
            self._handle, self._held, stream = scope.unordered_input("pushed")
            stream.broadcast().unary("released", self._release)

    def push(self, item: Any) -> None:
        """Add an item to the sequence. Raises CapabilityGone after `close`."""
        self._handle.session(self._held).give((self._index, self._pushed, item))
        self._pushed += 1
        self._held.downgrade(self._held.time + 1)

    def take(self) -> list[Any]:
        """Return the items whose place in the sequence is known by now, and that were not taken before."""
        taken, self._released = self._released, []
        return taken

    def close(self) -> None:
        """Push nothing more, and hold nobody up."""
        self._held.drop()

    def _release(self, context: OperatorContext) -> Callable[[OperatorInput, OperatorOutput], None]:
        context.capabilities[0].drop()

        def step(inlet: OperatorInput, _output: OperatorOutput) -> None:
            for capability, (sender, number, item) in inlet.drain():
                heappush(self._waiting, (capability.time, sender, number, item))
                _go_beyond(self._held, capability.time)
            while self._waiting and not inlet.frontier.less_equal(self._waiting[0][0]):
                self._released.append(heappop(self._waiting)[-1])

        return step


def _go_beyond(held: Capability, time: int) -> None:
    if held.held and held.time <= time:
        held.downgrade(time + 1)
