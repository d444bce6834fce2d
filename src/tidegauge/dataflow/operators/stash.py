"""Work that waits for its time: the stash, time -> (capability, state), and the two operators made of it.

Invariant: each waiting time holds one capability until `ready` hands it out; `ready` hands out exactly the times that
no given frontier can still reach, in sort order. Completeness is about the *inputs*; it says nothing of the
operator's own outputs.

>>> from tidegauge.dataflow.capability import Account
>>> from tidegauge.dataflow.frontier import mutable_antichain
>>> account = Account("shop/count", 0, INT)
>>> stash = Stash(list)
>>> stash.at(3, lambda: Capability.initial(account).delayed(3)).append("ebb")
>>> stash.at(3, lambda: Capability.initial(account).delayed(3)).append("flood")
>>> frontier = mutable_antichain(INT)
>>> _ = frontier.update([(3, 1)])
>>> list(stash.ready([frontier]))
[]
>>> _ = frontier.update([(3, -1), (4, 1)])
>>> [(capability.time, state) for capability, state in stash.ready([frontier])]
[(3, ['ebb', 'flood'])]
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from tidegauge.dataflow.build import OperatorContext
from tidegauge.dataflow.capability import Capability
from tidegauge.dataflow.frontier import FrontierView
from tidegauge.dataflow.invocation import OperatorInput, OperatorOutput
from tidegauge.dataflow.order import INT, Order, Time

if TYPE_CHECKING:
    from tidegauge.dataflow.stream import Stream

__all__ = ["Before", "Reachable", "Stash", "aggregate", "state_machine"]

S = TypeVar("S")


class Reachable(Protocol):
    """What a stash asks of a frontier."""

    def less_equal(self, time: Time) -> bool:
        """Whether something at `time` may still come."""
        ...


class Before:
    """A frontier for what need not be complete: a time is ready when nothing strictly before it can still come."""

    __slots__ = ("_frontier",)

    def __init__(self, frontier: FrontierView) -> None:
        self._frontier = frontier

    def less_equal(self, time: Time) -> bool:
        """Whether something strictly before `time` may still come."""
        return self._frontier.less_than(time)


class Stash(Generic[S]):
    """A map from waiting times to a capability and a state each. Its order is that of the capabilities.

    fresh: makes the state of a time that is met first.
    """

    def __init__(self, fresh: Callable[[], S]) -> None:
        self._fresh = fresh
        self._waiting: dict[Time, tuple[Capability, S]] = {}
        self._sorted: list[Time] = []
        self._order: Order[Time] = INT

    def at(self, time: Time, capability: Callable[[], Capability]) -> S:
        """Return the state of `time`, created with a capability from `capability()` when the time is met first."""
        found = self._waiting.get(time)
        if found is None:
            held = capability()
            self._order = held.account.order
            insort(self._sorted, time, key=self._order.sort_key)
            found = self._waiting[time] = (held, self._fresh())
        return found[1]

    def ready(self, frontiers: Iterable[Reachable]) -> Iterator[tuple[Capability, S]]:
        """Yield and forget the times that are complete by all `frontiers`; the capability is the caller's to use and
        drop.

        Times that are added while this runs are looked at with the next call. In a total order nothing is looked at
        beyond the first time that is not complete: anything that can still reach it can reach all later ones.
        """
        limits = tuple(frontiers)

        def complete(time: Time) -> bool:
            return not any(limit.less_equal(time) for limit in limits)

        if not self._sorted:
            return
        for time in tuple((takewhile if self._order.total else filter)(complete, self._sorted)):
            self._forget(time)
            yield self._waiting.pop(time)

    def _forget(self, time: Time) -> None:
        key = self._order.sort_key
        at = bisect_left(self._sorted, key(time), key=key)
        while self._sorted[at] != time:  # several times of a partial order may have one key
            at += 1
        del self._sorted[at]

    def times(self) -> tuple[Time, ...]:
        """Return the waiting times in sort order."""
        return tuple(self._sorted)

    def __len__(self) -> int:
        return len(self._waiting)


def aggregate(
    stream: Stream[Any], name: str, zero: Callable[[], Any], fold: Callable[[Any, Any], Any]
) -> Stream[Any]:
    """Fold the batches of each time; send the state when the time is complete.

    With `b1 ... bn` the batches at a time, in the order of arrival, the result is `fold(... fold(fold(zero(), b1),
    b2) ..., bn)`. A time without batches has none. Batches are folded on arrival, so only the state of a time is
    kept, not its batches. The result of a time is sent once, at that time, and no batch at the time comes after it.

    >>> from tidegauge.dataflow import INT, Worker, records
    >>> worker = Worker(monotonic=lambda: 0.0)
    >>> with worker.dataflow("shop", order=INT) as scope:
    ...     orders, stream = scope.input("orders")
    ...     _ = stream.aggregate(int, lambda total, batch: total + len(batch)).inspect(print)
    ...     by_length = records.fold_by(len, int, lambda count, word: count + 1)
    ...     _ = stream.aggregate(dict, by_length).inspect(print)
    >>> orders.send(["ebb", "flood"]); orders.send(["sea"]); orders.close()
    >>> while worker.step(): pass
    (0,) 3
    (0,) {3: 2, 5: 1}
    """

    def build(context: OperatorContext) -> Callable[[OperatorInput, OperatorOutput], None]:
        context.capabilities[0].drop()
        stash: Stash[list[Any]] = Stash(lambda: [zero()])

        def step(inlet: OperatorInput, output: OperatorOutput) -> None:
            for capability, batch in inlet.drain():
                cell = stash.at(capability.time, capability.retain)
                cell[0] = fold(cell[0], batch)
            for held, (state,) in stash.ready([inlet.frontier]):
                output.give(held, state)
                held.drop()

        return step

    return stream.unary(name, build)


def state_machine(
    stream: Stream[Any], name: str, zero: Callable[[], Any], step: Callable[[Any, Any], tuple[Any, Any]]
) -> Stream[Any]:
    """Call `step(state, batch)` in the order of times: it returns the next state, and what to send or None.

    There is one state from the first time to the last. A batch is taken at once when nothing strictly before its time
    can still come, even if more may come at that time; else it waits. Times that do not compare have no order to
    keep. When a batch is taken, no batch at an earlier time comes after it.

    Argument. Whatever arrives is stashed, and then all times are taken which the frontier is not strictly before, in
    sort order. If a time `t` is taken and an earlier `s` waits on, the frontier has some `f < s < t`: so it is
    strictly before `t`, and `t` was not to be taken. And nothing at an earlier time can come later, by what a
    frontier is.

    >>> from tidegauge.dataflow import INT, Worker, records
    >>> worker = Worker(monotonic=lambda: 0.0)
    >>> def count(seen, word):
    ...     return (seen or 0) + 1, [(word, (seen or 0) + 1)]
    >>> with worker.dataflow("shop", order=INT) as scope:
    ...     words, stream = scope.input("words")
    ...     _ = stream.state_machine(dict, records.stateful(str, count)).inspect(print)
    >>> words.send(["ebb", "flood"]); words.advance_to(1); words.send(["ebb"]); words.close()
    >>> while worker.step(): pass
    (0,) [('ebb', 1), ('flood', 1)]
    (1,) [('ebb', 2)]
    """

    def build(context: OperatorContext) -> Callable[[OperatorInput, OperatorOutput], None]:
        context.capabilities[0].drop()
        stash: Stash[list[Any]] = Stash(list)
        state = zero()

        def take(inlet: OperatorInput, output: OperatorOutput) -> None:
            nonlocal state
            for capability, batch in inlet.drain():
                stash.at(capability.time, capability.retain).append(batch)
            for held, batches in stash.ready([Before(inlet.frontier)]):
                for batch in batches:
                    state, result = step(state, batch)
                    if result is not None:
                        output.give(held, result)
                held.drop()

        return take

    return stream.unary(name, build)
