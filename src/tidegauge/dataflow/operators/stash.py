"""Work that waits for its time to be complete: time -> (capability, state).

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
from typing import Generic, Protocol, TypeVar

from tidegauge.dataflow.capability import Capability
from tidegauge.dataflow.frontier import FrontierView
from tidegauge.dataflow.order import INT, Order, Time

__all__ = ["Before", "Reachable", "Stash"]

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
